//! Members of a circle or rectangle: GEOSEARCH GEOSEARCHSTORE.

use pando_engine::SortedRef;
use pando_protocol::{Reply, Request, number};

use super::area::Shape;
use super::place::Point;
use super::read::place_of;
use super::{point, reply_distance, reply_point, sorted, unit};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// The arguments of a search.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "each is a word of its own")]
struct Search {
    /// Not known if it is that of a member and there is no set.
    centre: Option<Point>,
    by_place: bool,
    by_member: bool,
    shape: Option<Shape>,
    /// Metres of the unit in which distances are given.
    metres: f64,
    order: Option<Order>,
    count: usize,
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_place: bool,
    store_distance: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    Nearest,
    Farthest,
}

/// A member that was found.
struct Found<'s> {
    member: &'s [u8],
    score: f64,
    place: Point,
    /// In metres.
    distance: f64,
}

impl Search {
    /// Parses the arguments from `at` on.
    fn parse(
        request: Request<'_>,
        mut at: usize,
        set: Option<SortedRef<'_>>,
        stores: bool,
    ) -> Result<Self, CommandError> {
        let mut search = Self::default();
        while at < request.len() {
            at += 1 + search.option(request, at, set, stores)?;
        }
        let name = || request.arg(0).into();
        if stores && (search.with_distance || search.with_hash || search.with_place) {
            return Err(CommandError::StoreWithMore);
        }
        if !search.by_place && !search.by_member {
            return Err(CommandError::NoCentre { name: name() });
        }
        if search.shape.is_none() {
            return Err(CommandError::NoShape { name: name() });
        }
        if search.any && search.count == 0 {
            return Err(CommandError::AnyWithoutCount);
        }
        if search.count > 0 && !search.any && search.order.is_none() {
            search.order = Some(Order::Nearest);
        }
        Ok(search)
    }

    /// Takes the option at `at`; returns how many arguments follow it.
    fn option(
        &mut self,
        request: Request<'_>,
        at: usize,
        set: Option<SortedRef<'_>>,
        stores: bool,
    ) -> Result<usize, CommandError> {
        let rest = request.len() - at - 1;
        let is = |word| request.is(at, word);
        let flag = if is("WITHDIST") {
            &mut self.with_distance
        } else if is("WITHHASH") {
            &mut self.with_hash
        } else if is("WITHCOORD") {
            &mut self.with_place
        } else if is("ANY") {
            &mut self.any
        } else if stores && is("STOREDIST") {
            &mut self.store_distance
        } else {
            return self.longer_option(request, at, rest, set);
        };
        *flag = true;
        Ok(0)
    }

    fn longer_option(
        &mut self,
        request: Request<'_>,
        at: usize,
        rest: usize,
        set: Option<SortedRef<'_>>,
    ) -> Result<usize, CommandError> {
        let is = |word| request.is(at, word);
        if is("ASC") {
            self.order = Some(Order::Nearest);
            Ok(0)
        } else if is("DESC") {
            self.order = Some(Order::Farthest);
            Ok(0)
        } else if is("COUNT") && rest >= 1 {
            let count = number::parse_i64(request.arg(at + 1)).ok_or(CommandError::NotAnInteger)?;
            let count = usize::try_from(count).ok().filter(|count| *count > 0);
            self.count = count.ok_or(CommandError::CountOfPlaces)?;
            Ok(1)
        } else if is("FROMMEMBER") && rest >= 1 && !self.by_place {
            let place = place_of(set, request.arg(at + 1));
            if set.is_some() && place.is_none() {
                return Err(CommandError::NoPlaceOfMember);
            }
            (self.centre, self.by_member) = (place, true);
            Ok(1)
        } else if is("FROMLONLAT") && rest >= 2 && !self.by_member {
            (self.centre, self.by_place) = (Some(point(request, at + 1)?), true);
            Ok(2)
        } else if is("BYRADIUS")
            && rest >= 2
            && !matches!(self.shape, Some(Shape::Rectangle { .. }))
        {
            let radius = number::parse_f64(request.arg(at + 1)).ok_or(CommandError::Radius)?;
            if radius < 0.0 {
                return Err(CommandError::NegativeRadius);
            }
            self.metres = unit(request.arg(at + 2))?;
            let radius = radius * self.metres;
            self.shape = Some(Shape::Circle { radius });
            Ok(2)
        } else if is("BYBOX") && rest >= 3 && !matches!(self.shape, Some(Shape::Circle { .. })) {
            let width = number::parse_f64(request.arg(at + 1)).ok_or(CommandError::Width)?;
            let height = number::parse_f64(request.arg(at + 2)).ok_or(CommandError::Height)?;
            if width < 0.0 || height < 0.0 {
                return Err(CommandError::NegativeBox);
            }
            self.metres = unit(request.arg(at + 3))?;
            let (width, height) = (width * self.metres, height * self.metres);
            self.shape = Some(Shape::Rectangle { width, height });
            Ok(3)
        } else {
            Err(CommandError::Syntax)
        }
    }

