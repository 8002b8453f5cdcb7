"""crun and runc with podman, as root and as a user without rights: the same slices in all four."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile

import pytest

from conftest import Host, another_user_can_read, rest_long, wait_until
from nvidia_module import WITH_CGROUP_2
from podman_host import BUSYBOX, CARVE, Podman, kept_removed

# One process of tests makes the storage of each runtime and user.
pytestmark = pytest.mark.xdist_group("runtimes")
USER = 54321  # nobody's
AS_USER = ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups"]


class Runtime(Podman):
    """podman on a host with version 2 of cgroups: crun refuses one with both."""

    def __init__(self, directory, runtime, user):
        # crun's program for devices needs more locked memory than a machine of tests has.
        self.OPTIONS = ["--runtime", runtime, "--network=none", "--pids-limit=-1", *(["--cgroups=disabled"] if runtime == "crun" else [])]
        super().__init__(directory, [*WITH_CGROUP_2, *(AS_USER if user else [])], user)
        self.user = user

    def run(self, *argv, options=()):
        return self("podman", *options, "run", *self.OPTIONS, "--env", "SIMGPU_HOST=" + self.host.env["SIMGPU_HOST"], *argv)

    def carve(self, *argv):
        return self(CARVE, "podman", "run", *self.OPTIONS, *argv)

    def command(self, *argv):
        return self(CARVE, *argv)

    def nothing_is_left(self):
        wait_until(lambda: "[]" in self(CARVE, "session", "list", "--json").stdout)

    def end(self):
        """podman as a user leaves a process that holds its namespace."""
        for file in self.directory.glob("**/pause.pid"):
            with contextlib.suppress(OSError, ValueError):
                pid = int(file.read_text())
                # It may have ended, and another process have its number.
                if os.stat(f"/proc/{pid}").st_uid == USER:
                    os.kill(pid, signal.SIGKILL)


@pytest.fixture(scope="module", params=rest_long(["crun-user", "runc-root", "crun-root", "runc-user"], 2))
def podman(request):
    runtime, who = request.param.split("-")
    user = USER if who == "user" else 0
    if os.environ.get("CARVE_TEST_GPU") or os.geteuid() != 0 or not BUSYBOX or not shutil.which("podman") or not shutil.which(runtime):
        pytest.skip(f"needs a simulated host, root, busybox, podman and {runtime}")
    if user and not another_user_can_read():
        pytest.skip("needs a checkout that other users can read")
    host = Host("h100-80gb", wrap=AS_USER if user else [])
    with tempfile.TemporaryDirectory(prefix="rt-", ignore_cleanup_errors=True) as directory:
        os.chmod(directory, 0o755)
        made = Runtime(pathlib.Path(directory), runtime, user)
        try:
            if not made.works:
                pytest.skip(f"podman cannot run a container with {request.param} here: {made.why}")
            made.host = host
            yield made
        finally:
            made.clean()
            kept_removed(directory)
            made.end()
            host.close()


def test_carves_command_makes_a_slice(podman):
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "hog")
    assert done.returncode == 0 and "this GPU has 2048 MiB" in done.stdout, done.stderr
    podman.nothing_is_left()


def test_the_daemon_knows_a_containers_first_process_before_it_runs(podman):
    """Where the driver limits cgroups, the daemon has it limit the container's by then."""
    done = podman.carve("--vram", "2", "--detach", "--name", "known", podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    [session] = json.loads(podman.command("session", "list", "--json").stdout)
    assert json.loads(podman("podman", "inspect", "known").stdout)[0]["State"]["Pid"] in session["command_pids"]
    assert podman("podman", "rm", "--force", "--time", "0", "known").returncode == 0
    podman.nothing_is_left()


def test_the_hook_makes_a_slice_by_an_annotation(podman):
    hooks = podman.directory / "hooks"
    assert podman.command("hook", "install", "--hooks-dir", hooks).returncode == 0
    done = podman.run("--rm", "--annotation", "carve.vram=3GiB", podman.IMAGE, "hog", options=["--hooks-dir", hooks])
    assert done.returncode == 0 and "this GPU has 3072 MiB" in done.stdout, done.stderr
    podman.nothing_is_left()
    done = podman.run("--rm", "--annotation", "carve.vram=900GiB", podman.IMAGE, "true", options=["--hooks-dir", hooks])
    assert done.returncode != 0
    podman.nothing_is_left()


def test_a_detached_container_keeps_its_slice_and_has_what_exec_starts_in_it(podman):
    done = podman.carve("--vram", "2", "--detach", "--name", "one", podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    done = podman("podman", "exec", "one", "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr
    assert podman("podman", "rm", "--force", "--time", "0", "one").returncode == 0
    podman.nothing_is_left()
