//! A disk of a node: a loop device with an ext4 filesystem that breaks at a touch.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::Result;

use crate::{node::Node, server::output};

const SIZE: u64 = 32 << 20;

/// A directory whose inode is not what the directory above says: whoever looks it up makes the kernel find an error.
const TRAP: &str = "trap";

/// The disk. Detached when this is dropped; still mounted, it goes with the mount.
#[derive(Debug)]
pub struct Disk {
    device: PathBuf,
}

impl Disk {
    /// Makes one, its content in this folder, and shows it to the node.
    ///
    /// # Errors
    /// If the machine cannot.
    pub fn attach(node: &Node, dir: &Path) -> Result<Self> {
        let image = dir.join("disk");
        File::create(&image)?.set_len(SIZE)?;
        output(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        for request in [format!("mkdir {TRAP}"), format!("clri {TRAP}")] {
            output(Command::new("debugfs").args(["-w", "-R", &request]).arg(&image))?;
        }
        let device = output(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        let disk = Self { device: device.trim().into() };
        let number = output(Command::new("lsblk").args(["--noheadings", "--nodeps", "--output", "MAJ:MIN"]).arg(&disk.device))?;
        let (major, minor) = number.trim().split_once(':').unwrap_or_default();
        let name = disk.device.display().to_string();
        // The node's /dev is its own.
        let _ = node.run(&["rm", "--force", &name])?;
        node.run(&["mknod", &name, "b", major, minor])?;
        Ok(disk)
    }

    /// Name of the device, as the kernel calls it: `loop0`.
    #[must_use]
    pub fn name(&self) -> String {
        self.device.file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Mounts it on the node; an error makes it read-only.
    ///
    /// # Errors
    /// If it cannot be mounted.
    pub fn mount(&self, node: &Node, at: &str) -> Result<()> {
        node.run(&["mkdir", "--parents", at])?;
        node.run(&["mount", "-o", "errors=remount-ro", &self.device.display().to_string(), at]).map(drop)
    }

    /// Makes the kernel meet the error.
    pub fn spring(node: &Node, mounted_at: &str) {
        // It fails, for that is the point.
        let _ = node.run(&["stat", &format!("{mounted_at}/{TRAP}")]);
    }

    /// Unmounts it, repairs it and mounts it again.
    ///
    /// # Errors
    /// If one of these fails.
    pub fn mend(&self, node: &Node, at: &str) -> Result<()> {
        node.run(&["umount", at])?;
        // 1: errors were corrected.
        let device = self.device.display();
        node.run(&["sh", "-c", &format!("e2fsck -fy {device} >/dev/null; [ $? -le 1 ]")])?;
        self.mount(node, at)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = output(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}
