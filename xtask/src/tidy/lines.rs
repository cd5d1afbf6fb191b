//! What a file of the repository must not have in it, line by line.

use super::Breach;

/// A longer file answers more than one question.
const MOST_LINES: usize = 600;

/// Files that no person writes.
const NOT_WRITTEN: [&str; 5] = ["Cargo.lock", "go.sum", "go.mod", "LICENSE", ".tsv"];

/// The file of each shell that may read a clock.
const CLOCKS: [&str; 3] = ["agent/src/clock.rs", "controller/src/clock.rs", "tests/simulation/src/clock.rs"];
/// Code that ships, or that what ships is built on.
const SHIPPED: [&str; 4] = ["agent/src/", "agent/core/src/", "common/src/", "controller/"];
/// How a clock is read; in a table, so that this file does not break its own rule.
const CLOCK_READS: [&str; 7] =
    ["Instant::now", "SystemTime::now", "Timestamp::now", "Zoned::now", "Utc::now", "clock_gettime", ".elapsed()"];

/// Pure code, and what it must not call.
const PURE: [&str; 2] = ["agent/core/src/", "controller/core/src/"];
const IMPURE: [&str; 7] = ["std::fs", "std::env", "std::net", "std::process", "std::thread", "std::io", "std::os"];

/// Where `unsafe` may be: what talks to the kernel in its own terms.
const UNSAFE_ALLOWED: [&str; 3] = ["agent-ebpf/src/", "agent/src/source/ebpf", "agent/src/syscall"];
const UNSAFE: [&str; 4] = [concat!("unsafe", " {"), concat!("unsafe", " fn"), concat!("unsafe", " impl"), concat!("unsafe", " extern")];
/// How many lines above it the reason may begin.
const REASON_WITHIN: usize = 6;

/// What was left for later. In halves, like the names below, so that this file may be checked too.
const LEFTOVERS: [&str; 6] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("#[ig", "nore"),
    concat!("to", "do!("),
    concat!("unimpl", "emented!("),
];

/// Names that mean something on one machine only, or that say where packages come from.
const FOREIGN: [&str; 12] = [
    concat!("/wo", "rk/"),
    concat!("/ro", "ot/cache"),
    concat!("/ro", "ot/.car", "go"),
    concat!("/ho", "me/"),
    concat!("py", "pi.org"),
    concat!("pythonho", "sted.org"),
    concat!("index.cra", "tes.io"),
    concat!("static.cra", "tes.io"),
    concat!("proxy.go", "lang.org"),
    concat!("sum.go", "lang.org"),
    concat!("deb.deb", "ian.org"),
    concat!("registry.np", "mjs.org"),
];

