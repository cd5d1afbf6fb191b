//! Looks: confirmations of the present state, each on a thread of its own.

mod apart;

pub(crate) use apart::Apart;
