//! Members of a circle or rectangle: `GEOSEARCH`, `GEOSEARCHSTORE`, and the older `GEORADIUS`,
//! `GEORADIUS_RO`, `GEORADIUSBYMEMBER` and `GEORADIUSBYMEMBER_RO`.

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
    /// The index of the key that takes what is found.
    destination: Option<usize>,
    store_distance: bool,
}

/// How a command says what it looks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// GEOSEARCH, GEOSEARCHSTORE: by words.
    Worded { stores: bool },
    /// The older commands: the circle comes first. Some may store.
    Circle { may_store: bool },
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
    /// Parses the arguments of GEOSEARCH from `at` on.
    fn parse(
        request: Request<'_>,
        at: usize,
        set: Option<SortedRef<'_>>,
        stores: bool,
    ) -> Result<Self, CommandError> {
        let search = Self {
            destination: stores.then_some(1),
            ..Self::default()
        };
        search.options(request, at, set, Form::Worded { stores })
    }

    /// Parses the arguments of GEORADIUS and its kin.
    fn parse_circle(
        request: Request<'_>,
        by_member: bool,
        set: Option<SortedRef<'_>>,
        may_store: bool,
    ) -> Result<Self, CommandError> {
        let mut search = Self {
            by_member,
            by_place: !by_member,
            ..Self::default()
        };
        let at = if by_member {
            search.centre = place_of(set, request.arg(2));
            3
        } else {
            search.centre = Some(point(request, 2)?);
            4
        };
        if set.is_some() && search.centre.is_none() {
            return Err(CommandError::NoPlaceOfMember);
        }
        if search.centre.is_some() {
            search.circle(request, at)?;
        } else {
            // Nothing is found, so nobody looks at the radius: Redis does not either.
            search.shape = Some(Shape::Circle { radius: 0.0 });
        }
        search.options(request, at + 2, set, Form::Circle { may_store })
    }

    /// Parses options from `at` on, and checks the whole.
    fn options(
        mut self,
        request: Request<'_>,
        mut at: usize,
        set: Option<SortedRef<'_>>,
        form: Form,
    ) -> Result<Self, CommandError> {
        while at < request.len() {
            at += 1 + self.option(request, at, set, form)?;
        }
        let name = || request.arg(0).into();
        let with_more = self.with_distance || self.with_hash || self.with_place;
        if self.destination.is_some() && with_more {
            return Err(match form {
                Form::Worded { .. } => CommandError::StoreWithMore,
                Form::Circle { .. } => CommandError::StoreOptionWithMore,
            });
        }
        if !self.by_place && !self.by_member {
            return Err(CommandError::NoCentre { name: name() });
        }
        if self.shape.is_none() {
            return Err(CommandError::NoShape { name: name() });
        }
        if self.any && self.count == 0 {
            return Err(CommandError::AnyWithoutCount);
        }
        if self.count > 0 && !self.any && self.order.is_none() {
            self.order = Some(Order::Nearest);
        }
        Ok(self)
    }

    /// The circle whose radius is at `at`, and its unit behind it.
    fn circle(&mut self, request: Request<'_>, at: usize) -> Result<(), CommandError> {
        let radius = number::parse_f64(request.arg(at)).ok_or(CommandError::Radius)?;
        if radius < 0.0 {
            return Err(CommandError::NegativeRadius);
        }
        self.metres = unit(request.arg(at + 1))?;
        let radius = radius * self.metres;
        self.shape = Some(Shape::Circle { radius });
        Ok(())
    }

    /// Takes the option at `at`; returns how many arguments follow it.
    fn option(
        &mut self,
        request: Request<'_>,
        at: usize,
        set: Option<SortedRef<'_>>,
        form: Form,
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
        } else if form == (Form::Worded { stores: true }) && is("STOREDIST") {
            &mut self.store_distance
        } else {
            return self.longer_option(request, at, rest, set, form);
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
        form: Form,
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
            self.count = count.ok_or(CommandError::CountBelowOne)?;
            Ok(1)
        } else if let Form::Circle { may_store } = form {
            if !(may_store && rest >= 1 && (is("STORE") || is("STOREDIST"))) {
                return Err(CommandError::Syntax);
            }
            (self.destination, self.store_distance) = (Some(at + 1), is("STOREDIST"));
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
            self.circle(request, at + 1)?;
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

    /// The members found with what is stored as their scores.
    fn to_store(self, set: Option<SortedRef<'_>>) -> Vec<(Vec<u8>, f64)> {
        let found = set.map_or_else(Vec::new, |set| self.run(set));
        let stored = found.into_iter().map(|found| {
            let distance = found.distance / self.metres;
            let score = if self.store_distance {
                distance
            } else {
                found.score
            };
            (found.member.to_vec(), score)
        });
        stored.collect()
    }

    /// Stores members at the destination, and replies with their number.
    fn store(
        self,
        keyspace: &mut Keyspace<'_>,
        request: Request<'_>,
        reply: &mut Reply<'_>,
        found: &[(Vec<u8>, f64)],
    ) -> Handled {
        let destination = request.arg(self.destination.unwrap_or(1));
        keyspace.check_key(destination)?;
        sorted::store_whole(keyspace, destination, found)?;
        reply.count(found.len());
        Ok(Progress::Done)
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
    let (search, found) = sorted::read(keyspace, request.arg(2), |set| {
        let search = Search::parse(request, 3, set, true)?;
        Ok::<_, CommandError>((search, search.to_store(set)))
    })??;
    search.store(keyspace, request, reply, &found)
}

/// GEORADIUS key longitude latitude radius unit [WITHCOORD] [WITHDIST] [WITHHASH] [COUNT count
/// [ANY]] [ASC | DESC] [STORE key | STOREDIST key], GEORADIUSBYMEMBER key member radius unit …, and
/// both with _RO, which do not store.
pub(super) fn radius(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
    by_member: bool,
    may_store: bool,
) -> Handled {
    let kept = sorted::read(keyspace, request.arg(1), |set| {
        let search = Search::parse_circle(request, by_member, set, may_store)?;
        if search.destination.is_some() {
            return Ok::<_, CommandError>(Some((search, search.to_store(set))));
        }
        let found = set.map_or_else(Vec::new, |set| search.run(set));
        search.reply(reply, &found);
        Ok(None)
    })??;
    match kept {
        Some((search, found)) => search.store(keyspace, request, reply, &found),
        None => Ok(Progress::Done),
    }
}
