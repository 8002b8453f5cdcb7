"""Small file systems, to be filled."""
import contextlib
import subprocess

import pytest


@contextlib.contextmanager
def disk_of(size, place):
    """A file system of that size (tmpfs's word for it)."""
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=700", "none", place],
                      stderr=subprocess.DEVNULL).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        yield place
    finally:
        subprocess.run(["umount", "-l", place], check=True)


@pytest.fixture
def small_disk(tmp_path):
    with disk_of("3m", tmp_path / "disk") as place:
        yield place


@pytest.fixture
def tiny_disk(tmp_path):
    with disk_of("800k", tmp_path / "disk") as place:
        yield place


def fill(filler):
    with open(filler, "ab", buffering=0) as f, contextlib.suppress(OSError):
        while f.write(b"x" * 4096):
            pass
