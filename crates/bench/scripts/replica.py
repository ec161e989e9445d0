#!/usr/bin/env python3
"""What a replica costs, how far it is behind, and what its full copy takes, beside redis-server.

    cargo build --release -p pando-server
    crates/bench/scripts/replica.py follow target/release/pando [--requests 2m] [--keys 500k]
        [--rounds 3] [--durability none] [--redis]
    crates/bench/scripts/replica.py copy target/release/pando [--keys 10m] [--rounds 1] [--redis]

follow: a primary alone, then one with a replica, under redis-benchmark (SET of 8 bytes to random
keys, 32 in a pipeline, 50 connections), in turns. Printed are microseconds of processor time per SET
of the primaries, and of the replica until it has everything. Under the same load a client then sets a
key of its own every 10 ms, and another one waits until the replica shows it: the lag, from the
primary's answer on.

copy: a primary without a log is filled with keys with values of 8 bytes. One client asks it for a GET
and a SET of random keys in turns, a thousand times a second, and notes how long each takes: for
some seconds alone, then while a replica takes its copy. Printed are the time from REPLICAOF to a
link that is up, the most memory of the primary beyond what it had (PSS of all its processes, every
50 ms), and the 99th percentile of the client's times.

All of it shares the machine's processors, on the loopback interface. Times of /proc count in
hundredths of a second.
"""

import argparse
import contextlib
import multiprocessing
import os
import random
import subprocess
import tempfile
import threading
import time

from branches import fill, key, number
from foundation import processor_seconds
from snapshots import Client, Server, free_port


def start(options, stack, redis):
    """A server; returns its port and the id of its process."""
    port, directory = free_port(), stack.enter_context(tempfile.TemporaryDirectory())
    if redis:
        words = ["redis-server", "--save", "", "--dir", directory]
        words += ["--repl-diskless-sync", "yes", "--repl-diskless-sync-delay", "0"]
        words += ["--repl-diskless-load", "swapdb"]
    else:
        words = [options.pando, "--bind", "127.0.0.1", "--engine", options.engine]
        words += ["--threads", str(options.threads), "--durability", options.durability]
        if options.durability != "none":
            words += ["--data-dir", directory]
    _, server = stack.enter_context(Server(port, [*words, "--port", str(port)]))
    return port, server.process.pid


def position(port, field):
    return Client(port).info("replication")[field]


def is_up(port):
    there = Client(port).info("replication")
    return there["master_link_status"] == "up" and there["master_sync_in_progress"] == "0"


