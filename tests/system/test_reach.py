"""Whatever way a program takes to the driver, it ends in the slice; what gets round it is seen, and ended by policy."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time

import pytest

from conftest import BUILD, another_user_can_read, clean_env, listens, run, wait_until
from test_slice_corners import BEGIN

GIB = 1 << 30
MIB = 1 << 20
CARVE = BUILD / "carve"
PROGRAMS = BUILD / "tests/programs"
REACH = PROGRAMS / "reach"
STATIC = PROGRAMS / "reach_static"
IS_ROOT = os.geteuid() == 0
OTHER = 65534
AS_OTHER = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
SLICE = 2 * GIB


def driver_of(host):
    # Whatever else it finds wrong: the host may have another daemon than the one that it looks for.
    return json.loads(host.carve("check", "--json").stdout)["driver"]["cuda"]


def bare(host, *library_path):
    """env -i, but for what keeps a program on its simulated host."""
    names = ("SIMGPU_HOST", *(("LD_LIBRARY_PATH",) if library_path else ()))
    return ["env", "-i", *(f"{n}={host.env[n]}" for n in names if n in host.env)]


@pytest.fixture(params=["preload", "mount", "user namespace"])
def isolated(request, make_host):
    """isolated(ARGV): the command in a slice of 2 GiB; .kind, .host."""
    host = make_host("h100-80gb")
    prefix = []
    if request.param == "user namespace" and IS_ROOT:
        if not another_user_can_read():
            pytest.skip("needs a build that other users can read")
        open_host_to_others(host)
        prefix = AS_OTHER
    if request.param == "mount" and not IS_ROOT:
        pytest.skip("needs root; the user namespace stands for it")
    kind = "preload" if request.param == "preload" else "mount"

    def start(*argv, method=host.run, **kw):
        env = dict(kw.pop("env", {}))
        if prefix:
            env["CARVE_RUNTIME_DIR"] = host.other_dir
        return method([*prefix, CARVE, "run", "--isolation", kind, "--vram", "2", *argv], env=env, **kw)

    start.kind, start.host, start.user = kind, host, request.param == "user namespace"
    if kind == "mount":
        tried = start("true")
        if "cannot isolate by mounting" in tried.stderr:
            pytest.skip(tried.stderr)
        if request.param == "mount" and "user namespace" in tried.stderr:
            pytest.skip("root may mount in a user namespace only")
    yield start
    if prefix:
        shutil.rmtree(host.other_dir, ignore_errors=True)


def open_host_to_others(host):
    """Programs of another user play on this simulated host, with a daemon of their own."""
    directory = host.env["SIMGPU_HOST"]
    os.chmod(directory, 0o755)
    for entry in pathlib.Path(directory).iterdir():
        if entry.is_socket():
            os.chmod(entry, 0o666)
    host.other_dir = tempfile.mkdtemp(prefix="carve-test-")
    os.chown(host.other_dir, OTHER, OTHER)


# What each way is, as arguments of `reach` or a whole command; DRIVER is the driver's path.
BY_NAME = {
    "name": ["path", "libcuda.so.1"],
    "unversioned name": ["path", "libcuda.so"],
    "absolute path": ["path", "DRIVER"],
    "deepbind": ["deepbind", "DRIVER"],
    "dlmopen": ["dlmopen", "libcuda.so.1"],
    "dlmopen by path": ["dlmopen", "DRIVER"],
    "linked plugin": ["plugin", PROGRAMS / "reach_plugin.so"],
    "linked plugin with deepbind": ["plugin-deepbind", PROGRAMS / "reach_plugin.so"],
    "linked plugin in dlmopen": ["plugin-dlmopen", PROGRAMS / "reach_plugin.so"],
    "plugin with deepbind opens by name": ["plugin-opens", PROGRAMS / "reach_opens.so", "libcuda.so.1"],
    "plugin with deepbind opens by path": ["plugin-opens", PROGRAMS / "reach_opens.so", "DRIVER"],
}
# What LD_PRELOAD does not reach.
ROUND_PRELOAD = {"plugin with deepbind opens by path"}


def fill_in(argv, driver):
    return [driver if a == "DRIVER" else a for a in argv]


def total(done):
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("way", BY_NAME)
def test_way_of_opening(isolated, way):
    seen = total(isolated(REACH, *fill_in(BY_NAME[way], driver_of(isolated.host))))
    if isolated.kind == "preload" and way in ROUND_PRELOAD:
        assert seen > 70 * GIB, "preloading reaches this now: say so in carve check and docs/front.md"
    else:
        assert seen == SLICE


def test_another_preload(isolated):
    """As scripts set one for an allocator: in place of ours, or beside it."""
    driver = driver_of(isolated.host)
    other = PROGRAMS / "reach_opens.so"
    for setting in ("LD_PRELOAD=$0", "LD_PRELOAD=$0:$LD_PRELOAD"):
        said = isolated("sh", "-c", f'{setting} exec "$@"', other, REACH, "path", "libcuda.so.1")
        assert total(said) == SLICE
    assert total(isolated(REACH, "path", "libcuda.so.1", env={"LD_PRELOAD": str(other)})) == SLICE
    seen = total(isolated("env", f"LD_PRELOAD={other}", REACH, "path", driver))
    assert seen == SLICE if isolated.kind == "mount" else seen > 70 * GIB


def test_environment_lost(isolated):
    driver = driver_of(isolated.host)
    seen = total(isolated(*bare(isolated.host), REACH, "path", driver))
    assert seen == SLICE if isolated.kind == "mount" else seen > 70 * GIB


@pytest.mark.skipif(not STATIC.exists(), reason="no static launcher in a sanitized build")
@pytest.mark.parametrize("empty", [False, True])
def test_static_launcher(isolated, empty):
    driver = driver_of(isolated.host)
    lost = ["--empty", "/usr/bin/env", *bare(isolated.host)[2:]] if empty else []
    seen = total(isolated(STATIC, *lost, REACH, "path", driver))
    assert seen == SLICE if isolated.kind == "mount" or not empty else seen > 70 * GIB


LINKED = """
#include <stdio.h>
int cuInit(unsigned int flags);
int cuDeviceTotalMem_v2(size_t *bytes, int device);
int main(void)
{
    size_t bytes;
    if (cuInit(0) || cuDeviceTotalMem_v2(&bytes, 0)) return 1;
    printf("%zu\\n", bytes);
    return 0;
}
"""


@pytest.mark.skipif(not shutil.which("cc"), reason="needs a compiler")
@pytest.mark.parametrize("how", ["absolute path", "rpath"])
def test_linked_with_the_driver(isolated, how):
    driver = pathlib.Path(driver_of(isolated.host))
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        work = pathlib.Path(directory)
        work.chmod(0o755)
        (work / "linked.c").write_text(LINKED)
        library = driver
        options = ["-Wl,-rpath," + str(driver.parent)]
        if how == "absolute path":
            # A library without a SONAME is noted by its path; then the driver takes its place.
            library, options = work / "libcuda.so.1", []
            (work / "stub.c").write_text("int cuInit(unsigned f) { return f; }\n"
                                         "int cuDeviceTotalMem_v2(unsigned long *b, int d) { return d; }\n")
            run(["cc", "-shared", "-fPIC", "-o", library, work / "stub.c"])
        built = run(["cc", "-o", work / "linked", work / "linked.c", library, *options])
        assert built.returncode == 0, built.stderr
        if how == "absolute path":
            library.unlink()
            library.symlink_to(driver)
        assert total(isolated(work / "linked")) == SLICE
        if isolated.kind == "mount":
            assert total(isolated(*bare(isolated.host), work / "linked")) == SLICE


def test_status_and_signals_pass_through(isolated):
    assert isolated("sh", "-c", "exit 7").returncode == 7
    assert isolated("sh", "-c", "kill -TERM $$").returncode == 128 + 15
    assert isolated("/nonexistent/command").returncode == 127
    process = isolated("sh", "-c", "trap 'exit 5' TERM; echo ready; while :; do sleep 0.05; done",
                       method=isolated.host.popen)
    assert process.stdout.readline() == "ready\n"
    # `carve` may be behind setpriv's exec, which keeps the process.
    process.terminate()
    process.communicate(timeout=60)
    assert process.returncode == 5


def test_user_namespace_says_what_it_cannot_do(isolated):
    done = isolated("sh", "-c", "id -u; id -g")
    assert ("set-user-ID programs" in done.stderr) == isolated.user
    mine = [str(OTHER)] * 2 if isolated.user and IS_ROOT else [str(os.geteuid()), str(os.getegid())]
    assert done.stdout.split() == mine


def test_slice_survives_the_daemon(isolated):
    """Its successor finds the process, in whichever namespaces that is, and takes its ledger back."""
    host = isolated.host
    held = isolated(REACH, "path", "libcuda.so.1", str(GIB), method=host.popen, stdin=subprocess.PIPE)
    while (line := held.stdout.readline()) != "holds\n":
        assert line, held.communicate()[1]
    as_user = AS_OTHER if isolated.user and IS_ROOT else []
    env = {"CARVE_RUNTIME_DIR": host.other_dir} if as_user else {}

    def sessions():
        return json.loads(host.run([*as_user, CARVE, "session", "list", "--json"], env=env).stdout)

    before = sessions()
    assert len(before[0]["pids"]) == 1 and before[0]["gpus"][0]["used_bytes"] > GIB
    directory = env.get("CARVE_RUNTIME_DIR", host.env["CARVE_RUNTIME_DIR"])
    os.kill(int(pathlib.Path(directory, "lock").read_text()), 9)
    wait_until(lambda: [(s["id"], s["pids"]) for s in sessions()] == [(before[0]["id"], before[0]["pids"])])
    assert sessions()[0]["gpus"][0]["used_bytes"] == before[0]["gpus"][0]["used_bytes"]
    held.communicate("", timeout=60)
    assert held.returncode == 0
    wait_until(lambda: sessions() == [])


# ---- other users -----------------------------------------------------------------------------

@pytest.fixture
def setuid_reach():
    """A set-user-ID copy of the program, of root."""
    if not another_user_can_read():
        pytest.skip("needs root, and a build that other users can read")
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        if os.statvfs(directory).f_flag & os.ST_NOSUID:
            pytest.skip(f"{directory} is mounted nosuid")
        path = pathlib.Path(directory, "reach")
        shutil.copy(REACH, path)
        os.chmod(directory, 0o755)
        os.chmod(path, 0o4755)
        yield path


def test_set_user_id_program(isolated, setuid_reach):
    driver = driver_of(isolated.host)
    other = [] if isolated.user else AS_OTHER
    seen = total(isolated(*other, setuid_reach, "path", driver))
    assert seen == SLICE if isolated.kind == "mount" else seen > 70 * GIB


@pytest.fixture
def shared(make_host):
    """A simulated host with a daemon for all users, in a mount namespace of its own as systemd's services have:
    shared(ARGV of carve..., user=)."""
    if not another_user_can_read():
        pytest.skip("needs root, and a build that other users can read")
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    host = make_host("h100-80gb")
    open_host_to_others(host)
    shutil.rmtree(host.other_dir)
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        daemon = host.popen(["unshare", "-m", BUILD / "carved", "--system", "--runtime-dir", directory + "/run",
                             "--foreground"])
        path = directory + "/run/carved.sock"
        os.chmod(directory, 0o755)
        wait_until(lambda: os.path.exists(path))

        def as_user(*argv, user="root", method=host.run):
            return method([*(AS_OTHER if user == "nobody" else []), CARVE, *argv], env={"CARVE_HOST": path})

        as_user.host, as_user.path = host, path
        yield as_user
        daemon.terminate()
        daemon.communicate(timeout=60)


def change_user(how, host, *argv):
    command = " ".join(map(str, [*bare(host)[2:], *argv]))
    return {"su": ["su", "nobody", "-s", "/bin/sh", "-c", command],
            "su -l": ["su", "-l", "nobody", "-s", "/bin/sh", "-c", command],
            "setpriv": [*AS_OTHER, *bare(host), *argv],
            "sudo": ["sudo", "-n", "-u", "nobody", *bare(host), *argv]}[how]


@pytest.mark.parametrize("how", ["su", "su -l", "setpriv", "sudo"])
def test_another_user_stays_in_roots_slice(shared, how):
    """By default: root's `carve run` has a mount namespace, and who is in there is in the slice."""
    driver = driver_of(shared.host)
    argv = change_user(how, shared.host, REACH, "path", driver)
    if not shutil.which(argv[0]):
        pytest.skip(f"no {argv[0]} here")
    if shared.host.run(change_user(how, shared.host, "true")).returncode != 0:
        pytest.skip(f"{how} does not work here")
    for slice_options in (["--vram", "2"], ["--ephemeral", "--vram", "2"]):
        assert total(shared("run", *slice_options, *argv)) == SLICE
    shared("session", "request", "--vram", "2")
    assert total(shared("run", *argv)) == SLICE


