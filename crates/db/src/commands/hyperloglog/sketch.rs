//! The bytes of a `HyperLogLog`, which are those of Redis: a string of 16 bytes of header and
//! 16,384 registers.
//!
//! ```text
//! "HYLL" | encoding, 1 byte | 3 bytes of 0 | cached count, 8 bytes | registers
//! ```
//!
//! | field | what it holds |
//! |---|---|
//! | encoding | 0 dense, 1 sparse |
//! | cached count | little-endian; its highest bit says that it is out of date |
//! | dense registers | 6 bits each, the lowest bits of a byte first: 12,288 bytes |
//! | sparse registers | runs, which cover all registers in order |
//!
//! | run | bytes | covers |
//! |---|---|---|
//! | zeros | `00nnnnnn` | n + 1 registers of value 0 |
//! | many zeros | `01nnnnnn nnnnnnnn` | n + 1 registers of value 0, up to all |
//! | values | `1vvvvvnn` | n + 1 registers of value v + 1 |
//!
//! A sketch begins sparse. It becomes dense when it would grow beyond a bound, or when a register
//! rises above 32.
//!
//! Deliberately absent: what a sketch's key is, deadlines, replies (`mod.rs`).

use pando_engine::{StringBody, StringRef};

use super::estimate::Histogram;
use crate::commands::draft::Draft;

/// Registers of a sketch.
pub(super) const REGISTERS: usize = 1 << REGISTER_BITS;

/// The highest value of a register: one more than the bits of a hash that do not choose it.
pub(super) const VALUE_MAX: u8 = (64 - REGISTER_BITS + 1) as u8;

const REGISTER_BITS: u32 = 14;
const HEADER_BYTES: usize = 16;
const MAGIC: &[u8] = b"HYLL";
const CACHE_AT: usize = 8;
const OUT_OF_DATE: u64 = 1 << 63;

const VALUE_BITS: usize = 6;
const DENSE_BYTES: usize = HEADER_BYTES + REGISTERS * VALUE_BITS / 8;

/// A run of two bytes for each register.
const SPARSE_BYTES_MAX: usize = HEADER_BYTES + 2 * REGISTERS;

const SPARSE_VALUE_MAX: u8 = 32;
const VALUES_RUN_MAX: usize = 4;
const ZEROS_RUN_MAX: usize = 64;

/// Why a string is no sketch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// It never was one.
    NoSketch,
    /// Its runs do not cover the registers.
    Damaged,
}

/// How registers are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    Dense,
    Sparse,
}

/// Which register an element raises, and to what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Raise {
    pub(super) register: usize,
    pub(super) value: u8,
}

impl Raise {
    /// That of an element.
    pub(super) fn by(element: &[u8]) -> Self {
        let hash = murmur(element);
        let rest = hash >> REGISTER_BITS | 1 << (64 - REGISTER_BITS);
        Self {
            register: hash as usize % REGISTERS,
            value: rest.trailing_zeros() as u8 + 1,
        }
    }
}

/// The form of a string, if it looks like a sketch; runs are not looked at. O(log length).
pub(super) fn form_of(string: StringRef<'_>) -> Result<Form, Fault> {
    if string.len() < HEADER_BYTES {
        return Err(Fault::NoSketch);
    }
    let header = string.slice(0..HEADER_BYTES);
    match (header.starts_with(MAGIC), header[MAGIC.len()]) {
        (true, 0) if string.len() == DENSE_BYTES => Ok(Form::Dense),
        (true, 1) if string.len() <= SPARSE_BYTES_MAX => Ok(Form::Sparse),
        (true, 1) => Err(Fault::Damaged),
        _ => Err(Fault::NoSketch),
    }
}

/// The cached count of a sketch, unless it is out of date. O(log length).
pub(super) fn cached_count(string: StringRef<'_>) -> Option<u64> {
    let bytes = string.slice(CACHE_AT..HEADER_BYTES);
    let count = u64::from_le_bytes(bytes[..].try_into().expect("8 bytes"));
    (count & OUT_OF_DATE == 0).then_some(count)
}

