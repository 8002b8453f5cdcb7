"""Point 11: whatever one user's processes write or do, another session gets its share of the GPU's time, within 2 points
over 20 s, by the simulator's own books. timed: a machine that is busy otherwise is no judge."""
import os

import pytest

from conftest import wait_until

from .lab import BOB, MALLORY
from .time_lab import GATE, Victim, due, share, slice_time, wait_line

pytestmark = [pytest.mark.timed, pytest.mark.long, pytest.mark.alone]

POINTS = 0.02

# Opens its own gate as often as it can, in the name of a waiter who takes the daemon for gone.
OPENS = GATE + r"""
size = sys.argv[1:]
work = sliced(size, *client("--kernel-us", 2000, "--streams", 4))
work.stdout.readline()
mine = Session(session_of(work), 4)
print("begun", flush=True)
while True:
    if mine.gate() & 255 in (CLOSED, IDLE): mine.gate_set(int(os.environ.get("STATE", "1")))
"""
# Pretends that time-slicing is off.
SWITCHES_OFF = OPENS.replace("mine.gate_set(int(os.environ.get(\"STATE\", \"1\")))", "mine.words[0] = 0")
# Says that nothing is in flight and nobody launches, so that its drains end at once.
HIDES_WORK = GATE + r"""
size = sys.argv[1:]
work = sliced(size, *client("--kernel-us", 50000, "--streams", 8))
work.stdout.readline()
mine = Session(session_of(work), 4)
print("begun", flush=True)
while True:
    for slot in range(1, 4):
        mine.put(slot, 12, 0)  # threads
        mine.put(slot, 16, 0)  # streams
"""
# Says that its work is about to end, whatever comes, for as long as that is believed.
NEVER_DRAINS = GATE + r"""
size = sys.argv[1:]
work = sliced(size, *client("--kernel-us", 20000))
work.stdout.readline()
mine = Session(session_of(work), 4)
print("begun", flush=True)
while True:
    for slot in range(1, 4):
        mine.put(slot, 40, 1 << 40, "<Q")  # in_flight_ns
        mine.put(slot, 128, 1)             # a thread that is in a launch
"""
# Sessions of 1%, one after the other, each of which has a long kernel and is gone. Four at a time.
NEWCOMERS = GATE + r"""
print("begun", flush=True)
def one():
    while True:
        work = sliced(["--gpu", "0.01"], *client("--kernel-us", 60000, "--sync-every", 0))
        work.stdout.readline()
        time.sleep(0.2)
        end(work)
for i in range(4): threading.Thread(target=one).start()
"""
# The same, and each says of its kernel that it takes no time.
NEWCOMERS_SAY = NEWCOMERS.replace("        time.sleep(0.2)", r"""        try:
            mine = Session(session_of(work), 4)
            for slot in range(1, 3): mine.put(slot, 40, 1 << 60, "<Q")
        except Exception: pass
        time.sleep(0.2)""")
# Goes round the front: a process of no session, with the driver alone.
ROUND = GATE + r"""
env = {k: v for k, v in os.environ.items() if not k.startswith("CARVE")}
env["LAB_OF_TEST"] = LAB["http"]  # so that the lab finds them at its end
work = [subprocess.Popen(client("--kernel-us", 2000), stdout=subprocess.PIPE, text=True, env=env) for _ in range(3)]
for w in work: w.stdout.readline()
print("begun", flush=True)
while True:
    for i, w in enumerate(work):
        if w.poll() is not None:
            work[i] = subprocess.Popen(client("--kernel-us", 2000), stdout=subprocess.PIPE, text=True, env=env)
    time.sleep(0.05)
"""

ATTACKS = {
    "opens": (OPENS, ["--gpu", "0.25"]),
    "contended": (OPENS.replace('"STATE", "1"', '"STATE", "2"'), ["--gpu", "0.25"]),
    "off": (SWITCHES_OFF, ["--gpu", "0.25"]),
    "hides": (HIDES_WORK, ["--gpu", "0.25"]),
    "never-drains": (NEVER_DRAINS, ["--gpu", "0.25"]),
    "newcomers": (NEWCOMERS, []),
    "newcomers-say": (NEWCOMERS_SAY, []),
    "round": (ROUND, []),
}


def attack(lab, name, uid=MALLORY):
    source, size = ATTACKS[name]
    attacker = lab.python(uid, source, *size, method=lab.popen, start_new_session=True)
    wait_line(attacker, "begun")
    return attacker


@pytest.mark.parametrize("mode", ["fair", "strict"])
@pytest.mark.parametrize("name", ATTACKS)
@pytest.mark.attack("11", "time beyond one's share")
def test_a_victim_has_its_share(lab, name, mode):
    slice_time(lab, mode)
    victim = Victim(lab, ["--gpu", "0.5"])
    wanted = due(lab, victim, 0.5)
    attacker = attack(lab, name)
    had = share(lab, victim)
    print(f"{name}, {mode}: {had:.3f} of {wanted:.3f}")
    if os.environ.get("SEC_DEBUG"): open("/tmp/sec_lab_log", "w").write(lab.log())
    assert victim.working()
    assert had >= wanted - POINTS, lab.log()[-2000:]
    assert attacker.poll() is None


@pytest.mark.attack("11", "beside an attack, two honest sessions")
def test_two_victims_have_their_shares(lab):
    slice_time(lab, "strict")
    first, second = Victim(lab, ["--gpu", "0.25"]), Victim(lab, ["--gpu", "0.25"], uid=BOB)
    wanted = [due(lab, victim, 0.25) for victim in (first, second)]
    attack(lab, "opens")
    for victim, least in zip((first, second), wanted):
        assert share(lab, victim) >= least - POINTS and victim.working()


@pytest.mark.attack("11", "a gate that is opened again and again")
def test_a_gate_that_is_opened_again_suspends_its_user(lab):
    slice_time(lab, "fair")
    Victim(lab, ["--gpu", "0.5"])
    attack(lab, "opens")
    wait_until(lambda: "user.suspended" in lab.log() and "gate-opened" in lab.log())
