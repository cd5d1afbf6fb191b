//! The host as seen from the agent, which may live in a container: its root, its proc, its devices.
