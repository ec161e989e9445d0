#!/usr/bin/env python3
"""Pando's memcached port beside memcached: rate and CPU per operation of one connection, in turns.

    crates/bench/scripts/memcached.py target/release/pando masstree mercury

Starts memcached with one thread and Pando with one worker for each engine named, on ports of its
own, and ends them. Medians of five turns; ratios are to memcached.
"""

import os
import random
import socket
import statistics
import subprocess
import sys
import time

KEYS = 100_000
TURNS = 5
VALUE = b"0123456789"
PORT = 21411


def key(number):
    return b"key:%020d" % number


def cpu_seconds(pid):
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/schedstat") as file:
            total += int(file.read().split()[0])
    return total / 1e9


def connect(port):
    for _ in range(100):
        try:
            connection = socket.create_connection(("127.0.0.1", port))
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            return connection
        except ConnectionRefusedError:
            time.sleep(0.05)
    sys.exit(f"nobody listens on port {port}")


def receive(connection, expected_bytes, buffer=memoryview(bytearray(1 << 18))):
    got = 0
    while got < expected_bytes:
        count = connection.recv_into(buffer)
        if count == 0:
            sys.exit("the server closed the connection")
        got += count


def workloads():
    generator = random.Random(5)

    def some():
        return key(generator.randrange(KEYS))

    def get():
        return b"get " + some() + b"\r\n"

    def store():
        return b"set " + some() + b" 0 0 10\r\n" + VALUE + b"\r\n"

    def meta():
        return b"mg " + some() + b" v\r\n"

    def requests(make, pipeline, count=3000):
        return [b"".join(make() for _ in range(pipeline)) for _ in range(count)]

    item = len(b"VALUE " + key(0) + b" 0 10\r\n" + VALUE + b"\r\n")
    meta_item = len(b"VA 10\r\n" + VALUE + b"\r\n")
    many = [b"get " + b" ".join(some() for _ in range(32)) + b"\r\n" for _ in range(3000)]
    # Name, requests, bytes of a reply, requests sent, operations in each.
    return [
        ("get, one at a time", requests(get, 1, 5000), item + 5, 15000, 1),
        ("set, one at a time", requests(store, 1, 5000), 8, 15000, 1),
        ("get, pipeline 32", requests(get, 32), 32 * (item + 5), 6000, 32),
        ("multi-get of 32", many, 32 * item + 5, 6000, 32),
        ("mg v, pipeline 32", requests(meta, 32), 32 * meta_item, 6000, 32),
        ("set, pipeline 32", requests(store, 32), 32 * 8, 6000, 32),
    ]


def fill(port):
    connection = connect(port)
    for first in range(0, KEYS, 100):
        sets = (b"set " + key(first + i) + b" 0 0 10\r\n" + VALUE + b"\r\n" for i in range(100))
        connection.sendall(b"".join(sets))
        receive(connection, 800)
    connection.close()


def run(port, pid, requests, reply_bytes, count, operations):
    connection = connect(port)
    cpu, began = cpu_seconds(pid), time.monotonic()
    for number in range(count):
        connection.sendall(requests[number % len(requests)])
        receive(connection, reply_bytes)
    elapsed = time.monotonic() - began
    cpu = cpu_seconds(pid) - cpu
    connection.close()
    return operations * count / elapsed, cpu / (operations * count) * 1e6


def start(pando, engines):
    fixed = ["memcached", "-u", "nobody", "-l", "127.0.0.1", "-U", "0", "-m", "256"]
    yield "memcached -t 1", PORT, subprocess.Popen([*fixed, "-t", "1", "-p", str(PORT)])
    for number, engine in enumerate(engines, 1):
        port = PORT + number
        flags = ["--port", "0", "--memcached-port", str(port), "--threads", "1"]
        flags += ["--engine", engine, "--durability", "none"]
        yield f"pando {engine}", port, subprocess.Popen([pando, *flags], stdout=subprocess.DEVNULL)


def main():
    servers = []
    try:
        for server in start(sys.argv[1], sys.argv[2:]):
            servers.append(server)
        for _, port, _ in servers:
            fill(port)
        for name, requests, reply_bytes, count, operations in workloads():
            results = {server: [] for server, _, _ in servers}
            for _ in range(TURNS):
                for server, port, process in servers:
                    shape = (requests, reply_bytes, count, operations)
                    results[server].append(run(port, process.pid, *shape))
            base = None
            for server, turns in results.items():
                rate = statistics.median(turn[0] for turn in turns)
                cpu = statistics.median(turn[1] for turn in turns)
                base = base or (rate, cpu)
                print(
                    f"{name:20} {server:16} {rate / 1000:7.0f} k/s {cpu:8.3f} us CPU"
                    f"   rate x{rate / base[0]:.2f}   CPU x{base[1] / cpu:.2f}",
                    flush=True,
                )
    finally:
        for _, _, process in servers:
            process.kill()
            process.wait()


main()
