#!/usr/bin/env python3
"""A merge or a reset of more keys than are changed in one step: what it costs others, and kill -9.

    cargo build --release -p pando-server
    crates/bench/scripts/merges.py target/release/pando DIRECTORY [--keys 400k] [--kills 10]

A server with `--engine minuet` and its data in a new folder of DIRECTORY has --keys keys and a
branch on which all of them were changed. The branch is merged into a third one while a client
writes keys of its own there as fast as it is answered, one at a time: how long the merge and the
longest of these SETs take. Then, --kills times, the same into the first branch, with
`--durability sync`: the server is killed at a random moment of the merge or a little later. The
next one must have all of the merge or nothing of it, all of it if it was answered, every SET that
was answered, and no branch but those that were made. And --kills times each, the first branch and
another are reset to a snapshot of before all of their keys were changed: the branch must be all
that it was then, or what it was changed to. Everything is on the loopback interface.
"""

import argparse
import random
import shutil
import signal
import tempfile
import threading
import time

import branches
from branches import fill, key, number, timed
from snapshots import Client, Server, free_port

MERGE = (b"BRANCH", b"MERGE", b"trial", b"INTO")


class Writer(threading.Thread):
    """SETs of its own keys on a branch, one after the other."""

    def __init__(self, port, branch):
        super().__init__(daemon=True)
        self.client, self.ends = Client(port), False
        self.client.call(b"BRANCH", b"USE", branch)
        self.written, self.longest_ms, self.last = 0, 0.0, None

    def run(self):
        try:
            while not self.ends:
                began = time.monotonic()
                words = (b"SET", b"own:%d" % (self.written % 5000), self.written)
                if self.client.call(*words) != b"OK":
                    break
                took = (time.monotonic() - began) * 1e3
                self.longest_ms = max(self.longest_ms, took)
                self.written += 1
        except (OSError, RuntimeError, TypeError):
            pass


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("pando")
    parser.add_argument("directory")
    parser.add_argument("--keys", type=number, default=400_000)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 30))
    parser.add_argument("--port", type=int, default=0)
    return parser.parse_args()


class Restarted(Server):
    """One that has a log to replay."""

    def __enter__(self):
        for _ in range(30):
            try:
                return super().__enter__()
            except RuntimeError:
                continue
        raise RuntimeError("the server does not listen")


def start(given, folder, durability):
    port = given.port or free_port()
    words = [given.pando, "--port", str(port), "--data-dir", folder, "--engine", "minuet"]
    words += ["--durability", durability, "--threads", "2"]
    return Restarted(port, words)


def change(client, keys, value, branch=b"trial"):
    client.call(b"BRANCH", b"USE", branch)
    for first in range(0, keys, 1000):
        words = [b"MSET"]
        for index in range(first, min(first + 1000, keys)):
            words += [key(index), value]
        client.call(*words)
    client.call(b"BRANCH", b"USE", b"MAIN")


def merged(client, keys, value):
    """How many of the keys have the value."""
    count = 0
    for first in range(0, keys, 1000):
        words = [key(index) for index in range(first, min(first + 1000, keys))]
        count += client.call(b"MGET", *words).count(value)
    return count


def cost(given, folder):
    with start(given, folder, "interval") as (client, server):
        fill(client, given.keys)
        for branch in (b"trial", b"third"):
            client.call(b"BRANCH", b"CREATE", branch)
        change(client, given.keys, b"changed0")
        alone = Writer(server.port, b"third")
        alone.start()
        time.sleep(3)
        alone.ends = True
        alone.join()
        beside = Writer(server.port, b"third")
        beside.start()
        answers = []
        branches.SERVER["pid"] = server.process.pid
        times = timed(lambda: answers.append(client.call(*MERGE, b"third")))
        took, ran = (milliseconds / 1e3 for milliseconds in times)
        beside.ends = True
        beside.join()
        assert answers[0][1] == b"%d" % given.keys, answers
        print(
            f"merge of {given.keys} keys: {took:.2f} s, {ran:.2f} s on the processor; a client's SETs meanwhile:"
            f" {beside.written / took:.0f}/s, the longest {beside.longest_ms:.0f} ms (alone"
            f" {alone.written / 3:.0f}/s, {alone.longest_ms:.0f} ms)",
            flush=True,
        )
    return took


def kill_amid(work, server, usual):
    """Kills the server at a random moment of the work, which usually takes so long."""
    working = threading.Thread(target=work, daemon=True)
    working.start()
    time.sleep(random.random() * usual * 1.3)
    server.process.send_signal(signal.SIGKILL)
    server.process.wait()
    working.join()


