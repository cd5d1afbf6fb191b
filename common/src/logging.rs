//! Logging to standard error, level by the `NODEWARD_LOG` environment variable (`info` if unset): `debug`, or `nodeward_agent::source=debug,kube=warn`.

use env_logger::{Builder, Env, Target};

/// The environment variable with the level.
pub const VARIABLE: &str = "NODEWARD_LOG";

/// Starts logging; the second call does nothing.
pub fn start(default_level: &str) {
    // kube and its transport speak through `tracing`, whose `log` feature brings it here; they are quiet unless asked.
    let fallback = format!("{default_level},kube_client=warn,kube_runtime=warn,tower=warn,hyper_util=warn,rustls=warn");
    let _ = Builder::from_env(Env::new().filter_or(VARIABLE, fallback)).target(Target::Stderr).format_target(false).try_init();
}
