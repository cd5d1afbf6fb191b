//! Running other programs: each is named when it fails, and none outlives `cargo xtask`.

use std::{
    ffi::OsStr,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    sync::LazyLock,
};

use anyhow::{Context, Result, bail};

/// The top of the checkout.
pub(crate) fn repository() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask/ is a folder of the repository")
}

/// The cargo that runs us.
pub(crate) fn cargo() -> Command {
    command(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program that ends when we do, even if we are killed: `setpriv` asks the kernel for that signal, so that it needs no code of ours in
/// the child.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    static SETPRIV: LazyLock<Option<PathBuf>> = LazyLock::new(|| find("setpriv"));
    let mut command = match &*SETPRIV {
        Some(setpriv) => {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "TERM", "--"]).arg(program);
            command
        }
        None => Command::new(program),
    };
    command.current_dir(repository());
    command
}

/// Runs a program with our standard streams, after naming it.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    eprintln!("+ {}", words(command));
    let status = command.status().with_context(|| format!("cannot start {}", words(command)))?;
    if !status.success() {
        bail!("{}: {status}", words(command));
    }
    Ok(())
}

/// Runs a program and gives what it printed on standard output; what it says on standard error is shown only when it fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("cannot start {}", words(command)))?;
    if !output.status.success() {
        bail!("{}: {}\n{}", words(command), output.status, String::from_utf8_lossy(&output.stderr));
    }
    String::from_utf8(output.stdout).with_context(|| format!("{} printed no UTF-8", words(command)))
}

/// Runs a program after naming it, with our standard error, and gives what it printed on standard output.
pub(crate) fn output_shown(command: &mut Command) -> Result<String> {
    eprintln!("+ {}", words(command));
    output(command.stderr(Stdio::inherit()))
}

/// Where a program is, looking through `PATH` and the folders where Debian keeps administrators' programs.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// Builds the agent and becomes it.
pub(crate) fn exec_agent(args: &[String]) -> Result<()> {
    let agent = build_agent(&[], None)?;
    let mut command = Command::new(&agent);
    command.args(["run", "--no-cluster"]).args(args);
    Err(command.exec()).with_context(|| format!("cannot start {}", agent.display()))
}

/// Shows the agent with a real fault.
pub(crate) fn demo() -> Result<()> {
    run(cargo().args(["run", "--quiet", "--package", "tests-kernel", "--example", "demo"]).env("NODEWARD_AGENT", build_agent(&[], None)?))
}

/// Builds the agent with these arguments of `cargo build` and says where it is. Another eBPF object than the one checked in goes into it if given.
pub(crate) fn build_agent(args: &[&str], ebpf: Option<&Path>) -> Result<PathBuf> {
    let mut build = cargo();
    if let Some(object) = ebpf {
        build.env("NODEWARD_EBPF_OBJECT", object);
    }
    build.args(["build", "--package", "nodeward-agent", "--bin", "nodeward-agent", "--message-format=json-render-diagnostics"]).args(args);
    eprintln!("+ {}", words(&build));
    let output = build.stderr(Stdio::inherit()).output().context("cannot start cargo")?;
    if !output.status.success() {
        bail!("building the agent failed");
    }
    cargo_metadata::Message::parse_stream(output.stdout.as_slice())
        .filter_map(Result::ok)
        .find_map(|message| {
            let cargo_metadata::Message::CompilerArtifact(artifact) = message else { return None };
            artifact.executable.filter(|_| artifact.target.name == "nodeward-agent")
        })
        .map(Into::into)
        .context("cargo built the agent but did not say where it is")
}

/// The command line as a person would type it.
fn words(command: &Command) -> String {
    let all: Vec<_> = std::iter::once(command.get_program()).chain(command.get_args()).map(OsStr::to_string_lossy).collect();
    let start = if all.len() > 3 && all[0].ends_with("setpriv") { 4 } else { 0 };
    all[start..].join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failing_program_is_named_without_how_it_was_wrapped() {
        let error = run(&mut command("false")).unwrap_err().to_string();
        assert_eq!(error, "false: exit status: 1");
        let error = output(command("sh").args(["-c", "echo why >&2; exit 3"])).unwrap_err().to_string();
        assert_eq!(error, "sh -c echo why >&2; exit 3: exit status: 3\nwhy\n");
    }

    #[test]
    fn a_program_runs_at_the_top_of_the_checkout() {
        assert_eq!(output(&mut command("pwd")).unwrap().trim_end(), repository().to_str().unwrap());
    }
}
