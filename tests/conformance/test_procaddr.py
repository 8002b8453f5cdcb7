"""cuGetProcAddress of the simulated libcuda against the real one of the same release, which needs no GPU for it."""
import json
import os
import pathlib
import subprocess

import pytest

from .conftest import BUILD, ROOT

SYMBOLS = ROOT / "src/front/cuda/symbol-classes.tsv"
SCRIPT = pathlib.Path(__file__).with_name("procaddr_answers.py")


@pytest.fixture(scope="module")
def real(client_root, driver):
    return client_root(f"libcuda-{driver}") / "usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1"


def answers(library, *prefix):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CARVE_", "SIMGPU_", "CUDA_", "LD_"))}
    done = subprocess.run([*prefix, "/usr/bin/python3", SCRIPT, library, SYMBOLS], env=env, text=True, timeout=60,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_answers(real, driver):
    expected = answers(real)
    assert len(expected) > 4000 and ["cuMemAlloc_v2"] == [a[2] for v, a in expected["cuMemAlloc 0"] if v == 3020]
    got = answers(BUILD / "sim/libcuda.so.1", BUILD / "sim/simhost", "run", "--gpus", "t4", "--driver",
                  driver, "--")
    assert {k: (v, got[k]) for k, v in expected.items() if got[k] != v} == {}


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True, capture_output=True).stdout
    words = [line.split() for line in out.splitlines()]
    return {w[2].split("@")[0] for w in words if len(w) == 3 and w[1] == "T"}


def test_exports(real):
    functions = {name for name in exported(real) if not name.startswith("cudbg")}
    assert len(functions) > 500
    assert functions - exported(BUILD / "sim/libcuda.so.1") == set()
