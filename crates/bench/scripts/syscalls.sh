#!/usr/bin/env bash
# System calls, task switches and CPU time of a server for one request without pipelining: Pando with one
# worker beside redis-server, in turns, each on a core of its own, the client (50 connections) on
# the other one. Counted by the kernel's tracepoints, which disturb little (as root, with `perf`).
#
#     cargo build --release -p pando-server
#     crates/bench/scripts/syscalls.sh target/release/pando [ROUNDS] [REQUESTS]
#
# Prints medians of ROUNDS (5), each of REQUESTS (100000), with the least and the most.
set -euo pipefail
pando=$(realpath "$1")
rounds=${2:-5}
requests=${3:-100000}
directory=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$directory"' EXIT
[ -e /sys/kernel/tracing/events ] || mount -t tracefs nodev /sys/kernel/tracing

cd "$directory"
taskset -c 0 "$pando" --port 7411 --threads 1 --durability none >/dev/null 2>&1 &
servers[0]=$!
taskset -c 0 redis-server --port 7412 --save "" --appendonly no >/dev/null 2>&1 &
servers[1]=$!
names=(pando redis)
for port in 7411 7412; do
    for _ in $(seq 200); do redis-cli -p $port ping >/dev/null 2>&1 && break; sleep 0.05; done
done

calls=read,recvfrom,write,sendto,epoll_wait,epoll_pwait,epoll_ctl,futex
events=raw_syscalls:sys_enter,context-switches,task-clock,syscalls:sys_enter_${calls//,/,syscalls:sys_enter_}
for round in $(seq "$rounds"); do
    for test in set get; do
        for which in 0 1; do
            perf stat -x, -o counts -e "$events" -p "${servers[$which]}" -- \
                taskset -c 1 redis-benchmark -p $((7411 + which)) -t $test -P 1 -c 50 -d 8 \
                -r 1000000 -n "$requests" -q >/dev/null
            awk -F, -v name="${names[$which]} $test" -v requests="$requests" '
                $3 ~ /^task-clock/ { printf "%s\tCPU us\t%.4f\n", name, $1 * 1000 / requests }
                $3 ~ /^(raw_)?syscalls:|^context/ {
                    event = $3
                    sub(/^raw_syscalls:sys_enter$/, "all", event)
                    sub(/^syscalls:sys_enter_/, "", event)
                    printf "%s\t%s\t%.4f\n", name, event, $1 / requests
                }' counts >>figures
        done
    done
done
printf 'per request, medians of %s rounds of %s (least-most)\n' "$rounds" "$requests"
sort -t"$(printf '\t')" -k1,1 -k2,2 -k3,3n figures | awk -F'\t' '
    { key = $1 "\t" $2; if (!(key in count)) order[++keys] = key; value[key, ++count[key]] = $3 }
    END {
        for (at = 1; at <= keys; at++) {
            key = order[at]; n = count[key]
            if (value[key, n] < 0.0005) continue
            split(key, part, "\t")
            printf "%-10s %-18s %.3f (%.3f-%.3f)\n", part[1], part[2], \
                value[key, int((n + 1) / 2)], value[key, 1], value[key, n]
        }
    }'
