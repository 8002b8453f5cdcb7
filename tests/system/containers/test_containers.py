"""`carve podman run`: containers of an image that knows nothing of carve are in a slice."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import types

import pytest

import attach_client
from conftest import BUILD, listens, open_to_others, rest_long, wait_until
from podman_host import CARVE, podman, storage, watchers  # noqa: F401: fixtures

REACH = BUILD / "tests/programs/reach"


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


def test_files_of_a_container_whose_watcher_was_killed_go_after_the_container(podman):
    """Its watcher would remove them; the next one does, and not while the container, which mounts them, is there."""
    assert podman.carve("--vram", "2", "--detach", "--name", "orphan", podman.IMAGE, "sleep", "600").returncode == 0
    mounts = json.loads(podman("podman", "inspect", "orphan").stdout)[0]["Mounts"]
    files, = {pathlib.Path(*pathlib.Path(mount["Source"]).parts[:4]) for mount in mounts if "/carve-container-" in mount["Source"]}
    wait_until(lambda: (files / "kept").exists())
    watching = [int(status.parent.name) for status in watchers(podman.directory)]
    for _ in range(2):
        assert podman.carve("--vram", "2", "--rm", podman.IMAGE, "true").returncode == 0
        wait_until(lambda: sorted(int(status.parent.name) for status in watchers(podman.directory)) == sorted(watching))
        assert files.exists()
        for pid in watching:
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not list(watchers(podman.directory)))
        watching = []
    podman("podman", "rm", "--force", "--time", "0", "orphan")
    assert podman.carve("--vram", "2", "--rm", podman.IMAGE, "true").returncode == 0
    wait_until(lambda: not list(watchers(podman.directory)))
    assert not files.exists()
    podman.nothing_is_left()


@pytest.mark.long
def test_a_daemon_that_was_killed_is_back_for_what_a_container_starts_later(podman):
    assert podman.carve("--vram", "2", "--detach", "--name", "two", podman.IMAGE, "sleep", "600").returncode == 0
    pid = podman.host.daemon_pid()
    os.kill(pid, 9)
    # The next daemon is its supervisor's. Nobody asks for one but the container's program.
    assert podman("podman", "exec", "two", "hog").returncode == 0
    assert podman.host.daemon_pid() != pid
    # Releasing by force ends what is inside: the container, and all that was made for it.
    session, = podman.sessions()
    podman.host.carve("session", "release", session["id"], "--force")
    wait_until(lambda: "two" not in podman("podman", "ps", "--format", "{{.Names}}").stdout)
    podman("podman", "rm", "--force", "two")
    podman.nothing_is_left()


@pytest.mark.long
def test_no_command_of_the_runtimes_waits_beside_a_container(podman):
    """It would be tens of megabytes for each container, and a slower start: the kernel tells of the first process's end."""
    done = podman.carve("--vram", "2", "--detach", podman.IMAGE, "sleep", "600")
    container = done.stdout.strip()
    assert "this GPU has 2048 MiB" in podman("podman", "exec", container, "hog").stdout
    lines = []
    for directory in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            lines.append((directory / "cmdline").read_bytes().split(b"\0"))
        except OSError:
            continue
    assert not [words for words in lines if words[:2] == [b"podman", b"wait"] and container.encode() in words]
    pid = json.loads(podman("podman", "inspect", container).stdout)[0]["State"]["Pid"]
    os.kill(pid, 9)
    podman.nothing_is_left()


