//! The simulated owner does what the real controllers of Cluster API 1.14.2 were seen to do.

use controller_core::{
    policy::Status,
    view::{OwnerKind, Verdict},
};
use tests_simulation::{
    script::Sick,
    seconds,
    setup::{self, Kind},
    state::verdict,
    world::{Event, World},
};

/// A cluster whose machines are all Ready, without any controller of ours.
fn world(kinds: &[(Kind, usize)]) -> World {
    let mut world = World::new(7, false);
    let cluster = setup::new_cluster(0, world.now);
    world.state.clusters.push(cluster);
    for (pool, (kind, machines)) in kinds.iter().enumerate() {
        setup::add_pool(&mut world, 0, *kind, *machines, setup::policy(*kind));
        for _ in 0..*machines {
            world.create_machine(pool, None);
        }
    }
    run(&mut world, 600);
    assert!(world.state.machines.iter().all(|m| m.body.ready.status == Some(Status::True)));
    world
}

fn run(world: &mut World, for_seconds: u64) {
    let end = world.now + seconds(for_seconds);
    while world.advance(end).is_some() {}
    world.now = end;
}

fn uid(world: &World, pool: usize, nth: usize) -> String {
    world.state.members(pool).nth(nth).expect("the pool has as many machines").machine.uid.clone()
}

fn no(reason: &str) -> Option<Verdict> {
    Some(verdict(Status::False, reason, "nodeward: a test"))
}

fn mark(world: &mut World, uid: &str) {
    world.state.write(uid, |m| {
        m.health_check_succeeded = no("UnhealthyNode");
        m.owner_remediated = no("WaitingForRemediation");
    });
    let pool = world.state.machine(uid).expect("it exists").pool;
    world.after(seconds(1), Event::Owner(pool));
}

fn deleting(world: &World, uid: &str) -> bool {
    world.state.machine(uid).is_none_or(|m| m.machine.deleting_since.is_some())
}

fn says(world: &World, uid: &str) -> String {
    world.state.machine(uid).and_then(|m| m.machine.owner_remediated.clone()).map(|v| v.reason).unwrap_or_default()
}

#[test]
fn a_marked_worker_is_deleted_within_seconds_and_replaced_once_it_is_gone() {
    let mut w = world(&[(Kind::CloudWorker, 3)]);
    let marked = uid(&w, 0, 1);
    mark(&mut w, &marked);
    run(&mut w, 2);
    assert!(deleting(&w, &marked));
    assert_eq!(says(&w, &marked), "MachineDeleting");
    assert_eq!(w.state.members(0).count(), 3, "no replacement before it is gone");
    run(&mut w, 600);
    assert!(w.state.machine(&marked).is_none());
    assert_eq!(w.state.members(0).count(), 3);
}

#[test]
fn one_of_the_two_conditions_alone_is_no_request() {
    let mut w = world(&[(Kind::CloudWorker, 3)]);
    let (a, b, c) = (uid(&w, 0, 0), uid(&w, 0, 1), uid(&w, 0, 2));
    w.state.write(&a, |m| m.health_check_succeeded = no("UnhealthyNode"));
    w.state.write(&b, |m| m.owner_remediated = no("WaitingForRemediation"));
    w.state.write(&c, |m| {
        m.health_check_succeeded = no("UnhealthyNode");
        m.owner_remediated = Some(verdict(Status::Unknown, "WaitingForRemediation", ""));
    });
    w.after(seconds(1), Event::Owner(0));
    run(&mut w, 60);
    assert!(![a, b, c].iter().any(|uid| deleting(&w, uid)));
}

#[test]
fn what_is_withdrawn_before_the_owner_looks_survives_and_deletion_is_not_undone() {
    let mut w = world(&[(Kind::CloudWorker, 3)]);
    let (early, late) = (uid(&w, 0, 0), uid(&w, 0, 1));
    mark(&mut w, &early);
    w.state.write(&early, |m| (m.health_check_succeeded, m.owner_remediated) = (None, None));
    mark(&mut w, &late);
    run(&mut w, 3);
    w.state.write(&late, |m| (m.health_check_succeeded, m.owner_remediated) = (None, None));
    run(&mut w, 300);
    assert!(!deleting(&w, &early));
    assert!(w.state.machine(&late).is_none());
}

