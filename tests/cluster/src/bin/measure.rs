//! Measures the agent that ships against a real API server: how soon a fault is on the Node, what the agent keeps in memory, how often it wakes
//! while nothing happens. Prints rows for `cargo xtask bench`: what, measured, beside it, goal.
#![allow(clippy::print_stdout, clippy::print_stderr, clippy::disallowed_methods)] // a measurement, for people

use std::{
    fs::{self, File, OpenOptions},
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, SystemTime},
};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use tests_cluster::{
    cluster::{Cluster, free_ports},
    made,
    server::{Server, output},
    wait,
};

const NODE: &str = "measured";
/// As many as a condition names one by one.
const DISKS: usize = 3;
const ROUNDS: usize = 34;
const SOON: Duration = Duration::from_secs(60);
/// How long nothing happens.
const IDLE: Duration = Duration::from_secs(30);
/// Records of the flood; every tenth is one that the agent tells of.
const FLOOD: usize = 100_000;

/// Every accepted patch, with its times and its content.
const AUDIT: &str = "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n\
                     - {level: Request, verbs: [patch], resources: [{group: \"\", resources: [nodes/status]}]}\n- {level: None}\n";

fn main() -> Result<()> {
    let cluster = Cluster::start_with(|dir| {
        fs::write(dir.join("audit.yaml"), AUDIT)?;
        let file = |name: &str| dir.join(name).display().to_string();
        Ok(vec!["--audit-policy-file".into(), file("audit.yaml"), "--audit-log-path".into(), file("audit.log")])
    })?;
    cluster.apply(&json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NODE}}).to_string())?;
    let dir = tempfile::tempdir()?;
    let disks = (0..DISKS).map(|number| Disk::make(&dir.path().join(number.to_string()))).collect::<Result<Vec<_>>>()?;
    let [port] = free_ports()?;
    let paths: Vec<_> = disks.iter().map(|disk| disk.mount_point.display().to_string()).collect();
    let config = json!({
        "nodeFilesystems": {"paths": paths},
        "kernelLog": {"acceptUserspace": true},
        "http": {"address": format!("127.0.0.1:{port}")},
        "host": {"stateDirectory": dir.path().join("state")},
    });
    // YAML is a superset of JSON.
    fs::write(dir.path().join("config.yaml"), config.to_string())?;
    let agent = Server::start(&dir.path().join("agent.log"), made("NODEWARD_AGENT")?, |command| {
        command.args(["run", "--node-name", NODE, "--kubeconfig"]).arg(cluster.kubeconfig());
        command.arg("--config").arg(dir.path().join("config.yaml"));
    })?;
    let measured = measure(&cluster, &agent, &disks);
    if measured.is_err() {
        eprintln!("{}", agent.last_words());
    }
    measured
}

fn measure(cluster: &Cluster, agent: &Server, disks: &[Disk]) -> Result<()> {
    let audit = Audit { file: cluster.dir().join("audit.log") };
    is_read_only(cluster, "False")?;
    let process = PathBuf::from(format!("/proc/{}", agent.pid()));

    let before = wakes(&process)?;
    pass(IDLE)?;
    let per_second = (wakes(&process)? - before) as f64 / IDLE.as_secs_f64();
    let idle = resident(&process)?;

    let mut latency = Vec::new();
    let mut answer = Vec::new();
    for _ in 0..ROUNDS {
        for disk in disks {
            let start = SystemTime::now();
            disk.fail()?;
            let patch = wait::until("the patch", SOON, || audit.patch_that_names(disk, start))?;
            latency.push(patch.accepted);
            answer.push(patch.answered_in);
        }
        disks.iter().try_for_each(Disk::mount_again)?;
        is_read_only(cluster, "False")?;
    }

    flood()?;
    pass(Duration::from_secs(5))?;
    let flooded = resident(&process)?;

    let row = |what: &str, measured: String, beside: String, goal: &str| println!("{what}\t{measured}\t{beside}\t{goal}");
    for (name, share, goal) in [("median", 0.5, "< 5 ms"), ("99th percentile", 0.99, "< 25 ms")] {
        let beside = format!("API server's own answer: {}", milliseconds(quantile(&mut answer, share)));
        row(&format!("ext4 error to accepted PATCH, {name}"), milliseconds(quantile(&mut latency, share)), beside, goal);
    }
    let kept = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    row("memory, idle", kept(idle.now), format!("of it the program's own file: {}", kept(idle.file)), "< 12 MiB");
    row(&format!("memory, after {FLOOD} log records"), kept(flooded.now), format!("most at any time: {}", kept(flooded.most)), "< 12 MiB");
    row("wake-ups a second, idle", format!("{per_second:.2}"), format!("over {IDLE:?}"), "");
    Ok(())
}

/// An ext4 filesystem on a loop device.
struct Disk {
    device: PathBuf,
    mount_point: PathBuf,
}

