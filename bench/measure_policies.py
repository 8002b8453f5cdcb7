"""An administrator's policies on the GPU that is there, with a system daemon of its own and two users who are plain numbers: it is
run by bench/measure.py as root, and nobody else should use the GPU meanwhile.

    measure_policies.py BUILD

Prints a line a policy, `ok WHAT` or `FAILED WHAT: WHY`, and goes on; exit status 1 where a line failed, 77 (with a
line why) where the caller is not root. The device files of the machine stay as they are: what closes them acts on copies, which only a
mount namespace of the daemon's and the users' has."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time

SKIPPED = 77
ALICE, BOB = 60101, 60102
GROUP = 60199  # of the closed device files: no user's
PATIENCE_S = 60
IDLE_S, WARNING_S, OUTSIDE_S = 12, 4, 2
IN_NAMESPACE = "CARVE_MEASURE_DEV"
TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"
BUSY = (TESTS / "system/cuda.py", TESTS / "programs/busy.py")
# One that every user may run.
PYTHON = shutil.which("python3", path="/usr/bin") or sys.executable
OPEN_GPU = "import ctypes, sys; c = ctypes.CDLL('libcuda.so.1'); r = c.cuInit(0); print('cuInit', r); sys.exit(r != 0)"


def expect(holds, why):
    if not holds:
        raise AssertionError(str(why).strip()[-300:])


def wait_for(holds, what):
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        found = holds()
        if found:
            return found
        time.sleep(0.1)
    raise AssertionError(f"not within {PATIENCE_S} s: {what()}")


def device_files():
    """The GPU's own: not those of MIG instances."""
    return [p for p in pathlib.Path("/dev").glob("nvidia*") if stat.S_ISCHR(p.stat().st_mode)]


class Node:
    """A system daemon with a configuration, in a folder that all users may enter."""

    def __init__(self, build, folder):
        self.build, self.folder = build, folder
        self.runtime, self.config, self.log = folder / "run", folder / "carved.json", folder / "log"
        self.daemon = None
        self.started = []

    def start(self, **keys):
        self.config.write_text(json.dumps(keys))
        self.config.chmod(0o644)
        read, write = os.pipe()
        with open(self.log, "a") as log:
            self.daemon = subprocess.Popen([self.build / "carved", "--system", "--runtime-dir", self.runtime, "--config", self.config,
                                            "--foreground", "--ready-fd", str(write)], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           pass_fds=[write])
        os.close(write)
        ready = os.read(read, 1)
        os.close(read)
        expect(ready == b"R", f"the daemon does not start: {self.log.read_text()}")

    def stop(self):
        for process in self.started:
            process.kill()
            process.wait()
        self.started.clear()
        if self.daemon:
            self.daemon.terminate()
            self.daemon.wait()
            self.daemon = None

    def words(self, uid, argv):
        rights = [] if uid == 0 else ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--inh-caps=-all"]
        return [*rights, *map(str, argv)]

    def env(self):
        env = {k: v for k, v in os.environ.items() if k not in ("CARVE_RUNTIME_DIR", "XDG_RUNTIME_DIR", "CUDA_VISIBLE_DEVICES")}
        return {**env, "CARVE_HOST": str(self.runtime / "carved.sock"), "HOME": str(self.folder)}

    def run(self, uid, *argv, timeout=90):
        return subprocess.run(self.words(uid, argv), env=self.env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout, check=False)

    def begin(self, uid, *argv):
        process = subprocess.Popen(self.words(uid, argv), env=self.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, errors="replace")
        self.started.append(process)
        return process

    def carve(self, uid, *argv):
        done = self.run(uid, self.build / "carve", *argv)
        expect(done.returncode == 0, f"carve {' '.join(argv)}: {done.stderr}")
        return done.stdout

    def json(self, uid, *argv):
        return json.loads(self.carve(uid, *argv, "--json"))


@contextlib.contextmanager
def node(build, **keys):
    folder = pathlib.Path(tempfile.mkdtemp(prefix="carve-policies-"))
    folder.chmod(0o755)
    made = Node(build, folder)
    try:
        made.start(**keys)
        yield made
    finally:
        made.stop()
        shutil.rmtree(folder, ignore_errors=True)


def idle_program(made, uid, *before):
    """A process with a context that does nothing."""
    process = made.begin(uid, *before, made.build / "bench/idle", 1)
    if process.stdout.readline() != "ready\n":
        raise AssertionError(process.stderr.readline().strip())
    return process


# ---- the policies --------------------------------------------------------------------------------

def idle_sessions_are_released_and_busy_ones_stay(build):
    with node(build, idle_timeout=f"{IDLE_S}s", idle_warning=f"{WARNING_S}s") as made:
        carve = build / "carve"
        idle = idle_program(made, ALICE, carve, "run", "--vram", "4", "--name", "idle", "--")
        for source in BUSY:
            shutil.copy(source, made.folder)
        busy = made.begin(BOB, carve, "run", "--vram", "8", "--name", "busy", "--", PYTHON, "-S",
                          *(made.folder / source.name for source in BUSY))
        begun = time.monotonic()
        idle.wait(timeout=PATIENCE_S)
        after = time.monotonic() - begun
        expect(IDLE_S - 2 < after < IDLE_S + 15, f"the idle session was released after {after:.1f} s")
        said = idle.stderr.read()
        expect("idle" in said or "GPU time" in said, f"nobody told the user: {said}")
        told = [event["kind"] for event in map(json.loads, events(made))]
        expect(any("idle" in kind for kind in told), f"no event tells of it: {told}")
        time.sleep(IDLE_S)
        expect(busy.poll() is None, f"the busy session ended with {busy.returncode}")
        return f"released {after:.1f} s after its last work (idle_timeout {IDLE_S} s); a busy session beside it stayed"


