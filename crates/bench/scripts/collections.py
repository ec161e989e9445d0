#!/usr/bin/env python3
"""What collections cost beside redis-server: CPU of each request, memory, and clients that wait.

    cargo build --release -p pando-server
    crates/bench/scripts/collections.py target/release/pando [--rounds 3] [--only cpu|memory|blocked]

cpu: the default tests of redis-benchmark, without a log on either side, in turns; the processor time
that each server takes for a million requests (/proc/PID/stat, in steps of 10 ms), and the median of
the ratios, ours over Redis', with pipelines of 32 and of 1. memory: the growth of RssAnon by a sorted
set and a list of a million members, and by a million sets of five, ours over Redis'. blocked:
10,000 clients in BLPOP, with what they cost while nothing comes, and how long a client waits from the
other one's push to its own element. Everything is on the loopback interface.
"""

import argparse
import os
import socket
import statistics
import subprocess
import tempfile
import time

TESTS = (
    "ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,"
    "lrange_100,lrange_300,lrange_500,lrange_600,mset"
).split(",")
TICK = os.sysconf("SC_CLK_TCK")


class Server:
    """A server of our own, on a port that the system chooses."""

    def __init__(self, command, directory):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        command = [word.format(port=self.port, directory=directory) for word in command]
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        self.process = subprocess.Popen(command, **quiet)
        until = time.monotonic() + 20
        while True:
            try:
                return self.connect().close()
            except OSError:
                if time.monotonic() > until or self.process.poll() is not None:
                    raise

    def connect(self):
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=120)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def cpu(self):
        """Seconds of processor time so far."""
        with open(f"/proc/{self.process.pid}/stat", encoding="ascii") as file:
            fields = file.read().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    def memory(self):
        """Bytes of private memory."""
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as file:
            lines = [line for line in file if line.startswith("RssAnon")]
        return int(lines[0].split()[1]) * 1024

    def end(self):
        self.process.terminate()
        self.process.wait()


def encode(*words):
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        word = str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


def run(connection, requests):
    """Sends requests in portions, and reads their replies, which are integers."""
    portion = []

    def flush():
        connection.sendall(b"".join(portion))
        left = len(portion)
        while left:
            data = connection.recv(1 << 16)
            if not data or b"-" in data:
                raise RuntimeError(data)
            left -= data.count(b"\r\n")
        portion.clear()

    for request in requests:
        portion.append(request)
        if len(portion) == 1000:
            flush()
    flush()


def benchmark(server, test, requests, pipeline):
    """Processor time of the server for a million requests, in seconds."""
    before = server.cpu()
    subprocess.run(
        [
            *("redis-benchmark", "-p", str(server.port), "-t", test, "-n", str(requests)),
            *("-P", str(pipeline), "-r", "100000", "-q"),
        ],
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return (server.cpu() - before) / requests * 1e6


def cpu(start, rounds):
    for pipeline, requests in ((32, 1_000_000), (1, 200_000)):
        print(f"\n-P {pipeline}: s per million requests\n{'test':12} ours   redis  ratio (median)")
        figures = {test: [] for test in TESTS}
        for _ in range(rounds):
            servers = start()
            for test in TESTS:
                count = requests // 10 if test.startswith("lrange") else requests
                figures[test].append([benchmark(it, test, count, pipeline) for it in servers])
            for server in servers:
                server.end()
        for test, pairs in figures.items():
            ours, redis = (statistics.median(side) for side in zip(*pairs))
            ratio = statistics.median(one / max(other, 1e-9) for one, other in pairs)
            print(f"{test:12} {ours:6.2f} {redis:6.2f}  {ratio:5.2f}", flush=True)


MEMORY = {
    "a sorted set of a million": lambda: (
        encode("ZADD", "z", at * 7919 % 1_000_003, f"member:{at:07}") for at in range(1_000_000)
    ),
    "a list of a million": lambda: (
        encode("RPUSH", "l", f"element:{at:07}") for at in range(1_000_000)
    ),
    "a million sets of five": lambda: (
        encode("SADD", f"s:{at}", *(f"tag{at * 31 % 997 + more}" for more in range(5)))
        for at in range(1_000_000)
    ),
}


def memory(start):
    print("\nbytes, ours, redis, ratio")
    for name, requests in MEMORY.items():
        grown = []
        for server in start():
            before = server.memory()
            with server.connect() as connection:
                run(connection, requests())
            grown.append(server.memory() - before)
            server.end()
        print(f"{name:26} {grown[0]:12} {grown[1]:12} {grown[0] / grown[1]:5.2f}", flush=True)


def blocked(start, clients=10_000, wakes=5_000):
    for name, server in zip(("ours", "redis"), start()):
        waiting = [server.connect() for _ in range(clients)]
        by_key = {}
        for at, connection in enumerate(waiting):
            connection.sendall(encode("BLPOP", f"queue:{at}", 0))
            by_key[at] = connection
        time.sleep(2)
        before, begun = server.cpu(), time.monotonic()
        time.sleep(5)
        idle = (server.cpu() - before) / (time.monotonic() - begun)
        took = []
        with server.connect() as pusher:
            for wake in range(wakes):
                at = wake * 7919 % clients
                begun = time.perf_counter()
                pusher.sendall(encode("RPUSH", f"queue:{at}", "job"))
                by_key[at].recv(4096)
                took.append(time.perf_counter() - begun)
                pusher.recv(4096)
                by_key[at].sendall(encode("BLPOP", f"queue:{at}", 0))
        took.sort()
        print(
            f"{name}: {clients} blocked clients take {idle * 100:.2f} % of a core; a push wakes one in"
            f" {took[len(took) // 2] * 1e6:.0f} µs, p99 {took[len(took) * 99 // 100] * 1e6:.0f} µs",
            flush=True,
        )
        for connection in waiting:
            connection.close()
        server.end()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pando")
    parser.add_argument("--engine", default="masstree")
    parser.add_argument("--threads", default="1", help="workers; redis-server has one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=["cpu", "memory", "blocked"])
    options = parser.parse_args()
    ours = [
        *(options.pando, "--port", "{port}", "--durability", "none", "--threads", options.threads),
        *("--engine", options.engine, "--maxclients", "15000"),
    ]
    redis = ["redis-server", "--port", "{port}", "--save", "", "--dir", "{directory}"]
    redis += ["--maxclients", "15000", "--bind", "127.0.0.1"]
    with tempfile.TemporaryDirectory() as directory:

        def start():
            return [Server(command, directory) for command in (ours, redis)]

        if options.only in (None, "cpu"):
            cpu(start, options.rounds)
        if options.only in (None, "memory"):
            memory(start)
        if options.only in (None, "blocked"):
            blocked(start)


main()
