"""Hosts with agents, and jobs that leave a witness of each of their runs."""
import contextlib
import json
import os
import pathlib
import signal

import pytest

from conftest import ON_GPU, Host, process_ended, wait_until

ENDED = ("done", "failed", "cancelled", "timeout", "lost")
# Writes at its start and end, each line whole: job, attempt, what.
WITNESS = 'echo "$CARVE_JOB_ID $CARVE_JOB_ATTEMPT start" >> "$W"; {}; echo "$CARVE_JOB_ID $CARVE_JOB_ATTEMPT end" >> "$W"'

# More than jobs ever wait at a gate, and less than a pipe holds.
GATE_LINES = 4000


class Queues:
    """A simulated host, a file for witnesses, and the verbs of queues."""

    def __init__(self, host, tmp_path):
        self.host, self.witness, self.dir = host, tmp_path / "witness", tmp_path
        self.host.env["W"] = str(self.witness)
        self.gates = []

    def agent(self, *queues, gpus="all", options=()):
        return self.host.carve_json("agent", "--detached", "--gpus", gpus, *options, "--queue", *queues)

    def enqueue(self, *argv, queue="half", options=()):
        done = self.host.carve("enqueue", "--json", "--queue", queue, *options, "--", *argv)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["id"]

    def witnessed(self, body=":", **kw):
        return self.enqueue("sh", "-c", WITNESS.format(body), **kw)

    def jobs(self, id):
        shown = self.host.carve_json("job", "show", id)
        return shown if isinstance(shown, list) else [shown]

    def job(self, id):
        job, = self.jobs(id)
        return job

    def state(self, id):
        return self.job(id)["state"]

    def wait_state(self, id, *states):
        wait_until(lambda: self.state(id) in states, step=0.05)
        return self.job(id)

    def ended(self, id):
        wait_until(lambda: all(j["state"] in ENDED for j in self.jobs(id)), step=0.05)
        return self.job(id) if len(self.jobs(id)) == 1 else self.jobs(id)

    def runs(self, id=None):
        lines = self.witness.read_text().splitlines() if self.witness.exists() else []
        return [line for line in lines if id is None or line.startswith(f"{id} ")]

    def queue(self, name):
        found, = [q for q in self.host.carve_json("queue", "list") if q["name"] == name]
        return found

    def kill_daemon(self):
        """kill -9, with the supervisor told to end: the next command starts a daemon. Returns the process ID that it had."""
        lock = pathlib.Path(self.host.env["CARVE_RUNTIME_DIR"], "lock")
        pid, supervisor = self.host.daemon_pid(), int(lock.read_text().split()[0])
        os.kill(supervisor, signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
        os.kill(supervisor, signal.SIGTERM)
        os.kill(supervisor, signal.SIGCONT)
        wait_until(lambda: process_ended(supervisor))
        return pid

    def gate(self, name="gate"):
        """A body that waits until open_gate(): for a line of a named pipe, as twenty loops over `sleep` keep a machine busy."""
        return f"{{ [ -p {self.dir}/{name} ] || mkfifo -m 666 {self.dir}/{name} 2>&-; read -r _ < {self.dir}/{name}; }}"

    def open_gate(self, name="gate"):
        """Also for bodies that come to it later: the pipe stays open, with a line for each of them."""
        path = self.dir / name
        # A body may come first.
        with contextlib.suppress(FileExistsError):
            os.mkfifo(path)
        self.gates.append(open(path, "r+b", buffering=0))
        self.gates[-1].write(b"\n" * GATE_LINES)


@pytest.fixture
def queues(make_host, tmp_path):
    return Queues(make_host("h100-80gb:2"), tmp_path)


@pytest.fixture(scope="module")
def module_queues(tmp_path_factory):
    """One host for those tests of a module that leave nothing on it."""
    if ON_GPU:
        pytest.skip("needs a simulated host")
    host = Host("h100-80gb:2")
    yield Queues(host, tmp_path_factory.mktemp("queues"))
    host.close()


@pytest.fixture
def queues_of(make_host, tmp_path):
    return lambda spec: Queues(make_host(spec), tmp_path)
