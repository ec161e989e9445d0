//! hashes.

use pando_protocol::command::CommandId;
use pando_protocol::{Reply, Request};

use super::Handled;
use crate::error::CommandError;
use crate::keyspace::Keyspace;

/// Runs a command of this family.
pub(super) fn execute(
    _: CommandId,
    _: &mut Keyspace<'_>,
    _: Request<'_>,
    _: &mut Reply<'_>,
) -> Handled {
    Err(CommandError::NoHost)
}
