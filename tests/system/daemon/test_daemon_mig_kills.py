"""The daemon is killed at any moment while it makes and removes instances, several for a request, with somebody's hand at work on
the same GPUs: at each quiet moment afterwards its books are NVML's, and each session has the instances that it names, alone.

CARVE_SOAK_SECONDS says for how long, CARVE_SOAK_SEED which moments."""
import collections
import os
import random
import threading
import time

import pytest

from conftest import wait_until
from mig_hands import by_hand, call, carve, instances, kill_daemon, look
from programs import python

SECONDS = float(os.environ.get("CARVE_SOAK_SECONDS", 20))
SEED = int(os.environ.get("CARVE_SOAK_SEED", 23))
GPUS = 2
POINTS = ["mig.intent", "mig.half_made", "mig.made", "mig.learned", "mig.probed", "mig.granted", "mig.taken_apart", "mig.destroyed",
          "mig.ended"]


def wish(rng):
    """Words for a request."""
    words = rng.choice([["--vram", "5"], ["--vram", "11"], ["--gpu", "0.5"], ["--gpu", "1"], ["--mig-profile", "2g.20gb"],
                        ["--vram", "4", "--mig-share"], ["--vram", "6", "--mig-share"]])
    if "--mig-share" not in words:
        words = words + ["--gpus", str(rng.choice([1, 1, 2, 3]))]
    return words


# 1g.10gb+me, which nobody asks carve for. Where a daemon was killed before it made what it had written down, an instance of just
# that profile at just that place would be taken for carve's: no driver tells who made it.
MEDIA = 20


def foreign_hand(host, rng, foreign):
    """Carve may be first at a place: then nothing came of it."""
    gpu = rng.randrange(GPUS)
    real = by_hand(host, gpu, "list")
    mine = [f for f in foreign if f[0] == gpu]
    if mine:
        place = rng.choice(mine)
        by_hand(host, gpu, "destroy", next(i["id"] for i in real if i["start"] == place[1]))
        foreign.remove(place)
        return
    taken = {u for i in real for u in range(i["start"], i["start"] + i["size"])}
    free = [u for u in range(7) if u not in taken]
    if free:
        start = rng.choice(free)
        if host.run(python("mig_hand", gpu, "make", MEDIA, start, 1)).returncode == 0:
            foreign.append((gpu, start))


def wrong(host, foreign):
    """In words, or None."""
    listed = instances(host)
    busy = collections.Counter()
    for gpu in range(GPUS):
        real = by_hand(host, gpu, "list")
        if sorted((i["start"], i["size"]) for i in listed if i["gpu"] == gpu) != sorted((i["start"], i["size"]) for i in real):
            return f"GPU {gpu}: {listed} {real}"
        if [i for i in real if len(i["uuids"]) != 1]:
            return f"half made: {real}"
    if [i for i in listed if i["state"] in ("creating", "removing", "debt")]:
        return f"under way: {listed}"
    if sorted((i["gpu"], i["start"]) for i in listed if i["state"] == "foreign") != sorted(foreign):
        return f"foreign {foreign}: {listed}"
    for session in look(host, "session", "list"):
        for gpu in session["gpus"]:
            busy[gpu["instance"]] += 1
            if busy[gpu["instance"]] > 1 and not session["mig_shared"]:
                return f"two in {gpu['instance']}"
    held = sorted(i["uuid"] for i in listed if i["state"] == "busy" and i["session"])
    return None if sorted(busy) == held else f"sessions have {busy}, busy are {listed}"


def is_right(host, foreign):
    try:
        wait_until(lambda: wrong(host, foreign) is None)
    except AssertionError:
        pytest.fail(wrong(host, foreign) or "right in the end, and late")


def ask(host, body):
    """Nobody hears the answer where the daemon is killed."""
    try:
        call(host, "POST", "/v1/sessions", body)
    except (OSError, ValueError, EOFError):
        pass
    except Exception as e:  # noqa: BLE001 - http.client's own
        assert type(e).__module__ == "http.client", e


def body_of(words):
    body = {"kept": True}
    for option, value in zip(words, words[1:] + [None]):
        if option == "--mig-share":
            body["mig_share"] = True
        elif option.startswith("--"):
            name = option[2:].replace("-", "_")
            body[name] = int(value) if name == "gpus" else value
    return body


@pytest.mark.long
@pytest.mark.timeout(0)
def test_a_daemon_killed_at_any_moment_puts_it_right(make_host, tmp_path):
    token, rng, foreign = tmp_path / "token", random.Random(SEED), []
    host = make_host(f"h100-80gb:{GPUS}+mig")
    carve(host, "node", "set-role", "--dynamic-mig-enabled")
    carve(host, "sim", "fault", "mig-time", "--delay", "10ms")
    end, rounds, killed = time.monotonic() + SECONDS, 0, collections.Counter()
    while time.monotonic() < end:
        rounds += 1
        point = rng.choice(POINTS + [None] * 3)
        host.env["CARVE_KILL_POINT"] = f"{point}:{token}"
        kill_daemon(host)
        instances(host)  # the next one
        if point:
            token.touch()
        asked = [threading.Thread(target=ask, args=(host, body_of(wish(rng)))) for _ in range(rng.choice([1, 2, 3]))]
        for thread in asked:
            thread.start()
        if rng.random() < 0.3:
            foreign_hand(host, rng, foreign)
        if not point:
            time.sleep(rng.random() * 0.1)
            kill_daemon(host)
        if point == "mig.ended" or rng.random() < 0.5:
            for session in look(host, "session", "list"):
                if rng.random() < 0.6:
                    host.carve("session", "release", session["id"])
        for thread in asked:
            thread.join()
        killed[point or "anywhere"] += not token.exists()
        token.unlink(missing_ok=True)
        is_right(host, foreign)
        if point in ("mig.taken_apart", "mig.destroyed") or rounds % 10 == 0:
            host.carve("mig", "gc")
            is_right(host, foreign)
    print(rounds, dict(killed))
