#!/usr/bin/env bash
# Kills a server with branches again and again (kill -9), in the middle of its clients' work, and
# looks at what the next one finds: every branch and lasting snapshot must be what its client's
# acknowledged steps made of it, whole.
#
#     crates/bench/scripts/branches.sh [ROUNDS]
#
# ROUNDS (200) are run on one directory, so branches grow old, and checkpoints are made of what
# checkpoints have brought. PANDO_CRASH_SEED chooses other steps, PANDO_CRASH_DIR a folder on the
# disk to use. The seed is printed first; what was done is printed at the end.
set -euo pipefail
export PANDO_CRASH_ROUNDS=${1:-200}
cargo test --locked -p pando-server --test crash forks -- --nocapture
