"""Cgroups: where they are, and whether one can be made here."""
import os
import pathlib

MOUNT = next((p for p in (pathlib.Path("/sys/fs/cgroup"), pathlib.Path("/sys/fs/cgroup/unified")) if (p / "cgroup.controllers").exists()),
             None)


def cgroup_of(pid):
    line, = [line for line in pathlib.Path(f"/proc/{pid}/cgroup").read_text().splitlines() if line.startswith("0::")]
    return MOUNT / line[4:]


def pids_cgroup():
    """The cgroup of version 1 with the controller pids that this process is in; None: there is none."""
    for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "pids":
            directory = pathlib.Path(f"/sys/fs/cgroup/pids{path}")
            return directory if directory.is_dir() and os.access(directory, os.W_OK) else None
    return None


def tasks_can_be_limited():
    """Of jobs whose launcher is in this process's cgroup: by version 1, or because that is the root of version 2."""
    if pids_cgroup():
        return True
    mine = cgroup_of("self") if MOUNT else None
    return bool(mine and not (mine / "cgroup.type").exists() and "pids" in (mine / "cgroup.controllers").read_text().split())


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
