#!/usr/bin/python3
"""Queues: how fast jobs come in and run, beside task-spooler and nq where these are installed, in the same run.

usage: bench/queues.py [BUILD] [--jobs N] [--json FILE]      prints a table in Markdown; some two minutes
example: bench/queues.py build --jobs 500

All is measured on a simulated GPU. carve's jobs run in real slices of a tenth of it, ten at a time; task-spooler has ten slots, and
nq runs one job after the other, as it does. Each job is /bin/true."""
import argparse
import http.client
import json
import os
import pathlib
import shutil
import socket
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
AT_ONCE = 10
CLIENTS = 64
HISTORY = 1000000


def percentile(values, p):
    return sorted(values)[min(len(values) - 1, int(len(values) * p / 100))]


def seconds_of(command, **kw):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, **kw)
    return time.monotonic() - begin


class Connection(http.client.HTTPConnection):
    """One client of the daemon."""

    def __init__(self, path):
        super().__init__("localhost")
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)

    def call(self, method, path, body=None):
        self.request(method, path, json.dumps(body) if body is not None else None)
        answer = self.getresponse()
        value = json.loads(answer.read())
        assert answer.status < 300, value
        return value


class Carve:
    def __init__(self, build):
        sys.path.insert(0, str(ROOT / "tests" / "system"))
        os.environ["CARVE_BUILD"] = str(build)
        from conftest import Host
        self.host = Host("h100-80gb:1")
        self.env = self.host.env
        self.carve = str(build / "carve")
        self.host.carve_json("agent", "--detached", "--queue", f"q={1 / AT_ONCE}", "one,max=1")
        self.socket = self.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
        self.pid = self.client().call("GET", "/v1/version")["pid"]
        self.run("enqueue", "--queue", "q", "--wait", "--", "true")

    def run(self, *argv):
        return subprocess.run([self.carve, *argv], env=self.env, check=True, capture_output=True, text=True).stdout.strip()

    def client(self):
        return Connection(self.socket)

    def job(self, **more):
        return {"argv": ["/bin/true"], "cwd": "/", "env": [], "queue": "nobodys", "vram": "1", **more}

    def cpu(self):
        fields = pathlib.Path(f"/proc/{self.pid}/stat").read_text().rsplit(") ", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def wakes(self):
        return sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{self.pid}/task").iterdir()
                   for line in (task / "status").read_text().splitlines() if "ctxt_switches" in line)

    # ---- figures

    def enqueue_one_client(self, count):
        client, times = self.client(), []
        for _ in range(count):
            begin = time.monotonic()
            client.call("POST", "/v1/jobs", self.job())
            times.append(time.monotonic() - begin)
        return times

    def enqueue_many_clients(self, count):
        """Jobs a second from many connections, each of which asks again when it is answered."""
        def ask():
            client = self.client()
            for _ in range(count // CLIENTS):
                client.call("POST", "/v1/jobs", self.job())
        threads = [threading.Thread(target=ask) for _ in range(CLIENTS)]
        begin = time.monotonic()
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        return count // CLIENTS * CLIENTS / (time.monotonic() - begin)

    def enqueue_commands(self, count):
        return [seconds_of([self.carve, "enqueue", "--queue", "nobodys", "--vram", "1", "--", "true"], env=self.env, stderr=subprocess.DEVNULL)
                for _ in range(count)]

    def array(self, count):
        begin = time.monotonic()
        id = self.client().call("POST", "/v1/jobs", self.job(array=f"0-{count - 1}"))["id"]
        took = time.monotonic() - begin
        self.run("job", "cancel", id)
        return took

    def throughput(self, count):
        """Jobs a second, and the daemon's CPU for each."""
        cpu, begin = self.cpu(), time.monotonic()
        id = self.run("enqueue", "--queue", "q", "--array", f"0-{count - 1}", "--", "/bin/true")
        self.run("job", "wait", id)
        return count / (time.monotonic() - begin), (self.cpu() - cpu) / count

    def times(self, id):
        """(started, ended) of an array's jobs, in seconds: the database has nanoseconds."""
        with sqlite3.connect(self.env["CARVE_RUNTIME_DIR"] + "/queue.db") as db:
            rows = db.execute("SELECT started, ended FROM job WHERE array=? ORDER BY started", (id,)).fetchall()
        db.close()
        return [(started / 1e9, ended / 1e9) for started, ended in rows]

    def dispatch(self, count):
        """In a queue that runs one job at a time: from a job's end, as its shim noted it, to the next one's start, when it has its
        slice and its shim; and to the first thing that the next one does, which is a shell that says the time."""
        id = self.run("enqueue", "--queue", "one", "--vram", "1", "--array", f"0-{count - 1}", "--", "bash", "-c", "echo $EPOCHREALTIME")
        self.run("job", "wait", id)
        logs = [pathlib.Path(r["log"]) for r in json.loads(self.run("job", "show", id, "--json"))]
        said, at = sorted(float(log.read_text()) for log in logs), self.times(id)
        pairs = list(zip(at, at[1:], said[1:]))
        return [max(0.0, later[0] - earlier[1]) for earlier, later, _ in pairs], [word - earlier[1] for earlier, _, word in pairs]

    def history(self, count):
        """So many jobs that have ended."""
        for _ in range(count // 100000):
            id = self.client().call("POST", "/v1/jobs", self.job(array="0-99999"))["id"]
            self.run("job", "cancel", id)

    def listing(self):
        client, times = self.client(), []
        for _ in range(20):
            begin = time.monotonic()
            listed = client.call("GET", "/v1/jobs?ended=20")
            times.append(time.monotonic() - begin)
            assert len(listed) >= 20
        return statistics.median(times)

    def drop_waiting(self):
        """Those that were enqueued for a queue that nobody serves."""
        jobs = [j["id"] for j in self.client().call("GET", "/v1/jobs?ended=0&queue=nobodys")]
        for at in range(0, len(jobs), 500):
            self.run("job", "cancel", *jobs[at:at + 500])

    def idle_wakes(self, seconds=10):
        time.sleep(seconds)  # what was done before is tidied up meanwhile
        before = self.wakes()
        time.sleep(seconds)
        return (self.wakes() - before) / seconds

    def close(self):
        self.host.close()


class TaskSpooler:
    name = "task-spooler"

    def __init__(self, dir):
        self.env = dict(os.environ, TS_SOCKET=f"{dir}/socket", TMPDIR=str(dir), TS_SLOTS=str(AT_ONCE))

    def enqueue(self, count):
        return [seconds_of(["tsp", "true"], env=self.env) for _ in range(count)]

    def throughput(self, count):
        begin = time.monotonic()
        self.enqueue(count)
        subprocess.run(["tsp", "-w"], env=self.env, stdout=subprocess.DEVNULL)
        while b"running" in (listed := subprocess.run(["tsp", "-l"], env=self.env, capture_output=True).stdout) or b"queued" in listed:
            time.sleep(0.01)
        return count / (time.monotonic() - begin)

    def close(self):
        subprocess.run(["tsp", "-K"], env=self.env)


class Nq:
    name = "nq"

    def __init__(self, dir):
        self.env = dict(os.environ, NQDIR=str(dir))

    def enqueue(self, count):
        return [seconds_of(["nq", "-q", "true"], env=self.env) for _ in range(count)]

    def throughput(self, count):
        begin = time.monotonic()
        self.enqueue(count)
        subprocess.run(["nq", "-w"], env=self.env, stdout=subprocess.DEVNULL)
        return count / (time.monotonic() - begin)

    def close(self):
        pass


def ms(seconds):
    return f"{1000 * seconds:.1f} ms"


def carve_rows(carve, count):
    one, commands = carve.enqueue_one_client(300), carve.enqueue_commands(50)
    rate = carve.enqueue_many_clients(64 * 60)
    gaps, words = carve.dispatch(min(count, 200))
    jobs, cpu = carve.throughput(count)
    took = carve.array(100000)
    carve.drop_waiting()
    wakes = carve.idle_wakes()
    carve.history(HISTORY)
    return [
        ["enqueue, one connection: p50, p99", f"{ms(percentile(one, 50))}, {ms(percentile(one, 99))}", "p99 <= 20 ms"],
        [f"enqueue, {CLIENTS} connections", f"{rate:,.0f}/s", ">= 2,000/s"],
        ["an array of 100,000", ms(took), "<= 1 s"],
        ["from room to start: p50, p99", f"{ms(percentile(gaps, 50))}, {ms(percentile(gaps, 99))}", "<= 2 ms, <= 20 ms"],
        ["from room to its command's first word: p50, p99", f"{ms(percentile(words, 50))}, {ms(percentile(words, 99))}", ""],
        ["jobs through slices", f"{jobs:,.0f}/s", ">= 200/s"],
        ["the daemon's CPU, a job", ms(cpu), "<= 1 ms"],
        [f"the last 20 of {HISTORY:,} that ended", ms(carve.listing()), "<= 10 ms"],
        ["wake-ups of an idle daemon", f"{wakes:.1f}/s", "of the queue: none"],
    ], [["carve", ms(percentile(commands, 50)), ms(percentile(commands, 99)), f"{jobs:,.0f}/s", "in slices, on disk before it is answered"]]


def table(head, rows):
    return "\n".join(["| " + " | ".join(r) + " |" for r in (head, ["---"] * len(head), *rows)])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default=ROOT / "build", type=pathlib.Path)
    parser.add_argument("--jobs", type=int, default=500, help="so many jobs where jobs are run (500)")
    parser.add_argument("--json", type=pathlib.Path, help="the same, for programs")
    options = parser.parse_args()
    before = os.getloadavg()[0]
    carve = Carve(options.build.resolve())
    try:
        rows, beside = carve_rows(carve, options.jobs)
    finally:
        carve.close()
    for kind, program in ((TaskSpooler, "tsp"), (Nq, "nq")):
        if not shutil.which(program):
            print(f"bench/queues.py: {kind.name} is not installed: left out", file=sys.stderr)
            continue
        with tempfile.TemporaryDirectory() as dir:
            peer = kind(dir)
            times = peer.enqueue(50)
            rate = peer.throughput(options.jobs)
            peer.close()
        beside.append([kind.name, ms(percentile(times, 50)), ms(percentile(times, 99)), f"{rate:,.0f}/s",
                       "counts slots" if kind is TaskSpooler else "one at a time"])
    load = os.getloadavg()[0]
    print(f"{os.cpu_count()} CPUs, load {before:.1f} at the beginning and {load:.1f} at the end, {options.jobs} jobs\n")
    print(table(["carve", "measured", "goal"], rows) + "\n")
    print(table(["`... true` by the command", "p50", "p99", "jobs", ""], beside))
    if options.json:
        options.json.write_text(json.dumps({"cpus": os.cpu_count(), "load": [before, load], "jobs": options.jobs, "carve": rows, "beside": beside}))


if __name__ == "__main__":
    main()
