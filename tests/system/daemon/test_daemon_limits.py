"""The driver's own limits of cgroups (driver 615 and newer), which bind programs that go round the front."""
import contextlib
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess

import pytest

from cgroup_makers import cgroups, within  # noqa: F401: fixture
from cgroups import MOUNT
from conftest import BUILD, ON_GPU, Host, wait_until
from programs import python

pytestmark = pytest.mark.skipif(ON_GPU, reason="tests the simulated driver")

GIB = 1 << 30
OUT_OF_MEMORY = 2
STEPS = ["limit.recorded", "limit.entered", "limit.set"]
LAST_STEPS = ["limit.cleared", "limit.left"]


@pytest.fixture
def newer(cgroups):  # noqa: F811
    h = Host("h100-80gb", "615")
    h.home = cgroups.make()  # where its users' commands are started
    yield h
    h.close()


@pytest.fixture
def around(tmp_path):
    """The words of a program that loads the driver itself, round the front, and takes all the memory that it gets."""
    for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
        shutil.copy(BUILD / "sim" / name, tmp_path / name)
    return ["env", "-u", "LD_PRELOAD", f"LD_LIBRARY_PATH={tmp_path}", *python("take_all")]


def limits(host):
    return host.stat()["gpus"][0]["cgroup_limits"]


def daemon_log(host):
    return pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text()


def available(host):
    """The daemon has found out that it may set limits."""
    wait_until(lambda: host.carve_json("gpu", "list")[0]["backend"] == "cgroup")


def taken(done):
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def at_home(host, *argv):
    return within(host.home, BUILD / "carve", *argv)


def none_is_left(host):
    wait_until(lambda: not limits(host))
    wait_until(lambda: not [entry for entry in host.home.iterdir() if entry.is_dir()])


def test_a_program_that_goes_round_the_front_is_held(newer, around):
    available(newer)
    context, before, mib, managed = taken(newer.run(at_home(newer, "run", "--ephemeral", "--vram", "4", "--", *around)))
    assert context == 0 and before[1] == 4096, "the driver tells of the limit"
    assert 3000 < mib < 4096
    none_is_left(newer)


def test_an_honest_program_has_its_whole_slice(newer):
    available(newer)
    assert taken(newer.run(at_home(newer, "run", "--ephemeral", "--vram", "4", "--", *python("take_all"))))[2] >= 3328


def test_session_show_and_check_name_the_enforcing_backend(newer, around):
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    with newer.popen(at_home(newer, "run", "--session", session, "--", "sh", "-c", "echo begun; cat"),
                     stdin=subprocess.PIPE) as command:
        assert command.stdout.readline() == "begun\n"
        shown = newer.carve_json("session", "show", session)
        assert shown["backend"] == "cgroup" and shown["front_only_reason"] is None
        (limit,) = limits(newer)
        assert limit["hard_bytes"] == 2 * GIB and limit["soft_bytes"] == 0
        assert newer.carve("session", "resize", session, "--vram", "3").returncode == 0
        wait_until(lambda: limits(newer)[0]["hard_bytes"] == 3 * GIB)
        command.stdin.close()
    assert "driver binds every process in a session's cgroup" in newer.carve("check").stdout
    assert newer.carve("session", "release", session).returncode == 0
    none_is_left(newer)


def test_a_released_sessions_programs_keep_its_limit_until_they_end(newer, around):
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    with newer.popen(at_home(newer, "run", "--session", session, "--", "sh", "-c",
                             'trap "" TERM; echo begun; read go; exec "$@"', "sh", *around),
                     stdin=subprocess.PIPE) as command:
        assert command.stdout.readline() == "begun\n" and limits(newer)
        assert newer.carve("session", "release", "--force", session).returncode == 0
        out, _ = command.communicate("go\n")
        assert json.loads(out)[2] < 2048
    none_is_left(newer)


