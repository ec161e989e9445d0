//! A client for programs on tokio: cheap to clone, for any number of tasks.
//!
//! | field | written by | under | read by |
//! |---|---|---|---|
//! | `Shared::routes` | every request | its mutex | every request |
//! | `Shared::links` | whoever connects, or sees a link break | its mutex | every request |
//!
//! No lock is held while a task waits, and no task holds both.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use futures_util::future::{BoxFuture, FutureExt, Shared as SharedFuture};
use futures_util::stream::{self, StreamExt};
use pando_ring::{Address, Ring, RingError};
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Cmd, FromRedisValue, RedisResult, Value};

use crate::error::Error;
use crate::limits::REQUESTS_AT_ONCE;
use crate::options::Options;
use crate::request::{self, Request};
use crate::routes::{self, Route, Routes};

/// A connection that is there, or that somebody makes: all who need it wait for the same one.
type Link = SharedFuture<BoxFuture<'static, RedisResult<MultiplexedConnection>>>;

/// A client for programs on tokio: cheap to clone, for any number of tasks, which share one
/// connection to each server. It does what [`Client`](crate::Client) does, but for the order: the
/// requests of a batch may be executed in any.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use pando_client::{AsyncClient, Options, Ring};
///
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// let ring = Arc::new(Ring::load("ring.toml")?);
/// let client = AsyncClient::new(ring, Options::default());
/// client.set("tree", "pando").await?;
/// assert_eq!(client.get("tree").await?.as_deref(), Some(&b"pando"[..]));
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct AsyncClient {
    shared: Arc<Shared>,
}

struct Shared {
    options: Options,
    routes: Mutex<Routes>,
    links: Mutex<Links>,
}

/// Links by address, numbered, so that who saw an old one break does not drop a new one.
#[derive(Default)]
struct Links {
    made: u64,
    links: HashMap<Address, (u64, Link)>,
}

impl AsyncClient {
    /// A client of `ring`. Connects to nobody yet.
    pub fn new(ring: Arc<Ring>, options: Options) -> Self {
        let routes = Mutex::new(Routes::new(ring, &options));
        Self {
            shared: Arc::new(Shared {
                options,
                routes,
                links: Mutex::default(),
            }),
        }
    }

    /// The ring.
    pub fn ring(&self) -> Arc<Ring> {
        Arc::clone(self.routes().ring())
    }

    /// See [`Client::readdress`](crate::Client::readdress). Requests that are under way end where
    /// they began.
    pub fn readdress(&self, ring: Arc<Ring>) -> Result<(), RingError> {
        let mut routes = self.routes();
        routes.readdress(Arc::clone(&ring))?;
        drop(routes);
        let known = Routes::new(ring, &self.shared.options);
        let mut links = lock(&self.shared.links);
        links.links.retain(|address, _| known.knows(address));
        Ok(())
    }

    /// As [`Client::replace_ring`](crate::Client::replace_ring).
    pub fn replace_ring(&self, ring: Arc<Ring>) {
        self.routes().replace(ring);
    }

    /// The string at `key`.
    pub async fn get(&self, key: impl AsRef<[u8]>) -> Result<Option<Vec<u8>>, Error> {
        let request = request::get(key.as_ref());
        self.query(&request).await
    }

    /// Sets the string at `key`.
    pub async fn set(&self, key: impl AsRef<[u8]>, value: impl AsRef<[u8]>) -> Result<(), Error> {
        let request = request::set(key.as_ref(), value.as_ref());
        self.query(&request).await
    }

    /// Removes `key`. Returns whether it was there.
    pub async fn delete(&self, key: impl AsRef<[u8]>) -> Result<bool, Error> {
        let request = request::delete(key.as_ref());
        self.query(&request).await
    }

    /// The strings at `keys`, from all nodes at once. A node that is away fails its own keys.
    pub async fn get_many<K: AsRef<[u8]>>(
        &self,
        keys: &[K],
    ) -> Vec<Result<Option<Vec<u8>>, Error>> {
        let requests: Vec<_> = keys.iter().map(|key| request::get(key.as_ref())).collect();
        self.query_many(&requests).await
    }

    /// Sets strings on all nodes at once, each by itself: some may be set while others fail.
    pub async fn set_many<K: AsRef<[u8]>, V: AsRef<[u8]>>(
        &self,
        pairs: &[(K, V)],
    ) -> Vec<Result<(), Error>> {
        let set = |(key, value): &(K, V)| request::set(key.as_ref(), value.as_ref());
        let requests: Vec<_> = pairs.iter().map(set).collect();
        self.query_many(&requests).await
    }

