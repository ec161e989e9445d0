//! Background threads that end when their owner drops them.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use pando_sync::lock;

/// Running threads; dropping it stops and joins them.
#[derive(Debug, Default)]
pub(crate) struct Background {
    stop: Arc<Stop>,
    threads: Vec<JoinHandle<()>>,
}

/// Tells the threads to end.
#[derive(Debug, Default)]
pub(crate) struct Stop {
    requested: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    /// Waits for up to `limit`; returns whether the thread must end.
    pub(crate) fn wait(&self, limit: Duration) -> bool {
        let requested = lock(&self.requested);
        let waited = self
            .changed
            .wait_timeout_while(requested, limit, |requested| !*requested);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

impl Background {
    /// Starts a thread; its work ends when its [`Stop`] says so.
    pub(crate) fn spawn(
        &mut self,
        name: &str,
        run: impl FnOnce(&Stop) + Send + 'static,
    ) -> std::io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let thread = std::thread::Builder::new()
            .name(name.into())
            .spawn(move || run(&stop))?;
        self.threads.push(thread);
        Ok(())
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        *lock(&self.stop.requested) = true;
        self.stop.changed.notify_all();
        for thread in self.threads.drain(..) {
            if thread.thread().id() != std::thread::current().id() {
                // A panic there has been printed; there is nobody else to tell.
                let _ = thread.join();
            }
        }
    }
}