def test_another_user_is_in_roots_slice_for_the_next_daemon_too(shared):
    held = shared("run", "--ephemeral", "--vram", "2", "sh", "-c",
                  'echo ready; read go; exec "$@"', "sh", *change_user("setpriv", shared.host, REACH, "path",
                                                                       driver_of(shared.host)),
                  method=lambda argv, **kw: shared.host.popen(argv, stdin=subprocess.PIPE, **kw))
    assert held.stdout.readline() == "ready\n"
    done = shared.host.run([BUILD / "carved", "--system", "--runtime-dir", pathlib.Path(shared.path).parent, "--takeover"])
    assert done.returncode == 0, done.stderr
    said = held.communicate("go\n", timeout=60)
    assert held.returncode == 0, said
    assert int(said[0].split()[0]) == SLICE


@pytest.mark.parametrize("isolation", ["preload", "mount"])
def test_another_user_outside_roots_namespace_stays_out(shared, isolation):
    """The session's ID alone opens nothing, in a mount namespace of one's own neither."""
    session = json.loads(shared("session", "request", "--vram", "2", "--json").stdout)["id"]
    holder = shared("run", "--isolation", isolation, "sh", "-c", "echo ready; cat",
                    method=lambda argv, **kw: shared.host.popen(argv, stdin=subprocess.PIPE, **kw))
    assert holder.stdout.readline() == "ready\n"
    attach = str(pathlib.Path(shared.path).parent / "attach.sock")
    env = {"CARVE_SESSION": session, "CARVE_ATTACH": attach, "CARVE_DRIVER_CUDA": driver_of(shared.host),
           "LD_PRELOAD": str(BUILD / "src/front/libcuda.so.1")}
    for prefix in ([], ["unshare", "-m"]):
        done = shared.host.run([*prefix, *AS_OTHER, REACH, "path", "libcuda.so.1"], env=env)
        assert "another user's" in done.stderr and f"{SLICE}\n" not in done.stdout
    holder.communicate("")


