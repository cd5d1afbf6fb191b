//! `nodeward-agent replay`.
