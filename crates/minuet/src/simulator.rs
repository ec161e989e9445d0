//! Coordinators and memnodes under a seeded scheduler, and the oracles that judge what they did.
//!
//! One seed decides everything: how many there are, what they run, when each message arrives, which
//! are lost or repeated, who crashes when. At the end the network heals, what is in doubt is
//! settled, and the oracles look:
//!
//! | oracle | module | finds |
//! |---|---|---|
//! | strict serializability of all reads and writes, by cycle search | `history` | lost updates, stale reads, long forks, write skew |
//! | lists only grow, money stays | `history` | the same, without trust in versions |
//! | a snapshot is all that its maker could have read, whenever it is read | `history` | snapshots that change, a tip that was not compared |
//! | a borrowed snapshot has all that had committed before it was asked for | `history` | snapshots that are lent too late |
//! | a branch begins as what its maker could have read, and has nothing from others | `history` | writes that show elsewhere, a branch that was not compared |
//! | each version is a tree and has its large values; nothing is leaked | `audit` | wrong fences, lost nodes, half a transaction, a value that was freed |
//! | descendant sets are bounded, whenever a memnode has written | `world` | one copy too many |
//! | the branches that were made and not dropped are there | `world` | half a branch |
//! | where inner nodes are compared, every memnode has their sequences | `audit` | changes that one did not hear of |
//! | what is leased can be read; after collection only what is kept is there | `world` | pages freed too early or never, snapshots dropped or kept |
//! | diff(a, b) applied to a is b | `world` | subtrees passed over that differ |
//! | a merge writes what its three versions say | `world` | changes that it overwrites |
//! | a branch that became a hidden one has all that was written to it | `history` | changes that a large merge overtakes |
//! | what is over commits nothing | `world` | commits of the dead, and of clients that are gone |
//! | everything comes to an end | `world` | locks that stay, requests that nobody answers |

pub(crate) mod audit;
pub(crate) mod history;
pub(crate) mod script;
#[cfg(test)]
mod tests;
pub(crate) mod world;

pub use world::{Planted, Report, Violation};

/// Runs one seed, for `transactions` transactions, in a world with this fault.
pub fn run(seed: u64, transactions: usize, planted: Planted) -> Result<Report, Violation> {
    world::World::new(seed, transactions, planted).run()
}
