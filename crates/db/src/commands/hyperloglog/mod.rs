//! Commands on sketches of `HyperLogLog`: strings that estimate how many distinct elements were
//! added to them, with a standard error of 0.81 %, in at most 12 KiB.
//!
//! A write keeps the string's deadline. PFCOUNT of one key stores the count beside the registers,
//! as in Redis, where it may write: not in a snapshot, on a replica or while writes are refused.
//!
//! Deliberately absent: the setting `hll-sparse-max-bytes`, which is at Redis' default.

mod estimate;
mod sketch;

use pando_engine::{Decision, NewValue, StringRef, ValueRef};
use pando_protocol::command::HyperloglogCommand;
use pando_protocol::{Reply, Request};

use self::estimate::Histogram;
use self::sketch::{Fault, Form, REGISTERS, Raise, Sketch};
use super::strings::kept;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::{Keyspace, string_of};
use crate::progress::{Handled, Progress};

/// Redis' default of `hll-sparse-max-bytes`: a sparse sketch does not grow beyond it.
const SPARSE_BYTES_MAX: usize = 3000;

/// Runs a command of this family.
#[inline]
pub(super) fn execute(
    command: HyperloglogCommand,
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    match command {
        HyperloglogCommand::Pfadd => pfadd(keyspace, request, reply),
        HyperloglogCommand::Pfcount => pfcount(keyspace, request, reply),
        HyperloglogCommand::Pfdebug => pfdebug(keyspace, request, reply),
        HyperloglogCommand::Pfmerge => pfmerge(keyspace, request, reply),
        HyperloglogCommand::Pfselftest => {
            compare_forms();
            reply.simple("OK");
            Ok(Progress::Done)
        }
    }
}

impl From<Fault> for CommandError {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::NoSketch => Self::NotASketch,
            Fault::Damaged => Self::DamagedSketch,
        }
    }
}

/// The decision to write a sketch whose registers have changed.
fn written(mut sketch: Sketch<'_>, old: Option<&ValueRef<'_>>) -> Decision<'static> {
    sketch.set_cached_count(None);
    Decision::Write(NewValue::new(sketch.finish()).with(kept(old, encoding::RAW)))
}

/// PFADD key [element …]
fn pfadd(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let changed = keyspace.try_update(request.arg(1), |old| {
        let (mut sketch, mut changed) = match old.map(string_of).transpose()? {
            Some(string) => (Sketch::of(string)?, false),
            None => (Sketch::new(), true),
        };
        for element in request.args_from(2) {
            changed |= sketch.raise(Raise::by(element), SPARSE_BYTES_MAX)?;
        }
        let decision = if changed {
            written(sketch, old.as_ref())
        } else {
            Decision::Keep
        };
        Ok((decision, changed))
    })?;
    reply.integer(i64::from(changed));
    Ok(Progress::Done)
}

/// PFCOUNT key [key …]
fn pfcount(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let count = if request.len() == 2 {
        count_one(keyspace, request.arg(1))?
    } else {
        let merged = Merged::of(keyspace, request, 1)?;
        let mut histogram = Histogram::new();
        for value in merged.values {
            histogram.add(value, 1);
        }
        histogram.estimate()
    };
    reply.integer(count as i64);
    Ok(Progress::Done)
}

fn count_one(keyspace: &mut Keyspace<'_>, key: &[u8]) -> Result<u64, CommandError> {
    let may_store = keyspace.may_write_for_a_reader();
    let known = keyspace.read_string(key, |string| {
        let Some(string) = string else {
            return Ok(Some(0));
        };
        sketch::form_of(string)?;
        match sketch::cached_count(string) {
            None if may_store => Ok(None),
            None => Ok::<_, CommandError>(Some(sketch::count(string)?)),
            known => Ok(known),
        }
    })??;
    if let Some(count) = known {
        return Ok(count);
    }
    keyspace.try_update(key, |old| {
        let Some(value) = old else {
            return Ok((Decision::Keep, 0));
        };
        let string = string_of(value)?;
        let mut sketch = Sketch::of(string)?;
        let count = sketch::count(string)?;
        sketch.set_cached_count(Some(count));
        let value = NewValue::new(sketch.finish()).with(kept(old.as_ref(), encoding::RAW));
        Ok((Decision::Write(value), count))
    })
}

/// The highest value of each register over several sketches.
struct Merged {
    values: Vec<u8>,
    /// Whether one of them is dense.
    has_dense: bool,
}

