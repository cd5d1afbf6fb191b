//! Confirmations of the present state, made apart from the loop.