/// Shows runs of registers in order: the first one's number, their value, how many. O(length).
pub(super) fn for_each_run(
    string: StringRef<'_>,
    mut visit: impl FnMut(usize, u8, usize),
) -> Result<(), Fault> {
    match form_of(string)? {
        Form::Dense => {
            let bytes = string.slice(HEADER_BYTES..DENSE_BYTES);
            for (group, bytes) in bytes.chunks_exact(3).enumerate() {
                let four = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], 0]);
                for place in 0..4 {
                    let value = (four >> (place * VALUE_BITS)) as u8 & VALUE_MASK;
                    visit(group * 4 + place, value, 1);
                }
            }
            Ok(())
        }
        Form::Sparse => {
            let bytes = string.slice(HEADER_BYTES..string.len());
            let mut covered = 0;
            for run in runs(&bytes) {
                let run = run?;
                if run.count > REGISTERS - covered {
                    return Err(Fault::Damaged);
                }
                visit(covered, run.value, run.count);
                covered += run.count;
            }
            if covered == REGISTERS {
                Ok(())
            } else {
                Err(Fault::Damaged)
            }
        }
    }
}

/// Counts the distinct elements of a sketch. O(registers).
pub(super) fn count(string: StringRef<'_>) -> Result<u64, Fault> {
    let mut histogram = Histogram::new();
    for_each_run(string, |_, value, registers| {
        histogram.add(value, registers);
    })?;
    Ok(histogram.estimate())
}

/// The runs of a sparse sketch in the words of PFDEBUG DECODE. As in Redis, a run that is cut off
/// at the end counts as if a 0 followed. O(length).
pub(super) fn describe(string: StringRef<'_>) -> String {
    let bytes = string.slice(HEADER_BYTES..string.len());
    let cut = || {
        let last = bytes.last().copied().unwrap_or_default();
        Run::decode(&[last, 0]).expect("two bytes hold any run")
    };
    let words: Vec<String> = runs(&bytes)
        .map(|run| {
            let Run {
                value,
                count,
                bytes,
            } = run.unwrap_or_else(|_| cut());
            match (value, bytes) {
                (0, 1) => format!("z:{count}"),
                (0, _) => format!("Z:{count}"),
                _ => format!("v:{value},{count}"),
            }
        })
        .collect();
    words.join(" ")
}

const VALUE_MASK: u8 = (1 << VALUE_BITS) - 1;

/// A run of the sparse form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Run {
    /// 0 or a register's value.
    value: u8,
    /// How many registers.
    count: usize,
    /// How many bytes.
    bytes: usize,
}

impl Run {
    fn zeros(count: usize) -> Self {
        let bytes = if count > ZEROS_RUN_MAX { 2 } else { 1 };
        Self {
            value: 0,
            count,
            bytes,
        }
    }

    fn values(value: u8, count: usize) -> Self {
        Self {
            value,
            count,
            bytes: 1,
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Fault> {
        let first = bytes[0];
        Ok(match first >> 6 {
            0 => Self::zeros(usize::from(first) + 1),
            1 => {
                let second = bytes.get(1).ok_or(Fault::Damaged)?;
                let count = usize::from(first & 0x3f) << 8 | usize::from(*second);
                Self {
                    value: 0,
                    count: count + 1,
                    bytes: 2,
                }
            }
            _ => Self::values((first >> 2 & 0x1f) + 1, usize::from(first & 3) + 1),
        })
    }

    fn encode(self, out: &mut Vec<u8>) {
        let count = self.count - 1;
        match (self.value, self.bytes) {
            (0, 1) => out.push(count as u8),
            (0, _) => out.extend([0x40 | (count >> 8) as u8, count as u8]),
            (value, _) => out.push(0x80 | (value - 1) << 2 | count as u8),
        }
    }
}

/// The runs of sparse registers.
fn runs(bytes: &[u8]) -> impl Iterator<Item = Result<Run, Fault>> + '_ {
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let run = (!rest.is_empty()).then(|| Run::decode(rest))?;
        rest = &rest[run.map_or(rest.len(), |run| run.bytes)..];
        Some(run)
    })
}