# ---- what the host notices -------------------------------------------------------------------

@pytest.fixture
def rooted(make_host):
    host = make_host("h100-80gb")
    if host.carve_json("check")["isolation"]["default"] != "mount":
        pytest.skip("mounts are not this user's default here")
    return host


def mounts():
    """Those of the machine; but for what other tests mount in their folders meanwhile."""
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines() if "/pytest-of-" not in line]


def test_roots_default_is_mount_and_leaves_nothing(rooted):
    before = mounts()
    done = rooted.carve("run", "--vram", "2", *bare(rooted), REACH, "path", driver_of(rooted))
    assert total(done) == SLICE and done.stderr == ""
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        inner = (f"echo there > {directory}/file; mkdir {directory}/m; "
                 f"mount -t tmpfs x {directory}/m && touch {directory}/m/y")
        assert rooted.carve("run", "--vram", "2", "sh", "-c", inner).returncode == 0
        # Files are shared as ever; what the command mounts is its own.
        assert pathlib.Path(directory, "file").read_text() == "there\n"
        assert os.listdir(directory + "/m") == []
    assert mounts() == before and os.listdir("/run/carve-slice") == []


def test_many_runs_leave_nothing(rooted):
    before = mounts()
    session = rooted.carve_json("session", "request", "--vram", "2")["id"]
    for _ in range(60):
        assert rooted.carve("run", "true").returncode == 0
    assert mounts() == before
    daemon = rooted.daemon_pid()
    # Nothing that the daemon keeps of a command outlives it.
    wait_until(lambda: len(os.listdir(f"/proc/{daemon}/fd")) < 60)
    assert rooted.carve("session", "release", session).returncode == 0


