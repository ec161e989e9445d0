#!/usr/bin/env python3
"""What transactions cost the server, beside FoundationDB's published figures for one core.

    cargo build --release -p pando-server
    crates/bench/scripts/foundation.py target/release/pando [--engine masstree] [--keys 1m]

A server with one worker and `--durability interval` holds keys of 16 bytes with values of 8 to 100.
Transactions of ten operations (MULTI, ten commands, EXEC) come over one connection, 16 at a time:
reads alone, writes alone, and nine reads to a write; then ranges of a thousand keys with their
values (KRANGE). The figure is operations for each second that the server's process, all its threads
together, was on a processor, so a slow client or other load changes little. The median of --rounds
rounds, each of all four in turn.
"""

import argparse
import os
import random
import statistics
import tempfile

from branches import number
from snapshots import Client, Server, free_port

PUBLISHED = {"reads": 305_000, "writes": 46_000, "mixed": 107_000, "ranges": 3_600_000}
OPERATIONS = 10
TOGETHER = 16
PORTIONS = 400
RANGE = 1000


def words(*parts):
    return b"*%d\r\n" % len(parts) + b"".join(b"$%d\r\n%s\r\n" % (len(part), part) for part in parts)


def key(index):
    return b"key:%012d" % index


def value():
    return random.randbytes(random.randrange(8, 101))


def operation(kind, keys, position):
    name = key(random.randrange(keys))
    is_write = kind == "writes" or (kind == "mixed" and position == 0)
    return words(b"SET", name, value()) if is_write else words(b"GET", name)


def portion(kind, keys):
    """The bytes of a portion of requests, and how many operations they are."""
    if kind == "ranges":
        starts = [random.randrange(keys - RANGE) for _ in range(TOGETHER)]
        ask = lambda start: words(b"KRANGE", b"[" + key(start), b"+")
        return b"".join(map(ask, starts)), TOGETHER * RANGE
    parts = []
    for _ in range(TOGETHER):
        parts.append(words(b"MULTI"))
        parts += [operation(kind, keys, position) for position in range(OPERATIONS)]
        parts.append(words(b"EXEC"))
    return b"".join(parts), TOGETHER * OPERATIONS


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def drain(client):
    """Reads up to the reply to a last ECHO, without parsing what comes before."""
    mark, tail = b"$12\r\nend-of-marks\r\n", b""
    while not tail.endswith(mark):
        tail = (tail + client.socket.recv(1 << 20))[-len(mark) :]


def measure(client, pid, kind, keys):
    portions = [portion(kind, keys) for _ in range(PORTIONS // 10 if kind == "ranges" else PORTIONS)]
    before, operations = processor_seconds(pid), 0
    for _ in range(4):
        for requests, count in portions:
            client.socket.sendall(requests + words(b"ECHO", b"end-of-marks"))
            drain(client)
            operations += count
    return operations / (processor_seconds(pid) - before)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pando")
    parser.add_argument("--engine", default="minuet")
    parser.add_argument("--keys", type=number, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    settings = parser.parse_args()
    random.seed(1)
    with tempfile.TemporaryDirectory() as directory:
        port = free_port()
        line = f"--engine {settings.engine} --port {port} --threads 1 --durability interval --data-dir"
        with Server(port, [settings.pando, *line.split(), directory]) as (client, server):
            for first in range(0, settings.keys, 100):
                pairs = [part for index in range(first, first + 100) for part in (key(index), value())]
                client.call("MSET", *pairs)
            rates = {kind: [] for kind in PUBLISHED}
            for _ in range(settings.rounds):
                for kind, found in rates.items():
                    found.append(measure(client, server.process.pid, kind, settings.keys))
            for kind, found in rates.items():
                ours, theirs = statistics.median(found), PUBLISHED[kind]
                print(f"{kind}: {ours:,.0f} a second of processor, published {theirs:,}: {ours / theirs:.2f}")


if __name__ == "__main__":
    main()
