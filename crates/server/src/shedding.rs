//! Memory of requests in progress: whose connection is closed when they take too much.
//!
//! A worker charges each of its connections for the received part of its requests and for what
//! MULTI has queued ([`Shared::charge`]). When all of them together exceed `maxmemory-clients`, the
//! connections that take most are closed until the others are within it, except those with CLIENT
//! NO-EVICT. No key is evicted for memory beyond the bound (`pando_db`'s RQ invariants). So a
//! client that begins many requests and finishes none costs a cache a share of its keys, and other
//! clients nothing.
//!
//! Charges change when a connection's buffers do, not with every request: most requests are
//! executed from the worker's own buffer and never charged.
//!
//! Deliberately absent: replies, which `client-output-buffer-limit` bounds.

use std::cmp::Reverse;

use crate::registry::{ClientFlag, ClientRecord};
use crate::shared::Shared;

impl Shared {
    /// Records that the requests of a connection take this many bytes now. Called by its worker.
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
