//! What the tests of the cluster tier share.
