//! Several memnodes under messages in any order, lost and repeated, with crashes of everybody:
//! money moves between them in two phases, and whoever likes settles whatever is in doubt.

use super::{Compare, CoordinatorId, Items, Limits, Memnode, MemnodeId, MinitransactionId};
use crate::{Outcome, Reply, Request, Slot, Standing, Write};

const MEMNODES: u16 = 3;
const MONEY: u64 = 1000;

/// Where a transfer, or somebody who settles one, stands.
#[derive(Clone, Debug)]
struct Agent {
    id: MinitransactionId,
    participants: Vec<MemnodeId>,
    /// What each participant does, in phase one; none for who settles.
    items: Option<Vec<Items>>,
    votes: Vec<Option<bool>>,
    decided: Option<bool>,
    told: Vec<bool>,
    is_settled: bool,
}

impl Agent {
    fn requests(&self) -> Vec<(MemnodeId, Request)> {
        let mut requests = Vec::new();
        for (index, to) in self.participants.iter().enumerate() {
            let request = match (self.decided, &self.items) {
                (Some(_), _) if self.told[index] => continue,
                (Some(commit), _) => Request::Decide {
                    id: self.id,
                    commit,
                },
                (None, _) if self.votes[index].is_some() => continue,
                (None, None) => Request::Settle { id: self.id },
                (None, Some(items)) => Request::Prepare {
                    id: self.id,
                    settled: 0,
                    participants: self.participants.clone(),
                    items: items[index].clone(),
                    wait: 0,
                },
            };
            requests.push((*to, request));
        }
        requests
    }

    fn hear(&mut self, from: MemnodeId, reply: &Reply) {
        let index = self.participants.iter().position(|id| *id == from).unwrap();
        match reply {
            Reply::Outcome(outcome) => {
                self.votes[index].get_or_insert(matches!(outcome, Outcome::Done(_)));
            }
            Reply::Standing(Standing::Settled) => self.is_settled = true,
            Reply::Standing(standing) => {
                self.votes[index].get_or_insert(*standing != Standing::Aborted);
            }
            Reply::Decided if self.decided.is_some() => self.told[index] = true,
            _ => {}
        }
        if self.votes.contains(&Some(false)) {
            self.decided = Some(false);
        } else if self.votes.iter().all(Option::is_some) {
            self.decided = Some(true);
        }
    }

    fn is_done(&self) -> bool {
        self.is_settled || self.told.iter().all(|told| *told)
    }
}

fn transfer(number: u64, random: &mut fastrand::Rng, memnodes: &[Memnode]) -> Agent {
    let mut participants: Vec<_> = (0..MEMNODES).map(MemnodeId).collect();
    random.shuffle(&mut participants);
    participants.truncate(random.usize(2..=3));
    participants.sort_unstable();
    let amount = random.u64(1..9);
    let mut items = vec![Items::default(); participants.len()];
    let (from, to) = (0, participants.len() - 1);
    let slot = Slot(random.u64(0..3));
    items[from].writes.push(Write::Add {
        slot,
        at: 0,
        by: amount.wrapping_neg(),
    });
    items[to].writes.push(Write::Add {
        slot,
        at: 0,
        by: amount,
    });
    for (index, items) in items.iter_mut().enumerate() {
        let state = memnodes[usize::from(participants[index].0)].slot(slot);
        if random.u32(0..4) == 0 {
            items.compares.push(Compare::Sequence(slot, state.sequence));
        }
        items.reads.push(slot);
    }
    agent(
        MinitransactionId {
            coordinator: CoordinatorId(number % 4),
            number,
        },
        participants,
        Some(items),
    )
}

fn agent(id: MinitransactionId, participants: Vec<MemnodeId>, items: Option<Vec<Items>>) -> Agent {
    let count = participants.len();
    Agent {
        id,
        participants,
        items,
        votes: vec![None; count],
        decided: None,
        told: vec![false; count],
        is_settled: false,
    }
}

/// What may go wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Planted {
    Nothing,
    /// A crash takes the vote back that was answered last.
    LostVote,
    /// A repeated request looks like a new one.
    Repeated,
}

struct World {
    random: fastrand::Rng,
    planted: Planted,
    memnodes: Vec<Memnode>,
    before: Vec<Memnode>,
    agents: Vec<Agent>,
    messages: Vec<(MemnodeId, usize, Request)>,
    numbers: u64,
}

impl World {
    fn new(seed: u64, planted: Planted) -> Self {
        let limits = Limits {
            slots_fixed: 8,
            ..Limits::default()
        };
        let mut memnode = Memnode::new(limits);
        let id = MinitransactionId {
            coordinator: CoordinatorId(99),
            number: 1,
        };
        let rich = |slot| Write::Whole(Slot(slot), MONEY.to_le_bytes().as_slice().into());
        let items = Items {
            writes: (0..3).map(rich).collect(),
            ..Items::default()
        };
        memnode.handle(
            0,
            Request::Execute {
                id,
                settled: 0,
                items,
                wait: 0,
            },
            &mut Vec::new(),
        );
        let memnodes = vec![memnode; usize::from(MEMNODES)];
        let random = fastrand::Rng::with_seed(seed);
        let before = memnodes.clone();
        Self {
            random,
            planted,
            memnodes,
            before,
            agents: Vec::new(),
            messages: Vec::new(),
            numbers: 0,
        }
    }

