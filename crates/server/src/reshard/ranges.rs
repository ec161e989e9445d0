//! Handing ranges over (RS1 fence-then-last).

use std::time::{Duration, Instant};

use pando_db::string_to_move;
use pando_protocol::Value;
use pando_ring::limits::RANGES;
use pando_ring::{Placement, RangeState, Verdict};

use super::ReshardError;
use super::mover::{Attempt, Fault, ROUNDS_MAX};
use crate::shared::lock;

/// Ranges that are handed over together: more at a time are faster, and wait longer.
const RANGES_AT_ONCE: usize = 8;

/// How long the replicas of a server may take to have what it has, and how long it waits at a time.
const REPLICAS_PATIENCE: Duration = Duration::from_mins(2);

/// See [`REPLICAS_PATIENCE`].
const REPLICAS_WAIT_MS: &[u8] = b"1000";

/// How long it takes at most until a replica that follows is told what has changed.
const TOLD: Duration = Duration::from_millis(100);

impl Attempt<'_> {
    /// Ranges that some server does not have yet, those first that are between two.
    pub(super) fn pending(&self) -> Vec<usize> {
        let all = |range: usize, state| {
            let mut placements = self.placements.iter();
            placements.all(|placement| placement.state(range) == state)
        };
        let mut pending: Vec<usize> = (0..RANGES)
            .filter(|range| !all(*range, RangeState::New))
            .collect();
        pending.sort_by_key(|range| all(*range, RangeState::Old));
        pending
    }

    /// Takes back fences of an earlier attempt that no new server has passed: these ranges are
    /// served while the rest is copied. Nobody else changes them any more.
    pub(super) fn open_fences(&mut self) -> Result<(), ReshardError> {
        let any = |range: usize, state| {
            let mut placements = self.placements.iter();
            placements.any(|placement| placement.state(range) == state)
        };
        let is_open =
            |range: &usize| any(*range, RangeState::Fenced) && !any(*range, RangeState::New);
        let ranges: Vec<usize> = (0..RANGES).filter(is_open).collect();
        let all = 0..self.placements.len();
        self.set(all, RangeState::Old, &ranges)
    }

    pub(super) fn hand_all_over(&mut self) -> Result<(), ReshardError> {
        let pending = self.pending();
        let mut left = pending.len();
        for ranges in pending.chunks(RANGES_AT_ONCE) {
            let untouched = self.placements.clone();
            if let Err(error) = self.hand_over(ranges, &untouched) {
                eprintln!("{} of {RANGES} ranges are handed over", RANGES - left);
                return Err(error);
            }
            left -= ranges.len();
            let progress = &self.hands.plan.progress;
            let (longest, _) = progress.fences();
            progress.tick(|| {
                format!(
                    "{} of {RANGES} ranges are handed over, {}; a hand-over takes up to {} ms",
                    RANGES - left,
                    progress.copied(),
                    longest.as_millis()
                )
            });
        }
        Ok(())
    }

    /// Hands ranges over. If that fails before anybody has taken them, they are as before.
    fn hand_over(&mut self, ranges: &[usize], before: &[Placement]) -> Result<(), ReshardError> {
        if !self.hands.plan.has(Fault::LastForgotten) {
            self.bring_last(ranges)?;
        }
        self.await_replicas()?;
        let began = Instant::now();
        let fenced = self.fence(ranges);
        if let Err(error) = fenced {
            self.open_again(ranges, before);
            return Err(error);
        }
        let plan = self.hands.plan;
        let rings = |index: usize| {
            let name = plan.nodes[index].name();
            (plan.old.ring.node(name), plan.new.ring.node(name))
        };
        let all = 0..plan.nodes.len();
        let is_new = |index: &usize| matches!(rings(*index), (None, _));
        let stays = |index: &usize| matches!(rings(*index), (Some(_), Some(_)));
        let leaves = |index: &usize| matches!(rings(*index), (_, None));
        self.set(all.clone().filter(is_new), RangeState::New, ranges)?;
        plan.step()?;
        self.set(all.clone().filter(stays), RangeState::New, ranges)?;
        lock(&plan.progress.fences).push(began.elapsed());
        plan.step()?;
        self.set(all.filter(leaves), RangeState::New, ranges)?;
        plan.step()
    }

    /// From here on nobody writes these ranges; on return the new servers have all of them
    /// (RS1 fence-then-last).
    fn fence(&mut self, ranges: &[usize]) -> Result<(), ReshardError> {
        let plan = self.hands.plan;
        if !plan.has(Fault::FenceForgotten) {
            let is_old = |index: &usize| plan.old.ring.node(plan.nodes[*index].name()).is_some();
            let olds = (0..plan.nodes.len()).filter(is_old);
            self.set(olds, RangeState::Fenced, ranges)?;
        }
        plan.step()?;
        if !plan.has(Fault::LastForgotten) {
            self.bring_last(ranges)?;
        }
        self.await_replicas()?;
        plan.step()
    }

    /// Takes a fence back that nobody has passed.
    fn open_again(&mut self, ranges: &[usize], before: &[Placement]) {
        for (index, before) in before.iter().enumerate() {
            let was = |range: &&usize| before.state(**range) == RangeState::Old;
            let ranges: Vec<usize> = ranges.iter().filter(was).copied().collect();
            // A server that is away stays fenced until the next attempt.
            let _ = self.set(std::iter::once(index), RangeState::Old, &ranges);
        }
    }

    /// Brings what has changed in these ranges until nothing has.
    fn bring_last(&mut self, ranges: &[usize]) -> Result<(), ReshardError> {
        for from in 0..self.hands.servers.len() {
            let mut rounds = 0;
            let placements = &self.placements;
            while self.hands.bring_changed(placements, from, Some(ranges))? > 0 {
                rounds += 1;
                let is_fenced = placements[from].state(ranges[0]) == RangeState::Fenced;
                if rounds == ROUNDS_MAX && !is_fenced {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Sets how far ranges are on these servers, where they are not so far.
    fn set(
        &mut self,
        servers: impl Iterator<Item = usize>,
        state: RangeState,
        ranges: &[usize],
    ) -> Result<(), ReshardError> {
        let mut asked = Vec::new();
        for index in servers {
            let placement = &self.placements[index];
            let changes = |range: &&usize| {
                let present = placement.state(**range);
                present != state && present != RangeState::New
            };
            let changing: Vec<usize> = ranges.iter().filter(changes).copied().collect();
            if changing.is_empty() {
                continue;
            }
            let word: &[u8] = match state {
                RangeState::Old => b"OLD",
                RangeState::Fenced => b"FENCED",
                RangeState::New => b"NEW",
            };
            let numbers: Vec<String> = changing.iter().map(usize::to_string).collect();
            let mut words: Vec<&[u8]> = vec![b"RESHARD", b"SET", &self.hands.plan.token, word];
            words.extend(numbers.iter().map(String::as_bytes));
            self.hands.servers[index].send(&words)?;
            asked.push((index, changing));
        }
        let mut failed = None;
        for (index, changing) in asked {
            match self.hands.servers[index].receive() {
                Ok(_) => {
                    let present = self.placements[index].clone();
                    let next = |placement: Placement, range: &usize| placement.with(*range, state);
                    self.placements[index] = changing.iter().fold(present, next);
                }
                Err(error) => {
                    failed.get_or_insert(error);
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Waits until the replicas of every server have what it has: values and fences.
    fn await_replicas(&mut self) -> Result<(), ReshardError> {
        let plan = self.hands.plan;
        for index in 0..plan.nodes.len() {
            let began = Instant::now();
            loop {
                let (_, replicas) = self.hands.servers[index].role()?;
                if replicas == 0 {
                    break;
                }
                self.write_last(index)?;
                let server = &mut self.hands.servers[index];
                let wanted = replicas.to_string();
                match server.ask(&[b"WAIT", wanted.as_bytes(), REPLICAS_WAIT_MS])? {
                    Value::Integer(have) if have >= replicas as i64 => break,
                    Value::Integer(_) if began.elapsed() < REPLICAS_PATIENCE => {}
                    Value::Integer(_) => {
                        let name = server.name.clone();
                        return Err(ReshardError::ReplicasBehind { name });
                    }
                    _ => return Err(server.unexpected("WAIT")),
                }
            }
        }
        Ok(())
    }

    /// Writes something behind all changes of a server, so that who has it has them: a key of our
    /// own, that is not served there if possible. A server without memory for it tells its replicas
    /// within some milliseconds all the same.
    fn write_last(&mut self, index: usize) -> Result<(), ReshardError> {
        let token = String::from_utf8_lossy(&self.hands.plan.token).into_owned();
        let placement = &self.placements[index];
        let names = (0..10_000).map(|number| format!("pando-reshard-{token}-{number}"));
        let mut names = names.map(String::into_bytes);
        let written = if let Some(key) = names.clone().find(|key| placement.may_place(key)) {
            let value = string_to_move(token.as_bytes());
            let put = self.hands.put(index, 0, &[(key.clone(), value)]);
            put.and_then(|()| self.hands.remove(index, 0, &[key]))
        } else if let Some(key) = names.find(|key| placement.judge(key) == Verdict::Here) {
            let server = &mut self.hands.servers[index];
            server.select(0)?;
            let set = server.ask(&[b"SET", &key, token.as_bytes(), b"EX", b"60"]);
            set.and_then(|_| server.ask(&[b"DEL", &key])).map(drop)
        } else {
            Ok(())
        };
        match written {
            Err(ReshardError::Refused { answer, .. }) if answer.starts_with("OOM") => {
                std::thread::sleep(TOLD);
                Ok(())
            }
            written => written,
        }
    }
}
