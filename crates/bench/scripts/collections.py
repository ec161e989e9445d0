#!/usr/bin/env python3
"""What collections cost beside redis-server: CPU, memory, blocked clients. No log on either side.

    cargo build --release -p pando-server
    crates/bench/scripts/collections.py target/release/pando cpu [--pipelines 32,1] [--requests 1m]
    crates/bench/scripts/collections.py target/release/pando memory
    crates/bench/scripts/collections.py target/release/pando blocked [--clients 10000]
    crates/bench/scripts/collections.py target/release/pando ycsb-e [--records 100k] [--requests 2k]

cpu: the default tests of redis-benchmark against both servers in turn, several rounds; the
processor time of each server, from /proc, per million operations, and the median of the rounds'
ratios. A busy machine changes both sides alike. Each server has one worker. Keys, fields, members and
scores are drawn from --spread numbers; with 0 from one, which is redis-benchmark's own default.

memory: bytes of a sorted set of a million members, a list of a million elements and a million sets
of five members: used_memory before, and a second after the last command, as ratios.

blocked: so many clients in BLPOP, each on a key of its own. Processor time of the server in
--seconds of idleness, per second; then one push after the other to a random one of them: how long it
takes from the push to the element at the client that was woken.

ycsb-e: workload E of YCSB (95 % scans of 1 to 100 records, 5 % inserts; records of ten fields of 100
bytes; start keys by a scrambled Zipfian) by the commands of YCSB's client for Redis, word for word:
an insert is HMSET and ZADD to the set `_indices`, whose scores are the keys' hash codes in Java; a
scan is ZRANGEBYSCORE … LIMIT, then HGETALL of each key, one command at a time. YCSB itself does not
run here: its clients are played by --ycsb-clients processes. Processor seconds of the server per
million operations of YCSB, both servers in turns. (--requests is per round: 2k is enough.)
"""

import argparse
import multiprocessing
import os
import random
import resource
import selectors
import socket
import statistics
import subprocess
import tempfile
import time