impl Merged {
    /// That of the keys of a request, from an argument on. O(keys).
    fn of(
        keyspace: &mut Keyspace<'_>,
        request: Request<'_>,
        from: usize,
    ) -> Result<Self, CommandError> {
        let mut merged = Self {
            values: vec![0; REGISTERS],
            has_dense: false,
        };
        for key in request.args_from(from) {
            keyspace.read_string(key, |string| {
                string.map_or(Ok(()), |string| merged.add(string))
            })??;
        }
        Ok(merged)
    }

    fn add(&mut self, string: StringRef<'_>) -> Result<(), Fault> {
        self.has_dense |= sketch::form_of(string)? == Form::Dense;
        sketch::for_each_run(string, |first, value, count| {
            for register in &mut self.values[first..first + count] {
                *register = value.max(*register);
            }
        })
    }
}

/// PFMERGE destination [key …], under all gates: it reads several keys and writes one.
fn pfmerge(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let merged = Merged::of(keyspace, request, 1)?;
    keyspace.try_update(request.arg(1), |old| {
        let mut sketch = match old.map(string_of).transpose()? {
            Some(string) => Sketch::of(string)?,
            None => Sketch::new(),
        };
        if merged.has_dense {
            sketch.make_dense()?;
        }
        let present = merged.values.iter().enumerate();
        for (register, value) in present.filter(|(_, value)| **value != 0) {
            let value = *value;
            sketch.raise(Raise { register, value }, SPARSE_BYTES_MAX)?;
        }
        Ok((written(sketch, old.as_ref()), ()))
    })?;
    reply.simple("OK");
    Ok(Progress::Done)
}

/// What PFDEBUG found.
enum Shown {
    Registers(Vec<u8>),
    Runs(String),
    Form(Form),
    Converted(bool),
}

/// PFDEBUG GETREG | DECODE | ENCODING | TODENSE key
fn pfdebug(keyspace: &mut Keyspace<'_>, request: Request<'_>, reply: &mut Reply<'_>) -> Handled {
    let shown = keyspace.try_update(request.arg(2), |old| {
        let Some(value) = old else {
            return Err(CommandError::NoSketchThere);
        };
        let string = string_of(value)?;
        let form = sketch::form_of(string)?;
        let made_dense = || -> Result<_, CommandError> {
            if form == Form::Dense {
                return Ok(Decision::Keep);
            }
            let mut sketch = Sketch::of(string)?;
            sketch.make_dense()?;
            let value = NewValue::new(sketch.finish()).with(kept(old.as_ref(), encoding::RAW));
            Ok(Decision::Write(value))
        };
        if request.is(1, "GETREG") {
            let mut registers = Vec::with_capacity(REGISTERS);
            sketch::for_each_run(string, |_, value, count| {
                registers.extend(std::iter::repeat_n(value, count));
            })?;
            Ok((made_dense()?, Shown::Registers(registers)))
        } else if request.is(1, "DECODE") {
            if form == Form::Dense {
                return Err(CommandError::SketchNotSparse);
            }
            Ok((Decision::Keep, Shown::Runs(sketch::describe(string))))
        } else if request.is(1, "ENCODING") {
            Ok((Decision::Keep, Shown::Form(form)))
        } else if request.is(1, "TODENSE") {
            Ok((made_dense()?, Shown::Converted(form == Form::Sparse)))
        } else {
            let subcommand = request.arg(1).into();
            Err(CommandError::PfdebugSubcommand { subcommand })
        }
    })?;
    match shown {
        Shown::Registers(registers) => {
            reply.array(registers.len());
            for register in registers {
                reply.integer(i64::from(register));
            }
        }
        Shown::Runs(runs) => reply.bulk(runs.as_bytes()),
        Shown::Form(Form::Dense) => reply.simple("dense"),
        Shown::Form(Form::Sparse) => reply.simple("sparse"),
        Shown::Converted(converted) => reply.integer(i64::from(converted)),
    }
    Ok(Progress::Done)
}

/// PFSELFTEST: a sparse sketch that may grow and a dense one have the same registers after each of
/// many elements.
///
/// # Panics
///
/// If they have not.
fn compare_forms() {
    const ELEMENTS: u32 = 2000;
    let (mut sparse, mut dense) = (Sketch::new(), Sketch::new());
    let sound = "a sketch of this function";
    dense.make_dense().expect(sound);
    for element in 0..ELEMENTS {
        let raise = Raise::by(&element.to_le_bytes());
        let raised = sparse.raise(raise, usize::MAX).expect(sound);
        assert_eq!(raised, dense.raise(raise, usize::MAX).expect(sound));
    }
    sparse.make_dense().expect(sound);
    sparse.set_cached_count(None);
    dense.set_cached_count(None);
    let (sparse, dense) = (sparse.finish(), dense.finish());
    assert!(sparse.as_ref().to_cow() == dense.as_ref().to_cow());
}

#[cfg(test)]
mod tests;
