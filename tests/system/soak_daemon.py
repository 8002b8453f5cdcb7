"""The trials of a daemon for long (scripts/soak-daemon) and for a moment (test_daemon_soak.py): killed at any
moment under load, upgraded under load, and asked a million times. Nothing here is timed; every answer is checked.

Usage: soak_daemon.py kills N | pairs N"""
import contextlib
import http.client
import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import threading
import time

from conftest import BUILD, Host, clean_env, wait_until
from daemon_client import GIB, MIB, Daemon, UnixConnection

OK, OUT_OF_MEMORY = 0, 2
LETTERS = "abcdefghijkmnpqrstuvwxyz23456789"


class Stepping(threading.Thread):
    """Does one step() after another, other than while `pause` is set: `paused` says that it stands still."""

    def __init__(self, seed):
        super().__init__(daemon=True)
        self.dice = random.Random(seed)
        self.over, self.pause, self.paused = False, threading.Event(), threading.Event()
        self.failure = None

    def run(self):
        try:
            while not self.over:
                if self.pause.is_set():
                    self.paused.set()
                    time.sleep(0.002)
                    continue
                self.paused.clear()
                self.step()
        except BaseException as e:  # noqa: BLE001: told by who waits for it
            self.failure = repr(e)
            self.paused.set()


class Client(Stepping):
    """Asks for slices, resizes and releases them. Whatever breaks off is asked again: by the same ID, so that it
    is the same request. Keeps the books of what it has, by what it was told."""

    def __init__(self, place, seed):
        super().__init__(seed)
        self.place, self.held = place, {}  # ID -> bytes
        self.pairs, self.repeats = 0, 0

    def call(self, method, path, body=None):
        """(status, answer, whether it was asked more than once)"""
        end = time.monotonic() + 60
        again = False
        while True:
            connection = UnixConnection(self.place / "carved.sock")
            try:
                connection.request(method, path, json.dumps(body) if body else None)
                response = connection.getresponse()
                return response.status, json.loads(response.read()), again
            except (OSError, http.client.HTTPException, ValueError):
                assert not self.over
                assert time.monotonic() < end, \
                    "no daemon for a minute: " + (self.place / "carved.log").read_text()[-2000:]
                again = True
                self.repeats += 1
                time.sleep(0.005)
            finally:
                connection.close()

    def take(self):
        id = "s-" + "".join(self.dice.choice(LETTERS) for _ in range(12))
        size = self.dice.randrange(600, 1400) * MIB
        status, answer, _ = self.call("POST", "/v1/sessions",
                                      {"id": id, "vram_bytes": size, "ephemeral": True, "vram_strict": True})
        assert (status, answer.get("id"), answer.get("vram_bytes")) == (201, id, size), answer
        self.held[id] = size

    def resize(self):
        id, size = self.dice.choice(list(self.held)), self.dice.randrange(600, 1400) * MIB
        status, answer, _ = self.call("PATCH", f"/v1/sessions/{id}", {"vram_bytes": size})
        assert (status, answer.get("vram_bytes")) == (200, size), answer
        self.held[id] = size

    def give(self):
        id = self.dice.choice(list(self.held))
        status, answer, again = self.call("DELETE", f"/v1/sessions/{id}")
        # The first time may have done it, and only its answer was lost.
        assert status == 200 or (again and status == 404), answer
        del self.held[id]
        self.pairs += 1

    def step(self):
        choice = self.dice.random()
        if not self.held or (choice < 0.4 and len(self.held) < 4):
            self.take()
        elif choice < 0.6:
            self.resize()
        else:
            self.give()


