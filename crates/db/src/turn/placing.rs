//! Whether the keys of a request are here, where a ring says so (`crate::placing`).
//!
//! | a key | the request |
//! |---|---|
//! | belongs to another server | is refused: `MOVED range host:port` |
//! | is on its way | waits up to [`limits::PLACE_PATIENCE_US`], then is refused: `TRYAGAIN` |
//!
//! All keys of a request are looked at before it begins, and those of a transaction together when
//! EXEC comes, under all gates: nothing is half done. What a snapshot shows of keys is shown by
//! whoever made it. Commands on the whole keyspace (SCAN, DBSIZE) show what is in it.

use pando_protocol::Request;
use pando_protocol::command::{CommandSpec, keys};
use pando_ring::Verdict;

use super::{HeldGates, Turn, is_exec};
use crate::client::Client;
use crate::clock::Microseconds;
use crate::database::Database;
use crate::error::CommandError;
use crate::limits;
use crate::placing::Placed;

impl Turn<'_> {
    /// Until when a request must wait for its keys, if it must; an error if they are elsewhere.
    #[inline]
    pub(super) fn find_keys(
        &mut self,
        client: &mut Client,
        spec: &CommandSpec,
        request: Request<'_>,
    ) -> Result<Option<Microseconds>, CommandError> {
        if self.session.placing.placed.is_none() || client.uses.is_some() {
            return Ok(None);
        }
        let found = self.find_some_keys(client, spec, request);
        if found.is_err() {
            // What it waited for has left.
            self.leave_lines(client);
        }
        found
    }

    #[cold]
    fn find_some_keys(
        &mut self,
        client: &Client,
        spec: &CommandSpec,
        request: Request<'_>,
    ) -> Result<Option<Microseconds>, CommandError> {
        if matches!(self.held, HeldGates::Nothing) {
            self.hold_own();
        }
        let mut until = self.find(keys(spec, request).map(|at| request.arg(at)))?;
        if let Some(transaction) = &client.transaction {
            if !is_exec(spec) {
                // It waits, if it must, when EXEC comes.
                return Ok(None);
            }
            if transaction.is_refused() {
                return Ok(None);
            }
            for (spec, request) in transaction.iter() {
                let of_queued = keys(spec, request).map(|at| request.arg(at));
                until = until.max(self.find(of_queued)?);
            }
        }
        Ok(until)
    }

    /// Whether these keys are here.
    pub(crate) fn find<'k>(
        &self,
        keys: impl Iterator<Item = &'k [u8]>,
    ) -> Result<Option<Microseconds>, CommandError> {
        let Some(placed) = &self.session.placing.placed else {
            return Ok(None);
        };
        let placement = &placed.placement;
        let mut on_its_way = None;
        for key in keys {
            match placement.judge(key) {
                Verdict::Here => {}
                Verdict::There(node) => {
                    return Err(CommandError::Moved {
                        range: placement.range_of(key),
                        address: node.address().to_string(),
                    });
                }
                Verdict::OnItsWay => on_its_way = Some(placement.range_of(key)),
            }
        }
        match on_its_way {
            None => Ok(None),
            Some(range) if self.session.now >= placed.patience => {
                Err(CommandError::OnItsWay { range })
            }
            Some(_) => Ok(Some(Microseconds(
                self.session.now.0 + limits::PLACE_LOOK_US.0,
            ))),
        }
    }

    /// Sets which keys are here, under all gates (PG1 stands-still). Clients that wait for keys
    /// look again.
    pub fn place(&mut self, change: impl FnOnce(Option<&Placed>, Microseconds) -> Option<Placed>) {
        self.hold_all();
        assert!(matches!(self.held, HeldGates::All { .. }));
        let present = self.database.placing.present();
        let placed = change(present.as_deref(), self.session.now);
        self.database.placing.set(placed);
        self.session.placing.follow(&self.database.placing);
        let all: Vec<usize> = (0..self.database.databases()).collect();
        self.database.lines.announce_all(&all);
    }
}

impl Database {
    /// Which keys are here; `None`: all.
    pub fn placed(&self) -> Option<std::sync::Arc<Placed>> {
        self.placing.present()
    }

    /// How often [`Self::placed`] has changed.
    pub fn placement_changes(&self) -> u64 {
        self.placing.changes()
    }
}

#[cfg(test)]
mod tests {
    use pando_ring::limits::RANGES;
    use pando_ring::{Placement, RangeState};

    use crate::clock::Microseconds;
    use crate::commands::testing::Shell;
    use crate::limits;
    use crate::placing::{Mover, Placed};

    const OLD: &str = "[[node]]\nname = 'oak'\naddress = 'h:1'\n";
    const NEW: &str = "[[node]]\nname = 'oak'\naddress = 'h:1'\n\
                       [[node]]\nname = 'ash'\naddress = 'h:2'\n";

