"""Jobs in containers: `--docker IMAGE` of a job, its queue or its agent."""
import json
import os
import pathlib
import signal

import pytest

from conftest import BUILD, process_ended, wait_until
from docker_host import IMAGE, docker, engine  # noqa: F401: fixtures
from podman_host import podman, storage  # noqa: F401: fixtures

CARVE = BUILD / "carve"


def job(podman, *argv, options=()):
    """A job that has ended, and its output."""
    done = podman(str(CARVE), "enqueue", "--json", "--wait", "--queue", "q", *options, "--", *argv)
    shown, = json.loads(done.stdout)
    return shown, podman(str(CARVE), "job", "logs", shown["id"]).stdout


def client_of(podman, name):
    """The process of podman's that runs the container of this name."""
    client, = [int(p.parent.name) for p in pathlib.Path("/proc").glob("[0-9]*/cmdline")
               if (words := p.read_bytes().split(b"\0"))[0] == b"podman" and f"--name={name}".encode() in words
               and f"{podman.directory}/".encode() in (p.parent / "environ").read_bytes()]
    return client


def test_a_jobs_container_is_in_its_slice(podman, tmp_path):
    assert podman(str(CARVE), "agent", "--detached", "--queue", f"q=0.5,docker={podman.IMAGE}", "--docker-deny",
                  "privileged,volume").returncode == 0
    shown, output = job(podman, "hog")
    assert shown["state"] == "done" and "hog: this GPU has 405" in output, (shown, output)
    # Its directory, its own words of the environment, its parameters, and its exit code.
    shown, output = job(podman, "sh", "-c", "echo $CARVE_JOB_ID $lr $PWD $WORD > here; exit 7",
                        options=["--param", "lr=0.1", "--chdir", str(tmp_path), "--docker-arg=--env=WORD=w"])
    assert shown["state"] == "failed" and shown["exit_code"] == 7, (shown, output)
    assert (tmp_path / "here").read_text() == f"{shown['id']} 0.1 {tmp_path} w\n"
    reader, output = job(podman, "cat", options=["--input", str(tmp_path / "here")])
    # What podman warns of comes before.
    assert reader["state"] == "done" and output.splitlines(keepends=True)[-1] == (tmp_path / "here").read_text(), (reader, output)
    refused = podman(str(CARVE), "enqueue", "--queue", "q", "--docker-arg=--privileged", "--", "true")
    assert refused.returncode == 2 and "does not allow --privileged" in refused.stderr
    # Another image for the same job; one that is not there.
    again = podman(str(CARVE), "job", "clone", shown["id"], "--docker", "localhost/carve-no-such:1", "--docker-arg=--pull=never")
    podman(str(CARVE), "job", "wait", again.stdout.strip())
    assert json.loads(podman(str(CARVE), "job", "show", again.stdout.strip(), "--json").stdout)["exit_code"] == 125
    again = podman(str(CARVE), "job", "rerun", again.stdout.strip(), "--docker", podman.IMAGE)
    podman(str(CARVE), "job", "wait", again.stdout.strip())
    assert json.loads(podman(str(CARVE), "job", "show", again.stdout.strip(), "--json").stdout)["exit_code"] == 7
    podman.nothing_is_left()


def test_a_jobs_container_ends_with_the_job(podman):
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE).returncode == 0
    id = podman(str(CARVE), "enqueue", "--queue", "q", "--grace", "1", "--docker-arg=--name=theirs", "--", "sleep", "1000").stdout.strip()
    wait_until(lambda: "theirs" in podman("podman", "ps", "--format", "{{.Names}}").stdout)
    assert podman(str(CARVE), "job", "cancel", id).returncode == 0
    wait_until(lambda: json.loads(podman(str(CARVE), "job", "show", id, "--json").stdout)["state"] == "cancelled")
    podman.nothing_is_left()
    wait_until(lambda: "theirs" not in podman("podman", "ps", "--format", "{{.Names}}").stdout)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM], ids=lambda n: n.name)
