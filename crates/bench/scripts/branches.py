#!/usr/bin/env python3
"""What branches cost on a server with `--engine minuet`.

    cargo build --release -p pando-server
    crates/bench/scripts/branches.py target/release/pando --keys 10m [--differ 1000]
        [--branches 10000] [--deep 1000]

A server in memory is filled with keys of 14 bytes and values of 8. Then, with one client on the
loopback interface, the best and the median of --repeats times, as the client sees them and as the
server's threads were on a processor, which other load on the machine does not change: SNAPSHOT
CREATE, BRANCH CREATE,
BRANCH DIFF of two branches that differ in --differ keys spread over all (all keys listed, and COUNT
alone), BRANCH MERGE of them (a dry run, and a real one into a branch of its own each time). Then
--branches branches of one snapshot, each with one write, and how long the first and the last
hundred of them took; then branches of branches, --deep of them, and GETs in the first branch and in
the deepest. At the end all are dropped. Everything is on the loopback interface.
"""

import argparse
import glob
import random
import statistics
import time

from snapshots import Client, Server, free_port


def number(text):
    """A number, in thousands with k behind it, in millions with m."""
    units = {"k": 1_000, "m": 1_000_000}
    return int(text[:-1]) * units[text[-1]] if text[-1] in units else int(text)


def options():
    parser = argparse.ArgumentParser()
    parser.add_argument("pando")
    parser.add_argument("--keys", type=number, default=1_000_000)
    parser.add_argument("--differ", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--branches", type=int, default=10_000)
    parser.add_argument("--deep", type=int, default=1000)
    return parser.parse_args()


def key(index):
    return b"key:%010d" % index


def fill(client, keys, batch=1000):
    began, waiting = time.monotonic(), 0
    for first in range(0, keys, batch):
        words = [b"MSET"]
        for index in range(first, min(first + batch, keys)):
            words += [key(index), b"value000"]
        client.send([words])
        waiting += 1
        if waiting == 16:
            client.reply()
            waiting -= 1
    for _ in range(waiting):
        client.reply()
    print(f"{keys} keys in {time.monotonic() - began:.0f} s")


SERVER = {}


def on_processor():
    """Milliseconds that the server's threads were running."""
    total = 0
    for path in glob.glob(f"/proc/{SERVER['pid']}/task/*/schedstat"):
        with open(path) as file:
            total += int(file.read().split()[0])
    return total / 1e6


def timed(call):
    ran, began = on_processor(), time.monotonic()
    call()
    took = (time.monotonic() - began) * 1e3
    return took, on_processor() - ran


def say(what, times):
    took, ran = zip(*times)
    median = statistics.median
    print(
        f"{what}: best {min(took):.3f} ms, median {median(took):.3f} ms; "
        f"on the processor best {min(ran):.3f}, median {median(ran):.3f}",
        flush=True,
    )


def change(client, keys, differ, value):
    step = keys // differ
    client.send([[b"SET", key(index * step), value] for index in range(differ)])
    for _ in range(differ):
        client.reply()


def diff(client, one, other, *more):
    """All that differs, however many replies that takes."""
    total = 0
    found = client.call("BRANCH", "DIFF", one, other, "LIMIT", 1_000_000, *more)
    total += int(found[1]) if more else len(found[1])
    return total


def two_branches(client, settings):
    repeats = range(settings.repeats)
    say("SNAPSHOT CREATE", [timed(lambda n=n: client.call("SNAPSHOT", "CREATE", f"s{n}")) for n in repeats])
    say("BRANCH CREATE", [timed(lambda n=n: client.call("BRANCH", "CREATE", f"b{n}", "FROM", "MAIN")) for n in repeats])
    client.call("BRANCH", "USE", "b0")
    change(client, settings.keys, settings.differ, b"changed0")
    client.call("BRANCH", "USE", "MAIN")
    print("they differ in", client.call("BRANCH", "DIFF", "MAIN", "b0", "COUNT"))
    say("DIFF COUNT", [timed(lambda: client.call("BRANCH", "DIFF", "MAIN", "b0", "COUNT")) for _ in repeats])
    say("DIFF", [timed(lambda: client.call("BRANCH", "DIFF", "MAIN", "b0")) for _ in repeats])
    dry = ["BRANCH", "MERGE", "b0", "INTO", "b1", "DRY", "RUN"]
    say("MERGE DRY RUN", [timed(lambda: client.call(*dry)) for _ in repeats])
    into = range(1, settings.repeats)
    say("MERGE", [timed(lambda n=n: client.call("BRANCH", "MERGE", "b0", "INTO", f"b{n}")) for n in into])
    say("MERGE again", [timed(lambda: client.call("BRANCH", "MERGE", "b0", "INTO", "b1")) for _ in repeats])
    for n in repeats:
        client.call("BRANCH", "DROP", f"b{n}")


def many(client, settings):
    client.call("SNAPSHOT", "CREATE", "origin")
    times, began = [], time.monotonic()
    for n in range(settings.branches):
        times.append(timed(lambda n=n: client.call("BRANCH", "CREATE", f"m{n}", "FROM", "origin")))
        client.call("BRANCH", "USE", f"m{n}")
        client.call("SET", key(random.randrange(settings.keys)), b"%08d" % n)
    print(f"{settings.branches} branches with a write each in {time.monotonic() - began:.1f} s")
    say("CREATE, the first hundred", times[:100])
    say("CREATE, the last hundred", times[-100:])
    client.call("BRANCH", "USE", "MAIN")
    say("SNAPSHOT CREATE beside them", [timed(lambda n=n: client.call("SNAPSHOT", "CREATE", f"t{n}")) for n in range(9)])
    gets = [timed(lambda: client.call("GET", key(random.randrange(settings.keys)))) for _ in range(2000)]
    say("GET beside them", gets)
    times, began = [], time.monotonic()
    for n in reversed(range(settings.branches)):
        times.append(timed(lambda n=n: client.call("BRANCH", "DROP", f"m{n}")))
    print(f"dropped in {time.monotonic() - began:.1f} s")
    say("DROP", times)


def deep(client, settings):
    client.call("BRANCH", "USE", "MAIN")
    gets = lambda: [timed(lambda: client.call("GET", key(random.randrange(settings.keys)))) for _ in range(2000)]
    say("GET in the first branch", gets())
    times, above = [], "MAIN"
    for n in range(settings.deep):
        times.append(timed(lambda n=n: client.call("BRANCH", "CREATE", f"d{n}", "FROM", above)))
        above = f"d{n}"
        client.call("BRANCH", "USE", above)
        client.call("SET", key(random.randrange(settings.keys)), b"%08d" % n)
    say("CREATE, each of the one before", times)
    say(f"GET {settings.deep} deep", gets())
    sets = [timed(lambda: client.call("SET", key(random.randrange(settings.keys)), b"deepest0")) for _ in range(2000)]
    say(f"SET {settings.deep} deep", sets)
    client.call("BRANCH", "USE", "MAIN")


def main():
    settings = options()
    port = free_port()
    words = [settings.pando, "--engine", "minuet", "--port", str(port), "--durability", "none"]
    with Server(port, words) as (client, server):
        SERVER["pid"] = server.process.pid
        fill(client, settings.keys)
        two_branches(client, settings)
        if settings.branches:
            many(client, settings)
        if settings.deep:
            deep(client, settings)


if __name__ == "__main__":
    main()
