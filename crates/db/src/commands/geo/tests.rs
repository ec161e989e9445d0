//! Replies of the commands on places, and searches against a look at all members.

use super::area::Shape;
use super::place::{LATITUDE_MAX, Point};
use crate::commands::testing::{Shell, seed};

const SICILY: &str = "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";

#[test]
fn places_are_those_of_redis() {
    Shell::new().check(&[
        (SICILY, ":2"),
        ("ZSCORE g Palermo", "$16 3479099956230698"),
        ("GEODIST g Palermo Catania", "$11 166274.1516"),
        ("GEODIST g Palermo Catania km", "$8 166.2742"),
        ("GEODIST g Palermo nobody", "$-1"),
        (
            "GEODIST g Palermo Catania x",
            "-ERR unsupported unit provided. please use M, KM, FT, MI",
        ),
        (
            "GEOHASH g Palermo Catania x",
            "*3 $11 sqc8b49rny0 $11 sqdtr74hyu0 $-1",
        ),
        (
            "GEOPOS g Palermo x",
            "*2 *2 $20 13.36138933897018433 $20 38.11555639549629859 *-1",
        ),
        ("GEOPOS absent x", "*1 *-1"),
        ("GEOADD g XX CH 13 38 Palermo 1 1 x", ":1"),
        ("GEOADD g NX 13 38 Palermo", ":0"),
        (
            "GEOADD g 200 100 x",
            "-ERR invalid longitude,latitude pair 200.000000,100.000000",
        ),
        ("GEOADD g 1 x x", "-ERR value is not a valid float"),
        ("GEOADD g NX XX 1 1 x", "-ERR syntax error"),
        ("GEOADD g 1 1 x 1", "-ERR syntax error"),
    ]);
}

#[test]
fn a_search_finds_what_is_near() {
    Shell::new().check(&[
        (SICILY, ":2"),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC",
            "*2 $7 Catania $7 Palermo",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km DESC COUNT 1 WITHDIST WITHHASH",
            "*1 *3 $7 Palermo $8 190.4424 :3479099956230698",
        ),
        (
            "GEOSEARCH g FROMMEMBER Palermo BYBOX 400 10 km",
            "*1 $7 Palermo",
        ),
        (
            "GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 100 km",
            "*1 $7 Catania",
        ),
        (
            "GEOSEARCHSTORE s g FROMLONLAT 15 37 BYRADIUS 100 km STOREDIST",
            ":1",
        ),
        ("ZCARD s", ":1"),
        ("GEOSEARCHSTORE s g FROMLONLAT 0 0 BYRADIUS 1 m", ":0"),
        ("EXISTS s", ":0"),
        ("GEOSEARCH absent FROMMEMBER x BYRADIUS 1 m", "*0"),
        (
            "GEOSEARCH g FROMMEMBER x BYRADIUS 1 m",
            "-ERR could not decode requested zset member",
        ),
        (
            "GEOSEARCH g BYRADIUS 1 m ASC WITHDIST",
            "-ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 ASC WITHDIST",
            "-ERR exactly one of BYRADIUS and BYBOX can be specified for GEOSEARCH",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m ANY",
            "-ERR the ANY argument requires COUNT argument",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS 1 m COUNT 0",
            "-ERR COUNT must be > 0",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS -1 m",
            "-ERR radius cannot be negative",
        ),
        (
            "GEOSEARCH g FROMLONLAT 1 1 BYRADIUS x m",
            "-ERR need numeric radius",
        ),
        (
            "GEOSEARCHSTORE s g FROMLONLAT 1 1 BYRADIUS 1 m WITHDIST",
            "-ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
        ),
    ]);
}

#[test]
fn the_older_commands_find_the_same() {
    Shell::new().check(&[
        (SICILY, ":2"),
        (
            "GEORADIUS g 15 37 200 km ASC WITHDIST",
            "*2 *2 $7 Catania $7 56.4413 *2 $7 Palermo $8 190.4424",
        ),
        ("GEORADIUS_RO g 15 37 100 km", "*1 $7 Catania"),
        (
            "GEORADIUSBYMEMBER g Palermo 200 km DESC COUNT 1",
            "*1 $7 Catania",
        ),
        ("GEORADIUSBYMEMBER_RO g Palermo 1 m", "*1 $7 Palermo"),
        ("GEORADIUS g 15 37 200 km STORE s STOREDIST d", ":2"),
        ("EXISTS s", ":0"),
        ("ZRANGE d 0 0", "*1 $7 Catania"),
        ("GEORADIUSBYMEMBER g Palermo 1 m STORE g", ":1"),
        ("ZCARD g", ":1"),
        ("GEORADIUS absent 15 37 200 km STORE d", ":0"),
        ("EXISTS d", ":0"),
        ("GEORADIUSBYMEMBER absent x y z", "*0"),
        (
            "GEORADIUSBYMEMBER g x 1 m",
            "-ERR could not decode requested zset member",
        ),
        ("GEORADIUS_RO g 15 37 1 m STORE s", "-ERR syntax error"),
        ("GEORADIUS g 15 37 1 m STORE", "-ERR syntax error"),
        ("GEORADIUS g 15 37 1 m BYRADIUS 1 m", "-ERR syntax error"),
        (
            "GEORADIUS g 15 37 1 m WITHDIST STORE s",
            "-ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and \
             WITHCOORD options",
        ),
    ]);
}

/// No place of a shape is outside of its ranges: at the poles, across the 180th meridian, and for
/// shapes from a metre to half of the Earth.
#[test]
fn the_ranges_of_a_shape_hold_all_of_it() {
    let mut random = fastrand::Rng::with_seed(seed());
    for round in 0..20_000 {
        let mut draw = |most: f64| (random.f64() * 2.0 - 1.0) * most;
        let centre = Point {
            longitude: draw(180.0),
            latitude: draw(LATITUDE_MAX),
        };
        let size = 10_f64.powf(random.f64() * 7.3);
        let shape = if round % 2 == 0 {
            Shape::Circle { radius: size }
        } else {
            let height = size * random.f64();
            Shape::Rectangle {
                width: size,
                height,
            }
        };
        let ranges = shape.ranges(centre);
        assert!(ranges.len() <= 9 && ranges.is_sorted_by(|one, next| one.end <= next.start));
        for _ in 0..20 {
            // About as far away as the shape reaches.
            let reach = size / 100_000.0;
            let mut near = |middle: f64, reach: f64| middle + (random.f64() * 2.0 - 1.0) * reach;
            let latitude = near(centre.latitude, reach).clamp(-LATITUDE_MAX, LATITUDE_MAX);
            let across = reach / latitude.to_radians().cos().max(0.01);
            let longitude = near(centre.longitude, across.min(180.0));
            let longitude = (longitude + 540.0).rem_euclid(360.0) - 180.0;
            let score = Point {
                longitude,
                latitude,
            }
            .score();
            let place = Point::of_score(score);
            let is_covered = ranges.iter().any(|range| range.contains(&(score as u64)));
            if shape.distance(centre, place).is_some() {
                assert!(is_covered, "{shape:?} around {centre:?} has {place:?}");
            }
        }
    }
}
