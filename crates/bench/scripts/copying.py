#!/usr/bin/env python3
"""A full copy to a new replica, beside redis-server's without a disk: time, memory, latency.

    cargo build --release -p pando-server
    crates/bench/scripts/copying.py target/release/pando [--keys 10000000] [--redis redis-server]
        [--engine masstree] [--threads 2] [--diskless-load swapdb]

A primary without a log is filled with `--keys` keys with values of 8 bytes. One client asks it for
a GET and a SET of random keys in turns, a thousand times a second, and notes how long each takes:
for some seconds alone, then while a replica takes its copy. Printed are the time from REPLICAOF to
a link that is up, the most memory of the primary beyond what it had (PSS of all its processes,
every 50 ms) and that as a share of it, and the 99th percentile of the client's times, before and
meanwhile. Servers take their turns; all of it shares the machine's processors.
"""

import argparse
import multiprocessing
import os
import random
import re
import socket
import subprocess
import sys
import tempfile
import time

BATCH = 10_000


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=600)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.file = self.socket.makefile("rb")

    def ask(self, *words):
        self.socket.sendall(" ".join(map(str, words)).encode() + b"\r\n")
        line = self.file.readline()
        if line[:1] == b"$" and line != b"$-1\r\n":
            return self.file.read(int(line[1:]) + 2)[:-2].decode()
        if line[:1] == b"-":
            sys.exit(f"{words[0]}: {line.decode().strip()}")
        return line[1:].decode().strip()

    def fill(self, keys):
        for first in range(0, keys, BATCH):
            numbers = range(first, min(first + BATCH, keys))
            sets = "".join(f"SET key:{number:012} {number % 10**8:08}\r\n" for number in numbers)
            self.socket.sendall(sets.encode())
            self.file.read(len("+OK\r\n") * len(numbers))


class Server:
    def __init__(self, options, directory, name, redis):
        self.directory = os.path.join(directory, name)
        os.mkdir(self.directory)
        if redis:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            command = [options.redis, "--port", str(self.port), "--save", "", "--dir"]
            command += [self.directory, "--repl-diskless-sync", "yes"]
            command += ["--repl-diskless-sync-delay", "0"]
            command += ["--repl-diskless-load", options.diskless_load]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while True:
                try:
                    Client(self.port)
                    return
                except OSError:
                    time.sleep(0.05)
        command = [options.pando, "--port", "0", "--bind", "127.0.0.1", "--loglevel", "warning"]
        command += ["--durability", "none", "--threads", str(options.threads)]
        command += ["--engine", options.engine]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"tcp=127.0.0.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                return
        sys.exit("the server does not start")

    def pss(self):
        """Bytes of memory of the process and of its children, shared pages counted once."""
        path = f"/proc/{self.process.pid}/task/{self.process.pid}/children"
        with open(path) as file:
            processes = [self.process.pid, *map(int, file.read().split())]
        total = 0
        for process in processes:
            try:
                with open(f"/proc/{process}/smaps_rollup") as file:
                    found = re.search(r"^Pss:\s+(\d+)", file.read(), re.MULTILINE)
                total += int(found.group(1)) * 1024 if found else 0
            except OSError:
                pass
        return total

    def is_up(self):
        text = Client(self.port).ask("INFO", "replication")
        return "master_link_status:up" in text and "master_sync_in_progress:0" in text


def watch(port, keys, stop, told):
    """A GET or a SET each millisecond, in a process of its own."""
    client, rng, number, times = Client(port), random.Random(1), 0, []
    due = time.monotonic()
    while not stop.is_set():
        key = f"key:{rng.randrange(keys):012}"
        words = ("GET", key) if number % 2 else ("SET", key, f"{number:08}")
        began = time.monotonic()
        client.ask(*words)
        times.append(time.monotonic() - began)
        number += 1
        due = max(due + 0.001, began)
        time.sleep(max(0, due - time.monotonic()))
    told.send(times)


def watched(server, keys, work):
    """Does the work beside a watcher; returns its result, and the watcher's times."""
    stop = multiprocessing.Event()
    here, there = multiprocessing.Pipe()
    watcher = multiprocessing.Process(target=watch, args=(server.port, keys, stop, there))
    watcher.start()
    done = work()
    stop.set()
    times = here.recv()
    watcher.join()
    return done, times


def copy(primary, replica):
    """Lets the replica take its copy; returns how long it took, and the primary's most memory."""
    most, began = 0, time.monotonic()
    Client(replica.port).ask("REPLICAOF", "127.0.0.1", primary.port)
    while not replica.is_up():
        most = max(most, primary.pss())
        time.sleep(0.05)
    took = time.monotonic() - began
    return took, max(most, primary.pss())


def p99(times):
    return sorted(times)[int(len(times) * 0.99)] * 1e3


def measure(options, redis):
    name = f"redis, {options.diskless_load}" if redis else f"pando, {options.engine}"
    with tempfile.TemporaryDirectory() as directory:
        servers = [Server(options, directory, role, redis) for role in ("primary", "replica")]
        primary, replica = servers
        try:
            Client(primary.port).fill(options.keys)
            before = primary.pss()
            _, calm = watched(primary, options.keys, lambda: time.sleep(options.seconds))
            (took, most), busy = watched(primary, options.keys, lambda: copy(primary, replica))
            there, here = (int(Client(one.port).ask("DBSIZE")) for one in servers)
            grown = most - before
            print(
                f"{name}: {there} keys ({here} on the replica) in {took:.2f} s; primary's memory "
                f"{before / 1e6:.0f} MB, {grown / 1e6:+.0f} MB ({grown / before:.3f}); p99 "
                f"{p99(calm):.2f} ms before, {p99(busy):.2f} ms meanwhile "
                f"({p99(busy) / p99(calm):.2f})",
                flush=True,
            )
        finally:
            for server in reversed(servers):
                server.process.kill()
                server.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pando")
    parser.add_argument("--keys", type=int, default=10_000_000)
    parser.add_argument("--redis")
    parser.add_argument("--diskless-load", default="swapdb")
    parser.add_argument("--engine", default="masstree")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--rounds", type=int, default=1)
    options = parser.parse_args()
    for _ in range(options.rounds):
        measure(options, redis=False)
        if options.redis:
            measure(options, redis=True)


if __name__ == "__main__":
    main()
