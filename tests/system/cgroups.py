"""Cgroups of version 2: where they are, and whether one can be made here."""
import os
import pathlib

MOUNT = next((p for p in (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/unified")) if (p / "cgroup.controllers").exists()),
             None)


def cgroup_of(pid):
    line, = [line for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")]
    return MOUNT / line[4:]


def cgroups_can_be_made():
    """One that can be killed at once."""
    if not MOUNT or not os.access(cgroup_of("self"), os.W_OK):
        return False
    probe = cgroup_of("self") / f"carve-probe-{os.getpid()}"
    try:
        probe.mkdir()
    except OSError:
        return False
    kill = (probe / "cgroup.kill").exists()
    probe.rmdir()
    return kill
