#!/usr/bin/env python3
"""The end-to-end figures of the CDDS paper (4.5, 4.6) on one machine: Tembo beside Redis' log.

    cargo build --release -p pando-server -p pando-bench
    cargo build --release -p pando-client --example inserts
    crates/bench/scripts/tembo.py target/release [--rounds 3] [--inserts 20000] [--seconds 4]

Figure 8: two clients insert values of 256 B to 4 KiB through pando-client, one at a time, into six
servers: pando with the engine cdds in shared memory, pando with the default engine and a log, and
redis-server with appendfsync always. All answer when a write is durable; all files lie on
--directory, a tmpfs, as in the paper. Figures 9 and 10: YCSB A (SessionStore) and D (StatusUpdates)
on one server of each kind, rows of ten columns of 100 bytes; redis-server stands in for Cassandra.

Rates, and the servers' CPU time per operation. Clients and servers share the machine's processors:
where these are few, the CPU time tells more. Ratios to redis-server, medians of rounds that take the
servers in turn. Everything is on the loopback interface.
"""

import argparse
import contextlib
import os
import shlex
import statistics
import subprocess
import tempfile

from foundation import processor_seconds
from snapshots import Server, free_port

SERVERS, CLIENTS = 6, 2
VALUE_BYTES = (256, 1024, 4096)
# Connections of YCSB, each with one request under way.
LOOPS = 8


def command(kind, binaries, port, directory):
    ours = f"{binaries}/pando --port {port} --threads 1 --durability sync"
    return {
        "pando cdds": f"{ours} --engine cdds --pmem {directory}/pool --pmem-size 512mb",
        "pando": f"{ours} --data-dir {directory}/data",
        "redis": f"redis-server --port {port} --dir {directory} --save '' --appendonly yes"
        " --appendfsync always",
    }[kind]


KINDS = ("pando cdds", "pando", "redis")


@contextlib.contextmanager
def servers(kind, many, options):
    """So many of them, with their ports and processes."""
    with contextlib.ExitStack() as stack:
        started = []
        for _ in range(many):
            directory = stack.enter_context(tempfile.TemporaryDirectory(dir=options.directory))
            port = free_port()
            words = shlex.split(command(kind, options.binaries, port, directory))
            _, server = stack.enter_context(Server(port, words))
            started.append((port, server.process.pid))
        yield started


def used_by(started):
    return sum(processor_seconds(pid) for _, pid in started)


def inserts(kind, value_bytes, options):
    """Inserts a second, and the servers' CPU time of one in microseconds."""
    with servers(kind, SERVERS, options) as started, tempfile.NamedTemporaryFile("w") as ring:
        for index, (port, _) in enumerate(started):
            ring.write(f'[[node]]\nname = "node{index}"\naddress = "127.0.0.1:{port}"\n')
        ring.flush()
        before = used_by(started)
        words = [ring.name, CLIENTS, options.inserts, value_bytes]
        run = [f"{options.binaries}/examples/inserts", *map(str, words)]
        said = subprocess.run(run, check=True, capture_output=True, text=True).stdout
        used = (used_by(started) - before) / (CLIENTS * options.inserts)
        return float(said.split()[0]), used * 1e6


def ycsb(workload, options):
    """pando-bench load takes one server of each kind in turn, and says what it measured."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(servers(kind, 1, options))[0] for kind in reversed(KINDS)]
        first, *others = (f"127.0.0.1:{port}" for port, _ in started)
        words = (
            f"load {first} --vs {','.join(others)} --workload {workload} --keys {options.rows} --fill"
            f" --connections {LOOPS} --seconds {options.seconds} --repeats {options.rounds}"
        )
        print(*reversed(KINDS), sep=", ", flush=True)
        subprocess.run([f"{options.binaries}/pando-bench", *words.split()], check=True)


def compare(value_bytes, options):
    """Each kind in turn, round after round."""
    found = {kind: [] for kind in KINDS}
    for _ in range(options.rounds):
        for kind in KINDS:
            found[kind].append(inserts(kind, value_bytes, options))
    middle = {
        kind: [statistics.median(values) for values in zip(*rounds)]
        for kind, rounds in found.items()
    }
    for kind, (rate, used) in middle.items():
        rate_ratio, used_ratio = rate / middle["redis"][0], used / middle["redis"][1]
        print(
            f"{value_bytes:5} bytes  {kind:11} {rate:9.0f}/s ({rate_ratio:.2f})"
            f" {used:7.1f} us of CPU ({used_ratio:.2f})",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("binaries", type=os.path.abspath, help="pando, pando-bench, the example")
    parser.add_argument("--directory", default="/dev/shm")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inserts", type=int, default=20_000, help="of each client")
    parser.add_argument("--rows", type=int, default=20_000, help="of YCSB")
    parser.add_argument("--seconds", type=float, default=4)
    options = parser.parse_args()
    print("Figure 8: Versioning vs. Logging")
    for value_bytes in VALUE_BYTES:
        compare(value_bytes, options)
    for figure, workload in ("9: SessionStore", "ycsb-a"), ("10: StatusUpdates", "ycsb-d"):
        print(f"Figure {figure}")
        ycsb(workload, options)


if __name__ == "__main__":
    main()
