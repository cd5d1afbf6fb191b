//! Invariant 23: wherever a controller dies, the same Machines are replaced in the end.

use tests_simulation::{
    run::{self, Outcome},
    script::{Disturbance, Sick, What},
    seconds,
    setup::{self, Kind},
    world::World,
};

/// A pool with one machine that is ill, and a crash at this effect; `after`: the effect was done, and nobody knows.
fn play(kind: Kind, machines: usize, sick: Sick, heals: bool, crash: Option<(u32, bool)>) -> Outcome {
    let mut world = World::new(1, true);
    let cluster = setup::new_cluster(0, world.now);
    world.state.clusters.push(cluster);
    setup::add_pool(&mut world, 0, kind, machines, setup::policy(kind));
    for _ in 0..machines {
        world.create_machine(0, None);
    }
    let mut script = vec![Disturbance { at: seconds(100), what: What::Sicken { machine: 1, sick, heals, lasts: None } }];
    script.extend(crash.map(|(effects, after)| Disturbance { at: seconds(50), what: What::Crash { controller: 0, effects, after } }));
    script.sort_by_key(|d| d.at);
    run::follow(world, 1, script)
}

fn assert_same(kind: Kind, machines: usize, sick: Sick, heals: bool) {
    let without = play(kind, machines, sick, heals, None);
    assert_eq!(without.violation, None);
    let mut crashed = 0;
    for effects in 0..40 {
        for after in [false, true] {
            let with = play(kind, machines, sick, heals, Some((effects, after)));
            crashed += usize::from(with.trace.iter().any(|line| line.contains(" dies ")));
            let tail = || with.trace.iter().rev().take(60).rev().cloned().collect::<Vec<_>>().join("\n");
            assert_eq!(with.violation, None, "{}\ncrash at effect {effects}, after it: {after}", tail());
            // An intent of which nobody knows may skip the reboot that would have helped.
            let skipped = with.reboots < without.reboots;
            assert!(with.removals == without.removals || skipped, "{}\ncrash at effect {effects}, after it: {after}", tail());
        }
    }
    assert!(crashed >= 10, "only {crashed} crashes happened");
}

#[test]
fn a_crash_anywhere_changes_no_replacement_of_a_cloud_worker() {
    assert_same(Kind::CloudWorker, 4, Sick::Hang, false);
}

#[test]
fn a_crash_anywhere_replaces_nothing_that_a_reboot_heals() {
    assert_same(Kind::CloudWorker, 4, Sick::Hang, true);
}

#[test]
fn a_crash_anywhere_changes_no_replacement_of_a_control_plane() {
    assert_same(Kind::CloudControlPlane, 3, Sick::NotReady, false);
}

#[test]
fn a_crash_anywhere_changes_no_reinstallation_of_a_server() {
    assert_same(Kind::MetalWorker, 4, Sick::NotReady, false);
}
