//! Plays every file of `scenarios/`: what happens on a node, and what must come of it. `UPDATE_SCENARIOS=1` writes down what does come of
//! it, to be read before it is committed.

mod sim;

use std::{fs, path::Path};

use sim::{Node, command};

#[test]
fn every_scenario_goes_as_written() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let mut wrong = Vec::new();
    let mut played = 0;
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    for file in files.iter().filter(|file| file.extension().is_some_and(|ext| ext == "txt")) {
        played += 1;
        let written = fs::read_to_string(file).unwrap();
        let played = play(&written);
        if std::env::var_os("UPDATE_SCENARIOS").is_some() {
            fs::write(file, &played).unwrap();
        } else if played != written {
            wrong.push(format!("{}:\n{}", file.display(), difference(&written, &played)));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(played >= 20, "only {played} scenarios");
}

/// The file as it would be, if what comes of it were what is written.
fn play(written: &str) -> String {
    let mut node = Node::default();
    let mut lines = Vec::new();
    for line in written.lines().filter(|line| !line.starts_with('>')) {
        match line.split_once(' ') {
            Some((at, rest)) if at.starts_with(|c: char| c.is_ascii_digit()) => {
                node.advance(command::time(at));
                lines.append(&mut node.lines);
                lines.push(line.to_owned());
                command::run(&mut node, rest);
            }
            _ => lines.push(line.to_owned()),
        }
        lines.append(&mut node.lines);
    }
    lines.join("\n") + "\n"
}

fn difference(written: &str, played: &str) -> String {
    let pairs = written.lines().zip(played.lines()).enumerate();
    let first = pairs.into_iter().find(|(_, (w, p))| w != p);
    match first {
        Some((i, (written, played))) => format!("line {}:\n  written {written}\n  played  {played}", i + 1),
        None => format!("{} lines written, {} played", written.lines().count(), played.lines().count()),
    }
}