class Workload(Stepping):
    """A program in a slice that takes and gives memory; whether a daemon lives is nothing to it."""

    SIZE = 3 * GIB

    def __init__(self, host, seed):
        super().__init__(seed)
        self.process = host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "3", "--",
                                   BUILD / "tests/programs/limit_driven"], stdin=subprocess.PIPE, stderr=None)
        self.pid = int(self.process.stdout.readline())
        self.held, self.steps = [], 0
        assert self.say("device 0") == OK
        self.room = self.say("room")

    def say(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline().split()[0])

    def step(self):
        left = self.room - sum(self.held)
        blocks = self.dice.randrange(1, 400)
        if self.held and self.dice.random() < 0.45:
            assert self.say("give") == OK
            self.held.pop()
        elif blocks * 2 * MIB <= left:
            assert self.say(f"take linear {blocks * 2 * MIB}") == OK
            self.held.append(blocks * 2 * MIB)
        else:
            assert self.say(f"take linear {blocks * 2 * MIB}") == OUT_OF_MEMORY
        self.steps += 1
        if self.steps % 20 == 0:
            assert self.say("room") == self.room - sum(self.held)

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


class Killed:
    """A simulated host whose daemon is killed all the time, and what goes on beside it."""

    def __init__(self, clients=5, workloads=3, seed=None):
        self.seed = seed if seed is not None else random.randrange(1 << 30)
        self.dice = random.Random(self.seed)
        self.host = Host("h100-80gb:2")
        self.place = pathlib.Path(self.host.env["CARVE_RUNTIME_DIR"])
        self.kills = self.early = 0
        self.workloads = [Workload(self.host, self.seed + i) for i in range(workloads)]
        self.clients = [Client(self.place, self.seed + 100 + i) for i in range(clients)]
        # Every client once, so that the context's cost is known.
        self.all = [*self.workloads, *self.clients]
        for thread in self.all:
            thread.start()

    def daemon_pid(self):
        """The worker; None while its supervisor has none."""
        try:
            supervisor = int((self.place / "lock").read_text().split()[0])
            return int(pathlib.Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()[0])
        except (OSError, ValueError, IndexError):
            return None

    def serving(self):
        """It answers: the socket of one that is just ending can still be connected to."""
        connection = UnixConnection(self.place / "carved.sock", timeout=3)
        try:
            connection.request("GET", "/v1/version")
            return connection.getresponse().status == 200
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def kill_once(self):
        pid = wait_until(self.daemon_pid)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
            self.kills += 1
        if self.dice.random() < 0.25:  # the next one while it starts
            following = wait_until(lambda: (now := self.daemon_pid()) != pid and now)
            time.sleep(self.dice.random() * 0.04)
            with contextlib.suppress(ProcessLookupError):
                os.kill(following, signal.SIGKILL)
                self.kills += 1
                self.early += 1
        end = time.monotonic() + 30
        while not self.serving():
            assert time.monotonic() < end, (self.seed, (self.place / "carved.log").read_text()[-2000:])
        time.sleep(self.dice.random() * 0.06)

    def failures(self):
        return [t.failure for t in self.all if t.failure]

    def check(self):
        """Everybody stands still: the daemon's sessions are those that were granted, each promised once, and what
        it says is used is what the driver says."""
        for thread in self.all:
            thread.pause.set()
        for thread in self.all:
            wait_until(thread.paused.is_set, 60)
        assert not self.failures(), (self.seed, self.failures())
        expected = {id: size for c in self.clients for id, size in c.held.items()}
        _, listed, _ = self.clients[0].call("GET", "/v1/sessions")
        mine = {s["id"]: s["vram_bytes"] for s in listed if s["id"] in expected}
        assert mine == expected, (self.seed, mine, expected)
        theirs = {s["pids"][0]: s for s in listed if s["id"] not in expected}
        assert sorted(theirs) == sorted(w.pid for w in self.workloads), (self.seed, listed)
        _, gpus, _ = self.clients[0].call("GET", "/v1/gpus")
        for gpu in gpus:
            on = sum(s["vram_bytes"] for s in listed if s["gpus"][0]["index"] == gpu["index"])
            assert gpu["promised_bytes"] == on and gpu["outside_bytes"] == 0, (self.seed, gpu)
            assert gpu["available_bytes"] == gpu["memory_bytes"] - gpu["reserved_bytes"] - on
        driver = {p["pid"]: p["memory_bytes"] for g in self.host.stat()["gpus"] for p in g["processes"]}
        used = {pid: s["gpus"][0]["used_bytes"] for pid, s in theirs.items()}
        assert used == driver and max(driver.values()) <= Workload.SIZE, (self.seed, used, driver)
        for thread in self.all:
            thread.pause.clear()

    def close(self):
        for thread in self.all:
            thread.over = True
        for thread in self.all:
            thread.join(60)
        for workload in self.workloads:
            workload.close()
        self.host.close()


