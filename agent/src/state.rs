//! What the agent remembers of this boot, on the host.
