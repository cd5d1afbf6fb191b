//! `cargo xtask bench`: the figures of the README, each beside what it is to be judged by. Measured on this machine, never tested.

use anyhow::{Context, Result, bail};

use crate::{
    image,
    process::{cargo, output_shown},
    servers, tool,
};

/// One line of the table: what, measured, beside it, goal.
type Row = [String; 4];

/// Measures and prints.
pub(crate) fn run() -> Result<()> {
    if !tool::is_root()? {
        bail!("the measurements break filesystems of their own and fill the kernel log: they need root");
    }
    let agent = image::build()?;
    let servers = servers::directory().context("the latency is measured on a real API server")?;
    let mut read = cargo();
    read.args(["run", "--package", "nodeward-agent", "--example", "kernel_log"]).args(image::shipped());
    let mut table = rows(&output_shown(&mut read)?)?;
    let mut measure = cargo();
    measure.args(["run", "--quiet", "--package", "tests-cluster", "--bin", "measure"]);
    table.extend(rows(&output_shown(measure.env("NODEWARD_AGENT", agent).env("NODEWARD_K8S_BIN", servers))?)?);
    println!("{}", aligned(&table));
    Ok(())
}

fn rows(printed: &str) -> Result<Vec<Row>> {
    let row = |line: &str| -> Result<Row> {
        let fields: Vec<String> = line.split('\t').map(String::from).collect();
        fields.try_into().ok().with_context(|| format!("no row of four: {line:?}"))
    };
    printed.lines().map(row).collect()
}

/// The table as Markdown, so that it can stand in the README as it is.
fn aligned(table: &[Row]) -> String {
    let head = ["what", "measured", "beside it", "goal"].map(String::from);
    let all: Vec<&Row> = std::iter::once(&head).chain(table).collect();
    let width = |column: usize| all.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths = [0, 1, 2, 3].map(width);
    let line = |row: &Row| {
        let cells: Vec<String> = row.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |", cells.join(" | "))
    };
    let rule = format!("|{}|", widths.map(|width| "-".repeat(width + 2)).join("|"));
    let mut lines: Vec<String> = all.iter().map(|row| line(row)).collect();
    lines.insert(1, rule);
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_become_a_table() {
        let table = rows("cost\t1.2x\tbare read: 500 ns\t< 1.5x\nmemory, idle\t8 MiB\t\t\n").unwrap();
        let expected = "| what         | measured | beside it         | goal   |\n\
                        |--------------|----------|-------------------|--------|\n\
                        | cost         | 1.2x     | bare read: 500 ns | < 1.5x |\n\
                        | memory, idle | 8 MiB    |                   |        |";
        assert_eq!(aligned(&table), expected);
        assert!(rows("cost\t1.2x\n").is_err());
    }
}