def events(made):
    """As many as are there: `events` waits for more."""
    process = made.begin(0, made.build / "carve", "events", "--from", "0", "--json")
    time.sleep(2)
    process.send_signal(signal.SIGINT)
    return [line for line in process.communicate()[0].splitlines() if line.startswith("{")]


def programs_outside_are_ended(build):
    with node(build, outside_policy="kill", outside_seconds=OUTSIDE_S) as made:
        inside = idle_program(made, ALICE, build / "carve", "run", "--vram", "4", "--")
        idle_program(made, BOB)
        idle_program(made, 0)
        begun = time.monotonic()
        seen = wait_for(lambda: [p for p in made.json(0, "outside")["programs"] if p["uid"] == BOB], lambda: "the program is listed")
        wait_for(lambda: not pathlib.Path(f"/proc/{seen[0]['pid']}").exists(), lambda: "the program ends; " + made.carve(0, "outside"))
        after = time.monotonic() - begun
        time.sleep(2 * OUTSIDE_S)
        expect(inside.poll() is None, "the program in the slice ended, too")
        expect([p["uid"] for p in made.json(0, "outside")["programs"]] == [0], "root's program ended, too")
        return f"ended {after:.1f} s after its start (outside_seconds {OUTSIDE_S})"


def a_drained_gpu_grants_nothing_new(build):
    with node(build) as made:
        held = idle_program(made, ALICE, build / "carve", "run", "--vram", "4", "--")
        made.carve(0, "node", "drain", "--gpu-ids", "0", "--reason", "fan")
        gpus = len(made.json(0, "gpu", "list"))
        refused = made.run(BOB, build / "carve", "run", "--vram", "4", "--", "true")
        expect(gpus > 1 or refused.returncode != 0 and "fan" in refused.stderr, f"{refused.returncode}: {refused.stderr}")
        expect(held.poll() is None, "the session that was there ended")
        made.carve(0, "node", "resume", "--gpu-ids", "0")
        again = made.run(BOB, build / "carve", "run", "--vram", "4", "--", "true")
        expect(again.returncode == 0, again.stderr)
        return refused.stderr.splitlines()[0] if refused.stderr else "another GPU was taken"


def device_files_open_for_slices_alone(build):
    """In a mount namespace of its own, whose /dev is a copy."""
    if not device_files():
        return "not tried: there are no device files of NVIDIA's here"
    done = subprocess.run(["unshare", "--mount", "--propagation", "private", sys.executable, __file__, str(build)],
                          env={**os.environ, IN_NAMESPACE: "1"}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=3 * PATIENCE_S, check=False)
    expect(done.returncode == 0, done.stderr)
    return done.stdout.strip()


def in_namespace(build):
    copy = pathlib.Path(tempfile.mkdtemp(prefix="carve-dev-"))
    try:
        for argv in (["mount", "-t", "tmpfs", "none", copy], ["cp", "-a", "/dev/.", copy], ["mount", "--bind", copy, "/dev"]):
            subprocess.run(argv, check=argv[0] == "mount", stderr=subprocess.DEVNULL)
        for file in device_files():
            os.chown(file, 0, GROUP)
            file.chmod(0o660)
        probe = ["sh", "-c", f"exec {PYTHON} -c \"$0\"", OPEN_GPU]
        with node(build) as made:
            before = made.run(BOB, *probe)
            expect(before.returncode != 0, "a user without a slice opens the GPU")
            inside = made.run(BOB, build / "carve", "run", "--vram", "4", "--", *probe)
            expect(inside.returncode == 0, f"a program in a slice: {inside.stdout} {inside.stderr}")
            expect(made.json(0, "session", "list") == [], "the slice is still there")
            wait_for(lambda: made.run(BOB, *probe).returncode != 0, lambda: "the GPU is closed again")
            modes = sorted({stat.filemode(file.stat().st_mode) for file in device_files()})
            said = next((line for line in made.carve(0, "check").splitlines() if "mandatory" in line), "check says nothing of it")
            return f"without a slice {before.stdout.strip() or 'it fails'}, inside {inside.stdout.strip()}; modes then {' '.join(modes)}; {said.strip()}"
    finally:
        subprocess.run(["umount", "--lazy", "/dev", copy], stderr=subprocess.DEVNULL, check=False)
        copy.rmdir()


POLICIES = (idle_sessions_are_released_and_busy_ones_stay, programs_outside_are_ended, a_drained_gpu_grants_nothing_new,
            device_files_open_for_slices_alone)


def main(build):
    build = pathlib.Path(build).resolve()
    if os.environ.get(IN_NAMESPACE):
        try:
            print(in_namespace(build))
        except (AssertionError, OSError, subprocess.SubprocessError) as why:
            sys.exit(str(why))
        return 0
    if os.geteuid():
        print("only root can be several users", file=sys.stderr)
        return SKIPPED
    failed = False
    for policy in POLICIES:
        what = policy.__name__.replace("_", " ")
        try:
            print(f"ok {what}: {policy(build)}", flush=True)
        except (AssertionError, OSError, ValueError, LookupError, subprocess.SubprocessError) as why:
            failed = True
            print(f"FAILED {what}: {why}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
