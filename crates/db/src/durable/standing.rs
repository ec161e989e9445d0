//! Where a database stands in the history of one that it follows, or has followed.
//!
//! | bytes | field |
//! |---|---|
//! | number | how often it has changed: of several in a log, the one with the most counts |
//! | 16 | the history; 0: it never followed one |
//! | number | the last epoch that is here; 0: it cannot go on from anywhere |
//! | numbers | how many databases, then the tree of each there |

use pando_engine::{LogEpoch, TreeId};

use super::bytes::{Input, Malformed, Sink};
use crate::limits;

/// See the module's header.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Standing {
    pub(crate) changes: u64,
    pub(crate) history: u128,
    pub(crate) epoch: LogEpoch,
    pub(crate) trees: Vec<TreeId>,
}

impl Standing {
    /// Writes it.
    pub(crate) fn put(&self, out: &mut Vec<u8>) {
        out.number(self.changes);
        out.put(&self.history.to_le_bytes());
        out.number(self.epoch.0);
        out.number(self.trees.len() as u64);
        for tree in &self.trees {
            out.number(u64::from(tree.0));
        }
    }

    /// Parses it.
    pub(crate) fn take(input: &mut Input<'_>) -> Result<Self, Malformed> {
        let changes = input.number()?;
        let history = u128::from_le_bytes(input.take(16)?.try_into().expect("sixteen bytes"));
        let epoch = LogEpoch(input.number()?);
        let count = input.length(limits::DATABASES_MAX)?;
        let tree = |_| Ok(TreeId(input.length(u32::MAX as usize - 1)? as u32));
        Ok(Self {
            changes,
            history,
            epoch,
            trees: (0..count).map(tree).collect::<Result<_, Malformed>>()?,
        })
    }

    /// The newer of two.
    pub(crate) fn newer(self, other: Self) -> Self {
        if other.changes > self.changes {
            other
        } else {
            self
        }
    }

    /// [`Self::left`], unless it could not go on anyway.
    pub(crate) fn left_if_any(&self) -> Self {
        if self.epoch == LogEpoch::NONE {
            self.clone()
        } else {
            self.left()
        }
    }

    /// The same history, from which the database cannot go on: its data have changed otherwise.
    pub(crate) fn left(&self) -> Self {
        Self {
            changes: self.changes + 1,
            history: self.history,
            ..Self::default()
        }
    }
}
