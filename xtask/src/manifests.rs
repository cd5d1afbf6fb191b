//! `cargo xtask manifests`: the parts of deploy/ that come from the code.

use std::fs;

use agent_core::ConditionType;
use anyhow::{Context, Result, bail};

use crate::{image, process::repository};

/// What is generated: in this file, between the two markers of this name, these lines.
struct Part {
    file: &'static str,
    name: &'static str,
    lines: fn() -> Vec<String>,
}

const PARTS: [Part; 2] = [
    Part { file: "deploy/policy.yaml", name: "condition types", lines: condition_types },
    Part { file: "deploy/daemonset.yaml", name: "image", lines: image_name },
];

/// Writes them; with `check`, only says what is stale.
pub(crate) fn run(check: bool) -> Result<()> {
    for part in &PARTS {
        let file = repository().join(part.file);
        let text = fs::read_to_string(&file).with_context(|| format!("cannot read {}", part.file))?;
        let fresh = replace(&text, part.name, &(part.lines)()).with_context(|| part.file.to_owned())?;
        if fresh == text {
            continue;
        }
        if check {
            bail!("{} is stale in \"{}\": run cargo xtask manifests", part.file, part.name);
        }
        fs::write(&file, fresh)?;
        eprintln!("wrote {}", part.file);
    }
    Ok(())
}

fn condition_types() -> Vec<String> {
    let names: Vec<_> = ConditionType::ALL.iter().map(|kind| format!("{:?}", kind.as_str())).collect();
    vec!["- name: ours".to_owned(), format!("  expression: '[{}]'", names.join(", "))]
}

fn image_name() -> Vec<String> {
    vec![format!("image: {}", image::DEFAULT_NAME)]
}

/// The text with these lines between its markers `# BEGIN name` and `# END name`, as far indented as the first marker.
fn replace(text: &str, name: &str, lines: &[String]) -> Result<String> {
    let marks = |line: &&str, word: &str| {
        line.trim_start()
            .strip_prefix(word)
            .is_some_and(|rest| rest.trim_start().strip_prefix(name).is_some_and(|r| r.is_empty() || r.starts_with(',')))
    };
    let all: Vec<&str> = text.lines().collect();
    let begin = all.iter().position(|line| marks(line, "# BEGIN")).with_context(|| format!("no line \"# BEGIN {name}\""))?;
    let end = all.iter().position(|line| marks(line, "# END")).filter(|end| *end > begin);
    let end = end.with_context(|| format!("no line \"# END {name}\" after its beginning"))?;
    let indent = &all[begin][..all[begin].len() - all[begin].trim_start().len()];
    let mut fresh: Vec<String> = all[..=begin].iter().map(ToString::to_string).collect();
    fresh.extend(lines.iter().map(|line| format!("{indent}{line}")));
    fresh.extend(all[end..].iter().map(ToString::to_string));
    Ok(fresh.join("\n") + "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_checked_in_is_what_the_code_gives() {
        run(true).unwrap();
    }

    #[test]
    fn only_what_is_between_the_markers_is_replaced() {
        let text = "a\n  # BEGIN x, by a command\n  old\n  older\n  # END x\nb\n";
        let fresh = replace(text, "x", &["new".into()]).unwrap();
        assert_eq!(fresh, "a\n  # BEGIN x, by a command\n  new\n  # END x\nb\n");
        assert_eq!(replace(&fresh, "x", &["new".into()]).unwrap(), fresh);
    }

    #[test]
    fn a_marker_that_is_missing_or_in_the_wrong_order_is_named() {
        assert_eq!(replace("a\n", "x", &[]).unwrap_err().to_string(), "no line \"# BEGIN x\"");
        assert_eq!(replace("# END x\n# BEGIN x\n", "x", &[]).unwrap_err().to_string(), "no line \"# END x\" after its beginning");
        assert!(replace("# BEGIN xy\n# END xy\n", "x", &[]).is_err());
    }

    #[test]
    fn the_policy_names_every_type_of_the_code() {
        assert_eq!(condition_types()[1], r#"  expression: '["KernelDeadlock", "ReadonlyFilesystem", "StorageFault"]'"#);
    }
}
