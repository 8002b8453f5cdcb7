"""Fixtures of the system tests: whole programs, real processes, a simulated host each.

CARVE_BUILD names the build directory (default: build/ of this checkout). With CARVE_TEST_GPU=1 tests with one GPU (those
that use `host` or `module_host`) run on this machine's own driver instead of a simulated host, and no others do (scripts/test --gpu)."""
import contextlib
import grp
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time

import pytest

from real_gpu import SLACK, Measured, Nvml, processes_of
from unix_http import UnixConnection

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARVE_BUILD", ROOT / "build")).resolve()
VERSION = re.search(r"^\s+version: '([\d.]+)'", (ROOT / "meson.build").read_text(), re.M)[1]
ON_GPU = os.environ.get("CARVE_TEST_GPU") == "1"
# Nothing of the caller's own daemon, slice or host may leak into a test.
FOREIGN = ("CARVE_HOST", "CARVE_RUNTIME_DIR", "CARVE_SESSION", "CARVE_STAMP", "CARVE_ATTACH", "CARVE_DRIVER_CUDA",
           "CARVE_DRIVER_NVML", "SIMGPU_HOST", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD")


# Whoever started the tests in the background may ignore these; programs under test would inherit that.
for ignored in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)


# Tests of what programs do in a slice: they run the same few commands of carve again and again, whose ends the others'
# tests look at for leaks. In an instrumented build that takes as long as all the rest of a short command.
LEAKS_NOT_LOOKED_FOR = ("slice", "front", "reach")


@pytest.fixture(autouse=True, scope="module")
def leaks_looked_for_elsewhere(request):
    with pytest.MonkeyPatch.context() as patch:
        if "ASAN_OPTIONS" in os.environ and request.path.parent.name in LEAKS_NOT_LOOKED_FOR:
            patch.setenv("ASAN_OPTIONS", os.environ["ASAN_OPTIONS"] + ":detect_leaks=0")
        yield


# The front and the programs in a slice are the same in an instrumented build.
ONCE_FOR_THE_FRONT = pytest.mark.once("ways of the front's; the daemon is asked the same as in other tests")


def rest_long(values, gate=1):
    """Values of a parametrize: the gate takes the first ones, the others are `long`."""
    return [pytest.param(*value if isinstance(value, tuple) else (value,), marks=[pytest.mark.long] if place >= gate else [])
            for place, value in enumerate(values)]


# How long a test waits for what has to come, where it judges no time: a machine may be slow, or stand still for a while.
PATIENCE = 60


def clean_env(extra=None):
    env = {k: v for k, v in os.environ.items() if k not in FOREIGN}
    env.update(extra or {})
    return env


def run(argv, timeout=2 * PATIENCE, env=None, **kw):
    """Runs a command to its end; stdout and stderr as text."""
    return subprocess.run([str(a) for a in argv], stdin=kw.pop("stdin", subprocess.DEVNULL),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=timeout, env=env if env is not None else clean_env(), **kw)


def sim_run(spec, argv, driver=None, **kw):
    """`carve sim --gpus SPEC -- ARGV...` to its end."""
    options = ["--gpus", spec] + (["--driver", driver] if driver else [])
    return run([BUILD / "carve", "sim", *options, "--", *argv], **kw)


def wait_until(condition, timeout=PATIENCE, step=0.02):
    """Waits until condition() is true and returns its value; fails the test after the timeout. Most conditions start programs:
    the longer it waits, the less often it looks, down to a quarter."""
    end = time.monotonic() + timeout
    longest = 4 * step
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() > end:
            raise AssertionError(f"not within {timeout} s: {condition}")
        time.sleep(step)
        step = min(1.1 * step, longest)