def test_what_the_host_mounts_later_shows_in_the_slice(rooted):
    script = "import os, sys; print('ready', flush=True); input(); print(os.listdir(sys.argv[1]))"
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        test = f"""
mount -t tmpfs shared {directory} && mount --make-shared {directory} && mkdir {directory}/later || exit 99
mkfifo {directory}/go
{CARVE} run --vram 2 sh -c 'read x < {directory}/go; ls {directory}/later' &
mount -t tmpfs later {directory}/later && touch {directory}/later/file && echo > {directory}/go
wait $!
"""
        done = rooted.run(["unshare", "-m", "sh", "-c", test])
    if "cannot change root filesystem propagation" in done.stderr:
        pytest.skip("needs a root that is a mount point: " + done.stderr)
    assert done.stdout == "file\n", done.stderr


def chroot_make(root, read_only_run):
    """What is needed of this host, below a directory that is no mount point."""
    lines = [f"mkdir -p {root}/run {root}/tmp"]
    for name in ("usr", "etc", "proc", "dev", *{p.parts[1] for p in (BUILD, pathlib.Path(tempfile.gettempdir()))}):
        lines.append(f"mkdir -p {root}/{name} && mount --rbind /{name} {root}/{name}")
    for name in ("bin", "lib", "lib64", "sbin"):
        if os.path.islink("/" + name):
            lines.append(f"ln -s usr/{name} {root}/{name}")
        elif os.path.isdir("/" + name):
            lines.append(f"mkdir {root}/{name} && mount --rbind /{name} {root}/{name}")
    if read_only_run:
        lines.append(f"mount -o bind,ro {root}/run {root}/run")
    return " && ".join(lines)


@pytest.mark.parametrize("read_only_run", [False, True])
def test_in_a_chroot_of_a_shared_mount(rooted, read_only_run):
    """Where "/" is no mount point, and its mount is one that others follow; with /run or without."""
    argv = " ".join(map(str, [*bare(rooted), REACH, "path", driver_of(rooted)]))
    with tempfile.TemporaryDirectory(prefix="carve-test-", dir="/") as top:
        root = top + "/mount/root"
        script = f"""
mount --make-rprivate / && mkdir {top}/mount && mount -t tmpfs x {top}/mount && mount --make-shared {top}/mount
{chroot_make(root, read_only_run)} || exit 99
chroot {root} sh -c 'cd /usr && {CARVE} run --vram 2 sh -c "pwd; {argv}"' || exit 98
grep -c carve-slice /proc/self/mountinfo
"""
        done = rooted.run(["unshare", "-m", "sh", "-c", script])
    if done.returncode == 99 or "cannot change root filesystem propagation" in done.stderr:
        pytest.skip("cannot make a chroot here: " + done.stderr)
    assert done.stdout.split() == ["/usr", str(SLICE), "0"], done.stderr


def test_simulated_host_inside_a_slice(rooted):
    inner = f"{CARVE} gpu list --json; {CARVE} run --vram 3 {REACH} path libcuda.so.1"
    done = rooted.carve("run", "--vram", "2", CARVE, "sim", "--gpus", "a100-40gb", "--", "sh", "-c", inner)
    assert done.returncode == 0, done.stderr
    assert "A100" in done.stdout and done.stdout.endswith(f"{3 * GIB}\n")
    assert total(rooted.carve("run", "--vram", "2", CARVE, "run", REACH, "path", "libcuda.so.1")) == SLICE


def test_other_copies_of_the_driver_are_covered(rooted):
    """Those that ld.so may come upon; what is no library of this machine stays as it is."""
    driver = driver_of(rooted)
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        for name in ("other", "small"):
            os.mkdir(f"{directory}/{name}")
        copy, small = f"{directory}/other/libcuda.so.1", f"{directory}/small/libcuda.so.1"
        shutil.copy(driver, copy)
        content = bytearray(pathlib.Path(driver).read_bytes()[:4096])
        content[4] = 1  # a 32-bit ELF file
        pathlib.Path(small).write_bytes(content)
        env = {"LD_LIBRARY_PATH": f"{rooted.env['LD_LIBRARY_PATH']}:{directory}/other:{directory}/small"}
        assert total(rooted.carve("run", "--vram", "2", *bare(rooted), REACH, "path", copy, env=env)) == SLICE
        done = rooted.carve("run", "--vram", "2", "cmp", small, "-", env=env, stdin=open(small, "rb"))
        assert done.returncode == 0, done.stderr


