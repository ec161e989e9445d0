//! Clients that wait for keys, and all that ends their waits, compared with Redis on every engine.
//!
//! A scenario is a paragraph. A line with `<` is the request of a new client, which waits; others
//! are those of one client that acts. Then the replies of those that waited are read, in the order
//! in which they came; a line with `=` is asked behind that. `#1` is the number of the first client
//! that waits, and `RESTORED from to` a DUMP and a RESTORE.

use std::time::{Duration, Instant};

use pando_protocol::resp::Value;

use super::peer::{Connection, Server, encode};

const SCENARIOS: &str = "
< BLPOP q 0
< BLPOP q 0
< BRPOP q 0
< BLPOP other q 0
RPUSH q 1 2 3 4 5
= LRANGE q 0 -1

< BLPOP a b c 0
MULTI
RPUSH c x
RPUSH a y
EXEC
= LRANGE a 0 -1
= EXISTS c

< BLMPOP 0 3 a b c LEFT COUNT 2
MULTI
RPUSH b x y z
RPUSH a y
EXEC
= LRANGE b 0 -1

< BZPOPMAX a b c 0
MULTI
ZADD c 1 x
ZADD a 2 y
EXEC
= EXISTS a c

< BZMPOP 0 2 a b MIN COUNT 5
MULTI
ZADD b 1 x 2 y
ZADD a 2 y
EXEC
= EXISTS a b

< BLPOP a b c 0
MULTI
RPUSH c x
RPUSH a y
DEL c
EXEC

< BLPOP a b 0
< BLPOP b a 0
MULTI
RPUSH b 1
RPUSH a 2
EXEC

< BLPOP k 0
RPUSH o 1
RENAME o k

< BLPOP k 0
RPUSH s 3 1 2
SORT s STORE k
= LRANGE k 0 -1

< BLPOP k 0
RPUSH s 3
RESTORED s k
= EXISTS k

< BZPOPMIN z 0
ZADD s 1 a
RESTORED s z

< BLPOP k 0
RPUSH s 1 2
COPY s k
= LRANGE k 0 -1

< BLPOP k 0
SELECT 1
RPUSH k v
MOVE k 0
SELECT 0

< BLPOP k 0
SELECT 1
RPUSH k v
SELECT 0
SWAPDB 0 1

< BZPOPMIN z 0
ZADD o 1 a
RENAME o z

< BZPOPMAX z 0
ZADD o 1 a 2 b
ZUNIONSTORE z 1 o

< BZPOPMIN z 0
GEOADD z 1 1 g

< BLPOP k 0
RPUSH s 1
LMOVE s k LEFT LEFT

< BLPOP k 0
RPUSH s 1
RPOPLPUSH s k

< BLMOVE a b LEFT RIGHT 0
< BLPOP b 0
RPUSH a x
= EXISTS a b

< BRPOPLPUSH a b 0
< BLMOVE b c RIGHT LEFT 0
RPUSH a x y
= LRANGE a 0 -1
= LRANGE b 0 -1
= LRANGE c 0 -1

< BRPOPLPUSH a a 0
RPUSH a x
= LRANGE a 0 -1

< BLMOVE a st LEFT RIGHT 0
SET st x
RPUSH a x
= LRANGE a 0 -1

< BLPOP k 0.3
SET k x
= GET k

< BLPOP k 0.3
MULTI
RPUSH k x
DEL k
EXEC

< BLPOP k 0.3
MULTI
RPUSH k x
DEL k
SADD k z
EXEC
= TYPE k

< BZPOPMIN k 0.3
MULTI
ZADD k 1 x
DEL k
RPUSH k z
EXEC
= LRANGE k 0 -1

< BLMPOP 0.3 2 k other RIGHT
MULTI
RPUSH k x
DEL k
SET k z
EXEC
= GET k

< BRPOPLPUSH k other 0.3
MULTI
RPUSH k x
DEL k
SET k z
EXEC
= GET k

< BLPOP k other 0
SET k x
RPUSH other y
= GET k

< BLPOP k 0
CLIENT UNBLOCK #1

< BLPOP k 0
CLIENT UNBLOCK #1 ERROR

< XREAD BLOCK 0 STREAMS x $
CLIENT UNBLOCK #1 TIMEOUT

< BLMOVE k kk LEFT LEFT 0
CLIENT UNBLOCK #1 TIMEOUT
= CLIENT UNBLOCK #1
= CLIENT UNBLOCK x
= CLIENT UNBLOCK #1 FOO

< BLPOP k 0.2

< XREAD BLOCK 200 STREAMS x $

< BZPOPMIN k 0.2

< BLMPOP 0.2 1 k LEFT

< BRPOPLPUSH k kk 0.2

< BLMOVE k kk LEFT LEFT 0.2

< XREAD BLOCK 0 STREAMS x y $ $
XADD y 1-1 a b

XGROUP CREATE y g $ MKSTREAM
< XREADGROUP GROUP g c BLOCK 0 STREAMS y >
XADD y 1-2 a b

XGROUP CREATE y g $ MKSTREAM
< XREADGROUP GROUP g c BLOCK 0 STREAMS y >
XGROUP DESTROY y g

XGROUP CREATE y g $ MKSTREAM
< XREADGROUP GROUP g c BLOCK 0 STREAMS y >
DEL y

