#!/usr/bin/python3
"""How the daemon's answers take longer with what it has to look after; run by scripts/bench scale on a host of its own.

    bench/daemon_growth.py CARVE sessions|waiting SIZE...

Prints a JSON array of [curve, size, ns]. sessions: a request and its release, beside so many living sessions.
waiting: so many requests wait, and are granted all at once: what each took, and what asking took each."""
import http.client
import json
import os
import resource
import socket
import subprocess
import sys
import time

PAIRS = 40
SMALL = {"vram": "1", "ephemeral": True}


class Connection(http.client.HTTPConnection):
    def __init__(self):
        super().__init__("localhost", timeout=120)

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(os.environ["CARVE_RUNTIME_DIR"] + "/carved.sock")

    def ask(self, method, path, body=None):
        self.request(method, path, json.dumps(body) if body else None)

    def answer(self, status):
        response = self.getresponse()
        found = json.loads(response.read() or b"null")
        if response.status != status:
            sys.exit(f"the daemon answered {response.status}: {found}")
        return found

    def grant(self, body):
        self.ask("POST", "/v1/sessions", body)
        return self.answer(201)["id"]

    def release(self, id):
        self.ask("DELETE", f"/v1/sessions/{id}")
        self.answer(200)


def sessions(connection, sizes):
    living = []
    for size in sizes:
        while len(living) < size:
            living.append(connection.grant(SMALL))
        times = []
        for _ in range(PAIRS):
            begin = time.perf_counter_ns()
            connection.release(connection.grant(SMALL))
            times.append(time.perf_counter_ns() - begin)
        yield "sessions", size, sorted(times)[PAIRS // 4]
    for id in living:
        connection.release(id)


def waiting_count(connection):
    connection.ask("GET", "/v1/sessions")
    return sum(s["state"] == "waiting" for s in connection.answer(200))


def waiting(connection, sizes):
    for size in sizes:
        holder = connection.grant({"gpu": 8, "ephemeral": True})
        waiters = [Connection() for _ in range(size)]
        begin = time.perf_counter_ns()
        for waiter in waiters:
            waiter.ask("POST", "/v1/sessions", {**SMALL, "wait_for": 100})
        while waiting_count(connection) < size:
            time.sleep(0.001)
        asked = time.perf_counter_ns()
        connection.release(holder)
        ids = [waiter.answer(201)["id"] for waiter in waiters]
        granted = time.perf_counter_ns()
        yield "waiting-asked", size, (asked - begin) / size
        yield "waiting-granted", size, (granted - asked) / size
        for waiter, id in zip(waiters, ids):
            waiter.release(id)
            waiter.close()


def main():
    carve, kind, sizes = sys.argv[1], sys.argv[2], [int(s) for s in sys.argv[3:]]
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    subprocess.run([carve, "gpu", "list"], stdout=subprocess.DEVNULL, check=True)  # starts the daemon
    curve = {"sessions": sessions, "waiting": waiting}[kind]
    print(json.dumps(list(curve(Connection(), sizes))))


main()