def another_user_can_read(path=BUILD / "carve"):
    """Whether there is another user to try something as, and the checkout is where that one may look (not below /root)."""
    return os.geteuid() == 0 and subprocess.run(
        ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", "cat", str(path)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0


def administrator():
    """Whether carved takes this user for one: root, or a member of group carve."""
    try:
        return os.geteuid() == 0 or grp.getgrnam("carve").gr_gid in os.getgroups()
    except KeyError:
        return False


needs_admin = pytest.mark.skipif(not administrator(), reason="needs root or a member of group carve")


@pytest.fixture
def another_user():
    if not another_user_can_read():
        pytest.skip("needs to be root, in a checkout that other users can read")


def pytest_sessionstart():
    """Without a GPU, --gpu is no success of tests that were skipped."""
    if ON_GPU:
        try:
            Nvml().close()
        except OSError as error:
            pytest.exit(f"CARVE_TEST_GPU=1, but no GPU can be had: {error}", returncode=1)


def pytest_collection_modifyitems(config, items):
    """On a real GPU: the tests that start programs on it, but for those that need what only a simulated host has."""
    if not ON_GPU:
        return
    others = [item for item in items if not {"host", "module_host"} & set(item.fixturenames)]
    items[:] = [item for item in items if {"host", "module_host"} & set(item.fixturenames)]
    config.hook.pytest_deselected(items=others)
    for needs, item in ((item.get_closest_marker("needs_sim"), item) for item in items):
        if needs:
            item.add_marker(pytest.mark.skip(reason="needs a simulated host: " + needs.args[0]))


def machine_has_gpu():
    """Whether a driver stands behind the device node; NVIDIA's clients that run as root make the node anywhere."""
    try:
        os.close(os.open("/dev/nvidiactl", os.O_RDWR))
        return True
    except OSError:
        return False


class Runner:
    """The actions of tests on a host, simulated or real; self.env is the environment of its programs."""

    def run(self, argv, **kw):
        env = dict(self.env, **kw.pop("env", {}))
        return run(argv, env=env, **kw)

    def popen(self, argv, **kw):
        env = dict(self.env, **kw.pop("env", {}))
        kw.setdefault("stdin", subprocess.DEVNULL)
        kw.setdefault("stdout", subprocess.PIPE)
        kw.setdefault("stderr", subprocess.PIPE)
        return subprocess.Popen([str(a) for a in argv], text=True, env=env, **kw)

    def carve(self, *argv, **kw):
        return self.run([BUILD / "carve", *argv], **kw)

    def carve_json(self, *argv, **kw):
        done = self.carve(*argv, "--json", **kw)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def measured(self, value, slack=SLACK):
        """The figure that a test expects of this host's GPU: exactly that where it is simulated, and about that on a real one."""
        return value

    def daemon_pid(self, directory=None):
        """Of the worker that serves. One that somebody has just started may not listen yet."""
        def asked():
            with contextlib.closing(UnixConnection((directory or self.env["CARVE_RUNTIME_DIR"]) + "/carved.sock")) as connection:
                try:
                    connection.request("GET", "/v1/version")
                    return json.loads(connection.getresponse().read())["pid"]
                except (OSError, http.client.HTTPException):
                    return None

        return wait_until(asked)


class OwnGpu(dict):
    """One GPU's books. Here no test can go by things that a simulated driver writes down and a real one does not."""

    def __missing__(self, key):
        pytest.skip(f"a GPU's {key}: here nobody tells, as a simulated host does")


def process_ended(pid):
    try:
        return ") Z " in pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return True


class RealHost(Runner):
    """This machine's own GPU and driver, with a daemon of the test's own."""

    def __init__(self):
        self.dir = tempfile.mkdtemp(prefix="carve-test-")
        self.env = clean_env({"CARVE_RUNTIME_DIR": self.dir})
        self.started = []
        self.nvml = Nvml()

    def popen(self, argv, **kw):
        self.started.append(super().popen(argv, **kw))
        return self.started[-1]

    def carve(self, *argv, **kw):
        if "sim" in argv:
            pytest.skip(f"needs a simulated host: carve {' '.join(map(str, argv))}")
        return super().carve(*argv, **kw)

    def measured(self, value, slack=SLACK):
        return Measured(value, slack)

    def stat(self):
        """The driver's own books, without what was on the GPU before the test."""
        gpus = [OwnGpu(index=index, uuid=self.nvml.uuid(index), memory_used_bytes=used, memory_peak_bytes=peak)
                for index, (used, peak) in enumerate(self.nvml.books())]
        for index, gpu in enumerate(gpus):
            processes = self.nvml.processes(index)
            if processes is not None:
                gpu["processes"] = processes
        return {"gpus": gpus}

    def close(self):
        """Whatever became of the test: nothing of it is left that could hold the GPU when the next one begins."""
        try:
            daemon = int(pathlib.Path(self.dir, "lock").read_text())
        except (FileNotFoundError, ValueError):
            daemon = None
        end_processes([pid for pid in processes_of(self.dir) if pid != daemon], signal.SIGKILL)
        if daemon in processes_of(self.dir):
            os.kill(daemon, signal.SIGCONT)
            end_processes([daemon], signal.SIGTERM)
        end_processes(processes_of(self.dir), signal.SIGKILL)
        for process in self.started:
            process.wait(PATIENCE)
        self.nvml.close()
        shutil.rmtree(self.dir, ignore_errors=True)


def end_processes(pids, number, patience=10):
    """They have ended, or have had that long."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass
    end = time.monotonic() + patience
    while not all(map(process_ended, pids)) and time.monotonic() < end:
        time.sleep(0.02)


class Host(Runner):
    """A simulated host that stays up for a test: `host.run([...])` runs programs on it."""

    def __init__(self, spec, driver=None, wrap=(), env=None):
        """`wrap`: words before the command, of a program that becomes another user."""
        self.dir = tempfile.mkdtemp(prefix="carve-test-")
        options = ["--gpus", spec] + (["--driver", driver] if driver else [])
        # One process that starts no others: it is there until its input ends, and its environment is that of all programs.
        self.process = subprocess.Popen(
            [*wrap, str(BUILD / "carve"), "sim", *options, "--", "/bin/sh", "-c", "echo $$; read -r end; exit 0"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=clean_env(env or {}), text=True)
        pid = self.process.stdout.readline().strip()
        assert pid, "the simulated host did not start"
        words = pathlib.Path(f"/proc/{pid}/environ").read_bytes().decode().split("\0")
        self.env = dict(word.split("=", 1) for word in words if word)

    def stat(self):
        """The driver's own books, never carve's."""
        return self.carve_json("sim", "stat")

    def server(self):
        """The process that is the GPU."""
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(self.env["SIMGPU_HOST"] + "/driver.sock")
            peer = s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        return struct.unpack("3i", peer)[0]

    def kill(self):
        """Its server dies without a word."""
        os.kill(self.server(), signal.SIGKILL)

    def close(self):
        self.process.stdin.close()
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            raise
        finally:
            self.process.stdout.close()
            shutil.rmtree(self.dir, ignore_errors=True)


def open_to_others(host):
    """Programs of other users play on this simulated host, too; a system daemon that root starts is one of them."""
    directory = pathlib.Path(host.env["SIMGPU_HOST"])
    directory.chmod(0o755)
    for entry in directory.iterdir():
        if entry.is_socket():
            entry.chmod(0o666)


def listens(path):
    """Whether a Unix socket is there and taken care of: between bind and listen it is there and refuses."""
    with socket.socket(socket.AF_UNIX) as s:
        try:
            s.connect(str(path))
        except OSError:
            return False
    return True


@pytest.fixture
def build():
    return BUILD


@pytest.fixture
def programs():
    return BUILD / "tests" / "programs"


@pytest.fixture
def examples():
    return BUILD / "examples"


@pytest.fixture
def host():
    """A host with one GPU: a simulated H100 80GB, or this machine's (scripts/test --gpu)."""
    h = RealHost() if ON_GPU else Host("h100-80gb")
    yield h
    h.close()


@pytest.fixture(scope="module")
def module_host():
    """The same for tests that leave nothing on it: one for those of a module, and not one each."""
    h = RealHost() if ON_GPU else Host("h100-80gb")
    yield h
    h.close()


@pytest.fixture
def make_host():
    """make_host(spec, driver=None, env=None) -> Host; closed after the test. Skips on a real GPU."""
    if ON_GPU:
        pytest.skip("needs a simulated host")
    hosts = []

    def make(spec, driver=None, env=None):
        hosts.append(Host(spec, driver, env=env))
        return hosts[-1]

    yield make
    for h in hosts:
        h.close()
