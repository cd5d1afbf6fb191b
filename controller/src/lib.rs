//! nodeward's controller: the custom resources, what it makes of a cluster's objects, and its commands.

pub mod api;
pub mod manifest;