/// Everything in this file that breaks a rule. `path` is relative to the top of the repository.
pub(super) fn check(path: &str, text: &str) -> Vec<Breach> {
    let mut breaches = Vec::new();
    if NOT_WRITTEN.iter().any(|name| path.ends_with(name)) {
        return breaches;
    }
    let mut breach = |line: Option<usize>, problem: String| breaches.push(Breach { place: path.into(), line, problem });
    let under = |places: &[&str]| places.iter().any(|place| path.starts_with(place));
    let is_rust = path.ends_with(".rs");

    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > MOST_LINES {
        breach(None, format!("has {} lines; {MOST_LINES} is the most", lines.len()));
    }
    if is_rust && !text.starts_with("//!") {
        breach(Some(1), "does not begin by saying what it is for (//!)".into());
    }
    let mut in_tests = false;
    for (index, line) in lines.iter().enumerate() {
        let number = Some(index + 1);
        in_tests |= line.trim_start() == "#[cfg(test)]";
        for word in LEFTOVERS.iter().filter(|word| line.contains(**word)) {
            breach(number, format!("{word} is work left over"));
        }
        for name in FOREIGN.iter().filter(|name| line.contains(**name)) {
            breach(number, format!("{name} means nothing to others"));
        }
        let code = line.split("//").next().unwrap_or_default();
        if !is_rust {
            continue;
        }
        if under(&SHIPPED) && !CLOCKS.contains(&path) {
            for read in CLOCK_READS.iter().filter(|read| code.contains(**read)) {
                breach(number, format!("{read} reads a clock; only {} does", CLOCKS[0]));
            }
        }
        if under(&PURE) && !in_tests {
            for call in IMPURE.iter().filter(|call| code.contains(**call)) {
                breach(number, format!("{call} in a pure core"));
            }
        }
        if UNSAFE.iter().any(|form| code.contains(form)) {
            let above = &lines[index.saturating_sub(REASON_WITHIN)..=index];
            if !under(&UNSAFE_ALLOWED) {
                breach(number, format!("code that is not safe belongs to {}", UNSAFE_ALLOWED.join(", ")));
            } else if !above.iter().any(|line| line.contains("SAFETY:") || line.contains("# Safety")) {
                breach(number, "does not say why it is safe (// SAFETY:)".into());
            }
        }
    }
    breaches
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(path: &str, text: &str) -> Vec<String> {
        check(path, text).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn good_code_has_nothing_said_about_it() {
        assert_eq!(problems("agent/src/run.rs", "//! The loop.\nfn turn() {} // was Instant::now\n"), [""; 0]);
        assert_eq!(problems("Cargo.lock", &"x\n".repeat(5000)), [""; 0]);
    }

    #[test]
    fn only_the_clock_file_of_shipped_code_reads_a_clock() {
        let reading = "//! Reads.\nlet t = Instant::now();\n";
        assert_eq!(problems("agent/src/clock.rs", reading), [""; 0]);
        assert_eq!(problems("tests/kernel/src/lib.rs", reading), [""; 0]);
        for path in ["agent/src/run.rs", "agent/core/src/tracker.rs", "common/src/lib.rs", "controller/core/src/plan.rs"] {
            assert_eq!(problems(path, reading), [format!("{path}:2: Instant::now reads a clock; only agent/src/clock.rs does")]);
        }
    }

    #[test]
    fn a_pure_core_touches_nothing_but_its_tests_may() {
        let text = "//! Pure.\nuse std::fs;\n#[cfg(test)]\nmod tests { use std::env; }\n";
        assert_eq!(problems("agent/core/src/core.rs", text), ["agent/core/src/core.rs:2: std::fs in a pure core"]);
        assert_eq!(problems("agent/src/state.rs", text), [""; 0]);
    }

    #[test]
    fn a_file_has_at_most_600_lines() {
        assert_eq!(problems("deploy/a.yaml", &"x\n".repeat(600)), [""; 0]);
        assert_eq!(problems("deploy/a.yaml", &"x\n".repeat(601)), ["deploy/a.yaml: has 601 lines; 600 is the most"]);
    }

    #[test]
    fn a_rust_file_says_first_what_it_is_for() {
        assert_eq!(problems("xtask/src/a.rs", "use std::fs;\n"), ["xtask/src/a.rs:1: does not begin by saying what it is for (//!)"]);
    }

    #[test]
    fn nothing_is_left_over_in_any_kind_of_file() {
        for word in LEFTOVERS {
            let found = problems("docs/a.md", &format!("a\n// {word}\n"));
            assert_eq!(found, [format!("docs/a.md:2: {word} is work left over")]);
        }
    }

    #[test]
    fn nothing_names_one_machine_or_where_packages_come_from() {
        for name in FOREIGN {
            let found = problems(".ci/run", &format!("cd {name}\n"));
            assert_eq!(found, [format!(".ci/run:1: {name} means nothing to others")]);
        }
    }

    #[test]
    fn code_that_is_not_safe_has_its_places_and_its_reason() {
        let bare = format!("//! Programs.\nlet x = {} y() }};\n", UNSAFE[0]);
        let reasoned = format!("//! Programs.\n// SAFETY: the verifier checked it.\nlet x = {} y() }};\n", UNSAFE[0]);
        assert_eq!(problems("agent-ebpf/src/main.rs", &reasoned), [""; 0]);
        assert_eq!(problems("agent-ebpf/src/main.rs", &bare), ["agent-ebpf/src/main.rs:2: does not say why it is safe (// SAFETY:)"]);
        assert_eq!(problems("agent/src/run.rs", &reasoned).len(), 1);
    }
}
