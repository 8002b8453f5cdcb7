"""nvtop, gpustat and Python's pynvml as Debian ships them, on simulated hosts."""
import json
import os
import pty
import re
import select
import time


def screen(argv, env, seconds, until):
    """What a program writes to a terminal until the text comes, at most that long; then it gets a q."""
    env = dict(env, TERM="xterm", LINES="40", COLUMNS="160", HOME=env.get("HOME", "/"))
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(argv[0], [str(a) for a in argv], env)
    seen, end = b"", time.monotonic() + seconds
    while until not in seen and time.monotonic() < end:
        if select.select([fd], [], [], 0.1)[0]:
            try:
                seen += os.read(fd, 65536)
            except OSError:
                break
    try:
        os.write(fd, b"q")
    except OSError:
        pass
    for _ in range(50):
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            break
        if select.select([fd], [], [], 0.1)[0]:
            try:
                os.read(fd, 65536)
            except OSError:
                pass
    else:
        os.kill(pid, 9)
        _, status = os.waitpid(pid, 0)
    os.close(fd)
    return re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]|\x1b[()][A-Z0-9]", b" ", seen).decode(errors="replace"), status


def test_nvtop(tools, host, tmp_path):
    h = host("h100-80gb:2")
    pid = h.hold(8000)
    text, status = screen([tools.nvtop, "-d", "2"], dict(h.env, HOME=str(tmp_path)), 10, str(pid).encode())
    assert status == 0, text
    assert "NVIDIA H100 80GB HBM3" in text
    assert re.search(r"8000\s*MiB|7\.8\d*Gi", text), text


def test_gpustat(tools, host):
    h = host("h100-80gb,t4")
    pid = h.hold(600, 1)
    answer = json.loads(h.out(*tools.gpustat, "--json"))
    first, second = answer["gpus"]
    assert (first["name"], first["memory.total"], first["memory.used"]) == ("NVIDIA H100 80GB HBM3", 81559, 551)
    assert (second["name"], second["memory.total"]) == ("Tesla T4", 15360)
    assert [(p["pid"], p["gpu_memory_usage"]) for p in second["processes"]] == [(pid, 600)]
    assert "sim_client" in h.out(*tools.gpustat, "--show-cmd", "--no-color")


def test_pynvml(tools, smi, host):
    h = host("a100-40gb+mig,t4")
    h.out(smi, "mig", "-i", "0", "-cgi", "19", "-C")
    script = """
import json
from pynvml import *
nvmlInit()
gpus = [nvmlDeviceGetHandleByIndex(i) for i in range(nvmlDeviceGetCount())]
mig = nvmlDeviceGetMigDeviceHandleByIndex(gpus[0], 0)
attributes = nvmlDeviceGetAttributes(mig)
try:
    nvmlDeviceGetFanSpeed(gpus[1])
    fan = "spins"
except NVMLError_NotSupported as error:
    fan = str(error)
print(json.dumps({
    "names": [nvmlDeviceGetName(g) for g in gpus],
    "free": [nvmlDeviceGetMemoryInfo(g).free >> 20 for g in gpus],
    "mig": [nvmlDeviceGetName(mig), attributes.multiprocessorCount, attributes.memorySizeMB],
    "mode": nvmlDeviceGetMigMode(gpus[0]),
    "capability": nvmlDeviceGetCudaComputeCapability(gpus[1]),
    "fan": fan}))
nvmlShutdown()
"""
    answer = json.loads(h.out(*tools.python, "-c", script))
    assert answer == {"names": ["NVIDIA A100-SXM4-40GB", "Tesla T4"], "free": [40960 - 571, 15360 - 258],
                      "mig": ["NVIDIA A100-SXM4-40GB MIG 1g.5gb", 14, 4864], "mode": [1, 1], "capability": [7, 5],
                      "fan": "Not Supported"}
