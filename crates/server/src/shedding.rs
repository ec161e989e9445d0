//! Memory of requests that are under way: whose connection goes when they take too much.
//!
//! A worker charges each of its connections for what has come of its requests and what MULTI has
//! queued ([`Shared::charge`]). When all of them together take more than `maxmemory-clients`, the
//! ones that take most are closed until the others are within it, but for those of CLIENT NO-EVICT.
//! No key goes for what lies beyond the bound (`pando_db`'s RQ invariants), so a client that begins
//! many requests and ends none costs a cache a share of its keys, and the others nothing else.
//!
//! What is charged changes when a connection's buffers do, not with every request: most are
//! executed from the worker's own buffer and never charged.
//!
//! Deliberately absent: replies, which `client-output-buffer-limit` bounds.

use std::cmp::Reverse;

use crate::registry::{ClientFlag, ClientRecord};
use crate::shared::Shared;

impl Shared {
    /// Notes that the requests of a connection take so many bytes now. Its worker does.
    pub(crate) fn charge(&self, record: &ClientRecord, request_bytes: usize) {
        let more = record.set_request_bytes(request_bytes);
        let held = self.database.charge_requests(more);
        let bytes_max = self.database.requests_bytes_max();
        if more > 0 && bytes_max > 0 && held > bytes_max {
            self.shed_requests(bytes_max);
        }
    }

    /// Closes the connections whose requests take most, until the others take no more than
    /// `bytes_max`. O(connections).
    #[cold]
    fn shed_requests(&self, bytes_max: usize) {
        let mut holders: Vec<_> = self
            .registry
            .snapshot()
            .into_iter()
            .filter(|record| record.request_bytes() > 0 && !record.is_killed())
            .map(|record| (record.request_bytes(), record))
            .collect();
        holders.sort_by_key(|(bytes, record)| Reverse((*bytes, record.id())));
        let mut held: usize = holders.iter().map(|(bytes, _)| bytes).sum();
        for (bytes, record) in holders {
            if held <= bytes_max {
                return;
            }
            if record.has(ClientFlag::NoEvict) {
                continue;
            }
            record.shed();
            if let Some(mailbox) = self.mailbox(record.origin().worker) {
                mailbox.close(record.id());
            }
            held -= bytes;
        }
    }
}
