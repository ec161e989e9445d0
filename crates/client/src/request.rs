//! Requests: a command, where its key is, and whether it may be sent twice.

use redis::{Arg, Cmd};

use crate::error::Error;

/// A command on the keys of one node.
///
/// ```
/// use pando_client::Request;
///
/// let raise = Request::write(redis::cmd("INCRBY").arg("visits").arg(2).take());
/// // The key is the second argument here.
/// let idle = Request::read(redis::cmd("OBJECT").arg("IDLETIME").arg("visits").take()).key_at(2);
/// ```
#[derive(Clone, Debug)]
pub struct Request {
    command: Cmd,
    key_at: usize,
    reads: bool,
}

impl Request {
    /// A command that may change something. It is sent to the primary, and never executed twice.
    pub fn write(command: Cmd) -> Self {
        Self {
            command,
            key_at: 1,
            reads: false,
        }
    }

    /// A command that changes nothing. A replica may serve it, and it is sent again where a server
    /// fails.
    pub fn read(command: Cmd) -> Self {
        Self {
            reads: true,
            ..Self::write(command)
        }
    }

    /// With its key as argument `at`, counted from the command's name, which is 0. Unless said, it
    /// is argument 1. Where a command has more keys, they need one tag.
    #[must_use]
    pub fn key_at(mut self, at: usize) -> Self {
        self.key_at = at;
        self
    }

    pub(crate) fn command(&self) -> &Cmd {
        &self.command
    }

    pub(crate) fn reads(&self) -> bool {
        self.reads
    }

    pub(crate) fn key(&self) -> Result<&[u8], Error> {
        match self.command.args_iter().nth(self.key_at) {
            Some(Arg::Simple(key)) => Ok(key),
            _ => Err(Error::NoKey { at: self.key_at }),
        }
    }
}

pub(crate) fn get(key: &[u8]) -> Request {
    Request::read(redis::cmd("GET").arg(key).take())
}

pub(crate) fn set(key: &[u8], value: &[u8]) -> Request {
    let mut command = Cmd::with_capacity(3, 3 + key.len() + value.len());
    Request::write(command.arg("SET").arg(key).arg(value).take())
}

pub(crate) fn delete(key: &[u8]) -> Request {
    Request::write(redis::cmd("DEL").arg(key).take())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_knows_its_key() {
        assert_eq!(set(b"k", b"v").key().unwrap(), b"k");
        let later = Request::read(redis::cmd("OBJECT").arg("FREQ").arg("k").take());
        assert_eq!(later.clone().key_at(2).key().unwrap(), b"k");
        let error = later.key_at(3).key().unwrap_err();
        assert!(matches!(error, Error::NoKey { at: 3 }), "{error}");
        assert!(!error.is_of_node() && !error.may_have_executed());
    }
}
