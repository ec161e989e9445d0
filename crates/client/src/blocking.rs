//! A client that waits: for one thread, with one connection to each server that it needs.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use pando_ring::{Address, Ring, RingError};
use redis::{Cmd, Connection, FromRedisValue, RedisError, RedisResult, Value};

use crate::error::Error;
use crate::limits::CHUNK_BYTES;
use crate::options::Options;
use crate::request::{self, Request};
use crate::routes::{self, Route, Routes};

/// A client that waits: for one thread, with one connection to each server that it needs.
///
/// It connects when a key needs a server, and again after a failure. A read that fails is sent
/// again, to the node's next server or over a new connection. A write is sent at most once, unless
/// a server has refused it because the key has moved, and says where:
/// [`Error::may_have_executed`] says what is known of one that failed.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use pando_client::{Client, Options, Ring};
///
/// let ring = Arc::new(Ring::load("ring.toml")?);
/// let mut client = Client::new(ring, Options::default());
/// client.set("tree", "pando")?;
/// assert_eq!(client.get("tree")?.as_deref(), Some(&b"pando"[..]));
/// for (key, value) in ["tree", "leaf"].iter().zip(client.get_many(&["tree", "leaf"])) {
///     match value {
///         Ok(value) => println!("{key}: {value:?}"),
///         Err(error) if error.is_of_node() => println!("{key}: a node is away: {error}"),
///         Err(error) => println!("{key}: {error}"),
///     }
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Client {
    options: Options,
    routes: Routes,
    connections: HashMap<Address, Connection>,
}

/// A request that has no reply yet.
struct Pending {
    index: usize,
    route: Route,
}

/// What was sent to one server: by whether the connection was there before, for these requests.
struct Sent {
    address: Address,
    reused: bool,
    requests: Vec<Pending>,
    failed: Option<RedisError>,
}

/// A batch under way.
struct Batch<'a> {
    requests: &'a [Request],
    replies: Vec<Option<Result<Value, Error>>>,
    queues: BTreeMap<Address, VecDeque<Pending>>,
}

impl Batch<'_> {
    fn queue(&mut self, pending: Pending) {
        let address = pending.route.server().clone();
        self.queues.entry(address).or_default().push_back(pending);
    }

    /// Puts back what is left of a server's queue, before what was added since.
    fn queue_again(&mut self, address: &Address, mut queue: VecDeque<Pending>) {
        if !queue.is_empty() {
            let added = self.queues.entry(address.clone()).or_default();
            queue.append(added);
            *added = queue;
        }
    }

    fn end(&mut self, pending: &Pending, reply: Result<Value, Error>) {
        self.replies[pending.index] = Some(reply);
    }

    /// Sends a request where a refusal says that its key is, and a read to the node's next server,
    /// if there is one; else the request has failed.
    fn fail(&mut self, mut pending: Pending, error: Error) {
        let reads = self.requests[pending.index].reads();
        if pending.route.follow(&error) || reads && pending.route.advance() {
            self.queue(pending);
        } else {
            self.end(&pending, Err(error));
        }
    }
}

impl Client {
    /// A client of `ring`. Connects to nobody yet.
    pub fn new(ring: Arc<Ring>, options: Options) -> Self {
        Self {
            routes: Routes::new(ring, &options),
            options,
            connections: HashMap::new(),
        }
    }

    /// The ring.
    pub fn ring(&self) -> &Arc<Ring> {
        self.routes.ring()
    }

    /// Takes `ring`, which differs in addresses and replicas alone: a node has moved, or a replica
    /// took its primary's place. Refuses one that moves keys.
    pub fn readdress(&mut self, ring: Arc<Ring>) -> Result<(), RingError> {
        self.routes.readdress(ring)?;
        let routes = &self.routes;
        self.connections.retain(|address, _| routes.knows(address));
        Ok(())
    }

