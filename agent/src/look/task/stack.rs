//! What kind of thing a kernel stack (`/proc/PID/stack`) waits in, told by the names of its functions.

/// Where a stack waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// In a network filesystem, or a block device behind a network.
    Network,
    /// For a FUSE server.
    Fuse,
    /// In the layers of files and disks; in this filesystem's own code, if it got as far.
    Files(Option<Family>),
    /// In a lock or wait of the kernel, and nowhere near a file.
    Kernel,
    /// It cannot be told.
    Unknown,
}

/// Code of one local filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Ext,
    Xfs,
    Btrfs,
    F2fs,
}

impl Family {
    /// Whether a mount of this type runs this code.
    pub(super) fn serves(self, fs_type: &str) -> bool {
        match self {
            Self::Ext => matches!(fs_type, "ext2" | "ext3" | "ext4"),
            Self::Xfs => fs_type == "xfs",
            Self::Btrfs => fs_type == "btrfs",
            Self::F2fs => fs_type == "f2fs",
        }
    }
}

/// Modules and function prefixes; a stack line names the module unless it is built in.
const NETWORK_MODULES: &[&str] = &[
    "nfs",
    "nfsv2",
    "nfsv3",
    "nfsv4",
    "sunrpc",
    "lockd",
    "cifs",
    "smb3",
    "ceph",
    "libceph",
    "rbd",
    "9p",
    "9pnet",
    "9pnet_virtio",
    "nbd",
    "drbd",
    "libiscsi",
    "libiscsi_tcp",
    "iscsi_tcp",
    "netfs",
    "afs",
    "kafs",
    "gfs2",
    "ocfs2",
    "dlm",
    "nvme_tcp",
    "nvme_rdma",
    "nvme_fabrics",
];
const NETWORK: &[&str] = &[
    "nfs_",
    "nfs2_",
    "nfs3_",
    "nfs4_",
    "nfs41_",
    "__nfs",
    "_nfs4",
    "rpc_",
    "__rpc_",
    "xprt_",
    "nlm",
    "cifs_",
    "smb2_",
    "SMB2_",
    "smb3_",
    "ceph_",
    "__ceph",
    "rbd_",
    "p9_",
    "v9fs_",
    "nbd_",
    "drbd_",
    "iscsi_",
    "netfs_",
    "afs_",
    "gfs2_",
    "ocfs2_",
    "dlm_",
    "nvme_tcp_",
    "nvme_rdma_",
];
const FUSE: &[&str] = &["fuse_", "__fuse_", "request_wait_answer", "virtio_fs_"];
const FAMILIES: &[(Family, &[&str])] = &[
    (
        Family::Ext,
        &["ext4_", "__ext4_", "jbd2_", "__jbd2_", "kjournald2", "start_this_handle", "add_transaction_credits", "wait_transaction_locked"],
    ),
    (Family::Xfs, &["xfs_", "__xfs_", "xlog_", "xfsaild"]),
    (Family::Btrfs, &["btrfs_", "__btrfs_"]),
    (Family::F2fs, &["f2fs_", "__f2fs_"]),
];

/// Functions of the VFS, the page cache and the block layer, in kernels 5.10 to 6.18.
const FILES: &[&str] = &[
    "vfs_",
    "path_",
    "mnt_want_write",
    "__mnt_want_write",
    "__sb_start_write",
    "open_last_lookups",
    "lookup_",
    "__lookup_",
    "filename_",
    "do_unlinkat",
    "do_rmdir",
    "do_mkdirat",
    "do_rename",
    "do_linkat",
    "do_symlinkat",
    "do_mknodat",
    "do_truncate",
    "do_sys_ftruncate",
    "do_fsync",
    "notify_change",
    "file_update_time",
    "file_modified",
    "touch_atime",
    "iterate_dir",
    "generic_file_",
    "generic_perform_write",
    "filemap_",
    "__filemap_",
    "folio_wait",
    "__folio_lock",
    "wait_on_page",
    "__lock_page",
    "io_schedule",
    "bit_wait_io",
    "__wait_on_buffer",
    "submit_bio",
    "blkdev_",
    "blk_",
    "__blk",
    "wbt_wait",
    "rq_qos_wait",
    "balance_dirty_pages",
    "iomap_",
    "writeback_",
    "__writeback_",
    "wb_",
    "sync_",
    "do_writepages",
    "freeze_super",
    "thaw_super",
    "deactivate_super",
    "super_lock",
    "evict",
    "iput",
    "dput",
    "truncate_inode",
    "dquot_",
    "ovl_",
    "dm_",
    "swap_",
];

/// How the kernel waits.
const WAITS: &[&str] = &[
    "__mutex_lock",
    "mutex_lock",
    "rwsem_",
    "down_",
    "__down",
    "percpu_",
    "__percpu_",
    "wait_for_completion",
    "__wait_for_common",
    "schedule_timeout",
    "synchronize_",
    "__synchronize",
    "__wait_rcu_gp",
    "rcu_barrier",
    "flush_work",
    "__flush_work",
    "flush_workqueue",
    "__flush_workqueue",
    "msleep",
    "usleep_range",
    "__refrigerator",
    "rtnl_lock",
    "do_exit",
    "exit_mm",
    "wait_on_bit",
    "__wait_on_bit",
    "out_of_line_wait_on_bit",
    "kthread_stop",
    "refcount_dec_and_",
    "cgroup_lock",
    "unregister_netdevice",
];

