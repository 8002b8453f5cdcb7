"""The memory of a module or a limit of a context is reserved by its most, and what the driver took is asked for afterwards. Where
figures don't tell just then, as something is charged that need not be there, that is asked for when they do again: no room that
the driver has is refused for ever. Judged by the driver's own books (`carve sim stat`)."""
import json
import subprocess
import sys

import pytest

from conftest import BUILD, rest_long, wait_until
from in_slice import BEGIN, GIB, MIB, gpu, nothing_is_left
from front_host import FRONTS

# The excess of a charge is what the driver's books do not have: a few MiB that a real one keeps are none of it.
pytestmark = pytest.mark.needs_sim("goes by the driver's own books to the block")
SLICE = 3 * GIB
BLOCK = 2 * MIB

# Says "ready" after each step; while it waits, "room" and "take BYTES" are answered, and an empty line goes on.
TALK = BEGIN + r"""
import subprocess
IMAGE = b".version 6.0\n.target sm_50\n.address_size 64\n.visible .global .align 16 .b8 big[%d];\n" \
    b".visible .entry nothing()\n{\nret;\n}\n"
def module(size=4 * MIB):
    handle = c.c_void_p()
    ok(cuda.cuModuleLoadData(c.byref(handle), IMAGE % size))
    return handle
def unload(handle): ok(cuda.cuModuleUnload(handle))
def managed(size=64 * MIB):
    pointer = c.c_uint64()
    ok(cuda.cuMemAllocManaged(c.byref(pointer), c.c_size_t(size), 1))
    return pointer
def held_by_an_import(size):
    result, handle = create(size)
    ok(result)
    fd = export(handle)
    held = import_(fd)
    ok(cuda.cuMemRelease(handle))
    os.close(fd)
    return held
def piece_of_a_destroyed_pool():
    pool, pointer = c.c_void_p(), c.c_uint64()
    ok(cuda.cuMemPoolCreate(c.byref(pool), c.byref(Props(1, 0, Location(1, 0)))))
    ok(cuda.cuMemAllocFromPoolAsync(c.byref(pointer), c.c_size_t(600 << 10), pool, None))
    ok(cuda.cuMemPoolDestroy(pool))
    return pointer
def limit(which, value): return cuda.cuCtxSetLimit(which, c.c_size_t(value))
def ready():
    print("ready", flush=True)
    for line in sys.stdin:
        word = line.split()
        if not word: return
        print(room() if word[0] == "room" else take(int(word[1]))[0], flush=True)
begin()
"""


