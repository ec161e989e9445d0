#!/usr/bin/env bash
# The tree's nodes and values from our pools and from general allocators, in turns: builds this tool
# once per allocator and runs `pando-bench allocators` with what else is given.
#
#     crates/bench/scripts/allocators.sh [--rounds N] [--keys N] …
#
# Builds are kept in target/allocators; what was measured in target/allocators.tsv, so that a call
# goes on where the last one stopped (BUILD_ONLY=1 only builds).
set -euo pipefail
cd "$(dirname "$0")/../../.."
cargo build --release --locked -p pando-bench
programs=
for allocator in system mimalloc jemalloc; do
    features=program-allocator
    [ $allocator = system ] || features=$features,$allocator
    cargo build --release --locked -p pando-bench --target-dir target/allocators \
        --features $features
    cp target/allocators/release/pando-bench target/allocators/pando-bench-$allocator
    programs=${programs:+$programs,}target/allocators/pando-bench-$allocator
done
[ -n "${BUILD_ONLY:-}" ] || exec target/release/pando-bench allocators --programs "$programs" "$@"
