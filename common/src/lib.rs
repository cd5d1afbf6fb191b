//! What both daemons share: names on the Kubernetes API, logging, and the metrics and health server.

pub mod http;
pub mod logging;

/// Node annotation with the boot id of the boot that our conditions speak of.
pub const BOOT_ID_ANNOTATION: &str = "nodeward.dev/boot-id";
