//! Transactions of the simulator, and what their last runs saw.

mod building;

use pando_memnode::{Address, Bytes};

use crate::branch::{BranchId, Origin};
use crate::collect::{Done, Step};
use crate::error::Stop;
use crate::job::Program;
use crate::lease::LeaseId;
use crate::page::{ADDRESS_BYTES, decode_address, encode_address};
use crate::snapshot::{SnapshotId, View};
use crate::transaction::Transaction;
use crate::tree::{self, Change, Diffed, Merge, Merged, MergedKey, OnConflict, Probe, TreeId};

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

/// The tree whose values are large ones, in slots of their own.
pub(crate) const LARGE: TreeId = TreeId(7);

/// Bytes of such a value: its number again and again.
const LARGE_NUMBERS: usize = 100;

/// The body of a large value.
pub(crate) fn large_body(number: &[u8]) -> Bytes {
    tree::body(&number.repeat(LARGE_NUMBERS))
}

/// What an entry says of a large value: where its head is, and its number.
pub(crate) fn decode_large(entry: &[u8]) -> (Address, &[u8]) {
    let (head, number) = entry.split_at(ADDRESS_BYTES);
    (decode_address(head), number)
}

/// Where something was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum At {
    /// At the tip of this line.
    Tip(u32),
    /// There, when everything was over.
    End(u32),
    /// In a version that had stayed behind.
    Past(SnapshotId),
}

impl At {
    fn of(view: View) -> Self {
        if view.is_tip() {
            Self::Tip(view.snapshot.line())
        } else {
            Self::Past(view.snapshot)
        }
    }

    pub(crate) fn line(self) -> u32 {
        match self {
            Self::Tip(line) | Self::End(line) => line,
            Self::Past(version) => version.line(),
        }
    }
}

/// Something that a run did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    Read {
        at: At,
        key: Key,
        probe: Probe,
    },
    Wrote {
        line: u32,
        key: Key,
        version: u64,
        value: Vec<u8>,
    },
    Removed {
        line: u32,
        key: Key,
        version: u64,
    },
}

/// A line that a run began, for a branch that it made or reset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Began {
    pub(crate) branch: BranchId,
    pub(crate) line: u32,
    /// The version that it was the same as at first.
    pub(crate) from: SnapshotId,
}

/// What a run did to versions and branches.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Effects {
    /// The version that it left behind, which had been a tip.
    pub(crate) left: Option<SnapshotId>,
    /// That, if it is to be kept as a snapshot.
    pub(crate) made: Option<View>,
    pub(crate) began: Option<Began>,
    /// The line that no branch has any more.
    pub(crate) over: Option<u32>,
    pub(crate) dropped: Option<BranchId>,
    /// The line of the hidden branch that a branch became, and the line that this one had.
    pub(crate) adopted: Option<(u32, u32)>,
}

/// What is merged.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Merging {
    /// What happened from one snapshot to another.
    Snapshots { base: View, theirs: View },
    /// What happened on a branch since the two parted.
    Branch(BranchId),
}

/// A large merge on its way.
#[derive(Clone, Debug)]
pub(crate) struct Building {
    pub(crate) ours: BranchId,
    /// Ours' line when the hidden branch was made.
    pub(crate) line: u32,
    /// A branch of theirs that nobody writes.
    pub(crate) theirs: BranchId,
    /// What ours is to become.
    pub(crate) hidden: BranchId,
    pub(crate) name: Vec<u8>,
    /// Of what both have changed, theirs counts.
    pub(crate) takes_theirs: bool,
    /// Whether it looks at what was written to ours since.
    pub(crate) catches_up: bool,
}

