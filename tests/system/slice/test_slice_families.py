"""A slice holds whichever way memory is taken, by the driver's own books (`carve sim stat`), never carve's."""
import json
import subprocess

import pytest

from conftest import BUILD, wait_until
from in_slice import context_bytes, pieces_in

MIB = 1 << 20
GIB = 1 << 30
GREEDY = BUILD / "tests/programs/slice_greedy"
PIECE = 64 * MIB
# The memory that a family takes and gives in one step beyond what is asked.
STEP = {"async": 32 * MIB, "async-free": 32 * MIB, "pool": 32 * MIB, "mipmap": 32 * MIB, "graph": 32 * MIB}
FAMILIES = ["linear", "pitch", "managed", "async", "async-free", "pool", "vmm", "mapped", "array", "mipmap", "graph"]


def books(host):
    gpu = host.stat()["gpus"][0]
    return gpu["memory_used_bytes"], gpu["memory_peak_bytes"]


def greedy(host, family, piece=PIECE, vram="2"):
    done = host.carve("run", "--vram", vram, "--", GREEDY, family, str(piece))
    assert done.stdout, done.stderr
    said = json.loads(done.stdout)
    if said["result"] == 801:
        pytest.skip(f"the simulated driver has no {family}")
    assert done.returncode == 0, done.stdout + done.stderr
    return said


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.once("the front's accounts; the others have the daemon's part")
def test_family_is_held_and_given_back(host, family):
    said = greedy(host, family)
    used, peak = books(host)
    assert used == 0
    # Never over; and refused only when there was no room for one more piece.
    assert 2 * GIB - PIECE - STEP.get(family, 0) < peak <= 2 * GIB
    assert said["total"] == 2 * GIB
    assert said["full"] < PIECE + STEP.get(family, 0)
    assert said["after"] == said["before"]


@pytest.mark.parametrize("family", ["linear", "vmm", "array"])
def test_exact_to_the_last_block(host, family):
    said = greedy(host, family, piece=2 * MIB)
    assert said["full"] < 2 * MIB
    assert said["pieces"] == said["before"] // (2 * MIB)
    assert books(host)[1] <= 2 * GIB


def test_small_ones_share_blocks_as_the_driver_packs_them(host):
    # Two of a MiB fill a block, three of 700,000 bytes nearly one: 2 to a block.
    assert greedy(host, "linear", piece=MIB)["full"] < 2 * MIB
    said = greedy(host, "linear", piece=700_000)
    assert said["full"] < 2 * MIB
    assert said["pieces"] == said["before"] // (2 * MIB) * 2
    assert books(host)[1] <= 2 * GIB


def test_contexts_count(host):
    said = greedy(host, "context")
    assert said["pieces"] >= 2 * GIB // context_bytes(host) - 1, "what fits beside the first"
    assert books(host) == (0, books(host)[1]) and books(host)[1] <= 2 * GIB


@pytest.mark.once("the front's accounts; the others have the daemon's part")
def test_modules_count(host):
    said = greedy(host, "module")
    assert said["pieces"] == said["before"] // PIECE
    assert said["after"] == said["before"]
    # The memory that its image says it takes is reserved first: never is one loaded too many.
    assert books(host)[1] <= 2 * GIB


def test_resized_while_it_runs(host):
    session = host.carve_json("session", "request", "--vram", "2")["id"]
    holder = host.popen([BUILD / "carve", "run", "--", GREEDY, "linear", PIECE, "race"], stdin=subprocess.PIPE)
    assert holder.stdout.readline() == "ready\n"
    assert host.carve("session", "resize", session, "3").returncode == 0
    holder.stdin.write("\n")
    holder.stdin.flush()
    assert int(holder.stdout.readline()) == pieces_in(host, 3 * GIB - context_bytes(host), PIECE)
    assert host.carve("session", "resize", session, "2").returncode != 0, "less than is in use"
    out, err = holder.communicate("\n", timeout=60)
    assert holder.returncode == 0 and json.loads(out)["total"] == 2 * GIB, out + err
    assert 3 * GIB - PIECE < books(host)[1] <= 3 * GIB
    assert host.carve("session", "resize", session, "1").returncode == 0
    assert greedy(host, "linear", vram="1")["total"] == GIB


def test_sixteen_processes_race_for_the_last_block(host):
    session = host.carve_json("session", "request", "--vram", "12")["id"]
    piece = 2 * MIB
    racers = [host.popen([BUILD / "carve", "run", "--session", session, "--", GREEDY, family, piece, "race"],
                         stdin=subprocess.PIPE) for family in ("linear", "vmm") * 8]
    assert [r.stdout.readline() for r in racers] == ["ready\n"] * 16
    contexts, _ = books(host)
    for r in racers:
        r.stdin.write("\n")
        r.stdin.flush()
    counts = [int(r.stdout.readline()) for r in racers]
    used, peak = books(host)
    # Everybody was refused, and the slice is full to the last block; never was it passed.
    assert contexts + sum(counts) * piece == used
    assert 12 * GIB - piece < used <= 12 * GIB and peak <= 12 * GIB
    assert host.carve_json("session", "show", session)["gpus"][0]["used_bytes"] == used
    done = [r.communicate("\n", timeout=60) for r in racers]
    assert [r.returncode for r in racers] == [0] * 16, done
    wait_until(lambda: books(host)[0] == 0)