class Slice:
    def __init__(self, host, code, *args):
        self.host = host
        self.process = host.popen([BUILD / "carve", "run", "--vram", "3", "--", sys.executable, "-S", "-c", TALK + code, *args],
                                  stdin=subprocess.PIPE)
        self.ready()

    def ready(self):
        assert self.process.stdout.readline() == "ready\n"

    def ask(self, *what):
        print(*what, file=self.process.stdin, flush=True)
        return int(self.process.stdout.readline())

    def go_on(self):
        print(file=self.process.stdin, flush=True)
        self.ready()

    def charged_too_much(self):
        """Never less than nothing."""
        over = SLICE - self.ask("room") - gpu(self.host)["memory_used_bytes"]
        assert over >= 0
        return over

    def has_all_that_the_driver_has(self):
        wait_until(lambda: self.charged_too_much() == 0)
        left = SLICE - gpu(self.host)["memory_used_bytes"]
        assert self.ask("take", left // BLOCK * BLOCK) == 0
        assert self.ask("take", BLOCK) == 2

    def end(self):
        self.process.communicate("\n")
        assert self.process.returncode == 0
        assert gpu(self.host)["memory_peak_bytes"] <= SLICE
        nothing_is_left(self.host)


def has_all_in_the_end(host, code):
    s = Slice(host, code + "ready()\n")
    s.charged_too_much()
    s.has_all_that_the_driver_has()
    s.end()


@pytest.fixture(params=["apart", "listed"])
def any_driver(host, request):
    """That has managed memory in no process's figure, as most do, or in that of its process: which the daemon learns."""
    if request.param == "listed":
        assert host.carve("sim", "fault", "list-managed").returncode == 0


def test_memory_beside_managed_memory_is_known_while_that_lives(host):
    """The driver has that in no process's figure, wherever it is."""
    s = Slice(host, r"""
class Array(c.Structure): _fields_ = [("w", c.c_size_t), ("h", c.c_size_t), ("format", c.c_int), ("channels", c.c_uint)]
p = managed(512 * MIB)
held = [module() for _ in range(20)]
for _ in range(20): ok(cuda.cuArrayCreate_v2(c.byref(c.c_void_p()), c.byref(Array(64, 64, 0x20, 1))))
piece = piece_of_a_destroyed_pool()
ok(limit(2, 64 * MIB))
ready()
for each in held[::2]: unload(each)
ok(cuda.cuMemFreeAsync(piece, None))
ok(cuda.cuCtxSynchronize())
q = managed(64 * MIB)
ready()
ok(cuda.cuMemFree_v2(p))
ready()
""")
    for _ in range(2):
        wait_until(lambda: s.charged_too_much() == 0)
        left = SLICE - gpu(s.host)["memory_used_bytes"]
        assert s.ask("take", left // BLOCK * BLOCK + BLOCK) == 2
        s.go_on()
    s.has_all_that_the_driver_has()
    s.end()


@pytest.mark.usefixtures("any_driver")
@pytest.mark.parametrize("end", rest_long(["ok(cuda.cuMemFree_v2(p))", "ok(cuda.cuMemFreeAsync(p, None)); ok(cuda.cuCtxSynchronize())"]))
def test_modules_that_were_loaded_beside_managed_memory(host, end):
    s = Slice(host, f"p, q, held = managed(), managed(), [module() for _ in range(20)]\nready()\n{end}\nready()\n"
              "ok(cuda.cuMemFree_v2(q))\nready()\nfor each in held: unload(each)\nready()\n")
    s.charged_too_much()
    s.go_on()
    s.charged_too_much()
    s.go_on()
    wait_until(lambda: s.charged_too_much() == 0)
    s.go_on()
    s.has_all_that_the_driver_has()
    s.end()


@pytest.mark.usefixtures("any_driver")
def test_modules_that_come_and_go_beside_managed_memory_cost_nothing(host):
    s = Slice(host, "p, keeps = managed(), module()\nready()\nfor _ in range(50): unload(module())\nready()\n"
              "ok(cuda.cuMemFree_v2(p))\nready()\n")
    before = s.charged_too_much()
    s.go_on()
    assert s.charged_too_much() == before
    s.go_on()
    s.has_all_that_the_driver_has()
    s.end()


@pytest.mark.usefixtures("any_driver")
def test_modules_that_threads_load_beside_managed_memory_that_comes_and_goes(host):
    """No question is answered for certain, and none is lost."""
    has_all_in_the_end(host, r"""
def work(load):
    ok(cuda.cuCtxSetCurrent(context))
    held = []
    for _ in range(30):
        if load: held.append(module())
        else: ok(cuda.cuMemFree_v2(managed()))
    for each in held[::2]: unload(each)
threads = [threading.Thread(target=work, args=(load,)) for load in (1, 1, 1, 0)]
for t in threads: t.start()
for t in threads: t.join()
""")


@pytest.mark.parametrize("size", [50, 1024])
def test_modules_that_were_loaded_beside_memory_held_by_an_import(host, size):
    has_all_in_the_end(host, f"held = held_by_an_import({size} * MIB)\nmodules = [module() for _ in range(30)]\n"
                       "ok(cuda.cuMemRelease(held))\n")


@pytest.mark.parametrize("free", ["cuMemFree_v2(p)", "cuMemFreeAsync(p, None)"])
def test_modules_that_were_loaded_beside_a_piece_of_a_destroyed_pool(host, free):
    has_all_in_the_end(host, "p = piece_of_a_destroyed_pool()\nmodules = [module() for _ in range(30)]\n"
                       f"ok(cuda.{free})\nok(cuda.cuCtxSynchronize())\n")


@pytest.mark.usefixtures("any_driver")
def test_modules_beside_all_of_that(host):
    has_all_in_the_end(host, r"""
held, p, q, modules = held_by_an_import(50 * MIB), piece_of_a_destroyed_pool(), managed(), []
for each in lambda: cuda.cuMemFree_v2(q), lambda: cuda.cuMemRelease(held), lambda: cuda.cuMemFree_v2(p):
    modules += [module() for _ in range(10)]
    ok(each())
for each in modules[::3]: unload(each)
""")


STACK, PRINTF, HEAP = 0, 1, 2


@pytest.mark.parametrize("which, values", rest_long([
    (HEAP, [2048, 4096, 8 * MIB, 16 * MIB, 2048, 32 * MIB]), (PRINTF, [4096, 16 * MIB]), (STACK, [512, 2048]), (HEAP, [2048, 48 * MIB]),
    (HEAP, [2048, 24576]), (HEAP, [64 * MIB, 2048, 48 * MIB]), (STACK, [512, 600])], 3))
@pytest.mark.parametrize("beside", rest_long(["", "held = held_by_an_import(50 * MIB)"]))
def test_a_limit_that_is_lowered_and_then_raised(host, which, values, beside):
    """By what it takes more than at first."""
    has_all_in_the_end(host, f"{beside}\nfor value in {values}: ok(limit({which}, value))\n"
                       + ("ok(cuda.cuMemRelease(held))\n" if beside else ""))


def test_a_limit_that_was_lowered_is_raised_in_a_full_slice(host):
    """Which it was charged with all the time: what the driver took back of it at most is asked for where there is room."""
    s = Slice(host, "ok(limit(2, 2048))\nready()\nok(limit(2, 8 << 20))\nassert limit(2, 16 << 20) == 2\nready()\n")
    s.has_all_that_the_driver_has()
    s.go_on()
    assert s.charged_too_much() == 0
    s.end()


def questions(host, code, limit):
    """How often a stand-in for the daemon was asked."""
    drivers = {"CARVE_DRIVER_CUDA": str(BUILD / "sim/libcuda.so.1"), "CARVE_DRIVER_NVML": str(BUILD / "sim/libnvidia-ml.so.1")}
    done = host.run([BUILD / "tests/programs/front_host", "--uuid", gpu(host)["uuid"], "--limit", str(limit), "--context",
                     str(600 * MIB), "--preload", ":".join(map(str, FRONTS)), "--", sys.executable, "-S", "-c", TALK + code],
                    env=drivers)
    assert done.returncode == 0, done.stderr
    books = json.loads(done.stderr.splitlines()[-1])
    assert books["attached"] == 1
    return books["settles"]


@pytest.mark.once("the front beside a stand-in for the daemon: neither is instrumented")
def test_modules_are_loaded_without_a_question_where_there_is_much_room(host):
    """A program may have thousands. Where there is little, what is charged too much is asked for before it is in the way."""
    loads = "held = [module() for _ in range(100)]\n"
    before = questions(host, "", 20 * GIB)
    assert questions(host, loads, 20 * GIB) == before
    assert before < questions(host, loads, 3 * GIB) < before + 20


def test_excess_charges_for_modules_return_to_the_slice_within_a_second(host):
    """Nobody of the process asks: the room of the slice shows in another process."""
    s = Slice(host, r"""
held = [module() for _ in range(10)]
other = subprocess.Popen([sys.executable, "-S", "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert other.stdout.readline() == "ready\n"
print("ready", flush=True)
for line in sys.stdin:
    print(line, end="", file=other.stdin, flush=True)
    if not line.strip(): break
    print(other.stdout.readline(), end="", flush=True)
other.wait()
""", TALK + "ready()\n")
    s.has_all_that_the_driver_has()
    s.end()


def test_modules_and_small_arrays_in_turn(host):
    """Neither is charged for what the other one took."""
    has_all_in_the_end(host, r"""
class Array(c.Structure): _fields_ = [("w", c.c_size_t), ("h", c.c_size_t), ("format", c.c_int), ("channels", c.c_uint)]
def array():
    handle = c.c_void_p()
    ok(cuda.cuArrayCreate_v2(c.byref(handle), c.byref(Array(64, 64, 0x20, 1))))
    return handle
held = []
for i in range(40): held.append((module(), array(), array()))
for one, two, three in held[::2]:
    ok(cuda.cuArrayDestroy(two))
    unload(one)
    ok(cuda.cuArrayDestroy(three))
""")
