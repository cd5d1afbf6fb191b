//! The repository's own commands: `cargo xtask --help`.

fn main() {}