def kills(count, seed=None, report=lambda text: None):
    soak = Killed(seed=seed)
    try:
        while soak.kills < count:
            soak.kill_once()
            assert not soak.failures(), (soak.seed, soak.failures())
            if soak.kills % 10 < 2:
                soak.check()
                report(f"{soak.kills} kills ({soak.early} while it started), "
                       f"{sum(c.pairs for c in soak.clients)} pairs of request and release, "
                       f"{sum(c.repeats for c in soak.clients)} calls repeated, "
                       f"{sum(w.steps for w in soak.workloads)} steps of workloads")
        soak.check()
        assert sum(c.pairs for c in soak.clients) > 0 and sum(w.steps for w in soak.workloads) > 0
        return soak
    finally:
        soak.close()


# ---- a million pairs ----

def figures(daemon):
    status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text()
    rss = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmRSS"))
    disk = sum(f.stat().st_size for f in daemon.runtime.glob("carve.db*"))
    return rss, disk, len(os.listdir(f"/proc/{daemon.pid}/fd"))


def load(daemon, pairs, rate=2000):
    done = subprocess.run([BUILD / "bench/daemon_load", daemon.runtime / "carved.sock", str(rate),
                           str(max(1, pairs // rate))], stdout=subprocess.PIPE, text=True, env=clean_env(),
                          timeout=60 + pairs / 100)
    assert done.returncode == 0, done.stdout


def pairs(count, warm=None, report=lambda text: None, args=()):
    """Memory, files and descriptors of a daemon that is asked `count` times, after it has kept all the history
    that it keeps. Returns [(pairs, rss, disk, descriptors)]."""
    daemon = Daemon(args=args)
    try:
        load(daemon, warm if warm is not None else 24000)
        seen, done = [(0, *figures(daemon))], 0
        part = max(2000, count // 20)
        while done < count:
            load(daemon, part)
            done += part
            seen.append((done, *figures(daemon)))
            report("{} pairs: {:.2f} MiB of memory, {:.2f} MiB of files, {} descriptors".format(
                done, seen[-1][1] / MIB, seen[-1][2] / MIB, seen[-1][3]))
        # The daemon may not have heard yet that the last clients hung up.
        end = time.monotonic() + 20
        while seen[-1][3] > seen[0][3] and time.monotonic() < end:
            time.sleep(0.1)
            seen[-1] = (done, *figures(daemon))
        return seen
    finally:
        daemon.close()


def slope(seen, column):
    """Bytes a pair, by least squares over the second half."""
    half = seen[len(seen) // 2:]
    x, y = [s[0] for s in half], [s[column] for s in half]
    mx, my = sum(x) / len(x), sum(y) / len(y)
    return sum((a - mx) * (b - my) for a, b in zip(x, y)) / sum((a - mx) ** 2 for a in x)


def main():
    what, count = sys.argv[1], int(sys.argv[2])

    def report(text):
        print(text, flush=True)

    if what == "kills":
        soak = kills(count, report=report)
        report(f"{soak.kills} kills: no session lost, invented or promised twice; the books are the driver's")
    elif what == "pairs":
        seen = pairs(count, report=report)
        for name, column in (("memory", 1), ("files", 2)):
            per_million = slope(seen, column) * 1e6
            report(f"{name}: {per_million / MIB:+.2f} MiB in a million pairs, by the second half's slope")
            assert per_million < 2 * MIB and seen[-1][column] - seen[0][column] < 4 * MIB
        assert seen[-1][3] <= seen[0][3] + 2
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
