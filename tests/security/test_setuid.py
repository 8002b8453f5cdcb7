"""A user's words to set-user-ID programs in a slice: what runs with others' rights believes root alone."""
import os
import pathlib
import shutil
import signal
import struct
import subprocess
import sys

import pytest

from conftest import BUILD, rest_long, wait_until
from reaching import REACH, driver_of

from .lab import ALICE, CARVE, GIB, MALLORY, PROGRAMS, ROOT, as_user
from .test_warden_service import service  # noqa: F401

POINT = "2"
SLICE = 2 * GIB
FRONT = BUILD / "src/front/libcuda.so.1"
HERE = pathlib.Path(__file__).parent
SIM_HOST = "SIMGPU_HOST"


@pytest.fixture
def place(lab):
    """A directory of the test's in which programs may be set-user-ID."""
    if os.statvfs(lab.dir).f_flag & os.ST_NOSUID:
        pytest.skip(f"{lab.dir} is mounted nosuid")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    place = lab.dir / "programs"
    place.mkdir(mode=0o755)
    return place


def set_user_id(place, program, mode=0o4755):
    copy = place / program.name
    shutil.copy(program, copy)
    copy.chmod(mode)
    return copy


class Trap:
    """The attacker's tools: a library for the driver, where it leaves its mark, and a server that notes what it is sent."""

    def __init__(self, lab, kind="attach"):
        self.lab = lab
        self.dir = lab.home(MALLORY)
        self.mark = lab.dir / "mark"  # everybody writes it, once it is there
        self.mark.touch()
        self.mark.chmod(0o666)
        self.library = self.dir / "libcuda.so.1"
        shutil.copy(PROGRAMS / "evil_driver.so", self.library)
        self.dir.chmod(0o755)
        self.log = self.dir / "heard"
        self.socket = self.dir / ("driver.sock" if kind == "driver" else "attach.sock")
        server = lab.popen(MALLORY, sys.executable, HERE / "fake_server.py", self.log, "attach", self.socket)
        assert server.stdout.readline() == "up\n", server.communicate()[1]

    def check(self):
        """Nobody with another user's rights obeyed."""
        users = set(self.mark.read_text().split())
        assert users <= {str(MALLORY)}, f"the attacker's library ran as {users}"
        assert not self.log.exists() or not self.log.read_text(), "the attacker's server was spoken to"


@pytest.fixture
def trap(lab):
    return Trap(lab)


def in_roots_slice(lab, *argv, env=None):
    """As Mallory, in the mount namespace of a slice of root's."""
    words = [f"{name}={value}" for name, value in (env or {}).items()]
    return lab.run(ROOT, CARVE, "run", "--isolation", "mount", "--vram", "2",
                   *as_user(MALLORY, bounding=False), "env", *words, *argv, bounding=False)


# Ways to name another driver, session or daemon. In each, DIR is the attacker's directory.
WORDS = {
    "the driver's path": {"CARVE_DRIVER_CUDA": "DIR/libcuda.so.1", "CARVE_DRIVER_NVML": "DIR/libcuda.so.1"},
    "a relative path": {"CARVE_DRIVER_CUDA": "libcuda.so.1", "LD_LIBRARY_PATH": "."},
    "where libraries are": {"LD_LIBRARY_PATH": "DIR", "CARVE_DRIVER_CUDA": ""},
    "a library to preload": {"LD_PRELOAD": "DIR/libcuda.so.1", "LD_AUDIT": "DIR/libcuda.so.1"},
    "a session of a daemon of its own": {"CARVE_SESSION": "s-mallory", "CARVE_ATTACH": "DIR/attach.sock",
                                         "CARVE_DRIVER_CUDA": "DIR/libcuda.so.1"},
}


@pytest.mark.attack(POINT, "a set-user-ID program in a slice is given another driver, session or daemon by its caller's environment")
@pytest.mark.parametrize("words", rest_long(WORDS, 2))
def test_a_set_user_id_program_believes_no_environment(lab, place, trap, words):
    program = set_user_id(place, REACH)
    env = {name: value.replace("DIR", str(trap.dir)) for name, value in WORDS[words].items()}
    done = in_roots_slice(lab, "sh", "-c", f'cd {trap.dir}; exec "$0" "$@"', program, "path", driver_of(lab.host),
                          env=dict(env, EVIL_MARK=trap.mark))
    trap.check()
    assert done.returncode == 0, done.stderr
    assert int(done.stdout.split()[0]) == SLICE  # it is root's slice all the same