#[test]
fn max_in_flight_of_one_lets_them_go_one_after_the_other_and_none_lets_all_go_at_once() {
    for (most, at_once) in [(Some(1), 1), (None, 3), (Some(0), 0)] {
        let mut w = world(&[(Kind::CloudWorker, 4)]);
        w.state.pools[0].owner_in_flight = most;
        let uids: Vec<String> = (0..3).map(|n| uid(&w, 0, n)).collect();
        uids.iter().for_each(|uid| mark(&mut w, uid));
        run(&mut w, 2);
        assert_eq!(uids.iter().filter(|uid| deleting(&w, uid)).count(), at_once, "{most:?}");
        assert!(uids.iter().filter(|uid| !deleting(&w, uid)).all(|uid| says(&w, uid) == "RemediationDeferred"));
        run(&mut w, 1200);
        let left = uids.iter().filter(|uid| w.state.machine(uid).is_some()).count();
        assert_eq!(left, if at_once == 0 { 3 } else { 0 }, "{most:?}");
    }
}

#[test]
fn our_own_deletions_do_not_count_against_max_in_flight() {
    let mut w = world(&[(Kind::CloudWorker, 4)]);
    w.state.pools[0].owner_in_flight = Some(1);
    let (deleted, marked) = (uid(&w, 0, 0), uid(&w, 0, 1));
    w.delete_machine(&deleted);
    mark(&mut w, &marked);
    run(&mut w, 2);
    assert!(deleting(&w, &marked));
}

#[test]
fn a_machine_of_the_old_revision_cannot_be_remediated_the_rollout_removes_it() {
    let mut w = world(&[(Kind::CloudWorker, 3)]);
    w.state.pools[0].revision = 2;
    w.state.pools[0].owner.rolling_out = true;
    w.state.machines.iter_mut().for_each(|m| m.machine.outdated = true);
    let marked = uid(&w, 0, 2);
    mark(&mut w, &marked);
    run(&mut w, 3);
    assert_eq!(says(&w, &marked), "CannotBeRemediated");
    assert!(!deleting(&w, &marked));
    run(&mut w, 3600);
    assert!(w.state.machines.iter().all(|m| m.revision == 2));
    assert_eq!(w.state.members(0).count(), 3);
}

#[test]
fn a_worker_waits_while_its_control_plane_upgrades() {
    let mut w = world(&[(Kind::CloudControlPlane, 1), (Kind::CloudWorker, 2)]);
    w.state.pools[0].revision = 2;
    w.state.pools[0].owner.rolling_out = true;
    let marked = uid(&w, 1, 0);
    mark(&mut w, &marked);
    run(&mut w, 3);
    assert_eq!(says(&w, &marked), "RemediationDeferred");
    w.after(seconds(1), Event::Owner(0));
    run(&mut w, 3600);
    assert!(w.state.machine(&marked).is_none(), "deleted once the upgrade ended");
}

#[test]
fn a_machine_that_is_deleted_directly_is_replaced_too() {
    for kind in [Kind::CloudWorker, Kind::CloudControlPlane] {
        let mut w = world(&[(kind, 3)]);
        let deleted = uid(&w, 0, 0);
        w.delete_machine(&deleted);
        run(&mut w, 900);
        assert!(w.state.machine(&deleted).is_none());
        assert_eq!(w.state.members(0).filter(|m| m.body.ready.status == Some(Status::True)).count(), 3);
    }
}

