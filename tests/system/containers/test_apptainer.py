"""`carve apptainer exec`: programs of an image are in a slice; with apptainer where it is there, else with a stand-in."""
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from conftest import BUILD, wait_until
from podman_host import BUSYBOX, CARVE, root_file_system

# It writes down what it is called with.
STAND_IN = """#!/bin/sh
printf '%s\\n' "$@" > "$STAND_IN_LOG"
env | grep '^APPTAINERENV_' >> "$STAND_IN_LOG"
exit "${STAND_IN_CODE:-0}"
"""


@pytest.fixture
def stand_in(make_host, tmp_path):
    host = make_host("h100-80gb")
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()
    program.write_text(STAND_IN)
    program.chmod(0o755)

    def call(*argv, code=0):
        done = host.run([CARVE, "apptainer", *argv], env={"PATH": f"{program.parent}:{os.environ['PATH']}",
                                                         "STAND_IN_LOG": str(tmp_path / "log"), "STAND_IN_CODE": str(code)})
        log = tmp_path / "log"
        return done, log.read_text().splitlines() if log.exists() else []
    call.host = host
    return call


def nothing_is_left(host):
    wait_until(lambda: host.carve_json("session", "list") == [])


@pytest.mark.parametrize("verb", ["exec", "run", "shell"])
def test_all_else_is_apptainers(stand_in, verb):
    done, said = stand_in(verb, "--nv", "-c", "--vram=2", "-B", "/a:/b", "-W/tmp/x", "--env", "A=1", "--cleanenv", "my image.sif", "x",
                          "--vram", "9", code=7)
    assert done.returncode == 7, done.stderr
    assert said[0] == verb
    words = said[:next(i for i, word in enumerate(said) if word.startswith("APPTAINERENV_"))]
    assert words[-12:] == ["--nv", "-c", "-B", "/a:/b", "-W/tmp/x", "--env", "A=1", "--cleanenv", "my image.sif", "x", "--vram", "9"]
    assert any(word.startswith("--bind=") and word.endswith(":/etc/ld.so.preload:ro") for word in words)
    assert any(line.startswith("APPTAINERENV_CARVE_SESSION=s-") for line in said)
    # Files written for the container go with it.
    bound = next(word for word in words if word.endswith(":/etc/ld.so.preload:ro"))
    file = pathlib.Path(bound[len("--bind="):].split(":")[0])
    wait_until(lambda: not file.exists())
    nothing_is_left(stand_in.host)


@pytest.mark.parametrize("argv, said", [
    (["exec", "--vram", "2"], "the image is missing"),
    (["exec", "--vram"], "--vram needs a value"),
    (["exec", "--nv", "IMAGE", "true"], "no size given"),
    (["shell", "--vrm", "2", "IMAGE"], "did you mean --vram?"),
    (["run", "--vram", "900", "IMAGE"], "more than there is"),
])
def test_refusals_have_one_line(stand_in, argv, said):
    done, called = stand_in(*argv)
    assert done.returncode == 125 and said in done.stderr and len(done.stderr.splitlines()) == 1 and not called, done.stderr


# ---- apptainer itself ----

@pytest.fixture(scope="module")
def image():
    if not shutil.which("apptainer") or not BUSYBOX:
        pytest.skip("needs apptainer and busybox")
    with tempfile.TemporaryDirectory(prefix="app-", ignore_cleanup_errors=True) as directory:
        root = pathlib.Path(directory, "root")
        root_file_system(root)
        done = subprocess.run(["apptainer", "exec", *OPTIONS, root, "true"], capture_output=True, text=True)
        if done.returncode != 0:
            pytest.skip("apptainer cannot run a container here: " + done.stderr[-200:])
        yield root


# As any user of the machine, also where the tests are root's.
OPTIONS = ["--userns"]


@pytest.mark.parametrize("options", [[], ["--cleanenv"], ["--containall"], ["--nv"], ["--writable-tmpfs"]])
def test_a_program_of_an_image_is_in_the_slice(make_host, image, options):
    host = make_host("h100-80gb")
    done = host.run([CARVE, "apptainer", "exec", *OPTIONS, *options, "--vram", "2", image, "hog"])
    assert done.returncode == 0 and "this GPU has 2048 MiB" in done.stdout, done.stderr + done.stdout
    nothing_is_left(host)


def test_programs_of_several_containers_share_a_session(make_host, image):
    host = make_host("h100-80gb")
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    for command in (["hog"], ["/bin/env", "-i", "SIMGPU_HOST=" + host.env["SIMGPU_HOST"], "/bin/hog"]):
        done = host.run([CARVE, "apptainer", "exec", *OPTIONS, "--session", session, image, *command])
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr + done.stdout
    assert [s["id"] for s in host.carve_json("session", "list")] == [session]


def test_a_killed_container_gives_its_slice_back(make_host, image):
    host = make_host("h100-80gb")
    client = host.popen([CARVE, "apptainer", "exec", *OPTIONS, "--vram", "2", image, "sh", "-c", "hog; exec sleep 1000"])
    wait_until(lambda: host.carve_json("session", "list"))
    client.kill()
    client.wait(60)
    nothing_is_left(host)
