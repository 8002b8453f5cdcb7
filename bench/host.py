"""Where the programs run: a simulated host with a session on it, and the environments in which a program meets the
null driver directly, through carve, or through another interposer."""
import contextlib
import dataclasses
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading

from bench import children, peers

ROOT = pathlib.Path(__file__).resolve().parents[1]
# Large enough for 128 contexts: the simulated driver knows nothing of those that the null driver makes, so that the
# daemon leaves each charged at the cost it learned.
GPU = "h200-141gb"
# Nothing of the caller's own daemon, slice or host may be measured.
FOREIGN = ("CARVE_HOST", "CARVE_RUNTIME_DIR", "CARVE_SESSION", "CARVE_STAMP", "CARVE_ATTACH", "CARVE_DRIVER_CUDA",
           "CARVE_DRIVER_NVML", "SIMGPU_HOST", "CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "LD_LIBRARY_PATH",
           "LD_BIND_NOW")
INSIDE = "CARVE_BENCH_INSIDE"
IDLE_START_S = 120


class BenchError(Exception):
    """Something that has to work for there to be figures did not; the text is for the user."""


@dataclasses.dataclass(frozen=True)
class Configuration:
    name: str
    env: dict
    broken: str = None  # why nothing can be run in it
    real: dict = None   # the driver below, where that is not the null driver
    by_name: pathlib.Path = None  # peers.by_name()


def enter(build):
    """Goes on inside a simulated host of its own, which ends with this process; returns where it is inside."""
    if os.environ.get(INSIDE) == os.environ.get("SIMGPU_HOST", ""):
        return
    carve = str(build / "carve")
    if not os.access(carve, os.X_OK):
        raise BenchError(f"{carve} is not there: run ./scripts/build first")
    env = fresh_env()
    script = f'export {INSIDE}="$SIMGPU_HOST"; exec "$0" "$@"'
    os.execve(carve, [carve, "sim", "--gpus", GPU, "--", "/bin/sh", "-c", script, sys.executable, *sys.argv], env)


def checked(argv, env, timeout=120):
    """Standard output of a command that must succeed."""
    try:
        done = subprocess.run([str(a) for a in argv], env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise BenchError(f"{' '.join(map(str, argv))}: it did not end in {timeout} s") from None
    if done.returncode != 0:
        raise BenchError(f"{' '.join(map(str, argv))}: {peers.ended(done.returncode)}\n{done.stderr.strip()}")
    return done.stdout


def direct(build, real=None):
    """`real`: over the driver that is there (real.driver()) instead of the null driver."""
    env = dict(os.environ)
    if real:
        return Configuration("direct", env, real=real)
    env["LD_LIBRARY_PATH"] = f"{build}/bench/null_driver:{env.get('LD_LIBRARY_PATH', '')}"
    return Configuration("direct", env)


def through_carve(build, base):
    """The environment that `carve run` gives a command which joins the session; one that holds outside of it, too."""
    text = checked([build / "carve", "run", "--isolation", "preload", "--", "env", "-0"], base.env)
    return Configuration("carve", dict(entry.split("=", 1) for entry in text.split("\0") if entry), real=base.real)


def through_peer(build, base, peer, scratch):
    """Some ask for the driver by the name that it has for linking, which the simulated one has as well."""
    link, env = pathlib.Path(scratch, "libcuda.so"), dict(base.env)
    if not base.real:
        if not link.exists():
            link.symlink_to(build / "bench/null_driver/libcuda.so.1")
        env["LD_LIBRARY_PATH"] = f"{scratch}:{env['LD_LIBRARY_PATH']}"
    return Configuration(peer.name, {**env, **peer.environment(scratch=scratch)}, peers.why_not(peer, env), base.real)


@contextlib.contextmanager
def session(build, options=()):
    carve = str(build / "carve")
    granted = json.loads(checked([carve, "session", "request", "--gpu", "1", *options, "--json"], os.environ))
    try:
        yield granted["id"]
    finally:
        subprocess.run([carve, "session", "release", granted["id"]], stdout=subprocess.DEVNULL, check=False)


@contextlib.contextmanager
def idle_processes(build, configuration, count):
    """That many processes in the configuration, each with a context and an allocation, until the block's end."""
    words = tempfile.TemporaryFile("w+", errors="replace")
    process = subprocess.Popen([build / "bench" / "idle", str(count)], env=configuration.env, stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=words, text=True)
    late = threading.Timer(IDLE_START_S, process.kill)
    late.start()
    try:
        if process.stdout.readline() != "ready\n":
            words.seek(0)
            raise BenchError(f"{count} idle processes do not start ({configuration.name})\n{words.read()[-500:]}")
        late.cancel()
        yield
    finally:
        late.cancel()
        words.close()
        process.stdin.close()
        process.wait()
        process.stdout.close()


@contextlib.contextmanager
def pinned():
    """To one core, with all children until the block's end; the last, as the first ones serve interrupts."""
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


def on_a_host(build, spec, argv, timeout):
    """Runs a command on a simulated host of its own; None where it did not end in time. A host is never killed: what it
    keeps in files would stay."""
    command = [str(a) for a in (build / "carve", "sim", "--gpus", spec, "--", *argv)]
    process = subprocess.Popen(command, env=fresh_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, errors="replace")
    try:
        out, errors = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        children.end_all(under=process.pid)
        process.communicate()
        return None
    return subprocess.CompletedProcess(command, process.returncode, out, errors)


def fresh_env():
    """For `carve sim` to make another host than the one around this."""
    return {k: v for k, v in os.environ.items() if k not in (*FOREIGN, INSIDE)}
