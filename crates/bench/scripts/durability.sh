#!/usr/bin/env bash
# What a log costs, against the bars of durability: Pando in each mode beside redis-server, in
# turns, on the disk that DIRECTORY is on. Rates and CPU seconds are the server's; CPU is read from
# the scheduler, in nanoseconds, all threads together.
#
#     cargo build --release -p pando-server && cargo build --release -p pando-db --example durability
#     crates/bench/scripts/durability.sh target/release/pando DIRECTORY [ROUNDS]
#
# ROUNDS (5) are run in turns; every figure and every ratio is a median, with the least and the
# most. Ratios are those of two runs that follow each other.
#
# PARTS in the environment (resp sync slow process: all of them) says what is measured; FIGURES, a
# file to which the figures are added, from which all are printed: so a run can be done in pieces.
#
# With SLOW=1000 in the environment, `sync` is also compared on a disk that takes so many writes a
# second: a limit of the kernel's for both servers' processes (cgroups, root), set when they have
# started. It takes them in bursts, every tenth of a second.
set -euo pipefail
pando=$(realpath "$1")
directory=$2/pando-durability.$$
rounds=${3:-5}
example=$(dirname "$pando")/examples/durability
port=7401
threads=
server=
group=
parts=" ${PARTS:-resp sync slow process} "
mkdir -p "$directory"
figures=$(realpath "${FIGURES:-$directory/figures}")
wants() { [[ $parts == *" $1 "* ]]; }
stop() {
    [ -z "$server" ] && return
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
    server=
}
trap 'stop; rm -rf "$directory"; [ -z "$group" ] || rmdir "$group"' EXIT

slow_disk() { # makes the group of processes whose writes are limited
    local root=/sys/fs/cgroup
    device=$(stat -c %Hd:%Ld "$directory")
    [ -e "/sys/dev/block/$device/partition" ] && device=$(cat "/sys/dev/block/$device/../dev")
    if [ -d $root/blkio ]; then
        group=$root/blkio/pando-durability.$$ limit=blkio.throttle.write_iops_device
    elif grep -qsw io $root/cgroup.subtree_control; then
        group=$root/pando-durability.$$ limit=io.max
    fi
    if [ -z "$group" ] || ! mkdir "$group" 2>/dev/null; then
        echo "no slow disk: that takes root and a cgroup that limits input and output" >&2
        group=
        return 1
    fi
}

limit_writes() { # writes per second; 0: as many as the disk takes
    local writes=$1
    if [ "$limit" = io.max ]; then
        [ "$writes" = 0 ] && writes=max
        writes=wiops=$writes
    fi
    echo "$device $writes" >"$group/$limit"
}

start() {
    rm -rf "$directory/data" "$directory/appendonlydir"
    (
        [ -z "$group" ] || echo "$BASHPID" >"$group/cgroup.procs"
        cd "$directory" && exec "$@"
    ) >/dev/null 2>&1 &
    server=$!
    for _ in $(seq 600); do
        redis-cli -p $port ping >/dev/null 2>&1 && return
        sleep 0.05
    done
    echo "no answer from: $*" >&2
    exit 1
}