def test_a_cgroup_that_others_share_is_left_alone(newer, cgroups):  # noqa: F811
    """A process that attaches later than it began, as in a container of somebody's own making, is not moved."""
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    shared = cgroups.make()
    with inside(newer, shared), attached_in(newer, shared, session):
        shown = newer.carve_json("session", "show", session)
        assert shown["backend"] == "front" and "others share" in shown["front_only_reason"]
        assert "others share" in newer.carve("session", "show", session).stdout
        assert not limits(newer)


def test_a_container_in_a_cgroup_that_others_share_does_not_start(newer, cgroups):  # noqa: F811
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    shared = cgroups.make()
    with inside(newer, shared), inside(newer, shared) as contained:
        done = ask_to_hold(newer, session, contained.pid)
        assert done.returncode != 0 and "others share" in done.stdout, done.stdout
        assert not limits(newer)


ATTACHES = """
import os, pathlib, sys, types
sys.path.insert(0, sys.argv[1])
from attach_client import WORKLOAD, Attached
print(*Attached(types.SimpleNamespace(runtime=pathlib.Path(sys.argv[2]))).ask(WORKLOAD, sys.argv[3]), flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def attached_in(host, leaf, session):
    """A process there that has a slot of the session, as a front that was loaded by hand."""
    here = pathlib.Path(__file__).parents[1]
    with host.popen(within(leaf, "/usr/bin/python3", "-c", ATTACHES, here, host.env["CARVE_RUNTIME_DIR"], session),
                    stdin=subprocess.PIPE) as process:
        assert process.stdout.readline().startswith("0 "), "it is attached"
        yield
        process.stdin.close()


@contextlib.contextmanager
def inside(host, leaf):
    """A process in that cgroup, with mounts of its own, as the first one of a container."""
    with host.popen(within(leaf, "unshare", "--mount", "sh", "-c", "echo in; cat"), stdin=subprocess.PIPE) as contained:
        assert contained.stdout.readline() == "in\n"
        yield contained
        contained.stdin.close()


def hold(host, session, pid):
    """What the hook of a container does."""
    done = ask_to_hold(host, session, pid)
    assert done.returncode == 0, done.stdout + done.stderr


def ask_to_hold(host, session, pid):
    return host.run(["curl", "-sS", "--fail-with-body", "--unix-socket", host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", "-X", "POST",
                     "http://localhost/v1/commands", "-d", json.dumps({"session": session, "pid": pid})])


def test_a_containers_own_cgroup_carries_the_limit(newer, cgroups, around):  # noqa: F811
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    leaf = cgroups.make()
    with newer.popen(within(leaf, "sh", "-c", 'echo in; read go; exec "$@"', "sh", *around),
                     stdin=subprocess.PIPE) as contained:
        assert contained.stdout.readline() == "in\n"
        hold(newer, session, contained.pid)
        assert [one["path"] for one in limits(newer)] == [str(leaf)]
        out, _ = contained.communicate("go\n")
        assert json.loads(out)[2] < 2048
    wait_until(lambda: not limits(newer))
    assert leaf.exists(), "it is its runtime's"


def already_limited(host, leaf, soft, hard):
    """As NVIDIA's container toolkit does by NVIDIA_GPU_MEMORY_REQUEST and _LIMIT."""
    done = host.run(python("memory_limits", "set", leaf, soft, hard))
    assert json.loads(done.stdout)[0] == 0, done.stderr


def test_a_limit_that_a_container_has_already_is_honoured_and_not_set_again(newer, cgroups):  # noqa: F811
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    leaf = cgroups.make()
    with inside(newer, leaf) as contained:
        already_limited(newer, leaf, GIB, 2 * GIB)
        assert newer.carve("sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--error", "999").returncode == 0
        hold(newer, session, contained.pid)
        assert [(one["soft_bytes"], one["hard_bytes"]) for one in limits(newer)] == [(GIB, 2 * GIB)]
        assert newer.carve("sim", "fault", "nvml", "--clear").returncode == 0
    wait_until(lambda: not limits(newer))


