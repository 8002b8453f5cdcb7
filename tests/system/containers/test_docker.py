"""docker, with a daemon of the tests' own: carve docker run, and images with a label through carve's runtime."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import sqlite3
import subprocess

import pytest

from conftest import BUILD, open_to_others, wait_until
from docker_host import IMAGE, docker, docker_engine, engine  # noqa: F401: fixtures
from podman_host import CARVE

pytestmark = pytest.mark.xdist_group("docker")


# ---- carve docker run ----

def test_a_container_has_a_slice_and_gives_it_back(docker):
    done = docker.carve("--vram", "4", "--rm", IMAGE, "hog")
    assert done.returncode == 0 and "this GPU has 4096 MiB" in done.stdout, done.stderr
    docker.nothing_is_left()


@pytest.mark.long
def test_a_program_that_is_started_in_a_container_is_in_its_slice(docker):
    assert docker.carve("--vram", "4", "-d", "--name", "one", IMAGE, "sleep", "1000").returncode == 0
    done = docker.docker("exec", "one", "hog")
    assert "this GPU has 4096 MiB" in done.stdout, done.stderr
    assert docker.sessions()
    assert docker.docker("stop", "-t", "0", "one").returncode == 0
    docker.nothing_is_left()


@pytest.mark.long
def test_a_container_whose_client_was_killed_keeps_its_slice_until_it_ends(docker):
    client = docker.host.popen([CARVE, "docker", "run", "--network", "none", "--vram", "4", "--name", "two", IMAGE,
                                "sleep", "1000"], env=docker.env)
    wait_until(lambda: "two" in docker.docker("ps", "--format", "{{.Names}}").stdout)
    os.kill(client.pid, signal.SIGKILL)
    client.wait(60)
    assert "this GPU has 4096 MiB" in docker.docker("exec", "two", "hog").stdout
    assert docker.docker("kill", "two").returncode == 0
    docker.nothing_is_left()


@pytest.mark.long
def test_a_docker_that_an_option_names_is_asked_about_its_containers(docker):
    """The one of the environment knows none of them: the slice would be given back at once."""
    place = docker.env["DOCKER_HOST"]
    nowhere = {**docker.env, "DOCKER_HOST": f"unix://{docker.directory}/nowhere.sock"}
    done = docker.host.run([CARVE, "docker", "-H", place, "--vram", "4", "run", "--network", "none", "--rm", "--name", "nine",
                            IMAGE, "hog"], env=nowhere)
    assert done.returncode == 0 and "this GPU has 4096 MiB" in done.stdout, done.stderr
    docker.nothing_is_left()
    done = docker.host.run([CARVE, "docker", "-H", place, "run", "--vram", "4", "--network", "none", "-d", "--name", "nine",
                            IMAGE, "sleep", "1000"], env=nowhere)
    assert done.returncode == 0 and docker.docker("restart", "-t", "0", "nine").returncode == 0, done.stderr
    assert "this GPU has 4096 MiB" in docker.docker("exec", "nine", "hog").stdout
    assert docker.docker("rm", "-f", "nine").returncode == 0
    docker.nothing_is_left()


@pytest.mark.long
def test_a_container_that_docker_starts_again_keeps_its_slice(docker):
    assert docker.carve("--vram", "4", "-d", "--restart", "on-failure:2", "--name", "three", IMAGE,
                        "sh", "-c", "hog; exit 3").returncode == 0
    wait_until(lambda: docker.docker("inspect", "-f", "{{.State.Status}} {{.RestartCount}}",
                                     "three").stdout.strip() == "exited 2")
    assert docker.docker("logs", "three").stdout.count("this GPU has 4096 MiB") == 3
    docker.nothing_is_left()


@pytest.mark.long
def test_a_container_keeps_its_slice_while_dockers_daemon_is_restarted(docker):
    """Only a list without it says that a container is gone: an inspection fails while the daemon is away."""
    assert docker.carve("--vram", "4", "-d", "--name", "five", IMAGE, "sleep", "1000").returncode == 0
    session, = docker.sessions()
    for _ in range(3):
        docker.stop()
        assert docker.start()
        done = docker.docker("exec", "five", "hog")
        assert "this GPU has 4096 MiB" in done.stdout, done.stderr
    assert [s["id"] for s in docker.sessions()] == [session["id"]]
    assert docker.docker("stop", "-t", "0", "five").returncode == 0
    docker.nothing_is_left()


@pytest.mark.long
def test_a_container_whose_policy_is_always_keeps_its_slice(docker):
    assert docker.carve("--vram", "4", "-d", "--restart", "always", "--name", "six", IMAGE, "sleep", "1000").returncode == 0
    session, = docker.sessions()

    def pid():
        return int(docker.docker("inspect", "-f", "{{.State.Pid}}", "six").stdout)

    first = pid()
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: pid() not in (0, first))
    assert "this GPU has 4096 MiB" in docker.docker("exec", "six", "hog").stdout
    assert [s["id"] for s in docker.sessions()] == [session["id"]]
    assert docker.docker("rm", "-f", "six").returncode == 0
    docker.nothing_is_left()


@pytest.mark.long
def test_a_container_keeps_its_slice_over_dockers_restart(docker):
    assert docker.carve("--vram", "4", "-d", "--name", "seven", IMAGE, "sleep", "1000").returncode == 0
    session, = docker.sessions()
    assert docker.docker("restart", "-t", "0", "seven").returncode == 0
    assert "this GPU has 4096 MiB" in docker.docker("exec", "seven", "hog").stdout
    assert [s["id"] for s in docker.sessions()] == [session["id"]]
    assert docker.docker("rm", "-f", "seven").returncode == 0
    docker.nothing_is_left()


def another_boot(host):
    """As if the host had been started anew since."""
    os.kill(host.daemon_pid(), signal.SIGKILL)
    file, = pathlib.Path(host.env["CARVE_RUNTIME_DIR"]).rglob("carve.db")
    with contextlib.closing(sqlite3.connect(file)) as db, db:
        db.execute("UPDATE host SET boot='5f0ae3c2-0000-4000-8000-000000000000'")


@pytest.mark.long
def test_a_stopped_container_that_docker_starts_again_has_its_slice_again(docker):
    """carve's runtime asks for it; what the container mounts stays until it is removed."""
    docker.carve("--vram", "4", "--name", "eight", IMAGE, "hog")
    docker.nothing_is_left()
    binds = json.loads(docker.docker("inspect", "-f", "{{json .HostConfig.Binds}}", "eight").stdout)
    directory = next(pathlib.Path(b.split(":")[0]).parent for b in binds if b.endswith(":/etc/ld.so.preload:ro"))
    wait_until((directory / "kept").exists)
    for end in (lambda: None, lambda: os.kill(docker.host.daemon_pid(), signal.SIGKILL), lambda: another_boot(docker.host)):
        end()
        done = docker.docker("start", "--attach", "eight")
        assert "this GPU has 4096 MiB" in done.stdout, done.stderr
        docker.nothing_is_left()
    # Two GPUs: the slice comes back on the one whose nodes the container has, or not at all.
    session = docker.host.carve_json("session", "request", "--vram", "78", "--gpus", "2")["id"]
    done = docker.docker("start", "--attach", "eight")
    assert done.returncode != 0 and "carve-hook: " in done.stderr and "this GPU has" not in done.stdout, done.stderr
    assert docker.host.carve("session", "release", session).returncode == 0
    # The history has each run.
    ended = [s for s in json.loads(docker.host.carve("session", "list", "--all", "--json").stdout) if s["vram_bytes"] == 4 << 30]
    assert len({s["id"] for s in ended}) == len(ended) >= 3
    # The next container's end is when it is looked whether others are gone.
    assert docker.docker("rm", "eight").returncode == 0
    docker.carve("--vram", "4", "--rm", IMAGE, "true")
    wait_until(lambda: not directory.exists())


