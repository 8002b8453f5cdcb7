#!/usr/bin/python3
"""The time from kill -9 of the daemon's worker to its next answer, on a simulated host with sessions that are in use.

Usage: bench/restarts.py [--build DIR] [--kills N] [--sessions N] [--upgrades]
    --kills N      so many kills, one after the other (default 200)
    --sessions N   sessions with a program in each (default 10)
    --upgrades     `carved --takeover` in place of kill -9: the time is that of the command

Prints p50, p99 and the most, in ms.."""
import argparse
import http.client
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[1]


class Connection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("carve", timeout=60)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(self.path)


def ask(path):
    """The PID of the process that answers. A call that is cut off is asked again."""
    while True:
        connection = Connection(path)
        try:
            connection.request("GET", "/v1/version")
            return json.loads(connection.getresponse().read())["pid"]
        except (OSError, http.client.HTTPException):
            time.sleep(0.001)
        finally:
            connection.close()


def measured(build, host, kills, upgrades):
    runtime = host["CARVE_RUNTIME_DIR"]
    path, took = f"{runtime}/carved.sock", []
    for i in range(kills):
        pid = ask(path)
        time.sleep(1.2 + 0.37 * (i % 3) / 3)  # a worker that served for a second is not one that fails
        began = time.monotonic()
        if upgrades:
            subprocess.run([build / "carved", "--takeover"], env=host, check=True, stdout=subprocess.DEVNULL)
        else:
            os.kill(pid, signal.SIGKILL)
        while ask(path) == pid:
            pass
        took.append((time.monotonic() - began) * 1000)
    return sorted(took)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--sessions", type=int, default=10)
    parser.add_argument("--upgrades", action="store_true")
    args = parser.parse_args()
    build = args.build.resolve()
    host = subprocess.Popen([build / "carve", "sim", "--gpus", "h100-80gb:2", "--", "sh", "-c", "echo $$; read -r _"],
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    words = pathlib.Path(f"/proc/{host.stdout.readline().strip()}/environ").read_bytes().decode().split("\0")
    env = dict(word.split("=", 1) for word in words if word)
    programs = [subprocess.Popen([build / "carve", "run", "--ephemeral", "--vram", "1", build / "examples/hog", "100000"], env=env,
                                 stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL) for _ in range(args.sessions)]
    try:
        while sum(len(s["pids"]) for s in json.loads(subprocess.run(
                [build / "carve", "session", "list", "--json"], env=env, capture_output=True, text=True).stdout)) < args.sessions:
            time.sleep(0.1)
        took = measured(build, env, args.kills, args.upgrades)
        ended = sum(p.poll() is not None for p in programs)
        print(f"{len(took)} {'upgrades' if args.upgrades else 'kills'}, {args.sessions} sessions in use: p50 {took[len(took) // 2]:.1f} ms, "
              f"p99 {took[min(len(took) - 1, len(took) * 99 // 100)]:.1f} ms, at most {took[-1]:.1f} ms; {ended} programs ended")
    finally:
        for program in programs:
            program.terminate()
        for program in programs:
            program.wait()
        host.stdin.close()
        host.wait()


main()
