//! What transactions cost in messages, whatever the network: counted where they leave and arrive.
//!
//! A message that a transaction sends after it has waited for a reply is one round trip later than
//! that reply's request. What is sent when the transaction has ended, as decisions are, belongs to
//! its messages and bytes, and to no round trip: nobody waits for it.

use std::collections::{BTreeMap, BTreeSet};

use pando_memnode::{MemnodeId, Reply, Request};

use crate::transport::{Embedded, Ticket, Transport};

/// Sums over transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// How many transactions there were.
    pub transactions: u64,
    /// Round trips for which they waited, one after the other.
    pub round_trips: u64,
    /// Memnodes that each of them asked, added up.
    pub memnodes: u64,
    /// Requests.
    pub requests: u64,
    /// Bytes of requests and replies ([`Request::message_bytes`]).
    pub bytes: u64,
}

/// Counts the transaction under way.
#[derive(Debug, Default)]
pub(crate) struct Meter {
    traffic: Traffic,
    asked: BTreeSet<MemnodeId>,
    /// Round trips up to each request, with its own.
    outstanding: BTreeMap<Ticket, u64>,
    /// Those up to the latest reply.
    waited: u64,
}

impl Meter {
    /// What was counted so far.
    pub(crate) fn traffic(&self) -> Traffic {
        self.traffic
    }

    /// A transaction begins.
    pub(crate) fn begin(&mut self) {
        self.asked.clear();
        self.outstanding.clear();
        self.waited = 0;
    }

    /// It has its result.
    pub(crate) fn end(&mut self) {
        self.traffic.transactions += 1;
        self.traffic.round_trips += self.waited;
        self.traffic.memnodes += self.asked.len() as u64;
    }
}

/// Memnodes, and who counts what they are asked.
pub(crate) struct Metered<'m> {
    pub(crate) memnodes: &'m mut Embedded,
    pub(crate) meter: Option<&'m mut Meter>,
}

impl Transport for Metered<'_> {
    fn send(&mut self, ticket: Ticket, to: MemnodeId, request: Request) {
        if let Some(meter) = &mut self.meter {
            meter.traffic.requests += 1;
            meter.traffic.bytes += request.message_bytes() as u64;
            meter.asked.insert(to);
            meter.outstanding.insert(ticket, meter.waited + 1);
        }
        self.memnodes.send(ticket, to, request);
    }

    fn receive(&mut self) -> Option<(Ticket, Reply)> {
        let (ticket, reply) = self.memnodes.receive()?;
        if let Some(meter) = &mut self.meter {
            meter.traffic.bytes += reply.message_bytes() as u64;
            let trips = meter.outstanding.remove(&ticket).unwrap_or(0);
            meter.waited = meter.waited.max(trips);
        }
        Some((ticket, reply))
    }
}

#[cfg(test)]
mod tests {
    use crate::{Config, Database, InnerNodes, TreeId};

    /// What one more transaction takes: round trips, memnodes, requests.
    fn taken(database: &mut Database, key: &[u8], value: Option<&[u8]>) -> [u64; 3] {
        let before = database.traffic().unwrap();
        let tree = TreeId(1);
        let run = database.run(|transaction| {
            let tip = transaction.tip()?;
            match value {
                Some(value) => tree.put(transaction, tip, key, value).map(|_| ()),
                None => tree.get(transaction, tip, key).map(|_| ()),
            }
        });
        run.unwrap();
        let after = database.traffic().unwrap();
        assert_eq!(after.transactions, before.transactions + 1);
        assert!(after.bytes > before.bytes);
        [
            after.round_trips - before.round_trips,
            after.memnodes - before.memnodes,
            after.requests - before.requests,
        ]
    }

    #[test]
    fn a_read_is_one_trip_to_one_memnode_and_a_write_two() {
        let compared = InnerNodes::Compared { slots: 1000 };
        for (memnodes, inner_nodes) in [1, 2, 4]
            .into_iter()
            .flat_map(|memnodes| [(memnodes, InnerNodes::Dirty), (memnodes, compared)])
        {
            let config = Config {
                memnodes,
                inner_nodes,
                ..Config::default()
            };
            let mut database = Database::in_process(config).unwrap();
            assert_eq!(database.traffic(), None);
            database.count_traffic();
            let mut most = 0;
            for number in 0..1000_u32 {
                let [_, asked, _] = taken(&mut database, &number.to_be_bytes(), Some(&[7; 8]));
                most = most.max(asked);
            }
            // A split is at the memnodes of its three nodes, or at all.
            match inner_nodes {
                InnerNodes::Dirty => assert!(most <= 3),
                InnerNodes::Compared { .. } => assert_eq!(most, u64::from(memnodes)),
            }
            for number in [3_u32, 500, 999] {
                let key = number.to_be_bytes();
                assert_eq!(taken(&mut database, &key, None), [1, 1, 1]);
                assert_eq!(taken(&mut database, &key, Some(&[8; 8])), [2, 1, 2]);
            }
        }
    }
}