def test_a_pid_file_of_the_users_own_is_written(podman, tmp_path):
    done = podman.carve("--vram", "2", "--detach", "--pidfile", tmp_path / "pid", podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    os.kill(int((tmp_path / "pid").read_text()), 9)
    podman.nothing_is_left()


@pytest.mark.long
def test_a_stopped_container_that_podman_starts_again_says_that_its_slice_has_ended(podman):
    podman.carve("--vram", "2", "--name", "again", podman.IMAGE, "hog")
    podman.nothing_is_left()
    done = podman("podman", "start", "--attach", "again")
    lines = [line for line in done.stderr.splitlines() if "carve" in line]
    assert len(lines) == 1 and "has ended; make a new container" in lines[0], done.stderr
    podman("podman", "rm", "again")


@pytest.mark.long
def test_containers_of_one_session(podman):
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    for _ in range(2):
        done = podman.carve("--session", session, "--rm", podman.IMAGE, "hog")
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr
    assert [s["id"] for s in podman.sessions()] == [session]


# In a container's mount namespace, as root: asks its attach socket for each session and kind, and prints the statuses.
ATTACHES_FROM_WITHIN = """
import ctypes, os, pathlib, sys, types
sys.path.insert(0, sys.argv[1])
from attach_client import *
namespace = os.open(f"/proc/{sys.argv[2]}/ns/mnt", os.O_RDONLY)
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x200) == 0 and libc.setns(namespace, 0) == 0, os.strerror(ctypes.get_errno())
place = types.SimpleNamespace(runtime=pathlib.Path("/run/carve-slice/attach"))
for session in sys.argv[3:]:
    print(*(Attached(place).ask(kind, session)[0] for kind in (OBSERVE, COMMAND, WORKLOAD)))
"""


def root_attaches_to_no_other_session(podman, container, own, another):
    """A container's programs may speak to the socket themselves."""
    no_container = podman.host.carve_json("session", "request", "--vram", "4")["id"]
    pid = podman("podman", "inspect", "-f", "{{.State.Pid}}", container).stdout.strip()
    done = podman(sys.executable, "-c", ATTACHES_FROM_WITHIN, pathlib.Path(__file__).parents[1], pid, own, another, no_container, "s-nosuch")
    assert done.returncode == 0, done.stderr
    statuses = [attach_client.OK, attach_client.NOT_PERMITTED, attach_client.NOT_PERMITTED, attach_client.NO_SESSION]
    assert done.stdout.splitlines() == [" ".join([str(status)] * 3) for status in statuses]
    # From outside root attaches wherever it likes.
    outside = attach_client.Attached(types.SimpleNamespace(runtime=pathlib.Path(podman.host.env["CARVE_RUNTIME_DIR"])))
    assert outside.ask(attach_client.OBSERVE, another)[0] == attach_client.OK
    outside.close()
    assert podman.host.carve("session", "release", no_container).returncode == 0


def test_a_session_may_be_released_when_its_containers_have_stopped(podman):
    """What looks after them does so for some seconds more: the runtime may start them again."""
    host = podman.host
    session = host.carve_json("session", "request", "--vram", "3")["id"]
    done = podman.carve("--session", session, "--name", "stays", "-d", podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    refused = host.carve("session", "release", session)
    assert refused.returncode == 1 and "has processes inside" in refused.stderr, refused
    assert podman("podman", "stop", "--time", "0", "stays").returncode == 0
    wait_until(lambda: host.carve("session", "release", session).returncode == 0)
    assert list(watchers(podman.directory)) and not podman.sessions()


def test_a_container_does_not_reach_anothers_slice(podman):
    """Where it is decides, not a name that it has learned. The end of its first process gives all back."""
    for name, size in ("a", "2"), ("b", "3"):
        assert podman.carve("--vram", size, "--ephemeral", "--detach", "--name", name, podman.IMAGE, "sleep", "600").returncode == 0
    a, b = (s["id"] for s in sorted(podman.sessions(), key=lambda s: s["vram_bytes"]))
    for name in (a, "s-nosuch"):
        done = podman("podman", "exec", "--env", f"CARVE_SESSION={name}", "b", "hog")
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr
    done = podman("podman", "exec", "b", "sh", "-c", "ls /run/carve-slice/attach")
    assert done.stdout == "attach.sock\n", done.stderr
    root_attaches_to_no_other_session(podman, "b", b, a)
    os.kill(int(podman("podman", "inspect", "-f", "{{.State.Pid}}", "a").stdout), signal.SIGKILL)
    wait_until(lambda: [s["vram_bytes"] for s in podman.sessions()] == [3 << 30])
    assert podman("podman", "kill", "b").returncode == 0
    podman.nothing_is_left()


@pytest.mark.long
def test_every_user_of_a_container_of_roots_is_in_the_slice(podman):
    podman.host.carve("gpu", "list")
    open_to_others(podman.host)
    os.chmod(podman.host.env["CARVE_RUNTIME_DIR"] + "/attach.sock", 0o666)
    done = podman.carve("--vram", "2", "--user", "1000", "--rm", podman.IMAGE, "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr + done.stdout
    podman.nothing_is_left()


@pytest.mark.long
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
    (["--rm", "IMAGE", "true"], 125, "carve: podman run: no size given, and you have no current session; for example: carve podman run --vram 4 IMAGE"),
    (["--session", "s-2345", "--vram", "2", "IMAGE"], 125, "carve: podman run: a size only goes with a slice of its own"),
    (["--vrm", "2", "IMAGE", "true"], 125, "did you mean --vram?"),
    (["--vram", "2", "--rmm", "IMAGE"], 125, "was taken for the value of --rmm"),
    (["--vram", "900", "IMAGE"], 125, "more than there is"),
    (["--vram", "900", "--json", "IMAGE"], 125, '{"error":{"code":3,"message":"900 GiB is more than there is'),
])
def test_refusals_have_one_line(podman, argv, code, said):
    done = podman.carve(*[podman.IMAGE if word == "IMAGE" else word for word in argv])
    assert done.returncode == code and said in done.stderr and len(done.stderr.splitlines()) == 1
    assert not podman.sessions()


def test_a_start_that_fails_before_the_runtimes_leaves_no_files(podman, tmp_path):
    """Of carve's programs the hook is missing."""
    for entry in BUILD.iterdir():
        if entry.name not in ("carve", "carve-hook"):
            (tmp_path / entry.name).symlink_to(entry)
    shutil.copy(BUILD / "carve", tmp_path)

    def unfinished():
        return set(subprocess.run(["find", "/var/tmp", "-maxdepth", "2", "-path", "/var/tmp/carve-container-*/hooks", "-empty"],
                                  stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True).stdout.split())

    before = unfinished()
    done = podman(tmp_path / "carve", "podman", "run", "--vram", "2", podman.IMAGE, "true")
    assert done.returncode == 125 and "carve-hook is not beside carve" in done.stderr, done.stderr
    podman.nothing_is_left()
    wait_until(lambda: not unfinished() - before)


def test_options_of_podmans_own_stand_before_run(podman):
    done = podman(CARVE, "podman", "--log-level", "error", "--vram", "2", "--cgroup-manager=cgroupfs", "run", "--rm", podman.IMAGE, "hog")
    assert done.returncode == 0 and "this GPU has 2048 MiB" in done.stdout, done.stderr
    podman.nothing_is_left()


@pytest.mark.parametrize("place", rest_long([0, 1]))
def test_a_container_in_other_storage_is_asked_about_there(podman, place):
    """With podman's usual storage carve would take it for gone, and remove what it mounts."""
    there = ["--root", podman.directory / "there", "--runroot", podman.directory / "there-run", "--storage-driver", "vfs"]
    subprocess.run(["tar", "-C", podman.directory / "root", "-cf", podman.directory / "root.tar", "."], check=True)
    done = podman("podman", *there, "import", podman.directory / "root.tar", podman.IMAGE)
    assert done.returncode == 0, done.stderr
    before, behind = (there, []) if place == 0 else ([], there)
    try:
        done = podman(CARVE, "podman", *before, "run", *behind, "--name", "other", "--vram", "2", podman.IMAGE, "hog")
        assert done.returncode == 0 and "this GPU has 2048 MiB" in done.stdout, done.stderr
        podman.nothing_is_left()
        wait_until(lambda: not list(watchers(podman.directory)))
        mounted = json.loads(podman("podman", *there, "container", "inspect", "--format", "{{json .Mounts}}", "other").stdout)
        assert mounted and all(os.path.exists(mount["Source"]) for mount in mounted), mounted
    finally:
        podman("podman", *there, "rm", "--all", "--force", "--time", "0")
        podman(CARVE, "podman", *before, "run", *behind, "--vram", "2", "--rm", podman.IMAGE, "true")


@pytest.mark.parametrize("runtime, options, variables, said", [
    ("podman", ["--remote"], {}, "carve: podman --remote: a slice needs podman itself"),
    ("podman", ["-c", "there"], {}, "carve: podman --connection: a slice needs podman itself"),
    ("podman", [], {"CONTAINER_HOST": "unix:///run/podman.sock"}, "carve: CONTAINER_HOST is set: a slice needs podman itself"),
    ("docker", ["--debug", "-H", "ssh://there"], {}, "carve: docker run: ssh://there may be another host"),
    ("docker", [], {"DOCKER_HOST": "tcp://192.0.2.1:2376"}, "carve: docker run: tcp://192.0.2.1:2376 may be another host"),
])
def test_a_runtime_of_another_host_is_refused(make_host, runtime, options, variables, said):
    host = make_host("h100-80gb")
    done = host.carve(runtime, *options, "run", "--vram", "2", "IMAGE", "true", env=variables)
    assert done.returncode == 125 and said in done.stderr and len(done.stderr.splitlines()) == 1, done
    assert host.carve_json("session", "list") == []


def test_a_container_whose_session_ends_says_why(podman):
    """Its client tells of no signal, and dies with 137. The client's output ends with the client."""
    client = podman.host.popen([CARVE, "podman", "run", "--vram", "2", "--rm", podman.IMAGE, "sh", "-c", "echo up; exec sleep 600"], env=podman.env)
    assert client.stdout.readline() == "up\n"
    session, = podman.sessions()
    assert podman.host.carve("session", "release", "--force", session["id"]).returncode == 0
    assert client.wait(60) == 137 and client.stderr.read() == f"carve: session {session['id']} ended: released by force\n"
    detached = podman.carve("--vram", "2", "--name", "long", "-d", podman.IMAGE, "sleep", "600")
    assert detached.returncode == 0 and not detached.stderr and podman.sessions(), detached


@pytest.fixture
def policed(podman, tmp_path):
    """podman on a host whose daemon ends what holds memory beyond its slice."""
    runtime = pathlib.Path(podman.host.env["CARVE_RUNTIME_DIR"])
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"over_policy": "kill", "over_seconds": 1}))
    daemon = podman.host.popen([BUILD / "carved", "--runtime-dir", runtime, "--config", config, "--foreground"])
    wait_until(lambda: listens(runtime / "carved.sock"))
    yield podman
    daemon.terminate()
    daemon.communicate(timeout=60)


