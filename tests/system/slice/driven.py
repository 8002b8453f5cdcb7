"""Programs that a test drives inside a slice, and the driver's own books of what they hold."""
import json
import subprocess

import pytest

from conftest import BUILD, ON_GPU

OK, OUT_OF_MEMORY = 0, 2


class Driven:
    """limit_driven inside a slice: say("take linear 100") -> its one line of answer, a number."""

    def __init__(self, host, *run):
        self.process = host.popen([BUILD / "carve", "run", *run, "--", BUILD / "tests/programs/limit_driven"],
                                  stdin=subprocess.PIPE, stderr=None)
        self.pid = int(self.process.stdout.readline())

    def ask(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().split()

    def say(self, line):
        return int(self.ask(line)[0])

    def room(self):
        return self.say("room")

    def close(self):
        self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def driven(host):
    started = []

    def start(*run, on=host, device=0):
        started.append(Driven(on, *run))
        assert started[-1].say(f"device {device}") == OK
        return started[-1]

    yield start
    for d in started:
        d.close()


@pytest.fixture
def session(host):
    return host.carve_json("session", "request", "--vram", "2")["id"]


def on_gpu(host, gpu=0):
    return host.stat()["gpus"][gpu]["memory_used_bytes"]


def peak(host, gpu=0):
    return host.stat()["gpus"][gpu]["memory_peak_bytes"]


def check_by_trace(host, directory):
    """The most that was ever held on GPU 0 is that of the driver's log of every change, where a driver keeps one."""
    if ON_GPU:
        return
    path = directory / "trace.json"
    assert host.carve("sim", "trace", path).returncode == 0
    log = json.loads(path.read_text())
    assert log["otherData"]["lost_memory_events"] == 0
    assert max(e["args"]["bytes"] for e in log["traceEvents"] if e["name"] == "device memory gpu 0") == peak(host)
