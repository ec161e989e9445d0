#!/usr/bin/env python3
"""Small volumes under load and kill -9: nothing acknowledged is lost, and writes go on.

    cargo build --release -p pando-server
    sudo crates/bench/scripts/volumes.py target/release/pando 100 300 1000 2000 [--rounds 6]

For each size, in megabytes, a volume of its own is made (ext4 in a file; --tmpfs: in memory) and
filled with data up to a part of it (--part, 0.4: two checkpoints, and the log). In every round the
data grow, turn over and shrink, in turns of sync and interval; the server is killed at a random
moment and started again on what is there. Then every key must hold what was acknowledged last, or
something sent later: with interval, what was acknowledged 200 ms before the last acknowledgement.
(Of the kill nothing can be said: while the disk stands still, or writes are refused, there is no
acknowledgement.) The client's own delays are no loss: that last one came no earlier than its batch
was sent, and any other one no later than it was read.

Says how long writes were refused at a stretch, and of all that were sent how many. It ends with 1
when something was lost, or refused for longer than --patience seconds. Needs root, to mount.
"""

import argparse
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time

BATCH = 64
PROMISED_S = 0.2


class Client:
    """Pipelined commands, and their replies as (kind, bytes)."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        self.file = self.socket.makefile("rb", buffering=1 << 16)

    def send(self, commands):
        parts = []
        for command in commands:
            parts.append(b"*%d\r\n" % len(command))
            for word in command:
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
                return kind, None
            data = self.file.read(size + 2)
            if len(data) < size + 2:
                raise ConnectionError
            return kind, data[:-2]
        return kind, rest

    def call(self, *words):
        self.send([words])
        return self.reply()


class Model:
    """What each key was told: the last acknowledged, and what was sent since."""

    def __init__(self):
        # By key, in the order in which they were sent: the number of a write, when it was
        # acknowledged (or None), and what the key then shows: the number again, or 0 if removed.
        self.sent = {}
        # When the batch was sent that has the last write that was acknowledged.
        self.acknowledged_at = 0.0

    def send(self, key, sequence, shows):
        self.sent.setdefault(key, []).append([sequence, None, shows])

    def acknowledge(self, key, sequence, sent_at):
        """A reply to a batch that was sent then has been read."""
        self.acknowledged_at = sent_at
        for entry in self.sent[key]:
            if entry[0] == sequence:
                entry[1] = time.monotonic()
        # What was acknowledged before these 200 ms is replaced for good.
        before = sent_at - PROMISED_S
        older = [at for at, entry in enumerate(self.sent[key]) if entry[1] and entry[1] < before]
        if older:
            del self.sent[key][: older[-1]]

    def refuse(self, key, sequence):
        self.sent[key] = [entry for entry in self.sent[key] if entry[0] != sequence]

    def allowed(self, key, before):
        """What the key may show; 0: that it is not there."""
        entries = self.sent[key]
        last = max((at for at, e in enumerate(entries) if e[1] and e[1] < before), default=None)
        if last is None:
            return {0} | {entry[2] for entry in entries}
        return {entry[2] for entry in entries[last:]}

    def settle(self, key, shows):
        self.sent[key] = [[0, 1.0, shows]]


class Volume:
    """A file system of a size, mounted."""

    def __init__(self, megabytes, in_memory, scratch):
        self.image = os.path.join(scratch, "image")
        self.path = os.path.join(scratch, "volume")
        os.makedirs(self.path, exist_ok=True)
        if in_memory:
            mount = ["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "none", self.path]
        else:
            with open(self.image, "wb") as image:
                image.truncate(megabytes << 20)
            subprocess.run(["mkfs.ext4", "-q", "-F", "-m", "0", self.image], check=True)
            mount = ["mount", "-o", "loop", self.image, self.path]
        subprocess.run(mount, check=True)

    def free(self):
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def close(self):
        subprocess.run(["umount", self.path], check=True)
        if os.path.exists(self.image):
            os.remove(self.image)


class Server:
    """The server on a volume."""

    def __init__(self, binary, port, volume):
        directory = os.path.join(volume.path, "data")
        command = [binary, "--port", str(port), "--data-dir", directory]
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while True:
            try:
                self.client = Client(port)
                return
            except OSError:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    raise SystemExit("the server does not start") from None
                time.sleep(0.02)

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


class Figures:
    """How long writes were refused at a stretch, and how many."""

    def __init__(self):
        self.sent = self.refused = 0
        self.longest_s = 0.0
        self.taken_at = None

    def batch(self, taken, refused):
        now = time.monotonic()
        self.sent += taken + refused
        self.refused += refused
        if taken or self.taken_at is None:
            self.taken_at = now
        self.longest_s = max(self.longest_s, now - self.taken_at)


def run_round(server, model, rng, options, phases, figures):
    """Writes, then kills; returns how long before that the last acknowledgement came, at most."""
    keys, value_bytes, seconds, state = options
    client = server.client
    figures.taken_at = None
    until = time.monotonic() + seconds
    padding = b"v" * value_bytes
    while time.monotonic() < until:
        batch = []
        for _ in range(BATCH):
            part = rng.choice(phases)
            state["sequence"] += 1
            if part == "grow":
                state["next"] = (state["next"] + 1) % keys
                key = state["next"]
            else:
                key = rng.randrange(keys)
            removes = part == "shrink" and rng.random() < 0.8
            batch.append((b"key:%d" % key, state["sequence"], removes))
        commands = []
        for key, sequence, removes in batch:
            model.send(key, sequence, 0 if removes else sequence)
            size = value_bytes // 2 + rng.randrange(value_bytes // 2)
            value = b"%d:%s" % (sequence, padding[:size])
            commands.append((b"DEL", key) if removes else (b"SET", key, value))
        sent_at = time.monotonic()
        client.send(commands)
        taken = refused = 0
        for key, sequence, _ in batch:
            kind, text = client.reply()
            if kind == b"-":
                if not text.startswith(b"MISCONF"):
                    raise SystemExit(f"an error: {text}")
                model.refuse(key, sequence)
                refused += 1
            else:
                model.acknowledge(key, sequence, sent_at)
                taken += 1
        figures.batch(taken, refused)
    # In flight when the end comes.
    for key, _, _ in batch[:8]:
        state["sequence"] += 1
        model.send(key, state["sequence"], state["sequence"])
        client.send([(b"SET", key, b"%d:" % state["sequence"])])
    # As on a machine that stands still before it goes down: nothing is acknowledged, or written.
    if rng.random() < 0.5:
        server.process.send_signal(signal.SIGSTOP)
        time.sleep(2 * PROMISED_S)
    # The end of a large process takes its time.
    end = time.monotonic()
    server.kill()
    return end - model.acknowledged_at


def check(server, model, before):
    """Compares every key with what it was told."""
    lost = 0
    keys = list(model.sent)
    for at in range(0, len(keys), 256):
        part = keys[at : at + 256]
        server.client.send([(b"GETRANGE", key, b"0", b"24") for key in part])
        for key in part:
            _, data = server.client.reply()
            sequence = int(data.split(b":")[0]) if data else 0
            if sequence not in model.allowed(key, before):
                lost += 1
                if lost < 5:
                    print(f"  {key.decode()}: {sequence}, not {model.sent[key]}")
            model.settle(key, sequence)
    return lost


def test_volume(arguments, megabytes, scratch):
    rng = random.Random(arguments.seed)
    volume = Volume(megabytes, arguments.tmpfs, scratch)
    figures, lost = Figures(), 0
    try:
        value_bytes = 4000 if megabytes >= 300 else 1000
        keys = int(volume.free() * arguments.part / (value_bytes * 0.75 + 40))
        options = (keys, value_bytes, arguments.seconds, {"sequence": 0, "next": 0})
        model = Model()
        plans = [["grow"], ["turn"], ["turn", "shrink"], ["grow", "turn"]]
        server = Server(arguments.binary, arguments.port, volume)
        for number in range(arguments.rounds):
            mode = b"sync" if number % 2 else b"interval"
            server.client.call(b"CLIENT", b"DURABILITY", mode)
            seconds = arguments.seconds * rng.uniform(0.5, 1.5)
            options = options[:2] + (seconds,) + options[3:]
            plan = plans[number % len(plans)]
            silent = run_round(server, model, rng, options, plan, figures)
            free = volume.free() >> 20
            began = time.monotonic()
            server = Server(arguments.binary, arguments.port, volume)
            started = time.monotonic() - began
            promised = model.acknowledged_at - PROMISED_S if number % 2 == 0 else time.monotonic()
            lost += check(server, model, promised)
            size = server.client.call(b"DBSIZE")[1].decode()
            print(
                f"{megabytes} MB, round {number} ({mode.decode()}, {'+'.join(plan)}):"
                f" {size} of {keys} keys, {free} MB free, {figures.sent} writes,"
                f" {figures.refused} refused, for {figures.longest_s:.2f} s at most,"
                f" {lost} lost, the last acknowledged {silent * 1000:.0f} ms before the kill,"
                f" started in {started:.2f} s",
                flush=True,
            )
        server.kill()
    finally:
        volume.close()
    return lost == 0 and figures.longest_s <= arguments.patience


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("binary")
    parser.add_argument("megabytes", type=int, nargs="+")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--part", type=float, default=0.4)
    parser.add_argument("--patience", type=float, default=2)
    parser.add_argument("--port", type=int, default=7402)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--tmpfs", action="store_true")
    arguments = parser.parse_args()
    well = True
    for megabytes in arguments.megabytes:
        with tempfile.TemporaryDirectory(dir=os.environ.get("TMPDIR")) as scratch:
            well &= test_volume(arguments, megabytes, scratch)
    sys.exit(0 if well else 1)


main()