    fn step(&mut self) {
        match self.random.u32(0..100) {
            0..8 => {
                self.numbers += 1;
                let transfer = transfer(self.numbers, &mut self.random, &self.memnodes);
                self.agents.push(transfer);
            }
            8..30 if !self.agents.is_empty() => {
                let agent = self.random.usize(0..self.agents.len());
                let requests = self.agents[agent].requests();
                self.messages.extend(
                    requests
                        .into_iter()
                        .map(|(to, request)| (to, agent, request)),
                );
            }
            30..32 if !self.agents.is_empty() => {
                // Somebody settles what may well be in progress, or over.
                let other = &self.agents[self.random.usize(0..self.agents.len())];
                let settling = agent(other.id, other.participants.clone(), None);
                self.agents.push(settling);
            }
            32..34 => self.crash(),
            34..36 if !self.agents.is_empty() => {
                // A coordinator dies; its messages still arrive.
                let dead = self.random.usize(0..self.agents.len());
                self.agents[dead].is_settled = true;
            }
            36..40 if !self.messages.is_empty() => {
                let lost = self.random.usize(0..self.messages.len());
                self.messages.swap_remove(lost);
            }
            _ => self.deliver(),
        }
    }

    fn crash(&mut self) {
        let which = self.random.usize(0..self.memnodes.len());
        let source = if self.planted == Planted::LostVote {
            &self.before
        } else {
            &self.memnodes
        };
        self.memnodes[which] = source[which].clone().restarted();
    }

    fn deliver(&mut self) {
        if self.messages.is_empty() {
            return;
        }
        let next = self.random.usize(0..self.messages.len());
        let repeated = self.random.u32(0..5) == 0;
        let (to, agent, mut request) = if repeated {
            self.messages[next].clone()
        } else {
            self.messages.swap_remove(next)
        };
        if let (Planted::Repeated, true, Request::Prepare { id, .. } | Request::Decide { id, .. }) =
            (self.planted, repeated, &mut request)
        {
            id.coordinator.0 += 1_000_000;
        }
        let which = usize::from(to.0);
        if matches!(request, Request::Prepare { .. }) {
            self.before[which] = self.memnodes[which].clone();
        }
        let mut replies = Vec::new();
        self.memnodes[which].handle(agent as u64, request, &mut replies);
        for (agent, reply) in replies {
            if self.random.u32(0..10) > 0 {
                self.agents[agent as usize].hear(to, &reply);
            }
        }
    }

    /// Everything in doubt is settled, by messages that arrive.
    fn settle(&mut self) {
        self.messages.clear();
        for which in 0..self.memnodes.len() {
            let mut replies = Vec::new();
            self.memnodes[which].handle(0, Request::InDoubt, &mut replies);
            let Some((_, Reply::InDoubt(in_doubt))) = replies.pop() else {
                panic!("no list");
            };
            for doubt in in_doubt {
                let mut settling = agent(doubt.id, doubt.participants, None);
                while !settling.is_done() {
                    for (to, request) in settling.requests() {
                        let mut replies = Vec::new();
                        self.memnodes[usize::from(to.0)].handle(0, request, &mut replies);
                        for (_, reply) in &replies {
                            settling.hear(to, reply);
                        }
                    }
                }
            }
        }
    }

    fn is_sound(&self) -> bool {
        let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().unwrap());
        let used = self.memnodes.iter().flat_map(Memnode::used_slots);
        let money = used.fold(0_u64, |sum, (_, state)| {
            sum.wrapping_add(number(&state.state().bytes))
        });
        let agree = self.agents.iter().all(|one| {
            let others = self.agents.iter().filter(|other| other.id == one.id);
            let mut decisions = others.filter_map(|other| other.decided);
            let first = decisions.next();
            decisions.all(|decision| Some(decision) == first)
        });
        money == MONEY * 3 * u64::from(MEMNODES)
            && agree
            && self.memnodes.iter().all(Memnode::is_quiet)
    }
}

fn is_sound(seed: u64, planted: Planted) -> bool {
    let mut world = World::new(seed, planted);
    for _ in 0..600 {
        world.step();
    }
    world.settle();
    world.is_sound()
}

#[test]
fn all_participants_agree_whoever_crashes_or_settles() {
    for seed in 0..300 {
        assert!(is_sound(seed, Planted::Nothing), "seed {seed}");
    }
}

#[test]
fn canary_of_agreement() {
    for planted in [Planted::LostVote, Planted::Repeated] {
        assert!((0..100).any(|seed| !is_sound(seed, planted)));
    }
}
