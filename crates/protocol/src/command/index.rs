//! Finding a command by name or identifier.
//!
//! A name of up to 16 bytes is two overlapping words, in lower case, and a longer one three; they
//! and the length identify it. One multiplication maps them to a slot of a table in which, by
//! choice of the multiplier, no two commands collide: a lookup is one hash and one compare. Table
//! and multiplier are computed at compile time.
//!
//! Deliberately absent: abbreviations, and names that may be changed at run time.

use super::table::FAMILIES;
use super::{CommandId, CommandSpec};

/// Number of commands.
const COUNT: usize = CommandId::COUNT;

/// Slots of the hash table; a power of two, large enough to find a multiplier in a few trials.
const SLOTS: usize = 16 * 1024;

/// Marks an empty slot.
const EMPTY: u8 = u8::MAX;

/// Spreads the names over the slots without a collision.
const MULTIPLIER: u64 = find_multiplier();

const _: () = assert!(COUNT < EMPTY as usize);

/// A name, packed.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Packed {
    head: u64,
    /// The second word of a name of more than 16 bytes.
    middle: u64,
    tail: u64,
    len: usize,
}

impl Packed {
    const NONE: Self = Self {
        head: 0,
        middle: 0,
        tail: 0,
        len: 0,
    };

    /// Packs a name of 1 to 24 bytes.
    #[inline]
    const fn of(name: &[u8]) -> Option<Self> {
        let len = name.len();
        let (head, tail) = if let (Some(head), Some(tail)) =
            (name.first_chunk::<8>(), name.last_chunk::<8>())
        {
            (u64::from_le_bytes(*head), u64::from_le_bytes(*tail))
        } else if let (Some(head), Some(tail)) = (name.first_chunk::<4>(), name.last_chunk::<4>()) {
            (
                u32::from_le_bytes(*head) as u64,
                u32::from_le_bytes(*tail) as u64,
            )
        } else if len > 0 {
            let middle = (name[len / 2] as u64) << 8;
            (name[0] as u64 | middle, name[len - 1] as u64)
        } else {
            return None;
        };
        let middle = if len <= 16 {
            0
        } else if len <= 24
            && let Some(words) = name.first_chunk::<16>()
            && let Some(word) = words.last_chunk::<8>()
        {
            u64::from_le_bytes(*word)
        } else {
            return None;
        };
        Some(Self {
            head: lower(head),
            middle: lower(middle),
            tail: lower(tail),
            len,
        })
    }

    #[inline]
    const fn slot(self, multiplier: u64) -> usize {
        let mixed = (self.head ^ self.tail.rotate_left(29)).wrapping_add(self.len as u64);
        (mixed.wrapping_mul(multiplier) >> (64 - SLOTS.trailing_zeros())) as usize
    }
}

/// Eight ASCII letters at a time in lower case; other bytes stay.
#[inline]
const fn lower(word: u64) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    const HIGH: u64 = ONES << 7;
    let low_bits = word & !HIGH;
    let from_a = low_bits + ONES * (0x80 - b'A' as u64);
    let above_z = low_bits + ONES * (0x7f - b'Z' as u64);
    let upper = (from_a ^ above_z) & !word & HIGH;
    word | (upper >> 2)
}

const fn find_multiplier() -> u64 {
    let mut candidate: u64 = 0x9e37_79b9_7f4a_7c15;
    let mut taken_in = [0_u8; SLOTS];
    let mut trial = 1;
    'trials: while trial < u8::MAX {
        let mut id = 0;
        while id < COUNT {
            let slot = NAMES[id].slot(candidate);
            if taken_in[slot] == trial {
                candidate = candidate
                    .wrapping_mul(0xd134_2543_de82_ef95)
                    .wrapping_add(2);
                trial += 1;
                continue 'trials;
            }
            taken_in[slot] = trial;
            id += 1;
        }
        return candidate;
    }
    panic!("no multiplier keeps the names apart: more slots are needed");
}

/// All commands, each at its number, and none that contradicts itself ([`super::execution`]).
static COMMANDS: [&CommandSpec; COUNT] = {
    let mut commands = [&FAMILIES[0][0]; COUNT];
    let (mut next, mut family) = (0, 0);
    while family < FAMILIES.len() {
        let mut member = 0;
        while member < FAMILIES[family].len() {
            commands[next] = &FAMILIES[family][member];
            assert!(
                commands[next].number() as usize == next,
                "each family's table has its commands in the order of their enum"
            );
            commands[next].check();
            next += 1;
            member += 1;
        }
        family += 1;
    }
    assert!(next == COUNT, "each command has its entry");
    commands
};

/// The packed names, by identifier.
static NAMES: [Packed; COUNT] = {
    let mut names = [Packed::NONE; COUNT];
    let mut id = 0;
    while id < COUNT {
        names[id] = match Packed::of(COMMANDS[id].name.as_bytes()) {
            Some(name) => name,
            None => panic!("a command's name has 1 to 24 bytes"),
        };
        id += 1;
    }
    names
};

/// Identifiers by slot.
static INDEX: [u8; SLOTS] = {
    let mut index = [EMPTY; SLOTS];
    let mut id = 0;
    while id < COUNT {
        index[NAMES[id].slot(MULTIPLIER)] = id as u8;
        id += 1;
    }
    index
};

/// The command with this name, in any case. One hash, one compare, no allocation.
#[must_use]
#[inline]
pub fn lookup(name: &[u8]) -> Option<&'static CommandSpec> {
    let packed = Packed::of(name)?;
    let id = usize::from(INDEX[packed.slot(MULTIPLIER)]);
    (*NAMES.get(id)? == packed).then(|| COMMANDS[id])
}

/// The table's entry of a command.
#[must_use]
#[inline]
pub fn spec(id: CommandId) -> &'static CommandSpec {
    COMMANDS[usize::from(id.number())]
}

/// All commands, in the order of their identifiers; subcommands are in their containers.
pub fn all() -> impl ExactSizeIterator<Item = &'static CommandSpec> + Clone {
    COMMANDS.iter().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_found_in_any_case() {
        for spec in all() {
            for name in [spec.name.to_owned(), spec.name.to_uppercase()] {
                assert_eq!(lookup(name.as_bytes()).map(|found| found.id), Some(spec.id));
            }
            assert_eq!(super::spec(spec.id).name, spec.name);
        }
    }

    #[test]
    fn what_differs_from_a_name_is_not_found() {
        for name in all().map(|spec| spec.name.as_bytes()) {
            for at in 0..name.len() {
                let mut other = name.to_vec();
                for byte in 0..=u8::MAX {
                    other[at] = byte;
                    let found = lookup(&other).map(|spec| spec.name.as_bytes());
                    assert_eq!(
                        found.is_some(),
                        all().any(|spec| spec.name.as_bytes().eq_ignore_ascii_case(&other)),
                        "{other:?}"
                    );
                }
            }
        }
        for name in [
            "",
            "g",
            "ge",
            "gett",
            "getgetgetgetgetge",
            "getgetgetgetgetget",
            "georadiusbymember_rox",
            "georadiusbymember_ro_long",
        ] {
            assert!(lookup(name.as_bytes()).is_none(), "{name}");
        }
    }
}
