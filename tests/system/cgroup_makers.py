"""cgroups of tests: directories in this machine's cgroup v2, and processes in them."""
import os
import time
import uuid

import pytest

from cgroups import MOUNT


class Cgroups:
    """Makes cgroups, and takes away what is left of them."""

    def __init__(self):
        self.made = []

    def make(self, above=None):
        path = (above or MOUNT) / f"carve-test-{uuid.uuid4().hex[:12]}"
        path.mkdir()
        self.made.append(path)
        return path

    def close(self):
        for path in reversed(self.made):
            for _ in range(500):
                for below in sorted(path.rglob("*"), reverse=True):
                    if below.is_dir():
                        try:
                            below.rmdir()
                        except OSError:
                            pass
                try:
                    path.rmdir()
                except FileNotFoundError:
                    pass
                except OSError:  # a process in it is just ending
                    time.sleep(0.02)
                    continue
                break


@pytest.fixture
def cgroups():
    if not MOUNT:
        pytest.skip("this machine has no cgroup v2")
    if os.geteuid() != 0 or not os.access(MOUNT, os.W_OK):
        pytest.skip("cgroups cannot be made here: that takes root, and a cgroup v2 that is not read-only")
    all_ = Cgroups()
    try:
        all_.make()
    except OSError as error:
        pytest.skip(f"cgroups cannot be made here: {error}")
    yield all_
    all_.close()


def within(path, *argv):
    """The words of a command that runs another one in a cgroup."""
    return ["/bin/sh", "-c", f'echo $$ > {path}/cgroup.procs && exec "$@"', "sh", *map(str, argv)]
