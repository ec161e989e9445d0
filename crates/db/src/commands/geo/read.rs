//! Places of members: GEODIST GEOHASH GEOPOS.

use pando_engine::SortedRef;
use pando_protocol::{Reply, Request};

use super::place::Point;
use super::{reply_distance, reply_point, sorted, unit};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// The place of a member.
pub(super) fn place_of(set: Option<SortedRef<'_>>, member: &[u8]) -> Option<Point> {
    set?.score(member).map(Point::of_score)
}

/// GEODIST key member1 member2 [M | KM | FT | MI]
pub(super) fn distance(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let metres = match request.len() {
        4 => 1.0,
        5 => unit(request.arg(4))?,
        _ => return Err(CommandError::Syntax),
    };
    let places = sorted::read(keyspace, request.arg(1), |set| {
        let (one, other) = (request.arg(2), request.arg(3));
        Some((place_of(set, one)?, place_of(set, other)?))
    })?;
    match places {
        Some((one, other)) => reply_distance(reply, one.distance(other) / metres),
        None => reply.null(),
    }
    Ok(Progress::Done)
}

/// GEOHASH key [member …]
pub(super) fn hashes(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    sorted::read(keyspace, request.arg(1), |set| {
        let members = request.args_from(2);
        reply.array(members.len());
        for member in members {
            match place_of(set, member) {
                Some(place) => reply.bulk(place.text()),
                None => reply.null(),
            }
        }
    })?;
    Ok(Progress::Done)
}

/// GEOPOS key [member …]
pub(super) fn positions(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    sorted::read(keyspace, request.arg(1), |set| {
        let members = request.args_from(2);
        reply.array(members.len());
        for member in members {
            match place_of(set, member) {
                Some(place) => reply_point(reply, place),
                None => reply.null_array(),
            }
        }
    })?;
    Ok(Progress::Done)
}