def test_a_container_ends_with_the_client_of_its_runtime(podman, number):
    """The client is the job's command, and whoever may kill it: the kernel, where memory is short, does so as well."""
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE).returncode == 0
    id = podman(str(CARVE), "enqueue", "--queue", "q", "--docker-arg=--name=orphan", "--docker-arg=--sig-proxy=false", "--", "sleep", "1000").stdout.strip()
    wait_until(lambda: "Up" in podman("podman", "ps", "--filter", "name=orphan", "--format", "{{.Status}}").stdout)
    client = client_of(podman, "orphan")
    os.kill(client, number)
    podman(str(CARVE), "job", "wait", id)
    shown = json.loads(podman(str(CARVE), "job", "show", id, "--json").stdout)
    # podman takes SIGTERM itself, and ends with 0.
    assert number != signal.SIGKILL or (shown["state"], shown["exit_code"]) == ("failed", 137), shown
    # It is gone by the end of the job.
    assert podman("podman", "ps", "--all", "--format", "{{.Names}} {{.Status}}").stdout == ""
    podman.nothing_is_left()


@pytest.mark.parametrize("also", ["", "client", "daemon"])
def test_no_container_is_left_of_a_job_whose_shim_was_killed(podman, also):
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE).returncode == 0
    id = podman(str(CARVE), "enqueue", "--queue", "q", "--grace", "1", "--docker-arg=--name=left", "--", "sleep", "1000").stdout.strip()
    wait_until(lambda: "Up" in podman("podman", "ps", "--filter", "name=left", "--format", "{{.Status}}").stdout)
    client = client_of(podman, "left")
    shim = int(pathlib.Path(f"/proc/{client}/stat").read_text().rsplit(")", 1)[1].split()[1])
    assert pathlib.Path(f"/proc/{shim}/comm").read_text() == "carve-shim\n"
    if also == "daemon":
        os.kill(podman.host.daemon_pid(), signal.SIGKILL)
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: process_ended(shim))
    if also == "client":
        os.kill(client, signal.SIGKILL)
    else:
        assert podman(str(CARVE), "job", "cancel", id).returncode == 0
    podman(str(CARVE), "job", "wait", id)
    shown = json.loads(podman(str(CARVE), "job", "show", id, "--json").stdout)
    assert shown["state"] == ("lost" if also == "client" else "cancelled"), shown
    # It is gone by the end of the job.
    assert podman("podman", "ps", "--all", "--format", "{{.Names}} {{.Status}}").stdout == ""
    podman.nothing_is_left()


def test_a_container_that_is_to_stay_is_stopped_and_stays(podman):
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE).returncode == 0
    shown, _ = job(podman, "true", options=["--docker-arg=--rm=false", "--docker-arg=--name=stays"])
    assert shown["state"] == "done" and shown["exit_code"] == 0, shown
    assert podman("podman", "ps", "--all", "--format", "{{.Names}} {{.Status}}").stdout.startswith("stays Exited (0)")


@pytest.mark.parametrize("option, said", [
    ("--detach", "would end the job before its container"),
    ("--detach=true", "would end the job before its container"),
    ("--detach=1", "would end the job before its container"),
    ("--detach=no", "would end the job before its container"),
    ("--cidfile=/tmp/x", "names a file that is the job's own"),
])
def test_an_option_with_which_a_container_could_outlive_its_job_is_refused(podman, option, said):
    done = podman(str(CARVE), "enqueue", "--queue", "q", "--docker", podman.IMAGE, f"--docker-arg={option}", "--", "true")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1, done
    assert f"'{option}' {said}" in done.stderr, done.stderr


def test_options_that_resemble_these_are_the_runtimes_own(podman):
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE).returncode == 0
    shown, output = job(podman, "hog", options=["--docker-arg=--detach=false", "--docker-arg=--detach-keys=ctrl-q"])
    assert shown["state"] == "done" and "hog: this GPU has" in output, (shown, output)


@pytest.mark.long
def test_only_allowed_options_of_the_runtime_reach_a_container(podman):
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE, "--docker-allow",
                  "env").returncode == 0
    output = job(podman, "sh", "-c", "echo $A", options=["--docker-arg=--env=A=1"])[1]
    assert output.splitlines()[-1] == "1", output  # what podman warns of comes before
    for option in ("--volume=/:/host", "--privileged", "--envx=1"):
        refused = podman(str(CARVE), "enqueue", "--queue", "q", f"--docker-arg={option}", "--", "true")
        assert refused.returncode == 2 and f"does not allow {option}" in refused.stderr, refused.stderr
    short = podman(str(CARVE), "enqueue", "--queue", "q", "--docker-arg=-v/:/host", "--", "true")
    assert short.returncode == 2 and "is no option of a runtime" in short.stderr


