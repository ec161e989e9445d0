//! Which entries a stream is to lose: MAXLEN and MINID of XADD and XTRIM.
//!
//! With `~` entries go in blocks, and a block goes only as a whole. In Redis a block is a node,
//! which has [`BLOCK_ENTRIES`] entries unless they are long or were removed; here it is always so
//! many, counted from the first entry.

use pando_engine::{StreamDraft, StreamId, StreamRef};
use pando_protocol::Request;

use super::id::{self, Wanted};
use super::integer;
use crate::error::CommandError;

/// Entries that `~` leaves together.
pub(super) const BLOCK_ENTRIES: usize = 100;

/// Most entries that go at once with `~`, unless LIMIT says otherwise.
const LIMIT_DEFAULT: usize = 100 * BLOCK_ENTRIES;

/// What the options ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Threshold {
    /// This many entries stay.
    Length(usize),
    /// Entries from this id on stay.
    Id(StreamId),
}

/// A threshold, and how exactly it is met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Trim {
    threshold: Threshold,
    /// In blocks, at most so many entries; 0: any number.
    in_blocks: Option<usize>,
}

impl Trim {
    /// How many of the first entries go. O(log entries).
    pub(super) fn count(self, stream: StreamRef<'_>) -> usize {
        let len = stream.len();
        let beyond = match self.threshold {
            Threshold::Length(length) => len.saturating_sub(length),
            Threshold::Id(id) => stream.rank(id),
        };
        let Some(limit) = self.in_blocks else {
            return beyond;
        };
        let blocks = |entries: usize| entries / BLOCK_ENTRIES * BLOCK_ENTRIES;
        // The last block may be smaller.
        let whole = if beyond == len { len } else { blocks(beyond) };
        if limit == 0 || whole <= limit {
            whole
        } else {
            blocks(limit)
        }
    }

    /// Removes them; returns how many. O(log entries) for each.
    pub(super) fn apply(self, draft: &mut StreamDraft<'_>) -> usize {
        let count = self.count(draft.as_ref());
        draft.remove_first(count);
        count
    }
}

/// The options of XADD and XTRIM.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) trim: Option<Trim>,
    /// XADD makes no stream.
    pub(super) only_if_there: bool,
    /// The id that XADD is given, and the index behind it.
    pub(super) wanted: Wanted,
    pub(super) next: usize,
}

/// Parses the options that begin behind the key; of XADD, up to the id.
pub(super) fn options(request: Request<'_>, of_add: bool) -> Result<Options, CommandError> {
    let mut threshold = None;
    let (mut in_blocks, mut limit) = (false, None);
    let mut only_if_there = false;
    let mut wanted = Wanted::Any;
    let mut index = 2;
    while let Some(argument) = request.get(index) {
        let more = request.len() - index - 1;
        index += 1;
        if of_add && argument == b"*" {
            break;
        }
        let (is_length, is_id) = (
            request.is(index - 1, "MAXLEN"),
            request.is(index - 1, "MINID"),
        );
        if (is_length || is_id) && more > 0 {
            if threshold.is_some() {
                return Err(CommandError::TwoThresholds);
            }
            in_blocks = more > 1 && request.arg(index) == b"~";
            if more > 1 && matches!(request.arg(index), b"~" | b"=") {
                index += 1;
            }
            threshold = Some(parse_threshold(request.arg(index), is_length)?);
            index += 1;
        } else if request.is(index - 1, "LIMIT") && more > 0 {
            let entries = integer(request.arg(index))?;
            limit = Some(usize::try_from(entries).map_err(|_| CommandError::TrimLimit)?);
            index += 1;
        } else if of_add && request.is(index - 1, "NOMKSTREAM") {
            only_if_there = true;
        } else if of_add {
            wanted = Wanted::parse(argument)?;
            break;
        } else {
            return Err(CommandError::Syntax);
        }
    }
    if threshold.is_none() && limit.is_some_and(|limit| limit > 0) {
        return Err(CommandError::LimitWithoutThreshold);
    }
    if threshold.is_none() && !of_add {
        return Err(CommandError::NoThreshold);
    }
    if limit.is_some() && !in_blocks {
        return Err(CommandError::LimitOfExact);
    }
    let trim = threshold.map(|threshold| Trim {
        threshold,
        in_blocks: in_blocks.then(|| limit.unwrap_or(LIMIT_DEFAULT)),
    });
    Ok(Options {
        trim,
        only_if_there,
        wanted,
        next: index,
    })
}

fn parse_threshold(argument: &[u8], is_length: bool) -> Result<Threshold, CommandError> {
    if !is_length {
        return id::parse(argument, 0).map(Threshold::Id);
    }
    let length = usize::try_from(integer(argument)?).map_err(|_| CommandError::TrimLength)?;
    Ok(Threshold::Length(length))
}
