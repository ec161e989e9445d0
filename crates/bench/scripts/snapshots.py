#!/usr/bin/env python3
"""What snapshots cost other clients of a loaded server, and what they keep, beside Redis' fork.

    cargo build --release -p pando-server -p pando-bench
    crates/bench/scripts/snapshots.py target/release/pando --keys 10m [--creates 50] [--redis]

A server with two workers is filled with keys of 8-byte values. While a load of GETs (--reads, in per
cent) and SETs runs as fast as it can, snapshots are made and dropped: how long SNAPSHOT CREATE
takes, its wait for all workers included, and the 99th percentile of another client's GETs in the
second after it, over that in the second before. Then SETs alone for --seconds with a snapshot
there: how many bytes are kept for each key that was overwritten. With --redis the same load during a
BGSAVE of redis-server, and what its fork copied meanwhile (rdb_last_cow_size). With --instructions
nothing of this: the server's instructions for a GET of the present without a snapshot and with one,
by callgrind. Everything is on the loopback interface.
"""

import argparse
import bisect
import math
import os
import random
import socket
import subprocess
import tempfile
import threading
import time

LOAD_CONNECTIONS = 8


class Client:
    """Commands, and their replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        self.send([words])
        return self.reply()

    def send(self, commands):
        parts = []
        for words in commands:
            parts.append(b"*%d\r\n" % len(words))
            for word in words:
                word = word if isinstance(word, bytes) else str(word).encode()
                parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))

    def reply(self):
        line = self.file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b"$":
            return None if rest == b"-1" else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return rest

    def info(self, section):
        lines = self.call("INFO", section).decode().splitlines()
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Server:
    """A process that is ended with the block."""

    def __init__(self, port, words):
        self.port = port
        self.process = subprocess.Popen(
            words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )

    def __enter__(self):
        for _ in range(1000):
            try:
                return Client(self.port), self
            except OSError:
                time.sleep(0.01)
        raise RuntimeError("the server does not listen")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class Load:
    """pando-bench load, for the time of the block."""

    def __init__(self, options, port, seconds, *more):
        line = (
            f"load 127.0.0.1:{port} --keys {options.keys} --connections {LOAD_CONNECTIONS} "
            "--warm-up 0 --repeats 1"
        )
        self.words = [options.bench, *line.split(), "--seconds", str(seconds), *more]

    def __enter__(self):
        self.process = subprocess.Popen(
            self.words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return self

    def wait(self):
        if self.process.wait() != 0:
            raise RuntimeError("the load failed")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()


class Prober(threading.Thread):
    """GETs one after the other: when each began, and how long it took."""

    def __init__(self, port, keys):
        super().__init__(daemon=True)
        self.client, self.keys = Client(port), keys
        self.at, self.took, self.ends = [], [], False

    def run(self):
        while not self.ends:
            key = b"key:%012d" % random.randrange(self.keys)
            at = time.monotonic()
            self.client.call(b"GET", key)
            self.took.append(time.monotonic() - at)
            self.at.append(at)

    def p99_us(self, start, end):
        first, last = (bisect.bisect(self.at, time) for time in (start, end))
        return sorted(self.took[first:last])[(last - first) * 99 // 100] * 1e6


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def median(numbers):
    return sorted(numbers)[len(numbers) // 2]


def fill(options, port):
    with Load(options, port, 0.1, "--fill", "--reads", "100") as load:
        load.wait()


def creations(options, client, port):
    """CREATE under full load, and what other clients see of it."""
    prober = Prober(port, options.keys)
    reads = str(options.reads)
    busy = Load(options, port, 1e4, "--reads", reads, "--pipeline", "32")
    with busy:
        prober.start()
        time.sleep(1)
        took, pairs = [], []
        for round in range(options.creates):
            # What the last one kept is given back meanwhile.
            time.sleep(2)
            at = time.monotonic()
            client.call("SNAPSHOT", "CREATE", f"s{round}")
            done = time.monotonic()
            took.append((done - at) * 1e3)
            time.sleep(1.01)
            pairs.append((prober.p99_us(at - 1, at), prober.p99_us(at, at + 1)))
            client.call("SNAPSHOT", "DROP", f"s{round}")
        prober.ends = True
        prober.join()
    ratios = [after / before for before, after in pairs]
    before, after = (median(side) for side in zip(*pairs))
    print(
        f"SNAPSHOT CREATE, ms: median {median(took):.2f}, worst {max(took):.2f} of {len(took)}\n"
        f"p99 of GETs, the second after over the second before: median {median(ratios):.2f} "
        f"({min(ratios):.2f}–{max(ratios):.2f}); {after:.0f} and {before:.0f} µs"
    )


def overwrite(options, client, port, until):
    """SETs until the condition holds; about how many keys they were."""
    sets = int(client.info("stats")["total_commands_processed"])
    with Load(options, port, 1e4, "--reads", "0", "--pipeline", "32"):
        until()
        sets = int(client.info("stats")["total_commands_processed"]) - sets
    return options.keys * (1 - math.exp(-sets / options.keys)), sets


def kept(options, client, port):
    """What is kept of the keys that are overwritten."""
    memory = int(client.info("memory")["used_memory"])
    client.call("SNAPSHOT", "CREATE", "kept")
    start = time.monotonic()
    overwrite(options, client, port, lambda: time.sleep(options.seconds))
    seconds = time.monotonic() - start
    images = client.info("snapshots")
    grown = int(client.info("memory")["used_memory"]) - memory
    count, size = int(images["snapshot_images"]), int(images["snapshot_image_bytes"])
    print(
        f"pando: {count} keys overwritten in {seconds:.1f} s; {size / count:.1f} bytes of images "
        f"and {grown / count:.1f} bytes of memory for each"
    )
    client.call("SNAPSHOT", "DROP", "kept")


def forked(options):
    """The same of a BGSAVE."""
    port = free_port()
    with tempfile.TemporaryDirectory() as directory:
        words = ["redis-server", "--port", str(port), "--save", "", "--dir", directory]
        with Server(port, words) as (client, _):
            fill(options, port)

            def saved():
                client.call("BGSAVE")
                while client.info("persistence")["rdb_bgsave_in_progress"] == "1":
                    time.sleep(0.1)

            start = time.monotonic()
            count, _ = overwrite(options, client, port, saved)
            seconds = time.monotonic() - start
            copied = int(client.info("persistence")["rdb_last_cow_size"])
            print(
                f"redis: {count:.0f} keys overwritten in {seconds:.1f} s of BGSAVE; "
                f"{copied / count:.1f} bytes copied by its fork for each"
            )


def counted(options, frozen, blocks):
    """Instructions of a whole run with so many blocks of 32 GETs."""
    few, port = 20_000, free_port()
    with tempfile.NamedTemporaryFile("r") as log:
        line = (
            f"valgrind --tool=callgrind --callgrind-out-file=/dev/null --log-file={log.name} "
            f"{options.pando} --port {port} --threads 1 --durability none --engine {options.engine}"
        )
        with Server(port, line.split()) as (client, _):
            for key in range(few):
                client.call("SET", b"key:%012d" % key, b"12345678")
            if frozen:
                client.call("SNAPSHOT", "CREATE", "counted")
            draw = random.Random(1)
            for _ in range(blocks):
                client.send([("GET", b"key:%012d" % draw.randrange(few)) for _ in range(32)])
                for _ in range(32):
                    client.reply()
            client.socket.close()
        return int(log.read().split("Collected : ")[1].split()[0])


def instructions(options):
    """Of two runs of different lengths start, filling and end cancel out."""
    lengths = 200, 2200
    costs = []
    for frozen in (False, True):
        # What a server does by the clock stays: the least of some runs counts.
        short, long = (
            min(counted(options, frozen, length) for _ in range(3)) for length in lengths
        )
        costs.append((long - short) / (32 * (lengths[1] - lengths[0])))
    without, with_one = costs
    print(
        f"instructions per GET: {without:.0f}, with a snapshot {with_one:.0f}, "
        f"× {with_one / without:.4f}"
    )


def keys(text):
    return int(text[:-1]) * 1_000_000 if text.endswith("m") else int(text)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("pando")
    parser.add_argument("--bench", help="pando-bench; beside the server when absent")
    parser.add_argument("--engine", default="masstree")
    parser.add_argument("--keys", type=keys, default=10_000_000)
    parser.add_argument("--creates", type=int, default=50)
    parser.add_argument("--reads", type=int, default=95)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--redis", action="store_true")
    parser.add_argument("--instructions", action="store_true")
    options = parser.parse_args()
    if options.instructions:
        instructions(options)
        return
    beside = os.path.join(os.path.dirname(options.pando), "pando-bench")
    options.bench = options.bench or beside
    port = free_port()
    line = f"{options.pando} --port {port} --threads 2 --durability none --engine {options.engine}"
    with Server(port, line.split()) as (client, _):
        fill(options, port)
        creations(options, client, port)
        kept(options, client, port)
    if options.redis:
        forked(options)


if __name__ == "__main__":
    main()
