"""CRI-O: its containers have carve's hook, or carve's hook stands in front of its runtime, as docs/admin/cluster.md says."""
import json
import os
import tempfile

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cri import HAS_CRIO, Crio
from podman_host import BUSYBOX
from test_cgroup2 import documented_runtime


@pytest.fixture(params=["hook", "runtime"])
def crio(request, make_host):
    if os.geteuid() != 0 or not HAS_CRIO or not BUSYBOX:
        pytest.skip("needs root, podman, conmon, runc, busybox, and crio and pinns in CARVE_TEST_CONTROL_PLANE")
    host = make_host("h100-80gb")
    with tempfile.TemporaryDirectory(prefix="cr-", ignore_cleanup_errors=True) as directory:
        hooks = f"{directory}/hooks"
        assert host.carve("hook", "install", "--hooks-dir", hooks).returncode == 0
        # As `carve hook install` does where CRI-O is installed.
        os.unlink(f"{hooks}/50-carve-devices.json")
        runtime = documented_runtime(directory, hooks) if request.param == "runtime" else None
        made = Crio(directory, hooks, {"carve.vram": "2GiB"}, runtime)
        made.host = host
        try:
            yield made
        finally:
            made.close()


def simulated(crio):
    return {"SIMGPU_HOST": crio.host.env["SIMGPU_HOST"]}


def sizes(crio):
    return [s["vram_bytes"] >> 20 for s in crio.host.carve_json("session", "list")]


@pytest.mark.needs_sim("knows the driver's libraries")
def test_a_label_of_the_image_limits_a_container_of_a_pod(crio):
    # A pod's label is not its image's, and a pod's first container, which holds its namespaces, gets no slice.
    pod = crio.pod("labelled", {"carve.vram": "1GiB"})
    assert sizes(crio) == []
    assert "this GPU has 2048 MiB" in crio.container(pod, env=simulated(crio))


@pytest.mark.needs_sim("knows the driver's libraries")
def test_an_annotation_of_a_pod_makes_slices_for_its_containers_alone(crio):
    pod = crio.pod("annotated", annotations={"carve.vram": "1GiB"})
    assert sizes(crio) == []
    assert "this GPU has 1024 MiB" in crio.container(pod, env=simulated(crio))
    all_of_them = json.loads(crio.host.carve("session", "list", "--all", "--json").stdout)
    assert [s["vram_bytes"] >> 20 for s in all_of_them] == [1024]


@pytest.mark.needs_sim("knows the driver's libraries")
def test_an_annotation_of_cdi_gives_a_container_the_slice(crio):
    session = crio.host.carve_json("session", "request", "--vram", "3")["id"]
    for argv in (), ("--vram", "2"):
        done = crio.host.carve("cdi", "generate", "--cdi-dir", crio.dir / "cdi", *argv)
        assert done.returncode == 0, done.stderr
    for name, device, mib in ("session", session, 3072), ("size", "2gib", 2048):
        said = crio.container(crio.pod(name), env=simulated(crio), annotations={"cdi.k8s.io/carve_0": f"carve.dev/slice={device}"})
        assert f"this GPU has {mib} MiB" in said, said
