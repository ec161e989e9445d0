//! How a client talks to the servers of its ring.

use std::fmt;
use std::time::Duration;

use pando_ring::Address;
use redis::io::tcp::TcpSettings;
use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo, RedisResult};

/// Which server of a node is read from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ReadFrom {
    /// The primary: reads see the writes that were acknowledged before.
    #[default]
    Primary,
    /// The replicas in turn, then the primary when none of them serves. A replica lags behind: a
    /// read may miss writes that were acknowledged, the client's own too, and two reads of one key
    /// may go back in time.
    Replicas,
}

/// How a client talks to the servers of its ring: all alike.
#[derive(Clone)]
pub struct Options {
    /// How long a server may take to accept a connection; 1 s unless set.
    pub connect_timeout: Duration,
    /// How long a reply may take; 5 s unless set. Longer than any command that blocks.
    pub response_timeout: Duration,
    /// Which server of a node is read from; the primary unless set.
    pub read_from: ReadFrom,
    /// The user, where the servers have more than one.
    pub user: Option<String>,
    /// The password, where the servers have one.
    pub password: Option<String>,
    /// The number of the database; 0 unless set.
    pub database: u32,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(1),
            response_timeout: Duration::from_secs(5),
            read_from: ReadFrom::Primary,
            user: None,
            password: None,
            database: 0,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Options")
            .field("connect_timeout", &self.connect_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("read_from", &self.read_from)
            .field("user", &self.user)
            .field("password", &self.password.as_ref().map(|_| "…"))
            .field("database", &self.database)
            .finish()
    }
}

impl Options {
    /// A client of crate `redis` for the server at `address`.
    pub(crate) fn client(&self, address: &Address) -> RedisResult<redis::Client> {
        let address = match address {
            Address::Tcp(host, port) => ConnectionAddr::Tcp(host.clone(), *port),
            Address::Unix(path) => ConnectionAddr::Unix(path.clone()),
        };
        let mut settings = RedisConnectionInfo::default()
            .set_db(self.database.into())
            .set_lib_name("pando-client", env!("CARGO_PKG_VERSION"));
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        let info: ConnectionInfo = address.into_connection_info()?;
        let tcp = TcpSettings::default().set_nodelay(true);
        redis::Client::open(info.set_redis_settings(settings).set_tcp_settings(tcp))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_printed() {
        let options = Options {
            password: Some("secret".into()),
            ..Options::default()
        };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
