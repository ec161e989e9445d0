//! What each policy takes, and how much is done at a time.
//!
//! The memory in use is a model: so many bytes a key, and what the engine has on its way back.

use crate::clock::Microseconds;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::sync::{Arc, Weak};

use super::*;
use crate::commands::testing::{START_MS, Shell};
use crate::{EngineKind, Options, Progress, Wait};

mod hits;
mod snapshots;

const KEY_BYTES: usize = 10_000;

thread_local! {
    static MEASURED: RefCell<Weak<Database>> = const { RefCell::new(Weak::new()) };
    /// How much of what is idle counts.
    static SCATTERED: Cell<usize> = const { Cell::new(0) };
}

/// What the database of this thread's test takes; nothing on other threads.
fn meter() -> usize {
    MEASURED.with_borrow(|database| {
        database.upgrade().map_or(0, |database| {
            let databases = 0..database.databases();
            let keys: u64 = databases.map(|index| database.summary(index).0).sum();
            let idle = database.store.idle_bytes().min(SCATTERED.get());
            keys as usize * KEY_BYTES + database.store.reclaimable_bytes() + idle
        })
    })
}

/// A database of an engine, whose memory in use is what `meter` says.
fn metered(engine: EngineKind, policy: EvictionPolicy, meter: fn() -> usize) -> Shell {
    let options = Options {
        engine,
        memory: meter,
        seed: 7,
        ..Options::default()
    };
    let shell = Shell::with_options(options);
    shell.database.close();
    MEASURED.set(Arc::downgrade(&shell.database));
    shell.database.set_eviction_policy(policy);
    shell
}

/// A database of an engine that holds about `keys` keys.
fn shell(engine: EngineKind, policy: EvictionPolicy, keys: usize) -> Shell {
    let shell = metered(engine, policy, meter);
    limit(&shell, keys);
    shell
}

fn limit(shell: &Shell, keys: usize) {
    let bytes = keys * KEY_BYTES;
    // The line, not the limit, is where keys begin to go.
    let headroom = bytes / (limits::EVICT_HEADROOM_SHARE - 1) + KEY_BYTES / 2;
    shell.database.set_max_memory(bytes + headroom);
}

fn on_every_engine(policy: EvictionPolicy, keys: usize, test: impl Fn(&mut Shell)) {
    for engine in EngineKind::in_memory() {
        test(&mut shell(engine, policy, keys));
    }
}

/// Writes keys; now and then an epoch passes.
fn fill(shell: &mut Shell, name: &str, keys: usize, options: &str) {
    let mut session = shell.database.session().expect("a session is free");
    for key in 0..keys {
        if key % 8 == 0 {
            session.maintain();
        }
        let reply = shell.line(&format!("SET {name}{key} v{options}"));
        assert_eq!(reply, "+OK", "{name}{key}");
    }
}

/// How many of the keys are there. Does not use them.
fn there(shell: &mut Shell, name: &str, keys: usize) -> usize {
    let exists = |key: &usize| shell.line(&format!("EXISTS {name}{key}")) == ":1";
    (0..keys).filter(exists).count()
}

fn evicted(shell: &Shell) -> u64 {
    shell.database.statistics().evicted_keys
}

const OOM: &str = "-OOM command not allowed when used memory > 'maxmemory'.";

#[test]
fn names_of_policies_are_those_of_redis() {
    for policy in EvictionPolicy::ALL {
        assert_eq!(EvictionPolicy::from_name(policy.name()), Some(policy));
        assert_eq!(EvictionPolicy::ALL[policy as usize], policy);
    }
    assert_eq!(EvictionPolicy::from_name("allkeys"), None);
}

#[test]
fn no_eviction_refuses() {
    on_every_engine(EvictionPolicy::NoEviction, 10, |shell| {
        fill(shell, "k", 11, "");
        assert_eq!(shell.line("SET more v"), OOM);
        assert_eq!((there(shell, "k", 11), evicted(shell)), (11, 0));
    });
}

