//! BITOP, which runs under all gates: it reads several keys and writes one.

use pando_engine::{Decision, NewValue, StringRef};
use pando_protocol::{Reply, Request};

use super::kept;
use crate::commands::detached::Detached;
use crate::encoding;
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::progress::{Handled, Progress};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(request: Request<'_>) -> Result<Self, CommandError> {
        const WORDS: [(&str, Operation); 4] = [
            ("AND", Operation::And),
            ("OR", Operation::Or),
            ("XOR", Operation::Xor),
            ("NOT", Operation::Not),
        ];
        let found = WORDS.into_iter().find(|(word, _)| request.is(1, word));
        let (_, operation) = found.ok_or(CommandError::Syntax)?;
        if operation == Self::Not && request.len() != 4 {
            return Err(CommandError::BitopNot);
        }
        Ok(operation)
    }

    /// Turns the first source into the result so far.
    fn begin(self, source: StringRef<'_>) -> Vec<u8> {
        let mut result = source.to_cow().into_owned();
        if self == Self::Not {
            for byte in &mut result {
                *byte = !*byte;
            }
        }
        result
    }

    /// Combines another source with the result so far; the shorter one is followed by zeros.
    fn combine(self, result: &mut Vec<u8>, source: StringRef<'_>) {
        let len = source.len();
        if result.len() < len {
            result.resize(len, 0);
        }
        let mut rest = &mut result[..];
        source.for_each_piece(0..len, |piece| {
            let (head, tail) = std::mem::take(&mut rest).split_at_mut(piece.len());
            match self {
                Self::And => merge(head, piece, |byte, other| byte & other),
                Self::Or => merge(head, piece, |byte, other| byte | other),
                Self::Xor => merge(head, piece, |byte, other| byte ^ other),
                Self::Not => unreachable!("NOT has one source"),
            }
            rest = tail;
        });
        if self == Self::And {
            rest.fill(0);
        }
    }
}

#[inline]
fn merge(bytes: &mut [u8], others: &[u8], operation: impl Fn(u8, u8) -> u8) {
    for (byte, other) in bytes.iter_mut().zip(others) {
        *byte = operation(*byte, *other);
    }
}

/// BITOP AND | OR | XOR | NOT destination key [key …]
pub(super) fn bitop(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let operation = Operation::parse(request)?;
    let destination = request.arg(2);
    keyspace.check_key(destination)?;
    let mut result = Vec::new();
    let check_fit = keyspace.fit();
    for (index, key) in request.args_from(3).enumerate() {
        keyspace.read_string(key, |source| {
            let source = source.unwrap_or(super::EMPTY);
            // The result is built next to it, and has no holes.
            let held = source.heap_bytes();
            check_fit(held, held + source.len())?;
            if index == 0 {
                result = operation.begin(source);
            } else {
                operation.combine(&mut result, source);
            }
            Ok::<_, CommandError>(())
        })??;
    }
    let len = result.len();
    if len == 0 {
        keyspace.remove(destination);
    } else {
        let result = Detached::new(result);
        keyspace.update(destination, |_| {
            Decision::Write(NewValue::new(result.body()).with(kept(None, encoding::RAW)))
        })?;
    }
    reply.count(len);
    Ok(Progress::Done)
}