# ---- where it cannot be done -----------------------------------------------------------------

NO_MOUNTS = ["setpriv", "--bounding-set=-sys_admin"]


def test_root_who_may_not_mount_preloads(rooted):
    """As in a container."""
    done = rooted.run([*NO_MOUNTS, CARVE, "run", "--vram", "2", REACH, "path", "libcuda.so.1"])
    assert total(done) == SLICE and done.stderr == ""
    done = rooted.run([*NO_MOUNTS, CARVE, "run", "--verbose", "--vram", "2", REACH, "path", "libcuda.so.1"])
    assert total(done) == SLICE and "CAP_SYS_ADMIN" in done.stderr and "preloading instead" in done.stderr
    checked = json.loads(rooted.run([*NO_MOUNTS, CARVE, "check", "--json"]).stdout)["isolation"]
    assert checked["default"] == "preload" and checked["why"] and checked["advice"]


@pytest.mark.parametrize("off", ["max_user_namespaces", "max_mnt_namespaces"])
def test_user_namespaces_switched_off(make_host, off):
    """In one line, before a slice is asked for, and with the documented status."""
    host = make_host("h100-80gb")
    prefix = AS_OTHER if IS_ROOT else []
    script = (f"echo 0 > /proc/sys/user/{off} || exit 99; "
              f"exec setpriv --bounding-set=-all -- {CARVE} run --isolation mount --vram 2 true")
    tried = host.run([*prefix, "unshare", "-Ur", "true"])
    if tried.returncode != 0 or (IS_ROOT and not another_user_can_read()):
        pytest.skip("needs user namespaces to switch them off in one")
    env = {}
    if IS_ROOT:
        open_host_to_others(host)
        env["CARVE_RUNTIME_DIR"] = host.other_dir
    done = host.run([*prefix, "unshare", "-Ur", "sh", "-c", script], env=env)
    if IS_ROOT:
        shutil.rmtree(host.other_dir, ignore_errors=True)
    if done.returncode == 99:
        pytest.skip(done.stderr)
    assert done.returncode == 125 and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1 and f"user.{off}=0" in done.stderr and "preload" in done.stderr


def test_check_tells_the_isolation(make_host):
    host = make_host("h100-80gb")
    checked = host.carve_json("check")["isolation"]
    text = host.carve("check").stdout
    mounts_are_default = IS_ROOT and checked["mount"] and not checked["user_namespace"]
    assert checked["default"] == ("mount" if mounts_are_default else "preload")
    assert f"isolation: {checked['default']}: {checked['why']}\n" in text
    for line in checked["not_reached"] + checked["advice"]:
        assert line in text
    inside = json.loads(host.carve("run", "--vram", "2", CARVE, "check", "--json").stdout)["isolation"]
    assert inside["default"] == checked["default"] and "slice" in inside["why"]


# ---- what gets round it ----------------------------------------------------------------------

class Daemon:
    """A daemon on a simulated host, with a configuration."""

    def __init__(self, host, config):
        self.host = host
        self.dir = tempfile.mkdtemp(prefix="carve-test-")
        self.config = pathlib.Path(self.dir, "config.json")
        self.config.write_text(json.dumps(config))
        host.env["CARVE_RUNTIME_DIR"] = self.dir + "/run"
        self.start()

    def start(self):
        self.process = self.host.popen([BUILD / "carved", "--runtime-dir", self.dir + "/run", "--config", self.config,
                                        "--foreground"])
        wait_until(lambda: listens(self.dir + "/run/carved.sock"))

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=60)

    def renew(self, how):
        """Another daemon from here on."""
        if how == "killed":
            self.kill()
            self.start()
        elif how == "taken over":
            done = self.host.run([BUILD / "carved", "--takeover"])
            assert done.returncode == 0, done.stderr

    def close(self):
        self.process.terminate()
        self.log = self.process.communicate(timeout=60)[1]
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def policed(make_host):
    host = make_host("h100-80gb")
    daemons = []

    def make(**config):
        daemons.append(Daemon(host, config))
        return daemons[-1]

    make.host = host
    yield make
    for d in daemons:
        if d.process.poll() is None:
            d.close()


def hold(host, *argv, session=None):
    process = host.popen([CARVE, "run", "--isolation", "preload", *argv], stdin=subprocess.PIPE)
    line = process.stdout.readline()
    while line and line.strip() not in ("holds", "ready"):
        line = process.stdout.readline()
    assert line, process.communicate()[1]
    return process


def show(host, session):
    return host.carve_json("session", "show", session)


