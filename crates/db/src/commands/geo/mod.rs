//! Commands on places: sorted sets whose scores are places.
//!
//! A place is a number of 52 bits in which those of longitude and latitude alternate ([`place`]),
//! so the members of a rectangle are in a few ranges of scores. A search looks at no others
//! ([`area`]).

mod area;
mod place;
mod read;
mod search;
#[cfg(test)]
mod tests;

use pando_protocol::command::GeoCommand;
use pando_protocol::{Reply, Request, number};

use super::sorted;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::Handled;

use place::Point;

/// Runs a command of this family.
pub(super) fn execute(
    command: GeoCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        GeoCommand::Geoadd => add(keyspace, request, reply),
        GeoCommand::Geodist => read::distance(keyspace, request, reply),
        GeoCommand::Geohash => read::hashes(keyspace, request, reply),
        GeoCommand::Geopos => read::positions(keyspace, request, reply),
        GeoCommand::Georadius => search::radius(keyspace, request, reply, false, true),
        GeoCommand::GeoradiusRo => search::radius(keyspace, request, reply, false, false),
        GeoCommand::Georadiusbymember => search::radius(keyspace, request, reply, true, true),
        GeoCommand::GeoradiusbymemberRo => search::radius(keyspace, request, reply, true, false),
        GeoCommand::Geosearch => search::answer(keyspace, request, reply),
        GeoCommand::Geosearchstore => search::store(keyspace, request, reply),
    }
}

/// GEOADD key [NX | XX] [CH] longitude latitude member [longitude latitude member …]
fn add(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let mut options = sorted::Options::default();
    let mut first = 2;
    while first < request.len() {
        if request.is(first, "NX") {
            options.absent_only = true;
        } else if request.is(first, "XX") {
            options.present_only = true;
        } else if request.is(first, "CH") {
            options.changed = true;
        } else {
            break;
        }
        first += 1;
    }
    let places = request.len() - first;
    if !places.is_multiple_of(3) || options.absent_only && options.present_only {
        return Err(CommandError::Syntax);
    }
    let point = |at| point(request, at);
    let points = (first..request.len()).step_by(3).map(point);
    let scores = points.map(|point| point.map(Point::score));
    let scores = scores.collect::<Result<Vec<_>, _>>()?;
    if scores.is_empty() {
        return Err(CommandError::Syntax);
    }
    let members = request.args_from(first + 2).step_by(3);
    sorted::add_all(keyspace, request.arg(1), options, &scores, &members, reply)
}

/// The place that two arguments give.
fn point(request: Request<'_>, at: usize) -> Result<Point, CommandError> {
    let parse = |at| number::parse_f64(request.arg(at)).ok_or(CommandError::NotAFloat);
    let (longitude, latitude) = (parse(at)?, parse(at + 1)?);
    let point = Point {
        longitude,
        latitude,
    };
    if point.is_valid() {
        Ok(point)
    } else {
        Err(CommandError::InvalidPlace {
            pair: format!("{longitude:.6},{latitude:.6}"),
        })
    }
}

/// Metres of a unit.
fn unit(word: &[u8]) -> Result<f64, CommandError> {
    let is = |unit: &str| word.eq_ignore_ascii_case(unit.as_bytes());
    if is("m") {
        Ok(1.0)
    } else if is("km") {
        Ok(1000.0)
    } else if is("ft") {
        Ok(0.3048)
    } else if is("mi") {
        Ok(1609.34)
    } else {
        Err(CommandError::UnknownUnit)
    }
}

/// Writes a distance.
fn reply_distance(reply: &mut Reply<'_>, distance: f64) {
    reply.bulk(format!("{distance:.4}"));
}

/// Writes a place.
fn reply_point(reply: &mut Reply<'_>, point: Point) {
    reply.array(2);
    for degrees in [point.longitude, point.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        reply.double(if text == "-0" { "0" } else { text });
    }
}
