"""containerd: the hook asks it for the labels of a container's image, which it hands on in no other way."""
import json
import os
import socket
import subprocess
import tempfile

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from conftest import BUILD
from control_plane import PROGRAMS
from cri import HAS_CONTAINERD, Containerd
from kubelet_node import HAS_KUBELET
from podman_host import BUSYBOX

BUNDLE = "io.containerd.runtime.v2.task/k8s.io/c1"


@pytest.fixture
def containerd(make_host):
    if os.geteuid() != 0 or not HAS_CONTAINERD or not BUSYBOX:
        pytest.skip("needs root, containerd, runc and busybox")
    host = make_host("h100-80gb")
    hook = {"path": str(BUILD / "carve-hook"), "args": ["carve-hook", "--host", f"{host.env['CARVE_RUNTIME_DIR']}/carved.sock"],
            "timeout": 30, "env": [f"{name}={host.env[name]}" for name in ("SIMGPU_HOST", "LD_LIBRARY_PATH")]}
    with tempfile.TemporaryDirectory(prefix="cd-", ignore_cleanup_errors=True) as directory:
        made = Containerd(directory, hook, {"carve.vram": "2GiB"})
        made.host = host
        try:
            yield made
        finally:
            made.close()


def of_the_simulated_host(containerd):
    return {"SIMGPU_HOST": containerd.host.env["SIMGPU_HOST"]}


def sizes(containerd):
    return [s["vram_bytes"] >> 20 for s in containerd.host.carve_json("session", "list")]


@pytest.mark.needs_sim("knows the driver's libraries")
def test_a_label_of_the_image_limits_a_container_of_a_pod(containerd):
    # A pod's label is not its image's, and a pod's first container, which holds its namespaces, gets no slice.
    pod = containerd.pod("labelled", {"carve.vram": "1GiB"})
    assert sizes(containerd) == []
    assert "this GPU has 2048 MiB" in containerd.container(pod, env=of_the_simulated_host(containerd))


@pytest.mark.needs_sim("knows the driver's libraries")
def test_an_annotation_of_a_pod_makes_slices_for_its_containers_alone(containerd):
    pod = containerd.pod("annotated", annotations={"carve.vram": "1GiB"})
    assert sizes(containerd) == []
    assert "this GPU has 1024 MiB" in containerd.container(pod, env=of_the_simulated_host(containerd))


@pytest.fixture
def with_cdi(make_host):
    """A containerd that reads CDI specs, which Debian 12's is too old for: of the programs of a control plane."""
    if os.geteuid() != 0 or not HAS_KUBELET or not BUSYBOX:
        pytest.skip("needs root, runc, busybox and containerd 2.0 or newer in CARVE_TEST_CONTROL_PLANE")
    host = make_host("h100-80gb")
    with tempfile.TemporaryDirectory(prefix="cd-", ignore_cleanup_errors=True) as directory:
        os.mkdir(f"{directory}/cdi")
        made = Containerd(directory, None, {}, PROGRAMS, f"{directory}/cdi")
        made.host = host
        try:
            yield made
        finally:
            made.close()


@pytest.mark.needs_sim("knows the driver's libraries")
def test_an_annotation_of_cdi_gives_a_container_the_slice(with_cdi):
    """There is no hook, no label and no option for devices: what a device plugin says to a kubelet that knows of no CDI devices."""
    session = with_cdi.host.carve_json("session", "request", "--vram", "3")["id"]
    for argv in (), ("--vram", "2"):
        done = with_cdi.host.carve("cdi", "generate", "--cdi-dir", with_cdi.cdi, *argv)
        assert done.returncode == 0, done.stderr
    for name, device, mib in ("session", session, 3072), ("size", "2gib", 2048):
        said = with_cdi.container(with_cdi.pod(name), env=of_the_simulated_host(with_cdi), annotations={"cdi.k8s.io/carve_0": f"carve.dev/slice={device}"})
        assert f"this GPU has {mib} MiB" in said, said


@pytest.fixture
def state():
    """Where a containerd has its files, and the input of a hook for container c1; the name is short enough for a socket's."""
    with tempfile.TemporaryDirectory(prefix="cd-") as directory:
        os.makedirs(f"{directory}/{BUNDLE}")
        with open(f"{directory}/{BUNDLE}/config.json", "w") as file:
            file.write('{"root": {"path": "root"}}')
        yield directory, json.dumps({"id": "c1", "pid": os.getpid(), "bundle": f"{directory}/{BUNDLE}"})


def hook(text):
    return subprocess.run([BUILD / "carve-hook"], input=text, capture_output=True, text=True, timeout=60)


def test_a_containerd_whose_socket_is_elsewhere_is_not_asked(state):
    done = hook(state[1])
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\4\1\4\0\0\0\1\xff\xff\xff\xff"],
                         ids=["none", "its end", "another protocol", "headers that are none"])
def test_a_container_does_not_start_where_containerd_does_not_say_its_labels(state, answer):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{state[0]}/containerd.sock")
        listening.listen()
        process = subprocess.Popen([BUILD / "carve-hook"], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        process.stdin.write(state[1])
        process.stdin.close()
        connection, _ = listening.accept()
        if answer is not None:
            connection.sendall(answer)
            connection.shutdown(socket.SHUT_WR)
        said = process.stderr.read()
        assert process.wait(60) == 1
        connection.close()
    assert f"containerd at {state[0]}/containerd.sock does not say which labels c1 has" in said and said.count("\n") == 1