    fn placement() -> Placement {
        Placement::begin(None, "oak", OLD, NEW).unwrap().0
    }

    /// A key that stays with this server, and one that leaves it.
    fn keys() -> (String, String) {
        let placement = placement();
        let leaves = |key: &String| placement.leaves(key.as_bytes()).is_some();
        let names = || (0..100).map(|index| format!("key{index}"));
        let stays = names().find(|key| !leaves(key)).unwrap();
        (stays, names().find(leaves).unwrap())
    }

    fn place(shell: &mut Shell, state: RangeState) {
        let placed = Placed {
            placement: placement(),
            mover: Some(std::sync::Arc::new(Mover::new(b"one"))),
            patience: Microseconds::ZERO,
        };
        let all: Vec<usize> = (0..RANGES).collect();
        shell.turn().place(|_, now| {
            Some(Placed {
                patience: Microseconds(now.0 + limits::PLACE_PATIENCE_US.0),
                ..placed.with(&all, state)
            })
        });
    }

    #[test]
    fn keys_that_have_left_are_refused_and_nothing_is_half_done() {
        let (stays, left) = keys();
        let mut shell = Shell::new();
        place(&mut shell, RangeState::New);
        let moved = format!("-MOVED {} h:2", placement().range_of(left.as_bytes()));
        for line in [
            format!("SET {left} x"),
            format!("GET {left}"),
            format!("MSET {stays} x {left} x"),
            format!("BLPOP {left} 0"),
            format!("SUNIONSTORE {stays} {left}"),
            format!("WATCH {left}"),
        ] {
            assert_eq!(shell.line(&line), moved, "{line}");
        }
        shell.check(&[
            (&format!("EXISTS {stays}"), ":0"),
            (&format!("SET {stays} x"), "+OK"),
            ("DBSIZE", ":1"),
        ]);
    }

    #[test]
    fn a_transaction_is_refused_whole() {
        let (stays, left) = keys();
        let mut shell = Shell::new();
        let moved = format!("-MOVED {} h:2", placement().range_of(left.as_bytes()));
        place(&mut shell, RangeState::Old);
        for line in [format!("SET {stays} x"), format!("SET {left} x")] {
            shell.line("MULTI");
            assert_eq!(shell.line(&line), "+QUEUED");
            place(&mut shell, RangeState::New);
            let ended = shell.line("EXEC");
            assert_eq!(ended == moved, line.contains(&left), "{ended}");
            place(&mut shell, RangeState::Old);
        }
        // A watched key has left, and may have changed since.
        for (key, ended) in [(&left, "*-1"), (&stays, "*1 +OK")] {
            shell.line(&format!("WATCH {key}"));
            place(&mut shell, RangeState::New);
            shell.line("MULTI");
            shell.line(&format!("SET {stays} x"));
            assert_eq!(shell.line("EXEC"), ended, "{key}");
            place(&mut shell, RangeState::Old);
        }
        // Refused while it is queued.
        place(&mut shell, RangeState::New);
        shell.line("MULTI");
        assert_eq!(shell.line(&format!("SET {left} x")), moved);
        assert!(shell.line("EXEC").starts_with("-EXECABORT"));
        assert_eq!(shell.line("PING"), "+PONG");
    }

    #[test]
    fn keys_on_their_way_are_waited_for_and_then_refused() {
        let (stays, leaves) = keys();
        let mut shell = Shell::new();
        place(&mut shell, RangeState::Fenced);
        shell.check(&[(&format!("SET {stays} x"), "+OK")]);
        shell.pass_ms(limits::PLACE_PATIENCE_US.0 / 1000 + 1);
        let range = placement().range_of(leaves.as_bytes());
        let told = format!("-TRYAGAIN range {range} of the keys is on its way to another server");
        assert_eq!(shell.line(&format!("GET {leaves}")), told);
        shell.line("MULTI");
        assert_eq!(shell.line(&format!("SET {leaves} x")), told);
        assert!(shell.line("EXEC").starts_with("-EXECABORT"));
    }

    #[test]
    fn the_mover_is_told_what_changes_and_leaves() {
        let (stays, leaves) = keys();
        let mut shell = Shell::new();
        place(&mut shell, RangeState::Old);
        let mover = shell.database.placed().unwrap().mover.clone().unwrap();
        for line in [
            format!("SET {stays} x"),
            format!("SET {leaves} x"),
            format!("APPEND {leaves} x"),
        ] {
            shell.line(&line);
        }
        let told = |key: &str| vec![(0, Box::from(key.as_bytes()))];
        assert_eq!(mover.take(None, 10), told(&leaves));
        shell.line(&format!("DEL {leaves}"));
        assert_eq!(mover.take(None, 10), told(&leaves));
        assert!(!mover.is_lost());
        shell.line("FLUSHALL");
        assert!(mover.is_lost());
    }
}
