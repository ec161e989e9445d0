//! Coordinators and memnodes under a seeded scheduler, and the oracles that judge what they did.

pub(crate) mod audit;
