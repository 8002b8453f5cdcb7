"""Device nodes where cgroup version 2 is alone: rules of devices are those that a runtime was told, and no hook can add any."""
import json
import os
import pathlib
import re
import signal
import tomllib

import pytest

from conftest import BUILD, wait_until

from docker_host import IMAGE, docker, docker_engine  # noqa: F401: fixtures
from nvidia_module import with_module
from podman_host import CARVE, storage  # noqa: F401: fixtures

# There is no driver behind a node: one that may be opened says so.
OPENED, DENIED = "No such device or address", "Operation not permitted"


def look(*nodes):
    """A command that says of each node what opening it says; one that is not there is made."""
    return "sh", "-c", "; ".join(f"[ -e {node} ] || busybox mknod {node} c {major} {minor}; cat {node} 2>&1"
                                 for node, major, minor in nodes)


NODES = [("/dev/nvidiactl", 195, 255), ("/dev/nvidia3", 195, 3), ("/dev/nvidia4", 195, 4)]


def opened(done):
    """Of the common node, the slice's GPU and another: whether it may be opened."""
    assert len(done.stdout.splitlines()) == 3 and done.stdout.count(OPENED) + done.stdout.count(DENIED) == 3, done.stdout + done.stderr
    return [OPENED in line for line in done.stdout.splitlines()]


def wrap(host):
    return with_module(host.carve_json("gpu", "list"), cgroup_2=True)


@pytest.fixture
def podman(storage, make_host):
    storage.host = make_host("h100-80gb:2")
    yield storage
    storage.clean()


def podman_run(podman, *argv):
    # The controllers of this machine's version 2 are few.
    options = ["--rm", "--pids-limit=-1", "--cap-add=MKNOD"]
    at = argv.index("run") + 1
    return podman(*wrap(podman.host), *argv[:at], *options, *argv[at:], podman.IMAGE, *look(*NODES))


@pytest.fixture(scope="module")
def engine():
    with docker_engine(wrap) as made:
        yield made


@pytest.mark.long
def test_carves_command_opens_the_slices_gpu(podman):
    assert opened(podman_run(podman, CARVE, "podman", "run", "--vram", "2", "--gpu-ids", "0")) == [True, True, False]


@pytest.mark.long
def test_an_annotation_opens_its_gpu_with_podman(podman, tmp_path):
    """By podman's stage before the runtime: the session is made there, and the container has it, once."""
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path).returncode == 0
    options = ["--annotation", "carve.vram=2", "--annotation", "carve.gpu-ids=0"]
    assert opened(podman_run(podman, "podman", "--hooks-dir", tmp_path, "run", *options)) == [True, True, False]
    podman.nothing_is_left()
    done = podman(*wrap(podman.host), "podman", "--hooks-dir", tmp_path, "run", "--pids-limit=-1", "--detach", "--name", "one", *options,
                  podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    session, = podman.sessions()
    # The process that held it until the container was there is gone: it ends with the container.
    wait_until(lambda: len(podman.sessions()[0]["command_pids"]) == 1)
    assert [s["id"] for s in podman.sessions()] == [session["id"]]
    pid = json.loads(podman("podman", "inspect", "one").stdout)[0]["State"]["Pid"]
    assert podman.sessions()[0]["command_pids"] == [pid]
    os.kill(pid, signal.SIGKILL)
    podman.nothing_is_left()


def test_a_label_of_an_image_opens_its_gpu_with_podman(podman, tmp_path):
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path).returncode == 0
    (tmp_path / "Containerfile").write_text(f"FROM {podman.IMAGE}\nLABEL carve.vram=2GiB carve.gpu-ids=0\n")
    assert podman("podman", "build", "-q", "-t", "localhost/labelled:2", "-f", tmp_path / "Containerfile", tmp_path).returncode == 0
    done = podman(*wrap(podman.host), "podman", "--hooks-dir", tmp_path, "run", "--rm", "--pids-limit=-1", "--cap-add=MKNOD",
                  "localhost/labelled:2", *look(*NODES))
    assert opened(done) == [True, True, False]
    # The image's own words of a size that cannot be had are the hook's.
    done = podman_run(podman, "podman", "--hooks-dir", tmp_path, "run", "--annotation", "carve.vram=900GiB")
    assert done.returncode != 0 and "more than there is" in done.stderr
    podman.nothing_is_left()


@pytest.mark.long
def test_a_hook_that_cannot_open_the_gpu_says_so(podman, tmp_path):
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path).returncode == 0
    # As where CRI-O is installed, too.
    (tmp_path / "50-carve-devices.json").unlink()
    done = podman_run(podman, "podman", "--hooks-dir", tmp_path, "run", "--annotation", "carve.vram=2", "--annotation", "carve.gpu-ids=0")
    assert done.returncode != 0 and "cannot let a container open /dev/nvidiactl" in done.stderr, done.stderr + done.stdout
    podman.nothing_is_left()
    # It goes by what the container may open, not by who said so.
    for options in (["--device", "/dev/nvidiactl", "--device", "/dev/nvidia3"], ["--device-cgroup-rule", "c 195:* rw"]):
        done = podman_run(podman, "podman", "--hooks-dir", tmp_path, "run", *options, "--annotation", "carve.vram=2", "--annotation",
                          "carve.gpu-ids=0")
        assert opened(done)[:2] == [True, True]


