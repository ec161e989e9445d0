//! Routes: which server a request goes to, and what its failure means. No I/O, no clock.
//!
//! | state of an address | becomes | when |
//! |---|---|---|
//! | sound | resting | it could not be reached ([`Routes::failed`]) |
//! | resting | tried | its time is over ([`Routes::rests`]) |
//! | tried | sound | it answered ([`Routes::answered`]) |
//! | tried | resting, for twice the time | it could not be reached ([`Routes::failed`]) |

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use pando_ring::{Address, Node, Ring, RingError};
use redis::{ErrorKind, FromRedisValue, RedisError, Value};

use crate::error::Error;
use crate::limits::{REDIRECTS_MAX, REST_MAX, REST_MIN};
use crate::options::{Options, ReadFrom};
use crate::request::Request;

/// How a server says that it does not serve, whatever the key. It then has executed nothing.
const REFUSALS: [&str; 14] = [
    "LOADING",
    "MASTERDOWN",
    "READONLY",
    "NOREPLICAS",
    "MISCONF",
    "OOM",
    "BUSY",
    "NOAUTH",
    "WRONGPASS",
    "DENIED",
    "CLUSTERDOWN",
    "MOVED",
    "ASK",
    "TRYAGAIN",
];

/// A ring, and which of its servers rest.
#[derive(Debug)]
pub(crate) struct Routes {
    ring: Arc<Ring>,
    read_from: ReadFrom,
    rests: HashMap<Address, Rest>,
    turn: usize,
}

#[derive(Debug)]
struct Rest {
    until: Instant,
    length: Duration,
}

/// The servers that may answer a request, best first.
#[derive(Clone, Debug)]
pub(crate) struct Route {
    pub(crate) node: Arc<str>,
    servers: Vec<Address>,
    next: usize,
    redirects: usize,
}

impl Route {
    fn new(node: &Node, servers: Vec<Address>) -> Self {
        Self {
            node: Arc::clone(node.shared_name()),
            servers,
            next: 0,
            redirects: 0,
        }
    }

    /// The server to ask.
    pub(crate) fn server(&self) -> &Address {
        &self.servers[self.next]
    }

    /// Goes to the server that a refusal names (`MOVED range host:port`): nothing was executed, so
    /// a write may, too. False if it names none, or there were too many.
    pub(crate) fn follow(&mut self, error: &Error) -> bool {
        let Error::Refused { source, .. } = error else {
            return false;
        };
        if source.code() != Some("MOVED") || self.redirects == REDIRECTS_MAX {
            return false;
        }
        let named = source.detail().and_then(|text| text.split(' ').nth(1));
        let Some(server) = named.and_then(|text| text.parse().ok()) else {
            return false;
        };
        self.redirects += 1;
        (self.servers, self.next) = (vec![server], 0);
        true
    }

    /// Goes on to the next server. False if there is none.
    pub(crate) fn advance(&mut self) -> bool {
        self.next += 1;
        let more = self.next < self.servers.len();
        self.next -= usize::from(!more);
        more
    }
}

impl Routes {
    pub(crate) fn new(ring: Arc<Ring>, options: &Options) -> Self {
        Self {
            ring,
            read_from: options.read_from,
            rests: HashMap::new(),
            turn: 0,
        }
    }

    pub(crate) fn ring(&self) -> &Arc<Ring> {
        &self.ring
    }

    /// Takes a ring that differs in addresses alone.
    pub(crate) fn readdress(&mut self, ring: Arc<Ring>) -> Result<(), RingError> {
        if !self.ring.places_alike(&ring) {
            return Err(RingError::Moves);
        }
        self.ring = ring;
        self.rests.clear();
        Ok(())
    }

    /// Takes a ring that moves keys.
    pub(crate) fn replace(&mut self, ring: Arc<Ring>) {
        self.ring = ring;
        self.rests.clear();
    }

    /// Whether a server of the ring is at `address`.
    pub(crate) fn knows(&self, address: &Address) -> bool {
        self.ring
            .nodes()
            .iter()
            .any(|node| node.address() == address || node.replicas().contains(address))
    }

    /// The servers for a request.
    pub(crate) fn route(&mut self, request: &Request) -> Result<Route, Error> {
        let node = self.ring.node_of(request.key()?);
        let mut servers = Vec::new();
        let replicas = node.replicas();
        if request.reads() && self.read_from == ReadFrom::Replicas && !replicas.is_empty() {
            self.turn = self.turn.wrapping_add(1);
            let first = self.turn % replicas.len();
            servers.extend_from_slice(&replicas[first..]);
            servers.extend_from_slice(&replicas[..first]);
        }
        servers.push(node.address().clone());
        Ok(Route::new(node, servers))
    }

    /// The primaries, one of each node.
    pub(crate) fn primaries(&self) -> Vec<Route> {
        self.ring
            .nodes()
            .iter()
            .map(|node| Route::new(node, vec![node.address().clone()]))
            .collect()
    }

    /// How long the server still rests, if it does.
    pub(crate) fn rests(&self, address: &Address, now: Instant) -> Option<Duration> {
        let left = self.rests.get(address)?.until.checked_duration_since(now)?;
        (!left.is_zero()).then_some(left)
    }

    /// The server could not be reached, or did not answer in time.
    pub(crate) fn failed(&mut self, address: &Address, now: Instant) {
        // Requests that were under way together fail together: one failure.
        if self.rests(address, now).is_some() {
            return;
        }
        let length = match self.rests.get(address) {
            Some(rest) => (rest.length * 2).min(REST_MAX),
            None => REST_MIN,
        };
        let until = now + length;
        self.rests.insert(address.clone(), Rest { until, length });
    }

    /// The server answered.
    pub(crate) fn answered(&mut self, address: &Address) {
        if !self.rests.is_empty() {
            self.rests.remove(address);
        }
    }
}

/// What a server answered, or that it refused.
pub(crate) fn judge(route: &Route, reply: Value) -> Result<Value, Error> {
    reply
        .extract_error()
        .map_err(|source| refusal(route, source))
}

/// The error of a server that answered.
pub(crate) fn refusal(route: &Route, source: RedisError) -> Error {
    let node = Arc::clone(&route.node);
    let of_node = source.kind() == ErrorKind::AuthenticationFailed
        || source.code().is_some_and(|code| REFUSALS.contains(&code));
    if of_node {
        let address = route.server().clone();
        Error::Refused {
            node,
            address,
            source,
        }
    } else {
        Error::Refusal { node, source }
    }
}

/// The error of a connection, before or after something was sent.
pub(crate) fn broken(route: &Route, sent: bool, source: RedisError) -> Error {
    // While it connects, a server may refuse by a reply.
    let answered = matches!(
        source.kind(),
        ErrorKind::AuthenticationFailed | ErrorKind::Server(_) | ErrorKind::Extension
    );
    if answered {
        let (node, address) = (Arc::clone(&route.node), route.server().clone());
        return Error::Refused {
            node,
            address,
            source,
        };
    }
    Error::Unreachable {
        node: Arc::clone(&route.node),
        address: route.server().clone(),
        sent,
        source,
    }
}

pub(crate) fn resting(route: &Route, left: Duration) -> Error {
    Error::Resting {
        node: Arc::clone(&route.node),
        address: route.server().clone(),
        left,
    }
}

/// The reply as the type that the caller wants.
pub(crate) fn typed<T: FromRedisValue>(reply: Value) -> Result<T, Error> {
    redis::from_redis_value(reply).map_err(|source| Error::Type { source })
}
