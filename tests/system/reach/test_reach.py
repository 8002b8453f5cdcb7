"""Whatever way a program takes to the driver, it ends in the slice."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from conftest import BUILD, another_user_can_read, open_to_others, rest_long, run, wait_until
from reaching import CARVE, GIB, PROGRAMS, REACH, bare, driver_of

STATIC = PROGRAMS / "reach_static"
IS_ROOT = os.geteuid() == 0
OTHER = 65534
AS_OTHER = ["setpriv", f"--reuid={OTHER}", f"--regid={OTHER}", "--clear-groups"]
SLICE = 2 * GIB


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
        close_to_others(host)


def open_host_to_others(host):
    """Programs of another user play on this simulated host, with a daemon of their own."""
    open_to_others(host)
    host.other_dir = tempfile.mkdtemp(prefix="carve-test-")
    os.chown(host.other_dir, OTHER, OTHER)


def close_to_others(host):
    """The other user's daemon ends first: it would make files in a directory that is being removed."""
    lock = pathlib.Path(host.other_dir, "lock")
    with contextlib.suppress(OSError, ValueError):  # none was started, or it has ended
        os.kill(int(lock.read_text()), signal.SIGTERM)
        wait_until(lambda: lock.read_text() == "")
    shutil.rmtree(host.other_dir, ignore_errors=True)


# The form of each way, as arguments of `reach` or a whole command; DRIVER is the driver's path.
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
# The programs that LD_PRELOAD does not reach.
ROUND_PRELOAD = {"plugin with deepbind opens by path"}


def fill_in(argv, driver):
    return [driver if a == "DRIVER" else a for a in argv]


def total(done):
    assert done.returncode == 0, done.stderr
    return int(done.stdout.split()[0])


@pytest.mark.parametrize("way", rest_long(BY_NAME, 6))
def test_way_of_opening(isolated, way):
    seen = total(isolated(REACH, *fill_in(BY_NAME[way], driver_of(isolated.host))))
    if isolated.kind == "preload" and way in ROUND_PRELOAD:
        assert seen > 70 * GIB, "preloading reaches this now: say so in carve check and docs/dev/front.md"
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


@pytest.fixture
def public():
    """A folder that other users can read, too."""
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        os.chmod(folder, 0o755)
        yield pathlib.Path(folder)


@pytest.mark.parametrize("how", rest_long(["preloaded", "linked"]))
def test_programs_with_address_sanitizer(isolated, public, how):
    """GCC's runtime ends a program where another library comes before it, unless it is told that this is meant."""
    source, program = public / "a.c", public / "a"
    source.write_text("""
#include <dlfcn.h>
#include <stdio.h>
int main(void) {
	void *driver = dlopen("libcuda.so.1", RTLD_NOW), *context;
	int (*init)(unsigned) = (int (*)(unsigned))dlsym(driver, "cuInit");
	int (*retain)(void **, int) = (int (*)(void **, int))dlsym(driver, "cuDevicePrimaryCtxRetain");
	int (*enter)(void *) = (int (*)(void *))dlsym(driver, "cuCtxSetCurrent");
	int (*info)(size_t *, size_t *) = (int (*)(size_t *, size_t *))dlsym(driver, "cuMemGetInfo_v2");
	size_t free_bytes, total;
	if (init(0) || retain(&context, 0) || enter(context) || info(&free_bytes, &total)) return 1;
	printf("%zu\\n", total);
}
""")
    options = ["-fsanitize=address"] if how == "linked" else []
    subprocess.run(["gcc", "-w", *options, "-o", program, source, "-ldl"], check=True)
    env = {"ASAN_OPTIONS": "detect_leaks=0"}
    if how == "preloaded":
        env["LD_PRELOAD"] = subprocess.run(["gcc", "-print-file-name=libasan.so.8"], stdout=subprocess.PIPE, text=True,
                                           check=True).stdout.strip()
        if not env["LD_PRELOAD"].startswith("/"):
            pytest.skip("gcc's libasan is another version")
    assert total(isolated(program, env=env)) == SLICE


