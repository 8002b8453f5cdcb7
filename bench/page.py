#!/usr/bin/python3
"""The cost of open pages: the share of a core that carved takes for them beyond what it takes without one.

    bench/page.py [--gpus 8] [--sessions 200] [--pages 3] [--seconds 20]

Runs on a simulated host of its own, on which all GPUs are time-sliced. This process attaches to each session, so that all have a ledger and
accounts. A page is a thread that asks as src/web/page.js does: it waits for news, asks for all lists, and a second later waits again.
Prints JSON."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/system"), str(ROOT / "bench")]
from scrape import BUILD, Connection, sessions_make, value  # noqa: E402: it is where the benchmarks are

LISTS = ["/v1/version", "/v1/gpus", "/v1/timeslicing", "/v1/timeslicing/trace", "/v1/queues", "/v1/jobs?ended=20"]
RETRY_S = 1  # as the daemon tells the browser to wait


class Page(threading.Thread):
    def __init__(self, end):
        super().__init__(daemon=True)
        self.end, self.looks, self.bytes = end, 0, 0

    def look(self):
        for path in LISTS:
            self.bytes += len(Connection().ask("GET", path))
        next = ""
        while next is not None:
            text = Connection().ask("GET", f"/v1/sessions?living={next}")
            self.bytes += len(text)
            next = json.loads(text)["next"]

    def run(self):
        while not self.end.wait(RETRY_S if self.looks else 0):
            Connection().ask("GET", "/v1/web/news")
            self.look()
            self.looks += 1


def cpu_seconds():
    return value(Connection().ask("GET", "/metrics"), "process_cpu_seconds_total")


def cpu(seconds):
    """The seconds of a core that carved takes in a second."""
    before, begin = cpu_seconds(), time.monotonic()
    time.sleep(seconds)
    return (cpu_seconds() - before) / (time.monotonic() - begin)


def measured(options):
    attached = sessions_make(options.gpus, options.sessions)
    time.sleep(2)
    alone, end = cpu(options.seconds), threading.Event()
    pages = [Page(end) for _ in range(options.pages)]
    for page in pages:
        page.start()
    time.sleep(2)
    looks, size = sum(p.looks for p in pages), sum(p.bytes for p in pages)
    shown = cpu(options.seconds)
    looks, size = sum(p.looks for p in pages) - looks, sum(p.bytes for p in pages) - size
    end.set()
    return {"gpus": options.gpus, "sessions": len(attached), "pages": options.pages, "looks": looks, "bytes_of_a_look": size // max(looks, 1),
            "core_percent_without_pages": round(100 * alone, 2), "core_percent_of_pages": round(100 * (shown - alone), 2)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--sessions", type=int, default=200)
    parser.add_argument("--pages", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=20)
    options = parser.parse_args()
    if "CARVE_BENCH_INSIDE" not in os.environ:
        words = [BUILD / "carve", "sim", "--gpus", f"h200-141gb:{options.gpus}", "--", sys.executable, *sys.argv]
        sys.exit(subprocess.run(words, env={**os.environ, "CARVE_BENCH_INSIDE": "1"}).returncode)
    print(json.dumps(measured(options)))


main()
