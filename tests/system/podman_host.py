"""A simulated host on which podman runs containers of an image that knows nothing of carve."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from conftest import BUILD, wait_until

CARVE = BUILD / "carve"
HOG = BUILD / "examples/hog"
BUSYBOX = shutil.which("busybox")
# The runtime's own settings: as they work in a test's sandbox, and all its files (locks, too: tests run side by side) in
# one place. A network of a container's own is half of the work of its start: a test that needs one asks for it.
CONF = '[containers]\ndefault_ulimits = []\nnetns = "none"\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\nlock_type = "file"\n'


def libraries_of(*programs):
    for program in programs:
        for line in subprocess.run(["ldd", program], capture_output=True, text=True).stdout.splitlines():
            words = line.split()
            if "=>" in words and words[2].startswith("/") and "/sim/" not in words[2]:
                yield words[2]
            elif words and "ld-linux" in words[0]:
                yield words[0]


def root_file_system(root):
    """busybox, an example that allocates until it is refused, and what these and the simulated driver load."""
    for name in ("bin", "etc", "tmp", "proc", "sys", "dev", "run"):
        (root / name).mkdir(parents=True)
    shutil.copy(BUSYBOX, root / "bin/busybox")
    for name in ("sh", "sleep", "true", "cat", "ls", "env"):
        (root / "bin" / name).symlink_to("busybox")
    shutil.copy(HOG, root / "bin/hog")
    for library in set(libraries_of(HOG, BUILD / "sim/libcuda.so.1", BUILD / "sim/libnvidia-ml.so.1")):
        place = root / library.lstrip("/")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(library, place)


def watchers(directory):
    """Commands of carve's that look after containers of a runtime whose files are in this directory."""
    for status in pathlib.Path("/proc").glob("[0-9]*/comm"):
        with contextlib.suppress(OSError):
            if status.read_text() == "carve\n" and f"{directory}/".encode() in (status.parent / "environ").read_bytes():
                yield status


def kept_removed(directory):
    """Removes what carve kept for containers that ended with their runtime; before the runtime's files are removed."""
    wait_until(lambda: not list(watchers(directory)))
    for note in pathlib.Path("/var/tmp").glob("carve-container-*/kept"):
        if f"{directory}/" in note.read_text():
            shutil.rmtree(note.parent)


class Podman:
    """A simulated host on which `podman` has its own storage, with one image."""
    IMAGE = "localhost/carve-test:1"
    OPTIONS = ()

    def __init__(self, tmp_path, wrap=(), user=0):
        """`wrap`: words before each command, of a program that becomes `user` or gives it other mounts."""
        self.host, self.directory, self.wrap = None, tmp_path, list(wrap)
        (tmp_path / "containers.conf").write_text(
            CONF + f'tmp_dir = "{tmp_path}/libpod"\n')
        (tmp_path / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/storage"\nrunroot = "{tmp_path}/storage-run"\n'
            f'rootless_storage_path = "{tmp_path}/storage"\n[storage.options]\nignore_chown_errors = "{str(user != 0).lower()}"\n')
        self.env = {"CONTAINERS_CONF": str(tmp_path / "containers.conf"),
                    "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"), "TMPDIR": str(tmp_path)}
        root_file_system(tmp_path / "root")
        if user:
            self.become(user)
        tar = subprocess.run(["tar", "-C", tmp_path / "root", "-c", "."], capture_output=True).stdout
        done = subprocess.run([*wrap, "podman", "import", "-", self.IMAGE], input=tar, capture_output=True,
                              env={**os.environ, **self.env})
        ran = done.returncode == 0 and subprocess.run(
            [*wrap, "podman", "run", "--rm", *self.OPTIONS, self.IMAGE, "true"], capture_output=True, text=True,
            env={**os.environ, **self.env})
        self.works = ran and ran.returncode == 0
        self.why = (ran.stderr if ran else done.stderr.decode())[-300:]

    def become(self, user):
        for name in ("home", "xdg"):
            (self.directory / name).mkdir(mode=0o700)
        self.env.update({"HOME": str(self.directory / "home"), "XDG_RUNTIME_DIR": str(self.directory / "xdg")})
        subprocess.run(["chown", "-R", f"{user}:{user}", self.directory], check=True)

    def __call__(self, *argv, **kw):
        return self.host.run([*self.wrap, *argv], env=self.env, **kw)

    def carve(self, *argv, **kw):
        return self(str(CARVE), "podman", "run", *argv, **kw)

    def clean(self):
        """Removes the containers that a test left, if there are any: each start of podman is dear."""
        if all(json.loads(file.read_text()) == [] for file in self.directory.glob("storage/*-containers/*containers.json")):
            return
        subprocess.run([*self.wrap, "podman", "rm", "--all", "--force", "--time", "0"], capture_output=True,
                       env={**os.environ, **self.env})

    def sessions(self):
        return json.loads(self.host.carve("session", "list", "--json").stdout)

    def nothing_is_left(self):
        wait_until(lambda: not self.sessions())

    def with_cdi(self, specs, *argv, before=(), **kw):
        """podman 4 reads specs in /etc/cdi and /var/run/cdi alone: it gets an /etc of its own. `before`: words before it all."""
        layer = self.directory / "etc"
        layer.mkdir(exist_ok=True)
        script = """mount -t tmpfs tmpfs "$1" && mkdir "$1/up" "$1/work" &&
            mount -t overlay -o "lowerdir=/etc,upperdir=$1/up,workdir=$1/work" overlay /etc &&
            mkdir -p /etc/cdi && mount --bind "$2" /etc/cdi || exit 77
            shift 2; exec podman "$@" """
        return self(*before, "unshare", "--mount", "sh", "-c", script, "sh", layer, specs, *argv, **kw)


@contextlib.contextmanager
def podman_storage():
    """In a directory with a short name: podman waits 20 s at each end of a container whose sockets have long ones."""
    if os.geteuid() != 0 or not shutil.which("podman") or not BUSYBOX:
        pytest.skip("needs root, podman and busybox")
    with tempfile.TemporaryDirectory(prefix="pod-", ignore_cleanup_errors=True) as directory:
        made = Podman(pathlib.Path(directory))
        if not made.works:
            pytest.skip("podman cannot run a container here")
        try:
            yield made
        finally:
            made.clean()
            kept_removed(directory)


MADE = pytest.StashKey()


def once_for_all(config, manager):
    """What a context manager gives: entered at its first use in this process of tests, and left when the process ends."""
    made = config.stash.setdefault(MADE, {})
    if manager not in made:
        with contextlib.ExitStack() as stack:
            made[manager] = stack.enter_context(manager())
            config.add_cleanup(stack.pop_all().close)
    return made[manager]


# ---- fixtures ----

@pytest.fixture
def storage(request):
    """podman's storage, for the tests of all modules."""
    return once_for_all(request.config, podman_storage)


@pytest.fixture
def podman(storage, make_host):
    """podman on a simulated host of the test's own."""
    storage.host = make_host("h100-80gb")
    yield storage
    storage.clean()
