//! A real node: systemd, containerd and a kubelet in a container of systemd-nspawn, joined to a [`Cluster`].

use std::{
    fmt::Write as _,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tempfile::TempDir;

use crate::{
    cluster::Cluster,
    made,
    server::{Server, output},
    wait,
};

/// How long systemd, containerd and the kubelet may take to make the Node ready: 10 s on two idle cores.
const START: Duration = Duration::from_secs(90);
/// How long the container may take to power off by itself.
const STOP: Duration = Duration::from_secs(20);

/// What the kubelet sets in the kernel (pkg/kubelet/cm, `setupKernelTunables`), for the whole machine. Files with these values lie over the real
/// ones inside the container, so that it finds everything as it wants it and changes nothing.
const KUBELET_SYSCTLS: [(&str, &str); 6] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
    ("kernel/keys/root_maxkeys", "1000000"),
    ("kernel/keys/root_maxbytes", "25000000"),
];

const CONTAINERD: &str = "
version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = 'localhost/pause:1'
[plugins.'io.containerd.cri.v1.runtime']
  # A machine may withhold CAP_SYS_RESOURCE.
  restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.cni]
  conf_dir = '/etc/cni/net.d'
";

/// Every pod here uses the host's network, so the plugin that this names is never called.
const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "none", "plugins": [{"type": "none"}]}"#;

/// Runs with cgroup 1 too, opens no port of the machine, and leaves cgroups alone.
const KUBELET: &str = "
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
enableServer: false
healthzPort: 0
authentication: {anonymous: {enabled: false}, webhook: {enabled: false}}
authorization: {mode: AlwaysAllow}
failCgroupV1: false
failSwapOn: false
cgroupDriver: cgroupfs
cgroupsPerQOS: false
enforceNodeAllocatable: []
localStorageCapacityIsolation: false
nodeStatusUpdateFrequency: 2s
";

/// A node. It is stopped, and everything of it gone, when this is dropped.
#[derive(Debug)]
pub struct Node {
    // Ended before its files go.
    container: Server,
    leader: u32,
    _root: TempDir,
}

impl Node {
    /// Starts a node of this name with these images, and waits until its Node is ready.
    ///
    /// # Errors
    /// If it does not get ready, with the last that it said.
    pub fn start(cluster: &Cluster, name: &str, images: &[&Path]) -> Result<Self> {
        let template = made("NODEWARD_NODE_ROOT")?;
        // Beside the template: on a disk, as containerd needs it, and where there is room.
        let beside = template.parent().context("the node's root is not /")?;
        let root = tempfile::Builder::new().prefix("node-").tempdir_in(beside)?;
        output(Command::new("cp").args(["--archive", "--reflink=auto", "--no-target-directory"]).arg(&template).arg(root.path()))?;
        furnish(root.path(), cluster, name, images)?;
        remove_cgroups();
        let log = cluster.dir().join(format!("{name}.log"));
        let container = Server::start(&log, "systemd-nspawn", |command| {
            // Writable: the kubelet and containerd make cgroups and write below /proc.
            command.env("SYSTEMD_NSPAWN_API_VFS_WRITABLE", "1");
            command.args(["--quiet", "--register=no", "--keep-unit", "--boot", "--capability=all", "--bind=/dev/kmsg"]);
            command.arg("--system-call-filter=@keyring bpf perf_event_open").arg("--property=DeviceAllow=char-* rwm");
            command.arg(format!("--machine={name}")).arg("--directory").arg(root.path());
        })?;
        // The network is the machine's own, so that 127.0.0.1 reaches the API server.
        let mut node = Self { container, leader: 0, _root: root };
        if let Err(e) = node.wait_ready(cluster, name) {
            let journal =
                if node.leader > 0 { node.run(&["journalctl", "--no-pager", "-n", "60"]).unwrap_or_default() } else { String::new() };
            return Err(e.context(format!("{}\n{journal}", node.container.last_words())));
        }
        Ok(node)
    }

    fn wait_ready(&mut self, cluster: &Cluster, name: &str) -> Result<()> {
        let outer = self.container.pid();
        self.leader = wait::until("the container's systemd", START, || {
            let children = fs::read_to_string(format!("/proc/{outer}/task/{outer}/children"))?;
            let pid: u32 = children.split_whitespace().next().context("no child yet")?.parse()?;
            let program = fs::read_link(format!("/proc/{pid}/exe"))?;
            ensure!(program.ends_with("lib/systemd/systemd"), "still {}", program.display());
            Ok(pid)
        })?;
        wait::until("the Node to be ready", START, || {
            let node = cluster.get(&["node", name])?;
            let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
            let ready = conditions.iter().find(|c| c["type"] == "Ready").context("no condition Ready")?;
            ensure!(ready["status"] == "True", "{}", ready["message"]);
            Ok(())
        })
    }