@pytest.mark.attack(POINT, "a program that a set-user-ID program starts has its caller's environment, and root's rights")
def test_the_child_of_a_set_user_id_program_believes_the_slice(lab, place, trap):
    program = set_user_id(place, PROGRAMS / "become_root")
    env = {"CARVE_DRIVER_CUDA": trap.library, "CARVE_DRIVER_NVML": trap.library, "CARVE_SESSION": "s-mallory",
           "CARVE_ATTACH": trap.socket, "EVIL_MARK": trap.mark}
    done = in_roots_slice(lab, program, REACH, "path", driver_of(lab.host), env=env)
    trap.check()
    assert int(done.stdout.split()[0]) == SLICE, done.stderr


@pytest.mark.attack(POINT, "a program with file capabilities is given another driver by its caller's environment")
def test_a_program_with_file_capabilities_believes_no_environment(lab, place, trap):
    program = set_user_id(place, REACH, 0o755)
    # struct vfs_cap_data, version 2 with the effective bit: CAP_NET_RAW, which does no harm here.
    try:
        os.setxattr(program, "security.capability", struct.pack("<5I", 0x02000001, 1 << 13, 0, 0, 0))
    except OSError as error:
        pytest.skip(f"no file capabilities in {place}: {error}")
    done = in_roots_slice(lab, program, "path", driver_of(lab.host),
                          env={"CARVE_DRIVER_CUDA": trap.library, "EVIL_MARK": trap.mark})
    assert trap.mark.read_text() == "", "the attacker's library ran with the capabilities"
    assert int(done.stdout.split()[0]) == SLICE, done.stderr


@pytest.mark.attack(POINT, "a set-user-ID program in nobody's slice, with the front before the driver, is named a slice by its caller")
def test_without_a_slice_a_set_user_id_program_gets_nothing(lab, place, trap):
    """The front lies over the driver here, and no file says which slice it is: the environment must not either."""
    program = set_user_id(place, REACH)
    driver = driver_of(lab.host)
    script = f'mount --bind {FRONT} {driver} && exec "$@"'
    done = lab.run(ROOT, "unshare", "-m", "sh", "-c", script, "sh", *as_user(MALLORY, bounding=False), "env",
                   f"CARVE_DRIVER_CUDA={trap.library}", "CARVE_SESSION=s-x", f"CARVE_ATTACH={trap.socket}",
                   f"EVIL_MARK={trap.mark}", program, "path", driver, bounding=False)
    trap.check()
    assert done.returncode != 0


@pytest.mark.attack(POINT, "root enters a mount namespace in which its user made the slice's file")
def test_a_slice_file_of_another_users_is_not_believed(lab, trap):
    """A user namespace gives Mallory a /run of her own; who joins it from outside is not of her making."""
    script = ("mount -t tmpfs x /run && mkdir /run/carve-slice && "
              'printf "CARVE_DRIVER_CUDA=%s\\nCARVE_SESSION=s-x\\nCARVE_ATTACH=%s\\n" "$0" "$1" '
              ">/run/carve-slice/environment && echo ready && exec cat")
    maker = lab.popen(MALLORY, "unshare", "-Urm", "sh", "-c", script, trap.library, trap.socket)
    if maker.stdout.readline() != "ready\n":
        pytest.skip("users may make no namespaces here: " + maker.communicate()[1])
    done = lab.run(ROOT, "nsenter", f"--mount=/proc/{maker.pid}/ns/mnt", "env", f"LD_PRELOAD={FRONT}",
                   f"EVIL_MARK={trap.mark}", REACH, "path", "libcuda.so.1")
    trap.check()
    assert done.returncode != 0 and done.stdout == "" and "it is in no session" in done.stderr
    maker.communicate("", timeout=60)


