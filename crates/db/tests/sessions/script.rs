//! Step-by-step tests as scripts: who sends what, and what is answered.
//!
//! A step is a line:
//! ```text
//! a: SET k v -> +OK      connection `a` (made when it is first named) sends this and is answered
//! so pass 1500              the clock moves on by 1500 milliseconds
//! maintain               expired keys and old tombstones go, as in the background
//! ```
//! Replies are written with their line ends as spaces. The scripts in `transactions.rs` and
//! `watch.rs` are answered the same by Redis 7.0.15, `maintain` being left out, unless a comment
//! there says otherwise.

use std::collections::BTreeMap;

use pando_db::EngineKind;

use crate::connection::{Connection, maintain, on_every_engine, open};

/// Runs a script on a new database of every engine.
pub(crate) fn run(script: &str) {
    on_every_engine(|engine| run_on(engine, script));
}

fn run_on(engine: EngineKind, script: &str) {
    let (database, clock) = open(engine);
    let mut connections: BTreeMap<&str, Connection> = BTreeMap::new();
    for (index, step) in script.lines().map(str::trim).enumerate() {
        if step.is_empty() {
            continue;
        }
        if let Some(milliseconds) = step.strip_prefix("pass ") {
            clock.pass_ms(milliseconds.parse().expect("milliseconds"));
            continue;
        }
        if step == "maintain" {
            maintain(&database);
            continue;
        }
        let (sent, expected) = step.split_once(" -> ").expect("a step has an answer");
        let (name, line) = sent.split_once(": ").expect("a step has a connection");
        let connection = connections
            .entry(name)
            .or_insert_with(|| Connection::new(&database));
        let answer = connection.line(line.trim());
        assert_eq!(answer.trim(), expected.trim(), "step {index}: {step}");
    }
}

#[test]
#[should_panic(expected = "step 2: a: PING -> +PANG")]
fn canary_a_wrong_answer_ends_the_script() {
    run("a: PING -> +PONG
        pass 5
        a: PING -> +PANG");
}
