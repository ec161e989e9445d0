//! Keys on their way between servers: whole values, with deadlines, flags and tokens, in the form
//! of the log (`durable::value`).

use pando_engine::{Body, Decision, NewValue, ValueVersion};

use super::again;
use crate::durable::bytes::Input;
use crate::durable::value;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::placing::Placed;

/// The version of the form of values. It changes with the log's.
pub const VALUE_FORMAT: u32 = 1;

/// A string as [`Keyspace::put_stranger`] takes it.
pub fn string_to_move(text: &[u8]) -> Vec<u8> {
    let value = NewValue::new(Body::string(text));
    let mut out = Vec::new();
    value::put_value(&mut out, value.view(ValueVersion::from_bits(1)));
    out
}

impl Keyspace<'_> {
    /// The value of a key, as [`Self::put_stranger`] takes it. O(size).
    pub fn value_to_move(&mut self, key: &[u8]) -> Option<Vec<u8>> {
        self.look(key, |found| {
            found.map(|found| {
                let mut out = Vec::new();
                value::put_value(&mut out, found);
                out
            })
        })
    }

    /// Gives a key that is not served here a value, or removes it.
    pub fn put_stranger(
        &mut self,
        placed: &Placed,
        key: &[u8],
        value: Option<&[u8]>,
    ) -> Result<(), CommandError> {
        if !placed.placement.may_place(key) {
            return Err(CommandError::NoStranger);
        }
        let Some(bytes) = value else {
            self.try_update(key, |old| {
                let there = old.is_some();
                let decision = if there {
                    Decision::Remove
                } else {
                    Decision::Keep
                };
                Ok((decision, ()))
            })?;
            return Ok(());
        };
        self.check_key(key)?;
        self.check_fit(bytes.len())?;
        let foreign = |_| CommandError::ForeignValue("it is malformed");
        let mut input = Input(bytes);
        let view = value::take_value(&mut input).map_err(foreign)?;
        if !input.is_empty() {
            return Err(CommandError::ForeignValue("something follows it"));
        }
        let value = view.build().map_err(foreign)?;
        self.try_update(key, |_| Ok((Decision::Write(again(&value)), ())))
    }
}