/// Under every policy that may take any key, writes go on and the number of keys stays.
#[test]
fn writes_go_on_while_keys_can_go() {
    use EvictionPolicy::{AllKeysLfu, AllKeysLru, AllKeysRandom};
    for policy in [AllKeysLru, AllKeysLfu, AllKeysRandom] {
        on_every_engine(policy, 50, |shell| {
            fill(shell, "k", 500, "");
            let keys = there(shell, "k", 500);
            assert!((45..=51).contains(&keys), "{policy:?}: {keys} keys");
            assert_eq!(evicted(shell), 500 - keys as u64);
        });
    }
}

/// EV2 policy-at-removal: keys without a deadline stay, and without others writes are refused.
#[test]
fn volatile_policies_take_keys_with_a_deadline_only() {
    use EvictionPolicy::{VolatileLfu, VolatileLru, VolatileRandom, VolatileTtl};
    for policy in [VolatileLru, VolatileLfu, VolatileRandom, VolatileTtl] {
        on_every_engine(policy, 50, |shell| {
            fill(shell, "stays", 30, "");
            fill(shell, "goes", 100, " EX 1000");
            assert_eq!(there(shell, "stays", 30), 30, "{policy:?}");
            assert!((15..=21).contains(&there(shell, "goes", 100)), "{policy:?}");
            // One that has lost its deadline since it was chosen stays too.
            for key in 0..100 {
                shell.line(&format!("PERSIST goes{key}"));
            }
            let before = evicted(shell);
            let refused = (0..30).any(|key| shell.line(&format!("SET last{key} v")) == OOM);
            assert!(refused, "{policy:?}");
            assert_eq!(evicted(shell), before, "{policy:?}");
        });
    }
}

#[test]
fn volatile_ttl_takes_the_nearest_deadlines() {
    on_every_engine(EvictionPolicy::VolatileTtl, 400, |shell| {
        for key in 0..400 {
            shell.line(&format!("SET k{key} v EX {}", 1000 + (key * 37) % 400));
        }
        fill(shell, "new", 200, "");
        let mut left = Vec::new();
        for key in 0..400 {
            let seconds: i64 = shell.line(&format!("TTL k{key}"))[1..]
                .parse()
                .expect("a number");
            if seconds > 0 {
                left.push(seconds - 1000);
            }
        }
        assert!((196..=204).contains(&left.len()), "{left:?}");
        // Of some shards at a time, which a random hash fills: nearly the nearest, where picking
        // at random would leave a hundred.
        let far = left.iter().filter(|rank| **rank >= 200).count();
        assert!(far >= 150, "{left:?}");
    });
}

/// Keys that are read between writes stay, those that are not go.
#[test]
fn lru_and_lfu_keep_what_is_used() {
    use EvictionPolicy::{AllKeysLfu, AllKeysLru, VolatileLfu, VolatileLru};
    for policy in [AllKeysLru, AllKeysLfu, VolatileLru, VolatileLfu] {
        on_every_engine(policy, 100, |shell| {
            let mut misses = 0;
            for round in 0..50 {
                for key in 0..20 {
                    if shell.line(&format!("GET hot{key}")) == "$-1" {
                        misses += 1;
                        shell.line(&format!("SET hot{key} v EX 1000"));
                    }
                }
                fill(shell, &format!("cold{round}:"), 10, " EX 1000");
            }
            assert!(evicted(shell) > 350);
            // The first 20 are none of the policy's.
            assert!((20..60).contains(&misses), "{policy:?}: {misses} misses");
        });
    }
}

/// A scan of keys that come once does not drive out what is used often.
#[test]
fn lfu_resists_a_scan() {
    on_every_engine(EvictionPolicy::AllKeysLfu, 100, |shell| {
        fill(shell, "hot", 20, "");
        for _ in 0..500 {
            for key in 0..20 {
                shell.line(&format!("GET hot{key}"));
            }
        }
        fill(shell, "scan", 300, "");
        assert!(there(shell, "hot", 20) >= 18);
    });
}