def test_what_gets_round_preloading_is_shown_and_logged(policed):
    daemon = policed(over_seconds=1)
    host = policed.host
    driver = driver_of(host)
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    honest = hold(host, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *bare(host), REACH, "path", driver, 3 * GIB)
    wait_until(lambda: show(host, session)["over_bytes"] >= 2 * GIB)
    shown = show(host, session)
    assert len(shown["pids"]) == 1 and len(shown["stray_pids"]) == 1
    text = host.carve("session", "show", session).stdout
    assert f"got round the slice: {shown['stray_pids'][0]}" in text and "beyond: " in text
    # Its memory was never promised to others, nor is it promised twice.
    gpu = host.carve_json("gpu", "list")[0]
    assert gpu["available_bytes"] + 2 * GIB <= gpu["memory_bytes"] - 3 * GIB
    cheat.communicate("", timeout=60)
    wait_until(lambda: show(host, session)["over_bytes"] == 0)
    wait_until(lambda: show(host, session)["stray_pids"] == [])
    honest.communicate("", timeout=60)
    assert honest.returncode == 0 and cheat.returncode == 0
    daemon.close()
    assert f"session.stray id={session}" in daemon.log and f"session.over id={session}" in daemon.log


def test_programs_outside_carve_are_nobodys_strays(policed):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    outside = host.popen([REACH, "path", driver_of(host), str(10 * GIB)], stdin=subprocess.PIPE)
    inside = hold(host, REACH, "path", "libcuda.so.1", GIB)
    assert outside.stdout.readline() and outside.stdout.readline() == "holds\n"
    time.sleep(4)
    shown = show(host, session)
    assert shown["stray_pids"] == [] and shown["over_bytes"] == 0
    for process in (outside, inside):
        process.communicate("", timeout=60)
        assert process.returncode == 0


def test_policy_ends_who_gets_round_and_nobody_else(policed):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    honest = hold(host, REACH, "path", "libcuda.so.1", GIB)
    start = time.monotonic()
    cheat = hold(host, *bare(host), REACH, "path", driver_of(host), 3 * GIB)
    assert cheat.wait(60) == 128 + 9
    assert time.monotonic() - start < 45
    time.sleep(3)  # as long as it would take to end the other one
    assert honest.poll() is None
    honest.communicate("", timeout=60)
    assert honest.returncode == 0
    wait_until(lambda: show(host, session)["over_bytes"] == 0)
    assert show(host, session)["over_killed"] == 1
    assert "ended:     1 of its processes, which held more" in host.carve("session", "show", session).stdout


@pytest.mark.parametrize("kind", ["session", "one-off"])
@pytest.mark.parametrize("how", ["killed", "taken over"])
def test_what_gets_round_is_known_to_the_next_daemon(policed, how, kind):
    daemon = policed(over_seconds=1)
    host = policed.host
    session = host.carve_json("session", "request", "--vram", "2")["id"] if kind == "session" else None
    size = ["--session", session] if session else ["--ephemeral", "--vram", "2"]
    honest = hold(host, *size, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *size, *bare(host), REACH, "path", driver_of(host), 3 * GIB)
    sessions = [s["id"] for s in host.carve_json("session", "list")]
    wait_until(lambda: max(show(host, s)["over_bytes"] for s in sessions) >= GIB)
    daemon.config.write_text(json.dumps({"over_policy": "kill", "over_seconds": 1}))
    daemon.renew(how)
    assert cheat.wait(60) == 128 + 9
    time.sleep(3)  # as long as it would take to end the other one
    assert honest.poll() is None
    honest.communicate("", timeout=60)
    assert honest.returncode == 0
    wait_until(lambda: [s["id"] for s in host.carve_json("session", "list")] == [session] * bool(session))
    with contextlib.closing(sqlite3.connect(daemon.dir + "/run/carve.db")) as db:
        wait_until(lambda: db.execute("SELECT * FROM command").fetchall() == [])


@pytest.fixture
def policed_pair(make_host):
    """A daemon that kills, on two GPUs: (daemon, host, a session on the second)"""
    host = make_host("h100-80gb,l4-24gb")
    daemon = Daemon(host, {"over_policy": "kill", "over_seconds": 1})
    yield daemon, host, host.carve_json("session", "request", "--vram", "3", "--gpu-ids", "1")["id"]
    if daemon.process.poll() is None:
        daemon.close()


def test_memory_where_the_session_has_no_slice_is_beyond_it(policed_pair):
    daemon, host, session = policed_pair
    honest = hold(host, REACH, "path", "libcuda.so.1", GIB)
    cheat = hold(host, *bare(host), REACH, "path", driver_of(host), 9 * GIB)
    assert cheat.wait(60) == 128 + 9
    time.sleep(3)  # as long as it would take to end the other one
    assert honest.poll() is None
    honest.communicate("", timeout=60)
    assert honest.returncode == 0
    wait_until(lambda: show(host, session)["over_bytes"] == 0)
    wait_until(lambda: show(host, session)["stray_pids"] == [])
    daemon.close()
    assert f"session.over id={session}" in daemon.log


def test_memory_where_the_session_has_no_slice_is_shown(policed_pair):
    daemon, host, session = policed_pair
    daemon.config.write_text(json.dumps({"over_policy": "report", "over_seconds": 1}))
    daemon.process.send_signal(signal.SIGHUP)
    cheat = hold(host, *bare(host), REACH, "path", driver_of(host), 9 * GIB)
    wait_until(lambda: show(host, session)["over_bytes"] >= 9 * GIB)
    assert len(show(host, session)["stray_pids"]) == 1
    cheat.communicate("", timeout=60)
    assert cheat.returncode == 0
    wait_until(lambda: show(host, session)["over_bytes"] == 0)


