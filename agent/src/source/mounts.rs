//! The host's mount table: read at the start, whenever the kernel says that it changed, and slowly besides.

use std::{fs::File, io, io::Seek as _, sync::Arc, time::Duration};

use agent_core::{
    Fact, Source,
    mount::{Mount, MountTable},
};
use tokio::{io::Interest, time};

use super::{Context, Ending, Run};
use crate::{
    host::{Host, mountinfo, read_whole},
    look::Apart,
    syscall::Watched,
};

/// What the superblock says of itself (`emergency_ro`, `shutdown`) changes without waking anybody who polls, so the table is also read so often.
const REREAD: Duration = Duration::from_secs(60);

/// A node that starts many pods changes its table hundreds of times a second; more often than this we do not read it.
const BREATH: Duration = Duration::from_millis(100);

/// Files of the host may lie on a filesystem that hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// What stands beside the mount table on the host's filesystems.
#[derive(Clone, Debug, Default)]
struct Surroundings {
    table: MountTable,
    trouble: Option<String>,
}

/// Reads the table for ever.
pub(super) async fn run(context: Context) -> Run {
    let path = context.host.mountinfo();
    let mut file = File::open(&path).map_err(|e| Ending::Absent(format!("{} cannot be opened: {e}", path.display())))?;
    let interest = Interest::PRIORITY | Interest::ERROR;
    let watch = |file: File| Watched::new(file.into(), interest);
    let watched = file.try_clone().and_then(watch).map_err(|e| Ending::broken("cannot wait for mounts", e))?;
    let apart = Apart::new("mounts", 1);
    let (mut last, mut announced) = (None, None);
    let mut around = Surroundings::default();
    loop {
        let mounts = read(&context, &mut file).map_err(|e| Ending::broken(path.display(), e))?;
        around = surroundings(&context, &apart, around).await;
        let degraded: Vec<_> = context.host.is_nested().then(|| NESTED.into()).into_iter().chain(around.trouble.clone()).collect();
        if announced.as_ref() != Some(&degraded) {
            context.up(Source::Mounts, degraded.clone()).await?;
            announced = Some(degraded);
        }
        let table = MountTable { device_names: device_names(&context.host, &mounts), mounts, ..around.table.clone() };
        if last.as_ref() != Some(&table) {
            context.tell(Fact::Mounts(table.clone())).await?;
            last = Some(table);
        }
        time::sleep(BREATH).await;
        // The order does not matter: whichever comes first, the table is read again or nobody wants it any more.
        tokio::select! {
            ready = watched.ready() => ready.map_err(|e| Ending::broken("cannot wait for mounts", e))?.clear_ready(),
            () = time::sleep(REREAD) => {}
            () = context.out.closed() => return Err(Ending::Stopped),
        }
    }
}

const NESTED: &str = "this is a PID namespace of its own (no hostPID): these are the mounts of its init, not the host's";

fn read(context: &Context, file: &mut File) -> io::Result<Vec<Mount>> {
    file.rewind()?;
    let table = read_whole(file.try_clone()?)?;
    let (lines, malformed) = mountinfo::parse(&table);
    context.metrics.records_read.with_label_values(&[Source::Mounts.as_str()]).inc_by(lines.len() as u64);
    context.metrics.records_malformed.with_label_values(&[Source::Mounts.as_str()]).inc_by(malformed);
    Ok(lines.into_iter().map(|line| line.mount).collect())
}

/// What fstab, symbolic links and the kubelet's directories say now; where they do not answer, what they said before.
async fn surroundings(context: &Context, apart: &Apart, before: Surroundings) -> Surroundings {
    let (host, paths) = (Arc::clone(&context.host), context.settings.core().node_paths);
    match apart.run(PATIENCE, move || look_around(&host, &paths)).await {
        Ok(Ok(table)) => Surroundings { table, trouble: None },
        Ok(Err(e)) => Surroundings { trouble: Some(format!("/etc/fstab cannot be read: {e}")), ..before },
        Err(e) => Surroundings { trouble: Some(format!("fstab and node paths: {e}")), ..before },
    }
}

