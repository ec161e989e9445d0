//! One proxy and memnodes that answer at once: transactions one after the other, run by function.

use pando_memnode::{Address, Bytes, CoordinatorId, Limits, MemnodeId, Reply, Request};

use crate::error::{Error, Stop};
use crate::job::Job;
use crate::limits::Config;
use crate::proxy::{JobId, Proxy};
use crate::traffic::{Meter, Metered, Traffic};
use crate::transaction::Transaction;
use crate::transport::{Embedded, Transport};
use crate::tree::found;

/// See the module's header.
#[derive(Debug)]
pub struct Database {
    proxy: Proxy,
    memnodes: Embedded,
    jobs: u64,
    meter: Option<Meter>,
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
            meter: None,
        };
        database.run(found)?;
        Ok(database)
    }

    /// An empty one in this process, with memnodes of ordinary limits.
    pub fn in_process(config: Config) -> Result<Self, Error> {
        let limits = Limits {
            slots_fixed: config.slots_fixed(),
            ..Limits::default()
        };
        let memnodes = Embedded::new(config.memnodes, limits);
        Self::found(CoordinatorId(1), config, memnodes)
    }

    /// The settings.
    pub fn config(&self) -> &Config {
        &self.proxy.config
    }

    /// The memnodes.
    pub fn memnodes(&self) -> &Embedded {
        &self.memnodes
    }

    pub(crate) fn memnodes_mut(&mut self) -> &mut Embedded {
        &mut self.memnodes
    }

    /// Changes an inner node past all transactions, in one turn with its memnode.
    pub(crate) fn edit_node<R>(
        &mut self,
        address: Address,
        edit: impl FnOnce(&mut [u8]) -> R,
    ) -> R {
        self.proxy.uncache(address);
        let memnode = self.memnodes.memnode_mut(address.memnode);
        memnode.edit(address.slot, edit)
    }

    /// The same, with its fan, if it has one: that stays, so `edit` makes it what it is to be.
    pub(crate) fn edit_with_fan<R>(
        &mut self,
        address: Address,
        edit: impl FnOnce(&mut [u8], Option<&mut Bytes>) -> R,
    ) -> R {
        self.proxy.uncache(address);
        let memnode = self.memnodes.memnode_mut(address.memnode);
        memnode.edit_both(address.slot, edit)
    }

    /// Writes a new page past all transactions, in one turn with its memnode; `make` is told the
    /// address. None if no slot is free there.
    pub(crate) fn add_page(
        &mut self,
        memnode: MemnodeId,
        make: impl Fn(Address) -> Bytes,
    ) -> Option<Address> {
        loop {
            let Some(address) = self.proxy.take_free(memnode) else {
                if self.reserve(memnode) {
                    continue;
                }
                return None;
            };
            let at = self.memnodes.memnode_mut(memnode);
            // A hint may be old.
            if at.fill(address.slot, address.generation, || make(address)) {
                return Some(address);
            }
        }
    }

    /// Asks for free slots; whether there are any.
    fn reserve(&mut self, memnode: MemnodeId) -> bool {
        let count = self.proxy.config.reserved;
        let mut replies = Vec::new();
        let at = self.memnodes.memnode_mut(memnode);
        at.handle(0, Request::Reserve { count }, &mut replies);
        let Some((_, Reply::Reserved { slots, used })) = replies.pop() else {
            unreachable!("a reservation is answered at once");
        };
        self.proxy.stock(memnode, &slots, used);
        !slots.is_empty()
    }

    /// Goes on with another proxy, which has another cache.
    #[cfg(test)]
    pub(crate) fn swap_proxy(&mut self, other: &mut Proxy) {
        std::mem::swap(&mut self.proxy, other);
    }

    /// Counts messages from now on.
    pub fn count_traffic(&mut self) {
        self.meter = Some(Meter::default());
    }

    /// What was counted since, if anything is.
    pub fn traffic(&self) -> Option<Traffic> {
        self.meter.as_ref().map(Meter::traffic)
    }

    /// Runs a transaction to its end.
    pub fn run<R>(
        &mut self,
        program: impl FnMut(&mut Transaction<'_>) -> Result<R, Stop>,
    ) -> Result<R, Error> {
        self.jobs += 1;
        let mut job = Job::new(JobId(self.jobs), program);
        self.meter.iter_mut().for_each(Meter::begin);
        let mut ended = job.start(&mut self.proxy);
        let mut is_counted = false;
        loop {
            if ended.is_some() && !is_counted {
                is_counted = true;
                self.meter.iter_mut().for_each(Meter::end);
            }
            let mut way = Metered {
                memnodes: &mut self.memnodes,
                meter: self.meter.as_mut(),
            };
            self.proxy.flush(&mut way);
            let Some((ticket, reply)) = way.receive() else {
                if ended.is_some() || !job.is_paused() {
                    break;
                }
                // Nobody else is here: a pause is over at once.
                ended = job.tick(&mut self.proxy);
                continue;
            };
            if let Some((_, from)) = self.proxy.receive(ticket, &reply) {
                ended = ended.or(job.receive(&mut self.proxy, ticket, from, reply));
            }
        }
        ended.expect("embedded memnodes answer at once, and hold no locks between two requests")
    }
}
