"""Device nodes and their rules stay while a container runs: `systemctl daemon-reload` sets units up anew, and a node may be made anew."""
import json
import pathlib

import pytest

from conftest import rest_long
from nvidia_module import with_module
from podman_host import CARVE, storage  # noqa: F401: fixtures

# There is no driver behind a node: one that may be opened says so.
OPENED, DENIED = "No such device or address", "Operation not permitted"
NODES = {"nvidiactl": 255, "nvidia3": 3, "nvidia4": 4}
OF_THE_SLICE = [True, True, False]
LOOK = "; ".join(f"[ -e /dev/{name} ] || busybox mknod /dev/{name} c 195 {minor}; cat /dev/{name} 2>&1" for name, minor in NODES.items())
DEVICES = pathlib.Path("/sys/fs/cgroup/devices")


@pytest.fixture
def podman(storage, make_host):
    if not DEVICES.is_dir():
        pytest.skip("needs version 1 of cgroups: no rule of version 2 can be read or written by hand")
    storage.host = make_host("h100-80gb:2")
    yield storage
    storage.clean()


def command(podman, way, directory):
    """The words of a container whose slice is on GPU 0, in each way."""
    host = podman.host
    if way == "command":
        return [CARVE, "podman", "run", "--vram", "2", "--gpu-ids", "0"]
    if way == "hook":
        assert host.carve("hook", "install", "--hooks-dir", directory).returncode == 0
        return ["podman", "--hooks-dir", directory, "run", "--annotation", "carve.vram=2", "--annotation", "carve.gpu-ids=0"]
    session = host.carve_json("session", "request", "--vram", "2", "--gpu-ids", "0")["id"]
    return [CARVE, "podman", "run", "--session", session]


def opened(podman):
    """Of the common node, the slice's GPU and another: whether the container may open it."""
    done = podman("podman", "exec", "one", "sh", "-c", LOOK)
    lines = done.stdout.splitlines()
    assert len(lines) == 3 and all(OPENED in line or DENIED in line for line in lines), done.stdout + done.stderr
    return [OPENED in line for line in lines]


def told(podman, container, rule):
    """runc 1.1.5 tells systemd of a node by its name in /dev/char, and only where this is there."""
    names = podman("nsenter", "-t", container["State"]["ConmonPid"], "-m", "ls", "/dev/char").stdout.split()
    return not rule["allow"] or "minor" not in rule or f"{rule['major']}:{rule['minor']}" in names


def reload(podman, container):
    """As systemd does: all that a scope may open is taken, and what the runtime told systemd of it is given again."""
    path, = [line.split(":")[2] for line in pathlib.Path(f"/proc/{container['State']['Pid']}/cgroup").read_text().splitlines() if ":devices:" in line]
    cgroup = DEVICES / path.lstrip("/")
    for rule in json.loads(pathlib.Path(container["OCIConfigPath"]).read_text())["linux"]["resources"]["devices"]:
        if not told(podman, container, rule):
            continue
        numbers = ":".join(str(rule.get(key, "*")) for key in ("major", "minor"))
        (cgroup / f"devices.{'allow' if rule['allow'] else 'deny'}").write_text(f"{rule.get('type') or 'a'} {numbers} {rule['access']}")


@pytest.mark.parametrize("way", rest_long(["hook", "command", "session"]))
def test_a_container_keeps_its_gpu_over_a_reload_of_systemd_and_nodes_made_anew(podman, tmp_path, way):
    done = podman(*with_module(podman.host.carve_json("gpu", "list")), *command(podman, way, tmp_path), "--detach", "--name", "one",
                  "--cap-add=MKNOD", podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    container, = json.loads(podman("podman", "inspect", "one").stdout)
    assert opened(podman) == OF_THE_SLICE
    reload(podman, container)
    assert opened(podman) == OF_THE_SLICE
    # The runtime's parent process has the mounts that the container was made in.
    anew = "; ".join(f"rm /dev/{name} && mknod -m 666 /dev/{name} c 195 {minor}" for name, minor in NODES.items())
    assert podman("nsenter", "-t", container["State"]["ConmonPid"], "-m", "sh", "-c", anew).returncode == 0
    assert opened(podman) == OF_THE_SLICE