/// Every key can go under the random policies, and the choice is not by order.
#[test]
fn random_policies_take_keys_everywhere() {
    for policy in [
        EvictionPolicy::AllKeysRandom,
        EvictionPolicy::VolatileRandom,
    ] {
        on_every_engine(policy, 200, |shell| {
            for key in 0..200 {
                shell.line(&format!("SET k{key} v EX {}", 1000 + key));
            }
            fill(shell, "new", 100, "");
            let mut left = HashMap::new();
            for key in 0..200 {
                if shell.line(&format!("EXISTS k{key}")) == ":1" {
                    *left.entry(key / 50).or_insert(0) += 1;
                }
            }
            let spread = (0..4).all(|quarter| (5..=45).contains(&left[&quarter]));
            assert!(spread, "{policy:?}: {left:?}");
        });
    }
}

/// Keys of other databases go as well.
#[test]
fn all_databases_give_room() {
    use EvictionPolicy::{AllKeysLru, AllKeysRandom, VolatileLru, VolatileTtl};
    for policy in [AllKeysLru, AllKeysRandom, VolatileLru, VolatileTtl] {
        on_every_engine(policy, 50, |shell| {
            shell.line("SELECT 9");
            fill(shell, "far", 50, " EX 1000");
            shell.line("SELECT 3");
            fill(shell, "k", 30, "");
            let least = if policy == AllKeysRandom { 10 } else { 28 };
            assert!(there(shell, "k", 30) >= least, "{policy:?}");
            shell.line("SELECT 9");
            assert!(there(shell, "far", 50) <= 22 + 30 - least, "{policy:?}");
        });
    }
}

/// EV1 bounded-eviction: one call takes a bounded number of keys, and a lower limit is reached by
/// maintenance while writes go on.
#[test]
fn a_lower_limit_is_reached_step_by_step() {
    on_every_engine(EvictionPolicy::AllKeysLru, 5000, |shell| {
        fill(shell, "k", 5000, "");
        limit(shell, 100);
        let mut session = shell.database.open_session().expect("a session is free");
        let taken = evict(&shell.database, &mut session).keys;
        assert!((1..=limits::EVICT_KEYS_MAX).contains(&taken), "{taken}");
        shell.database.close_session(&session);
        let before = evicted(shell);
        assert_eq!(shell.line("SET more v"), "+OK");
        let most = (limits::EVICT_KEYS_MAX * limits::EVICT_ROUNDS_MAX) as u64;
        assert!((1..=most).contains(&(evicted(shell) - before)));
        let mut session = shell.database.session().expect("a session is free");
        while session.maintain() {}
        assert!((70..=101).contains(&shell.database.summary(0).0));
    });
}

/// Where memory is short only because free blocks lie here and there, to evict more keys wherever
/// they lie makes it no less: a command takes about what it needs, maintenance nothing.
#[test]
fn scattered_memory_is_no_reason_to_evict_many() {
    on_every_engine(EvictionPolicy::AllKeysLru, 1_000_000, |shell| {
        let value = "v".repeat(900);
        let mut state = shell.database.open_session().expect("a session is free");
        for key in 0..8_000 {
            shell.line(&format!("SET k{key} {value}"));
        }
        let before = shell.database.store.idle_bytes();
        for key in (0..8_000).filter(|key| key % 4 != 0) {
            shell.line(&format!("DEL k{key}"));
        }
        for _ in 0..4 {
            shell.database.end_epoch();
            let horizon = shell.database.epochs.current();
            shell.database.epochs.set_horizon(horizon);
            while state.store.maintain(4096) > 0 {}
        }
        let idle = shell.database.store.idle_bytes();
        assert!(idle == 0 || idle > before + (2 << 20), "{before} {idle}");
        // Just short, by what is idle.
        let used = meter();
        shell.database.set_max_memory(used + used / 32);
        SCATTERED.set(idle.max(1 << 20));
        let (mut taken, mut ahead) = (0, 0);
        if idle > 0 {
            assert!(shell.database.is_short() && !shell.database.is_full());
            ahead = evict_ahead(&shell.database, &mut state).keys;
            taken = evict(&shell.database, &mut state).keys;
        }
        SCATTERED.set(0);
        assert!(
            ahead == 0 && taken <= limits::EVICT_SCATTERED_KEYS_MAX,
            "{ahead} {taken}"
        );
        shell.database.close_session(&state);
    });
}

