//! Values of many chunks in a pool of `cdds` that is in pieces: neighbouring chunks are emptied for
//! them, what has no room is refused and changes nothing, and what is removed makes room again.

use redis::{Commands, Connection, RedisResult};

use crate::harness::Pool;
use crate::pooled::{FULL, info, there};

const MB: usize = 1 << 20;

const FLAGS: [&str; 2] = ["--pmem-size", "128mb"];

/// Values of one chunk at most, five to a chunk.
const PIECE_BYTES: usize = 12_000;

/// Bytes of which no two values have many in common.
fn value(seed: usize, bytes: usize) -> Vec<u8> {
    let word = |at: usize| (at as u64 ^ (seed as u64) << 40).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let words = (0..bytes.div_ceil(8)).flat_map(|at| word(at).to_le_bytes());
    words.take(bytes).collect()
}

fn set_large(connection: &mut Connection, seed: usize, bytes: usize) -> RedisResult<()> {
    connection.set(format!("large:{seed}"), value(seed + bytes, bytes))
}

fn check_large(connection: &mut Connection, seed: usize, bytes: usize) {
    let found: Vec<u8> = connection.get(format!("large:{seed}")).expect("a value");
    assert_eq!(found.len(), bytes, "large:{seed}");
    assert!(found == value(seed + bytes, bytes), "large:{seed}");
}

/// Fills a pool with pieces, and takes every other one of them out again; how many there were.
fn break_up(connection: &mut Connection) -> usize {
    let mut pieces = 0;
    loop {
        let stored: RedisResult<()> =
            connection.set(format!("piece:{pieces}"), value(pieces, PIECE_BYTES));
        match stored {
            Ok(()) => pieces += 1,
            Err(error) => {
                assert!(error.to_string().contains(FULL), "{error}");
                break;
            }
        }
    }
    assert!(pieces > 8_000, "{pieces}");
    for first in (1..pieces).step_by(1000) {
        let keys = (first..(first + 1000).min(pieces)).step_by(2);
        let keys: Vec<String> = keys.map(|piece| format!("piece:{piece}")).collect();
        let () = connection.del(keys).expect("removals need no room");
    }
    pieces
}

/// Removes what is left of the pieces.
fn sweep(connection: &mut Connection, pieces: usize) {
    for piece in (0..pieces).step_by(2) {
        let () = connection
            .del(format!("piece:{piece}"))
            .expect("removals need no room");
    }
}

#[test]
fn large_values_find_neighbours_in_a_pool_in_pieces_or_are_refused() {
    let pool = Pool::new("large");
    let server = pool.serve(&FLAGS);
    let mut connection = server.connection();
    let pieces = break_up(&mut connection);
    // Each takes the place of the one before. The second one wants a quarter of the pool.
    for bytes in [MB, 33 * MB, 2 * MB + 1] {
        set_large(&mut connection, 0, bytes).expect("room is made");
        check_large(&mut connection, 0, bytes);
    }
    // There are not as many bytes, whatever moves: this is known at once.
    let refused = set_large(&mut connection, 1, 100 * MB).expect_err("the pool is too small");
    assert!(refused.to_string().contains(FULL), "{refused}");
    assert_eq!(there(&mut connection, "large", 0..2), 1);
    assert_eq!(
        there(&mut connection, "piece", 0..pieces),
        pieces.div_ceil(2)
    );
    sweep(&mut connection, pieces);
    for (seed, size) in [(1, 64), (2, 17), (3, 8)] {
        set_large(&mut connection, seed, size * MB).expect("there is room again");
    }
    // Nor does a larger value fit beside the one in its place, which stays.
    let refused = set_large(&mut connection, 1, 63 * MB).expect_err("the pool is too small");
    assert!(refused.to_string().contains(FULL), "{refused}");
    // Whatever was answered survives a kill, and room comes back as well as before it.
    server.signal("KILL");
    server.wait();
    let server = pool.serve(&FLAGS);
    let mut connection = server.connection();
    check_large(&mut connection, 0, 2 * MB + 1);
    for (seed, size) in [(1, 64), (2, 17), (3, 8)] {
        check_large(&mut connection, seed, size * MB);
    }
    for round in 0..3 {
        let () = connection.del("large:1").expect("removals need no room");
        set_large(&mut connection, 1, 64 * MB - round).expect("there is room again");
    }
    check_large(&mut connection, 1, 64 * MB - 2);
    let () = redis::cmd("FLUSHALL").query(&mut connection).expect("gone");
    server.wait_until("the room of all is back", || {
        info(&mut connection, "pool_used_bytes:") < MB as u64
    });
}
