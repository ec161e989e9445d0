//! The checker of a table: every view is whole, and every block is somebody's or nobody's.

use std::collections::BTreeSet;

use pando_pmem::Pmem;

use super::Table;
use super::directory::{DamagedPair, address};
use crate::check::{Blocks, Disorder, Report};
use crate::node::View;
use crate::record::Record;
use crate::shared::Look;
use crate::tree::Error;

impl From<DamagedPair> for Disorder {
    fn from(damaged: DamagedPair) -> Self {
        unsealed(damaged.into())
    }
}

fn unsealed(error: Error) -> Disorder {
    match error {
        Error::DamagedNode { at } => Disorder::Unsealed { at },
        other => unreachable!("a chain is damaged or not: {other}"),
    }
}

impl<M: Pmem> Table<M> {
    /// Looks at everything: that each view finds each of its keys once, in the bucket of its hash,
    /// and that each block is reachable or free, and not both. For tests; O(views × keys).
    pub fn check(&self) -> Result<Report, Disorder> {
        for epoch in &self.tree.retained {
            self.check_view(View(*epoch))?;
        }
        let (report, blocks) = self.check_view(self.tree.present())?;
        blocks.are_all()?;
        Ok(report)
    }

    fn check_view(&self, view: View) -> Result<(Report, Blocks<'_, M>), Disorder> {
        let directory = &self.directory;
        let mut blocks = self.tree.blocks_of(view)?;
        let mut report = Report::default();
        let count = directory.count_at(view)?;
        for index in 0..count {
            for at in directory.blocks_of(index)? {
                blocks.add(at)?;
            }
            let mut keys = BTreeSet::new();
            let mut longest = 0;
            for bucket in self.chain(index, view).map_err(unsealed)? {
                let at = bucket.at;
                bucket.check_right().map_err(unsealed)?;
                blocks.add(at)?;
                report.nodes += 1;
                longest += 1;
                for (slot, hash, record) in bucket.keys(view) {
                    blocks.add(record)?;
                    let record = Record::at(&self.tree.pool, record);
                    let key = record.filter(|record| record.is_whole()).map(Record::key);
                    let key = key.filter(|key| directory.hash(key) == hash);
                    let Some(key) = key.filter(|key| keys.insert(key.to_vec())) else {
                        return Err(Disorder::Keys { at });
                    };
                    let found = directory.find(key, hash, Look::alone(view));
                    let found = found.ok().flatten();
                    let is_it =
                        found.is_some_and(|found| (found.bucket.at, found.slot) == (at, slot));
                    if !is_it || address(hash, count) != index {
                        return Err(Disorder::Unfindable { at });
                    }
                    report.keys += 1;
                }
                let is_present = view == self.tree.present();
                let needs = self.tree.needs();
                let is_last = bucket.link(view).is_none();
                if is_present && is_last && bucket.free_slots(&needs).next().is_none() {
                    let count = directory.slots as usize;
                    // CH1 last-slot.
                    return Err(Disorder::Entries {
                        at,
                        count,
                        least: 1,
                    });
                }
            }
            report.height = report.height.max(longest);
        }
        Ok((report, blocks))
    }
}
