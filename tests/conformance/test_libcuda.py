"""The simulated libcuda beside the real one (without a GPU it still answers cuGetProcAddress), and under PyCUDA."""
import json
import pathlib
import re
import subprocess

import pytest

from .clients import Unavailable, apt, debian_mirror
from .conftest import BUILD

ROOT = pathlib.Path(__file__).resolve().parents[2]
DRIVER = ["libcuda1"]
PYCUDA = ["python3-pycuda"]
PYCUDA_MAIN = ["python3-pytools", "python3-numpy", "python3-decorator", "python3-appdirs", "python3-mako",
               "python3-platformdirs", "python3-typing-extensions", "libboost-python1.74.0",
               "libboost-thread1.74.0"]

PYCUDA_PROGRAM = """
import sys
import numpy as np
import pycuda.driver as cuda

cuda.init()
context = cuda.Device(0).make_context()
try:
    add = cuda.module_from_buffer(open(sys.argv[1], "rb").read()).get_function("vector_add")
    a, b = (np.random.randn(1000).astype(np.float32) for _ in range(2))
    c = np.zeros_like(a)
    stream, start, end = cuda.Stream(), cuda.Event(), cuda.Event()
    da, db, dc = (cuda.mem_alloc(x.nbytes) for x in (a, b, c))
    cuda.memcpy_htod(da, a)
    cuda.memcpy_htod_async(db, b, stream)
    start.record(stream)
    add(da, db, dc, np.int32(1000), block=(256, 1, 1), grid=(4, 1, 1), stream=stream)
    end.record(stream)
    end.synchronize()
    cuda.memcpy_dtoh(c, dc)
    assert (c == a + b).all() and start.time_till(end) > 0
    try:
        cuda.mem_alloc(1 << 40)
    except cuda.MemoryError:
        print("exact, and out of memory where it should be")
    da.free(), db.free(), dc.free()
    del stream, start, end, add
finally:
    context.pop()
    context.detach()
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """A directory with the packages unpacked, of the machine's own Debian."""
    directory = tmp_path_factory.mktemp("packages")
    (directory / "debs").mkdir()
    (directory / "lists" / "partial").mkdir(parents=True)
    (directory / "cache" / "archives" / "partial").mkdir(parents=True)
    own = ["-o", f"Dir::Etc::SourceList={directory}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State::Lists={directory}/lists", "-o", f"Dir::Cache={directory}/cache"]
    try:
        mirror, suite = debian_mirror(directory)
        (directory / "sources.list").write_text(
            f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} "
            "contrib non-free\n")
        apt("update", *own, cwd=directory)
        apt("download", *own, *DRIVER, *PYCUDA, cwd=directory / "debs")
        apt("download", *PYCUDA_MAIN, cwd=directory / "debs")
    except Unavailable as error:
        pytest.skip(f"no packages: {error}")
    for package in (directory / "debs").glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, directory / "root"], check=True)
    return directory


def ask(argv):
    done = subprocess.run([str(a) for a in argv], stdout=subprocess.PIPE, text=True, timeout=120, check=True)
    return json.loads(done.stdout)


def test_every_answer_of_get_proc_address(packages):
    script = [ROOT / "tests/conformance/procaddr.py"]
    table = ROOT / "src/front/cuda/symbol-classes.tsv"
    real = next((packages / "root").rglob("libcuda.so.[0-9]*.*"))
    branch = re.search(r"libcuda\.so\.(\d+)", real.name)[1]
    theirs = ask(["/usr/bin/python3", *script, real, table])
    ours = ask([BUILD / "sim/simhost", "run", "--gpus", "t4", "--driver", branch, "--",
                "/usr/bin/python3", *script, "libcuda.so.1", table, "init"])
    assert len(ours) > 50000
    differing = {k: (theirs[k], ours[k]) for k in theirs if theirs[k] != ours[k]}
    assert not differing


def test_pycuda(packages):
    root = packages / "root"
    done = subprocess.run(
        [BUILD / "sim/simhost", "run", "--gpus", "h100-80gb",
         "--env", f"PYTHONPATH={root}/usr/lib/python3/dist-packages",
         "--env", f"LD_LIBRARY_PATH={BUILD}/sim:{root}/usr/lib/x86_64-linux-gnu", "--",
         "/usr/bin/python3", "-c", PYCUDA_PROGRAM, BUILD / "tests/kernels/vector_add.ptx"],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    assert "exact, and out of memory where it should be" in done.stdout
