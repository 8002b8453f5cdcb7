"""`carve podman run`: containers of an image that knows nothing of carve are in a slice."""
import json
import os
import shutil
import subprocess

import pytest

from conftest import BUILD, wait_until

CARVE = BUILD / "carve"
HOG = BUILD / "examples/hog"
BUSYBOX = shutil.which("busybox")
# The runtime's own settings: as they work in a test's sandbox, and all its files in one place.
CONF = '[containers]\ndefault_ulimits = []\n[engine]\nruntime = "runc"\ncgroup_manager = "cgroupfs"\nevents_logger = "file"\n'


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


class Podman:
    """A simulated host on which `podman` has its own storage, with one image."""
    IMAGE = "localhost/carve-test:1"

    def __init__(self, tmp_path):
        self.host = None
        (tmp_path / "containers.conf").write_text(CONF)
        (tmp_path / "storage.conf").write_text(
            f'[storage]\ndriver = "vfs"\ngraphroot = "{tmp_path}/storage"\nrunroot = "{tmp_path}/storage-run"\n')
        self.env = {"CONTAINERS_CONF": str(tmp_path / "containers.conf"),
                    "CONTAINERS_STORAGE_CONF": str(tmp_path / "storage.conf"), "TMPDIR": str(tmp_path)}
        root_file_system(tmp_path / "root")
        tar = subprocess.run(["tar", "-C", tmp_path / "root", "-c", "."], capture_output=True).stdout
        done = subprocess.run(["podman", "import", "-", self.IMAGE], input=tar, capture_output=True,
                              env={**os.environ, **self.env})
        ran = done.returncode == 0 and subprocess.run(
            ["podman", "run", "--rm", self.IMAGE, "true"], capture_output=True, env={**os.environ, **self.env})
        self.works = ran and ran.returncode == 0

    def __call__(self, *argv, **kw):
        return self.host.run(list(argv), env=self.env, **kw)

    def carve(self, *argv, **kw):
        return self(str(CARVE), "podman", "run", *argv, **kw)

    def sessions(self):
        return json.loads(self.host.carve("session", "list", "--json").stdout)

    def nothing_is_left(self):
        wait_until(lambda: not self.sessions())


@pytest.fixture(scope="module")
def storage(tmp_path_factory):
    if os.geteuid() != 0 or not shutil.which("podman") or not BUSYBOX:
        pytest.skip("needs root, podman and busybox")
    made = Podman(tmp_path_factory.mktemp("podman"))
    if not made.works:
        pytest.skip("podman cannot run a container here")
    return made


@pytest.fixture
def podman(storage, make_host):
    storage.host = make_host("h100-80gb")
    yield storage
    storage("podman", "rm", "--all", "--force", "--time", "0")


def test_a_containers_gpu_is_the_slice(podman):
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "hog")
    assert done.returncode == 0, done.stderr
    assert "this GPU has 2048 MiB" in done.stdout and "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    podman.nothing_is_left()


def test_all_else_is_the_runtimes(podman):
    done = podman.carve("--vram=2", "-e", "WORD=a b", "--workdir", "/tmp", "--rm", podman.IMAGE, "sh", "-c",
                        "echo $WORD $PWD $0; exit 7", "--vram")
    assert done.returncode == 7 and done.stdout == "a b /tmp --vram\n", done.stderr
    podman.nothing_is_left()


def test_a_detached_container_keeps_its_slice_until_it_is_gone(podman):
    """Its client has ended; programs that come later are in the slice, too, and so after a restart of the daemon."""
    assert podman.carve("--vram", "2", "--detach", "--name", "one", podman.IMAGE, "sleep", "600").returncode == 0
    session, = podman.sessions()

    def inside():
        done = podman("podman", "exec", "one", "hog")
        assert "this GPU has 2048 MiB" in done.stdout, done.stderr

    inside()
    pid = json.loads(podman.host.carve("check", "--json").stdout)["daemon"]["pid"]
    os.kill(pid, 9)
    wait_until(lambda: podman.sessions() and podman.sessions()[0]["id"] == session["id"])
    inside()
    assert podman("podman", "stop", "--time", "0", "one").returncode == 0
    podman.nothing_is_left()


def test_containers_of_one_session(podman):
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    for _ in range(2):
        done = podman.carve("--session", session, "--rm", podman.IMAGE, "hog")
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr
    assert [s["id"] for s in podman.sessions()] == [session]


def test_a_program_that_cannot_load_the_front_gets_no_gpu(podman):
    """Static ones, and those that find the driver by its name, find none: it is where only the front looks."""
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "sh", "-c", "ls /usr/lib/*/ /lib/*/ 2>/dev/null; true")
    assert "libc.so.6" in done.stdout and "libcuda" not in done.stdout
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "cat", "/etc/ld.so.preload")
    assert done.stdout.splitlines() == ["/run/carve-slice/front/libcuda.so.1", "/run/carve-slice/front/libnvidia-ml.so.1"]


@pytest.mark.parametrize("argv, code, said", [
    (["--vram", "2"], 125, "the image is missing"),
    (["--vram"], 125, "--vram needs a value"),
    (["--vram", "x", "IMAGE"], 125, "--vram"),
    (["--rm", "IMAGE", "true"], 125, "no size given"),
    (["--vram", "900", "IMAGE"], 125, "more than there is"),
])
def test_refusals_have_one_line(podman, argv, code, said):
    done = podman.carve(*[podman.IMAGE if word == "IMAGE" else word for word in argv])
    assert done.returncode == code and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not podman.sessions()


def test_a_container_that_does_not_start_gives_its_slice_back(podman):
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "no-such-program")
    assert done.returncode == 127
    podman.nothing_is_left()
