#!/usr/bin/python3
"""The cost of a scrape of /metrics: the time of the daemon's loop, by its own count, and the CPU time of its process.

    bench/scrape.py [--gpus 8] [--sessions 200] [--scrapes 100] [--idle]

Runs on a simulated host of its own, on which all GPUs are time-sliced. This process attaches to each session, so that all have a ledger and
accounts; with --idle to none. Prints JSON; times are milliseconds of one scrape."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests/system"))
from attach_client import OK, WORKLOAD, Attached  # noqa: E402: it is where the tests are
from unix_http import UnixConnection  # noqa: E402

BUILD = pathlib.Path(os.environ.get("CARVE_BUILD", ROOT / "build"))


class Connection(UnixConnection):
    def __init__(self):
        super().__init__(os.environ["CARVE_RUNTIME_DIR"] + "/carved.sock", timeout=120)

    def ask(self, method, path, body=None):
        self.request(method, path, json.dumps(body) if body else None)
        answer = self.getresponse()
        text = answer.read().decode()
        if answer.status not in (200, 201):
            sys.exit(f"{method} {path}: {answer.status}: {text}")
        return text


class Place:
    """As attach_client.py wants a daemon."""
    runtime = pathlib.Path(os.environ.get("CARVE_RUNTIME_DIR", ""))


def value(text, name):
    return float(re.search(rf"^{name} (\S+)$", text, re.M)[1])


def sessions_make(gpus, sessions, idle=False):
    """Sessions on GPUs that are time-sliced, and this process's attachments to them, which the caller keeps."""
    subprocess.run([BUILD / "carve", "timeslicing", "--mode", "fair"], check=True, stdout=subprocess.DEVNULL)
    connection, attached = Connection(), []
    for i in range(sessions):
        id = json.loads(connection.ask("POST", "/v1/sessions", {"vram": "1", "ephemeral": True, "name": f"slice-{i}", "gpu_ids": str(i % gpus)}))["id"]
        if not idle:
            attached.append(Attached(Place))
            if attached[-1].ask(WORKLOAD, id)[0] != OK:
                sys.exit(f"session {id} takes no process")
    return attached


def measured(options):
    attached = sessions_make(options.gpus, options.sessions, options.idle)
    connection = Connection()
    before = connection.ask("GET", "/metrics")
    begin = time.perf_counter()
    for _ in range(options.scrapes):
        text = connection.ask("GET", "/metrics")
    wall = time.perf_counter() - begin
    after = connection.ask("GET", "/metrics")
    each = 1000 / (options.scrapes + 1)  # the last one is in its own figures no more than the first one
    return {"gpus": options.gpus, "slices": value(after, "carve_slices"), "bytes": len(text),
            "loop_ms": round(each * (value(after, "carve_scrape_seconds_total") - value(before, "carve_scrape_seconds_total")), 3),
            "cpu_ms": round(each * (value(after, "process_cpu_seconds_total") - value(before, "process_cpu_seconds_total")), 3),
            "wall_ms": round(1000 / options.scrapes * wall, 3)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--scrapes", type=int, default=100)
    parser.add_argument("--idle", action="store_true")
    options = parser.parse_args()
    if "CARVE_BENCH_INSIDE" not in os.environ:
        words = [BUILD / "carve", "sim", "--gpus", f"h200-141gb:{options.gpus}", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, "CARVE_BENCH_INSIDE": "1"}).returncode)
    print(json.dumps(measured(options)))


if __name__ == "__main__":
    main()