def test_two_sessions_on_two_gpus_are_in_nobodys_way(policed_pair):
    """Each on its own, and a program outside carve on the first."""
    _, host, session = policed_pair
    outside = host.popen([REACH, "path", driver_of(host), str(10 * GIB)], stdin=subprocess.PIPE)
    assert outside.stdout.readline() and outside.stdout.readline() == "holds\n"
    first = hold(host, "--ephemeral", "--vram", "4", "--gpu-ids", "0", REACH, "path", "libcuda.so.1", 2 * GIB)
    second = hold(host, "--session", session, REACH, "path", "libcuda.so.1", 2 * GIB)
    time.sleep(4)
    both = host.carve_json("session", "list")
    assert len(both) == 2
    for one in both:
        shown = show(host, one["id"])
        assert (shown["stray_pids"], shown["over_bytes"]) == ([], 0)
    for process in (outside, first, second):
        process.communicate("", timeout=60)
        assert process.returncode == 0


GREEDY = PROGRAMS / "slice_greedy"


@pytest.mark.parametrize("family", ["linear", "managed", "pool", "vmm"])
def test_policy_ends_no_full_slice(policed, family):
    """A slice that is full to the last block, managed memory among it, is not one that is passed."""
    policed(over_policy="kill", over_seconds=1)
    host = policed.host
    piece = 64 * MIB
    full = host.popen([CARVE, "run", "--isolation", "preload", "--vram", "2", GREEDY, family, piece, "race"],
                      stdin=subprocess.PIPE)
    assert full.stdout.readline() == "ready\n"
    full.stdin.write("\n")
    full.stdin.flush()
    assert 10 < int(full.stdout.readline()) <= 2 * GIB // piece
    time.sleep(4)
    assert full.poll() is None
    full.communicate("\n", timeout=60)
    assert full.returncode == 0


def test_policy_ends_no_importer(policed):
    from test_front_imports import EXPORTER, IMPORTER
    policed(over_policy="kill", over_seconds=1)
    # Both hold what they share for longer than the policy has patience. It is one process's memory:
    # counted twice, it would pass the slice.
    holding = IMPORTER.replace("ok(cuda.cuMemUnmap(", "import time; time.sleep(4)\nok(cuda.cuMemUnmap(")
    assert holding != IMPORTER
    done = policed.host.carve("run", "--isolation", "preload", "--gpu-memory", "1700Mi", "/usr/bin/python3", "-c",
                              EXPORTER, env={"IMPORTER": holding})
    assert done.returncode == 0, done.stderr


