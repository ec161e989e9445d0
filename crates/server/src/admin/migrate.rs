//! MIGRATE: keys that move to another server, Pando or Redis.
//!
//! One request runs several times. Each run settles what the other server has answered, takes the
//! next portion of values and waits for it without a gate (see `migration`). So no other client
//! waits, and in between others see keys that have moved and keys that have not. In Redis the whole
//! server waits.

use std::sync::Arc;
use std::time::Duration;

use pando_db::{CommandError, Departing, Keyspace, Progress, Wait};
use pando_protocol::{Request, number};

use super::error::Echo;
use super::{AdminError, Call, Handled};
use crate::limits;
use crate::migration::{Delivery, Migration, Parcel, Target};

/// What a request asks for.
struct Order<'r> {
    target: Target,
    keys: Vec<&'r [u8]>,
    copy: bool,
    replace: bool,
}

/// MIGRATE, and each of its runs.
pub(super) fn migrate(call: &mut Call<'_, '_, '_>) -> Handled {
    let order = Order::parse(call.request)?;
    if call.inside_exec {
        return Err(AdminError::MigrateInMulti);
    }
    let kept = call.shared.migrations.take(call.client.id);
    let kept = kept.filter(|migration| migration.is_of(call.request));
    let keyspace = &mut call.turn.keyspace(call.client.database);
    let mut taken = 0;
    let (mut migration, portion) = if let Some(mut migration) = kept {
        if let Some(delivery) = migration.receive() {
            settle(&mut migration, keyspace, &order, delivery);
        }
        let portion = next_portion(&mut migration, keyspace, &order);
        (migration, portion)
    } else {
        let portion = take_portion(keyspace, &order, &mut taken);
        if portion.is_empty() {
            call.reply.simple("NOKEY");
            return Ok(Progress::Done);
        }
        let mailbox = call.shared.mailbox(call.record.origin().worker);
        let mailbox = Arc::clone(mailbox.ok_or(AdminError::TooManyMigrations)?);
        let begun = Migration::begin(call.request, order.target.clone(), mailbox);
        let mut migration = begun.map_err(|_| AdminError::TooManyMigrations)?;
        migration.taken = taken;
        (Box::new(migration), portion)
    };
    if portion.is_empty() {
        return match migration.error.take() {
            Some(text) => Err(AdminError::Given {
                text: Echo::of(&text),
            }),
            None => call.ok(),
        };
    }
    migration.send(portion);
    if !call.shared.migrations.keep(call.client.id, migration) {
        return Err(AdminError::TooManyMigrations);
    }
    Ok(Progress::Waits(Wait::Errand))
}

/// Removes what the other server has (MI1 taken-then-removed).
fn settle(
    migration: &mut Migration,
    keyspace: &mut Keyspace<'_>,
    order: &Order<'_>,
    delivery: Delivery,
) {
    for (parcel, answer) in delivery.answers {
        let gone = match answer {
            Ok(()) if order.copy => continue,
            Ok(()) => parcel.departing.leave(keyspace, &parcel.key),
            Err(text) => {
                migration.error.get_or_insert(text);
                continue;
            }
        };
        match gone {
            Ok(true) => {}
            Ok(false) => migration.changed.push(parcel.key),
            Err(error) => {
                let text = AdminError::from(error).text();
                migration.error.get_or_insert(text);
            }
        }
    }
    if let Some(text) = delivery.failure {
        migration.error.get_or_insert(text);
        // The rest stays here.
        migration.taken = order.keys.len();
        migration.changed.clear();
    }
    if !migration.changed.is_empty() {
        migration.rounds += 1;
        if migration.rounds > limits::MIGRATION_ROUNDS_MAX {
            migration.changed.clear();
            let text = AdminError::MigrateChanged.text();
            migration.error.get_or_insert(text);
        }
    }
}

/// What was written meanwhile, or else the next keys.
fn next_portion(
    migration: &mut Migration,
    keyspace: &mut Keyspace<'_>,
    order: &Order<'_>,
) -> Vec<Parcel> {
    let changed = std::mem::take(&mut migration.changed).into_iter();
    // What it replaces there is its own former value.
    let again = changed.filter_map(|key| Parcel::take(keyspace, key, true));
    let portion: Vec<Parcel> = again.collect();
    if portion.is_empty() {
        take_portion(keyspace, order, &mut migration.taken)
    } else {
        portion
    }
}

impl Parcel {
    fn take(keyspace: &mut Keyspace<'_>, key: Vec<u8>, replaces: bool) -> Option<Self> {
        Departing::take(keyspace, &key).map(|departing| Self {
            key,
            departing,
            replaces,
        })
    }
}

/// The next keys that exist, within the bounds of a portion.
fn take_portion(keyspace: &mut Keyspace<'_>, order: &Order<'_>, taken: &mut usize) -> Vec<Parcel> {
    let (mut portion, mut bytes) = (Vec::new(), 0);
    while portion.len() < limits::MIGRATION_KEYS_MAX
        && bytes < limits::MIGRATION_BYTES_MAX
        && let Some(key) = order.keys.get(*taken)
    {
        *taken += 1;
        if let Some(parcel) = Parcel::take(keyspace, key.to_vec(), order.replace) {
            bytes += parcel.departing.payload.len();
            portion.push(parcel);
        }
    }
    portion
}

impl<'r> Order<'r> {
    /// `host port key|"" database timeout [COPY] [REPLACE] [AUTH password | AUTH2 name password]
    /// [KEYS key …]`
    fn parse(request: Request<'r>) -> Result<Self, AdminError> {
        let (mut copy, mut replace, mut keys) = (false, false, vec![request.arg(3)]);
        let mut credentials = Vec::new();
        let mut at = 6;
        while at < request.len() {
            let left = request.len() - at - 1;
            if request.is(at, "COPY") {
                copy = true;
            } else if request.is(at, "REPLACE") {
                replace = true;
            } else if request.is(at, "AUTH") && left >= 1 {
                credentials = vec![request.arg(at + 1).to_vec()];
                at += 1;
            } else if request.is(at, "AUTH2") && left >= 2 {
                credentials = (at + 1..at + 3)
                    .map(|it| request.arg(it).to_vec())
                    .collect();
                at += 2;
            } else if request.is(at, "KEYS") {
                if !request.arg(3).is_empty() {
                    return Err(AdminError::MigrateKeys);
                }
                keys = request.args_from(at + 1).collect();
                break;
            } else {
                return Err(CommandError::Syntax.into());
            }
            at += 1;
        }
        let integer = |at| number::parse_i64(request.arg(at)).ok_or(CommandError::NotAnInteger);
        let (timeout, database) = (integer(5)?, integer(4)?);
        let timeout = u64::try_from(timeout).unwrap_or(0);
        let host = String::from_utf8_lossy(request.arg(1));
        let port = String::from_utf8_lossy(request.arg(2));
        let brackets = host.contains(':') && !host.starts_with('[');
        Ok(Self {
            target: Target {
                address: if brackets {
                    format!("[{host}]:{port}")
                } else {
                    format!("{host}:{port}")
                },
                database: u64::try_from(database).map_err(|_| CommandError::NotAnInteger)?,
                timeout: Duration::from_millis(if timeout == 0 { 1000 } else { timeout }),
                credentials,
            },
            keys,
            copy,
            replace,
        })
    }
}
