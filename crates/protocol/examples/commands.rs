//! Prints the command reference: `docs/COMMANDS.md` is its output.

fn main() {
    print!("{}", pando_protocol::command::reference());
}
