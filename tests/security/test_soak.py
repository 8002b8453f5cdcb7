"""All attacks in turn, again and again, for as long as CARVE_ATTACK_SECONDS says (scripts/soak-attacks): what the daemon
and its parts hold in memory after each round, and how long another user's requests take beside it."""
import collections
import os
import pathlib
import time

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, MALLORY, MIB
from .latency import times
from .test_budgets import COMMANDS, COMMON, CONNECTIONS, ENDED, LIVING, SMALL, UNREAD
from .test_claims import SQUAT
from .test_latency import READY_CALLS
from .test_loop import ASKS_NAMES, LINGERING, LOCKS, SENT_AND_SAID
from .test_memory import IN_SESSION

SECONDS = float(os.environ.get("CARVE_ATTACK_SECONDS", 60))
# Beyond what is there after the first round: what allocators keep, and no row of ours.
GROWTH_MOST = 24 * MIB

# Random words over the whole of one's own ledger, for as long as it runs.
LEDGER_NOISE = IN_SESSION + """
import random, threading
a, ledger, slot = attach(sys.argv[1])
def write():
    kinds = [b"\\xff" * 8, bytes(8), (1 << 63).to_bytes(8, "little"), ((1 << 63) - 1).to_bytes(8, "little")]
    while True:
        at = random.randrange(0, len(ledger.map) - 8)
        ledger.map[at:at + 8] = random.choice(kinds + [os.urandom(8)])
        time.sleep(0.0001)
threading.Thread(target=write, daemon=True).start()
"""

# Messages that no protocol knows, to both sockets.
SOCKET_NOISE = COMMON + """
import random, threading
def noise():
    while True:
        try:
            s = random.choice((http, attach))()
            for i in range(4): s.send(random.choice((b'POST /v1/jobs HTTP/1.1\\r\\nContent-Length: 9\\r\\n\\r\\n[[[[', message(random.randrange(9)), b''))
                                      + os.urandom(random.randrange(1, 3000)))
            s.close()
        except OSError:
            pass
        time.sleep(0.002)
threading.Thread(target=noise, daemon=True).start()
"""

# Processes that attach and end, as fast as they can.
ATTACHED = IN_SESSION + """
import threading
def again():
    while True:
        pid = os.fork()
        if pid == 0:
            try: attach(sys.argv[1])
            except Exception: pass
            os._exit(0)
        os.waitpid(pid, 0)
threading.Thread(target=again, daemon=True).start()
"""

SESSION = object()  # stands for a session of the attacker's


def without_end(source):
    return source.replace("held()\n", "")


ATTACKS = {
    **{f"lingering descriptors, {kind}": (source,) for kind, source in LINGERING.items()},
    "names": (ASKS_NAMES,),
    "locks": (LOCKS, SESSION, 4000),
    "ready calls": (READY_CALLS, 400, "/v1/sessions?all=1&page="),
    "connections": (without_end(CONNECTIONS), 800, "http", MALLORY),
    "attach connections": (without_end(CONNECTIONS), 800, "attach", MALLORY),
    "commands": (without_end(COMMANDS), 200),
    "history": (ENDED, 400),
    "unread answers": (without_end(UNREAD), 100, 200),
    "living sessions": (without_end(LIVING), 200, SMALL),
    "waiting requests": (without_end(COMMON + """
kept = []
for i in range(300):
    s = http()
    call(s, 'POST', '/v1/sessions', b'{"vram": "79", "wait_for": 600, "ephemeral": true}')
    kept.append(s)
"""),),
    "claims": (SQUAT.replace('print("up", flush=True)\nsys.stdin.read()\n', ""), "carve-gpu-squatted"),
    "a ledger of noise": (LEDGER_NOISE, SESSION),
    "sockets of noise": (SOCKET_NOISE,),
    "processes that come and go": (ATTACHED, SESSION),
}


def resident(lab):
    """Bytes of each of the daemon's processes, by name."""
    found = collections.Counter()
    for pid in lab.daemon_pids():
        try:
            proc = pathlib.Path(f"/proc/{pid}")
            found[(proc / "comm").read_text().strip()] += int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
        except OSError:
            pass  # it has just ended
    return found


def cleaned(lab):
    """The attacker has nothing any more."""
    lab.run(MALLORY, CARVE, "session", "release", "--all", "--force")
    return not any(s["owner"] == str(MALLORY) for s in lab.carve_json(0, "session", "list"))


def attack(lab, source, *arguments):
    """Alice's times beside it, and the most that the daemon held."""
    if SESSION in arguments:
        session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
        arguments = [session if a is SESSION else a for a in arguments]
    attacker = lab.python(MALLORY, source + SENT_AND_SAID, *arguments, method=lab.popen)
    while (line := attacker.stdout.readline()) != "sent\n":
        assert line, attacker.communicate()
    under = times(lab, count=60)
    most = sum(resident(lab).values())
    attacker.kill()
    attacker.communicate()
    wait_until(lambda: cleaned(lab))
    return under, most


@pytest.mark.long
@pytest.mark.timeout(SECONDS + 900)
@pytest.mark.attack("6-13", "all attacks in turn, and what the daemon's parts hold afterwards")
@pytest.mark.once("an instrumented build keeps what is freed for a while")
def test_all_attacks_in_turn_leave_the_daemon_as_it_was(lab):
    slice_of_bobs = lab.carve_json(BOB, "session", "request", "--vram", "3")["id"]
    until, rounds, worst, most = time.monotonic() + SECONDS, [], {}, 0
    while len(rounds) < 2 or time.monotonic() < until:
        for name, (source, *arguments) in ATTACKS.items():
            under, held = attack(lab, source, *arguments)
            worst[name] = max(worst.get(name, 0), under.values[-1])
            most = max(most, held)
        rounds.append(resident(lab))
        print(f"round {len(rounds)}:", ", ".join(f"{name} {value / MIB:.1f} MiB" for name, value in sorted(rounds[-1].items())),
              flush=True)
    print("longest request of another user beside each attack, ms:",
          ", ".join(f"{name} {value:.0f}" for name, value in worst.items()))
    print(f"{len(rounds)} rounds of {len(ATTACKS)} attacks; most held during an attack: {most / MIB:.1f} MiB")
    assert lab.serves_still()
    assert [s["id"] for s in lab.carve_json(ALICE, "session", "list") if s["owner"]] == []
    assert lab.carve_json(BOB, "session", "show", slice_of_bobs)["state"] == "active"
    first, last = sum(rounds[0].values()), sum(rounds[-1].values())
    assert last - first < GROWTH_MOST, rounds
