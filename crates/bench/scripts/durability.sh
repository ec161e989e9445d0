#!/usr/bin/env bash
# What a log costs over the wire: Pando in each mode of durability beside redis-server, in turns, on
# the disk that DIRECTORY is on. Prints rate and CPU seconds per million operations.
#
#     crates/bench/scripts/durability.sh target/release/pando DIRECTORY
set -euo pipefail
pando=$1
directory=$2/pando-durability.$$
port=7401
server=
mkdir -p "$directory"
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$directory"' EXIT

start() {
    "$@" >/dev/null 2>&1 &
    server=$!
    for _ in $(seq 300); do
        redis-cli -p $port ping >/dev/null 2>&1 && return
        sleep 0.05
    done
    echo "no answer from: $*" >&2
    exit 1
}

cpu_ticks() { awk '{print $14 + $15}' "/proc/$server/stat"; }

run() { # label clients pipeline operations
    local before rate after
    before=$(cpu_ticks)
    rate=$(redis-benchmark -p $port -t set -c "$2" -P "$3" -n "$4" -r 100000 -d 16 --csv 2>/dev/null |
        tail -1 | cut -d, -f2 | tr -d '"')
    after=$(cpu_ticks)
    awk -v l="$1 clients=$2 pipeline=$3" -v r="$rate" -v t="$((after - before))" -v n="$4" \
        'BEGIN { printf "%s: %d/s, %.2f CPU s per million\n", l, r, t / 100 * 1e6 / n }'
}

for _ in 1 2 3; do
    for mode in none interval; do
        rm -rf "$directory/data"
        start taskset -c 0 "$pando" --port $port --threads 1 --durability $mode \
            --data-dir "$directory/data" --loglevel warning
        run "pando $mode" 50 32 1000000
        stop
    done
    start taskset -c 0 redis-server --port $port --save "" --appendonly no --dir "$directory"
    run "redis without a log" 50 32 1000000
    stop
done
for _ in 1 2; do
    rm -rf "$directory/data"
    start "$pando" --port $port --threads 1 --durability sync --data-dir "$directory/data" \
        --loglevel warning
    for shape in "50 1 30000" "50 32 300000" "1 1 4000"; do run "pando sync" $shape; done
    stop
    rm -rf "$directory/appendonlydir"
    start redis-server --port $port --save "" --appendonly yes --appendfsync always \
        --dir "$directory"
    for shape in "50 1 30000" "50 32 300000" "1 1 4000"; do run "redis always" $shape; done
    stop
done