#[test]
fn a_control_plane_removes_one_at_a_time() {
    let mut w = world(&[(Kind::CloudControlPlane, 3)]);
    assert_eq!(w.state.pools[0].owner.kind, OwnerKind::ControlPlane);
    let (first, second) = (uid(&w, 0, 0), uid(&w, 0, 1));
    mark(&mut w, &first);
    mark(&mut w, &second);
    run(&mut w, 3);
    assert!(deleting(&w, &first));
    assert!(!deleting(&w, &second));
    assert_eq!(says(&w, &second), "RemediationDeferred");
    run(&mut w, 1800);
    assert!(w.state.machine(&second).is_none(), "done when the first was replaced");
}

#[test]
fn the_only_control_plane_machine_cannot_be_remediated() {
    let mut w = world(&[(Kind::CloudControlPlane, 1)]);
    let only = uid(&w, 0, 0);
    mark(&mut w, &only);
    run(&mut w, 60);
    assert_eq!(says(&w, &only), "CannotBeRemediated");
    assert!(!deleting(&w, &only));
}

#[test]
fn a_dead_etcd_does_not_keep_the_control_plane_from_removing_another_member() {
    let mut w = world(&[(Kind::CloudControlPlane, 3)]);
    let (dead, healthy) = (uid(&w, 0, 0), uid(&w, 0, 1));
    w.state.machine_mut(&dead).expect("it exists").body.sick.push(tests_simulation::body::Ailment {
        sick: Sick::EtcdDead,
        heals: false,
        until: None,
    });
    w.touch(&dead);
    let machine = &w.state.machine(&dead).expect("it exists").machine;
    assert_eq!((machine.etcd_pod_healthy, machine.etcd_member_healthy), (Some(Status::False), Some(Status::True)));
    mark(&mut w, &healthy);
    run(&mut w, 3);
    assert!(deleting(&w, &healthy), "so we must ask for the pod ourselves");
}

#[test]
fn a_paused_cluster_or_owner_holds_a_request_a_paused_machine_does_not() {
    for (cluster, owner, held) in [(true, false, true), (false, true, true), (false, false, false)] {
        let mut w = world(&[(Kind::CloudWorker, 3)]);
        w.state.clusters[0].paused = cluster;
        w.state.pools[0].owner.paused = owner;
        let marked = uid(&w, 0, 0);
        w.state.write(&marked, |m| drop(m.annotations.insert("cluster.x-k8s.io/paused".to_owned(), String::new())));
        mark(&mut w, &marked);
        run(&mut w, 60);
        assert_eq!(deleting(&w, &marked), !held);
        w.state.clusters[0].paused = false;
        w.state.pools[0].owner.paused = false;
        w.after(seconds(1), Event::Owner(0));
        run(&mut w, 60);
        assert!(deleting(&w, &marked), "left marked while paused: deleted on unpause");
    }
}

#[test]
fn a_paused_machine_that_is_being_deleted_waits() {
    let mut w = world(&[(Kind::CloudWorker, 3)]);
    let paused = uid(&w, 0, 0);
    w.delete_machine(&paused);
    w.state.write(&paused, |m| drop(m.annotations.insert("cluster.x-k8s.io/paused".to_owned(), String::new())));
    w.state.note_pauses(w.now);
    run(&mut w, 900);
    assert!(w.state.machine(&paused).is_some());
    w.state.write(&paused, |m| drop(m.annotations.remove("cluster.x-k8s.io/paused")));
    w.state.note_pauses(w.now);
    run(&mut w, 60);
    assert!(w.state.machine(&paused).is_none());
}

#[test]
fn scaling_down_prefers_a_machine_that_failed_its_health_check() {
    let mut w = world(&[(Kind::CloudWorker, 4)]);
    let failed = uid(&w, 0, 0);
    w.state.write(&failed, |m| m.health_check_succeeded = no("UnhealthyNode"));
    w.state.pools[0].replicas = 3;
    w.after(seconds(1), Event::Owner(0));
    run(&mut w, 600);
    assert!(w.state.machine(&failed).is_none());
    assert_eq!(w.state.members(0).count(), 3);
}
