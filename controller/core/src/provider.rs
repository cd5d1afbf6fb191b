//! Who reboots machines: the part of a policy that names the infrastructure provider, and what each kind can prove.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Who reboots machines, and with which credentials.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {"rule": "!(self.kind in ['Redfish', 'Webhook']) || (has(self.url) && self.url.startsWith('https://'))",
     "message": "Redfish and Webhook need a url that begins with https://"},
    {"rule": "self.kind == 'Webhook' || (!self.lookup && !self.idempotent)", "message": "lookup and idempotent belong to Webhook"},
    {"rule": "self.kind == 'Redfish' || !self.lastResetTime", "message": "lastResetTime belongs to Redfish"}
]))]
pub struct Provider {
    /// Which interface.
    #[serde(default)]
    pub kind: ProviderKind,
    /// Secret with its credentials, in the policy's namespace; without it the default of the kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: Option<String>,
    /// Where it is, for Redfish and Webhook.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 2048))]
    pub url: Option<String>,
    /// The webhook can be asked what became of an intent.
    #[serde(default)]
    pub lookup: bool,
    /// The webhook executes an intent once, however often it is sent.
    #[serde(default)]
    pub idempotent: bool,
    /// The BMC is known to keep `LastResetTime`: if it did not change, there was no reset.
    #[serde(default)]
    pub last_reset_time: bool,
}

/// Which interface reboots machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ProviderKind {
    /// None: machines are replaced only.
    #[default]
    None,
    /// Hetzner Cloud API.
    HetznerCloud,
    /// Hetzner Robot webservice.
    HetznerRobot,
    /// Redfish on the server's BMC.
    Redfish,
    /// The reboot annotation of cluster-api-provider-hetzner's hosts.
    CaphAnnotation,
    /// A webhook of the user's.
    Webhook,
}

impl Provider {
    /// Whether "no trace of the call" proves that it was not made.
    #[must_use]
    pub const fn absence_is_proof(&self) -> bool {
        match self.kind {
            ProviderKind::HetznerCloud | ProviderKind::CaphAnnotation => true,
            ProviderKind::Redfish => self.last_reset_time,
            ProviderKind::Webhook => self.lookup,
            ProviderKind::None | ProviderKind::HetznerRobot => false,
        }
    }
}
