//! LCS: the longest common subsequence of two strings.
//!
//! Fills the textbook table of lengths row by row. Only the last row is kept, plus one bit per
//! cell: whether the way back goes up. Of several longest subsequences the answer is the one found
//! by going back from the ends, left when the lengths tie, as in Redis.
//!
//! Cost: O(N·M) time; N·M / 8 bytes when matches are requested, else O(M). The table that Redis
//! would need (four bytes a cell) must not be larger than the limit of a string.

use std::borrow::Cow;
use std::ops::Range;

use pando_engine::{BodyRef, ValueRef};
use pando_protocol::{Reply, Request, number};

use crate::commands::detached::Detached;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

/// LCS key1 key2 [LEN] [IDX] [MINMATCHLEN length] [WITHMATCHLEN]
pub(super) fn lcs(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let first = operand(keyspace, request.arg(1));
    let second = operand(keyspace, request.arg(2));
    let (first, second) = (first?, second?);
    let options = Options::parse(request)?;
    let (first, second) = (first.as_ref(), second.as_ref());
    let cells = (first.len() as u64 + 1) * (second.len() as u64 + 1);
    let table_bytes_max = keyspace
        .options()
        .value_bytes_max
        .min(keyspace.database.memory.fit_bytes_max());
    if cells * 4 > table_bytes_max as u64 {
        return Err(CommandError::LcsTooLarge);
    }
    let (first, second) = if first.is_empty() || second.is_empty() {
        // Nothing in common, however long the other one is.
        (Cow::default(), Cow::default())
    } else {
        (first.to_cow(), second.to_cow())
    };
    let table = Table::fill(&first, &second, !options.len);
    if options.len {
        reply.count(table.len as usize);
    } else if options.idx {
        reply_matches(reply, &table, &options, &first, &second);
    } else {
        let mut common = Vec::with_capacity(table.len as usize);
        table.walk_back(&first, &second, |at, _| common.push(first[at]));
        common.reverse();
        reply.bulk(common);
    }
    Ok(Progress::Done)
}

/// The string at `key`, or an empty one.
fn operand(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<Detached<'static>, CommandError> {
    keyspace.read(key, |value: Option<ValueRef<'_>>| {
        match value.map(|value| value.body) {
            None => Ok(Detached::new(&b""[..])),
            Some(BodyRef::String(string)) => Ok(Detached::take(string)),
            Some(BodyRef::Row(..)) => Err(CommandError::LcsNotStrings),
        }
    })
}

#[derive(Debug, Default)]
struct Options {
    len: bool,
    idx: bool,
    match_len_min: u64,
    with_match_len: bool,
}

impl Options {
    fn parse(request: Request<'_>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut index = 3;
        while index < request.len() {
            if request.is(index, "IDX") {
                options.idx = true;
            } else if request.is(index, "LEN") {
                options.len = true;
            } else if request.is(index, "WITHMATCHLEN") {
                options.with_match_len = true;
            } else if request.is(index, "MINMATCHLEN") && index + 1 < request.len() {
                index += 1;
                let least = number::parse_i64(request.arg(index));
                let least = least.ok_or(CommandError::NotAnInteger)?;
                options.match_len_min = u64::try_from(least).unwrap_or(0);
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        if options.idx && options.len {
            return Err(CommandError::LcsLenAndIdx);
        }
        Ok(options)
    }
}

/// What is kept of the table of lengths.
struct Table {
    /// Length of the longest common subsequence.
    len: u32,
    /// A bit per cell, row by row: whether the cell above is greater than the one to the left.
    /// Empty if the way back was not requested.
    ups: Vec<u64>,
}

impl Table {
    fn fill(first: &[u8], second: &[u8], with_way_back: bool) -> Self {
        let cells = first.len() * second.len();
        let mut ups = vec![0; if with_way_back { cells.div_ceil(64) } else { 0 }];
        if cells == 0 {
            return Self { len: 0, ups };
        }
        let mut row = vec![0; second.len()];
        for (index, byte) in first.iter().enumerate() {
            fill_row(&mut row, *byte, second, &mut ups, index * second.len());
        }
        let len = row[second.len() - 1];
        Self { len, ups }
    }

    /// Shows the matching positions of a longest common subsequence, from the last to the first.
    fn walk_back(&self, first: &[u8], second: &[u8], mut visit: impl FnMut(usize, usize)) {
        let (mut rows, mut columns) = (first.len(), second.len());
        while rows > 0 && columns > 0 {
            let (row, column) = (rows - 1, columns - 1);
            let cell = row * second.len() + column;
            if first[row] == second[column] {
                visit(row, column);
                (rows, columns) = (row, column);
            } else if self.ups[cell / 64] >> (cell % 64) & 1 == 1 {
                rows = row;
            } else {
                columns = column;
            }
        }
    }
}

/// Turns the row of the previous byte into that of `byte`; records in `ups` (if it is not empty),
/// from the bit `first_cell` on, where the cell above is the greater one.
fn fill_row(row: &mut [u32], byte: u8, second: &[u8], ups: &mut [u64], first_cell: usize) {
    let (mut left, mut diagonal) = (0, 0);
    for (column, (other, cell)) in second.iter().zip(row).enumerate() {
        let above = *cell;
        if byte == *other {
            left = diagonal + 1;
        } else if above > left {
            left = above;
            let bit = first_cell + column;
            if let Some(word) = ups.get_mut(bit / 64) {
                *word |= 1 << (bit % 64);
            }
        }
        *cell = left;
        diagonal = above;
    }
}

/// Replies to IDX: runs of matching positions, the last first, and the length.
fn reply_matches(
    reply: &mut Reply<'_>,
    table: &Table,
    options: &Options,
    first: &[u8],
    second: &[u8],
) {
    reply.map(2);
    reply.bulk("matches");
    let matches = reply.deferred_array();
    let mut count = 0;
    let mut finish = |reply: &mut Reply<'_>, run: &Run| {
        if run.first.len() as u64 >= options.match_len_min {
            run.reply(reply, options.with_match_len);
            count += 1;
        }
    };
    let mut run: Option<Run> = None;
    table.walk_back(first, second, |row, column| match &mut run {
        Some(run) if run.first.start == row + 1 && run.second.start == column + 1 => {
            (run.first.start, run.second.start) = (row, column);
        }
        run => {
            let begun = Run {
                first: row..row + 1,
                second: column..column + 1,
            };
            if let Some(run) = run.replace(begun) {
                finish(reply, &run);
            }
        }
    });
    if let Some(run) = run {
        finish(reply, &run);
    }
    reply.finish_array(matches, count);
    reply.bulk("len");
    reply.count(table.len as usize);
}

/// Consecutive positions of both strings that match.
struct Run {
    first: Range<usize>,
    second: Range<usize>,
}

impl Run {
    fn reply(&self, reply: &mut Reply<'_>, with_len: bool) {
        reply.array(2 + usize::from(with_len));
        for range in [&self.first, &self.second] {
            reply.array(2);
            reply.count(range.start);
            reply.count(range.end - 1);
        }
        if with_len {
            reply.count(self.first.len());
        }
    }
}