@pytest.fixture
def open_daemon(docker):
    """As a system daemon's: programs of every user may ask to attach."""
    docker.host.carve("gpu", "list")
    open_to_others(docker.host)
    os.chmod(docker.host.env["CARVE_RUNTIME_DIR"] + "/attach.sock", 0o666)


@pytest.mark.long
def test_every_user_of_a_container_is_in_its_slice(docker, open_daemon):
    for user in ("1000", "1000:1001"):
        done = docker.carve("--vram", "2", "--user", user, "--rm", IMAGE, "hog")
        assert "this GPU has 2048 MiB" in done.stdout, done.stderr + done.stdout
    assert docker.carve("--vram", "2", "-d", "--name", "nine", IMAGE, "sleep", "1000").returncode == 0
    for _ in range(2):
        done = docker.docker("exec", "--user", "1000", "nine", "hog")
        assert "this GPU has 2048 MiB" in done.stdout, done.stderr + done.stdout
        assert docker.docker("restart", "-t", "0", "nine").returncode == 0
    docker.docker("rm", "-f", "nine")
    docker.nothing_is_left()


@pytest.mark.long
def test_a_container_that_starts_again_without_the_drivers_limit_is_stopped():
    """The daemon hears of its new process when that runs: nothing else binds what goes round the front."""
    with docker_engine(driver="615", hooked=False) as docker:
        assert docker.host.carve_json("gpu", "list")[0]["backend"] == "cgroup"
        assert docker.carve("--vram", "4", "-d", "--name", "ten", IMAGE, "sleep", "1000").returncode == 0
        wait_until(lambda: len(docker.sessions()[0]["command_pids"]) == 2)
        fault = ["sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1"]
        assert docker.host.carve(*fault, "--delay", "13").returncode == 0
        assert docker.docker("restart", "-t", "0", "ten").returncode == 0
        wait_until(lambda: docker.docker("inspect", "-f", "{{.State.Status}}", "ten").stdout.strip() == "exited")
        assert docker.host.carve(*fault, "--clear").returncode == 0
        docker.nothing_is_left()


