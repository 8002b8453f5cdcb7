"""The simulated libcuda against the real one of the same release: what both answer without a GPU."""
import json
import os
import pathlib
import subprocess

import pytest

from .conftest import BUILD, ROOT, WITHOUT_NODES

SYMBOLS = ROOT / "src/front/cuda/symbol-classes.tsv"
NOT_INITIALIZED = 3
SCRIPT = pathlib.Path(__file__).with_name("libcuda_answers.py")


@pytest.fixture(scope="module", params=["550", pytest.param("535", marks=pytest.mark.long)])
def driver(request):
    """The releases of the driver that Debian has."""
    return request.param


@pytest.fixture(scope="module")
def real(client_root, driver):
    return client_root(f"libcuda-{driver}") / "usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1"


def simulated(driver):
    """The library of that release; the default's lies beside simhost."""
    release = BUILD / "sim/driver" / driver / "libcuda.so.1"
    return release if release.exists() else BUILD / "sim/libcuda.so.1"


def answers(library, *prefix):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("CARVE_", "SIMGPU_", "CUDA_", "LD_"))}
    done = subprocess.run([*WITHOUT_NODES, *prefix, "/usr/bin/python3", SCRIPT, library, SYMBOLS], env=env, text=True, timeout=120,
                          capture_output=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def both(real, driver):
    """What the real one answers, and the simulated one as that driver."""
    return answers(real), answers(simulated(driver), BUILD / "sim/simhost", "run", "--gpus", "t4", "--driver", driver, "--")


def differing(theirs, ours):
    return {k: (theirs.get(k), ours.get(k)) for k in theirs | ours if theirs.get(k) != ours.get(k)}


def test_get_proc_address(both):
    theirs, ours = (b["procaddr"] for b in both)
    assert len(theirs) > 4000 and [3020, [0, 0, "cuMemAlloc_v2"]] in theirs["cuMemAlloc 0"]
    assert differing(theirs, ours) == {}


def test_names_of_errors(both):
    theirs, ours = (b["errors"] for b in both)
    assert theirs["2"] == [0, "CUDA_ERROR_OUT_OF_MEMORY"]
    assert differing(theirs, ours) == {}


def test_version(both):
    theirs, ours = (b["version"] for b in both)
    assert theirs == ours


def test_before_init(both):
    """All arguments are zero. A call that looks at those first answers as it likes; but nothing of ours may crash."""
    theirs, ours = (b["early"] for b in both)
    uninitialized = {name for name, result in theirs.items() if result == NOT_INITIALIZED}
    assert len(uninitialized) > 300
    assert {name: ours[name] for name in uninitialized if ours[name] != NOT_INITIALIZED} == {}
    assert [name for name, result in ours.items() if result == -1] == []


def exported(library):
    out = subprocess.run(["nm", "-D", "--defined-only", library], text=True, check=True, capture_output=True).stdout
    words = [line.split() for line in out.splitlines()]
    return {w[2].split("@")[0] for w in words if len(w) == 3 and w[1] == "T"}


def test_exports(real, driver):
    functions = {name for name in exported(real) if not name.startswith("cudbg")}
    assert len(functions) > 500
    assert functions == exported(simulated(driver))