impl Disk {
    fn make(place: &Path) -> Result<Self> {
        let image = place.with_extension("img");
        File::create(&image)?.set_len(16 << 20)?;
        output(Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image))?;
        fs::create_dir(place)?;
        let device = output(Command::new("losetup").args(["--find", "--show"]).arg(&image))?;
        let disk = Self { device: device.trim().into(), mount_point: place.into() };
        disk.mount()?;
        Ok(disk)
    }

    fn name(&self) -> &str {
        self.device.file_name().and_then(|name| name.to_str()).unwrap_or_default()
    }

    fn mount(&self) -> Result<()> {
        output(Command::new("mount").args(["-o", "errors=remount-ro"]).arg(&self.device).arg(&self.mount_point)).map(drop)
    }

    fn mount_again(&self) -> Result<()> {
        output(Command::new("umount").arg(&self.mount_point))?;
        self.mount()
    }

    /// Makes ext4 meet an error (fs/ext4/sysfs.c: `trigger_fs_error` calls `ext4_error`).
    fn fail(&self) -> Result<()> {
        Ok(fs::write(format!("/sys/fs/ext4/{}/trigger_fs_error", self.name()), "measured")?)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = output(Command::new("umount").arg(&self.mount_point));
        let _ = output(Command::new("losetup").arg("--detach").arg(&self.device));
    }
}

/// The API server's record of what it accepted.
struct Audit {
    file: PathBuf,
}

struct Patch {
    /// Since the fault.
    accepted: Duration,
    /// Since the API server had the request.
    answered_in: Duration,
}

impl Audit {
    /// The first patch after this moment that speaks of this disk.
    fn patch_that_names(&self, disk: &Disk, after: SystemTime) -> Result<Patch> {
        let text = fs::read_to_string(&self.file)?;
        let mount_point = disk.mount_point.display().to_string();
        // The last lines first: they are many.
        let mut found = None;
        for line in text.lines().rev().filter(|line| line.ends_with('}')) {
            let event: Value = serde_json::from_str(line)?;
            let done = time(&event["stageTimestamp"])?;
            if done < after {
                break;
            }
            let says = event["requestObject"]["status"]["conditions"].to_string();
            if event["responseStatus"]["code"] == 200 && says.contains(&mount_point) {
                let received = time(&event["requestReceivedTimestamp"])?;
                found = Some(Patch { accepted: done.duration_since(after)?, answered_in: done.duration_since(received)? });
            }
        }
        found.context("no such patch yet")
    }
}

/// RFC 3339 with microseconds.
fn time(value: &Value) -> Result<SystemTime> {
    let at: jiff::Timestamp = value.as_str().context("no time")?.parse()?;
    Ok(at.into())
}

fn is_read_only(cluster: &Cluster, status: &str) -> Result<()> {
    wait::until("the condition", SOON, || {
        let node = cluster.get(&["node", NODE])?;
        let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
        let condition = conditions.find(|c| c["type"] == "ReadonlyFilesystem").context("no condition")?;
        ensure!(condition["status"] == status, "{condition}");
        Ok(())
    })
}

/// How often all threads of a process have gone to sleep of their own accord.
fn wakes(process: &Path) -> Result<u64> {
    let threads = fs::read_dir(process.join("task"))?;
    threads.map(|thread| field(&thread?.path().join("status"), "voluntary_ctxt_switches:")).sum()
}

struct Resident {
    now: u64,
    most: u64,
    file: u64,
}

fn resident(process: &Path) -> Result<Resident> {
    let status = process.join("status");
    let bytes = |name: &str| Ok::<_, anyhow::Error>(field(&status, name)? * 1024);
    Ok(Resident { now: bytes("VmRSS:")?, most: bytes("VmHWM:")?, file: bytes("RssFile:")? })
}

fn field(file: &Path, name: &str) -> Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find_map(|line| line.strip_prefix(name)).with_context(|| format!("no {name} in {}", file.display()))?;
    Ok(line.split_whitespace().next().unwrap_or_default().parse()?)
}

/// Fills the kernel log, at a level that no console shows. Writers are limited unless `printk_devkmsg` is on.
fn flood() -> Result<()> {
    const LIMIT: &str = "/proc/sys/kernel/printk_devkmsg";
    let limit = fs::read_to_string(LIMIT)?;
    // The kernel wants the line's end too.
    fs::write(LIMIT, "on\n")?;
    let written = (|| {
        let mut log = OpenOptions::new().write(true).open("/dev/kmsg")?;
        for number in 0..FLOOD {
            let text =
                if number % 10 == 0 { "I/O error, dev nodeward-measured, sector" } else { "nodeward measures: nothing happened in round" };
            log.write_all(format!("<7>{text} {number}\n").as_bytes())?;
        }
        Ok(())
    })();
    fs::write(LIMIT, limit)?;
    written
}

/// Lets time pass.
fn pass(time: Duration) -> Result<()> {
    let over = SystemTime::now() + time;
    wait::until("time to pass", time + SOON, || if SystemTime::now() >= over { Ok(()) } else { Err("not yet") })
}

fn quantile(values: &mut [Duration], share: f64) -> Duration {
    values.sort_unstable();
    let rank = (values.len() as f64 * share).ceil() as usize;
    values.get(rank.saturating_sub(1)).copied().unwrap_or_default()
}

fn milliseconds(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}