/// Tells by the innermost function that tells anything. `None` if there is no stack to read.
pub(super) fn place(stack: &[u8]) -> Option<Place> {
    let stack = String::from_utf8_lossy(stack);
    let frames: Vec<(&str, Option<&str>)> = stack.lines().filter_map(frame).collect();
    if frames.is_empty() {
        return None;
    }
    // A task can wait for memory that a filesystem must write back: the innermost one is what it waits for.
    let told = frames.iter().find_map(|(function, module)| {
        let begins = |prefixes: &[&str]| prefixes.iter().any(|prefix| function.starts_with(prefix));
        if begins(FUSE) || matches!(module, Some("fuse" | "virtiofs")) {
            return Some(Place::Fuse);
        }
        if begins(NETWORK) || module.is_some_and(|module| NETWORK_MODULES.contains(&module)) {
            return Some(Place::Network);
        }
        FAMILIES.iter().find(|(_, prefixes)| begins(prefixes)).map(|(family, _)| Place::Files(Some(*family)))
    });
    let any = |prefixes: &[&str]| frames.iter().any(|(function, _)| prefixes.iter().any(|prefix| function.starts_with(prefix)));
    Some(match told {
        Some(place) => place,
        None if any(FILES) => Place::Files(None),
        None if any(WAITS) => Place::Kernel,
        None => Place::Unknown,
    })
}

/// `[<0>] function+0x1a/0x2b [module]`: the function and the module.
fn frame(line: &str) -> Option<(&str, Option<&str>)> {
    let (_, rest) = line.split_once("] ")?;
    let mut words = rest.split_whitespace();
    let function = words.next()?.split('+').next()?;
    Some((function, words.next().map(|module| module.trim_matches(['[', ']']))))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stack(functions: &[&str]) -> Vec<u8> {
        functions.iter().map(|f| format!("[<0>] {f}\n")).collect::<String>().into_bytes()
    }

    fn told(functions: &[&str]) -> Option<Place> {
        let framed: Vec<_> = functions.iter().map(|f| f.replacen(' ', "+0x1a/0x2b0 ", 1)).collect();
        let framed: Vec<_> = framed.iter().map(|f| if f.contains('+') { f.clone() } else { format!("{f}+0x1a/0x2b0") }).collect();
        place(&stack(&framed.iter().map(String::as_str).collect::<Vec<_>>()))
    }

    const ENTRY: [&str; 2] = ["do_syscall_64", "entry_SYSCALL_64_after_hwframe"];

    #[test]
    fn a_dead_nfs_server_is_a_network() {
        let stack =
            ["rpc_wait_bit_killable [sunrpc]", "__rpc_execute [sunrpc]", "nfs4_proc_getattr [nfsv4]", "vfs_statx", ENTRY[0], ENTRY[1]];
        assert_eq!(told(&stack), Some(Place::Network));
        assert_eq!(told(&["wait_for_response", "compound_send_recv [cifs]", "vfs_statx"]), Some(Place::Network));
        assert_eq!(told(&["netfs_wait_for_request", "vfs_read"]), Some(Place::Network));
    }

    #[test]
    fn a_dead_fuse_server_is_fuse() {
        assert_eq!(told(&["request_wait_answer [fuse]", "__fuse_simple_request [fuse]", "fuse_lookup_name [fuse]"]), Some(Place::Fuse));
        assert_eq!(told(&["request_wait_answer", "vfs_read"]), Some(Place::Fuse));
    }

    #[test]
    fn a_filesystems_own_code_names_its_family() {
        assert_eq!(
            told(&["bit_wait_io", "jbd2_log_wait_commit", "ext4_sync_file", "vfs_fsync_range"]),
            Some(Place::Files(Some(Family::Ext)))
        );
        assert_eq!(told(&["xlog_wait_on_iclog [xfs]", "xfs_file_fsync [xfs]"]), Some(Place::Files(Some(Family::Xfs))));
        assert_eq!(told(&["folio_wait_bit_common", "btrfs_search_slot"]), Some(Place::Files(Some(Family::Btrfs))));
    }

    #[test]
    fn a_frozen_filesystem_is_waited_for_in_the_vfs() {
        assert_eq!(
            told(&["percpu_rwsem_wait", "__percpu_down_read", "mnt_want_write", "path_openat", "do_filp_open"]),
            Some(Place::Files(None))
        );
    }

    #[test]
    fn a_kernel_lock_far_from_files_is_the_kernel() {
        assert_eq!(told(&["__mutex_lock.constprop.0", "rtnetlink_rcv_msg", "netlink_rcv_skb", ENTRY[0]]), Some(Place::Kernel));
        assert_eq!(told(&["percpu_rwsem_wait", "__percpu_down_read", "cgroup_can_fork", "copy_process"]), Some(Place::Kernel));
    }

    #[test]
    fn the_innermost_of_two_filesystems_is_waited_for() {
        let reclaim = ["folio_wait_bit_common", "nfs_release_folio [nfs]", "shrink_folio_list", "ext4_mb_new_blocks", "ext4_writepages"];
        assert_eq!(told(&reclaim), Some(Place::Network));
    }

    #[test]
    fn an_nfs_server_is_not_waiting_for_a_network() {
        assert_eq!(
            told(&["jbd2_log_wait_commit", "ext4_sync_file", "nfsd_commit [nfsd]", "svc_process [sunrpc]"]),
            Some(Place::Files(Some(Family::Ext)))
        );
    }

    #[test]
    fn what_is_not_known_cannot_be_told() {
        assert_eq!(told(&["some_driver_ioctl [driver]", ENTRY[0]]), Some(Place::Unknown));
        assert_eq!(place(b""), None);
        assert_eq!(place(b"nonsense\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_stack_or_none(bytes: Vec<u8>) {
            let _ = place(&bytes);
        }
    }
}