/// A sketch that is changed.
#[derive(Debug)]
pub(super) enum Sketch<'a> {
    /// All its bytes.
    Sparse(Vec<u8>),
    /// A dense one that was so before.
    Dense(Draft<'a>),
    /// All bytes of one that has become dense.
    Converted(Vec<u8>),
}

impl<'a> Sketch<'a> {
    /// A new one: sparse, with its count out of date.
    pub(super) fn new() -> Self {
        let mut bytes = vec![0; HEADER_BYTES];
        bytes[..MAGIC.len()].copy_from_slice(MAGIC);
        bytes[MAGIC.len()] = 1;
        Run {
            value: 0,
            count: REGISTERS,
            bytes: 2,
        }
        .encode(&mut bytes);
        Self::Sparse(bytes)
    }

    /// That of a string.
    pub(super) fn of(string: StringRef<'a>) -> Result<Self, Fault> {
        Ok(match form_of(string)? {
            Form::Dense => Self::Dense(Draft::new(string, DENSE_BYTES)),
            Form::Sparse => Self::Sparse(string.to_cow().into_owned()),
        })
    }

    /// Raises a register, if it is lower. Returns whether it was. A sparse sketch does not grow
    /// beyond `sparse_bytes_max`. O(1) if it is dense, else O(length).
    pub(super) fn raise(
        &mut self,
        Raise { register, value }: Raise,
        sparse_bytes_max: usize,
    ) -> Result<bool, Fault> {
        if let Self::Sparse(bytes) = self {
            if value <= SPARSE_VALUE_MAX
                && let Some(raised) = raise_sparse(bytes, register, value, sparse_bytes_max)?
            {
                return Ok(raised);
            }
            self.make_dense()?;
        }
        let bit = register * VALUE_BITS;
        let at = HEADER_BYTES + bit / 8;
        let pair = u16::from_le_bytes([self.byte(at), self.byte(at + 1)]);
        let present = (pair >> (bit % 8)) as u8 & VALUE_MASK;
        if present >= value {
            return Ok(false);
        }
        let cleared = pair & !(u16::from(VALUE_MASK) << (bit % 8));
        let changed = cleared | u16::from(value) << (bit % 8);
        let [low, high] = changed.to_le_bytes();
        self.set_byte(at, low);
        self.set_byte(at + 1, high);
        Ok(true)
    }

    /// Makes a sparse sketch dense; one that is dense stays as it is.
    pub(super) fn make_dense(&mut self) -> Result<(), Fault> {
        let Self::Sparse(sparse) = self else {
            return Ok(());
        };
        let mut converted = sparse[..HEADER_BYTES].to_vec();
        converted[MAGIC.len()] = 0;
        converted.resize(DENSE_BYTES, 0);
        for_each_run(StringRef::Flat(sparse), |first, value, count| {
            if value != 0 {
                for register in first..first + count {
                    let bit = register * VALUE_BITS;
                    let at = HEADER_BYTES + bit / 8;
                    let shifted = u16::from(value) << (bit % 8);
                    converted[at] |= shifted as u8;
                    if shifted > 0xff {
                        converted[at + 1] |= (shifted >> 8) as u8;
                    }
                }
            }
        })?;
        *self = Self::Converted(converted);
        Ok(())
    }

    /// Sets the cached count, or says that it is out of date, which leaves its other bits as they
    /// were.
    pub(super) fn set_cached_count(&mut self, count: Option<u64>) {
        if let Some(count) = count {
            for (index, byte) in count.to_le_bytes().into_iter().enumerate() {
                self.set_byte(CACHE_AT + index, byte);
            }
        } else {
            let last = HEADER_BYTES - 1;
            self.set_byte(last, self.byte(last) | 0x80);
        }
    }

    /// The string that it is now.
    pub(super) fn finish(self) -> StringBody<'static> {
        match self {
            Self::Sparse(bytes) | Self::Converted(bytes) => StringBody::owned(bytes),
            Self::Dense(draft) => draft.finish(),
        }
    }

    /// A byte; 0 behind the end, where the last register has no second byte.
    fn byte(&self, at: usize) -> u8 {
        match self {
            Self::Sparse(bytes) | Self::Converted(bytes) => bytes.get(at).copied().unwrap_or(0),
            Self::Dense(draft) => draft.read::<1>(at)[0],
        }
    }

    fn set_byte(&mut self, at: usize, byte: u8) {
        if self.byte(at) == byte {
            return;
        }
        match self {
            Self::Sparse(bytes) | Self::Converted(bytes) => bytes[at] = byte,
            Self::Dense(draft) => draft.write(at, &[byte]),
        }
    }
}