@pytest.mark.long
def test_several_containers_of_one_session(docker):
    session = docker.host.carve_json("session", "request", "--vram", "6", "--name", "shared")["id"]
    for _ in range(2):
        done = docker.carve("--session", session, "--rm", IMAGE, "hog")
        assert "this GPU has 6144 MiB" in done.stdout, done.stderr
    # docker's client is back before the container's last process is gone.
    wait_until(lambda: docker.host.carve("session", "release", session).returncode == 0)


# ---- carve's runtime ----

def test_a_label_of_the_image_limits_every_container_of_it(docker):
    image = docker.build("labelled:1", "LABEL carve.vram=3GiB")
    for options in ([], ["--ulimit", "core=-1"], ["--read-only"]):
        done = docker.run(*options, image, "hog")
        assert "this GPU has 3072 MiB" in done.stdout, (options, done.stderr)
    docker.nothing_is_left()
    assert docker.docker("run", "-d", "--network", "none", "--name", "four", image, "sleep",
                         "1000").returncode == 0
    assert "this GPU has 3072 MiB" in docker.docker("exec", "four", "hog").stdout
    docker.docker("kill", "four")
    docker.nothing_is_left()


def test_the_line_of_the_document_works(docker):
    """docker run -it --gpus 0 --ipc=host --pid=host IMAGE bash: the other options are harmless."""
    image = docker.build("fractional:8gb", "LABEL carve.vram=8GiB")
    done = docker.run("--gpus", "0", "--ipc=host", "--pid=host", image, "sh", "-c", "hog")
    assert "this GPU has 8192 MiB" in done.stdout, done.stderr
    docker.nothing_is_left()


