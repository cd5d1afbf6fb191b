//! Kubernetes objects as they come, as JSON: how to find things in them that differ between API versions or may be missing.

pub mod cluster;
pub mod machine;
pub mod node;

use controller_core::{policy::Status, time::Time, view::Texts};
use serde_json::Value;

/// An object of any kind.
#[derive(Clone, Debug)]
pub struct Object(pub Value);

/// A condition of an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition {
    /// Status.
    pub status: Status,
    /// Reason.
    pub reason: String,
    /// Message.
    pub message: String,
    /// `lastTransitionTime`.
    pub transition: Option<Time>,
    /// `lastHeartbeatTime`.
    pub heartbeat: Option<Time>,
}

impl Object {
    /// Text at a JSON pointer.
    #[must_use]
    pub fn text(&self, pointer: &str) -> Option<&str> {
        self.0.pointer(pointer)?.as_str()
    }

    /// Text at a JSON pointer, or none of it.
    #[must_use]
    pub fn string(&self, pointer: &str) -> String {
        self.text(pointer).unwrap_or_default().to_owned()
    }

    /// Time at a JSON pointer.
    #[must_use]
    pub fn time(&self, pointer: &str) -> Option<Time> {
        self.text(pointer)?.parse().ok()
    }

    /// Whether `true` is at a JSON pointer.
    #[must_use]
    pub fn is(&self, pointer: &str) -> bool {
        self.0.pointer(pointer) == Some(&Value::Bool(true))
    }

    /// Whether anything is at a JSON pointer.
    #[must_use]
    pub fn has(&self, pointer: &str) -> bool {
        self.0.pointer(pointer).is_some_and(|value| !value.is_null())
    }

    /// Number at a JSON pointer.
    #[must_use]
    pub fn number(&self, pointer: &str) -> Option<u64> {
        self.0.pointer(pointer)?.as_u64()
    }

    /// Texts at a JSON pointer.
    #[must_use]
    pub fn texts(&self, pointer: &str) -> Texts {
        let map = self.0.pointer(pointer).and_then(Value::as_object);
        map.into_iter().flatten().filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned()))).collect()
    }

    /// Kind.
    #[must_use]
    pub fn kind(&self) -> &str {
        self.text("/kind").unwrap_or_default()
    }

    /// Name.
    #[must_use]
    pub fn name(&self) -> &str {
        self.text("/metadata/name").unwrap_or_default()
    }

    /// Namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        self.text("/metadata/namespace").unwrap_or_default()
    }

    /// UID.
    #[must_use]
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid").unwrap_or_default()
    }

    /// `metadata.annotations`.
    #[must_use]
    pub fn annotations(&self) -> Texts {
        self.texts("/metadata/annotations")
    }

    /// `metadata.labels`.
    #[must_use]
    pub fn labels(&self) -> Texts {
        self.texts("/metadata/labels")
    }

    /// Whether it carries Cluster API's pause annotation.
    #[must_use]
    pub fn is_annotated_paused(&self) -> bool {
        self.annotations().contains_key(controller_core::PAUSED)
    }

    /// The controlling owner: kind and name.
    #[must_use]
    pub fn controller(&self) -> Option<(&str, &str)> {
        let owners = self.0.pointer("/metadata/ownerReferences")?.as_array()?;
        let owner = owners.iter().find(|o| o.get("controller") == Some(&Value::Bool(true)))?;
        Some((owner.get("kind")?.as_str()?, owner.get("name")?.as_str()?))
    }

    /// A condition: of Cluster API's new list if there is one, else of the only list.
    #[must_use]
    pub fn condition(&self, kind: &str) -> Option<Condition> {
        let lists = ["/status/v1beta2/conditions", "/status/conditions"];
        lists.into_iter().find_map(|list| self.condition_in(list, kind))
    }

    fn condition_in(&self, list: &str, kind: &str) -> Option<Condition> {
        let conditions = self.0.pointer(list)?.as_array()?;
        condition(conditions.iter().find(|c| c.get("type").and_then(Value::as_str) == Some(kind))?)
    }

    /// Since when a condition is `True`.
    #[must_use]
    pub fn true_since(&self, kind: &str) -> Option<Time> {
        self.condition(kind).filter(|c| c.status == Status::True)?.transition
    }
}

/// One entry of a list of conditions; none if its status is none of the three.
fn condition(value: &Value) -> Option<Condition> {
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    let status = match text("status")? {
        "True" => Status::True,
        "False" => Status::False,
        "Unknown" => Status::Unknown,
        _ => return None,
    };
    Some(Condition {
        status,
        reason: text("reason").unwrap_or_default().to_owned(),
        message: text("message").unwrap_or_default().to_owned(),
        transition: text("lastTransitionTime").and_then(|t| t.parse().ok()),
        heartbeat: text("lastHeartbeatTime").and_then(|t| t.parse().ok()),
    })
}
