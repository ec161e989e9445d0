//! The options of SET and GETEX, and the times that they and SETEX take.

use pando_engine::Deadline;
use pando_protocol::{Request, number};

use crate::clock::Milliseconds;
use crate::error::CommandError;

/// When a value expires, as written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Timing<'a> {
    pub(super) text: &'a [u8],
    pub(super) unit: Unit,
    /// Whether it counts from the Unix epoch instead of from now.
    pub(super) absolute: bool,
}

/// The unit of a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    /// EX, EXAT, SETEX.
    Seconds,
    /// PX, PXAT, PSETEX.
    Milliseconds,
}

impl<'a> Timing<'a> {
    /// The option at `index` and the time after it, if it is one.
    fn parse(request: Request<'a>, index: usize) -> Option<Self> {
        const WORDS: [(&str, Unit, bool); 4] = [
            ("EX", Unit::Seconds, false),
            ("PX", Unit::Milliseconds, false),
            ("EXAT", Unit::Seconds, true),
            ("PXAT", Unit::Milliseconds, true),
        ];
        let (_, unit, absolute) = WORDS.into_iter().find(|word| request.is(index, word.0))?;
        let text = request.get(index + 1)?;
        Some(Self {
            text,
            unit,
            absolute,
        })
    }

    /// Whether `other` is the same option.
    fn is_kind_of(&self, other: &Self) -> bool {
        self.unit == other.unit && self.absolute == other.absolute
    }

    /// The deadline; the time is an integer, positive and within the range of milliseconds.
    pub(super) fn deadline(
        &self,
        now: Milliseconds,
        command: &'static str,
    ) -> Result<Deadline, CommandError> {
        let time = number::parse_i64(self.text).ok_or(CommandError::NotAnInteger)?;
        let milliseconds = match self.unit {
            Unit::Seconds => time.checked_mul(1000),
            Unit::Milliseconds => Some(time),
        };
        let start = if self.absolute { 0 } else { now.0 as i64 };
        let deadline = milliseconds
            .filter(|milliseconds| *milliseconds > 0)
            .and_then(|milliseconds| milliseconds.checked_add(start))
            .ok_or(CommandError::InvalidExpireTime { command })?;
        Ok(Deadline(deadline as u64))
    }
}

/// Whether SET writes, depending on the key's presence.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Condition {
    /// In any case.
    #[default]
    Always,
    /// NX.
    IfAbsent,
    /// XX.
    IfPresent,
}

impl Condition {
    /// Whether it allows a write where a key is `present`.
    pub(super) fn allows(self, present: bool) -> bool {
        match self {
            Self::Always => true,
            Self::IfAbsent => !present,
            Self::IfPresent => present,
        }
    }
}

/// The arguments after the value of a SET.
#[derive(Debug, Default)]
pub(super) struct SetOptions<'a> {
    pub(super) condition: Condition,
    /// Reply with the former string.
    pub(super) get: bool,
    pub(super) keep_deadline: bool,
    pub(super) timing: Option<Timing<'a>>,
}

impl<'a> SetOptions<'a> {
    /// Options may be repeated; contradicting ones are a syntax error.
    pub(super) fn parse(request: Request<'a>) -> Result<Self, CommandError> {
        let mut options = Self::default();
        let mut index = 3;
        while index < request.len() {
            if request.is(index, "NX") && options.condition != Condition::IfPresent {
                options.condition = Condition::IfAbsent;
            } else if request.is(index, "XX") && options.condition != Condition::IfAbsent {
                options.condition = Condition::IfPresent;
            } else if request.is(index, "GET") {
                options.get = true;
            } else if request.is(index, "KEEPTTL") && options.timing.is_none() {
                options.keep_deadline = true;
            } else if let Some(timing) = Timing::parse(request, index)
                && !options.keep_deadline
                && options.timing.is_none_or(|other| timing.is_kind_of(&other))
            {
                options.timing = Some(timing);
                index += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            index += 1;
        }
        Ok(options)
    }
}

/// What GETEX does besides reading.
#[derive(Debug)]
pub(super) enum GetexAction<'a> {
    /// Nothing.
    Read,
    /// Removes the deadline.
    Persist,
    /// Sets a deadline.
    Expire(Timing<'a>),
}

impl<'a> GetexAction<'a> {
    /// One option, which may be repeated.
    pub(super) fn parse(request: Request<'a>) -> Result<Self, CommandError> {
        let mut action = Self::Read;
        let mut index = 2;
        while index < request.len() {
            let timing = Timing::parse(request, index);
            action = match (action, timing) {
                (Self::Read | Self::Persist, None) if request.is(index, "PERSIST") => Self::Persist,
                (Self::Read, Some(timing)) => Self::Expire(timing),
                (Self::Expire(other), Some(timing)) if timing.is_kind_of(&other) => {
                    Self::Expire(timing)
                }
                _ => return Err(CommandError::Syntax),
            };
            index += 1 + usize::from(timing.is_some());
        }
        Ok(action)
    }
}