def test_a_container_that_names_no_slice_starts_as_ever_and_has_no_whole_gpu(docker):
    done = docker.run(IMAGE, "sh", "-c", "ls /run /etc")
    assert done.returncode == 0 and "carve" not in done.stdout and not docker.sessions(), done.stderr
    done = docker.run("--gpus", "all", IMAGE, "true")
    assert done.returncode != 0 and "names no slice" in done.stderr and not docker.sessions()
    # A slice that carve's command made is one.
    done = docker.carve("--vram", "2", "--gpus", "all", "--rm", IMAGE, "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr


def test_a_label_that_cannot_be_had_starts_nothing(docker):
    done = docker.run(docker.build("wrong:1", "LABEL carve.vram=lots"), "true")
    assert done.returncode != 0 and "lots" in done.stderr
    done = docker.run(docker.build("large:1", "LABEL carve.vram=800GiB"), "true")
    assert done.returncode != 0 and "carve-hook" in done.stderr
    docker.nothing_is_left()


# ---- CDI ----

def test_a_device_is_a_slice(docker):
    if not docker.cdi:
        pytest.skip("this docker reads no CDI specs: it is older than 25")
    session = docker.host.carve_json("session", "request", "--vram", "5", "--name", "device")["id"]
    for words in (["--vram", "2GiB"], ["--image"], [session]):
        done = docker.host.carve("cdi", "generate", "--cdi-dir", docker.cdi, *words)
        assert done.returncode == 0, done.stderr
    for options, size in (["--device", "carve.dev/slice=2gib"], 2048), (["--device", f"carve.dev/slice={session}"], 5120), \
            (["--device", "carve.dev/slice=2gib", "--user", "0", "--read-only"], 2048):
        done = docker.run(*options, IMAGE, "hog")
        assert f"this GPU has {size} MiB" in done.stdout, (options, done.stderr)
    done = docker.run("--device", "carve.dev/slice=image", IMAGE, "true")
    assert done.returncode != 0 and "names no slice" in done.stderr
    wait_until(lambda: docker.host.carve("session", "release", session).returncode == 0)


# ---- the recipes of docs/user/containers.md, read from there ----

RECIPES = (pathlib.Path(__file__).resolve().parents[3] / "docs/user/containers.md").read_text()


def recipe(language):
    return re.search(rf"## Recipes\n.*?```{language}\n(.*?)```", RECIPES, re.DOTALL).group(1)


def test_a_development_container_has_a_slice(docker):
    options = json.loads(recipe("json"))["runArgs"]
    done = docker.run(*options, IMAGE, "hog")
    assert "this GPU has 4096 MiB" in done.stdout, done.stderr
    docker.nothing_is_left()


@pytest.mark.long
def test_a_service_of_compose_has_a_new_slice_at_each_start(docker):
    """compose creates a container with the labels of its service, and starts it again and again."""
    label = re.search(r"(carve\.[a-z-]+): (\S+)", recipe("yaml"))
    done = docker.docker("create", "--network", "none", "--name", "service", "--label", "=".join(label.groups()), IMAGE,
                         "hog")
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        done = docker.docker("start", "--attach", "service")
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr
        docker.nothing_is_left()


@pytest.mark.long
def test_the_recipe_of_compose_gives_each_service_a_slice(docker, tmp_path):
    """docker-compose itself, with the documented file as it stands: only what the test's image needs is in another one."""
    compose = shutil.which("docker-compose")
    if not compose:
        pytest.skip("needs docker-compose")
    (tmp_path / "compose.yaml").write_text(recipe("yaml").replace("IMAGE", IMAGE))
    (tmp_path / "needs.yaml").write_text(json.dumps({"version": "2.4", "services": {"train": {
        "network_mode": "none", "command": "hog"}}}))

    def run(*words):
        return docker.host.run([compose, "-p", "recipe", "-f", tmp_path / "compose.yaml", "-f", tmp_path / "needs.yaml", *words],
                               env=docker.env, timeout=200)
    for times in (1, 2):  # the second time it starts the container that is there
        done = run("up")
        assert done.returncode == 0 and done.stdout.count("this GPU has 3072 MiB") >= 1, done.stderr + done.stdout
        docker.nothing_is_left()
        assert run("logs", "--no-color").stdout.count("this GPU has 3072 MiB") == times
    done = run("up", "--scale", "train=2")
    assert done.returncode == 0 and done.stdout.count("this GPU has 3072 MiB") >= 2, done.stderr + done.stdout
    assert run("down").returncode == 0
    ended = json.loads(docker.host.carve("session", "list", "--all", "--json").stdout)
    assert sum(s["vram_bytes"] == 3 << 30 for s in ended) >= 4
    docker.nothing_is_left()


def test_programs_join_the_slice_of_a_server_of_notebooks(docker):
    options = re.search(r"--label (carve\.\S+) IMAGE jupyter", RECIPES).group(1)
    done = docker.docker("run", "-d", "--network", "none", "--name", "notebooks", "--label", options, IMAGE, "sleep",
                         "1000")
    assert done.returncode == 0, done.stderr
    for _ in range(2):
        assert "this GPU has 20252 MiB" in docker.docker("exec", "notebooks", "hog").stdout
    assert len(docker.sessions()) == 1
    docker.docker("kill", "notebooks")
    docker.nothing_is_left()


@pytest.mark.long
def test_containers_join_a_session_by_a_label(docker):
    session = docker.host.carve_json("session", "request", "--vram", "5", "--name", "joined")["id"]
    for _ in range(2):
        done = docker.run("--label", f"carve.session={session}", IMAGE, "hog")
        assert "this GPU has 5120 MiB" in done.stdout, done.stderr
    wait_until(lambda: docker.host.carve("session", "release", session).returncode == 0)


# ---- its settings ----

def install(make_host, verb, directory):
    return make_host("h100-80gb").carve("hook", verb, "--docker-dir", directory)


def test_dockers_other_settings_stay(make_host, tmp_path):
    file = tmp_path / "daemon.json"
    before = {"log-driver": "journald", "default-runtime": "nvidia", "default-shm-size": "1g",
              "runtimes": {"nvidia": {"path": "/usr/bin/nvidia-container-runtime", "args": []}}}
    file.write_text(json.dumps(before))
    for _ in range(2):  # a second time is no second layer
        assert install(make_host, "install", tmp_path).returncode == 0
        now = json.loads(file.read_text())
        assert now["default-runtime"] == "carve" and now["log-driver"] == "journald"
        ours = now["runtimes"]["carve"]
        assert pathlib.Path(ours["path"]).samefile(BUILD / "carve-hook")
        assert ours["runtimeArgs"][:4] == ["--runtime", "/usr/bin/nvidia-container-runtime", "--default", "nvidia"]
        assert now["runtimes"]["nvidia"] == before["runtimes"]["nvidia"]
    assert install(make_host, "remove", tmp_path).returncode == 0
    assert json.loads(file.read_text()) == before


def test_settings_are_made_where_there_are_none(make_host, tmp_path):
    assert install(make_host, "install", tmp_path).returncode == 0
    assert json.loads((tmp_path / "daemon.json").read_text())["runtimes"]["carve"]["runtimeArgs"][1] == "runc"
    assert install(make_host, "remove", tmp_path).returncode == 0
    assert json.loads((tmp_path / "daemon.json").read_text()) == {}


@pytest.mark.parametrize("text", ["{", "[]", '{"runtimes": []}', '{"default-runtime": "none"}', '{"default-runtime": 1}'])
def test_settings_that_docker_would_refuse_are_left_alone(make_host, tmp_path, text):
    (tmp_path / "daemon.json").write_text(text)
    done = install(make_host, "install", tmp_path)
    assert done.returncode != 0 and "daemon.json" in done.stderr and len(done.stderr.splitlines()) == 1
    assert (tmp_path / "daemon.json").read_text() == text


def test_a_directory_that_is_not_there_is_named(make_host, tmp_path):
    done = install(make_host, "install", tmp_path / "none")
    assert done.returncode != 0 and "none" in done.stderr and len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize("argv", [["--runtime"], ["--runtime", "runc"], ["--runtime", "runc", "--what", "x", "--"], ["--runtime", "--"]])
def test_a_runtime_that_is_called_wrongly_says_how(argv):
    done = subprocess.run([BUILD / "carve-hook", *argv], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 2 and "--runtime RUNC" in done.stderr


DOCKER = """#!/bin/sh
case "$*" in
*version*) echo "Cannot connect to the Docker daemon at $DOCKER_HOST. Is the docker daemon running?" >&2; exit 1;;
*) echo "docker: unknown server OS: " >&2; echo "$*" >> DIR/ran; exit 125;;
esac
"""


@pytest.mark.parametrize("where", ["unix://DIR/none.sock", "unix://DIR/dead.sock", "tcp://127.0.0.1:1"])
def test_a_docker_without_its_daemon_is_told_in_dockers_words(make_host, tmp_path, where):
    """Before a slice is made; docker's `run` with devices says something else then."""
    host, program = make_host("h100-80gb"), tmp_path / "docker"
    program.write_text(DOCKER.replace("DIR", str(tmp_path)))
    program.chmod(0o755)
    socket.socket(socket.AF_UNIX).bind(str(tmp_path / "dead.sock"))
    where = where.replace("DIR", str(tmp_path))
    done = host.run([CARVE, "docker", "run", "--vram", "2", "image", "true"],
                    env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "DOCKER_HOST": where})
    assert (done.returncode, done.stdout) == (125, ""), done
    assert done.stderr == f"carve: docker: Cannot connect to the Docker daemon at {where}. Is the docker daemon running?\n", done.stderr
    assert not (tmp_path / "ran").exists() and host.carve_json("session", "list") == []
