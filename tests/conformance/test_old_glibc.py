"""The front under the C library of the previous Debian release (2.31), as in containers of that age."""
import json
import subprocess

import pytest

from .conftest import BUILD


@pytest.mark.parametrize("probe", [pytest.param("libfront_probe.so", marks=pytest.mark.long), "libfront_probe_linked.so"], ids=["opened", "linked"])
def test_slice_holds_under_an_old_glibc(client_root, probe):
    old_root = client_root("old-glibc")
    libraries = old_root / "lib/x86_64-linux-gnu"
    fronts = [BUILD / "src/front" / name for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    preload = ":".join(map(str, [*fronts, BUILD / "tests/programs" / probe]))
    # The stand-in for the daemon is of today's system: only what it runs gets the preloads.
    done = subprocess.run(
        [BUILD / "tests/programs/front_host", "--", libraries / "ld-linux-x86-64.so.2", "--library-path", libraries,
         "--preload", preload, old_root / "usr/bin/getconf", "GNU_LIBC_VERSION"],
        env={"CARVE_DRIVER_CUDA": str(BUILD / "bench/null_driver/libcuda.so.1")},
        capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "glibc 2.31\n"
    said, books = done.stderr.splitlines()
    assert said == "the slice holds"
    assert json.loads(books)["refused"] == 1
