//! Filesystems that turn read-only on the real kernel, and what the agent makes of each.

use std::{fs, process::Command, time::Duration};

use tests_kernel::{
    agent::Watch,
    filesystem::{Filesystem, Kind},
    process::output,
    undo::Undo,
};

const UNIT: &str = "nodeward-test-nobody.service";

/// The product's promise from fault to condition.
const PROMPT: Duration = Duration::from_secs(1);

/// A mend is believed after 2 s; the machine may be busy.
const CLEAR: Duration = Duration::from_secs(15);

#[test]
fn an_ext4_error_is_a_condition_within_a_second_until_the_filesystem_is_mended() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let mut agent = Watch::over(filesystem.mount_point(), UNIT).unwrap().start().unwrap();
    assert_eq!(agent.condition("ReadonlyFilesystem").unwrap().status, "False");
    for round in 1..=2 {
        filesystem.break_ext4("nodeward test: mended").unwrap();
        let broken = agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
        assert_eq!(broken.reason, "FilesystemIsReadOnly");
        assert!(broken.message.contains(filesystem.device()), "{}", broken.message);
        assert!(broken.message.contains(filesystem.mount_point().to_str().unwrap()), "{}", broken.message);
        agent.wait_for_event("Ext4Error", filesystem.mount_point().to_str().unwrap(), PROMPT).unwrap();

        filesystem.unmount().unwrap();
        filesystem.mend().unwrap();
        filesystem.mount().unwrap();
        let mended = agent.wait_for("ReadonlyFilesystem", "False", CLEAR).unwrap();
        assert!(mended.since_boot_seconds > broken.since_boot_seconds, "{mended:?}");
        assert_eq!(agent.times("ReadonlyFilesystem", "Unknown"), 0, "round {round}");
    }
    agent.stop().unwrap();
}

#[test]
fn an_xfs_shutdown_is_a_condition_until_it_is_mounted_anew() {
    let filesystem = Filesystem::new(Kind::Xfs).unwrap();
    let mut agent = Watch::over(filesystem.mount_point(), UNIT).unwrap().start().unwrap();
    filesystem.shut_down().unwrap();
    let broken = agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    assert!(broken.message.contains(filesystem.device()), "{}", broken.message);
    agent.wait_for_event("XfsHasShutdown", filesystem.mount_point().to_str().unwrap(), PROMPT).unwrap();

    filesystem.unmount().unwrap();
    filesystem.mount().unwrap();
    agent.wait_for("ReadonlyFilesystem", "False", CLEAR).unwrap();
}

#[test]
fn an_ext4_shutdown_is_a_condition() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let mut agent = Watch::over(filesystem.mount_point(), UNIT).unwrap().start().unwrap();
    filesystem.shut_down().unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    agent.wait_for_event("Ext4Shutdown", filesystem.mount_point().to_str().unwrap(), PROMPT).unwrap();
}

#[test]
fn an_administrators_remount_is_a_condition_that_says_so_and_ends_with_it() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    let mut agent = Watch::over(filesystem.mount_point(), UNIT).unwrap().start().unwrap();
    filesystem.remount("ro").unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    agent.wait_for_message("ReadonlyFilesystem", "remount by an administrator", PROMPT).unwrap();

    filesystem.remount("rw").unwrap();
    agent.wait_for("ReadonlyFilesystem", "False", CLEAR).unwrap();
    assert_eq!(agent.times("ReadonlyFilesystem", "True"), 1);
}

#[test]
fn a_broken_volume_of_a_pod_is_an_event_that_names_the_pod_and_no_condition() {
    const UID: &str = "6e6f6465-7761-4264-9465-7374766f6c75";
    // What the kubelet leaves on a node, from which the agent learns the pod's name.
    let logs = format!("/var/log/pods/nodeward-test_web-0_{UID}");
    let _undo = Undo::by("test ! -d \"$0\" || rmdir \"$0\"; rmdir --ignore-fail-on-non-empty /var/log/pods || true", &[&logs]).unwrap();
    fs::create_dir_all(&logs).unwrap();
    let node = Filesystem::new(Kind::Ext4).unwrap();
    let volume = Filesystem::mounted_below(Kind::Ext4, &format!("pods/{UID}/volumes/kubernetes.io~csi/pvc-1/mount")).unwrap();
    let mut agent = Watch::over(node.mount_point(), UNIT).unwrap().start().unwrap();

    volume.break_ext4("nodeward test: a pod's volume").unwrap();
    let event = agent.wait_for_event("Ext4Error", volume.mount_point().to_str().unwrap(), PROMPT).unwrap();
    assert!(event.contains("nodeward-test/web-0"), "{event}");
    agent
        .wait_for_metrics("the volume's fault to be counted", CLEAR, |metrics| {
            metrics.value("nodeward_volume_faults_total{pod=\"nodeward-test/web-0\",reason=\"Ext4Error\"}") >= 1.0
        })
        .unwrap();
    // The node's own fault comes through all the same, and it is the first.
    assert_eq!(agent.times("ReadonlyFilesystem", "True"), 0);
    node.break_ext4("nodeward test: the node itself").unwrap();
    let broken = agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    assert!(!broken.message.contains(volume.device()), "{}", broken.message);
}

#[test]
fn a_fault_from_before_the_agents_start_is_found() {
    let filesystem = Filesystem::new(Kind::Ext4).unwrap();
    filesystem.break_ext4("nodeward test: before the start").unwrap();
    let mut agent = Watch::over(filesystem.mount_point(), UNIT).unwrap().start().unwrap();
    agent.wait_for("ReadonlyFilesystem", "True", PROMPT).unwrap();
    assert_eq!(agent.times("ReadonlyFilesystem", "False"), 0);
}

#[test]
fn a_test_filesystem_leaves_nothing_behind_however_broken_it_is() {
    for break_it in [
        (|_| Ok(())) as fn(&Filesystem) -> anyhow::Result<()>,
        Filesystem::shut_down,
        |filesystem| filesystem.break_ext4("nodeward test: nothing is left"),
        |filesystem| output(Command::new("fsfreeze").arg("--freeze").arg(filesystem.mount_point())).map(drop),
    ] {
        let filesystem = Filesystem::new(Kind::Ext4).unwrap();
        let (place, device) = (filesystem.mount_point().to_owned(), format!("/dev/{}", filesystem.device()));
        assert!(place.is_dir());
        break_it(&filesystem).unwrap();
        drop(filesystem);
        assert!(!place.exists());
        output(Command::new("losetup").arg(device)).unwrap_err();
    }
}
