#!/usr/bin/env python3
"""The pool of the engine cdds over the wire: kill -9 under load, rollbacks, and CPU per command.

    cargo build --release -p pando-server
    crates/bench/scripts/pool.py kills target/release/pando --keys 10m --rounds 200 [--deadlines]
    crates/bench/scripts/pool.py rollbacks target/release/pando --keys 10m [--deadlines]
    crates/bench/scripts/pool.py costs target/release/pando [--keys 500k] [--rounds 3] [--redis]

`kills` loads the keys, with 8-byte values, and then, each round, writes on every one of --connections
with --durability sync, kills the server with SIGKILL after a random time, and starts it again: how
long from its exec to the first right answer, and whether every acknowledged write is there. It fails
if one is lost. `rollbacks` keeps a snapshot that lasts, overwrites a part of the keys each round, and goes
back: how long until the reply, and until the next right answer. With --deadlines every key has a
deadline of its own, far away. `costs` gives the CPU time of the server per SET and GET in batches of 32, by
/proc/PID/stat, of cdds with --durability sync, of masstree without a log, and with --redis of
redis-server without one, in turn. The pool lies on --directory, a tmpfs. Everything is on the
loopback interface.
"""

import argparse
import os
import random
import signal
import socket
import statistics
import subprocess
import tempfile
import threading
import time

from branches import number
from snapshots import free_port

BATCH = 32


# The year 2100, in milliseconds.
FAR_AWAY = 4_102_444_800_000


def set_of(key, value, deadline=None):
    if deadline is None:
        return b"*3\r\n$3\r\nSET\r\n$14\r\nkey:%010d\r\n$8\r\n%08d\r\n" % (key, value)
    form = b"*5\r\n$3\r\nSET\r\n$14\r\nkey:%010d\r\n$8\r\n%08d\r\n$4\r\nPXAT\r\n$13\r\n%d\r\n"
    return form % (key, value, deadline)


def get_of(key):
    return b"*2\r\n$3\r\nGET\r\n$14\r\nkey:%010d\r\n" % key


class Client:
    """Batches of commands, and their replies in bytes."""

    # Whether every key has a deadline.
    deadlines = False

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def call(self, request, length):
        """Raises ConnectionError if the server ends before all of the reply is there."""
        self.socket.sendall(request)
        reply = b""
        while len(reply) < length:
            more = self.socket.recv(1 << 16)
            if not more:
                raise ConnectionError("the server is gone")
            reply += more
        return reply

    def set_all(self, pairs):
        deadline = (lambda key: FAR_AWAY + key) if self.deadlines else (lambda key: None)
        sets = (set_of(key, value, deadline(key)) for key, value in pairs)
        reply = self.call(b"".join(sets), 5 * len(pairs))
        assert reply == b"+OK\r\n" * len(pairs), reply[:200]

    def get_all(self, keys):
        """Values of keys that are there, of eight digits each."""
        reply = self.call(b"".join(map(get_of, keys)), 14 * len(keys))
        parts = reply.split(b"\r\n")[1::2]
        assert len(parts) == len(keys), reply[:200]
        return [int(part) for part in parts]


class Server:
    """A server, and the time from its exec to its first right answer."""

    def __init__(self, command, directory, first):
        self.port = free_port()
        command = [part.replace("PORT", str(self.port)) for part in command]
        self.log = open(os.path.join(directory, "server.log"), "ab")
        begun = time.monotonic()
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log, cwd=directory)
        while True:
            try:
                self.client = Client(self.port)
                if self.client.call(first[0], len(first[1])) == first[1]:
                    break
            except OSError:
                assert self.process.poll() is None, f"it ended: see {self.log.name}"
            time.sleep(0.0005)
        self.seconds = time.monotonic() - begun

    def cpu(self):
        with open(f"/proc/{self.process.pid}/stat") as stat:
            fields = stat.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def end(self, how):
        self.process.send_signal(how)
        self.process.wait()
        self.log.close()


def pando(binary, pool, size):
    return [binary, "--port", "PORT", "--threads", "1", "--engine", "cdds", "--pmem", pool] + [
        "--pmem-size", size, "--durability", "sync"]


class Writer(threading.Thread):
    """Writes rising numbers to keys of its own until the server ends; knows what was acknowledged."""

    def __init__(self, port, own, first, seed):
        super().__init__()
        self.client, self.own, self.next = Client(port), own, first
        self.random = random.Random(seed)
        self.acknowledged = {}

    def run(self):
        try:
            while True:
                keys = self.random.sample(self.own, BATCH)
                self.client.set_all([(key, self.next) for key in keys])
                self.acknowledged.update((key, self.next) for key in keys)
                self.next += 1
        except OSError:
            pass


def loaded(command, directory, keys):
    """A server with so many keys."""
    server = Server(command, directory, (b"PING\r\n", b"+PONG\r\n"))
    for first in range(0, keys, 2000):
        server.client.set_all([(key, 0) for key in range(first, min(first + 2000, keys))])
    print(f"{keys} keys loaded", flush=True)
    return server