def test_a_container_with_another_limit_than_its_slice_does_not_start(newer, cgroups):  # noqa: F811
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    leaf = cgroups.make()
    with inside(newer, leaf) as contained:
        already_limited(newer, leaf, 0, GIB)
        done = ask_to_hold(newer, session, contained.pid)
        assert done.returncode != 0 and "in a cgroup with another limit" in done.stdout
        assert [one["hard_bytes"] for one in limits(newer)] == [GIB]


def test_a_cgroup_that_is_made_anew_under_its_name_gets_the_limit_again(newer, cgroups, around):  # noqa: F811
    """As when a runtime starts a container again."""
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    leaf = cgroups.make()
    for _ in range(3):
        with newer.popen(within(leaf, "sh", "-c", 'echo in; read go; exec "$@"', "sh", *around), stdin=subprocess.PIPE) as contained:
            assert contained.stdout.readline() == "in\n"
            hold(newer, session, contained.pid)
            out, _ = contained.communicate("go\n")
            assert json.loads(out)[2] < 2048
        leaf.rmdir()
        leaf.mkdir()


def test_a_limit_stays_where_the_driver_refuses_another_size(newer, around):
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    with newer.popen(at_home(newer, "run", "--session", session, "--", "sh", "-c", 'echo begun; read go; exec "$@"', "sh", *around),
                     stdin=subprocess.PIPE) as command:
        assert command.stdout.readline() == "begun\n"
        fault = ["sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--error", "999"]
        assert newer.carve(*fault).returncode == 0
        assert newer.carve("session", "resize", session, "--vram", "3").returncode == 0
        wait_until(lambda: newer.carve_json("session", "show", session)["backend"] == "front")
        assert [one["hard_bytes"] for one in limits(newer)] == [2 * GIB]
        assert newer.carve("sim", "fault", "nvml", "--clear").returncode == 0
        wait_until(lambda: [one["hard_bytes"] for one in limits(newer)] == [3 * GIB])
        out, _ = command.communicate("go\n")
        assert 2048 < json.loads(out)[2] < 3072
    none_is_left(newer)


def slow_limits(host, seconds):
    done = host.carve("sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--delay", str(seconds))
    assert done.returncode == 0, done.stderr


def test_a_container_is_answered_for_when_the_driver_has_its_limit(newer, cgroups):  # noqa: F811
    """Its program begins after that answer, so it never runs without the limit."""
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    leaf = cgroups.make()
    with inside(newer, leaf) as contained:
        slow_limits(newer, 1)
        hold(newer, session, contained.pid)
        assert [one["path"] for one in limits(newer)] == [str(leaf)]


@pytest.mark.long
def test_a_container_does_not_start_where_the_driver_does_not_answer(newer, cgroups, tmp_path):  # noqa: F811
    available(newer)
    (tmp_path / "config.json").write_text('{"root": {"path": "/"}, "annotations": {"carve.vram": "2GiB"}}')
    leaf = cgroups.make()
    with inside(newer, leaf) as contained:
        slow_limits(newer, 13)
        state = json.dumps({"id": "x", "pid": contained.pid, "bundle": str(tmp_path)})
        (tmp_path / "state").write_text(state)
        with open(tmp_path / "state") as file:
            done = newer.run([BUILD / "carve-hook"], stdin=file)
        assert done.returncode != 0 and "has not taken it within 3 s" in done.stderr and len(done.stderr.splitlines()) == 1, done.stderr
    assert newer.carve("sim", "fault", "nvml", "--clear").returncode == 0
    none_is_left(newer)


@pytest.fixture
def apptainer(newer, tmp_path):
    """Calls `carve apptainer exec` with a stand-in for apptainer that runs `argv`."""
    program = tmp_path / "bin/apptainer"
    program.parent.mkdir()

    def call(*argv):
        program.write_text("#!/bin/sh\necho begun\nexec " + shlex.join(map(str, argv)) + "\n")
        program.chmod(0o755)
        return newer.run(at_home(newer, "apptainer", "exec", "--vram", "4", "IMAGE", "true"), env={"PATH": f"{program.parent}:{os.environ['PATH']}"})
    return call


