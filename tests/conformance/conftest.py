"""Fixtures of the conformance tests: unmodified clients of NVML on simulated hosts."""
import os
import pathlib
import subprocess

import pytest

from .clients import Tools, Unavailable, unpacked

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("CARVE_BUILD", ROOT / "build")).resolve()
MIB = 1 << 20
# NVIDIA's libraries and programs that run as root make /dev/nvidiactl where it is missing. The node would outlive the test,
# and other tests would take this machine for one with a driver.
WITHOUT_NODES = ["setpriv", "--bounding-set=-mknod"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def client_root(tmp_path_factory):
    """client_root(group) -> where it lies unpacked. CARVE_CLIENTS names a directory that keeps them all."""
    directory = pathlib.Path(os.environ.get("CARVE_CLIENTS") or tmp_path_factory.mktemp("clients"))
    directory.mkdir(parents=True, exist_ok=True)

    def get(group):
        try:
            return unpacked(directory.resolve(), group)
        except Unavailable as reason:
            pytest.skip(f"{group} cannot be had here: {reason}")

    return get


@pytest.fixture(scope="session")
def tools(client_root):
    return Tools(client_root("tools"))


@pytest.fixture(scope="session", params=["550", pytest.param("535", marks=pytest.mark.long)])
def driver(request):
    """The releases of the driver that Debian has."""
    return request.param


@pytest.fixture(scope="session")
def smi(client_root, driver):
    """The nvidia-smi of that release."""
    return client_root(f"nvidia-smi-{driver}") / "usr/lib/nvidia/current/nvidia-smi"


class Host:
    """A simulated host that stays up until closed."""

    def __init__(self, spec, driver):
        self.process = subprocess.Popen(
            [BUILD / "carve", "sim", "--gpus", spec, "--driver", driver, "--",
             "sh", "-c", "env -0; echo; exec cat"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={k: v for k, v in os.environ.items() if not k.startswith(("CARVE_", "SIMGPU_", "CUDA_", "LD_"))})
        line = self.process.stdout.readline().decode()
        self.env = dict(e.split("=", 1) for e in line.rstrip("\n").split("\0") if e)
        self.holders = []

    def run(self, *argv):
        return subprocess.run([*WITHOUT_NODES, *(str(a) for a in argv)], env=self.env, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    def out(self, *argv):
        done = self.run(*argv)
        assert done.returncode == 0, (argv, done.returncode, done.stdout, done.stderr)
        return done.stdout

    def hold(self, mib, device=0):
        """Another process takes memory on the device and keeps it; its PID."""
        holder = subprocess.Popen([BUILD / "tests" / "programs" / "sim_client", "cuda"], env=self.env,
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.holders.append(holder)
        pid = int(holder.stdout.readline().split()[1])
        holder.stdin.write(f"reserve {device} 0 {mib * MIB}\n")
        holder.stdin.flush()
        assert holder.stdout.readline().split()[0] == "ok"
        return pid

    def close(self):
        for holder in self.holders:
            holder.kill()
            holder.wait()
        self.process.stdin.close()
        self.process.wait(10)


@pytest.fixture
def host():
    """host(spec, driver="550") -> Host; closed after the test."""
    hosts = []

    def start(spec="h100-80gb", driver="550"):
        hosts.append(Host(spec, driver))
        return hosts[-1]

    yield start
    for h in hosts:
        h.close()
