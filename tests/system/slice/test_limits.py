"""A slice is exact: what fits is granted and one granule more is refused, from any state, by racing processes, and
while its size changes. Judged by the driver's own books (`carve sim stat`, `carve sim trace`), never by carve's."""
import random

import pytest

from conftest import BUILD, rest_long, wait_until
from driven import OK, OUT_OF_MEMORY, check_by_trace, driven, on_gpu, peak, session  # noqa: F401: fixtures
from in_slice import in_slice

MIB = 1 << 20
GIB = 1 << 30
BLOCK = 2 * MIB
POOL_STEP = 32 * MIB
RACE = BUILD / "tests/programs/limit_race"
# Smallest step, by family: a block, for pools what they grow by.
STEPS = {"linear": BLOCK, "pitch": BLOCK, "array": BLOCK, "vmm": BLOCK, "mapped": BLOCK,
         "async": POOL_STEP, "pool": POOL_STEP}


def give_all(d, count):
    for _ in range(count):
        assert d.say("give") == OK


@pytest.mark.parametrize("seed", rest_long(range(3)))
@pytest.mark.parametrize("family", STEPS)
@pytest.mark.once("the front's accounts; the others have the daemon's part")
def test_an_exact_fit_is_granted_and_a_granule_more_is_refused(host, driven, session, family, seed):
    mine, neighbour = driven("--session", session), driven("--session", session)
    chance = random.Random(seed)
    for _ in range(chance.randrange(12)):
        kind = chance.choice(["linear", "vmm", "array", "async"])
        chance.choice([mine, neighbour]).say(f"take {kind} {chance.randrange(1, 90 * MIB // BLOCK) * BLOCK}")
    step, room, held = STEPS[family], mine.room(), on_gpu(host)
    # Memory that an async take left unused in its pool is no room for another.
    assert 2 * GIB - held - POOL_STEP < room <= 2 * GIB - held
    assert mine.say(f"take {family} {room // step * step + step}") == OUT_OF_MEMORY
    assert (mine.room(), on_gpu(host)) == (room, held), "a refusal changes nothing"
    assert mine.say(f"take {family} {room // step * step}") == OK
    assert on_gpu(host) == held + room // step * step <= 2 * GIB
    left = mine.room()
    assert neighbour.say(f"take {family} {step}") == OUT_OF_MEMORY
    assert mine.say(f"take {family} {step}") == OUT_OF_MEMORY
    assert (mine.room(), neighbour.room()) == (left, left)
    assert mine.say("give") == OK
    assert (mine.room(), on_gpu(host)) == (room, held)
    assert peak(host) <= 2 * GIB


# The memory that can be had in one piece is a multiple of this; docs/user/limits.md says so.
WHOLE = {**STEPS, "managed": BLOCK, "graph": POOL_STEP}


@pytest.mark.parametrize("family", WHOLE)
def test_all_that_is_free_can_be_had(host, driven, family):
    """Where neither the slice nor its memory is of whole blocks, too; a family that rounds takes the rest of its own step."""
    d = driven("--ephemeral", "--gpu-memory", "2G")
    for odd in "linear 3000001", "linear 700000", "async 5000000":
        assert d.say(f"take {odd}") == OK
    step, free = WHOLE[family], d.room()
    assert free % BLOCK == 0 and free >= GIB
    if free % step == 0 and step > BLOCK:
        assert d.say(f"take linear {BLOCK}") == OK
        free = d.room()
    assert d.say(f"take {family} {free // step * step + step}") == OUT_OF_MEMORY
    assert d.say(f"take {family} {free // step * step}") == OK
    assert d.room() == free % step
    assert peak(host) <= 2 * 10**9


