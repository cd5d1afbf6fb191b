//! Every scenario file gives what it says. `UPDATE_SCENARIOS=1` writes down what is given instead: read the difference before committing it.
#![allow(clippy::unwrap_used)] // a scenario that is not understood fails

mod world;

use std::{fs, path::Path, time::Duration};

use controller_core::policy::Policy;
use world::World;

/// Between what happens and what follows.
const RULE: &str = "---\n";

#[test]
fn every_scenario_gives_what_it_says() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut paths: Vec<_> = fs::read_dir(top.join("scenarios")).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.retain(|path| path.extension().is_some_and(|e| e == "txt"));
    paths.sort();
    assert!(paths.len() >= 30, "only {} scenarios", paths.len());
    let update = std::env::var_os("UPDATE_SCENARIOS").is_some();
    let mut wrong = Vec::new();
    for path in paths {
        let text = fs::read_to_string(&path).unwrap();
        let (script, expected) = text.split_once(RULE).unwrap_or((text.as_str(), ""));
        let given = run(top, script);
        if given == expected {
            continue;
        }
        if update {
            fs::write(&path, format!("{script}{RULE}{given}")).unwrap();
        } else {
            wrong.push(format!("{}:\n--- says\n{expected}--- gives\n{given}", path.display()));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

fn run(top: &Path, script: &str) -> String {
    let mut lines = script.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let first = lines.next().expect("a policy");
    let mut words = first.split_whitespace();
    assert_eq!(words.next(), Some("policy"), "a scenario begins with its policy");
    let name = words.next().expect("its name");
    let mut spec = policy(top, name);
    for change in words {
        let (place, value) = change.split_once('=').expect("place=value");
        let slot = spec.pointer_mut(&format!("/{}", place.replace('.', "/"))).unwrap_or_else(|| panic!("no {place}"));
        *slot = serde_json::from_str(value).unwrap_or_else(|_| value.into());
    }
    let policy: Policy = serde_json::from_value(spec).expect("a policy");
    let mut script = Vec::new();
    let mut end = Duration::ZERO;
    for line in lines {
        let (at, what) = line.split_once(' ').unwrap_or((line, ""));
        let (minutes, seconds) = at.split_once(':').unwrap_or_else(|| panic!("no time in {line:?}"));
        end = Duration::from_secs(minutes.parse::<u64>().unwrap() * 60 + seconds.parse::<u64>().unwrap());
        if what != "end" {
            script.push((end, what.to_owned()));
        }
    }
    World::new(name, policy).run(&script, end)
}

/// One of the policies that ship.
fn policy(top: &Path, name: &str) -> serde_json::Value {
    let text = fs::read_to_string(top.join(format!("../../deploy/policies/{name}.yaml"))).unwrap();
    let object: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
    object["spec"].clone()
}
