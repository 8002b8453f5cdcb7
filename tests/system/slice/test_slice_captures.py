"""The front's work beside a call of the program's spoils no capture of the program's, as the driver refuses a
capturing thread what concerns pools, and whoever waits for a whole device spoils all captures on it."""
import pytest

from conftest import ONCE_FOR_THE_FRONT, rest_long
from in_slice import GIB, MIB, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2

CODE = r"""
begin()
captured, other, graph, at = c.c_void_p(), c.c_void_p(), c.c_void_p(), c.c_uint64()
for s in captured, other: ok(cuda.cuStreamCreate(c.byref(s), 1))
def allocate(size=MIB): return cuda.cuMemAllocAsync(c.byref(at), c.c_size_t(size), other)
def free(): return cuda.cuMemFreeAsync(at, other)
def wait(): return cuda.cuStreamSynchronize(other)
def beside(what):
    def run(): ok(cuda.cuCtxSetCurrent(context)); what()
    thread = threading.Thread(target=run); thread.start(); thread.join()
def ends(mode, what):
    ok(cuda.cuStreamBeginCapture_v2(captured, mode))
    what()
    return cuda.cuStreamEndCapture(captured, c.byref(graph))
ok(allocate()); ok(free()); ok(wait()); ok(allocate())
"""

CALLS = {
    "allocate": "ok(allocate())",
    "wait": "ok(free()); ok(wait())",
    "event": "e = c.c_void_p(); ok(cuda.cuEventCreate(c.byref(e), 0)); ok(cuda.cuEventRecord(e, other)); ok(free())\n"
             "    ok(cuda.cuEventSynchronize(e))",
    "room": "ok(free()); room()",
    "destroy-graph": "ok(free()); ok(cuda.cuGraphExecDestroy(exec_))",
}


@pytest.mark.parametrize("call", rest_long(CALLS, 2))
def test_calls_beside_a_capture_look_at_pools(host, call):
    """By the thread that captures, and by others beside a capture that forbids them, too."""
    code = CODE + r"""
exec_ = c.c_void_p()
ok(cuda.cuGraphCreate(c.byref(graph), 0)); allocate_in(graph, MIB, 0)
ok(cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)))
def what():
    """ + CALLS[call] + """
print(json.dumps(
"""
    assert in_slice(host, f"{code}ends({THREAD_LOCAL}, what)))") == 0
    assert in_slice(host, f"{code}ends({GLOBAL}, lambda: beside(what))))") == 0
    nothing_is_left(host)


@pytest.mark.parametrize("mode", [GLOBAL, THREAD_LOCAL, RELAXED])
def test_a_refusal_spoils_no_capture(host, mode):
    """Where the slice has no room, what was freed is waited for, but not while another thread captures."""
    refused, ended, after = in_slice(host, CODE + f"""
r = []
def what(): beside(lambda: r.append(allocate({2 * GIB + 900 * MIB})))
r.append(ends({mode}, what))
ok(free()); print(json.dumps(r + [allocate({2 * GIB})]))
""")
    assert (refused, ended, after) == (2, 0, 0)


def test_a_graph_without_room_spoils_no_capture(host):
    refused, ended = in_slice(host, CODE + f"""
r, exec_ = [], c.c_void_p()
ok(cuda.cuGraphCreate(c.byref(graph), 0)); allocate_in(graph, {2 * GIB}, 0)
ok(cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)))
result, p = take({GIB}); ok(result)
def what(): beside(lambda: r.append(cuda.cuGraphUpload(exec_, other)))
r.append(ends({RELAXED}, what))
print(json.dumps(r))
""")
    assert (refused, ended) == (2, 0)
