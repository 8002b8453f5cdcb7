"""Instances made and removed for a long time, with others at work on the same GPU: at each quiet moment the books are NVML's.

CARVE_SOAK_ROUNDS says how many creations and removals are asked for; without it, as many as take about a minute."""
import os
import random

import pytest

from conftest import wait_until
from mig_hands import books_are_nvmls, by_hand, call, carve, instances, kill_daemon, with_role

ROUNDS = int(os.environ.get("CARVE_SOAK_ROUNDS", 1000))
QUIET_EVERY = 50
PROFILES = ["1g.10gb"] * 4 + ["1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb"]


def hands(host, rng, foreign):
    """By hand one is made where there is room, or one that was made so is removed; or a handle is held for a moment."""
    real = by_hand(host, 0, "list")
    if foreign and rng.random() < 0.5:
        place = rng.choice(sorted(foreign))
        by_hand(host, 0, "destroy", next(i["id"] for i in real if (i["start"], i["size"]) == place))
        foreign.discard(place)
    elif rng.random() < 0.7:
        taken = {u for i in real for u in range(i["start"], i["start"] + i["size"])}
        free = [u for u in range(7) if u not in taken]
        if free and len(foreign) < 2:
            start = rng.choice(free)
            by_hand(host, 0, "make", 19, start, 1)
            foreign.add((start, 1))
    elif real:
        carve(host, "sim", "fault", "mig-hold", "--gpu", "0", "--instance", str(rng.choice(real)["id"]))
        host.carve("run", "--ephemeral", "--gpu", "0.5", "--", "true")  # whatever becomes of it
        carve(host, "sim", "fault", "mig-hold", "--clear")


@pytest.mark.long
@pytest.mark.timeout(0)
def test_books_equal_nvmls_at_each_quiet_moment(make_host):
    host = with_role(make_host)
    rng, held, foreign, made = random.Random(23), [], set(), 0
    for step in range(ROUNDS):
        if held and (len(held) > 5 or rng.random() < 0.5):
            status, _ = call(host, "DELETE", f"/v1/sessions/{held.pop(rng.randrange(len(held)))}")
            assert status == 200
        else:
            status, answer = call(host, "POST", "/v1/sessions", {"mig_profile": rng.choice(PROFILES), "kept": True})
            assert status in (201, 409), answer
            if status == 201:
                held.append(answer["id"])
                made += 1
        if step % 10 == 9:
            call(host, "POST", "/v1/mig/gc", {"older_than": 0})
        if step % QUIET_EVERY == QUIET_EVERY - 1:
            wait_until(lambda: books_are_nvmls(host, foreign))
            hands(host, rng, foreign)
            wait_until(lambda: books_are_nvmls(host, foreign))
        if step % 500 == 499:
            kill_daemon(host)
            wait_until(lambda: books_are_nvmls(host, foreign))
            assert len({i["session"] for i in instances(host, "busy")}) == len(held)
    assert made > ROUNDS / 8
    for id in held:
        call(host, "DELETE", f"/v1/sessions/{id}")
    carve(host, "mig", "gc")
    wait_until(lambda: len(instances(host)) == len(foreign))
