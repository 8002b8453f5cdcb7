"""carved alone, over a driver that says what a file says: what the tests of the daemon share."""
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

from attach_client import *
from conftest import BUILD, clean_env, process_ended, wait_until
from unix_http import UnixConnection

MIB = 1 << 20
GIB = 1 << 30


def lasting(session):
    """A session without what the next daemon begins anew."""
    return {key: value for key, value in session.items() if not key.startswith("idle_")}


class Answer:
    def __init__(self, status, text, type="application/json"):
        self.status = status
        self.text = text.decode(errors="replace")
        self.json = json.loads(text) if text and type == "application/json" else None

    @property
    def error(self):
        return self.json["error"]


class Daemon:
    """A carved of its own, with a fake driver. `gpus`: [(total, reserved, outside, name)]."""

    def __init__(self, gpus=((80 * GIB, 0, 0, "Fake H100"),), args=(), dir=None, program=BUILD / "carved"):
        self.dir = pathlib.Path(dir or tempfile.mkdtemp(prefix="carved-test-"))
        self.runtime = self.dir / "run"
        self.gpus, self.processes, self.busy, self.failing = list(gpus), [], [], False
        self.use, self.use_untold = [], False  # GPU time that processes use: (GPU, PID, percent); whether the driver is silent of it
        self.modes = {}  # of GPUs: the driver's compute mode
        self.mig = {}  # of GPUs: their MIG mode, what is pending, and whether that hides their memory
        self.delay = 0  # of the driver's answers, ms
        self.args = list(args)
        if "--system" in self.args:
            self.dir.chmod(0o755)  # where root starts it, it becomes another user, who has to read the driver's state
        self.write_state()
        self.program = program
        self.process = None  # the supervisor
        self.worker = None
        self.start()

    def write_state(self):
        lines = [f"gpu {t} {r} {o} {n}" for t, r, o, n in self.gpus]
        lines += [f"process {g} {pid} {b}" for g, pid, b in self.processes]
        lines += [f"utilization {g} {percent}" for g, percent in self.busy]
        lines += [f"use {g} {pid} {percent}" for g, pid, percent in self.use]
        lines += ["use_untold"] if self.use_untold else []
        lines += [f"driver_mode {g} {mode}" for g, mode in self.modes.items()]
        lines += [f"mig {g} {now:d} {pending:d} {secret:d}" for g, (now, pending, secret) in self.mig.items()]
        lines += ["fail"] if self.failing else []
        lines += [f"delay {self.delay}"] if self.delay else []
        new = self.dir / "state.new"
        new.write_text("\n".join(lines) + "\n")
        new.rename(self.dir / "state")

    def env(self):
        return clean_env({"FAKE_NVML": str(self.dir / "state"),
                          "LD_LIBRARY_PATH": str(BUILD / "tests/programs/fake_nvml")})

    def start(self, wait=True):
        self.started = list(map(str, self.args))
        log = open(self.dir / "log", "a")
        read, write = os.pipe()
        self.process = subprocess.Popen(
            [self.program, "--runtime-dir", self.runtime, "--foreground", "--ready-fd",
             str(write), *self.args], env=self.env(), stdin=subprocess.DEVNULL, stderr=log,
            pass_fds=[write])
        os.close(write)
        log.close()
        if wait:
            assert os.read(read, 1) == b"R", self.log()
            self.wait_for_worker()
        os.close(read)

    def wait_for_worker(self, but=None):
        """Until a worker serves, other than `but`."""
        def asked():
            try:
                pid = self.call("GET", "/v1/version").json["pid"]
            except (OSError, http.client.HTTPException):
                return None
            return pid if pid != but else None

        self.worker = wait_until(asked)
        return self.worker

    @property
    def pid(self):
        """The worker's: the process that serves, and that another one follows on."""
        if not self.worker or process_ended(self.worker):
            self.wait_for_worker(self.worker)
        return self.worker

    def log(self):
        return (self.dir / "log").read_text()

    def kill(self):
        """The worker is killed, and none follows on it until start(): its supervisor is told to end."""
        if self.process.poll() is not None:
            return
        pid = self.pid
        self.process.send_signal(signal.SIGSTOP)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: process_ended(pid))
        self.stop()

    def stop(self):
        """The supervisor is told to end, and its worker with it."""
        self.process.terminate()
        self.process.send_signal(signal.SIGCONT)
        assert self.process.wait(60) == 0, self.log()

    def lose(self):
        """The supervisor is killed, and its worker with it: nothing is kept."""
        pid = self.pid
        self.process.kill()
        self.process.wait()
        wait_until(lambda: process_ended(pid))

    def reload(self):
        self.process.send_signal(signal.SIGHUP)

    def restart(self):
        """The worker is killed, and another one follows on it."""
        if self.process.poll() is not None or self.started != list(map(str, self.args)):
            self.kill()
            return self.start()
        pid = self.pid
        os.kill(pid, signal.SIGKILL)
        return self.wait_for_worker(pid)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.send_signal(signal.SIGCONT)
            try:
                code = self.process.wait(60)
            except subprocess.TimeoutExpired:
                self.process.kill()
                raise
            assert code == 0, self.log()
        shutil.rmtree(self.dir, ignore_errors=True)

    def call(self, method, path, body=None, timeout=60):
        connection = UnixConnection(self.runtime / "carved.sock", timeout)
        text = body if isinstance(body, (str, bytes, type(None))) else json.dumps(body)
        connection.request(method, path, text)
        response = connection.getresponse()
        answer = Answer(response.status, response.read(), response.getheader("Content-Type"))
        connection.close()
        return answer

    def request(self, **body):
        """A slice; one-off unless said otherwise."""
        return self.call("POST", "/v1/sessions", {"ephemeral": True, **body})

    def grant(self, **body):
        answer = self.request(**body)
        assert answer.status == 201, answer.json
        return answer.json

    def release(self, id, force=False):
        return self.call("DELETE", f"/v1/sessions/{id}" + ("?force=1" if force else ""))

    def all_sessions(self):
        """Ended ones, too: the history comes in parts."""
        sessions, page = [], ""
        while page is not None:
            answer = self.call("GET", f"/v1/sessions?all=1&page={page}")
            assert answer.status == 200, answer.json
            sessions += answer.json["sessions"]
            page = answer.json["next"]
        return sessions

    def show(self, id):
        answer = self.call("GET", f"/v1/sessions/{id}")
        assert answer.status == 200, answer.json
        return answer.json

    def gpu(self, index=0):
        return self.call("GET", "/v1/gpus").json[index]


def wait_gone(pid):
    wait_until(lambda: not pathlib.Path(f"/proc/{pid}").exists())


__all__ = ["Daemon", "lasting", "Attached", "Ledger", "UnixConnection", "attach_message", "MIB", "GIB", "WORKLOAD", "COMMAND", "SETTLE",
           "OBSERVE", "RESUME", "SWEEP", "OK", "NO_SESSION", "NOT_PERMITTED", "FULL", "VERSION", "MALFORMED",
           "FAILED", "signal", "wait_until", "wait_gone"]
