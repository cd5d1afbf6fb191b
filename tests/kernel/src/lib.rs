//! What the tests of the kernel tier share.