/// EV3 no-eviction-unlogged.
/// What was evicted is on its way back while a reader holds its pin: writers wait for it, and no
/// longer than they should.
#[test]
fn writes_wait_for_evicted_memory() {
    let value = "v".repeat(KEY_BYTES);
    let step_us = limits::MEMORY_WAIT_MAX.0 / 10;
    for engine in EngineKind::in_memory() {
        let mut shell = shell(engine, EvictionPolicy::AllKeysRandom, 50);
        let mut reader = shell.connect();
        let stalled = reader.turn();
        let mut key = 0;
        let mut waited_us = 0;
        let refusal = loop {
            match shell.begin(["SET", &key.to_string(), &value]) {
                (reply, Progress::Waits(Wait::Leave { until })) => {
                    assert!(reply.is_empty());
                    let now_us = START_MS * 1000 + waited_us;
                    assert_eq!(until, Microseconds(now_us) + limits::MEMORY_WAIT);
                    waited_us += step_us;
                    shell.pass_ms(step_us / 1000);
                }
                (reply, _) if waited_us > 0 => break reply,
                (reply, _) => {
                    assert_eq!(reply, b"+OK\r\n");
                    key += 1;
                }
            }
        };
        assert_eq!(refusal, format!("{OOM}\r\n").into_bytes());
        assert_eq!(waited_us, limits::MEMORY_WAIT_MAX.0, "{engine:?}");
        assert!(evicted(&shell) > 0 && key > 40);
        drop(stalled);
        let taken = (0..100).any(|_| {
            reader.session.maintain();
            shell.begin(["SET", "more", &value]).0 == b"+OK\r\n"
        });
        assert!(taken, "{engine:?}");
    }
}

/// Nobody commits what was freed: a write without room runs again, but not for ever, however long
/// each run takes.
#[test]
fn a_write_without_room_in_the_pool_is_refused_in_the_end() {
    let value = "v".repeat(8000);
    let mut shell = Shell::with_options(Options {
        engine: EngineKind::Cdds,
        pool: pando_cdds::Options {
            bytes: 2 << 20,
            ..pando_cdds::Options::default()
        },
        ..Options::default()
    });
    shell.database.close();
    let mut keys = 0..;
    let full = loop {
        let key = keys.next().expect("the pool is full before").to_string();
        match shell.begin(["SET", &key, &value]) {
            (reply, Progress::Done) if reply == b"+OK\r\n" => {}
            (reply, _) => break reply,
        }
        assert_eq!(shell.line(&format!("DEL {key}")), ":1");
    };
    assert!(full.is_empty(), "what was removed is about to be free");
    for _ in 0..2 {
        let mut runs = 0;
        let refusal = loop {
            shell.pass_ms(limits::MEMORY_WAIT_MAX.0 / 1000);
            match shell.begin(["SET", "key", &value]) {
                (reply, Progress::Done) => break reply,
                (reply, _) => assert!(reply.is_empty()),
            }
            runs += 1;
            assert!(runs <= limits::ROOM_RUNS_MIN, "it runs for ever");
        };
        assert!(refusal.starts_with(b"-OOM the pool"));
        assert!(runs >= limits::ROOM_RUNS_MIN - 2, "each request waits");
    }
    let larger = "v".repeat(2 << 20);
    let (refusal, _) = shell.begin(["SET", "key", &larger]);
    assert!(refusal.starts_with(b"-ERR the value would be longer"));
}

