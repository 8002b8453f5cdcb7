#!/usr/bin/python3
"""How long a request waits for its MIG instance, and how many sessions an H100 80GB has room for: docs/dev/benchmarks.md's figures.

    /usr/bin/python3 -m bench.mig_latency [--build DIR] [--rounds N]

Starts simulated hosts. Once the simulated driver takes no time, so that what is left is carve's own; once it takes as long
as NVIDIA's does."""
import argparse
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROFILE = "1g.10gb"


class Local(http.client.HTTPConnection):
    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.environ["CARVE_RUNTIME_DIR"] + "/carved.sock")


class Daemon:
    def __init__(self):
        self.connection = Local("localhost")

    def call(self, method, url, body=None):
        self.connection.request(method, url, json.dumps(body) if body else None, {"Content-Type": "application/json"})
        answer = self.connection.getresponse()
        text = answer.read()
        return answer.status, json.loads(text) if text else None

    def session(self, **body):
        status, answer = self.call("POST", "/v1/sessions", {"kept": True, **body})
        return answer["id"] if status == 201 else None

    def empty(self):
        for session in self.call("GET", "/v1/sessions")[1]:
            self.call("DELETE", "/v1/sessions/" + session["id"])
        while self.call("GET", "/v1/mig")[1]:
            self.call("POST", "/v1/mig/gc", {"older_than": 0})
            time.sleep(0.01)


def quantiles(times):
    times = sorted(times)
    return f"p50 {times[len(times) // 2]:.2f} ms, p99 {times[int(len(times) * 0.99)]:.2f} ms"


def timed(daemon):
    begun = time.perf_counter()
    id = daemon.session(mig_profile=PROFILE)
    took = 1000 * (time.perf_counter() - begun)
    daemon.call("DELETE", "/v1/sessions/" + id)
    return took


def inside(carve, rounds, durations):
    subprocess.run([carve, "node", "set-role", "--dynamic-mig-enabled"], stdout=subprocess.DEVNULL, check=True)
    if durations:
        subprocess.run([carve, "sim", "fault", "mig-time"], stdout=subprocess.DEVNULL, check=True)
    daemon, made, reused = Daemon(), [], []
    for _ in range(rounds):
        daemon.empty()
        made.append(timed(daemon))
        reused += [timed(daemon) for _ in range(3)]
    print(f"{'durations of a driver' if durations else 'no time for the driver'}: made {quantiles(made)}; "
          f"reused {quantiles(reused)}")
    for share in (False, True) if not durations else ():
        daemon.empty()
        count = 0
        while daemon.session(vram="4", mig_share=share):
            count += 1
        print(f"sessions of 4 GiB {'with' if share else 'without'} --mig-share: {count}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--inside", choices=("none", "real"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    carve = str(options.build.resolve() / "carve")
    if options.inside:
        inside(carve, options.rounds, options.inside == "real")
        return
    for durations in ("none", "real"):
        subprocess.run([carve, "sim", "--gpus", "h100-80gb+mig", "--", sys.executable, "-m", "bench.mig_latency", "--build",
                        options.build, "--rounds", str(options.rounds), "--inside", durations], check=True, cwd=ROOT)


if __name__ == "__main__":
    main()