/// Raises a register of a sparse sketch. Returns whether it was lower; `None` if it must become
/// dense first.
fn raise_sparse(
    bytes: &mut Vec<u8>,
    register: usize,
    value: u8,
    bytes_max: usize,
) -> Result<Option<bool>, Fault> {
    let Located {
        before,
        at,
        first,
        run,
    } = locate(bytes, register)?;
    if run.value >= value {
        return Ok(Some(false));
    }
    let mut replacement = Vec::new();
    let part = |count| {
        if run.value == 0 {
            Run::zeros(count)
        } else {
            Run::values(run.value, count)
        }
    };
    if register > first {
        part(register - first).encode(&mut replacement);
    }
    Run::values(value, 1).encode(&mut replacement);
    let behind = first + run.count - 1 - register;
    if behind > 0 {
        part(behind).encode(&mut replacement);
    }
    if replacement.len() > run.bytes && bytes.len() + replacement.len() - run.bytes > bytes_max {
        return Ok(None);
    }
    bytes.splice(at..at + run.bytes, replacement);
    join_values(bytes, before.unwrap_or(HEADER_BYTES));
    Ok(Some(true))
}

/// Where a register is in a sparse sketch.
struct Located {
    /// The run before that one begins there.
    before: Option<usize>,
    /// Its run begins at this byte,
    at: usize,
    /// and covers registers from this one on.
    first: usize,
    run: Run,
}

fn locate(bytes: &[u8], register: usize) -> Result<Located, Fault> {
    let (mut before, mut at, mut first) = (None, HEADER_BYTES, 0);
    for run in runs(&bytes[HEADER_BYTES..]) {
        let run = run?;
        if register < first + run.count {
            return Ok(Located {
                before,
                at,
                first,
                run,
            });
        }
        before = Some(at);
        at += run.bytes;
        first += run.count;
    }
    Err(Fault::Damaged)
}

/// The run that begins at a byte, if one does.
fn run_at(bytes: &[u8], at: usize) -> Option<Run> {
    let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
    Run::decode(rest).ok()
}

/// Joins neighbouring runs of one value, from the run at `at` on: those that a change of one
/// register can have made neighbours.
fn join_values(bytes: &mut Vec<u8>, mut at: usize) {
    /// The run before the change, the three that it makes at most, and the one behind.
    const LOOKS: usize = 5;
    for _ in 0..LOOKS {
        let Some(run) = run_at(bytes, at) else {
            return;
        };
        let next = at + run.bytes;
        if run.value != 0
            && let Some(other) = run_at(bytes, next)
            && other.value == run.value
            && run.count + other.count <= VALUES_RUN_MAX
        {
            let mut joined = Vec::with_capacity(1);
            Run::values(run.value, run.count + other.count).encode(&mut joined);
            bytes.splice(at..next + other.bytes, joined);
        } else {
            at = next;
        }
    }
}

/// Appleby's `MurmurHash64A`, with the seed that Redis' sketches have.
fn murmur(bytes: &[u8]) -> u64 {
    const SEED: u64 = 0xadc8_3b19;
    const FACTOR: u64 = 0xc6a4_a793_5bd1_e995;
    const SHIFT: u32 = 47;
    let mut hash = SEED ^ (bytes.len() as u64).wrapping_mul(FACTOR);
    let (words, rest) = bytes.as_chunks::<8>();
    for word in words {
        let mut word = u64::from_le_bytes(*word).wrapping_mul(FACTOR);
        word = (word ^ word >> SHIFT).wrapping_mul(FACTOR);
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u64::from_le_bytes(last)).wrapping_mul(FACTOR);
    }
    hash = (hash ^ hash >> SHIFT).wrapping_mul(FACTOR);
    hash ^ hash >> SHIFT
}