def rollbacks(arguments, directory, pool):
    keys = arguments.keys
    server = loaded(pando(arguments.pando, pool, arguments.size), directory, keys)
    client, times = server.client, []
    assert client.call(b"SNAPSHOT CREATE s PERSIST\r\n", 1)[:1] != b"-"
    client = Client(server.port)
    for turn in range(1, arguments.rounds + 1):
        for first in range(0, keys // 10, 1000):
            client.set_all([(key, turn) for key in range(first, first + 1000)])
        begun = time.monotonic()
        reply = client.call(b"SNAPSHOT ROLLBACK s\r\n", 5)
        replied = time.monotonic()
        assert reply[:1] != b"-", reply
        other = Client(server.port)
        assert other.get_all([0]) == [0], "it is not what it was"
        times.append((1000 * (replied - begun), 1000 * (time.monotonic() - begun)))
        client = other
    server.end(signal.SIGTERM)
    for row, what in zip(zip(*times), ["the reply", "the next right answer"]):
        print(f"rollback to {what}: {statistics.median(row):.1f} ms, at most {max(row):.1f}")


def kills(arguments, directory, pool):
    keys = arguments.keys
    print(f"seed {arguments.seed}")
    random.seed(arguments.seed)
    command = pando(arguments.pando, pool, arguments.size)
    server = loaded(command, directory, keys)
    known, times, acknowledged, lost = {}, [], 0, 0
    for turn in range(arguments.rounds):
        first = 1 + turn * 100_000
        writers = [
            Writer(server.port, range(start, keys, arguments.connections), first, random.random())
            for start in range(arguments.connections)
        ]
        for writer in writers:
            writer.start()
        time.sleep(random.uniform(0.05, arguments.seconds))
        server.end(signal.SIGKILL)
        for writer in writers:
            writer.join()
            acknowledged += len(writer.acknowledged)
            known.update(writer.acknowledged)
        # The first answer is right if it says that the first key is there, which nobody removes.
        server = Server(command, directory, (b"EXISTS key:0000000000\r\n", b":1\r\n"))
        times.append(server.seconds)
        asked = random.sample(sorted(known), min(len(known), 20_000))
        for writer in writers:
            asked += writer.acknowledged
        for start in range(0, len(asked), 1000):
            part = asked[start : start + 1000]
            # What was on its way may have been written too.
            lost += sum(value < known[key] for key, value in zip(part, server.client.get_all(part)))
    server.end(signal.SIGKILL)
    times = sorted(1000 * second for second in times)
    print(f"{arguments.rounds} rounds, {acknowledged} writes acknowledged, {lost} lost")
    print(f"exec to the first right answer: {statistics.median(times):.0f} ms, at most {times[-1]:.0f}")
    assert lost == 0, "acknowledged writes are lost"


def costs(arguments, directory, pool):
    command = [arguments.pando, "--port", "PORT", "--threads", "1", "--durability", "none"]
    commands = {"cdds": pando(arguments.pando, pool, arguments.size), "masstree": command}
    if arguments.redis:
        commands["redis"] = ["redis-server", "--port", "PORT", "--save", "", "--appendonly", "no"]
    first = (b"PING\r\n", b"+PONG\r\n")
    servers = {name: Server(command, directory, first) for name, command in commands.items()}
    random.seed(1)
    batches = [random.sample(range(arguments.keys), BATCH) for _ in range(arguments.keys // BATCH)]
    for server in servers.values():
        for start in range(0, arguments.keys, 1000):
            server.client.set_all([(key, 0) for key in range(start, start + 1000)])
    for turn in range(arguments.rounds):
        for name, server in servers.items():
            row = []
            for run in [
                lambda batch: server.client.set_all([(key, turn) for key in batch]),
                server.client.get_all,
            ]:
                before = server.cpu()
                for batch in batches:
                    run(batch)
                row.append(1e9 * (server.cpu() - before) / (len(batches) * BATCH))
            print(f"{name:10} SET {row[0]:6.0f} ns  GET {row[1]:6.0f} ns", flush=True)
    for server in servers.values():
        server.end(signal.SIGTERM)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["kills", "rollbacks", "costs"])
    parser.add_argument("pando", type=os.path.abspath)
    parser.add_argument("--keys", type=number, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--connections", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--size", default="4gb")
    parser.add_argument("--seed", type=int, default=1, help="of the keys and times of kills")
    parser.add_argument("--directory", default="/dev/shm")
    parser.add_argument("--redis", action="store_true")
    parser.add_argument("--deadlines", action="store_true", help="every key has one")
    arguments = parser.parse_args()
    Client.deadlines = arguments.deadlines
    with tempfile.TemporaryDirectory(dir=arguments.directory) as directory:
        pool = os.path.join(directory, "pool")
        run = {"kills": kills, "rollbacks": rollbacks, "costs": costs}[arguments.what]
        run(arguments, directory, pool)


main()