def merged_once_up(client, keys, value):
    """How many keys have the value, as soon as the server has read its data."""
    while True:
        try:
            return merged(client, keys, value)
        except RuntimeError:
            time.sleep(0.05)


def kill(given, folder, usual):
    """One round; returns whether all of the merge was there afterwards."""
    value = b"kill%04d" % random.randrange(10_000)
    with start(given, folder, "sync") as (client, server):
        change(client, given.keys, value)
        client.call(b"WAITAOF", 1, 0, 0)
        writer = Writer(server.port, b"MAIN")
        writer.start()
        answers = []

        def merge():
            try:
                merging = Client(server.port)
                answer = merging.call(*MERGE, b"MAIN", b"ON", b"CONFLICT", b"THEIRS")
                if isinstance(answer, list):
                    answers.append(answer)
            except (OSError, RuntimeError, TypeError):
                pass

        kill_amid(merge, server, usual)
        writer.join()
    with start(given, folder, "sync") as (client, server):
        count = merged_once_up(client, given.keys, value)
        assert count in (0, given.keys), f"{count} keys of a merge are there"
        assert count > 0 or not answers, f"an answered merge is not there: {answers}"
        first = max(0, writer.written - 5000)
        for number_of in range(first, writer.written):
            found = client.call(b"GET", b"own:%d" % (number_of % 5000))
            assert found is not None and int(found) >= number_of, f"SET {number_of} is lost"
        names = {line[0] for line in client.call(b"BRANCH", b"LIST")}
        assert names == {b"main", b"trial", b"third"}, names
        client.call(b"BRANCH", b"DROP", b"trial")
        client.call(b"BRANCH", b"CREATE", b"trial")
    return count > 0, bool(answers)


def reset(client, branch):
    """Resets a branch; returns the answer and how long it took, in seconds."""
    began = time.monotonic()
    answer = client.call(b"BRANCH", b"RESET", branch, b"TO", b"then")
    return answer, time.monotonic() - began


def cost_of_resets(given, folder):
    """Resets of the first branch and of another, all of whose keys were changed."""
    took = {}
    with start(given, folder, "interval") as (client, _):
        client.call(b"SNAPSHOT", b"CREATE", b"then", b"PERSIST")
        for branch in (b"MAIN", b"trial"):
            change(client, given.keys, b"reset me", branch)
            answer, took[branch] = reset(client, branch)
            print(f"reset of {branch}: {answer}, {took[branch] * 1e3:.0f} ms", flush=True)
    return took


def kill_reset(given, folder, branch, usual):
    """One round; returns whether the reset was there afterwards, and answered."""
    value = b"kill%04d" % random.randrange(10_000)
    with start(given, folder, "sync") as (client, server):
        change(client, given.keys, value, branch)
        client.call(b"WAITAOF", 1, 0, 0)
        answers = []

        def work():
            try:
                answer, _ = reset(Client(server.port), branch)
                if answer is None or answer.isdigit():
                    answers.append(answer)
            except (OSError, RuntimeError):
                pass

        kill_amid(work, server, usual)
    with start(given, folder, "sync") as (client, _):
        client.call(b"BRANCH", b"USE", branch)
        count = merged_once_up(client, given.keys, value)
        assert count in (0, given.keys), f"{count} keys were not reset"
        assert count == 0 or not answers, f"an answered reset is not there: {answers}"
        names = {line[0] for line in client.call(b"BRANCH", b"LIST")}
        assert names == {b"main", b"trial", b"third"}, names
    return count == 0, bool(answers)


def main():
    given = options()
    print(f"--seed {given.seed}")
    random.seed(given.seed)
    folder = tempfile.mkdtemp(dir=given.directory)
    try:
        usual = cost(given, folder)
        rounds = [kill(given, folder, usual) for _ in range(given.kills)]
        there, answered = (sum(each[which] for each in rounds) for which in (0, 1))
        print(f"{given.kills} kills: {there} merges there whole, {answered} answered; the others not")
        took = cost_of_resets(given, folder)
        rounds = [
            kill_reset(given, folder, branch, took[branch])
            for branch in (b"MAIN", b"trial")
            for _ in range(given.kills)
        ]
        there, answered = (sum(each[which] for each in rounds) for which in (0, 1))
        print(f"{len(rounds)} kills: {there} resets there whole, {answered} answered; the others not")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