XGROUP CREATE y g $ MKSTREAM
< XREADGROUP GROUP g c BLOCK 0 STREAMS y >
SET y 1

XGROUP CREATE y g $ MKSTREAM
< XREADGROUP GROUP g c BLOCK 0 STREAMS y >
FLUSHALL

< XREAD BLOCK 0 STREAMS y $
XADD q 5-1 a b
RENAME q y

< XREAD BLOCK 200 STREAMS y 9-1
XADD y 6-1 a b

< BLPOP k 0.3
CLIENT PAUSE 60000 WRITE
= CLIENT UNPAUSE

< BLPOP k 0
< XREAD BLOCK 0 STREAMS x $
REPLICAOF 127.0.0.1 1
REPLICAOF NO ONE
= RPUSH k v
= LRANGE k 0 -1

MULTI
BLPOP k 0
BLMOVE k d LEFT LEFT 0
BZPOPMIN k 0
XREAD BLOCK 0 STREAMS x $
BLMPOP 0 1 k LEFT
BRPOPLPUSH k d 0
EXEC

BLPOP k 1e400
BLPOP k inf
BLPOP k nan
BLPOP k -1
BLPOP k 9223372036854776
BLPOP k 0x7FFFFFFFFFFFFFFF
BLMPOP 9223372036854776 1 k LEFT
BLMOVE k d LEFT LEFT 1e400
XREAD BLOCK -1 STREAMS x $
XREAD BLOCK 1.5 STREAMS x $
";

struct Side<'s> {
    server: &'s Server,
    actor: Connection,
    waiting: Vec<(String, Connection)>,
}

impl Side<'_> {
    fn ask(&mut self, line: &str) -> Value {
        let id = self.waiting.first().map_or("0", |(id, _)| id);
        let line = line.replace("#1", id);
        let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
        let [b"RESTORED", from, to] = words[..] else {
            return self.actor.call(&words);
        };
        let Value::Bulk(bytes) = self.actor.call(&[b"DUMP", from]) else {
            panic!("{line}: nothing to dump");
        };
        self.actor.call(&[b"RESTORE", to, b"0", &bytes])
    }

    /// A new client waits, or its time is over already.
    fn wait(&mut self, line: &str) {
        let mut client = self.server.connect();
        let Value::Integer(id) = client.call(&[b"CLIENT", b"ID"]) else {
            panic!("a client has a number");
        };
        client.send(&encode(&line.split(' ').collect::<Vec<_>>()));
        self.waiting.push((id.to_string(), client));
        let count = format!("blocked_clients:{}\r\n", self.waiting.len());
        let patience = Instant::now() + Duration::from_millis(150);
        loop {
            let Value::Bulk(told) = self.actor.call(&[b"INFO", b"clients"]) else {
                panic!("INFO is a text");
            };
            if String::from_utf8_lossy(&told).contains(&count) || Instant::now() > patience {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// What is answered in a scenario.
    fn play(&mut self, scenario: &str) -> Vec<String> {
        let mut answers = Vec::new();
        let (behind, before): (Vec<_>, Vec<_>) =
            scenario.lines().partition(|line| line.starts_with("= "));
        for line in before {
            match line.strip_prefix("< ") {
                Some(line) => self.wait(line),
                None => answers.push(format!("{line}: {:?}", self.ask(line))),
            }
        }
        for (_, client) in &mut self.waiting {
            let reply = client.receive();
            answers.push(format!("waited: {reply:?}"));
            // Whether it goes on, or is disconnected.
            if reply.is_ok() {
                client.send(&encode(&["PING"]));
                answers.push(format!("PING: {}", client.receive().is_ok()));
            }
        }
        for line in behind {
            let line = line.trim_start_matches("= ");
            answers.push(format!("{line}: {:?}", self.ask(line)));
        }
        self.waiting.clear();
        for line in ["SELECT 0", "FLUSHALL"] {
            self.ask(line);
        }
        answers
    }
}

fn waits_end_as_in_redis(engine: &str) {
    let Some(redis) = Server::redis() else {
        println!("skipped: redis-server is not installed");
        return;
    };
    let pando = Server::pando(engine);
    let side = |server| Side {
        server,
        actor: Server::connect(server),
        waiting: Vec::new(),
    };
    let (mut ours, mut theirs) = (side(&pando), side(&redis));
    let mut differences = Vec::new();
    for scenario in SCENARIOS.trim().split("\n\n") {
        let (ours, theirs) = std::thread::scope(|scope| {
            let theirs = scope.spawn(|| theirs.play(scenario));
            let ours = ours.play(scenario);
            (ours, theirs.join().expect("it does not panic"))
        });
        if ours != theirs {
            differences.push(format!(
                "{scenario}\n  pando: {ours:#?}\n  redis: {theirs:#?}"
            ));
        }
    }
    let differences = differences.join("\n");
    assert!(differences.is_empty(), "{engine}:\n{differences}");
}

#[test]
fn waits_end_as_in_redis_on_masstree() {
    waits_end_as_in_redis("masstree");
}

#[test]
fn waits_end_as_in_redis_on_mercury() {
    waits_end_as_in_redis("mercury");
}

#[test]
fn waits_end_as_in_redis_on_cdds() {
    waits_end_as_in_redis("cdds");
}

#[test]
fn waits_end_as_in_redis_on_minuet() {
    waits_end_as_in_redis("minuet");
}
