"""Device nodes of containers: those of the slice's GPU, and of a MIG instance the capabilities of that one alone."""
import json

import pytest

from conftest import rest_long, wait_until
from mig_hands import carve as carve_command, instances
from nvidia_module import of_instance, with_module
from podman_host import CARVE, storage  # noqa: F401: fixtures

LIST = "ls /dev | grep nvidia; ls /dev/nvidia-caps"


@pytest.fixture
def podman(storage, make_host):
    storage.host = make_host("h100-80gb+mig,h100-80gb")
    carve_command(storage.host, "node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "0")
    yield storage
    storage.clean()


@pytest.fixture
def found(podman):
    """Two sessions, each with an instance of its own: a list of (ID, instance)."""
    holders = [podman.host.popen([CARVE, "run", "--ephemeral", "--mig-profile", "1g.10gb", "--", "sleep", "1000"]) for _ in range(2)]
    wait_until(lambda: len(instances(podman.host, "busy")) == 2)
    pairs = [(instance["session"], instance) for instance in instances(podman.host, "busy")]
    assert len({instance["gpu_instance"] for _, instance in pairs}) == 2
    yield pairs
    for holder in holders:
        holder.kill()
        holder.wait()


@pytest.fixture
def module(podman, found):
    return with_module(podman.host.carve_json("gpu", "list"), [instance for _, instance in found])


def test_a_session_says_where_its_device_nodes_are(podman, found):
    address = podman.host.carve_json("gpu", "list")[0]["pci_bus_id"]
    for id, instance in found:
        gpu, = podman.host.carve_json("session", "show", id)["gpus"]
        for key in ("gpu_instance", "compute_instance"):
            assert gpu[key] == instance[key]
        assert gpu["pci_bus_id"] == address
    gpu, = podman.host.carve_json("session", "request", "--name", "front", "--vram", "2", "--gpu-ids", "1")["gpus"]
    assert "gpu_instance" not in gpu and gpu["pci_bus_id"] not in ("", address)


@pytest.mark.parametrize("way", rest_long(["hook", "command"]))
def test_a_container_has_the_capabilities_of_its_own_instance_alone(podman, found, module, tmp_path, way):
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path).returncode == 0
    for id, instance in found:
        options = {"command": [CARVE, "podman", "run", "--session", id],
                   "hook": ["podman", "--hooks-dir", tmp_path, "run", "--annotation", f"carve.session={id}"]}[way]
        done = podman(*module, *options, "--rm", podman.IMAGE, "sh", "-c", LIST)
        lines = done.stdout.split()
        assert "nvidiactl" in lines and "nvidia3" in lines and "nvidia4" not in lines, (done.stdout, done.stderr)
        assert lines[-2:] == of_instance(instance) and len([line for line in lines if "cap" in line]) == 3, done.stdout


@pytest.mark.long
def test_a_device_of_cdi_has_the_capabilities_of_its_instance(podman, found, module, tmp_path):
    for id, instance in found:
        done = podman(*module, CARVE, "cdi", "generate", "--cdi-dir", tmp_path, id)
        assert done.returncode == 0, done.stderr
        spec = json.loads((tmp_path / f"carve.dev-slice_{id}.json").read_text())
        paths = [node["path"] for node in spec["devices"][0]["containerEdits"]["deviceNodes"]]
        assert paths == ["/dev/nvidiactl", "/dev/nvidia3", *(f"/dev/nvidia-caps/{name}" for name in of_instance(instance))]


@pytest.mark.long
def test_a_one_off_slice_of_a_profile_has_its_capabilities(podman, found, module):
    """Its instance is one that another session had: idle, and given again."""
    id, instance = found[0]
    podman.host.carve("session", "release", id, "--force")
    wait_until(lambda: instances(podman.host, "idle"))
    done = podman(*module, CARVE, "podman", "run", "--rm", "--mig-profile", "1g.10gb", podman.IMAGE, "sh", "-c", LIST)
    assert done.stdout.split()[-2:] == of_instance(instance), (done.stdout, done.stderr)