@pytest.mark.attack(POINT, "a slice's file where a group may write (/srv, /usr/local), with a link to a file of root's")
@pytest.mark.parametrize("how", rest_long(["link to a directory", "own directory", "hard link"]))
def test_a_slice_file_in_a_place_of_others_is_not_believed(lab, trap, how):
    """An administrator lets Mallory write in /srv, one of the directories that are looked at."""
    place = lab.dir / "srv"
    place.mkdir()
    os.chown(place, MALLORY, MALLORY)
    words = f"CARVE_DRIVER_CUDA={trap.library}\nCARVE_SESSION=s-x\nCARVE_ATTACH={trap.socket}\n"
    slice_dir = place / "carve-slice"
    roots = lab.dir / "roots"  # root wrote it for another purpose, what the attacker wanted in it
    roots.mkdir(mode=0o755)
    (roots / "environment").write_text(words)
    if how == "own directory":
        slice_dir.mkdir()
        (slice_dir / "environment").write_text(words)
        for path in (slice_dir, slice_dir / "environment"):
            os.chown(path, MALLORY, MALLORY)
    elif how == "link to a directory":
        slice_dir.symlink_to(roots)
    else:
        slice_dir.mkdir()
        os.link(roots / "environment", slice_dir / "environment")
        os.chown(slice_dir, MALLORY, MALLORY)
    done = lab.run(ROOT, "unshare", "-m", "sh", "-c", f'mount --bind {place} /srv && exec "$@"', "sh", "env",
                   f"LD_PRELOAD={FRONT}", f"EVIL_MARK={trap.mark}", REACH, "path", "libcuda.so.1")
    trap.check()
    assert done.returncode != 0 and done.stdout == "" and "it is in no session" in done.stderr


@pytest.mark.attack(POINT, "a set-user-ID program is given a simulated host of its caller's")
def test_a_set_user_id_program_joins_no_simulated_host_of_its_callers(lab, place):
    program = set_user_id(place, REACH)
    trap = Trap(lab, "driver")
    done = in_roots_slice(lab, program, "path", driver_of(lab.host), env={SIM_HOST: trap.dir})
    trap.check()
    assert done.returncode != 0
    # A link of the attacker's to root's host is no directory of root's.
    (trap.dir / "link").symlink_to(lab.host.env[SIM_HOST])
    done = in_roots_slice(lab, program, "path", driver_of(lab.host), env={SIM_HOST: trap.dir / "link"})
    assert done.returncode != 0


def test_honest_programs_still_read_their_environment(lab, place):
    """A program that is not set-user-ID, in a slice by preloading: the environment is all that it has."""
    granted = lab.carve(ALICE, "run", "--isolation", "preload", "--vram", "2", REACH, "path", "libcuda.so.1")
    assert int(granted.stdout.split()[0]) == SLICE, granted.stderr
    program = set_user_id(place, REACH)
    done = in_roots_slice(lab, program, "path", driver_of(lab.host))
    assert int(done.stdout.split()[0]) == SLICE, done.stderr


@pytest.fixture
def warden(service):  # noqa: F811
    """A service of its own, which may be stopped while the supervisor is not; it goes on in the end."""
    pid = service.warden.pid
    yield pid
    os.kill(pid, signal.SIGCONT)


def test_a_slow_warden_keeps_no_program_of_a_slice_out(lab, place, warden):
    """It alone can tell which slice a program of another user is in. On a busy machine its answer comes late. A command that
    begins meanwhile has no limit of the driver's yet, and is refused: test_limits.py."""
    program = set_user_id(place, REACH, 0o755)
    script = 'echo begins; read go; exec "$@"'
    running = lab.popen(ROOT, CARVE, "run", "--isolation", "mount", "--vram", "2", *as_user(MALLORY, bounding=False),
                        "sh", "-c", script, "sh", program, "path", driver_of(lab.host), bounding=False)
    assert running.stdout.readline() == "begins\n"
    os.kill(warden, signal.SIGSTOP)
    running.stdin.write("go\n")
    running.stdin.flush()
    wait_until(lambda: "attach.busy" in lab.log())
    os.kill(warden, signal.SIGCONT)
    out, err = running.communicate(timeout=60)
    assert int(out.split()[-1]) == SLICE, (out, err)
