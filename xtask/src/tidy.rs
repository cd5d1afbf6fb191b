//! `cargo xtask tidy`: the rules of ARCHITECTURE.md that no compiler checks.

mod graph;
mod lines;

use std::{fmt, fs};

use anyhow::{Context, Result, bail};

use crate::process::{command, output, repository};

/// One place that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Breach {
    /// File, or package.
    place: String,
    /// Line number from 1; none if the place as a whole is meant.
    line: Option<usize>,
    /// What is wrong and what holds instead.
    problem: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            Some(line) => write!(f, "{}:{line}: {}", self.place, self.problem),
            None => write!(f, "{}: {}", self.place, self.problem),
        }
    }
}

/// Checks the whole repository; names every breach before it fails.
pub(crate) fn run() -> Result<()> {
    let mut breaches = graph::check(&graph::read()?);
    let listed = output(command("git").args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]))?;
    let mut files = 0;
    for path in listed.split('\0').filter(|path| !path.is_empty()) {
        let file = repository().join(path);
        // A file that git still lists may be gone from the working tree.
        if !file.exists() {
            continue;
        }
        let bytes = fs::read(&file).with_context(|| format!("cannot read {path}"))?;
        files += 1;
        // What is no text is a built object: nothing of what follows is about those.
        if let Ok(text) = String::from_utf8(bytes) {
            breaches.extend(lines::check(path, &text));
        }
    }
    for breach in &breaches {
        eprintln!("{breach}");
    }
    match breaches.len() {
        0 => {
            eprintln!("tidy: {files} files, nothing to say");
            Ok(())
        }
        count => bail!("tidy: {count} breaches"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_breach_names_its_place() {
        let breach = |line| Breach { place: "a/b.rs".into(), line, problem: "reads a clock".into() }.to_string();
        assert_eq!(breach(Some(7)), "a/b.rs:7: reads a clock");
        assert_eq!(breach(None), "a/b.rs: reads a clock");
    }
}
