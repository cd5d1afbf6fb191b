//! Carries effects out: Node conditions, Events, metrics, standard output.