def load(port, options):
    words = f"redis-benchmark -p {port} -t set -P 32 -d 8 -c 50 -q"
    words += f" -n {options.requests} -r {options.keys}"
    subprocess.run(words.split(), check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def settle(primary, replica):
    while position(replica, "slave_repl_offset") != position(primary, "master_repl_offset"):
        time.sleep(0.01)


def watch_lag(primary, replica, lags, stop):
    writer, reader, value = Client(primary), Client(replica), 0
    while not stop.is_set():
        value += 1
        writer.call("SET", "lag:probe", value)
        began = time.monotonic()
        while int(reader.call("GET", "lag:probe") or 0) < value:
            time.sleep(0.0005)
        lags.append(time.monotonic() - began)
        time.sleep(0.01)


def follow(name, options, stack, redis):
    (alone, one), (primary, two), (replica, three) = (
        start(options, stack, redis) for _ in range(3)
    )
    Client(replica).call("REPLICAOF", "127.0.0.1", primary)
    while not is_up(replica):
        time.sleep(0.05)
    for port in (alone, primary):
        load(port, options)
    settle(primary, replica)
    for _ in range(options.rounds):
        before = [processor_seconds(pid) for pid in (one, two, three)]
        load(alone, options)
        began = time.monotonic()
        load(primary, options)
        took = time.monotonic() - began
        settle(primary, replica)
        behind = time.monotonic() - began - took
        after = [processor_seconds(pid) for pid in (one, two, three)]
        single, own, applied = (
            1e6 * (end - begin) / options.requests for begin, end in zip(before, after)
        )
        print(
            f"{name}: {single:.3f} us alone, {own:.3f} with a replica ({own / single:.2f}), the "
            f"replica's {applied:.3f} ({applied / own:.2f}, of alone {applied / single:.2f}); "
            f"{options.requests / took / 1e3:.0f} k/s, behind at the end {behind:.3f} s",
            flush=True,
        )
    lags = []
    for _ in range(options.rounds):
        stop = threading.Event()
        watcher = threading.Thread(target=watch_lag, args=(primary, replica, lags, stop))
        watcher.start()
        load(primary, options)
        stop.set()
        watcher.join()
    lags.sort()
    middle, late = (1e3 * lags[int(len(lags) * share)] for share in (0.5, 0.99))
    print(
        f"{name}: lag of {len(lags)} changes at full rate: p50 {middle:.1f} ms, "
        f"p99 {late:.1f} ms, most {1e3 * lags[-1]:.1f} ms",
        flush=True,
    )


def memory(pid):
    """Bytes of memory of a process and its children, shared pages counted once."""
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        processes = [pid, *file.read().split()]
    total = 0
    for process in processes:
        with contextlib.suppress(OSError), open(f"/proc/{process}/smaps_rollup") as file:
            total += sum(int(line.split()[1]) * 1024 for line in file if line.startswith("Pss:"))
    return total


def watch_times(port, keys, stop, told):
    """A GET or a SET each millisecond."""
    client, times, due = Client(port), [], time.monotonic()
    while not stop.is_set():
        which = key(random.randrange(keys))
        words = ("GET", which) if len(times) % 2 else ("SET", which, f"{len(times):08}")
        began = time.monotonic()
        client.call(*words)
        times.append(time.monotonic() - began)
        due = max(due + 0.001, began)
        time.sleep(max(0, due - time.monotonic()))
    told.send(sorted(times)[len(times) * 99 // 100] * 1e3)


@contextlib.contextmanager
def watched(port, keys):
    """A list that has the 99th percentile in milliseconds when the block has ended."""
    stop, p99 = multiprocessing.Event(), []
    here, there = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch_times, args=(port, keys, stop, there))
    watcher.start()
    yield p99
    stop.set()
    p99.append(here.recv())
    watcher.join()


def copy(name, options, stack, redis):
    (primary, pid), (replica, _) = (start(options, stack, redis) for _ in range(2))
    fill(Client(primary), options.keys)
    before = most = memory(pid)
    with watched(primary, options.keys) as calm:
        time.sleep(5)
    with watched(primary, options.keys) as busy:
        began = time.monotonic()
        Client(replica).call("REPLICAOF", "127.0.0.1", primary)
        while not is_up(replica):
            most = max(most, memory(pid))
            time.sleep(0.05)
        took = time.monotonic() - began
    there, here = (int(Client(port).call("DBSIZE")) for port in (primary, replica))
    print(
        f"{name}: {there} keys ({here} on the replica) in {took:.2f} s; primary's memory "
        f"{before / 1e6:.0f} MB, {(most - before) / 1e6:+.0f} MB ({most / before - 1:.3f}); p99 "
        f"{calm[0]:.2f} ms before, {busy[0]:.2f} ms meanwhile ({busy[0] / calm[0]:.2f})",
        flush=True,
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("mode", choices=["follow", "copy"])
    parser.add_argument("pando")
    parser.add_argument("--requests", type=number, default=2_000_000)
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--keys", type=number)
    parser.add_argument("--durability", default="none")
    parser.add_argument("--engine", default="masstree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--redis", action="store_true", help="measure redis-server, too")
    options = parser.parse_args()
    copies = options.mode == "copy"
    options.keys = options.keys or (10_000_000 if copies else 500_000)
    options.rounds = options.rounds or (1 if copies else 3)
    for _ in range(options.rounds if copies else 1):
        for redis in [False, True][: 1 + options.redis]:
            name = "redis" if redis else f"pando, {options.engine}, {options.durability}"
            with contextlib.ExitStack() as stack:
                (copy if copies else follow)(name, options, stack, redis)


if __name__ == "__main__":
    main()
