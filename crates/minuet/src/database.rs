//! One proxy and memnodes that answer at once: transactions one after the other, run by function.

use pando_memnode::CoordinatorId;

use crate::error::{Error, Stop};
use crate::job::Job;
use crate::limits::Config;
use crate::proxy::{JobId, Proxy};
use crate::transaction::Transaction;
use crate::transport::{Embedded, Transport};
use crate::tree::found;

/// See the module's header.
#[derive(Debug)]
pub struct Database {
    proxy: Proxy,
    memnodes: Embedded,
    jobs: u64,
}

impl Database {
    /// Opens what the memnodes hold, and founds the tree if they are empty.
    pub fn found(
        coordinator: CoordinatorId,
        config: Config,
        memnodes: Embedded,
    ) -> Result<Self, Error> {
        let mut database = Self {
            proxy: Proxy::new(coordinator, config),
            memnodes,
            jobs: 0,
        };
        database.run(found)?;
        Ok(database)
    }

    /// The memnodes.
    pub fn memnodes(&self) -> &Embedded {
        &self.memnodes
    }

    pub(crate) fn memnodes_mut(&mut self) -> &mut Embedded {
        &mut self.memnodes
    }

    /// Goes on with another proxy, which has another cache.
    #[cfg(test)]
    pub(crate) fn swap_proxy(&mut self, other: &mut Proxy) {
        std::mem::swap(&mut self.proxy, other);
    }

    /// Runs a transaction to its end.
    pub fn run<R>(
        &mut self,
        program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        self.jobs += 1;
        let mut job = Job::new(JobId(self.jobs), program);
        let mut ended = job.start(&mut self.proxy);
        loop {
            self.proxy.flush(&mut self.memnodes);
            let Some((ticket, reply)) = self.memnodes.receive() else {
                break;
            };
            if let Some((_, from)) = self.proxy.receive(ticket, &reply) {
                ended = ended.or(job.receive(&mut self.proxy, ticket, from, reply));
            }
        }
        ended.expect("embedded memnodes answer at once, and hold no locks between two requests")
    }
}
