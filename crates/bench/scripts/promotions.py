#!/usr/bin/env python3
"""Kills, cuts and promotions under `replicated 1`: nothing acknowledged is lost.

    cargo build --release -p pando-server
    crates/bench/scripts/promotions.py target/release/pando [--rounds 1000] [--seed 1] [--lowest]

Three servers with logs: a primary and two replicas, of two engines and several numbers of threads.
Clients write growing numbers to keys of their own with CLIENT DURABILITY REPLICATED 1; readers on
the replicas see to it that no number goes back on a connection. Each round something happens to
a random server: the primary is killed, and the replica with the highest slave_repl_offset promoted;
a replica is killed; one is stopped for a while; all links are cut; the primary hands over. Then
every key must hold the number that was acknowledged last, or one sent later; when all servers are
back, REPLICA CHECK must find the same on each. It ends with 1 otherwise.

A primary that was killed may have what nobody has acknowledged. It shows that until its full copy
is in, so its readers begin behind that.

--lowest promotes the replica with the lowest offset instead, one that was dead for a while: this
must be found out.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

WRITERS = 3
KEYS = 20
BATCH = 8


class Client:
    """Pipelined commands, and their replies as bytes, lists of them, or an Exception."""

    def __init__(self, port, timeout=30):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=timeout)
        self.file = self.socket.makefile("rb")

    def send(self, commands):
        parts = []
        for command in commands:
            parts.append(b"*%d\r\n" % len(command))
            for word in command:
                word = word if isinstance(word, bytes) else str(word).encode()
                parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
        self.socket.sendall(b"".join(parts))

    def reply(self):
        line = self.file.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError
        kind, rest = line[:1], line[1:-2]
        if kind == b"$":
            size = int(rest)
            if size < 0:
                return None
            data = self.file.read(size + 2)
            if len(data) < size + 2:
                raise ConnectionError
            return data[:-2]
        if kind == b"*":
            return [self.reply() for _ in range(int(rest))]
        return RuntimeError(rest.decode()) if kind == b"-" else rest

    def call(self, *words):
        self.send([words])
        return self.reply()

    def close(self):
        self.file.close()
        self.socket.close()


class Server:
    def __init__(self, binary, folder, name, flags):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.flags = [binary, "--port", str(self.port), "--data-dir", os.path.join(folder, name)]
        self.flags += ["--durability", "interval", "--log-level", "warning"] + flags
        self.process = None
        # Its readers may look: what it shows came from the present primary.
        self.follows = False

    def start(self, primary=None):
        follows = ["--replicaof", f"127.0.0.1 {primary.port}"] if primary else []
        self.process = subprocess.Popen(self.flags + follows, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_for("a start", lambda: self.call("PING") == b"PONG")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def call(self, *words):
        client = Client(self.port)
        try:
            return client.call(*words)
        finally:
            client.close()

    def info(self, field):
        for line in self.call("INFO", "replication").decode().split("\r\n"):
            if line.startswith(field + ":"):
                return line.split(":", 1)[1]
        return None


def wait_for(what, is_so, seconds=60, about=lambda: ""):
    until = time.time() + seconds
    while time.time() < until:
        try:
            if is_so():
                return
        except (OSError, RuntimeError):
            pass
        time.sleep(0.02)
    raise SystemExit(f"FAILED: {what} did not come within {seconds} s {about()}")


class Run:
    def __init__(self):
        self.primary = None
        self.replicas = []
        self.paused = threading.Event()
        self.busy = [threading.Lock() for _ in range(WRITERS)]
        self.acknowledged = {}
        self.sent = {}
        self.counts = dict(acknowledged=0, refused=0, read=0)
        self.back = []
        self.stop = False

    def write(self, index):
        client, port, number = None, None, 0
        while not self.stop:
            if self.paused.is_set():
                time.sleep(0.01)
                continue
            with self.busy[index]:
                if client is None or port != self.primary.port:
                    try:
                        port = self.primary.port
                        client = Client(port, timeout=4)
                        client.call("CLIENT", "DURABILITY", "REPLICATED", 1, "TIMEOUT", 1000)
                    except OSError:
                        client = None
                        time.sleep(0.02)
                        continue
                batch = []
                for _ in range(BATCH):
                    number += 1
                    batch.append((f"w{index}:{random.randrange(KEYS)}", number))
                    self.sent[batch[-1][0]] = number
                try:
                    client.send([("SET", key, value) for key, value in batch])
                    for key, value in batch:
                        if client.reply() == b"OK":
                            self.acknowledged[key] = value
                            self.counts["acknowledged"] += 1
                        else:
                            self.counts["refused"] += 1
                except OSError:
                    client = None

    def read(self, server):
        """Reads one server until it is told to stop; a new connection begins anew."""
        client, seen = None, {}
        while not self.stop:
            if server is self.primary or not server.follows:
                client = None
                time.sleep(0.02)
                continue
            try:
                if client is None:
                    client, seen = Client(server.port, timeout=4), {}
                key = f"w{random.randrange(WRITERS)}:{random.randrange(KEYS)}"
                value = client.call("GET", key)
                if isinstance(value, Exception):
                    continue
                number = int(value or 0)
                if number < seen.get(key, 0):
                    self.back.append((server.port, key, seen[key], number))
                seen[key] = number
                self.counts["read"] += 1
            except OSError:
                client = None
                time.sleep(0.02)

    def rest(self):
        """Lets the writers end their batches."""
        self.paused.set()
        for lock in self.busy:
            lock.acquire()

    def go_on(self):
        for lock in self.busy:
            lock.release()
        self.paused.clear()

    def lost(self):
        client = Client(self.primary.port)
        found = []
        for key, number in self.acknowledged.items():
            value = int(client.call("GET", key) or 0)
            if not number <= value <= self.sent[key]:
                found.append((key, number, value, self.sent[key]))
        client.close()
        return found


def promote(run, lowest):
    """The primary is dead: one of the replicas takes its place."""
    for replica in run.replicas:
        wait_for("a link that is down", lambda: replica.info("master_link_status") == "down")
    place = [int(replica.info("slave_repl_offset")) for replica in run.replicas]
    first, other = run.replicas if place[0] >= place[1] else run.replicas[::-1]
    if lowest:
        first, other = other, first
    assert first.call("REPLICAOF", "NO", "ONE") == b"OK"
    other.call("REPLICAOF", "127.0.0.1", first.port)
    dead = run.primary
    run.primary, run.replicas = first, [other, dead]
    return dead


def happen(run, what, lowest):
    """Something happens; returns what is lost by it."""
    victim = random.choice(run.replicas)
    if what == "promotion":
        if lowest:
            victim.kill()
            time.sleep(0.3)
        run.primary.kill()
        run.primary.follows = False
        if lowest:
            victim.start(run.primary)
        run.rest()
        dead = promote(run, lowest)
        lost = run.lost()
        dead.start(run.primary)
        run.go_on()
        return lost
    if what == "replica":
        victim.kill()
        time.sleep(random.random() * 0.2)
        victim.start(run.primary)
    elif what == "stall":
        victim.process.send_signal(signal.SIGSTOP)
        time.sleep(random.random() * 0.5)
        victim.process.send_signal(signal.SIGCONT)
    elif what == "cut":
        run.primary.call("CLIENT", "KILL", "TYPE", "REPLICA")
    else:
        answer = run.primary.call("FAILOVER", "TIMEOUT", 20000)
        if answer == b"OK":
            def over():
                return any(one.info("role") == "master" for one in run.replicas)
            wait_for("a fail-over", over)
            new = next(one for one in run.replicas if one.info("role") == "master")
            other = next(one for one in run.replicas if one is not new)
            run.rest()
            other.call("REPLICAOF", "127.0.0.1", new.port)
            run.primary, run.replicas = new, [run.primary, other]
            run.go_on()
    run.rest()
    lost = run.lost()
    run.go_on()
    return lost


def settle(run):
    """Every replica follows, and has the same; returns what differs."""
    differs = []
    for replica in run.replicas:
        wait_for(
            "a link",
            lambda: replica.info("master_link_status") == "up",
            about=lambda: replica.call("INFO", "replication").decode(),
        )

        def begun():
            return replica.call("REPLICA", "CHECK") == b"OK"
        wait_for("a check", begun)
        state = []

        def over():
            state[:] = replica.call("REPLICA", "STATUS")
            return state[1] != b"running"
        wait_for("the end of a check", over)
        if state[1] != b"same":
            differs.append(state)
        replica.follows = True
    return differs


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("binary")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--lowest", action="store_true")
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    print("seed", arguments.seed)
    run = Run()
    began, counts, failed = time.time(), {}, []
    with tempfile.TemporaryDirectory() as folder:
        servers = [
            Server(arguments.binary, folder, "a", ["--threads", "1"]),
            Server(arguments.binary, folder, "b", ["--threads", "2", "--engine", "mercury"]),
            Server(arguments.binary, folder, "c", ["--threads", "3"]),
        ]
        try:
            servers[0].start()
            run.primary, run.replicas = servers[0], servers[1:]
            for replica in run.replicas:
                replica.start(run.primary)
            settle(run)
            threads = [threading.Thread(target=run.write, args=(i,)) for i in range(WRITERS)]
            threads += [threading.Thread(target=run.read, args=(one,)) for one in servers]
            for thread in threads:
                thread.daemon = True
                thread.start()
            for number in range(arguments.rounds):
                time.sleep(random.random() * 0.3)
                kinds = ["promotion", "replica", "stall", "cut", "hand-over"]
                what = "promotion" if arguments.lowest else random.choice(kinds)
                counts[what] = counts.get(what, 0) + 1
                lost = happen(run, what, arguments.lowest)
                differs = settle(run)
                if lost or differs or run.back:
                    failed.append((number, what, lost[:3], differs, run.back[:3]))
                    break
        finally:
            run.stop = True
            for server in servers:
                if server.process and server.process.poll() is None:
                    server.kill()
    print(f"{sum(counts.values())} rounds in {time.time() - began:.0f} s:", counts, run.counts)
    for failure in failed:
        print("FAILED", failure)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