def test_a_driver_of_two_parts(make_host, tmp_path):
    """As WSL's: the library of the driver's name opens another of nearly that name, which is no reason to give it the front."""
    host = make_host("h100-80gb")
    for name in ("lib", "store"):
        (tmp_path / name).mkdir()
    shutil.copy(PROGRAMS / "store_driver.so", tmp_path / "lib/libcuda.so.1")
    shutil.copy(driver_of(host), tmp_path / "store/libcuda.so.1.1")
    assert host.carve("session", "request", "--vram", "2").returncode == 0
    env = {"STORE_DRIVER": str(tmp_path / "store/libcuda.so.1.1"),
           "LD_LIBRARY_PATH": f"{tmp_path}/lib:{host.env['LD_LIBRARY_PATH']}"}
    begin = "import ctypes; print(ctypes.CDLL('libcuda.so.1').cuInit(0))"
    assert host.run([sys.executable, "-S", "-c", begin], env=env).stdout == "0\n"
    done = host.carve("run", "--isolation", "preload", sys.executable, "-S", "-c", begin, env=env)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


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
@pytest.mark.parametrize("how", rest_long(["rpath", "absolute path"]))
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
    os.kill(host.daemon_pid(env.get("CARVE_RUNTIME_DIR")), 9)
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
        os.chmod(directory, 0o755)
        daemon = host.popen(["unshare", "-m", BUILD / "carved", "--system", "--runtime-dir", directory + "/run",
                             "--foreground"])
        path = directory + "/run/carved.sock"
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
    others = ("/pytest-of-", f"{tempfile.gettempdir()}/pod-", f"{tempfile.gettempdir()}/dk-", "/carve-test-")
    return [line for line in pathlib.Path("/proc/self/mountinfo").read_text().splitlines()
            if not any(folder in line for folder in others)]


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


def test_later_mounts_of_the_host_show_in_the_slice(rooted):
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
    """The parts of this host that are needed, below a directory that is no mount point."""
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


def test_a_sandbox_with_a_run_of_its_own_is_told_what_to_keep(rooted):
    driver = driver_of(rooted)
    hide = 'mount -t tmpfs none /run; exec "$@"'

    def start(script, *argv):
        return rooted.run([CARVE, "run", "--isolation", "mount", "--vram", "2", "unshare", "-m", "sh", "-c", script, "sh", *argv])
    for name in ("libcuda.so.1", driver):
        done = start(hide, REACH, "path", name)
        assert done.returncode == 2 and "no driver behind the front: a sandbox hides /run/carve-slice" in done.stderr
    done = start(hide, *bare(rooted), REACH, "path", driver)
    assert done.returncode != 0 and f"{SLICE}\n" not in done.stdout
    assert "it is in no session" in done.stderr and "keep /run/carve-slice in it" in done.stderr
    keep = 'd=$(mktemp -d); mount --rbind /run/carve-slice $d; mount -t tmpfs none /run; mkdir /run/carve-slice; ' \
        'mount --rbind $d /run/carve-slice; umount -l $d; rmdir $d; exec "$@"'
    for env in ([], bare(rooted)):
        done = start(keep, *env, REACH, "path", driver)
        assert (done.returncode, done.stdout) == (0, f"{SLICE}\n"), done.stderr


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
    """In a container with its own daemon: no process there has more rights."""
    def contained(*argv):
        return rooted.run(["unshare", "--pid", "--fork", "--mount-proc", *NO_MOUNTS, *argv])

    directory = pathlib.Path(rooted.env["CARVE_RUNTIME_DIR"])
    os.kill(int((directory / "lock").read_text()), signal.SIGTERM)
    wait_until(lambda: not (directory / "carved.sock").exists() and (directory / "lock").read_text() == "")
    done = contained(CARVE, "run", "--vram", "2", REACH, "path", "libcuda.so.1")
    assert total(done) == SLICE and done.stderr == ""
    done = contained(CARVE, "run", "--verbose", "--vram", "2", REACH, "path", "libcuda.so.1")
    assert total(done) == SLICE and "CAP_SYS_ADMIN" in done.stderr and "preloading instead" in done.stderr
    checked = json.loads(contained(CARVE, "check", "--json").stdout)["isolation"]
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
        close_to_others(host)
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
