//! Transactions of the simulator, and what their last runs saw.

use crate::collect::{Done, Step};
use crate::error::Stop;
use crate::job::Program;
use crate::lease::LeaseId;
use crate::snapshot::View;
use crate::transaction::Transaction;
use crate::tree::{Diffed, Merge, Merged, MergedKey, OnConflict, Probe, TreeId};

/// A key of a tree.
pub(crate) type Key = (TreeId, Vec<u8>);

/// Accounts of the bank.
pub(crate) const ACCOUNTS: u32 = 8;
/// What each has at first.
pub(crate) const MONEY: u64 = 100;
/// Numbers in a list, at most.
const LIST_MAX: usize = 12;

pub(crate) fn account(number: u32) -> Key {
    (
        TreeId(2 + number % 3),
        format!("account{number}").into_bytes(),
    )
}

pub(crate) fn list(number: u32) -> Key {
    (TreeId(5 + number % 2), format!("list{number}").into_bytes())
}

/// Something that a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Read {
        key: Key,
        probe: Probe,
    },
    Wrote {
        key: Key,
        version: u64,
        value: Vec<u8>,
    },
    Removed {
        key: Key,
        version: u64,
    },
}

/// What a transaction is to do.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Founds the tree.
    Found,
    /// Gives each account its money.
    Fund,
    /// Reads some keys, then puts or removes some.
    Registers {
        reads: Vec<Key>,
        writes: Vec<(Key, Option<Vec<u8>>)>,
    },
    /// Moves money between two accounts, if there is enough.
    Transfer { from: u32, to: u32, amount: u64 },
    /// Reads all accounts.
    Audit,
    /// Appends a number to some lists, and reads others.
    Append {
        to: Vec<u32>,
        also: Vec<u32>,
        number: u16,
    },
    /// Makes a snapshot.
    Snapshot,
    /// Reads keys of one.
    Past {
        view: View,
        reads: Vec<Key>,
        from: Key,
    },
    /// Takes a lease of a snapshot.
    Lease { view: View, id: LeaseId },
    /// Renews one.
    Renew(LeaseId),
    /// Ends one.
    Release(LeaseId),
    /// Gives a snapshot a name.
    Name { view: View, name: u8 },
    /// Takes a name away.
    Unname(u8),
    /// A step of the collection.
    Collect(Step),
    /// Does to the registers what happened from one snapshot to another.
    Merge {
        base: View,
        theirs: View,
        tree: TreeId,
        on_conflict: OnConflict,
    },
    /// Compares two snapshots.
    Diff {
        views: (View, View),
        tree: TreeId,
        from: Vec<u8>,
        limit: usize,
    },
    /// Reads a range of keys.
    Scan {
        tree: TreeId,
        from: Vec<u8>,
        limit: usize,
    },
}

/// A transaction that remembers what its last run saw.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) work: Work,
    pub(crate) seen: Vec<Seen>,
    /// A view of the tip from an earlier transaction, to be used in place of the present one.
    pub(crate) held: Option<View>,
    /// The view that the last run used.
    pub(crate) used: Option<View>,
    /// The snapshot that the last run made.
    pub(crate) made: Option<View>,
    /// What the last run collected.
    pub(crate) collected: Option<Done>,
    /// What the last run found to differ.
    pub(crate) diffed: Diffed,
    /// What the last run merged.
    pub(crate) merged: Merged,
}

impl Script {
    pub(crate) fn new(work: Work, held: Option<View>) -> Self {
        Self {
            work,
            seen: Vec::new(),
            held,
            used: None,
            made: None,
            collected: None,
            diffed: Diffed::default(),
            merged: Merged::default(),
        }
    }
}

/// What a merge read and wrote of the tip.
fn seen_of(merged: &MergedKey) -> Vec<Seen> {
    let key = (merged.change.tree, merged.change.key.clone());
    let mut seen = vec![Seen::Read {
        key: key.clone(),
        probe: merged.ours.clone(),
    }];
    let theirs = merged.change.after.clone();
    seen.extend(merged.written.map(|version| match theirs {
        Some((_, value)) => Seen::Wrote {
            key,
            version,
            value,
        },
        None => Seen::Removed { key, version },
    }));
    seen
}

/// One run of a script.
struct Run<'r, 'a> {
    transaction: &'r mut Transaction<'a>,
    view: View,
    seen: &'r mut Vec<Seen>,
}

impl Run<'_, '_> {
    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Stop> {
        let probe = key.0.get(self.transaction, self.view, &key.1)?;
        let value = probe.value.clone();
        self.seen.push(Seen::Read {
            key: key.clone(),
            probe,
        });
        Ok(value)
    }

