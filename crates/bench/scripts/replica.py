#!/usr/bin/env python3
"""What a replica costs, and how far it is behind: processor time per SET, and lag.

    cargo build --release -p pando-server
    crates/bench/scripts/replica.py target/release/pando [--requests 2000000] [--rounds 3]
        [--keys 500000] [--durability none] [--threads 2] [--redis redis-server]

A primary alone, then the same with one replica, under redis-benchmark (SET of 8 bytes to random
keys, 32 in a pipeline, 50 connections), several rounds in turns. For each: microseconds of
processor time per SET of the primary, and of the replica until it has everything. Meanwhile a
client sets one key of its own every 10 ms, and another one waits until the replica shows it: the
lag, from the primary's answer on. `--redis` measures that server's in the same way, without
a log (its lag, too).

All of it shares the machine's processors. Times of /proc count in hundredths of a second.
"""

import argparse
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time


class Client:
    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
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


class Server:
    def __init__(self, options, directory, number, redis):
        self.directory = os.path.join(directory, str(number))
        os.mkdir(self.directory)
        if redis:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            command = [options.redis, "--port", str(self.port), "--save", "", "--dir"]
            command += [self.directory, "--repl-diskless-sync-delay", "0"]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            while True:
                try:
                    Client(self.port)
                    return
                except OSError:
                    time.sleep(0.05)
        command = [options.pando, "--port", "0", "--bind", "127.0.0.1", "--loglevel", "warning"]
        command += ["--durability", options.durability, "--threads", str(options.threads)]
        if options.durability != "none":
            command += ["--data-dir", self.directory]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        for line in self.process.stdout:
            found = re.search(r"tcp=127.0.0.1:(\d+)", line)
            if found:
                self.port = int(found.group(1))
                return
        sys.exit("the server does not start")

    def seconds(self):
        """Processor time so far."""
        with open(f"/proc/{self.process.pid}/stat") as file:
            fields = file.read().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def info(self, field):
        text = Client(self.port).ask("INFO", "replication")
        found = re.search(rf"^{field}:(\S+)", text, re.MULTILINE)
        return found and found.group(1)


def follow(replica, primary):
    Client(replica.port).ask("REPLICAOF", "127.0.0.1", primary.port)
    while replica.info("master_link_status") != "up":
        time.sleep(0.05)


def load(primary, options):
    command = ["redis-benchmark", "-p", str(primary.port), "-t", "set", "-P", "32", "-d", "8"]
    command += ["-n", str(options.requests), "-r", str(options.keys), "-c", "50", "-q"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def settle(primary, replica):
    while replica.info("slave_repl_offset") != primary.info("master_repl_offset"):
        time.sleep(0.01)


def watch(primary, replica, lags, stop):
    """Sets a key every 10 ms, and notes when the replica shows it."""
    writer, reader, number = Client(primary.port), Client(replica.port), 0
    while not stop.is_set():
        number += 1
        writer.ask("SET", "lag:probe", number)
        began = time.monotonic()
        while True:
            shown = reader.ask("GET", "lag:probe")
            if shown.isdigit() and int(shown) >= number:
                break
            time.sleep(0.0005)
        lags.append(time.monotonic() - began)
        time.sleep(0.01)


def measure(options, redis):
    name = "redis" if redis else f"pando, durability {options.durability}"
    with tempfile.TemporaryDirectory() as directory:
        servers = [Server(options, directory, number, redis) for number in range(3)]
        try:
            alone, primary, replica = servers
            follow(replica, primary)
            for server in (alone, primary):
                load(server, options)
            settle(primary, replica)
            costs, lags = [], []
            for _ in range(options.rounds):
                before = alone.seconds()
                load(alone, options)
                single = alone.seconds() - before
                before = primary.seconds(), replica.seconds()
                began = time.monotonic()
                load(primary, options)
                took = time.monotonic() - began
                settle(primary, replica)
                behind = time.monotonic() - began - took
                both = primary.seconds() - before[0], replica.seconds() - before[1]
                costs.append((single, *both))
                each = [1e6 * one / options.requests for one in costs[-1]]
                print(
                    f"{name}: {each[0]:.3f} us alone, {each[1]:.3f} with a replica "
                    f"({each[1] / each[0]:.2f}), the replica's {each[2]:.3f} "
                    f"({each[2] / each[1]:.2f}, of alone {each[2] / each[0]:.2f}); "
                    f"{options.requests / took / 1e3:.0f} k/s, behind at the end {behind:.3f} s",
                    flush=True,
                )
            for _ in range(options.rounds):
                stop = threading.Event()
                watcher = threading.Thread(target=watch, args=(primary, replica, lags, stop))
                watcher.start()
                load(primary, options)
                stop.set()
                watcher.join()
            lags.sort()
            share = [lags[min(len(lags) - 1, int(len(lags) * one))] for one in (0.5, 0.99)]
            print(
                f"{name}: lag of {len(lags)} changes at full rate: p50 {1e3 * share[0]:.1f} ms, "
                f"p99 {1e3 * share[1]:.1f} ms, most {1e3 * lags[-1]:.1f} ms",
                flush=True,
            )
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("pando")
    parser.add_argument("--requests", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--durability", default="none")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--redis")
    options = parser.parse_args()
    measure(options, redis=False)
    if options.redis:
        measure(options, redis=True)


if __name__ == "__main__":
    main()
