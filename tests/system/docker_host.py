"""docker, with a daemon of the tests' own."""
import contextlib
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import pytest

from conftest import BUILD, Host, wait_until
from podman_host import BUSYBOX, CARVE, kept_removed, once_for_all, root_file_system

# Others than the distribution's: a list of directories with dockerd, docker and containerd.
PLACES = os.environ.get("CARVE_TEST_DOCKER_PATH", "")
PATH = f"{PLACES}:{os.environ['PATH']}:/usr/sbin" if PLACES else f"{os.environ['PATH']}:/usr/sbin"
IMAGE = "carve-test:1"


class Docker:
    """A simulated host, and dockerd with its files in a directory of its own."""

    def __init__(self, host, directory):
        self.host, self.directory = host, directory
        self.socket = directory / "docker.sock"
        self.env = {"DOCKER_HOST": f"unix://{self.socket}", "DOCKER_CONFIG": str(directory / "config"), "PATH": PATH}
        # docker takes --gpus where it finds NVIDIA's hook, or carve's under that name.
        (directory / "bin").mkdir()
        (directory / "bin/nvidia-container-runtime-hook").symlink_to(BUILD / "carve-hook")
        self.log = open(directory / "dockerd.log", "w")
        self.daemon, self.wrap = None, ()

    def start(self):
        self.daemon = subprocess.Popen(
            [*self.wrap, "dockerd", "--config-file", self.directory / "daemon.json", "--data-root", self.directory / "data",
             "--exec-root", self.directory / "exec", "--pidfile", self.directory / "pid", "--host", f"unix://{self.socket}",
             "--bridge", "none", "--iptables=false", "--ip6tables=false", "--storage-driver", "vfs",
             "--live-restore", "--exec-opt", "native.cgroupdriver=cgroupfs"],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log,
            env={**os.environ, **self.host.env, **self.env, "PATH": f"{PATH}:{self.directory}/bin"})

        def up():
            return self.daemon.poll() is not None or self.docker("version").returncode == 0
        wait_until(up)
        return self.daemon.poll() is None

    def read_cdi(self):
        """Has it read CDI specs of the test's own directory, where it is new enough to read any."""
        said = subprocess.run(["dockerd", "--version"], capture_output=True, text=True, env={**os.environ, "PATH": PATH}).stdout
        self.cdi = self.directory / "cdi" if int(re.search(r"(\d+)\.", said).group(1)) >= 25 else None
        if self.cdi:
            self.cdi.mkdir()
            file = self.directory / "daemon.json"
            settings = {**json.loads(file.read_text()), "features": {"cdi": True}, "cdi-spec-dirs": [str(self.cdi)]}
            file.write_text(json.dumps(settings))

    def stop(self):
        if self.daemon and self.daemon.poll() is None:
            self.daemon.terminate()
            self.daemon.wait(60)

    def docker(self, *argv, **kw):
        return self.host.run(["docker", *map(str, argv)], env=self.env, **kw)

    def carve(self, *argv, **kw):
        return self.host.run([CARVE, "docker", "run", "--network", "none", *argv], env=self.env, **kw)

    def run(self, *argv, **kw):
        return self.docker("run", "--rm", "--network", "none", *argv, **kw)

    def build(self, name, *lines):
        (self.directory / "empty").mkdir(exist_ok=True)
        file = self.directory / "Dockerfile"
        file.write_text("\n".join((f"FROM {IMAGE}", *lines)) + "\n")
        done = self.docker("build", "-q", "-t", name, "-f", file, self.directory / "empty")
        assert done.returncode == 0, done.stderr
        return name

    def sessions(self):
        return json.loads(self.host.carve("session", "list", "--json").stdout)

    def nothing_is_left(self):
        wait_until(lambda: not self.sessions())

    def clean(self):
        ids = self.docker("ps", "-aq").stdout.split()
        if ids:
            self.docker("rm", "-f", *ids)


@contextlib.contextmanager
def docker_engine(wrap=lambda host: (), driver=None, hooked=True):
    """`wrap` gives the words before dockerd's, which has been told of carve's hook."""
    if os.environ.get("CARVE_TEST_GPU") or os.geteuid() != 0 or not BUSYBOX:
        pytest.skip("needs a simulated host, root and busybox")
    if not shutil.which("dockerd", path=PATH) or not shutil.which("docker", path=PATH):
        pytest.skip("needs dockerd and docker")
    with tempfile.TemporaryDirectory(prefix="dk-", ignore_cleanup_errors=True) as directory:
        made = Docker(Host("h100-80gb:2", driver), pathlib.Path(directory))
        made.wrap = wrap(made.host)
        try:
            # Its environment is the hook's.
            (made.directory / "daemon.json").write_text("{}")
            if hooked:
                done = made.host.carve("hook", "install", "--docker-dir", directory)
                assert done.returncode == 0, done.stderr
            made.read_cdi()
            if not made.start():
                pytest.skip("dockerd does not start here")
            root_file_system(made.directory / "root")
            tar = subprocess.run(["tar", "-C", made.directory / "root", "-c", "."], capture_output=True).stdout
            subprocess.run(["docker", "import", "-", IMAGE], input=tar, check=True, capture_output=True,
                           env={**os.environ, **made.env})
            if made.run(IMAGE, "true").returncode != 0:
                pytest.skip("docker cannot run a container here")
            yield made
        finally:
            if made.daemon and made.daemon.poll() is None:
                made.clean()
            kept_removed(directory)
            made.stop()
            made.host.close()


# ---- fixtures ----

@pytest.fixture
def engine(request):
    """dockerd, for the tests of all modules: they are of one group, so that one process of tests starts one."""
    return once_for_all(request.config, docker_engine)


@pytest.fixture
def docker(engine):
    yield engine
    engine.clean()
    engine.nothing_is_left()