    fn put(&mut self, key: &Key, value: Vec<u8>) -> Result<(), Stop> {
        let version = key.0.put(self.transaction, self.view, &key.1, &value)?;
        self.seen.push(Seen::Wrote {
            key: key.clone(),
            version,
            value,
        });
        Ok(())
    }

    fn remove(&mut self, key: &Key) -> Result<(), Stop> {
        if let Some(version) = key.0.remove(self.transaction, self.view, &key.1)? {
            self.seen.push(Seen::Removed {
                key: key.clone(),
                version,
            });
        }
        Ok(())
    }

    fn scan(&mut self, from: &Key, limit: usize) -> Result<(), Stop> {
        let scanned = from.0.scan(self.transaction, self.view, &from.1, limit)?;
        for entry in scanned.entries {
            let probe = Probe {
                version: entry.version,
                value: Some(entry.value),
            };
            self.seen.push(Seen::Read {
                key: (from.0, entry.key),
                probe,
            });
        }
        Ok(())
    }

    fn money(&mut self, number: u32) -> Result<u64, Stop> {
        let value = self.get(&account(number))?;
        let bytes = value.and_then(|value| value.try_into().ok());
        Ok(bytes.map_or(0, u64::from_le_bytes))
    }

    /// What is done on one view.
    fn perform(&mut self, work: &Work) -> Result<(), Stop> {
        match work {
            Work::Past { reads, from, .. } => {
                for key in reads {
                    self.get(key)?;
                }
                self.scan(from, 20)?;
            }
            Work::Fund => {
                for number in 0..ACCOUNTS {
                    self.put(&account(number), MONEY.to_le_bytes().to_vec())?;
                }
            }
            Work::Registers { reads, writes } => {
                for key in reads {
                    self.get(key)?;
                }
                for (key, value) in writes {
                    match value {
                        Some(value) => self.put(key, value.clone())?,
                        None => self.remove(key)?,
                    }
                }
            }
            Work::Transfer { from, to, amount } => {
                let (rich, poor) = (self.money(*from)?, self.money(*to)?);
                if rich >= *amount && from != to {
                    self.put(&account(*from), (rich - amount).to_le_bytes().to_vec())?;
                    self.put(&account(*to), (poor + amount).to_le_bytes().to_vec())?;
                }
            }
            Work::Audit => {
                for number in 0..ACCOUNTS {
                    self.money(number)?;
                }
            }
            Work::Append { to, also, number } => {
                for other in also {
                    self.get(&list(*other))?;
                }
                for target in to {
                    let mut value = self.get(&list(*target))?.unwrap_or_default();
                    if value.len() < 2 * LIST_MAX {
                        value.extend(number.to_le_bytes());
                        self.put(&list(*target), value)?;
                    }
                }
            }
            Work::Scan { tree, from, limit } => self.scan(&(*tree, from.clone()), *limit)?,
            _ => unreachable!("{work:?} needs no view"),
        }
        Ok(())
    }
}

impl Program for Script {
    type Output = ();

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Stop> {
        self.seen.clear();
        let view = match &self.work {
            Work::Found => return crate::tree::found(transaction),
            Work::Snapshot => {
                self.made = Some(crate::tree::create_snapshot(transaction)?);
                return Ok(());
            }
            Work::Lease { view, id } => return transaction.lease(*view, *id),
            Work::Renew(id) => return transaction.renew(*id),
            Work::Release(id) => return transaction.release(*id),
            Work::Name { view, name } => return transaction.name_snapshot(view.snapshot, &[*name]),
            Work::Unname(name) => return transaction.unname_snapshot(&[*name]),
            Work::Collect(step) => {
                self.collected = Some(step.run(transaction)?);
                return Ok(());
            }
            Work::Merge {
                base,
                theirs,
                tree,
                on_conflict,
            } => {
                let merge = Merge {
                    base: *base,
                    theirs: *theirs,
                    into: transaction.tip()?,
                    tree: Some(*tree),
                    on_conflict: *on_conflict,
                    dry_run: false,
                };
                self.merged = merge.run(transaction)?;
                self.seen = self.merged.keys.iter().flat_map(seen_of).collect();
                return Ok(());
            }
            Work::Diff {
                views,
                tree,
                from,
                limit,
            } => {
                self.diffed = tree.diff(transaction, *views, b"", from, *limit)?;
                return Ok(());
            }
            Work::Past { view, .. } => *view,
            _ => match self.held {
                Some(view) => view,
                None => transaction.tip()?,
            },
        };
        self.used = Some(view);
        let mut run = Run {
            transaction,
            view,
            seen: &mut self.seen,
        };
        run.perform(&self.work)
    }
}
