"""The front under the C library of the previous Debian release (2.31), as in containers of that age."""
import json
import os
import pathlib
import subprocess

import pytest

from .clients import Unavailable, apt, debian_mirror

BUILD = pathlib.Path(os.environ.get("CARVE_BUILD",
                                    pathlib.Path(__file__).resolve().parents[2] / "build")).resolve()
SUITE = "bullseye"


def download(directory):
    mirror, _ = debian_mirror(directory)
    for folder in "lists/partial", "cache/archives/partial", "packages":
        (directory / folder).mkdir(parents=True)
    (directory / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {SUITE} main\n")
    own = ["-o", f"Dir::Etc::SourceList={directory}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State::Lists={directory}/lists", "-o", f"Dir::Cache={directory}/cache",
           "-o", "Dir::State::Status=/dev/null"]
    apt("update", *own, cwd=directory)
    apt("download", *own, "libc6", "libc-bin", cwd=directory / "packages")
    for package in (directory / "packages").glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, directory / "root"], check=True)


@pytest.fixture(scope="module")
def old_root(tmp_path_factory):
    kept = os.environ.get("CARVE_OLD_GLIBC")
    if kept:
        return pathlib.Path(kept)
    directory = tmp_path_factory.mktemp("old-glibc")
    try:
        download(directory)
    except Unavailable as reason:
        pytest.skip(f"{SUITE}'s C library cannot be had here: {reason}")
    return directory / "root"


def test_slice_holds_under_an_old_glibc(old_root):
    libraries = old_root / "lib/x86_64-linux-gnu"
    fronts = [BUILD / "src/front" / name for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    preload = ":".join(map(str, [*fronts, BUILD / "tests/programs/libfront_probe.so"]))
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