def test_memory_of_the_host_takes_nothing_of_the_slice(host):
    before, after, result = in_slice(host, r"""
begin()
before, made, own = room(), c.c_void_p(), c.create_string_buffer(8 * MIB)
at = c.c_void_p((c.addressof(own) + 4095) // 4096 * 4096)
ok(cuda.cuMemHostAlloc(c.byref(made), c.c_size_t(64 * MIB), 0)); ok(cuda.cuMemHostRegister_v2(at, c.c_size_t(4 * MIB), 0))
print(json.dumps([before, room(), take(before)[0]]))
""")
    assert (before, result) == (after, OK)


@pytest.mark.parametrize("who", rest_long(["process", "thread"]))
@pytest.mark.parametrize("kind, family", [("array-64", "linear"), ("array-4", "vmm"), ("mipmap-4", "array"), ("linear-1", "linear")])
@pytest.mark.needs_sim("leaves 24 MiB by the simulated driver's sizes")
def test_small_things_that_another_makes_refuse_nobody(host, kind, who, family):
    """An amount charged for a moment beyond what they take is given back, and waited for."""
    done = host.carve("run", "--ephemeral", "--vram", "2", "--", BUILD / "tests/programs/limit_beside", kind, who, family, 40)
    assert done.returncode == 0, done.stderr
    assert peak(host) <= 2 * GIB


@pytest.mark.needs_sim("leaves 24 MiB by the simulated driver's sizes")
def test_small_things_of_a_process_without_a_processor_refuse_nobody(host):
    """The process has too much charged and is about to ask the daemon, but does not run for 1.3 s. Room is waited for as long again."""
    done = host.carve("run", "--ephemeral", "--vram", "2", "--", BUILD / "tests/programs/limit_beside", "array-4", "paused", "vmm", 4)
    assert done.returncode == 0, done.stderr
    assert peak(host) <= 2 * GIB


@pytest.mark.needs_sim("leaves 24 MiB by the simulated driver's sizes")
def test_small_things_refuse_nobody_on_a_busy_machine(host):
    """Makers who find no room themselves for a moment do not end what another said of it."""
    program = [BUILD / "carve", "run", "--ephemeral", "--vram", "2", "--",
               BUILD / "tests/programs/limit_beside", "array-4", "process", "vmm", "60"]
    running = [host.popen(program) for _ in range(6)]
    said = [p.communicate(timeout=120)[1] for p in running]
    assert [p.returncode for p in running] == [0] * 6, said