IPC = r"""
import ctypes as c, os, sys
cuda, MIB = c.CDLL("libcuda.so.1"), 1 << 20
class Handle(c.Structure): _fields_ = [("bytes", c.c_ubyte * 64)]
def ok(result): assert result == 0, result
context = c.c_void_p()
ok(cuda.cuInit(0)); ok(cuda.cuDevicePrimaryCtxRetain(c.byref(context), 0)); ok(cuda.cuCtxSetCurrent(context))
at, handle = c.c_uint64(), Handle()
def take(size): ok(cuda.cuMemAlloc_v2(c.byref(at), c.c_size_t(size)))
"""
IPC_EXPORTER = IPC + r"""
take(700 * MIB)
ok(cuda.cuIpcGetMemHandle(c.byref(handle), at))
print(bytes(handle).hex(), flush=True)
if sys.stdin.readline() == "dies\n": os.kill(os.getpid(), 9)
ok(cuda.cuMemFree_v2(at))
sys.stdin.read()
"""
IPC_IMPORTER = IPC + r"""
handle = Handle.from_buffer_copy(bytes.fromhex(sys.stdin.readline()))
ok(cuda.cuIpcOpenMemHandle_v2(c.byref(at), handle, 1))
take(300 * MIB)
print("holds", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("how", ["frees", "dies"])
def test_policy_ends_nobody_for_what_an_exporter_of_another_session_left(policed, how):
    policed(over_policy="kill", over_seconds=1)
    host = policed.host

    def start(vram, code):
        return host.popen([CARVE, "run", "--isolation", "preload", "--ephemeral", "--vram", vram, "--", "/usr/bin/python3", "-c", code],
                          stdin=subprocess.PIPE)
    exporter, importer = start("4", IPC_EXPORTER), start("1", IPC_IMPORTER)
    importer.stdin.write(exporter.stdout.readline())
    importer.stdin.flush()
    assert importer.stdout.readline() == "holds\n"
    exporter.stdin.write(how + "\n")
    exporter.stdin.flush()
    # It is shown, and stays so.
    wait_until(lambda: any(s["over_bytes"] for s in host.carve_json("session", "list")))
    time.sleep(4)
    assert importer.poll() is None
    importer.communicate("", timeout=60)
    assert importer.returncode == 0
    exporter.communicate("", timeout=60)


LEAVER = r"""
import socket
begin()
result, handle = create(1200 * MIB)
assert result == 0
there = socket.socket(fileno=int(sys.argv[1]))
socket.send_fds(there, [b"x"], [export(handle)])
sys.stdin.read()
"""
TAKER = r"""
import socket, subprocess
begin()
assert take(1400 * MIB)[0] == 0
here = socket.socket(fileno=int(sys.argv[1]))
fd = socket.recv_fds(here, 1, 1)[1][0]
print("has", flush=True)
for word in sys.stdin:
    if word == "import\n": handle = import_(fd)
    if word == "close\n": os.close(fd)
    if word.startswith("cheat "):
        cheat = subprocess.Popen(word.split()[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert cheat.stdout.readline() and cheat.stdout.readline() == "holds\n"
    if word == "caught\n": assert cheat.wait(60) == -9
    print("done", flush=True)
"""


class Heirs:
    """A process with 1200 MiB in a session of 3 GiB, and one with 1400 MiB in one of 2 GiB that has a descriptor of those."""

    def __init__(self, host, session=None):
        self.host = host
        self.here, there = socket.socketpair()
        mine = ("--session", session) if session else ("--ephemeral", "--vram", "3")
        with there:
            self.leaver = self.start(mine, LEAVER, there)
        self.taker = self.start(("--ephemeral", "--vram", "2"), TAKER, self.here)
        assert self.taker.stdout.readline() == "has\n"
        self.here.close()
        self.id = next(s["id"] for s in host.carve_json("session", "list") if s["vram_bytes"] == 2 * GIB)

    def start(self, where, code, end):
        return self.host.popen([CARVE, "run", "--isolation", "preload", *where, "--", sys.executable, "-c", BEGIN + code,
                                str(end.fileno())], stdin=subprocess.PIPE, pass_fds=[end.fileno()])

    def say(self, *words):
        for word in words:
            self.taker.stdin.write(word + "\n")
            self.taker.stdin.flush()
            assert self.taker.stdout.readline() == "done\n"

    def leave(self):
        self.leaver.communicate("", timeout=60)
        assert self.leaver.returncode == 0

    def is_over(self):
        return show(self.host, self.id)["over_bytes"] > 256 * MIB

    def stays(self):
        """What it has is shown, and it lives on."""
        wait_until(lambda: self.is_over() or self.taker.poll() is not None)
        time.sleep(4)
        assert self.taker.poll() is None and self.is_over()
        assert show(self.host, self.id)["over_killed"] == 0
        self.taker.communicate("", timeout=60)
        assert self.taker.returncode == 0


@pytest.mark.parametrize("how", ["killed", "taken over"])
def test_what_an_exporter_left_is_excused_by_a_new_daemon(policed, how):
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    heirs = Heirs(policed.host)
    heirs.say("import", "close")
    heirs.leave()
    wait_until(heirs.is_over)
    time.sleep(4)  # longer than what was left is waited for
    daemon.renew(how)
    heirs.stays()


def test_what_an_exporter_leaves_while_there_is_no_daemon_is_excused(policed):
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    heirs = Heirs(policed.host)
    heirs.say("import", "close")
    books = sqlite3.connect(daemon.dir + "/run/carve.db")
    wait_until(lambda: books.execute("SELECT * FROM exporter WHERE exports").fetchall())
    books.close()
    daemon.kill()
    heirs.leaver.kill()  # its command would start one
    heirs.leaver.communicate(timeout=60)
    daemon.start()
    heirs.stays()


@pytest.mark.parametrize("whose, how, open_", [
    ("one-off", "", "open"), ("one-off", "killed", "closed"), ("session", "", "closed"), ("session", "killed", "open")])
def test_what_only_a_descriptor_kept_is_excused_when_it_is_imported(policed, whose, how, open_):
    """Long after its exporter ended, and its session with it."""
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    host = policed.host
    heirs = Heirs(host, host.carve_json("session", "request", "--vram", "3")["id"] if whose == "session" else None)
    heirs.leave()
    time.sleep(4)
    daemon.renew(how)
    time.sleep(4)
    heirs.say("import", *(["close"] if open_ == "closed" else []))
    heirs.stays()


def test_what_is_imported_while_there_is_no_daemon_is_excused(policed):
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=1)
    heirs = Heirs(policed.host)
    heirs.leave()
    time.sleep(4)
    daemon.kill()
    heirs.say("import", "close")
    daemon.start()
    heirs.stays()


@pytest.mark.parametrize("how", ["killed", "taken over"])
def test_nobody_who_gets_round_is_excused_by_a_new_daemon(policed, how):
    """Also while a descriptor keeps what an exporter left."""
    daemon = policed(over_policy="kill", over_tolerance="0B", over_seconds=3)
    host = policed.host
    heirs = Heirs(host)
    heirs.leave()
    time.sleep(4)  # longer than what was left is waited for
    cheat = map(str, (*bare(host), REACH, "path", driver_of(host), GIB))
    heirs.say("cheat " + " ".join(cheat))
    daemon.renew(how)
    heirs.say("caught")
    wait_until(lambda: show(host, heirs.id)["over_killed"])
    assert heirs.taker.poll() is None
    heirs.taker.communicate("", timeout=60)
