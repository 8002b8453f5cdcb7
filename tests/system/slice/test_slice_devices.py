"""A slice of two GPUs: whose memory each of its pools and graphs is."""

from in_slice import GIB, MIB, in_slice

TWO_GPUS = r"""
contexts = [c.c_void_p(), c.c_void_p()]
assert cuda.cuInit(0) == 0
for device in (0, 1): assert cuda.cuDevicePrimaryCtxRetain(c.byref(contexts[device]), device) == 0
def use(device): assert cuda.cuCtxSetCurrent(contexts[device]) == 0
def rooms():
    both = []
    for device in (1, 0):
        use(device)
        both.append(room())
    return both[::-1]
"""


def on_two(make_host, code):
    host = make_host("h100-80gb:2")
    said = in_slice(host, TWO_GPUS + code, "--vram", "3", "--gpus", "2")
    assert all(g["memory_peak_bytes"] <= 3 * GIB for g in host.stat()["gpus"])
    return said


def test_a_stream_takes_from_the_pool_of_its_own_device(make_host):
    said = on_two(make_host, r"""
use(1)
stream = c.c_void_p()
assert cuda.cuStreamCreate(c.byref(stream), 1) == 0
before, taken, result = rooms(), [], 0
while len(taken) < 12:
    pointer = c.c_uint64()
    result = cuda.cuMemAllocAsync(c.byref(pointer), c.c_size_t(512 * MIB), stream)
    if result: break
    taken.append(pointer)
full = rooms()
for pointer in taken: assert cuda.cuMemFreeAsync(pointer, stream) == 0
assert cuda.cuStreamSynchronize(stream) == 0
print(json.dumps({"result": result, "taken": len(taken), "before": before, "full": full, "after": rooms()}))
""")
    assert said["result"] == 2 and said["taken"] == said["before"][1] // (512 * MIB)
    assert said["full"] == [said["before"][0], said["before"][1] - said["taken"] * 512 * MIB]
    assert said["after"] == said["before"]


def test_memory_of_graphs_is_paid_on_the_device_that_it_is_on(make_host):
    """Whichever context is current: each graph takes from both."""
    said = on_two(make_host, r"""
before, sizes, result, execs = rooms(), [128 * MIB, 512 * MIB], 0, []
while len(execs) < 12:
    graph, exec_ = c.c_void_p(), c.c_void_p()
    assert cuda.cuGraphCreate(c.byref(graph), 0) == 0
    for device in (0, 1): allocate_in(graph, sizes[device], device)
    result = cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)) or cuda.cuGraphLaunch(exec_, None)
    if result: break
    execs.append(exec_)
print(json.dumps({"result": result, "count": len(execs), "before": before, "full": rooms()}))
""")
    assert said["result"] == 2 and said["count"] == said["before"][1] // (512 * MIB)
    assert said["full"] == [said["before"][0] - said["count"] * 128 * MIB,
                            said["before"][1] - said["count"] * 512 * MIB]


def test_a_graph_on_two_devices_is_launched_again_in_a_full_slice(make_host):
    said = on_two(make_host, r"""
graph, exec_ = c.c_void_p(), c.c_void_p()
use(0)
assert cuda.cuGraphCreate(c.byref(graph), 0) == 0
for device in (0, 1):
    freed, (node, at) = c.c_void_p(), allocate_in(graph, 500 * MIB, device)
    assert cuda.cuGraphAddMemFreeNode(c.byref(freed), graph, c.byref(node), c.c_size_t(1), at) == 0
assert cuda.cuGraphInstantiateWithFlags(c.byref(exec_), graph, c.c_uint64(0)) == cuda.cuGraphLaunch(exec_, None) == 0
assert cuda.cuCtxSynchronize() == 0
for device in (1, 0):
    use(device)
    while room(): assert take(min(room(), 256 * MIB))[0] == 0
again = [cuda.cuGraphLaunch(exec_, None) for _ in range(5)]
print(json.dumps({"again": again, "rooms": rooms()}))
""")
    assert said == {"again": [0] * 5, "rooms": [0, 0]}
