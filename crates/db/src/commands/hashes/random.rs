//! Random fields: HRANDFIELD. Fields are picked by rank, so a pick costs O(log fields).

use pando_engine::{FieldsRef, StringRef};
use pando_protocol::{Reply, Request, RespVersion};

use crate::commands::detached::reply_bulk;
use crate::commands::picks::{self, distinct_ranks};
use crate::error::CommandError;
use crate::keyspace::Keyspace;
use crate::limits;
use crate::progress::{Handled, Progress};

/// HRANDFIELD key [count [WITHVALUES]]
pub(super) fn fields(
    keyspace: &mut Keyspace<'_>,
    request: Request<'_>,
    reply: &mut Reply<'_>,
) -> Handled {
    let mut random = fastrand::Rng::with_seed(keyspace.random());
    if request.len() == 2 {
        keyspace.read_hash(request.arg(1), |hash| match hash {
            Some(hash) => reply.bulk(pick(hash, &mut random).0),
            None => reply.null(),
        })?;
        return Ok(Progress::Done);
    }
    let count = picks::count(request.arg(2))?;
    let with_values = request.len() == 4 && request.is(3, "WITHVALUES");
    if request.len() > 3 && !with_values {
        return Err(CommandError::Syntax);
    }
    if with_values && count.unsigned_abs() > i64::MAX as u64 / 2 {
        return Err(CommandError::OutOfRange);
    }
    keyspace.read_hash(request.arg(1), |hash| {
        let Some(hash) = hash.filter(|_| count != 0) else {
            reply.array(0);
            return Ok(());
        };
        let mut output = Output { reply, with_values };
        let picks = picks::how_many(count);
        if count < 0 {
            output.repeated(hash, picks, &mut random)
        } else {
            output.distinct(hash, picks, &mut random);
            Ok(())
        }
    })??;
    Ok(Progress::Done)
}

/// Any field; a stored hash has one (H1 no-empty-hash).
fn pick<'a>(hash: FieldsRef<'a>, random: &mut fastrand::Rng) -> (&'a [u8], StringRef<'a>) {
    hash.nth(random.usize(..hash.len()))
        .expect("a rank below the length")
}

struct Output<'r, 'o> {
    reply: &'r mut Reply<'o>,
    with_values: bool,
}

impl Output<'_, '_> {
    fn begin(&mut self, count: usize) {
        let flat = self.with_values && self.reply.version() == RespVersion::Resp2;
        self.reply.array(if flat { count * 2 } else { count });
    }

    fn field(&mut self, (field, value): (&[u8], StringRef<'_>)) {
        if self.with_values && self.reply.version() == RespVersion::Resp3 {
            self.reply.array(2);
        }
        self.reply.bulk(field);
        if self.with_values {
            reply_bulk(self.reply, value);
        }
    }

    /// `picks` fields, each chosen from all; refused when the reply grows too large, since a short
    /// request can ask for more than there is memory.
    fn repeated(
        &mut self,
        hash: FieldsRef<'_>,
        picks: usize,
        random: &mut fastrand::Rng,
    ) -> Result<(), CommandError> {
        let start = self.reply.position();
        self.begin(picks);
        for _ in 0..picks {
            self.field(pick(hash, random));
            if self.reply.position() - start > limits::RANDOM_REPLY_BYTES_MAX {
                let reply_bytes_max = limits::RANDOM_REPLY_BYTES_MAX;
                return Err(CommandError::ReplyTooLong { reply_bytes_max });
            }
        }
        Ok(())
    }

    /// `picks` different fields, or all of them if there are no more.
    fn distinct(&mut self, hash: FieldsRef<'_>, picks: usize, random: &mut fastrand::Rng) {
        let len = hash.len();
        if picks >= len {
            self.begin(len);
            hash.iter().for_each(|entry| self.field(entry));
            return;
        }
        self.begin(picks);
        let ranks = distinct_ranks(picks, len, random);
        if picks >= len / picks::WALK_SHARE {
            let mut ranks = ranks.into_iter().peekable();
            for (rank, entry) in hash.iter().enumerate() {
                if ranks.next_if_eq(&rank).is_some() {
                    self.field(entry);
                }
            }
        } else {
            for rank in ranks {
                self.field(hash.nth(rank).expect("a rank below the length"));
            }
        }
    }
}
