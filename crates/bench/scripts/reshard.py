#!/usr/bin/env python3
"""What a resharding costs: how fast keys move, how long clients wait.

    cargo build --release -p pando-server
    crates/bench/scripts/reshard.py target/release/pando [--keys 1000000] [--bytes 100] [--first-port 7100]

Two servers with logs (`durability interval`) hold the keys; a third joins, and `pando reshard` moves
a third of them there. Meanwhile two clients write, one request at a time, over keys of their own,
follow MOVED, and note how long each write took, TRYAGAIN included. At the end each key must hold
the number that was acknowledged last, at its owner, and the servers together as many keys as there
were. It ends with 1 otherwise.
"""

import argparse
import os
import subprocess
import sys
import tempfile
import threading
import time

from promotions import Client, wait_for

NAMES = ["oak", "ash", "elm"]


def percentile(sorted_values, share):
    return sorted_values[min(len(sorted_values) - 1, int(len(sorted_values) * share))]


class Writer(threading.Thread):
    """Raises numbers under its own keys; starts at any server, and remembers where keys are."""

    def __init__(self, ports, number):
        super().__init__()
        self.clients = {port: Client(port) for port in ports}
        self.places = {}
        self.first = ports[0]
        self.number = number
        self.acknowledged = {}
        self.times = []
        self.stop = False

    def run(self):
        count = 0
        while not self.stop:
            count += 1
            key = f"writer{self.number}:{count * 7919 % 2000}"
            began = time.perf_counter()
            while True:
                port = self.places.get(key, self.first)
                reply = self.clients[port].call("SET", key, count)
                if not isinstance(reply, Exception):
                    break
                words = str(reply).split(" ")
                if words[0] == "MOVED":
                    self.places[key] = int(words[2].rsplit(":", 1)[1])
                elif words[0] != "TRYAGAIN":
                    raise reply
            self.times.append((began, time.perf_counter() - began))
            self.acknowledged[key] = count


def said(text, times):
    latencies = sorted(latency * 1000 for _, latency in times)
    shown = [f"{percentile(latencies, share):.2f}" for share in (0.5, 0.99, 0.999)]
    print(
        f"writes {text}: {len(latencies)}, ms p50 {shown[0]}, p99 {shown[1]}, p99.9 {shown[2]},"
        f" max {latencies[-1]:.1f}"
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("pando")
    parser.add_argument("--keys", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--first-port", type=int, default=7100)
    options = parser.parse_args()
    ports = {name: options.first_port + index for index, name in enumerate(NAMES)}
    with tempfile.TemporaryDirectory() as folder:
        servers = []

        def ring(names):
            path = os.path.join(folder, "-".join(names) + ".toml")
            with open(path, "w", encoding="utf-8") as file:
                for name in names:
                    file.write(f'[[node]]\nname = "{name}"\naddress = "127.0.0.1:{ports[name]}"\n')
            return path

        def move(old, new):
            command = [options.pando, "reshard", "--ring", ring(old), "--to", ring(new)]
            began = time.perf_counter()
            subprocess.run(command, check=True)
            return time.perf_counter() - began

        try:
            for name in NAMES:
                flags = ["--port", str(ports[name]), "--data-dir", os.path.join(folder, name)]
                flags += ["--durability", "interval", "--loglevel", "warning", "--threads", "2"]
                servers.append(subprocess.Popen([options.pando] + flags, stdout=subprocess.DEVNULL))
            for port in ports.values():
                wait_for("a start", lambda port=port: Client(port).call("PING") == b"PONG")
            # Placed by moving them from one server to two.
            client = Client(ports["oak"])
            for first in range(0, options.keys, 1000):
                keys = range(first, min(first + 1000, options.keys))
                client.send([("SET", f"key:{key}", b"x" * options.bytes) for key in keys])
                for _ in keys:
                    client.reply()
            print(f"one server to two, nobody writes: {move(['oak'], NAMES[:2]):.1f} s")
            writers = [Writer(list(ports.values()), number) for number in range(2)]
            for writer in writers:
                writer.start()
            time.sleep(5)
            began = time.perf_counter()
            took = move(NAMES[:2], NAMES)
            for writer in writers:
                writer.stop = True
                writer.join()
            print(f"two servers to three, two clients write: {took:.1f} s")
            times = [it for writer in writers for it in writer.times]
            said("before", [it for it in times if it[0] < began])
            said("during", [it for it in times if it[0] >= began])
            wrong, keys = 0, 0
            for port in ports.values():
                keys += int(Client(port).call("DBSIZE"))
            for writer in writers:
                for key, number in writer.acknowledged.items():
                    held = [writer.clients[port].call("GET", key) for port in ports.values()]
                    held = [it for it in held if not isinstance(it, Exception)]
                    wrong += held != [str(number).encode()]
            expected = options.keys + sum(len(writer.acknowledged) for writer in writers)
            print(f"{keys} keys of {expected}, {wrong} wrong")
            return int(wrong > 0 or keys != expected)
        finally:
            for server in servers:
                server.kill()
                server.wait()


if __name__ == "__main__":
    sys.exit(main())
