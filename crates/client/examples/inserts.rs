//! Inserts values through a ring, and says how many each second:
//!
//! ```text
//! cargo run --release -p pando-client --example inserts -- RING.toml CLIENTS INSERTS VALUE_BYTES
//! ```
//!
//! Each client inserts so many values, one at a time, at keys of its own. The figures of
//! many servers are by `crates/bench/scripts/tembo.py`.

use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use pando_client::{Client, Options, Ring};

const USAGE: &str = "usage: inserts RING.toml CLIENTS INSERTS VALUE_BYTES";

fn insert(ring: Arc<Ring>, client: usize, inserts: usize, value: &[u8]) -> Result<(), String> {
    let mut connections = Client::new(ring, Options::default());
    for number in 0..inserts {
        connections
            .set(format!("client:{client}:{number}"), value)
            .map_err(|error| error.to_string())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [ring, numbers @ ..] = arguments.as_slice() else {
        return Err(USAGE.into());
    };
    let numbers: Result<Vec<usize>, _> = numbers.iter().map(|it| it.parse()).collect();
    let Ok([clients, inserts, value_bytes]) = numbers.as_deref() else {
        return Err(USAGE.into());
    };
    let ring = Arc::new(Ring::load(ring)?);
    let value = vec![b'v'; *value_bytes];
    let begun = Instant::now();
    std::thread::scope(|scope| {
        let clients: Vec<_> = (0..*clients)
            .map(|client| {
                let (ring, value) = (Arc::clone(&ring), value.as_slice());
                scope.spawn(move || insert(ring, client, *inserts, value))
            })
            .collect();
        let mut ends = clients.into_iter().map(|it| it.join().expect("no panic"));
        ends.try_for_each(|end| end)
    })?;
    let rate = (clients * inserts) as f64 / begun.elapsed().as_secs_f64();
    println!("{rate:.0} inserts/s");
    Ok(())
}
