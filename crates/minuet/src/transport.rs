//! The way from coordinators to memnodes and back.
//!
//! Requests leave with a ticket, replies come back with it, at any time, in any order, repeatedly
//! or never. Nothing waits here: a transport that is embedded answers at once, one that is
//! simulated when a seeded scheduler says so, one over a network when it has answers.

use std::collections::VecDeque;

use pando_memnode::{Beside, Limits, Memnode, MemnodeId, Reply, Request};

use crate::page;

/// Names a request of one proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// See the module's header.
pub trait Transport {
    /// Sends a request, if it can.
    fn send(&mut self, ticket: Ticket, to: MemnodeId, request: Request);

    /// A reply that has come.
    fn receive(&mut self) -> Option<(Ticket, Reply)>;
}

/// Collects what a proxy sends, for a host that brings replies by itself.
#[derive(Debug, Default)]
pub struct Outbox(pub Vec<(Ticket, MemnodeId, Request)>);

impl Transport for Outbox {
    fn send(&mut self, ticket: Ticket, to: MemnodeId, request: Request) {
        self.0.push((ticket, to, request));
    }

    fn receive(&mut self) -> Option<(Ticket, Reply)> {
        None
    }
}

/// Memnodes in this process, which answer at once.
#[derive(Debug)]
pub struct Embedded {
    memnodes: Vec<Memnode>,
    replies: Vec<(u64, Reply)>,
    arrived: VecDeque<(Ticket, Reply)>,
}

impl Embedded {
    /// `count` empty memnodes.
    pub fn new(count: u16, limits: Limits) -> Self {
        Self {
            memnodes: (0..count).map(|_| Memnode::new(limits)).collect(),
            replies: Vec::new(),
            arrived: VecDeque::new(),
        }
    }

    /// The same, of a process that shares them among threads: pages of entries have latches.
    pub(crate) fn latching(count: u16, limits: Limits) -> Self {
        let memnode = |_| Memnode::latching(limits, page::is_leaf);
        Self {
            memnodes: (0..count).map(memnode).collect(),
            ..Self::new(0, limits)
        }
    }

    /// The memnodes.
    pub fn memnodes(&self) -> &[Memnode] {
        &self.memnodes
    }

    /// A memnode.
    #[inline]
    pub(crate) fn memnode(&self, memnode: MemnodeId) -> &Memnode {
        &self.memnodes[usize::from(memnode.0)]
    }

    /// What lay beside slots that were written, which whoever had the turn drops behind it.
    pub(crate) fn take_gone(&mut self) -> Vec<Beside> {
        let memnodes = self.memnodes.iter_mut();
        memnodes.flat_map(Memnode::take_gone).collect()
    }

    /// A memnode, to be changed in one turn with it.
    pub(crate) fn memnode_mut(&mut self, memnode: MemnodeId) -> &mut Memnode {
        &mut self.memnodes[usize::from(memnode.0)]
    }
}

impl Transport for Embedded {
    fn send(&mut self, ticket: Ticket, to: MemnodeId, request: Request) {
        let memnode = &mut self.memnodes[usize::from(to.0)];
        memnode.handle(ticket.0, request, &mut self.replies);
        let replies = self.replies.drain(..);
        self.arrived
            .extend(replies.map(|(ticket, reply)| (Ticket(ticket), reply)));
    }

    fn receive(&mut self) -> Option<(Ticket, Reply)> {
        self.arrived.pop_front()
    }
}