    /// Takes `ring`, by which keys move, as soon as `pando reshard` has begun with it; before, the
    /// servers take keys that are then in their way. A client that keeps the old ring is told by
    /// the servers where keys are, at the cost of a second request for each.
    pub fn replace_ring(&mut self, ring: Arc<Ring>) {
        self.routes.replace(ring);
        let routes = &self.routes;
        self.connections.retain(|address, _| routes.knows(address));
    }

    /// The string at `key`.
    pub fn get(&mut self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        self.query(&request::get(key.as_ref()))
    }

    /// Sets the string at `key`.
    pub fn set(&mut self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        self.query(&request::set(key.as_ref(), value.as_ref()))
    }

    /// Removes `key`. Returns whether it was there.
    pub fn delete(&mut self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        self.query(&request::delete(key.as_ref()))
    }

    /// The strings at `keys`, from all nodes at once. A node that is away fails its own keys.
    pub fn get_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Vec<Result<Option<Vec<u8>>, Error>> {
        let requests: Vec<_> = keys.iter().map(|key| request::get(key.as_ref())).collect();
        self.query_many(&requests)
    }

    /// Sets strings on all nodes at once, each by itself: some may be set while others fail.
    pub fn set_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &mut self,
        pairs: &[(K, V)],
    ) -> Vec<Result<(), Error>> {
        let set = |(key, value): &(K, V)| request::set(key.as_ref(), value.as_ref());
        let requests: Vec<_> = pairs.iter().map(set).collect();
        self.query_many(&requests)
    }

    /// Removes keys from all nodes at once, each by itself. Returns which were there.
    pub fn delete_many<K: AsRef<[u8]>>(&mut self, keys: &[K]) -> Vec<Result<bool, Error>> {
        let delete = |key: &K| request::delete(key.as_ref());
        let requests: Vec<_> = keys.iter().map(delete).collect();
        self.query_many(&requests)
    }

    /// Executes any command on the keys of one node.
    pub fn query<T: FromRedisValue>(&mut self, request: &Request) -> Result<T, Error> {
        self.query_many(std::slice::from_ref(request))
            .pop()
            .expect("a reply for each request")
    }

    /// Executes commands, on all their nodes at once. Those on one primary are executed in this
    /// order. The replies are in this order.
    pub fn query_many<T: FromRedisValue>(&mut self, requests: &[Request]) -> Vec<Result<T, Error>> {
        self.run(requests)
            .into_iter()
            .map(|reply| routes::typed(reply?))
            .collect()
    }

    /// Executes a command without a key (`DBSIZE`, `PING`) on each primary, in the ring's order.
    pub fn on_each_node<T: FromRedisValue>(&mut self, command: &Cmd) -> Vec<Result<T, Error>> {
        let requests = vec![Request::write(command.clone()); self.routes.ring().nodes().len()];
        let routes = self.routes.primaries();
        self.run_routed(&requests, routes.into_iter().map(Ok))
            .into_iter()
            .map(|reply| routes::typed(reply?))
            .collect()
    }

    fn run(&mut self, requests: &[Request]) -> Vec<Result<Value, Error>> {
        let routes: Vec<_> = requests
            .iter()
            .map(|request| self.routes.route(request))
            .collect();
        self.run_routed(requests, routes.into_iter())
    }

    fn run_routed(
        &mut self,
        requests: &[Request],
        routes: impl Iterator<Item = Result<Route, Error>>,
    ) -> Vec<Result<Value, Error>> {
        let mut batch = Batch {
            requests,
            replies: requests.iter().map(|_| None).collect(),
            queues: BTreeMap::new(),
        };
        for (index, route) in routes.enumerate() {
            match route {
                Ok(route) => batch.queue(Pending { index, route }),
                Err(error) => batch.replies[index] = Some(Err(error)),
            }
        }
        // Each round ends requests or moves reads on, and a route has an end.
        while !batch.queues.is_empty() {
            let mut under_way = Vec::new();
            for (address, queue) in std::mem::take(&mut batch.queues) {
                under_way.extend(self.send(&mut batch, address, queue));
            }
            for sent in under_way {
                self.receive(&mut batch, sent);
            }
        }
        let replies = batch.replies.into_iter();
        replies
            .map(|reply| reply.expect("each request has ended"))
            .collect()
    }

    /// Sends a part of the server's queue, and puts the rest back.
    fn send(
        &mut self,
        batch: &mut Batch<'_>,
        address: Address,
        mut queue: VecDeque<Pending>,
    ) -> Option<Sent> {
        if let Some(left) = self.routes.rests(&address, Instant::now()) {
            for pending in queue {
                let error = routes::resting(&pending.route, left);
                batch.fail(pending, error);
            }
            return None;
        }
        let reused = match self.connect(&address) {
            Ok(reused) => reused,
            Err(source) => {
                self.routes.failed(&address, Instant::now());
                for pending in queue {
                    let error = routes::broken(&pending.route, false, source.clone());
                    batch.fail(pending, error);
                }
                return None;
            }
        };
        let mut bytes = Vec::new();
        let mut requests = Vec::new();
        while let Some(pending) = queue.pop_front() {
            let before = bytes.len();
            let command = batch.requests[pending.index].command();
            command.write_packed_command(&mut bytes);
            if before > 0 && bytes.len() > CHUNK_BYTES {
                bytes.truncate(before);
                queue.push_front(pending);
                break;
            }
            requests.push(pending);
        }
        batch.queue_again(&address, queue);
        let connection = self.connections.get_mut(&address)?;
        let failed = connection.send_packed_command(&bytes).err();
        Some(Sent {
            address,
            reused,
            requests,
            failed,
        })
    }

    /// Takes the replies to what was sent.
    fn receive(&mut self, batch: &mut Batch<'_>, sent: Sent) {
        let Sent {
            address,
            reused,
            requests,
            mut failed,
        } = sent;
        let mut requests = requests.into_iter();
        while failed.is_none() {
            let Some(pending) = requests.next() else {
                self.routes.answered(&address);
                return;
            };
            match self.receive_one(&address) {
                Ok(reply) => match routes::judge(&pending.route, reply) {
                    Err(error) if error.is_of_node() => batch.fail(pending, error),
                    reply => batch.end(&pending, reply),
                },
                Err(source) => {
                    failed = Some(source.clone());
                    self.give_up(batch, pending, reused, source);
                }
            }
        }
        let Some(source) = failed else { return };
        // Whatever comes over it later answers nobody.
        self.connections.remove(&address);
        if source.is_timeout() {
            self.routes.failed(&address, Instant::now());
        }
        for pending in requests {
            self.give_up(batch, pending, reused, source.clone());
        }
    }

    fn receive_one(&mut self, address: &Address) -> RedisResult<Value> {
        let connection = self.connections.get_mut(address);
        let connection = connection.expect("what was sent went over a connection");
        connection.recv_response()
    }

    /// A connection broke under a request. One that was there before may be a server's that has
    /// since restarted: a read goes to the same server again.
    fn give_up(&self, batch: &mut Batch<'_>, pending: Pending, reused: bool, source: RedisError) {
        let reads = batch.requests[pending.index].reads();
        if reads && reused && !source.is_timeout() {
            batch.queue(pending);
        } else {
            let error = routes::broken(&pending.route, true, source);
            batch.fail(pending, error);
        }
    }

    /// Makes sure that there is a connection. Returns whether there was one before.
    fn connect(&mut self, address: &Address) -> RedisResult<bool> {
        match self.connections.entry(address.clone()) {
            Entry::Occupied(_) => Ok(true),
            Entry::Vacant(place) => {
                let client = self.options.client(address)?;
                let connection =
                    client.get_connection_with_timeout(self.options.connect_timeout)?;
                connection.set_read_timeout(Some(self.options.response_timeout))?;
                connection.set_write_timeout(Some(self.options.response_timeout))?;
                place.insert(connection);
                Ok(false)
            }
        }
    }
}

impl std::fmt::Debug for Client {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Client")
            .field("routes", &self.routes)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}
