//! nodeward's controller: the custom resources, what it makes of a cluster's objects, and its commands.

pub mod api;
pub mod clock;
pub mod explain;
pub mod fetch;
pub mod manifest;
pub mod objects;
pub mod world;