#[test]
fn nothing_is_evicted_in_a_pause() {
    on_every_engine(EvictionPolicy::AllKeysLru, 50, |shell| {
        fill(shell, "k", 50, "");
        limit(shell, 10);
        shell.database.pause(Microseconds::MAX, false);
        let mut session = shell.database.session().expect("a session is free");
        session.maintain();
        assert_eq!(evicted(shell), 0);
        shell.database.unpause();
        while session.maintain() {}
        assert!(evicted(shell) >= 39);
    });
}

/// Under LRU it is known which of the keys that went were never read; under LFU it is not.
#[test]
fn keys_that_went_unread_are_counted() {
    use EvictionPolicy::{AllKeysLfu, AllKeysLru};
    for (policy, knows) in [(AllKeysLru, true), (AllKeysLfu, false)] {
        on_every_engine(policy, 100, |shell| {
            shell.database.set_active_expire(true);
            fill(shell, "read", 50, "");
            fill(shell, "due", 10, " PX 5");
            for key in 0..50 {
                shell.line(&format!("GET read{key}"));
            }
            shell.line("GET due3");
            shell.pass_ms(5);
            let mut session = shell.database.session().expect("a session is free");
            while session.maintain() {}
            drop(session);
            fill(shell, "new", 300, " EX 1000");
            let counted = shell.database.statistics();
            assert_eq!(counted.expired_keys, 10);
            assert_eq!(counted.expired_unread_keys, if knows { 9 } else { 0 });
            let gone = counted.evicted_keys;
            let read = 50 - there(shell, "read", 50) as u64;
            assert!(read > 20 || !knows, "{read} of {gone}");
            assert!(gone > 200, "{gone}");
            let unread = if knows { gone - read } else { 0 };
            assert_eq!(counted.evicted_unread_keys, unread, "{policy:?}");
            assert_eq!(counted.evicted_expiring_keys, gone - read, "{policy:?}");
        });
    }
}

/// An evicted key breaks a WATCH; a transaction makes room for what it writes.
#[test]
fn eviction_is_a_change() {
    on_every_engine(EvictionPolicy::AllKeysLru, 50, |shell| {
        fill(shell, "k", 50, "");
        shell.check(&[("WATCH k7", "+OK")]);
        let mut other = shell.connect();
        fill(&mut other, "new", 200, "");
        assert_eq!(there(&mut other, "k", 50), 0);
        shell.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC", "*-1")]);
        shell.check(&[("MULTI", "+OK"), ("SET a 1", "+QUEUED"), ("EXEC", "*1 +OK")]);
    });
}

/// Commands that only ask, and clients that ask not to be counted, do not save a key.
#[test]
fn asking_about_a_key_is_no_use() {
    on_every_engine(EvictionPolicy::AllKeysLfu, 1000, |shell| {
        let freq = |shell: &mut Shell| -> u8 {
            shell.line("OBJECT FREQ k")[1..].parse().expect("a number")
        };
        shell.line("SET k v");
        assert_eq!(freq(shell), 5);
        for line in ["TTL k", "EXISTS k", "TYPE k", "OBJECT ENCODING k"] {
            shell.line(line);
        }
        assert_eq!(freq(shell), 5);
        shell.line("GET k");
        assert_eq!(freq(shell), 6);
        for _ in 0..200 {
            shell.line("TOUCH k");
        }
        assert!((8..30).contains(&freq(shell)));
    });
}

#[test]
fn marks_move_with_their_values() {
    on_every_engine(EvictionPolicy::AllKeysLfu, 1000, |shell| {
        shell.line("SET k v");
        for _ in 0..1000 {
            shell.line("GET k");
        }
        let hot = shell.line("OBJECT FREQ k");
        shell.check(&[("RENAME k l", "+OK"), ("OBJECT FREQ l", &hot)]);
        shell.check(&[("COPY l m", ":1"), ("OBJECT FREQ m", ":5")]);
    });
}