@pytest.mark.parametrize("kind, bytes_each, count", [("array", 4 << 10, 12), ("mipmap", 4 << 10, 16), ("array", 256 << 10, 12)])
def test_small_arrays_do_not_show_as_more_than_they_take(driven, host, kind, bytes_each, count):
    """A program that asks how much is free sizes itself by that."""
    d = driven("--ephemeral", "--vram", "2")
    before = d.room()
    for _ in range(count):
        assert d.say(f"take {kind} {bytes_each}") == OK
    blocks = -(-count * bytes_each // BLOCK)
    assert before - d.room() <= (blocks + 1) * BLOCK
    assert d.say(f"take linear {d.room() // BLOCK * BLOCK}") == OK


@pytest.mark.parametrize("family", rest_long(STEPS, 2))
@pytest.mark.once("the front's accounts; the others have the daemon's part")
def test_sixteen_racers_get_all_there_is_and_no_more(host, family, tmp_path):
    done = host.carve("run", "--vram", "12", "--", RACE, family, STEPS[family], 16, 4)
    assert done.returncode == 0, done.stderr
    room = int(done.stdout)
    assert room > 3 * GIB
    assert 12 * GIB - STEPS[family] < peak(host) <= 12 * GIB
    check_by_trace(host, tmp_path)
    wait_until(lambda: on_gpu(host) == 0)


@pytest.mark.parametrize("processes, threads, rounds", rest_long([(1, 1, 3), (16, 1, 2), (6, 6, 2)]))
def test_pools_with_room_in_pieces_never_pass_the_limit(host, processes, threads, rounds, tmp_path):
    """They may take the pieces, all of them, and nothing else."""
    done = host.carve("run", "--vram", "12", "--", BUILD / "tests/programs/limit_pieces", processes, threads, rounds)
    assert done.returncode == 0, done.stderr
    assert 12 * GIB - processes * POOL_STEP < peak(host) <= 12 * GIB
    check_by_trace(host, tmp_path)
    wait_until(lambda: on_gpu(host) == 0)


def test_threads_with_small_pieces_in_a_full_slice_never_pass_it(host, driven, session):
    """The rest of a block is promised to one of them at a time."""
    mine = driven("--session", session)
    for _ in range(3):
        assert mine.say(f"take linear {BLOCK // 4}") == OK
    assert mine.say(f"take linear {mine.room() // BLOCK * BLOCK}") == OK
    full = on_gpu(host)
    for _ in range(5):
        for size in (BLOCK // 5, BLOCK // 9):
            mine.say(f"threads 16 linear {size}")
            assert (on_gpu(host), peak(host)) == (full, full)
    assert mine.say(f"take linear {BLOCK // 4}") == OK
    assert peak(host) == full


def test_a_graph_runs_again_in_a_full_slice_with_the_memory_it_has(host, driven, session):
    mine = driven("--session", session)
    assert mine.say(f"graph {GIB}") == mine.say("launch") == OK
    assert mine.say(f"take linear {mine.room() // BLOCK * BLOCK}") == OK
    full = on_gpu(host)
    for _ in range(3):
        assert mine.say("launch") == OK
        assert on_gpu(host) == full
    # Given back, it is somebody else's, and the graph has to ask again.
    assert mine.say("trim") == OK
    assert on_gpu(host) == full - GIB
    assert mine.say(f"take linear {GIB}") == OK
    assert mine.say("launch") == OUT_OF_MEMORY
    assert mine.say("give") == mine.say("launch") == OK
    assert peak(host) <= 2 * GIB


def test_a_graph_takes_its_memory_when_it_is_used_not_when_it_is_made(host, driven, session):
    """As on a GPU of that size: a full slice instantiates it, and refuses to upload or launch it."""
    mine = driven("--session", session)
    assert mine.say(f"take linear {mine.room() * 6 // 10 // BLOCK * BLOCK}") == OK
    before = on_gpu(host)
    assert mine.say(f"graph {GIB}") == OK
    assert on_gpu(host) == before
    assert mine.say("upload") == mine.say("launch") == OUT_OF_MEMORY
    assert mine.say(f"uploaded {GIB}") == OUT_OF_MEMORY
    assert mine.say(f"graph {GIB}") == mine.say("give") == OK
    assert mine.say("upload") == mine.say("launch") == OK
    assert peak(host) <= 2 * GIB


def test_two_slices_race_beside_each_other(host):
    """The memory of one slice is never the reason for another's refusal."""
    if host.carve_json("gpu", "list")[0]["available_bytes"] < 18 * GIB:
        pytest.skip("needs a GPU of 18 GiB")
    racers = [host.popen([BUILD / "carve", "run", "--vram", "6", "--", RACE, family, STEPS[family], 6, 6])
              for family in ("linear", "vmm", "async")]
    done = [(r.communicate(timeout=60), r.returncode) for r in racers]
    assert [code for _, code in done] == [0, 0, 0], done
    assert peak(host) <= 18 * GIB


def test_a_module_beyond_the_slice_disturbs_no_other_session(host, driven):
    """Nobody can size a module before it is loaded: one too large is unloaded at once. On a GPU that is promised to the
    last byte, that moment must not fail another slice's allocation."""
    greedy, innocent = driven("--vram", "2"), None
    room = greedy.room()
    assert greedy.say(f"take linear {room // BLOCK * BLOCK}") == OK
    left = host.carve_json("gpu", "list")[0]["available_bytes"]
    innocent = driven("--vram", f"{left // BLOCK * BLOCK}B")
    assert innocent.say(f"take linear {innocent.room() // BLOCK * BLOCK - BLOCK}") == OK
    for _ in range(3):
        greedy.process.stdin.write(f"take module {32 * MIB}\n" * 2)
        greedy.process.stdin.flush()
        assert innocent.say(f"threads 1 linear {BLOCK}") == OK
        assert [greedy.process.stdout.readline().strip() for _ in range(2)] == [str(OUT_OF_MEMORY)] * 2
    assert greedy.room() < BLOCK


def test_a_module_beyond_the_slice_disturbs_no_process_of_its_slice(host, driven, session):
    greedy, innocent = driven("--session", session), driven("--session", session)
    assert greedy.say(f"take linear {(greedy.room() - 4 * BLOCK) // BLOCK * BLOCK}") == OK
    for _ in range(3):
        greedy.process.stdin.write(f"take module {32 * MIB}\n" * 2)
        greedy.process.stdin.flush()
        assert innocent.say(f"threads 1 linear {3 * BLOCK}") == OK
        assert [greedy.process.stdout.readline().strip() for _ in range(2)] == [str(OUT_OF_MEMORY)] * 2


def test_resized_to_the_block_while_it_runs(host, driven, session):
    mine = driven("--session", session)
    assert mine.say(f"take linear {GIB}") == OK
    held = host.carve_json("session", "show", session)["gpus"][0]["used_bytes"]
    assert held == on_gpu(host)

    def resize(size):
        return host.carve("session", "resize", session, f"{size}B").returncode

    assert resize(held - 1) != 0 and mine.ask("room")[1] == str(2 * GIB)
    assert resize(held) == 0
    assert mine.ask("room") == ["0", str(held)]
    assert mine.say("take linear 1") == OUT_OF_MEMORY
    assert resize(held + BLOCK - 1) == 0 and mine.say("take linear 1") == OUT_OF_MEMORY
    assert resize(held + BLOCK) == 0 and mine.say("take linear 1") == OK
    assert mine.say("take vmm 2097152") == OUT_OF_MEMORY
    assert resize(3 * GIB) == 0
    assert mine.say(f"take vmm {3 * GIB - held - BLOCK}") == OK
    assert on_gpu(host) == peak(host) == 3 * GIB
    give_all(mine, 3)
    assert resize(held - GIB) == 0 and mine.room() == 0
    assert mine.say("take linear 1") == OUT_OF_MEMORY


def test_each_gpu_of_a_session_has_its_own_limit(make_host, driven):
    pair = make_host("h100-80gb:2")
    session = pair.carve_json("session", "request", "--vram", "2", "--gpus", "2")["id"]
    both, second = driven("--session", session, on=pair), driven("--session", session, on=pair, device=1)
    room = both.room()
    assert both.say(f"take linear {room}") == OK and both.say("take linear 1") == OUT_OF_MEMORY
    assert on_gpu(pair, 0) == 2 * GIB
    assert second.room() == room, "the other GPU is untouched"
    assert both.say("device 1") == OK
    assert both.say(f"take pitch {second.room()}") == OK
    assert second.say("take linear 1") == both.say("take linear 1") == OUT_OF_MEMORY
    assert on_gpu(pair, 1) == 2 * GIB
    give_all(both, 2)
    assert second.say(f"take managed {room - 520 * MIB}") == OK
    assert [peak(pair, gpu) for gpu in (0, 1)] == [2 * GIB, 2 * GIB]
    # Resized, it is so on both.
    assert pair.carve("session", "resize", session, "1").returncode != 0, "GPU 1 is full"
    assert pair.carve("session", "resize", session, "3").returncode == 0
    assert second.say("take linear " + str(GIB)) == both.say("device 0") == OK
    assert both.say(f"take linear {both.room()}") == OK and both.say("take linear 1") == OUT_OF_MEMORY
    assert [peak(pair, gpu) for gpu in (0, 1)] == [3 * GIB, 3 * GIB]