@pytest.mark.parametrize("kind", rest_long(["ephemeral", "session"]))
def test_a_container_that_policy_ended_says_why(policed, kind):
    """Its program brings a driver of its own, and podman's client says nothing but 137."""
    session = policed.host.carve_json("session", "request", "--vram", "2")["id"] if kind == "session" else None
    size = ["--session", session] if session else ["--ephemeral", "--vram", "2"]
    cheats = ["--rm", "--volume", f"{BUILD}/sim/libcuda.so.1:/own/mine.so", "--volume", f"{REACH}:/bin/reach", policed.IMAGE,
              "sh", "-c", f"exec reach path /own/mine.so {3 << 30} < /dev/zero"]
    client = policed.host.popen([CARVE, "podman", "run", *size, *cheats], env=policed.env)
    told = client.communicate(timeout=60)[1] if client.wait(60) else ""
    last = policed.host.carve_json("session", "list", "--all")[-1]
    assert client.returncode == 137 and len(told.splitlines()) == 1, told
    assert told.startswith(f"carve: carved's policy (over_policy) ended 1 process of session {last['id']}: it held 1."), told
    if session:
        # A container that comes later is told nothing of it.
        assert policed.carve("--session", session, "--rm", policed.IMAGE, "true").stderr == ""
        return
    assert policed.carve("--vram", "2", "--ephemeral", "-d", *cheats).stderr == ""
    policed.nothing_is_left()
    assert all(s["reason"].startswith("ended by over_policy: 1.") for s in policed.host.carve_json("session", "list", "--all"))


