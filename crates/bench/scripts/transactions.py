#!/usr/bin/env python3
"""What EXEC costs, with one worker and with two.

    cargo build --release -p pando-server
    crates/bench/scripts/transactions.py target/release/pando [--vs OTHER] [--engines minuet masstree]

Each of --connections clients sends --together transactions at a time: MULTI, a SET in database 0, a
SET in database 1, EXEC, with SELECT before each SET. Beside them, what a server could do at best: the
same SETs and SELECTs without MULTI, with two PINGs in its place; MSET of two keys; and transactions
that all write among ten keys. Figures are the median of --rounds rounds, each of all in turn: thousands
a second by the clock, microseconds that the server was on a processor for one, and, one at a time for
each client, the latencies of the contended ones, and how many the clients had that had the least and
the most of them, by the mean of all (nobody starves). All clients are one thread, pinned to no core.
--kinds also takes `inserts`, of keys that are not there yet, and `large`, of values of 16 KiB.
"""

import argparse
import contextlib
import itertools
import random
import select
import socket
import statistics
import tempfile
import time

from branches import number
from foundation import processor_seconds, words
from snapshots import Server, free_port

PORTIONS = 64
# Of inserts more are made, each round, so that they are of new keys.
PORTIONS_OF_INSERTS = 30_000
CONTENDED = 10
KINDS = ["apart", "multi", "mset", "contended", "inserts", "large"]


def key(index):
    return b"key:%012d" % index


def transaction(kind, keys):
    """The requests of one, and the bytes of their replies."""
    one, other = (key(random.randrange(keys)) for _ in range(2))
    value = b"%08d" % random.randrange(10**8)
    if kind == "large":
        value *= 2048
    pair = [
        words(b"SELECT", b"0"),
        words(b"SET", one, value),
        words(b"SELECT", b"1"),
        words(b"SET", other, value),
    ]
    if kind == "apart":
        return b"".join([words(b"PING"), *pair, words(b"PING")]), 4 * 5 + 2 * 7
    if kind == "mset":
        return words(b"MSET", one, value, other, value), 5
    return b"".join([words(b"MULTI"), *pair, words(b"EXEC")]), 5 + 4 * 9 + 4 + 4 * 5


def portions(kind, keys, together):
    keys = {"contended": CONTENDED, "inserts": 10**12}.get(kind, keys)
    made = []
    for _ in range(PORTIONS_OF_INSERTS if kind == "inserts" else PORTIONS):
        parts = [transaction(kind, keys) for _ in range(together)]
        made.append((b"".join(part for part, _ in parts), sum(count for _, count in parts)))
    return made


class Load:
    """Connections that each wait for the replies to a portion and send the next one."""

    def __init__(self, port, connections):
        self.poll = select.epoll()
        self.sockets = {}
        for _ in range(connections):
            made = socket.create_connection(("127.0.0.1", port))
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.sockets[made.fileno()] = made
            self.poll.register(made, select.EPOLLIN)

    def close(self):
        for made in self.sockets.values():
            made.close()

    def run(self, made, seconds, latencies=None, counts=None):
        """Portions that were answered, and the seconds that took; of each client in `counts`."""
        source = itertools.cycle(made)
        owed, sent = {}, {}
        start = time.perf_counter()
        for number, made in self.sockets.items():
            requests, owed[number] = next(source)
            sent[number] = time.perf_counter()
            made.sendall(requests)
        answered, end = 0, start + seconds
        while owed:
            now = time.perf_counter()
            for number, _ in self.poll.poll():
                owed[number] -= len(self.sockets[number].recv(1 << 16))
                if owed[number] > 0:
                    continue
                assert owed[number] == 0, "a reply of another length"
                answered += 1
                if counts is not None:
                    counts[number] = counts.get(number, 0) + 1
                if latencies is not None:
                    latencies.append(time.perf_counter() - sent[number])
                if now > end:
                    del owed[number]
                    continue
                requests, owed[number] = next(source)
                sent[number] = time.perf_counter()
                self.sockets[number].sendall(requests)
        return answered, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pando")
    parser.add_argument("--vs", help="another binary, measured in turn")
    parser.add_argument("--engines", nargs="+", default=["minuet", "masstree"])
    parser.add_argument("--keys", type=number, default=1_000_000)
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--together", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--durability", default="interval")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=KINDS[:4])
    settings = parser.parse_args()
    random.seed(1)
    made = {kind: portions(kind, settings.keys, settings.together) for kind in settings.kinds}
    alone = portions("contended", settings.keys, 1)
    binaries = [settings.pando] + ([settings.vs] if settings.vs else [])
    for workers, engine in itertools.product(settings.workers, settings.engines):
        with contextlib.ExitStack() as stack:
            subjects = []
            for binary in binaries:
                port, directory = free_port(), stack.enter_context(tempfile.TemporaryDirectory())
                line = f"--engine {engine} --port {port} --threads {workers} --data-dir {directory}"
                line = f"{line} --durability {settings.durability}"
                client, server = stack.enter_context(Server(port, [binary, *line.split()]))
                subjects.append((binary, server, client))
            measure(settings, (workers, engine), subjects, made, alone)


def measure(settings, what, subjects, made, alone):
    rates = {}
    for _, _, client in subjects:
        for base, first in itertools.product((0, 1), range(0, settings.keys, 100)):
            if first == 0:
                client.call("SELECT", base)
            pairs = [part for at in range(first, first + 100) for part in (key(at), b"x" * 8)]
            client.call("MSET", *pairs)
    for _, (binary, server, _) in itertools.product(range(settings.rounds), subjects):
        load = Load(server.port, settings.connections)
        for kind, some in made.items():
            if kind == "inserts":
                some = portions(kind, settings.keys, settings.together)
            before = processor_seconds(server.process.pid)
            answered, seconds = load.run(some, settings.seconds)
            busy = processor_seconds(server.process.pid) - before
            count = answered * settings.together
            found = rates.setdefault((binary, kind), ([], []))
            found[0].append(count / seconds / 1000)
            found[1].append(busy * 1e6 / count)
        latencies, counts = [], dict.fromkeys(load.sockets, 0)
        load.run(alone, settings.seconds, latencies, counts)
        for word, of_all in (("least", min), ("most", max)):
            share = of_all(counts.values()) * len(counts) / sum(counts.values())
            rates.setdefault((binary, f"a client's {word}"), []).append(share)
        latencies.sort()
        for part in (0.5, 0.99, 0.999, 1.0):
            at = min(int(part * len(latencies)), len(latencies) - 1)
            rates.setdefault((binary, f"p{100 * part:g}"), []).append(latencies[at] * 1e6)
        load.close()
    for (binary, kind), found in rates.items():
        name = f"{what[1]}, {what[0]} workers, {binary}, {kind}"
        if kind in made:
            rate, cost = (statistics.median(some) for some in found)
            print(f"{name}: {rate:.1f} thousand a second, {cost:.2f} µs each", flush=True)
        elif kind.startswith("a client"):
            shown = statistics.median(found)
            print(f"{name}: {shown:.3f} of the mean of all clients", flush=True)
        else:
            print(f"{name}: {statistics.median(found):.0f} µs", flush=True)


if __name__ == "__main__":
    main()
