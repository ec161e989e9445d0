//! What eviction does to snapshots, and for them.

use super::*;
use crate::CommandError;

/// Whether this engine makes snapshots, or branches; one is there afterwards, if it does.
fn makes(shell: &mut Shell, create: &str) -> bool {
    shell.line(create).starts_with('*')
}

/// A key that was evicted would go on as an image: snapshots that are not held go first.
#[test]
fn snapshots_go_before_any_key() {
    on_every_engine(EvictionPolicy::AllKeysLru, 60, |shell| {
        fill(shell, "k", 50, "");
        for name in ["a", "b", "held HOLD"] {
            if !makes(shell, &format!("SNAPSHOT CREATE {name}")) {
                return;
            }
        }
        shell.check(&[("SNAPSHOT READ a DBSIZE", ":50")]);
        fill(shell, "n", 30, "");
        let list = shell.line("SNAPSHOT LIST");
        assert!(list.starts_with("*1 *3 $4 held"), "{list}");
        // Nothing that the held one shows was taken, and of the rest what had to be.
        assert_eq!(shell.line("SNAPSHOT READ held DBSIZE"), ":50");
        for key in 0..50 {
            shell.check(&[(&format!("EXISTS k{key}"), ":1")]);
        }
        assert!(shell.database.statistics().evicted_keys >= 15);
    });
}

/// What a held snapshot shows is not evicted before it goes.
#[test]
fn a_held_snapshot_holds_its_keys() {
    on_every_engine(EvictionPolicy::AllKeysRandom, 60, |shell| {
        fill(shell, "k", 58, "");
        if !makes(shell, "SNAPSHOT CREATE held HOLD") {
            return;
        }
        limit(shell, 40);
        let mut session = shell.database.session().expect("a session is free");
        for _ in 0..50 {
            session.maintain();
        }
        shell.check(&[("DBSIZE", ":58"), ("SNAPSHOT DROP held", ":1")]);
        while session.maintain() {}
        assert_ne!(shell.line("DBSIZE"), ":58");
        shell.check(&[("SET new 1", "+OK")]);
    });
}

/// Without eviction a snapshot goes before a write is refused.
#[test]
fn a_snapshot_goes_before_a_write_is_refused() {
    on_every_engine(EvictionPolicy::NoEviction, 60, |shell| {
        fill(shell, "k", 50, "");
        if !makes(shell, "SNAPSHOT CREATE a") {
            return;
        }
        shell.database.set_max_memory(1);
        let refused = "-OOM command not allowed when used memory > 'maxmemory'.";
        shell.check(&[("SET new 1", refused), ("SNAPSHOT LIST", "*0")]);
    });
}

/// EV4 no-eviction-branched.
#[test]
fn nothing_is_evicted_while_there_are_branches() {
    let mut shell = shell(EngineKind::Minuet, EvictionPolicy::AllKeysLru, 40);
    fill(&mut shell, "k", 30, "");
    assert!(makes(&mut shell, "BRANCH CREATE trial FROM main"));
    let branched = CommandError::BranchedMemory.to_string();
    let mut replies = (0..20).map(|key| shell.line(&format!("SET n{key} v")));
    let refused = replies.find(|reply| reply != "+OK").expect("a refusal");
    assert_eq!(refused, format!("-{branched}"));
    let mut session = shell.database.session().expect("a session is free");
    while session.maintain() {}
    assert_eq!((evicted(&shell), there(&mut shell, "k", 30)), (0, 30));
    // Memory can be freed, and then all is as it was.
    shell.check(&[("DEL k0", ":1"), ("BRANCH DROP trial", "+OK")]);
    fill(&mut shell, "m", 30, "");
    assert!(evicted(&shell) > 0);
}
