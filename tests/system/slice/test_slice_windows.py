"""Memory that a process gave back and the driver keeps, because others have it open, because pieces of it live, because a
stream has not got there: at no moment is it nobody's. Racing processes take whatever they can get meanwhile; judged by the
driver's own log of every change (`carve sim trace`)."""
import json
import os

import pytest

from driven import check_by_trace
from conftest import rest_long
from in_slice import MIB, context_bytes, gpu, nothing_is_left, program_in_slice
from programs import python

# More rounds find narrower windows.
ROUNDS = int(os.environ.get("CARVE_TEST_ROUNDS", 12))


def in_windows(host, name, vram, **settings):
    """The words of tests/programs/NAME.py in a slice of that size."""
    partners = {partner: list(map(str, python(f"windows_{partner}"))) for partner in ("opener", "racer", "neighbour")}
    return program_in_slice(host, name, run=("--vram", f"{vram}B"), timeout=300,
                            env={"WINDOWS": json.dumps({**partners, "rounds": ROUNDS, **settings})})


@pytest.mark.parametrize("busy", rest_long([True, False]), ids=["busy", "idle"])
@pytest.mark.parametrize("way", rest_long(["handle", "ipc-async", "small", "pool-destroy", "stream",
                                           "mapping", "ipc", "context", "pool-trim", "pieces"], 5))
def test_memory_that_the_driver_keeps_is_always_charged_to_a_session(host, way, busy, tmp_path):
    """The giver, the one that has it open and two racers, in a slice with a little room besides."""
    size, step = (2 * MIB, 2 * MIB) if way == "small" else (512 * MIB, 64 * MIB)
    context = context_bytes(host)
    vram = (4 + (way == "context")) * context + size + (2 if way == "small" else 128) * MIB + 4 * MIB * busy
    said = in_windows(host, "windows_race", vram, way=way, busy=["busy"] if busy else [], size=size, step=step,
                      room=vram - 2 * context)
    assert gpu(host)["memory_peak_bytes"] <= vram
    if not busy:  # else there are more changes than the log has room for
        check_by_trace(host, tmp_path)
    assert said >= host.measured(vram - 2 * context - 4 * MIB * busy)
    nothing_is_left(host)


@pytest.mark.parametrize("opened", rest_long([True, False]), ids=["opened", "alone"])
@pytest.mark.parametrize("way", rest_long(["handle", "small", "mapping", "ipc"], 2))
def test_memory_kept_by_the_driver_refuses_nobody(host, way, opened):
    """A neighbour finds room for what has room, and the giver for what it gave, if nobody else has that open."""
    size, step = (2 * MIB, 2 * MIB) if way == "small" else (512 * MIB, 256 * MIB)
    vram = 3 * context_bytes(host) + size + step
    refused, taken = in_windows(host, "windows_beside", vram, way=way, busy=[], size=size, step=step, opened=opened,
                                at_once=not opened)
    assert refused == 0 and taken >= 50
    assert gpu(host)["memory_peak_bytes"] <= vram
    nothing_is_left(host)


@pytest.mark.parametrize("seed", rest_long(range(1, 4)))
def test_the_place_of_a_small_piece_that_a_stream_frees_is_not_free_twice(host, seed):
    vram = 1024 * MIB
    assert program_in_slice(host, "small_pieces", seed, run=("--vram", f"{vram}B"), timeout=300) > 0
    assert gpu(host)["memory_peak_bytes"] == vram
    nothing_is_left(host)