cpu_ns() { cat "/proc/$server"/task/*/schedstat | awk '{ sum += $1 } END { printf "%.0f\n", sum }'; }

bench() { # clients pipeline operations
    redis-benchmark -p $port ${threads:+--threads $threads} -t set -c "$1" -P "$2" -n "$3" \
        -r 100000 -d 16 --csv 2>/dev/null |
        tail -1 | cut -d, -f2 | tr -d '"'
}

run() { # label clients pipeline operations
    local before rate after
    bench "$2" "$3" $(($4 / 5)) >/dev/null
    before=$(cpu_ns)
    rate=$(bench "$2" "$3" "$4")
    after=$(cpu_ns)
    awk -v l="$1 $2x$3" -v r="$rate" -v t="$((after - before))" -v n="$4" 'BEGIN {
        printf "%s rate %.1f\n%s cpu %.3f\n", l, r / 1000, l, t / 1000 / n }' >>"$figures"
}

own() { # mode
    start ${pin:-} "$pando" --port $port --threads 1 --durability "$1" --data-dir data \
        --loglevel warning
}

redis() { # options
    start ${pin:-} redis-server --port $port --save "" --dir "$directory" "$@"
}

[ -n "${FIGURES:-}" ] || : >"$figures"
for _ in $(seq "$rounds"); do
    wants resp || break
    # One core for the server, the other for the client.
    pin="taskset -c 0"
    for mode in none interval; do
        own $mode
        run "pando-$mode" 50 32 4000000
        stop
    done
    redis --appendonly no
    run redis-none 50 32 4000000
    stop
done
for _ in $(seq "$rounds"); do
    wants sync || break
    # Both cores for both, then one for each.
    for free in free pinned; do
        [ $free = free ] && pin= || pin="taskset -c 0"
        shapes=("50 1 50000" "50 32 400000" "1 1 5000")
        own sync
        for shape in "${shapes[@]}"; do run "pando-sync-$free" $shape; done
        stop
        redis --appendonly yes --appendfsync always
        for shape in "${shapes[@]}"; do run "redis-always-$free" $shape; done
        stop
    done
    # A client of two threads, on both cores with the server.
    pin=
    threads=2
    own sync
    run pando-sync-two 50 1 300000
    stop
    redis --appendonly yes --appendfsync always
    run redis-always-two 50 1 300000
    stop
    threads=
    # What the client can ask for at most, one at a time.
    own none
    run pando-none-free 50 1 50000
    stop
done
if wants slow && [ "${SLOW:-0}" != 0 ] && slow_disk; then
    pin=
    for _ in $(seq "$rounds"); do
        for slow in pando-sync-slow redis-always-slow; do
            limit_writes 0
            if [ $slow = pando-sync-slow ]; then
                own sync
            else
                redis --appendonly yes --appendfsync always
            fi
            # Files that are made ahead are there by then.
            sleep 1
            limit_writes "$SLOW"
            run $slow 50 1 $((SLOW * 10))
            run $slow 1 1 $((SLOW / 2))
            stop
        done
    done
    limit_writes 0
fi
if wants process && [ -x "$example" ]; then
    for threads in 1 "$(nproc)"; do
        "$example" "$directory/example" 4 "$threads" "$rounds" puts >>"$figures"
    done
fi

# Figures are lines of label, shape, kind and number, in the order of the rounds.
awk '
function median(list, count,   i, j, swap) {
    for (i = 1; i <= count; i++) sorted[i] = list[i]
    for (i = 1; i <= count; i++)
        for (j = i + 1; j <= count; j++)
            if (sorted[j] < sorted[i]) { swap = sorted[i]; sorted[i] = sorted[j]; sorted[j] = swap }
    low = sorted[1]; high = sorted[count]
    return count % 2 ? sorted[(count + 1) / 2] : (sorted[count / 2] + sorted[count / 2 + 1]) / 2
}
function ratio(text, goal, better, one, other, kind,   i, list, middle) {
    one = one " " kind; other = other " " kind
    if (!count[one] || count[one] != count[other]) return
    for (i = 1; i <= count[one]; i++) list[i] = value[one, i] / value[other, i]
    middle = median(list, count[one])
    met = better == "least" ? middle >= goal : middle <= goal
    printf "%-66s %.2f (%.2f-%.2f)  goal: %s %.2f, %s\n", text, middle, low, high,
        better == "least" ? "at least" : "at most", goal, met ? "met" : "missed"
}
{ key = $1 " " $2 " " $3; value[key, ++count[key]] = $4; if (count[key] == 1) keys[++known] = key }
END {
    print "server clients x pipeline: thousand SET/s, or CPU us per SET: median (least-most)"
    for (k = 1; k <= known; k++) {
        key = keys[k]
        for (i = 1; i <= count[key]; i++) list[i] = value[key, i]
        middle = median(list, count[key])
        printf "%-66s %.3g (%.3g-%.3g)\n", key, middle, low, high
    }
    print ""
    ratio("put rate, interval / none, over RESP, 50x32", 0.85, "least",
        "pando-interval 50x32", "pando-none 50x32", "rate")
    for (t = 1; t <= 64; t++)
        ratio("put rate, interval / none, in process, threads: " t, 0.85, "least",
            "puts-interval " t, "puts-none " t, "rate")
    for (t = 1; t <= 64; t++)
        ratio("not a goal: CPU per put, interval / none, in process, threads: " t, 1.18, "most",
            "puts-interval " t, "puts-none " t, "cpu")
    ratio("CPU per SET, interval / Redis without a log, 50x32", 0.60, "most",
        "pando-interval 50x32", "redis-none 50x32", "cpu")
    for (f = 1; f <= 4; f++) {
        free = f == 1 ? "free" : f == 2 ? "pinned" : f == 3 ? "two" : "slow"
        ratio("rate, sync / Redis always, 50x1, " free, 2, "least",
            "pando-sync-" free " 50x1", "redis-always-" free " 50x1", "rate")
        ratio("rate, sync / Redis always, 50x32, " free, 1.3, "least",
            "pando-sync-" free " 50x32", "redis-always-" free " 50x32", "rate")
        ratio("rate, sync / Redis always, 1x1, " free, 0.95, "least",
            "pando-sync-" free " 1x1", "redis-always-" free " 1x1", "rate")
    }
    ratio("not a goal: CPU per SET, sync / Redis always, 50x1, free", 0.5, "most",
        "pando-sync-free 50x1", "redis-always-free 50x1", "cpu")
    ratio("not a goal: what the client asks for at most / Redis always", 2, "least",
        "pando-none-free 50x1", "redis-always-free 50x1", "rate")
}' "$figures"
