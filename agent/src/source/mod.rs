//! Where signals come from.
