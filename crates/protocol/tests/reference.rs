//! The command reference in the repository is the one that the table makes.

use std::fs;

#[test]
fn the_reference_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/COMMANDS.md");
    let written = fs::read_to_string(path).expect("docs/COMMANDS.md is there");
    let made = pando_protocol::command::reference();
    let alike = |(old, new): &(&str, &str)| old == new;
    let same = written.lines().zip(made.lines()).take_while(alike).count();
    assert!(
        written == made,
        "docs/COMMANDS.md differs from the command table from line {} on; make it again:\n\
         cargo run -q -p pando-protocol --example commands > docs/COMMANDS.md",
        same + 1
    );
}