/// What a transaction is to do.
#[derive(Clone, Debug)]
pub(crate) enum Work {
    /// Founds the tree.
    Found,
    /// Gives each account its money.
    Fund,
    /// Reads some keys, perhaps of another branch, then puts or removes some.
    Registers {
        beside: Option<BranchId>,
        reads: Vec<Key>,
        writes: Vec<(Key, Option<Vec<u8>>)>,
    },
    /// Reads some large values, then puts or removes some, by their numbers.
    Large {
        reads: Vec<Key>,
        writes: Vec<(Key, Option<u64>)>,
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
    /// Does to the registers what happened elsewhere.
    Merge {
        of: Merging,
        tree: TreeId,
        on_conflict: OnConflict,
    },
    /// Merges some keys of theirs into the hidden branch.
    Apply {
        building: Building,
        from: Vec<u8>,
        limit: usize,
    },
    /// Merges anew what has changed on ours, which then becomes the hidden branch.
    Adopt(Building),
    /// Makes a branch.
    Branch {
        name: Vec<u8>,
        from: Origin,
        descendants_max: u8,
    },
    /// Drops one.
    Drop { name: Vec<u8> },
    /// Makes one what a snapshot was.
    Reset { name: Vec<u8>, to: View },
    /// Compares the tip with another branch's.
    Compare {
        other: BranchId,
        tree: TreeId,
        from: Vec<u8>,
        limit: usize,
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
    /// The branch that it works on.
    pub(crate) on: BranchId,
    pub(crate) seen: Vec<Seen>,
    /// A view of the tip from an earlier transaction, to be used in place of the present one.
    pub(crate) held: Option<View>,
    /// The view that the last run used.
    pub(crate) used: Option<View>,
    pub(crate) effects: Effects,
    /// What the last run collected.
    pub(crate) collected: Option<Done>,
    /// What the last run found to differ.
    pub(crate) diffed: Diffed,
    /// What the last run merged.
    pub(crate) merged: Merged,
    /// The last run of a large merge found its branches to be others, and did nothing.
    pub(crate) gave_up: bool,
}

impl Script {
    pub(crate) fn new(work: Work, on: BranchId, held: Option<View>) -> Self {
        Self {
            work,
            on,
            seen: Vec::new(),
            held,
            used: None,
            effects: Effects::default(),
            collected: None,
            diffed: Diffed::default(),
            merged: Merged::default(),
            gave_up: false,
        }
    }
}

/// What a merge into a line read and wrote.
fn seen_of(merged: &MergedKey, (base, theirs): (At, At), line: u32) -> Vec<Seen> {
    let change = &merged.change;
    let mut seen = seen_in(change, (base, theirs));
    let key = (change.tree, change.key.clone());
    seen.push(Seen::Read {
        at: At::Tip(line),
        key: key.clone(),
        probe: merged.ours.clone(),
    });
    seen.extend(merged.written.map(|version| match change.after.clone() {
        Some((_, value)) => Seen::Wrote {
            line,
            key,
            version,
            value,
        },
        None => Seen::Removed { line, key, version },
    }));
    seen
}

/// What a comparison read. Of absent keys it has no versions.
fn seen_in(change: &Change, (before, after): (At, At)) -> Vec<Seen> {
    let sides = [(before, &change.before), (after, &change.after)];
    let present = sides.into_iter().filter_map(|(at, entry)| {
        let (version, value) = entry.clone()?;
        let value = Some(value);
        Some(Seen::Read {
            at,
            key: (change.tree, change.key.clone()),
            probe: Probe { version, value },
        })
    });
    present.collect()
}

/// One run of a script.
struct Run<'r, 'a> {
    transaction: &'r mut Transaction<'a>,
    view: View,
    seen: &'r mut Vec<Seen>,
}

impl Run<'_, '_> {
    fn get(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Stop> {
        let mut probe = key.0.get(self.transaction, self.view, &key.1)?;
        let value = probe.value.clone();
        if key.0 == LARGE
            && let Some(entry) = &value
            && !self.has_large(entry)?
        {
            // What nobody wrote.
            probe.value = Some(b"torn".to_vec());
        }
        self.seen.push(Seen::Read {
            at: At::of(self.view),
            key: key.clone(),
            probe,
        });
        Ok(value)
    }

    fn put(&mut self, key: &Key, value: Vec<u8>) -> Result<(), Stop> {
        let version = key.0.put(self.transaction, self.view, &key.1, &value)?;
        self.seen.push(Seen::Wrote {
            line: self.view.snapshot.line(),
            key: key.clone(),
            version,
            value,
        });
        Ok(())
    }

    /// Whether the version has the large value that an entry is of.
    fn has_large(&mut self, entry: &[u8]) -> Result<bool, Stop> {
        let (head, number) = decode_large(entry);
        let body = tree::find(self.transaction, self.view, head)?;
        Ok(self.transaction.dirty_read(body)? == large_body(number))
    }

    /// Writes a large value, or none, in place of what there is.
    fn put_large(&mut self, key: &Key, number: Option<u64>) -> Result<(), Stop> {
        if let Some(old) = self.get(key)? {
            tree::retire(self.transaction, self.view, decode_large(&old).0)?;
        }
        let Some(number) = number else {
            return self.remove(key);
        };
        let number = number.to_le_bytes();
        let (head, _) = tree::store(self.transaction, self.view, &large_body(&number))?;
        self.put(key, [&encode_address(head)[..], &number].concat())
    }

    fn remove(&mut self, key: &Key) -> Result<(), Stop> {
        if let Some(version) = key.0.remove(self.transaction, self.view, &key.1)? {
            self.seen.push(Seen::Removed {
                line: self.view.snapshot.line(),
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
                at: At::of(self.view),
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
            Work::Registers {
                beside,
                reads,
                writes,
            } => {
                let view = self.view;
                if let Some(beside) = beside {
                    self.view = self.transaction.tip_of(*beside)?;
                }
                for key in reads {
                    self.get(key)?;
                }
                self.view = view;
                for (key, value) in writes {
                    match value {
                        Some(value) => self.put(key, value.clone())?,
                        None => self.remove(key)?,
                    }
                }
            }
            Work::Large { reads, writes } => {
                for key in reads {
                    self.get(key)?;
                }
                for (key, number) in writes {
                    self.put_large(key, *number)?;
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

impl Script {
    fn snapshot(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Stop> {
        let made = crate::tree::create_snapshot_of(transaction, self.on)?;
        self.effects.left = Some(made.snapshot);
        self.effects.made = Some(made);
        Ok(())
    }

    fn branch(
        &mut self,
        transaction: &mut Transaction<'_>,
        (name, from, descendants_max): (&[u8], Origin, u8),
    ) -> Result<(), Stop> {
        let from_version = match from {
            Origin::Branch(of) => {
                let tip = transaction.tip_of(of)?;
                self.effects.left = Some(tip.snapshot);
                tip.snapshot
            }
            Origin::Snapshot(view) => view.snapshot,
        };
        let branch = transaction.create_branch(name, from, descendants_max)?;
        self.effects.began = Some(Began {
            branch,
            line: transaction.tip_of(branch)?.snapshot.line(),
            from: from_version,
        });
        Ok(())
    }

    fn drop_branch(&mut self, transaction: &mut Transaction<'_>, name: &[u8]) -> Result<(), Stop> {
        let branch = transaction.branch(name)?;
        self.effects.over = Some(transaction.tip_of(branch)?.snapshot.line());
        self.effects.dropped = Some(branch);
        transaction.drop_branch(name)
    }

    fn reset(
        &mut self,
        transaction: &mut Transaction<'_>,
        (name, to): (&[u8], View),
    ) -> Result<(), Stop> {
        let branch = transaction.branch(name)?;
        self.effects.over = Some(transaction.tip_of(branch)?.snapshot.line());
        let tip = transaction.reset_branch(name, to)?;
        self.effects.began = Some(Began {
            branch,
            line: tip.snapshot.line(),
            from: to.snapshot,
        });
        Ok(())
    }

    fn merge(
        &mut self,
        transaction: &mut Transaction<'_>,
        (of, tree, on_conflict): (Merging, TreeId, OnConflict),
    ) -> Result<(), Stop> {
        let into = transaction.tip_of(self.on)?;
        let (base, theirs) = match of {
            Merging::Snapshots { base, theirs } => (base, theirs),
            Merging::Branch(branch) => {
                let theirs = transaction.tip_of(branch)?;
                (transaction.parting(theirs, into)?, theirs)
            }
        };
        let merge = Merge {
            base,
            theirs,
            into,
            tree: Some(tree),
            on_conflict,
            dry_run: false,
        };
        self.merged = merge.run(transaction)?;
        let (sides, line) = ((At::of(base), At::of(theirs)), into.snapshot.line());
        let keys = self.merged.keys.iter();
        self.seen = keys.flat_map(|key| seen_of(key, sides, line)).collect();
        Ok(())
    }

    /// Compares two tips, or two versions that have stayed behind.
    fn compare(
        &mut self,
        transaction: &mut Transaction<'_>,
        views: (View, View),
        (tree, from, limit): (TreeId, &[u8], usize),
    ) -> Result<(), Stop> {
        self.diffed = tree.diff(transaction, views, b"", from, limit)?;
        let sides = (At::of(views.0), At::of(views.1));
        let changes = self.diffed.changes.iter();
        self.seen = changes.flat_map(|change| seen_in(change, sides)).collect();
        Ok(())
    }
}

impl Program for Script {
    type Output = ();

    fn run(&mut self, transaction: &mut Transaction<'_>) -> Result<(), Stop> {
        self.seen.clear();
        self.effects = Effects::default();
        let work = self.work.clone();
        let view = match &work {
            Work::Found => return crate::tree::found(transaction),
            Work::Snapshot => return self.snapshot(transaction),
            Work::Apply {
                building,
                from,
                limit,
            } => return self.apply(transaction, building, (from, *limit)),
            Work::Adopt(building) => return self.adopt(transaction, building),
            Work::Branch {
                name,
                from,
                descendants_max,
            } => return self.branch(transaction, (name, *from, *descendants_max)),
            Work::Drop { name } => return self.drop_branch(transaction, name),
            Work::Reset { name, to } => return self.reset(transaction, (name, *to)),
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
                of,
                tree,
                on_conflict,
            } => return self.merge(transaction, (*of, *tree, *on_conflict)),
            Work::Compare {
                other,
                tree,
                from,
                limit,
            } => {
                let views = (transaction.tip_of(self.on)?, transaction.tip_of(*other)?);
                return self.compare(transaction, views, (*tree, from, *limit));
            }
            Work::Diff {
                views,
                tree,
                from,
                limit,
            } => return self.compare(transaction, *views, (*tree, from, *limit)),
            Work::Past { view, .. } => *view,
            _ => match self.held {
                Some(view) => view,
                None => transaction.tip_of(self.on)?,
            },
        };
        self.used = Some(view);
        let mut run = Run {
            transaction,
            view,
            seen: &mut self.seen,
        };
        run.perform(&work)
    }
}
