"""PyCUDA as Debian ships it: modules from PTX, memory, streams and events; on the whole GPU, and in a slice."""
import pathlib

import pytest

from .conftest import BUILD, MIB

CHECKS = pathlib.Path(__file__).with_name("pycuda_checks.py")
NAME = "NVIDIA H100 80GB HBM3"


@pytest.fixture(scope="module")
def pycuda(client_root):
    """pycuda(host) -> the command line that checks there; the GPU's size follows."""
    root = client_root("pycuda")
    libraries = root / "usr/lib/x86_64-linux-gnu"
    places = [libraries, libraries / "blas", libraries / "lapack"]

    def command(h):
        h.env["LD_LIBRARY_PATH"] = ":".join([h.env["LD_LIBRARY_PATH"], *map(str, places)])
        return ["/usr/bin/env", f"PYTHONPATH={root}/usr/lib/python3/dist-packages", "/usr/bin/python3", CHECKS,
                BUILD / "tests/kernels/vector_add.ptx"]

    return command


@pytest.mark.parametrize("played", ["550", *(pytest.param(release, marks=pytest.mark.long) for release in ("535", "580"))])
def test_on_a_gpu(pycuda, host, played):
    h = host("h100-80gb", played)
    assert h.out(*pycuda(h), (81559 - 551) * MIB) == f"exact on {NAME}\n"


def test_in_a_slice(pycuda, host):
    h = host("t4,h100-80gb")
    h.hold(600, 1)
    said = h.out(BUILD / "carve", "run", "--gpu-memory", "8Gi", "--gpu-ids", "1", "--", *pycuda(h), 8192 * MIB)
    assert said == f"exact on {NAME}\n"