TESTS = (
    "ping_mbulk,set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,"
    "lrange_100,lrange_300,lrange_500,lrange_600,mset"
)


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def encode(*words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        word = word if isinstance(word, bytes) else str(word).encode()
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    return b"".join(parts)


class Client:
    """Commands, and their replies."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def call(self, *words):
        self.socket.sendall(encode(*words))
        return self.reply()

    def many(self, commands):
        """Pipelines of a thousand; their replies are only read."""
        waiting = []
        for command in commands:
            waiting.append(encode(*command))
            if len(waiting) == 1000:
                self.flush(waiting)
        self.flush(waiting)

    def flush(self, waiting):
        self.socket.sendall(b"".join(waiting))
        for _ in waiting:
            self.reply()
        waiting.clear()

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

    def used_memory(self):
        lines = self.call("INFO", "memory").decode().splitlines()
        fields = dict(line.split(":", 1) for line in lines if ":" in line)
        return int(fields["used_memory"])


class Server:
    """One of the two servers, for the time of the block."""

    def __init__(self, options, name):
        self.port, self.name = free_port(), name
        self.directory = tempfile.TemporaryDirectory()
        if name == "pando":
            words = [options.pando, "--threads", str(options.threads), "--durability", "none"]
            words += ["--maxclients", str(options.clients + 100)]
        else:
            words = [options.redis, "--save", "", "--appendonly", "no"]
            words += ["--maxclients", str(options.clients + 100)]
        words += ["--port", str(self.port)]
        self.process = subprocess.Popen(
            words,
            cwd=self.directory.name,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def __enter__(self):
        for _ in range(1000):
            try:
                self.client = Client(self.port)
                return self
            except OSError:
                time.sleep(0.01)
        raise RuntimeError(f"{self.name} does not listen")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait()
        self.directory.cleanup()

    def cpu_seconds(self):
        """Of all threads, in user and in kernel mode; by the scheduler, not by its ticks."""
        nanoseconds = 0
        for thread in os.listdir(f"/proc/{self.process.pid}/task"):
            path = f"/proc/{self.process.pid}/task/{thread}/schedstat"
            with open(path, encoding="ascii") as schedstat:
                nanoseconds += int(schedstat.read().split()[0])
        return nanoseconds / 1e9


def benchmark(server, test, pipeline, requests, spread=100_000):
    """Processor seconds per million operations."""
    words = ["redis-benchmark", "-p", str(server.port), "-t", test, "-n", str(requests)]
    words += ["-P", str(pipeline), "-q"]
    if spread:
        words += ["-r", str(spread)]
    # What is popped or listed must be there.
    fill = {"lpop": "lpush", "rpop": "rpush", "spop": "sadd", "zpopmin": "zadd"}.get(test)
    server.client.call("FLUSHALL")
    if fill:
        filled = [fill if word == test else word for word in words]
        subprocess.run(filled, check=True, stdout=subprocess.DEVNULL)
    before = server.cpu_seconds()
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL)
    return (server.cpu_seconds() - before) * 1e6 / requests


def cpu(options):
    print("| test | -P | redis s/M | pando s/M | ratio | bar |\n|---|---|---|---|---|---|")
    for pipeline in map(int, options.pipelines.split(",")):
        bar = 0.7 if pipeline > 1 else 1.0
        for test in options.tests.split(","):
            requests = options.requests
            if test.startswith("lrange"):
                requests //= 10
            rounds = []
            for _ in range(options.rounds):
                found = {}
                for name in ["redis", "pando"]:
                    with Server(options, name) as server:
                        found[name] = benchmark(server, test, pipeline, requests, options.spread)
                rounds.append(found)
            each = {
                name: statistics.median(found[name] for found in rounds)
                for name in ["redis", "pando"]
            }
            ratio = statistics.median(found["pando"] / found["redis"] for found in rounds)
            met = "met" if ratio <= bar else "MISSED"
            print(
                f"| {test} | {pipeline} | {each['redis']:.3f} | {each['pando']:.3f} "
                f"| {ratio:.2f} | {bar} {met} |",
                flush=True,
            )


def sorted_set(number):
    return (("ZADD", "key", member, f"member:{member:07}") for member in range(number))


def long_list(number):
    return (("RPUSH", "key", f"element:{element:07}") for element in range(number))


def small_sets(number):
    return (
        ("SADD", f"set:{key:07}", *(f"member:{member}" for member in range(5)))
        for key in range(number)
    )


def memory(options):
    print("| data | redis bytes | pando bytes | ratio | bar |\n|---|---|---|---|---|")
    for name, make, bar in [
        ("a sorted set of a million", sorted_set, 0.8),
        ("a list of a million", long_list, 1.0),
        ("a million sets of five", small_sets, 0.8),
    ]:
        taken = {}
        for side in ["redis", "pando"]:
            with Server(options, side) as server:
                before = server.client.used_memory()
                server.client.many(make(options.elements))
                # An idle server gives back what the versions before held.
                time.sleep(1)
                taken[side] = server.client.used_memory() - before
        ratio = taken["pando"] / taken["redis"]
        met = "met" if ratio <= bar else "MISSED"
        print(f"| {name} | {taken['redis']} | {taken['pando']} | {ratio:.2f} | {bar} {met} |")


def percentile(times, share):
    return times[min(len(times) - 1, int(len(times) * share))]


def blocked(options):
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    print("| server | idle CPU, s/s | wake-up p50 µs | p99 µs | worst µs |\n|---|---|---|---|---|")
    for name in ["redis", "pando"]:
        with Server(options, name) as server:
            waiting, selector = [], selectors.DefaultSelector()
            for index in range(options.clients):
                client = Client(server.port)
                client.socket.sendall(encode("BLPOP", f"key:{index}", 0))
                selector.register(client.socket, selectors.EVENT_READ, index)
                waiting.append(client)
            while int(info(server.client, "clients")["blocked_clients"]) < options.clients:
                time.sleep(0.05)
            before = server.cpu_seconds()
            time.sleep(options.seconds)
            idle = (server.cpu_seconds() - before) / options.seconds
            times = []
            for _ in range(options.pushes):
                index = random.randrange(options.clients)
                began = time.perf_counter()
                server.client.socket.sendall(encode("RPUSH", f"key:{index}", "element"))
                ready = selector.select()
                times.append((time.perf_counter() - began) * 1e6)
                assert [key.data for key, _ in ready] == [index], "another client was woken"
                server.client.reply()
                waiting[index].reply()
                waiting[index].socket.sendall(encode("BLPOP", f"key:{index}", 0))
            times.sort()
            print(
                f"| {name} | {idle:.4f} | {percentile(times, 0.5):.0f} "
                f"| {percentile(times, 0.99):.0f} | {times[-1]:.0f} |",
                flush=True,
            )


def java_hash(text):
    """String.hashCode()."""
    code = 0
    for letter in text.encode():
        code = (31 * code + letter) & 0xFFFFFFFF
    return code - (1 << 32) if code >= 1 << 31 else code


def java_double(number):
    """Double.toString() of an integer, as Jedis sends a score."""
    digits = str(abs(number))
    if len(digits) <= 7:
        return f"{number}.0"
    rest = digits[1:].rstrip("0") or "0"
    return f"{'-' if number < 0 else ''}{digits[0]}.{rest}E{len(digits) - 1}"


def fnv(number):
    """YCSB's hash of the number of a record."""
    code = 0xCBF29CE484222325
    for _ in range(8):
        code = (code ^ (number & 0xFF)) * 1099511628211 & 0xFFFFFFFFFFFFFFFF
        number >>= 8
    return abs(code - (1 << 64) if code >= 1 << 63 else code)


class Zipfian:
    """YCSB's generator: the first of `items` items most often."""

    SKEW = 0.99

    def __init__(self, items):
        self.items = items
        self.zeta = sum(1 / rank**self.SKEW for rank in range(1, items + 1))
        two = 1 + 0.5**self.SKEW
        self.alpha = 1 / (1 - self.SKEW)
        self.eta = (1 - (2 / items) ** (1 - self.SKEW)) / (1 - two / self.zeta)

    def next(self, source):
        share = source.random()
        if share * self.zeta < 1:
            return 0
        if share * self.zeta < 1 + 0.5**self.SKEW:
            return 1
        return int(self.items * (self.eta * share - self.eta + 1) ** self.alpha)


def insert(number, source):
    """The commands that insert a record."""
    key = f"user{fnv(number)}"
    fields = [
        word
        for field in range(10)
        for word in (f"field{field}", bytes(source.choices(range(32, 127), k=100)))
    ]
    return [
        ("HMSET", key, *fields),
        ("ZADD", "_indices", java_double(java_hash(key)), key),
    ]


def play_ycsb_e(port, client, requests, records, zipfian):
    """One of YCSB's threads."""
    source = random.Random(client)
    connection = Client(port)
    for request in range(requests):
        if source.random() < 0.05:
            number = records + client * requests + request
            for command in insert(number, source):
                connection.call(*command)
        else:
            start = f"user{fnv(fnv(zipfian.next(source)) % records)}"
            count = source.randint(1, 100)
            score = java_double(java_hash(start))
            bounds = ("_indices", score, "+inf", "LIMIT", 0, count)
            keys = connection.call("ZRANGEBYSCORE", *bounds)
            assert start.encode() in keys or len(keys) == count, "the record is not found"
            for key in keys:
                assert len(connection.call("HGETALL", key)) == 20, "the record is not whole"


def ycsb_e(options):
    zipfian = Zipfian(options.records)
    requests = options.requests // options.ycsb_clients
    rounds = []
    with Server(options, "redis") as redis, Server(options, "pando") as pando:
        servers = [redis, pando]
        for server in servers:
            source = random.Random(0)
            load = (insert(number, source) for number in range(options.records))
            server.client.many(command for commands in load for command in commands)
        for turn in range(options.rounds):
            found = {}
            for server in servers:
                before = server.cpu_seconds()
                players = [
                    multiprocessing.Process(
                        target=play_ycsb_e,
                        args=(
                            server.port,
                            turn * options.ycsb_clients + client,
                            requests,
                            options.records,
                            zipfian,
                        ),
                    )
                    for client in range(options.ycsb_clients)
                ]
                for player in players:
                    player.start()
                for player in players:
                    player.join()
                    assert player.exitcode == 0, "a client failed"
                seconds = server.cpu_seconds() - before
                found[server.name] = seconds * 1e6 / (requests * options.ycsb_clients)
            rounds.append(found)
    each = {side: statistics.median(it[side] for it in rounds) for side in ["redis", "pando"]}
    ratio = statistics.median(it["pando"] / it["redis"] for it in rounds)
    met = "met" if ratio <= 0.67 else "MISSED"
    print("| workload | redis s/M | pando s/M | ratio | bar |\n|---|---|---|---|---|")
    print(f"| YCSB E | {each['redis']:.0f} | {each['pando']:.0f} | {ratio:.2f} | 0.67 {met} |")


def info(client, section):
    lines = client.call("INFO", section).decode().splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def count(text):
    units = {"k": 1000, "m": 1_000_000}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pando")
    parser.add_argument("what", choices=["cpu", "memory", "blocked", "ycsb-e"])
    parser.add_argument("--redis", default="redis-server")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tests", default=TESTS)
    parser.add_argument("--pipelines", default="32,1")
    parser.add_argument("--requests", type=count, default=1_000_000)
    parser.add_argument("--spread", type=count, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--elements", type=count, default=1_000_000)
    parser.add_argument("--clients", type=count, default=10_000)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--pushes", type=count, default=10_000)
    parser.add_argument("--records", type=count, default=100_000)
    parser.add_argument("--ycsb-clients", type=int, default=4)
    options = parser.parse_args()
    options.pando = os.path.abspath(options.pando)
    run = {"cpu": cpu, "memory": memory, "blocked": blocked, "ycsb-e": ycsb_e}
    run[options.what](options)


if __name__ == "__main__":
    main()