    /// Removes keys from all nodes at once, each by itself. Returns which were there.
    pub async fn delete_many<K: AsRef<[u8]>>(&self, keys: &[K]) -> Vec<Result<bool, Error>> {
        let delete = |key: &K| request::delete(key.as_ref());
        let requests: Vec<_> = keys.iter().map(delete).collect();
        self.query_many(&requests).await
    }

    /// Executes any command on the keys of one node. A future that is dropped leaves it unknown
    /// whether the command was executed.
    pub async fn query<T: FromRedisValue>(&self, request: &Request) -> Result<T, Error> {
        let route = self.routes().route(request)?;
        let reply = self.run(request.command(), request.reads(), route).await?;
        routes::typed(reply)
    }

    /// Executes commands, on all their nodes at once. The replies are in this order.
    pub async fn query_many<T: FromRedisValue>(
        &self,
        requests: &[Request],
    ) -> Vec<Result<T, Error>> {
        stream::iter(requests.iter().map(|request| self.query(request)))
            .buffered(REQUESTS_AT_ONCE)
            .collect()
            .await
    }

    /// Executes a command without a key (`DBSIZE`, `PING`) on each primary, in the ring's order.
    pub async fn on_each_node<T: FromRedisValue>(&self, command: &Cmd) -> Vec<Result<T, Error>> {
        let primaries = self.routes().primaries();
        let run = |route| async move { routes::typed(self.run(command, false, route).await?) };
        stream::iter(primaries.into_iter().map(run))
            .buffered(REQUESTS_AT_ONCE)
            .collect()
            .await
    }

    /// Asks the servers of the route, one after the other, until one has answered; those that come
    /// after the first only for a read, or where the first says that the key is there.
    async fn run(&self, command: &Cmd, reads: bool, mut route: Route) -> Result<Value, Error> {
        let mut again = reads;
        loop {
            let (error, reused) = match self.ask(command, &route).await {
                Err((error, reused)) if error.is_of_node() => (error, reused),
                Err((error, _)) => return Err(error),
                Ok(reply) => return Ok(reply),
            };
            if route.follow(&error) {
                again = reads;
                continue;
            }
            // A link that was there before may be to a server that has since restarted.
            if reused && again {
                again = false;
                continue;
            }
            if !reads || !route.advance() {
                return Err(error);
            }
            again = true;
        }
    }

    /// Asks one server. An error comes with whether the link broke that was there before.
    async fn ask(&self, command: &Cmd, route: &Route) -> Result<Value, (Error, bool)> {
        let address = route.server();
        let left = self.routes().rests(address, Instant::now());
        if let Some(left) = left {
            return Err((routes::resting(route, left), false));
        }
        let (number, reused, link) = self.link(address);
        let mut connection = link.await.map_err(|source| {
            self.unlink(address, number);
            self.routes().failed(address, Instant::now());
            (routes::broken(route, false, source), false)
        })?;
        match connection.send_packed_command(command).await {
            Ok(reply) => {
                self.routes().answered(address);
                routes::judge(route, reply).map_err(|error| (error, false))
            }
            Err(source) => {
                self.unlink(address, number);
                let late = source.is_timeout();
                if late {
                    self.routes().failed(address, Instant::now());
                }
                Err((routes::broken(route, true, source), reused && !late))
            }
        }
    }

    /// The link to a server, and whether it was there before.
    fn link(&self, address: &Address) -> (u64, bool, Link) {
        let mut links = lock(&self.shared.links);
        if let Some((number, link)) = links.links.get(address) {
            return (*number, true, link.clone());
        }
        links.made += 1;
        let number = links.made;
        let link = connect(self.shared.options.clone(), address.clone())
            .boxed()
            .shared();
        links.links.insert(address.clone(), (number, link.clone()));
        (number, false, link)
    }

    fn unlink(&self, address: &Address, number: u64) {
        let mut links = lock(&self.shared.links);
        if links
            .links
            .get(address)
            .is_some_and(|link| link.0 == number)
        {
            links.links.remove(address);
        }
    }

    fn routes(&self) -> MutexGuard<'_, Routes> {
        lock(&self.shared.routes)
    }
}

async fn connect(options: Options, address: Address) -> RedisResult<MultiplexedConnection> {
    let config = AsyncConnectionConfig::new()
        .set_connection_timeout(Some(options.connect_timeout))
        .set_response_timeout(Some(options.response_timeout));
    let client = options.client(&address)?;
    client
        .get_multiplexed_async_connection_with_config(&config)
        .await
}

/// No invariant spans a panic under these locks.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl std::fmt::Debug for AsyncClient {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("AsyncClient")
            .field("routes", &self.shared.routes)
            .field("options", &self.shared.options)
            .finish_non_exhaustive()
    }
}
