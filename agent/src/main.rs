//! The agent's entry point.

fn main() {}
