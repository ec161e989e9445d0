//! The conformance suite, and what only this engine has.

pando_engine::conformance_suite!(crate::engine::Minuet, restore, snapshots);
