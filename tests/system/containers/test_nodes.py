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


def moved(host, id):
    """Gives the session another instance, and has another session take the one that it had. Returns the other session's instance."""
    before, = [i for i in instances(host, "busy") if i["session"] == id]
    carve_command(host, "session", "resize", id, "--vram", "20")
    other = host.popen([CARVE, "run", "--ephemeral", "--mig-profile", before["profile"], "--", "sleep", "1000"])
    return wait_until(lambda: next((i for i in instances(host, "busy") if i["session"] not in (None, id)
                                    and i["gpu_instance"] == before["gpu_instance"]), None)), other


@pytest.fixture
def kept(podman):
    """A session that is kept while nobody is in it, with its instance."""
    id = podman.host.carve_json("session", "request", "--mig-profile", "1g.10gb")["id"]
    instance, = [i for i in instances(podman.host, "busy") if i["session"] == id]
    return id, instance


def test_a_session_whose_container_has_just_ended_has_another_size_at_once(podman, kept):
    """The command that looked after the container may live for a moment longer."""
    id, _ = kept
    for size in ("20", "10", "20", "10"):
        done = podman(CARVE, "podman", "run", "--session", id, podman.IMAGE, "true")
        assert done.returncode == 0, done.stderr
        carve_command(podman.host, "session", "resize", id, "--vram", size)


def every_node(podman):
    """The module's files with the nodes of all instances that the GPU can have."""
    made = [{"gpu_instance": i, "compute_instance": 0} for i in range(15)]
    return with_module(podman.host.carve_json("gpu", "list"), made)


@pytest.mark.parametrize("again", [False, True], ids=["same spec", "new spec"])
def test_a_device_of_cdi_whose_session_has_another_instance_now_starts_nothing(podman, kept, tmp_path, again):
    id, instance = kept
    module = every_node(podman)
    specs = tmp_path / "cdi"
    specs.mkdir()
    run = ["run", "--rm", "--device", f"carve.dev/slice={id}", podman.IMAGE, "sh", "-c", LIST]
    generate = [*module, CARVE, "cdi", "generate", "--cdi-dir", specs, id]
    assert podman(*generate).returncode == 0
    done = podman.with_cdi(specs, *run, before=module)
    assert done.stdout.split()[-2:] == of_instance(instance), done
    others, other = moved(podman.host, id)
    if again:
        assert podman(*generate).returncode == 0
    done = podman.with_cdi(specs, *run, before=module)
    if again:
        mine, = [i for i in instances(podman.host, "busy") if i["session"] == id]
        assert done.stdout.split()[-2:] == of_instance(mine), done
        assert set(of_instance(mine)).isdisjoint(of_instance(others))
    else:
        assert done.returncode != 0 and "nvidia" not in done.stdout, done
        assert f"session {id} has changed" in done.stderr and f"carve cdi generate {id}" in done.stderr, done.stderr
    other.kill()
    other.wait()


def test_a_stopped_container_does_not_start_again_after_its_session_moved(podman, kept, tmp_path):
    id, instance = kept
    module = every_node(podman)
    hooks = tmp_path / "hooks"
    assert podman.host.carve("hook", "install", "--hooks-dir", hooks).returncode == 0
    done = podman(*module, CARVE, "podman", "--hooks-dir", hooks, "run", "--session", id, "--name", "moves", podman.IMAGE, "sh", "-c", LIST)
    assert done.stdout.split()[-2:] == of_instance(instance), done
    wait_until(lambda: not podman.host.carve_json("session", "show", id)["command_pids"])
    start = ["podman", "--hooks-dir", hooks, "start", "--attach", "moves"]
    done = podman(*module, *start)
    assert done.returncode == 0 and done.stdout.split()[-2:] == of_instance(instance), done
    wait_until(lambda: not podman.host.carve_json("session", "show", id)["command_pids"])
    _, other = moved(podman.host, id)
    done = podman(*module, *start)
    assert done.returncode != 0 and "nvidia" not in done.stdout and f"session {id} has changed" in done.stderr, done
    # The session's own has ended, and another may have its instance.
    podman.host.carve("session", "release", id)
    done = podman(*module, *start)
    assert done.returncode != 0 and "nvidia" not in done.stdout and "has ended" in done.stderr, done
    other.kill()
    other.wait()


def test_a_program_of_a_container_without_the_hook_has_no_gpu_after_its_session_moved(podman, kept, tmp_path):
    """As with docker, which runs no hook by itself, when a container is started again."""
    id, _ = kept
    assert podman.host.carve("cdi", "generate", "--cdi-dir", tmp_path, id).returncode == 0
    file = tmp_path / f"carve.dev-slice_{id}.json"
    spec = json.loads(file.read_text())
    del spec["devices"][0]["containerEdits"]["hooks"]
    file.write_text(json.dumps(spec))
    run = ["run", "--rm", "--device", f"carve.dev/slice={id}", podman.IMAGE, "hog"]
    done = podman.with_cdi(tmp_path, *run)
    assert done.returncode == 0 and "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done
    wait_until(lambda: not podman.host.carve_json("session", "show", id)["pids"])
    carve_command(podman.host, "session", "resize", id, "--vram", "20")
    done = podman.with_cdi(tmp_path, *run)
    assert done.returncode != 0 and "another GPU or MIG instance now" in done.stdout + done.stderr, done
    # A new spec does not change the file that a container has mounted.
    before = (tmp_path / "carve" / id / "environment").stat().st_ino
    assert podman.host.carve("cdi", "generate", "--cdi-dir", tmp_path, id).returncode == 0
    assert (tmp_path / "carve" / id / "environment").stat().st_ino != before
    assert podman.with_cdi(tmp_path, *run).returncode == 0
