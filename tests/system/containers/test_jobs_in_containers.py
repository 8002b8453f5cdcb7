"""Jobs in containers: `--docker IMAGE` of a job, its queue or its agent."""
import json

import pytest

from conftest import BUILD, wait_until
from podman_host import podman, storage  # noqa: F401: fixtures

CARVE = BUILD / "carve"


def job(podman, *argv, options=()):
    """A job that has ended, and its output."""
    done = podman(str(CARVE), "enqueue", "--json", "--wait", "--queue", "q", *options, "--", *argv)
    shown, = json.loads(done.stdout)
    return shown, podman(str(CARVE), "job", "logs", shown["id"]).stdout


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
    refused = podman(str(CARVE), "enqueue", "--queue", "q", "--docker-arg=--privileged", "--", "true")
    assert refused.returncode == 2 and "does not allow --privileged" in refused.stderr
    # Another image for the same job; one that is not there.
    again = podman(str(CARVE), "job", "clone", shown["id"], "--docker", "localhost/carve-no-such:1", "--docker-arg=--pull=never")
    podman(str(CARVE), "job", "wait", again.stdout.strip())
    assert json.loads(podman(str(CARVE), "job", "show", again.stdout.strip(), "--json").stdout)["exit_code"] == 125
    podman.nothing_is_left()


def test_a_jobs_container_ends_with_the_job(podman):
    assert podman(str(CARVE), "agent", "--detached", "--queue", "q=0.5", "--docker", podman.IMAGE).returncode == 0
    id = podman(str(CARVE), "enqueue", "--queue", "q", "--grace", "1", "--docker-arg=--name=theirs", "--", "sleep", "1000").stdout.strip()
    wait_until(lambda: "theirs" in podman("podman", "ps", "--format", "{{.Names}}").stdout)
    assert podman(str(CARVE), "job", "cancel", id).returncode == 0
    wait_until(lambda: json.loads(podman(str(CARVE), "job", "show", id, "--json").stdout)["state"] == "cancelled")
    podman.nothing_is_left()
    wait_until(lambda: "theirs" not in podman("podman", "ps", "--format", "{{.Names}}").stdout)


def test_a_container_without_a_runtime_is_refused(make_host, tmp_path):
    host = make_host("h100-80gb")
    for argv in (["enqueue", "--queue", "q", "--docker", "busybox", "--", "true"], ["agent", "--queue", "q=0.5,docker=busybox"]):
        done = host.carve(*argv, env={"PATH": str(tmp_path)})
        assert done.returncode == 127 and "no container runtime is here" in done.stderr, done
