//! Signals that stop the server, as bytes in a socket that a poller can wait on.
//!
//! SIGTERM and SIGINT ask for a graceful stop; the second one ends the process at once, for whoever
//! does not want to wait. SIGHUP is ignored: a server outlives its terminal. So is SIGXFSZ: a write
//! beyond the limit on the size of files then fails as one on a full disk does.
//!
//! A command that leaves something behind at a server ends through [`before_end`].

use std::io::{self, Read as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::{flag, low_level};

/// Exit code of a process that is told to stop twice.
const IMPATIENT: i32 = 1;

/// Receives the signals of the process; see the module's header.
#[derive(Debug)]
pub struct StopSignals {
    receiver: UnixStream,
}

impl StopSignals {
    /// Takes over the signals, for the whole process and permanently.
    pub fn install() -> io::Result<Self> {
        let (receiver, sender) = UnixStream::pair()?;
        receiver.set_nonblocking(true)?;
        sender.set_nonblocking(true)?;
        let stopping = Arc::new(AtomicBool::new(false));
        for signal in [SIGTERM, SIGINT] {
            // The order matters: the first signal finds the flag unset and sets it.
            flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&stopping))?;
            flag::register(signal, Arc::clone(&stopping))?;
            low_level::pipe::register(signal, sender.try_clone()?)?;
        }
        for signal in [SIGHUP, SIGXFSZ] {
            flag::register(signal, Arc::default())?;
        }
        Ok(Self { receiver })
    }

    /// Whether a signal has arrived since the last call.
    pub(crate) fn take(&mut self) -> bool {
        let mut bytes = [0; 16];
        let mut any = false;
        while let Ok(1..) = self.receiver.read(&mut bytes) {
            any = true;
        }
        any
    }
}

/// Runs `work` when a signal asks the process to end, then ends it; the second signal ends it at
/// once. Its own thread waits, so that nobody else has to poll.
pub(crate) fn before_end(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let (mut receiver, sender) = UnixStream::pair()?;
    let ending = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        flag::register_conditional_shutdown(signal, IMPATIENT, Arc::clone(&ending))?;
        flag::register(signal, Arc::clone(&ending))?;
        low_level::pipe::register(signal, sender.try_clone()?)?;
    }
    std::thread::Builder::new().spawn(move || {
        if receiver.read_exact(&mut [0]).is_ok() {
            work();
            std::process::exit(IMPATIENT);
        }
    })?;
    Ok(())
}

impl AsFd for StopSignals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.receiver.as_fd()
    }
}