    /// The members found. O(log members) for each range, O(1) for each member in it.
    fn run(self, set: SortedRef<'_>) -> Vec<Found<'_>> {
        let (Some(centre), Some(shape)) = (self.centre, self.shape) else {
            return Vec::new();
        };
        let enough = if self.any { self.count } else { usize::MAX };
        let ranges = shape.ranges(centre).into_iter();
        let candidates = ranges.flat_map(|range| {
            let first = set.rank_of_score(range.start as f64, false);
            let end = set.rank_of_score(range.end as f64, false);
            set.iter_from_rank(first).take(end - first)
        });
        let found = candidates.filter_map(|(member, score)| {
            let place = Point::of_score(score);
            let distance = shape.distance(centre, place)?;
            Some(Found {
                member,
                score,
                place,
                distance,
            })
        });
        let mut found: Vec<_> = found.take(enough).collect();
        match self.order {
            Some(Order::Nearest) => {
                found.sort_by(|one, other| one.distance.total_cmp(&other.distance));
            }
            Some(Order::Farthest) => {
                found.sort_by(|one, other| other.distance.total_cmp(&one.distance));
            }
            None => {}
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        found
    }

    fn reply(self, reply: &mut Reply<'_>, found: &[Found<'_>]) {
        let more = [self.with_distance, self.with_hash, self.with_place];
        let more = more.into_iter().filter(|with| *with).count();
        reply.array(found.len());
        for found in found {
            if more > 0 {
                reply.array(1 + more);
            }
            reply.bulk(found.member);
            if self.with_distance {
                reply_distance(reply, found.distance / self.metres);
            }
            if self.with_hash {
                reply.integer(found.score as i64);
            }
            if self.with_place {
                reply_point(reply, found.place);
            }
        }
    }
}

/// GEOSEARCH key FROMMEMBER member | FROMLONLAT longitude latitude BYRADIUS radius unit | BYBOX
/// width height unit [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]
pub(super) fn answer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    sorted::read(keyspace, request.arg(1), |set| {
        let search = Search::parse(request, 2, set, false)?;
        let found = set.map_or_else(Vec::new, |set| search.run(set));
        search.reply(reply, &found);
        Ok::<(), CommandError>(())
    })??;
    Ok(Progress::Done)
}

/// GEOSEARCHSTORE destination source … [STOREDIST]
pub(super) fn store(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let found = sorted::read(keyspace, request.arg(2), |set| {
        let search = Search::parse(request, 3, set, true)?;
        let found = set.map_or_else(Vec::new, |set| search.run(set));
        let stored = found.into_iter().map(|found| {
            let distance = found.distance / search.metres;
            let score = if search.store_distance {
                distance
            } else {
                found.score
            };
            (found.member.to_vec(), score)
        });
        Ok::<Vec<_>, CommandError>(stored.collect())
    })??;
    keyspace.check_key(request.arg(1))?;
    sorted::store_whole(keyspace, request.arg(1), &found)?;
    reply.count(found.len());
    Ok(Progress::Done)
}