def test_a_container_that_does_not_start_gives_its_slice_back(podman):
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "no-such-program")
    assert done.returncode == 127
    podman.nothing_is_left()


def traced(trace, wanted):
    """The calls of processes that run the program `wanted`, and the processes that became no other, by a trace of strace -f."""
    program, begun, calls = {}, {}, []
    for line in trace.splitlines():
        pid, call = line.split(None, 1)
        name, result = call.partition("(")[0], call.rsplit("= ", 1)[-1].strip()
        if name == "execve":
            begun[pid] = call.split('"')[1].rpartition("/")[2]
        # Another process's line may come between a call and its result.
        if (name == "execve" or call.startswith("<... execve resumed>")) and result == "0":
            program[pid] = begun[pid]
        elif (name == "clone" or call.startswith("<... clone resumed>")) and result.isdigit():
            # The child may have become another program before its parent's call has returned.
            program.setdefault(result, program.get(pid, ""))
        if program.get(pid) == wanted and name.isidentifier():
            calls.append(name)
    return calls, [pid for pid, name in program.items() if name == wanted]


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_start_costs_few_processes_and_no_sync(podman, tmp_path):
    """Counts, as they do not depend on what else the machine does."""
    podman.host.carve("gpu", "list")
    trace = tmp_path / "trace"
    done = podman("strace", "-f", "-qq", "-o", trace, "-e", "trace=execve,clone,fsync,fdatasync,sync,syncfs,read", CARVE, "podman", "run",
                  "--vram", "2", "--rm", podman.IMAGE, "true")
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("processes may not be traced here")
    assert done.returncode == 0, done.stderr
    calls, processes = traced(trace.read_text(), "carve")
    # The two generations of the watcher, and its waiter.
    assert 1 <= len(processes) <= 3, calls
    assert not [name for name in calls if "sync" in name], calls
    # Its first process has ended before anybody looks: nothing is asked beside the client, which is ending.
    assert '["podman", "wait"' not in trace.read_text()
    calls, processes = traced(trace.read_text(), "carve-hook")
    assert processes and calls.count("read") <= 100
    podman.nothing_is_left()


def test_a_slice_shows_what_its_size_leaves_beside_the_drivers_own(podman):
    """As the sizes of other tools: 8 GiB of which the driver's 64 MiB are a part."""
    done = podman.carve("--vram", "8GiB", "--reserve", "64MiB", "--rm", podman.IMAGE, "hog")
    assert "this GPU has 8128 MiB" in done.stdout, done.stderr
    podman.nothing_is_left()
