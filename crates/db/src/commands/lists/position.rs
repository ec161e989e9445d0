//! Where an element is: LPOS.

use pando_engine::ListRef;
use pando_protocol::{Reply, Request, number};

use super::read;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

struct Options {
    /// From which match on, and from which end.
    rank: i64,
    /// How many matches; `None` is one, which is returned alone.
    count: Option<usize>,
    /// How many elements are compared.
    compared_max: usize,
}

/// LPOS key element [RANK rank] [COUNT count] [MAXLEN len]
pub(super) fn find(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let options = parse(request)?;
    let found = read(keyspace, request.arg(1), |list| {
        list.map(|list| search(list, request.arg(2), &options))
    })?;
    let found = found.unwrap_or_default();
    if options.count.is_some() {
        reply.array(found.len());
        for position in found {
            reply.count(position);
        }
    } else {
        match found.first() {
            Some(position) => reply.count(*position),
            None => reply.null(),
        }
    }
    Ok(Progress::Done)
}

/// The positions of an element, in the order in which they are asked for. O(elements compared).
fn search(list: ListRef<'_>, element: &[u8], options: &Options) -> Vec<usize> {
    let skipped = usize::try_from(options.rank.unsigned_abs() - 1).unwrap_or(usize::MAX);
    let count = options.count.unwrap_or(1);
    let compared = options.compared_max.min(list.len());
    if options.rank > 0 {
        let matches = list.iter_from(0).take(compared).enumerate();
        let matches = matches.filter(|(_, found)| *found == element);
        return matches.skip(skipped).take(count).map(|it| it.0).collect();
    }
    let first = list.len() - compared;
    let matches = list.iter_from(first).enumerate();
    let matches = matches.filter(|(_, found)| *found == element);
    let matches: Vec<usize> = matches.map(|(index, _)| first + index).collect();
    matches
        .into_iter()
        .rev()
        .skip(skipped)
        .take(count)
        .collect()
}

fn parse(request: Request<'_>) -> Result<Options, CommandError> {
    let mut options = Options {
        rank: 1,
        count: None,
        compared_max: usize::MAX,
    };
    for index in (3..request.len()).step_by(2) {
        let argument = request.get(index + 1).ok_or(CommandError::Syntax)?;
        // 0 is as many as there are.
        let many = |error| {
            let number = number::parse_i64(argument);
            let number = number.and_then(|number| usize::try_from(number).ok());
            number
                .map(|it| if it == 0 { usize::MAX } else { it })
                .ok_or(error)
        };
        if request.is(index, "RANK") {
            options.rank = number::parse_i64(argument).ok_or(CommandError::NotAnInteger)?;
            if options.rank == 0 {
                return Err(CommandError::RankZero);
            }
            if options.rank == i64::MIN {
                return Err(CommandError::CountBetween {
                    least: -i64::MAX,
                    most: i64::MAX,
                });
            }
        } else if request.is(index, "COUNT") {
            options.count = Some(many(CommandError::NegativeCount)?);
        } else if request.is(index, "MAXLEN") {
            options.compared_max = many(CommandError::NegativeMaxlen)?;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    Ok(options)
}