def test_a_container_of_apptainers_is_held_by_its_clients_cgroup(newer, apptainer, around):
    available(newer)
    assert taken(apptainer(*around))[2] < 4096
    none_is_left(newer)


def test_a_container_of_apptainers_does_not_start_where_the_driver_refuses_its_limit(newer, apptainer):
    available(newer)
    assert newer.carve("sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--error", "999").returncode == 0
    done = apptainer("true")
    assert done.returncode == 125 and not done.stdout and "did not take it" in done.stderr, done.stdout + done.stderr


def test_a_daemon_that_may_make_no_cgroups_says_so_and_still_limits_containers(newer, cgroups):  # noqa: F811
    """As a system daemon's unit has it."""
    read_only = f'mount --bind {MOUNT} {MOUNT} && mount -o remount,bind,ro {MOUNT} && exec "$@"'
    done = newer.run(["unshare", "-m", "--propagation", "private", "sh", "-c", read_only, "sh", BUILD / "carve", "gpu", "list"])
    assert done.returncode == 0, done.stderr
    available(newer)
    assert "the library alone binds commands of `carve run`" in newer.carve("check").stdout, "it is said before anything begins"
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    assert newer.run(at_home(newer, "run", "--session", session, "--", "true")).returncode == 0
    shown = newer.carve_json("session", "show", session)
    assert shown["backend"] == "front" and "ProtectControlGroups" in shown["front_only_reason"]
    assert not limits(newer)
    leaf = cgroups.make()
    with inside(newer, leaf) as contained:
        hold(newer, session, contained.pid)
        assert [one["path"] for one in limits(newer)] == [str(leaf)]


def test_below_615_nothing_is_made(host):
    assert host.carve("run", "--ephemeral", "--vram", "2", "--", "true").returncode == 0
    gpu, = host.carve_json("gpu", "list")
    assert gpu["backend"] == "front" and gpu["limits_problem"] is None
    assert "limit." not in daemon_log(host)


def test_the_front_binds_if_the_driver_refuses_the_limit(newer):
    assert newer.carve("sim", "fault", "nvml", "--call", "nvmlDeviceSetMemoryLimits_v1", "--error", "4").returncode == 0
    wait_until(lambda: newer.carve_json("gpu", "list")[0]["limits_problem"])
    assert newer.carve_json("gpu", "list")[0]["backend"] == "front"
    assert newer.carve("run", "--ephemeral", "--vram", "2", "--", "true").returncode == 0
    assert "the driver's own limits are not used: the driver lets root alone" in newer.carve("check").stdout
    assert "limit.unavailable" in daemon_log(newer)
    assert not limits(newer)


def test_a_daemon_that_died_while_a_limit_held_leaves_it_to_the_next(newer):
    available(newer)
    session = newer.carve_json("session", "request", "--vram", "2")["id"]
    with newer.popen(at_home(newer, "run", "--session", session, "--", "sh", "-c", "echo begun; cat"),
                     stdin=subprocess.PIPE) as command:
        assert command.stdout.readline() == "begun\n"
        os.kill(newer.daemon_pid(), signal.SIGKILL)
        assert limits(newer), "the driver holds it without a daemon"
        wait_until(lambda: newer.carve_json("session", "show", session)["backend"] == "cgroup")
        command.stdin.close()
    none_is_left(newer)


@pytest.mark.parametrize("step", STEPS + LAST_STEPS)
def test_a_daemon_killed_at_any_step_leaves_no_limit_behind(newer, around, step, tmp_path):
    token = tmp_path / "token"
    newer.env["CARVE_KILL_POINT"] = f"{step}:{token}"
    available(newer)
    token.touch()
    done = newer.run(at_home(newer, "run", "--ephemeral", "--vram", "4", "--", *around))
    if step in STEPS:
        assert taken(done)[2] < 4096
    wait_until(lambda: not token.exists())
    newer.carve("gpu", "list")  # the next daemon
    none_is_left(newer)
