//! Arithmetic on fields: HINCRBY HINCRBYFLOAT. An absent field counts as 0.

use pando_engine::FieldsDraft;
use pando_engine::limits::COLUMN_FLAT_BYTES_MAX;
use pando_protocol::number;
use pando_protocol::{Reply, Request};

use super::{check_field, set_field};
use crate::commands::detached::Detached;
use crate::commands::extended::{Extended, TEXT_BYTES_MAX};
use crate::error::CommandError;
use crate::keyspace::{Keyspace, hash_of};
use crate::progress::{Handled, Progress};

// A number is in one piece, so a chunked value is none.
const _: () = assert!(TEXT_BYTES_MAX <= COLUMN_FLAT_BYTES_MAX);

/// HINCRBY key field increment
pub(super) fn by_integer(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let field = request.arg(2);
    let increment = number::parse_i64(request.arg(3)).ok_or(CommandError::NotAnInteger)?;
    check_field(field)?;
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let sum = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let present = match hash.and_then(|hash| hash.get(field)) {
            Some(value) => value
                .as_flat()
                .and_then(number::parse_i64)
                .ok_or(CommandError::HashValueNotAnInteger)?,
            None => 0,
        };
        let sum = present
            .checked_add(increment)
            .ok_or(CommandError::IncrementOverflow)?;
        Ok((
            set_field(
                old,
                FieldsDraft::new(hash, now),
                field,
                &Detached::new(sum.to_string().into_bytes()),
                &thresholds,
            )?,
            sum,
        ))
    })?;
    reply.integer(sum);
    Ok(Progress::Done)
}

/// HINCRBYFLOAT key field increment
pub(super) fn by_float(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let field = request.arg(2);
    let increment = Extended::parse(request.arg(3)).ok_or(CommandError::NotAFloat)?;
    if !increment.is_finite() {
        return Err(CommandError::NotFinite);
    }
    check_field(field)?;
    let (thresholds, now) = (keyspace.thresholds(), keyspace.now());
    let sum = keyspace.try_update(request.arg(1), |old| {
        let hash = old.map(|old| hash_of(old, now)).transpose()?;
        let present = match hash.and_then(|hash| hash.get(field)) {
            Some(value) => value
                .as_flat()
                .and_then(Extended::parse)
                .ok_or(CommandError::HashValueNotAFloat)?,
            None => Extended::ZERO,
        };
        let sum = present.checked_add(increment)?.to_human();
        Ok((
            set_field(
                old,
                FieldsDraft::new(hash, now),
                field,
                &Detached::new(sum.as_bytes()),
                &thresholds,
            )?,
            sum,
        ))
    })?;
    reply.bulk(sum);
    Ok(Progress::Done)
}
