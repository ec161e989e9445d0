//! Cursors of SCAN and HSCAN on ordered engines: random numbers that name where a scan continues.
//!
//! | field | writer | lock | reader |
//! |---|---|---|---|
//! | `table` | scans that pause, through any session | its mutex | scans that continue |
//!
//! A cursor belongs to the database, not to a connection. Any connection may use it, more than
//! once, until [`limits::CURSORS_MAX`] later ones (or [`limits::CURSOR_BYTES_MAX`] of their keys)
//! have been given out. An unknown one, or one of another view or hash, is refused: answering as if
//! the scan were complete would hide keys.
//!
//! Invariants:
//! - **CU1** `order` holds exactly the numbers of `positions`, oldest first, and `bytes` the sum of
//!   their sizes.
//! - **CU2** A position is the last entry looked at. A scan continues after it whether it still
//!   exists or not, so it shows everything that is present throughout.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;

use pando_sync::lock;

use crate::error::CommandError;
use crate::limits;
use crate::view::View;

/// Cursors have this many bits: some clients keep them in a double.
const CURSOR_BITS: u32 = 53;

/// Where a scan continues.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ScanPosition {
    /// Behind a key.
    Key { view: View, key: Box<[u8]> },
    /// Behind a field of a hash.
    Field {
        view: View,
        key: Box<[u8]>,
        field: Box<[u8]>,
    },
}

impl ScanPosition {
    fn bytes(&self) -> usize {
        let text = match self {
            Self::Key { key, .. } => key.len(),
            Self::Field { key, field, .. } => key.len() + field.len(),
        };
        size_of::<Self>() + text
    }
}

#[derive(Debug, Default)]
struct Table {
    positions: HashMap<u64, ScanPosition>,
    order: VecDeque<u64>,
    bytes: usize,
}

/// The shared, bounded table of resume points.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    table: Mutex<Table>,
}

/// The number that a client gave as a cursor. As in Redis, whatever `strtoul` accepts is a number;
/// an empty one is 0.
pub(crate) fn parse(argument: &[u8]) -> Result<u64, CommandError> {
    let (negative, digits) = match argument {
        [] => return Ok(0),
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] | digits => (false, digits),
    };
    let digits = std::str::from_utf8(digits).map_err(|_| CommandError::InvalidCursor)?;
    let signed_again = digits.starts_with('+');
    let number: u64 = digits.parse().map_err(|_| CommandError::InvalidCursor)?;
    match (signed_again, negative) {
        (true, _) => Err(CommandError::InvalidCursor),
        (false, true) => Ok(number.wrapping_neg()),
        (false, false) => Ok(number),
    }
}

impl Cursors {
    /// An unused cursor, never 0, drawn from `random`.
    pub(crate) fn free_number(&self, random: u64) -> u64 {
        let mut random = fastrand::Rng::with_seed(random);
        let table = lock(&self.table);
        loop {
            let cursor = random.u64(1..1 << CURSOR_BITS);
            if !table.positions.contains_key(&cursor) {
                return cursor;
            }
        }
    }

    /// From now on `cursor`, an unused number, continues a scan at `position`. If somebody has
    /// drawn the same meanwhile, as one in 2^53 does, the last position counts.
    pub(crate) fn give_out(&self, cursor: u64, position: ScanPosition) {
        lock(&self.table).insert(cursor, position);
    }

    /// The key after which a scan of `view` continues at `cursor`.
    pub(crate) fn key_of(&self, cursor: u64, view: View) -> Result<Box<[u8]>, CommandError> {
        match lock(&self.table).positions.get(&cursor) {
            Some(ScanPosition::Key { view: of, key }) if *of == view => Ok(key.clone()),
            position => Err(refuse(position, view)),
        }
    }

    /// The field after which a scan of the hash at `key` continues at `cursor`.
    pub(crate) fn field_of(
        &self,
        cursor: u64,
        view: View,
        key: &[u8],
    ) -> Result<Box<[u8]>, CommandError> {
        match lock(&self.table).positions.get(&cursor) {
            Some(ScanPosition::Field {
                view: of,
                key: at,
                field,
            }) if *of == view && **at == *key => Ok(field.clone()),
            position => Err(refuse(position, view)),
        }
    }
}

/// Why a scan of `view` does not continue at this position.
fn refuse(position: Option<&ScanPosition>, view: View) -> CommandError {
    match position {
        Some(ScanPosition::Key { view: of, .. } | ScanPosition::Field { view: of, .. })
            if of.moment() != view.moment() =>
        {
            CommandError::CursorOfAnotherView
        }
        _ => CommandError::UnknownCursor,
    }
}

