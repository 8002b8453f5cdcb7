"""Point 7: nobody is ended or suspended for what a neighbour did. A user's own programs are stopped or held by a
debugger while they have the GPU, and another user's innocent program goes on beside them. Programs that use the GPU without
carve's front are ended, attached or not: nobody else can bring that about."""
import pytest

from conftest import wait_until

from .lab import ALICE, MALLORY, ROOT
from .time_lab import GATE, Victim, slice_time, wait_line

pytestmark = pytest.mark.long

# By the GPU's clock: a measurement is a second long, and one of them was enough.
SECONDS = 12

# Two programs of the attacker's, and for each of them what `stop` and `go_on` do to it, in turn.
HOLDS_UP = GATE + r"""
kernel_us, stopped_s, running_s = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
work = [sliced(["--gpu", "0.25"], *client("--kernel-us", kernel_us, "--sync-every", 64)) for _ in range(2)]
for w in work: w.stdout.readline()
def own(entry):
    try:
        return open(f"/proc/{entry}/comm").read() == "share_client\n" and os.getsid(int(entry)) in [w.pid for w in work]
    except OSError:
        return False
pids = [int(entry) for entry in os.listdir("/proc") if entry.isdigit() and own(entry)]
assert len(pids) == 2, pids
def hold_up(stop, go_on):
    print("begun", flush=True)
    while True:
        for pid in pids: stop(pid)
        time.sleep(stopped_s)
        for pid in pids: go_on(pid)
        time.sleep(running_s)
"""
SIGNALS = HOLDS_UP + """
hold_up(lambda pid: os.kill(pid, signal.SIGSTOP), lambda pid: os.kill(pid, signal.SIGCONT))
"""
# All threads of a program stop where its tracer seizes them, and go on when it lets them go.
DEBUGGER = HOLDS_UP + r"""
libc = ctypes.CDLL(None, use_errno=True)
libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
SEIZE, INTERRUPT, DETACH = 0x4206, 0x4207, 17
seized = set()
def stop(pid):
    for tid in map(int, os.listdir(f"/proc/{pid}/task")):
        if libc.ptrace(SEIZE, tid, None, None) == 0:
            libc.ptrace(INTERRUPT, tid, None, None)
            os.waitpid(tid, 0x40000000)  # __WALL
            seized.add(tid)
    assert seized
def go_on(pid):
    for tid in seized: libc.ptrace(DETACH, tid, None, None)
    seized.clear()
hold_up(stop, go_on)
"""

WAYS = {
    "stopped-for-long": (SIGNALS, 2000, 3, 0.05),
    "stopped-at-a-pace": (SIGNALS, 400000, 0.15, 0.05),
    "stopped-with-long-kernels": (SIGNALS, 50000, 1.5, 0.2),
    "held-by-a-debugger": (DEBUGGER, 50000, 1.5, 0.2),
}


def gpu_clock(lab):
    return lab.host.stat()["gpus"][0]["clock_ns"]


@pytest.mark.parametrize("mode", ["fair", "strict"])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.attack("7", "a neighbour that stops while it has the GPU")
def test_a_neighbour_that_is_held_up_costs_nobody_a_program(lab, way, mode):
    source, *arguments = WAYS[way]
    slice_time(lab, mode)
    victim = Victim(lab, ["--gpu", "0.5"])
    attacker = lab.python(MALLORY, source, *arguments, method=lab.popen, start_new_session=True)
    wait_line(attacker, "begun")
    end = gpu_clock(lab) + SECONDS * 1_000_000_000
    wait_until(lambda: gpu_clock(lab) >= end or not victim.working())
    assert victim.working(), lab.log()[-2000:]
    assert "user.suspended" not in lab.log(), lab.log()[-2000:]
    assert attacker.poll() is None, attacker.stderr.read()


# Programs that the loader gives the driver itself. `attach`: the process has a slot in a session of its user's all the same.
WITHOUT_FRONT = GATE + r"""
attach = sys.argv[1] == "attached"
holder = sliced(["--gpu", "0.25"], "sleep", "1000")
name = session_of(holder)
if attach:
    mine = Session(name, 1)
    for fd in (mine.socket.fileno(), *mine.fds): os.set_inheritable(fd, True)
env = {k: v for k, v in os.environ.items() if not k.startswith("CARVE")}
env["LAB_OF_TEST"] = LAB["http"]  # so that the lab finds it at its end
print("begun", flush=True)
os.execve(CLIENT, client("--kernel-us", 2000), env)
"""


@pytest.mark.parametrize("way", ["attached", "loose"])
@pytest.mark.attack("7", "a program that goes round the front")
def test_a_program_without_the_front_is_ended(lab, way):
    slice_time(lab, "strict")
    victim = Victim(lab, ["--gpu", "0.5"])
    attacker = lab.python(MALLORY, WITHOUT_FRONT, way, method=lab.popen, start_new_session=True)
    wait_line(attacker, "begun")
    wait_until(lambda: attacker.poll() is not None)
    assert f"owner={MALLORY}" in lab.log() and "reason=no-front" in lab.log(), lab.log()[-2000:]
    assert f"owner={ALICE}" not in lab.log() and victim.working()
    killed = lab.carve_json(ROOT, "audit", "--kind", "session.slicing_killed")
    assert killed and {k["owner"] for k in killed} == {str(MALLORY)} and all("slicing_policy ended" in k["text"] for k in killed), killed
    assert killed[0]["subject"].startswith("session s-" if way == "attached" else f"process {attacker.pid}"), killed
