//! The whole tier: a real Kubernetes whose one node runs our image.

use tests_cluster::{cluster::Cluster, node::Node};

#[test]
fn ready() {
    let cluster = Cluster::start().unwrap();
    let _controllers = cluster.start_controllers().unwrap();
    let node = Node::start(&cluster, "nodeward-whole", &[]).unwrap();
    eprintln!("{}", cluster.kubectl(&["get", "node", "-o", "wide"]).unwrap());
    eprintln!("{}", node.run(&["cat", "/proc/self/cgroup", "/proc/sys/kernel/panic"]).unwrap());
}