impl Table {
    fn insert(&mut self, cursor: u64, position: ScanPosition) {
        self.bytes += position.bytes();
        if let Some(before) = self.positions.insert(cursor, position) {
            self.bytes -= before.bytes();
        } else {
            self.order.push_back(cursor);
        }
        while self.order.len() > limits::CURSORS_MAX || self.bytes > limits::CURSOR_BYTES_MAX {
            let oldest = self
                .order
                .pop_front()
                .expect("the bounds hold one cursor (CU1)");
            let position = self.positions.remove(&oldest).expect("CU1");
            self.bytes -= position.bytes();
        }
        assert_eq!(self.order.len(), self.positions.len(), "CU1");
    }
}

#[cfg(test)]
mod tests {
    use pando_engine::TreeId;

    use super::*;

    const VIEW: View = View::present(TreeId(3));

    impl Cursors {
        fn pause(&self, position: ScanPosition) -> u64 {
            let given = lock(&self.table).order.len() as u64;
            let cursor = self.free_number(given % 7);
            self.give_out(cursor, position);
            cursor
        }

        fn pause_behind_key(&self, view: View, key: &[u8]) -> u64 {
            let key = key.into();
            self.pause(ScanPosition::Key { view, key })
        }

        fn pause_behind_field(&self, view: View, key: &[u8], field: &[u8]) -> u64 {
            let (key, field) = (key.into(), field.into());
            self.pause(ScanPosition::Field { view, key, field })
        }
    }

    #[test]
    fn a_cursor_can_be_used_again_and_names_one_place() {
        let cursors = Cursors::default();
        let first = cursors.pause_behind_key(VIEW, b"a");
        let second = cursors.pause_behind_key(VIEW, b"b");
        assert_ne!(first, second);
        for _ in 0..2 {
            assert_eq!(cursors.key_of(first, VIEW).as_deref(), Ok(&b"a"[..]));
            assert_eq!(cursors.key_of(second, VIEW).as_deref(), Ok(&b"b"[..]));
        }
    }

    #[test]
    fn cursors_are_read_as_redis_reads_them() {
        for (argument, cursor) in [
            (&b""[..], Some(0)),
            (b"0", Some(0)),
            (b"007", Some(7)),
            (b"+5", Some(5)),
            (b"-1", Some(u64::MAX)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b" 5", None),
            (b"5 ", None),
            (b"0x1", None),
            (b"+-5", None),
            (b"-+5", None),
            (b"++5", None),
            (b"-", None),
            (b"\xff", None),
        ] {
            let expected = cursor.ok_or(CommandError::InvalidCursor);
            assert_eq!(parse(argument), expected, "{}", argument.escape_ascii());
        }
    }

    #[test]
    fn a_cursor_of_another_tree_hash_or_kind_is_unknown() {
        let cursors = Cursors::default();
        let key = cursors.pause_behind_key(VIEW, b"h");
        let field = cursors.pause_behind_field(VIEW, b"h", b"f");
        assert_eq!(
            cursors.field_of(field, VIEW, b"h").as_deref(),
            Ok(&b"f"[..])
        );
        let unknown = Err(CommandError::UnknownCursor);
        assert_eq!(cursors.key_of(key, View::present(TreeId(4))), unknown);
        assert_eq!(cursors.key_of(field, VIEW), unknown);
        assert_eq!(cursors.field_of(key, VIEW, b"h"), unknown);
        assert_eq!(cursors.field_of(field, VIEW, b"i"), unknown);
        assert_eq!(
            cursors.field_of(field, View::present(TreeId(4)), b"h"),
            unknown
        );
    }

    #[test]
    fn the_oldest_are_forgotten_first() {
        let cursors = Cursors::default();
        let all: Vec<u64> = (0..limits::CURSORS_MAX as u32 + 2)
            .map(|index| cursors.pause_behind_key(VIEW, &index.to_be_bytes()))
            .collect();
        assert!(!all.contains(&0));
        let known = |cursor| cursors.key_of(cursor, VIEW).is_ok();
        assert_eq!(
            all.iter().filter(|cursor| known(**cursor)).count(),
            limits::CURSORS_MAX
        );
        assert_eq!((known(all[1]), known(all[2])), (false, true));
    }

    #[test]
    fn long_keys_are_bounded_by_their_bytes() {
        let cursors = Cursors::default();
        let key = vec![0; pando_engine::limits::KEY_BYTES_MAX];
        let first = cursors.pause_behind_key(VIEW, &key);
        for _ in 0..limits::CURSOR_BYTES_MAX / key.len() {
            assert!(lock(&cursors.table).bytes <= limits::CURSOR_BYTES_MAX);
            cursors.pause_behind_key(VIEW, &key);
        }
        assert_eq!(
            cursors.key_of(first, VIEW),
            Err(CommandError::UnknownCursor)
        );
        let table = lock(&cursors.table);
        let bytes: usize = table.positions.values().map(ScanPosition::bytes).sum();
        assert_eq!(
            (bytes, table.order.len()),
            (table.bytes, table.positions.len())
        );
    }
}