@pytest.mark.long
@pytest.mark.xdist_group("docker")
def test_a_job_runs_in_a_container_of_docker(docker, tmp_path):
    env = {**docker.env, "CARVE_CONTAINER_RUNTIME": "docker"}

    def carve(*argv):
        done = docker.host.run([str(CARVE), *argv], env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()
    carve("agent", "--detached", "--queue", f"q=0.5,docker={IMAGE}")
    options = ("--queue", "q", "--docker-arg=--network=none", "--chdir", str(tmp_path))
    id = carve("enqueue", *options, "--", "sh", "-c", "hog; echo $CARVE_JOB_ID > here")
    carve("job", "wait", id)
    assert "hog: this GPU has 405" in carve("job", "logs", id) and (tmp_path / "here").read_text() == f"{id}\n"
    id = carve("enqueue", *options, "--grace", "1", "--", "sleep", "1000")
    wait_until(lambda: docker.docker("ps", "-q").stdout)
    carve("job", "cancel", id)
    wait_until(lambda: json.loads(carve("job", "show", id, "--json"))["state"] == "cancelled")
    wait_until(lambda: not docker.docker("ps", "-aq").stdout)
    # The container of a job whose shim was killed has gone by the end of the job, too.
    id = carve("enqueue", *options, "--grace", "1", "--", "sleep", "1000")
    wait_until(lambda: docker.docker("ps", "-q").stdout)
    shim, = [int(p.parent.name) for p in pathlib.Path("/proc").glob("[0-9]*/cmdline")
             if (words := p.read_bytes().split(b"\0"))[0].endswith(b"carve-shim") and f"{id}.1".encode() in words
             and (p.parent / "comm").read_text() == "carve-shim\n"
             and docker.host.env["CARVE_RUNTIME_DIR"].encode() in (p.parent / "environ").read_bytes()]
    os.kill(shim, signal.SIGKILL)
    wait_until(lambda: process_ended(shim))
    carve("job", "cancel", id)
    wait_until(lambda: json.loads(carve("job", "show", id, "--json"))["state"] == "cancelled")
    assert not docker.docker("ps", "-aq").stdout
    carve("agent", "--stop")


def test_a_job_runs_in_a_container_of_apptainer(make_host, tmp_path):
    """A stand-in that writes down what it is called with, as the directory of its program is first in the PATH."""
    host, program = make_host("h100-80gb"), tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/said\necho "$CARVE_JOB_ID" >> {tmp_path}/said\nexit 7\n')
    program.chmod(0o755)
    env = {"PATH": f"{program.parent}:{os.environ['PATH']}", "CARVE_CONTAINER_RUNTIME": "apptainer"}
    assert host.carve("agent", "--detached", "--queue", "q=0.5", env=env).returncode == 0
    done = host.carve("enqueue", "--json", "--wait", "--queue", "q", "--docker", "train.sif", "--docker-arg=--cleanenv", "--chdir",
                      str(tmp_path), "--", "python3", "train.py", env=env)
    shown, = json.loads(done.stdout)
    assert shown["state"] == "failed" and shown["exit_code"] == 7, shown
    said = (tmp_path / "said").read_text().splitlines()
    assert said[0] == "exec" and f"--bind={tmp_path}:{tmp_path}" in said and f"--pwd={tmp_path}" in said
    assert said[-5:] == ["--cleanenv", "train.sif", "python3", "train.py", shown["id"]]


def test_a_container_without_a_runtime_is_refused(make_host, tmp_path):
    host = make_host("h100-80gb")
    for argv in (["enqueue", "--queue", "q", "--docker", "busybox", "--", "true"], ["agent", "--queue", "q=0.5,docker=busybox"]):
        done = host.carve(*argv, env={"PATH": str(tmp_path)})
        assert done.returncode == 127 and "no container runtime is here" in done.stderr, done
        done = host.carve(*argv, env={"CARVE_CONTAINER_RUNTIME": "crio"})
        assert done.returncode == 127 and "names 'crio', which is not here" in done.stderr, done
