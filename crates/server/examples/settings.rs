//! Prints the page about settings: `docs/SETTINGS.md` is its output.

fn main() {
    print!("{}", pando_server::config::reference());
}