    /// Runs a program in the node and gives what it printed.
    ///
    /// # Errors
    /// If it fails, with what it said.
    pub fn run(&self, command: &[&str]) -> Result<String> {
        output(Command::new("nsenter").args(["--target", &self.leader.to_string(), "--all", "--"]).args(command))
    }

    /// Where this path of the node is for us.
    #[must_use]
    pub fn path(&self, on_node: &str) -> PathBuf {
        PathBuf::from(format!("/proc/{}/root", self.leader)).join(on_node.trim_start_matches('/'))
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        // Orderly if it can, so that nothing is left in the machine's cgroups; dropping the container kills what remains.
        if self.leader > 0 && self.run(&["systemctl", "poweroff"]).is_ok() {
            let container = &mut self.container;
            let _ = wait::until("the container's end", STOP, || container.ended().ok().flatten().ok_or("still there"));
        }
        self.container.kill();
        remove_cgroups();
    }
}

/// Removes the cgroups that systemd-nspawn makes in its own, and leaves: where only some are left, the next one cannot start.
fn remove_cgroups() {
    let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let place = own.lines().find_map(|line| line.split_once(":name=systemd:").or_else(|| line.split_once("0::"))).map(|(_, path)| path);
    for hierarchy in ["/sys/fs/cgroup/systemd", "/sys/fs/cgroup/unified", "/sys/fs/cgroup"] {
        for left in ["payload", "supervisor"] {
            remove_cgroup(&Path::new(hierarchy).join(place.unwrap_or_default().trim_matches('/')).join(left));
        }
    }
}

/// Removes a cgroup and those below it, as far as nothing runs there.
fn remove_cgroup(dir: &Path) {
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            remove_cgroup(&entry.path());
        }
    }
    let _ = fs::remove_dir(dir);
}

/// Puts everything into the root that makes it a node.
fn furnish(root: &Path, cluster: &Cluster, name: &str, images: &[&Path]) -> Result<()> {
    let write = |path: &str, text: &str| -> Result<()> {
        let file = root.join(path);
        fs::create_dir_all(file.parent().unwrap_or(root))?;
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    };
    fs::create_dir_all(root.join("usr/local/bin"))?;
    for program in ["kubelet", "containerd", "containerd-shim-runc-v2", "ctr"] {
        fs::copy(cluster.program(program), root.join("usr/local/bin").join(program)).with_context(|| format!("cannot copy {program}"))?;
    }
    let mut imports = "ExecStartPost=/usr/local/bin/ctr -n k8s.io images import /root/pause.tar\n".to_owned();
    for (number, image) in images.iter().enumerate() {
        fs::copy(image, root.join(format!("root/image-{number}.tar"))).with_context(|| format!("cannot copy {}", image.display()))?;
        writeln!(imports, "ExecStartPost=/usr/local/bin/ctr -n k8s.io images import /root/image-{number}.tar")?;
    }
    let mut covers = String::new();
    for (sysctl, value) in KUBELET_SYSCTLS {
        write(&format!("root/sysctl/{sysctl}"), value)?;
        writeln!(covers, "ExecStart=/bin/mount --bind /root/sysctl/{sysctl} /proc/sys/{sysctl}")?;
    }
    write("etc/hostname", name)?;
    write("etc/containerd/config.toml", CONTAINERD)?;
    write("etc/cni/net.d/10-none.conflist", NETWORK)?;
    write("etc/kubernetes/kubelet.yaml", KUBELET)?;
    for file in ["ca.crt", "admin.crt", "admin.key"] {
        fs::copy(cluster.dir().join(file), root.join("etc/kubernetes").join(file))?;
    }
    fs::copy(cluster.kubeconfig(), root.join("etc/kubernetes/kubeconfig"))?;
    let units = [
        (
            "machine.service",
            "[Unit]\nBefore=containerd.service kubelet.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\n\
             ExecStart=/bin/sh -c 'for c in $(awk \"\\\\$3==\\\\\"cgroup\\\\\"{print \\\\$2}\" /proc/mounts); do mount -o remount,rw,bind $c; done'\n"
                .to_owned()
                + &covers,
        ),
        ("containerd.service", format!("[Service]\nType=notify\nExecStart=/usr/local/bin/containerd\n{imports}Delegate=yes\nKillMode=process\n")),
        (
            "kubelet.service",
            format!(
                "[Unit]\nAfter=containerd.service machine.service\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=1\n\
                 ExecStart=/usr/local/bin/kubelet --config /etc/kubernetes/kubelet.yaml --kubeconfig /etc/kubernetes/kubeconfig \
                 --hostname-override {name}\n"
            ),
        ),
    ];
    for (unit, text) in units {
        write(&format!("etc/systemd/system/{unit}"), &text)?;
        let wants = root.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants)?;
        symlink(format!("/etc/systemd/system/{unit}"), wants.join(unit))?;
    }
    Ok(())
}
