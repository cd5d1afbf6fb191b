//! Objects of a living management cluster and its workload clusters, for `explain`: only reads.

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Secret;
use kube::{
    Api, Client, Config,
    api::{DynamicObject, ListParams},
    config::{KubeConfigOptions, Kubeconfig},
    discovery::{Discovery, Scope},
};

use crate::world::World;

/// Groups of the management cluster whose objects matter, and the kinds of each; none: all.
const MANAGEMENT: [(&str, &[&str]); 4] = [
    ("nodeward.dev", &[]),
    ("cluster.x-k8s.io", &["Cluster", "Machine", "MachineSet", "MachineDeployment", "MachineHealthCheck"]),
    ("controlplane.cluster.x-k8s.io", &["KubeadmControlPlane"]),
    ("infrastructure.cluster.x-k8s.io", &["HetznerBareMetalMachine", "HetznerBareMetalHost"]),
];
/// And of a workload cluster.
const WORKLOAD: [(&str, &[&str]); 2] = [("", &["Node"]), ("coordination.k8s.io", &["Lease"])];

/// Everything `explain` needs, by the current context of this kubeconfig. What of a workload cluster cannot be read is said.
///
/// # Errors
/// If the management cluster cannot be read.
pub async fn fetch(kubeconfig: Kubeconfig) -> Result<(World, Vec<String>)> {
    let mut world = World::default();
    let client = client(kubeconfig).await?;
    add(&mut world, &client, &MANAGEMENT).await.context("cannot read the management cluster")?;
    let mut unread = Vec::new();
    for (namespace, name) in world.clusters() {
        if let Err(e) = workload(&mut world, &client, &namespace, &name).await {
            unread.push(format!("cannot read the nodes of {namespace}/{name}: {e:#}"));
        }
    }
    Ok((world, unread))
}

async fn client(kubeconfig: Kubeconfig) -> Result<Client> {
    let config =
        Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await.context("the kubeconfig cannot be used")?;
    Client::try_from(config).context("the kubeconfig cannot be used")
}

async fn workload(world: &mut World, management: &Client, namespace: &str, name: &str) -> Result<()> {
    let secrets: Api<Secret> = Api::namespaced(management.clone(), namespace);
    let secret = secrets.get(&format!("{name}-kubeconfig")).await?;
    let value = secret.data.as_ref().and_then(|data| data.get("value")).context("its Secret has no key \"value\"")?;
    let text = std::str::from_utf8(&value.0).context("its kubeconfig is no text")?;
    let client = client(Kubeconfig::from_yaml(text)?).await?;
    add(world, &client, &WORKLOAD).await
}

async fn add(world: &mut World, client: &Client, wanted: &[(&str, &[&str])]) -> Result<()> {
    let groups: Vec<&str> = wanted.iter().map(|(group, _)| *group).collect();
    let discovery = Discovery::new(client.clone()).filter(&groups).run().await?;
    for (group, kinds) in wanted {
        let Some(found) = discovery.get(group) else { continue };
        for (resource, capabilities) in found.recommended_resources() {
            if !kinds.is_empty() && !kinds.contains(&resource.kind.as_str()) {
                continue;
            }
            let api: Api<DynamicObject> = match capabilities.scope {
                Scope::Cluster | Scope::Namespaced => Api::all_with(client.clone(), &resource),
            };
            let mut page = ListParams::default().limit(500);
            loop {
                let list = api.list(&page).await.with_context(|| format!("cannot list {}", resource.plural))?;
                for object in &list.items {
                    let mut value = serde_json::to_value(object)?;
                    if let Some(map) = value.as_object_mut() {
                        map.insert("kind".into(), resource.kind.clone().into());
                    }
                    world.add(value);
                }
                match list.metadata.continue_.filter(|token| !token.is_empty()) {
                    Some(token) => page = page.continue_token(&token),
                    None => break,
                }
            }
        }
    }
    Ok(())
}
