"""nvidia-smi, gpustat and nvtop, unmodified, inside a slice: its size, its use, its processes, its one GPU."""
import json
import re
import subprocess

import pytest

from .conftest import BUILD
from .test_other_clients import screen

GIB = 1 << 30


class Slice:
    """On a host with two GPUs: a session of 8 GiB with a process in it, and a stranger's slice beside it."""

    def __init__(self, host):
        self.host = host
        self.env = dict(host.env, CARVE_RUNTIME_DIR=host.env["SIMGPU_HOST"] + "/carve")
        self.holders = []
        self.carve("session", "request", "--gpu-memory", "8Gi")
        self.pid = self.hold("run")
        self.stranger = self.hold("run", "--ephemeral", "--vram", "2", "--gpu-ids", "0")

    def carve(self, *argv):
        done = subprocess.run([BUILD / "carve", *argv], env=self.env, text=True, timeout=60,
                              stdin=subprocess.DEVNULL, capture_output=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def run(self, *argv):
        return self.carve("run", "--", *map(str, argv))

    def hold(self, *run):
        """A process that holds 1 GiB in a slice; its PID."""
        code = ("import ctypes, os\ncuda = ctypes.CDLL('libcuda.so.1')\nx = ctypes.c_void_p()\n"
                "assert cuda.cuInit(0) == 0 and cuda.cuCtxCreate_v2(ctypes.byref(x), 0, 0) == 0\n"
                f"assert cuda.cuMemAlloc_v2(ctypes.byref(x), ctypes.c_size_t({GIB})) == 0\n"
                "print(os.getpid(), flush=True)\ninput()")
        holder = subprocess.Popen([BUILD / "carve", *run, "--", "/usr/bin/python3", "-c", code], env=self.env,
                                  text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.holders.append(holder)
        return int(holder.stdout.readline())

    def close(self):
        for holder in self.holders:
            holder.communicate("\n", timeout=60)


@pytest.fixture
def inside(host):
    s = Slice(host("h100-80gb:2"))
    yield s
    s.close()


def test_nvidia_smi(smi, inside):
    screen_text = inside.run(smi)
    used = int(re.search(r"(\d+)MiB / +8192MiB", screen_text).group(1))
    assert used == 1024 + 520, "what it allocated, and its context"
    assert screen_text.count("H100 80GB") == 1
    assert str(inside.pid) in screen_text and str(inside.stranger) not in screen_text
    assert inside.run(smi, "-L").count("GPU-") == 1
    apps = inside.run(smi, "--query-compute-apps=pid,used_memory", "--format=csv,noheader")
    assert apps == f"{inside.pid}, {used} MiB\n"
    assert inside.run(smi, "--query-gpu=memory.total,memory.used,memory.free",
                      "--format=csv,noheader,nounits") == f"8192, {used}, {8192 - used}\n"


def test_gpustat(tools, inside):
    gpus = json.loads(inside.run(*tools.gpustat, "--json"))["gpus"]
    assert [(g["memory.total"], g["memory.used"]) for g in gpus] == [(8192, 1544)]
    assert [(p["pid"], p["gpu_memory_usage"]) for p in gpus[0]["processes"]] == [(inside.pid, 1544)]


def test_nvtop(tools, inside, tmp_path):
    text, status = screen([BUILD / "carve", "run", "--", tools.nvtop, "-d", "2"],
                          dict(inside.env, HOME=str(tmp_path)), 10, str(inside.pid).encode())
    assert status == 0, text
    assert re.search(r"8\.000\s*Gi|8192\s*Mi", text), text
    assert str(inside.pid) in text and str(inside.stranger) not in text