def documented(language):
    """The only piece of docs/admin/cluster.md in that language."""
    text = pathlib.Path(__file__).parents[3].joinpath("docs/admin/cluster.md").read_text()
    piece, = re.findall(rf"^```{language}\n(.*?)^```", text, re.M | re.S)
    return piece


def documented_runtime(directory, hooks):
    """The program that docs/admin/cluster.md puts in front of CRI-O's runtime, for the simulated host that the installed hook knows."""
    with open(f"{hooks}/50-carve.json") as file:
        environment = json.load(file)["hook"]["env"]
    runtime = pathlib.Path(directory, pathlib.Path(tomllib.loads(documented("toml"))["crio"]["runtime"]["runtimes"]["carve"]["runtime_path"]).name)
    script = documented("sh")
    assert " -- " in script and "/usr/bin/carve-hook" in script
    script = script.replace("/usr/bin/carve-hook", str(BUILD / "carve-hook"))
    runtime.write_text(script.replace(" -- ", "".join(f" --env '{word}'" for word in environment) + " -- "))
    runtime.chmod(0o755)
    return runtime


@pytest.mark.long
def test_the_documented_runtime_of_cri_o_opens_the_slices_gpu(podman, tmp_path):
    """conmon starts the runtime, as CRI-O has it do; the hook that CRI-O runs, too, makes no second slice."""
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path).returncode == 0
    (tmp_path / "50-carve-devices.json").unlink()
    runtime = documented_runtime(tmp_path, tmp_path)
    before = ["podman", "--runtime", runtime, "--hooks-dir", tmp_path, "run"]
    assert opened(podman_run(podman, *before, "--annotation", "carve.vram=2", "--annotation", "carve.gpu-ids=0")) == [True, True, False]
    podman.nothing_is_left()
    assert opened(podman_run(podman, *before)) == [False, False, False]
    all_of_them = json.loads(podman.host.carve("session", "list", "--all", "--json").stdout)
    assert [s["vram_bytes"] for s in all_of_them] == [2 << 30]


@pytest.mark.long
def test_a_cdi_device_of_a_size_on_one_gpu_opens_it(podman, tmp_path):
    """The runtime is told of the nodes by the spec; where the GPU is not known before, no hook can add them."""
    before = wrap(podman.host)

    def run(*words, hooks=(), command=look(*NODES), options=()):
        assert podman(*before, CARVE, "cdi", "generate", "--cdi-dir", tmp_path, "--vram", "2GiB", *words).returncode == 0
        device = "carve.dev/slice=2gib" + ("-on-0" if words else "")
        return podman.with_cdi(tmp_path, *hooks, "run", "--rm", "--pids-limit=-1", "--cap-add=MKNOD", *options,
                               "--device", device, podman.IMAGE, *command, before=before)

    done = run("--gpu-ids", "0")
    assert opened(done) == [True, True, False]
    done = run()
    assert done.returncode != 0 and "cannot let a container open" in done.stderr and "--gpu-ids" in done.stderr, done.stderr
    podman.nothing_is_left()
    # Where carve's hook is installed, the session is made before the runtime is told of the nodes; the device's own hook makes none.
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path / "hooks").returncode == 0
    hooks = ["--hooks-dir", tmp_path / "hooks"]
    assert opened(run(hooks=hooks)) in ([True, True, False], [True, False, True])
    done = run(hooks=hooks, command=["sh", "-c", "hog; sleep 600"], options=["--detach"])
    assert done.returncode == 0, done.stderr
    container = done.stdout.strip()
    wait_until(lambda: "this GPU has" in podman("podman", "logs", container).stdout)
    assert "this GPU has 2048 MiB" in podman("podman", "logs", container).stdout
    assert len(podman.sessions()) == 1
    podman("podman", "rm", "--force", "--time", "0", container)
    podman.nothing_is_left()
    for ids in ("0,1", "all", ""):
        done = podman.host.carve("cdi", "generate", "--cdi-dir", tmp_path, "--vram", "2GiB", "--gpu-ids", ids)
        assert done.returncode == 2 and len(done.stderr.splitlines()) <= 2, done.stderr


@pytest.mark.long
def test_an_image_with_a_label_opens_its_gpu_with_docker(docker):
    image = docker.build("labelled:1", "LABEL carve.vram=2GiB carve.gpu-ids=0")
    assert opened(docker.run(image, *look(*NODES))) == [True, True, False]
    done = docker.run(image, "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr


@pytest.mark.long
def test_a_refusal_is_in_dockers_own_message(docker):
    done = docker.run(docker.build("large:1", "LABEL carve.vram=800GiB"), "true")
    assert done.returncode != 0 and "carve-hook: " in done.stderr and "more than there is" in done.stderr, done.stderr
