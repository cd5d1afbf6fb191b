//! The root filesystem of a throw-away node: a small Debian with systemd, unpacked without running maintainer scripts.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::unix::fs::{PermissionsExt, symlink},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

use crate::{
    cache,
    image::Image,
    process::{command, output, run},
    tool,
};

const PACKAGES: &str = "base-files,base-passwd,bash,coreutils,dash,dbus,e2fsprogs,findutils,grep,hostname,iproute2,kmod,libc-bin,mawk,mount,\
                        procps,runc,sed,systemd,systemd-sysv,udev,util-linux,xfsprogs";
/// What holds a pod's namespaces: a program of the root that sleeps, with the loader and the library that it needs, as an image.
const PAUSE: &str = "localhost/pause:1";
const PAUSE_FILES: [&str; 5] = [
    "bin/sleep",
    "lib64/ld-linux-x86-64.so.2",
    "lib/x86_64-linux-gnu/libc.so.6",
    "lib/ld-linux-aarch64.so.1",
    "lib/aarch64-linux-gnu/libc.so.6",
];

/// The folder that holds the root filesystem. A test copies it before it changes anything.
pub(crate) fn directory() -> Result<PathBuf> {
    tool::packages(&[
        ("mmdebstrap", "mmdebstrap"),
        ("systemd-nspawn", "systemd-container"),
        ("mkfs.ext4", "e2fsprogs"),
        ("nsenter", "util-linux"),
    ])?;
    let suite = suite(&fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?)?;
    cache::kept(&format!("node-root-{}", cache::key(&[PACKAGES.as_bytes(), suite.as_bytes(), include_bytes!("node_root.rs")])), |dir| {
        let mut bootstrap = command("mmdebstrap");
        bootstrap.args(["--quiet", "--mode=root", "--variant=extract", "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr"]);
        bootstrap.arg(format!("--include={PACKAGES}")).arg(&suite).arg(dir);
        bootstrap.args(sources());
        run(&mut bootstrap)?;
        finish(dir)
    })
}

/// Where this machine takes its packages from.
fn sources() -> Option<&'static Path> {
    ["/etc/apt/sources.list.d/debian.sources", "/etc/apt/sources.list"].map(Path::new).into_iter().find(|file| file.exists())
}

/// The name of this machine's release, whose packages the node is made of.
fn suite(os_release: &str) -> Result<String> {
    let name = os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME="));
    name.map(|name| name.trim_matches('"').to_owned())
        .context("/etc/os-release names no VERSION_CODENAME: a node is made from Debian's packages")
}

/// What the maintainer scripts would have done.
fn finish(root: &Path) -> Result<()> {
    for (from, to) in [("usr/share/base-passwd/passwd.master", "etc/passwd"), ("usr/share/base-passwd/group.master", "etc/group")] {
        fs::copy(root.join(from), root.join(to))?;
    }
    append(&root.join("etc/passwd"), "messagebus:x:100:101::/nonexistent:/usr/sbin/nologin\n")?;
    append(&root.join("etc/group"), "messagebus:x:101:\n")?;
    for (link, target) in [("bin/sh", "dash"), ("usr/bin/awk", "mawk")] {
        if fs::symlink_metadata(root.join(link)).is_err() {
            symlink(target, root.join(link))?;
        }
    }
    for dir in ["proc", "sys", "run", "root", "mnt", "tmp", "var/tmp", "var/log/journal"] {
        fs::create_dir_all(root.join(dir))?;
    }
    for dir in ["tmp", "var/tmp"] {
        fs::set_permissions(root.join(dir), fs::Permissions::from_mode(0o1777))?;
    }
    fs::write(root.join("etc/fstab"), "")?;
    // Without it no pod can start.
    fs::write(root.join("etc/hosts"), "127.0.0.1 localhost\n")?;
    fs::write(root.join("etc/machine-id"), "0123456789abcdef0123456789abcdef\n")?;
    let files = PAUSE_FILES.iter().filter_map(|file| Some(((*file).to_owned(), fs::read(root.join(file)).ok()?))).collect();
    let pause = Image { name: PAUSE, entrypoint: &["/bin/sleep", "infinity"], files };
    fs::write(root.join("root/pause.tar"), pause.archive()?)?;
    output(command("ldconfig").arg("-r").arg(root))?;
    for dir in ["usr/share/doc", "usr/share/man", "usr/share/locale", "usr/share/info", "var/cache"] {
        let dir = root.join(dir);
        fs::remove_dir_all(&dir).and_then(|()| fs::create_dir(&dir)).with_context(|| format!("cannot empty {}", dir.display()))?;
    }
    Ok(())
}

fn append(file: &Path, text: &str) -> Result<()> {
    Ok(OpenOptions::new().append(true).open(file)?.write_all(text.as_bytes())?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_release_is_read_with_and_without_quotes_and_named_when_missing() {
        assert_eq!(suite("ID=debian\nVERSION_CODENAME=bookworm\n").unwrap(), "bookworm");
        assert_eq!(suite("VERSION_CODENAME=\"trixie\"\n").unwrap(), "trixie");
        assert!(suite("ID=fedora\n").unwrap_err().to_string().contains("VERSION_CODENAME"));
    }
}