fn look_around(host: &Host, node_paths: &[String]) -> io::Result<MountTable> {
    let fstab = host.fstab()?;
    let links = node_paths.iter().filter_map(|path| Some((path.clone(), host.real_path(path)?))).filter(|(path, real)| path != real);
    Ok(MountTable {
        mounts: Vec::new(),
        fstab_read_only: fstab.read_only,
        fstab: fstab.mount_points,
        root_read_only: host.is_root_read_only_by_command_line()?,
        links: links.collect(),
        pods: host.pods(),
        device_names: Vec::new(),
    })
}

fn device_names(host: &Host, mounts: &[Mount]) -> Vec<(agent_core::DeviceNumber, String)> {
    let mut devices: Vec<_> = mounts.iter().map(|m| m.device).filter(|device| device.major != 0).collect();
    devices.sort_unstable();
    devices.dedup();
    devices.into_iter().filter_map(|device| Some((device, host.device_name(device)?))).collect()
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use agent_core::{DeviceNumber, Observation, SourceState};
    use tokio::sync::mpsc;

    use super::*;
    use crate::{
        config::Settings,
        host::tests::FakeHost,
        source::tests::{context, context_of},
    };

    async fn next(out: &mut mpsc::Receiver<Observation>) -> Fact {
        time::timeout(Duration::from_secs(10), out.recv()).await.expect("in time").expect("the source still runs").fact
    }

    #[tokio::test]
    async fn the_table_of_this_machine_comes_at_the_start_with_its_root() {
        let (context, mut out) = context();
        let task = tokio::spawn(run(context));
        assert_eq!(next(&mut out).await, Fact::Source { source: Source::Mounts, state: SourceState::Up { degraded: vec![] } });
        let Fact::Mounts(table) = next(&mut out).await else { panic!("no table") };
        assert!(table.holding("/").is_some());
        drop(out);
        assert!(matches!(task.await.unwrap(), Err(Ending::Stopped)));
    }

    #[test]
    fn fstab_links_and_pods_stand_beside_the_mounts() {
        let uid = "7a9e2f60-0000-4000-8000-123456789abc";
        let fake = FakeHost::new()
            .with("etc/fstab", "/dev/sda1 / ext4 ro 0 0\n")
            .with("proc/cmdline", "quiet\n")
            .with("data/kubelet/x", "")
            .with(&format!("var/log/pods/shop_web_{uid}/x"), "");
        symlink("/data", fake.0.path().join("var/lib")).unwrap();
        let table = look_around(&fake.host(), &["/var/lib/kubelet".into(), "/var/lib/etcd".into(), "/var".into()]).unwrap();
        assert_eq!(table.fstab, ["/"]);
        assert_eq!(table.fstab_read_only, ["/"]);
        let link = |from: &str, to: &str| (from.to_owned(), to.to_owned());
        assert_eq!(table.links, [link("/var/lib/kubelet", "/data/kubelet"), link("/var/lib/etcd", "/data/etcd")]);
        assert_eq!(table.pods, [link(uid, "shop/web")]);
    }

    #[test]
    fn devices_are_named_once_and_anonymous_ones_not_at_all() {
        let fake = FakeHost::new().with("sys/devices/vda/dev", "254:0");
        std::fs::create_dir_all(fake.0.path().join("sys/dev/block")).unwrap();
        symlink("../../devices/vda", fake.0.path().join("sys/dev/block/254:0")).unwrap();
        let table = b"1 0 254:0 / / rw - ext4 /dev/root rw\n2 1 254:0 /x /x rw - ext4 /dev/root rw\n3 1 0:5 / /p rw - proc proc rw\n";
        let mounts: Vec<_> = mountinfo::parse(table).0.into_iter().map(|line| line.mount).collect();
        assert_eq!(device_names(&fake.host(), &mounts), [(DeviceNumber { major: 254, minor: 0 }, "vda".to_owned())]);
    }

    #[tokio::test]
    async fn a_host_without_proc_has_no_mounts_and_says_so() {
        let (context, _out) = context_of(FakeHost::new().host(), Settings::default());
        let Err(Ending::Absent(why)) = run(context).await else { panic!("not absent") };
        assert!(why.contains("1/mountinfo"), "{why}");
    }
}
