"""Arrays and mipmaps take what the driver sizes and packs them to. Judged by the driver's own books (`carve sim stat`)."""

from conftest import ONCE_FOR_THE_FRONT
from in_slice import BEGIN, GIB, MIB, TAKER, gpu, in_slice, nothing_is_left

pytestmark = ONCE_FOR_THE_FRONT


def test_small_arrays_take_what_the_driver_packs_them_into(host):
    """Not a block each; and what is left of the slice can be had, by another process too."""
    said = in_slice(host, f"OTHER = {BEGIN + TAKER!r}" + r"""
import random, subprocess
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
def array(size):
    handle = c.c_void_p()
    return cuda.cuArray3DCreate_v2(c.byref(handle), c.byref(Descriptor(size, size, 0, 1, 4, 0))), handle
def mipmap(size):
    handle = c.c_void_p()
    return cuda.cuMipmappedArrayCreate(c.byref(handle), c.byref(Descriptor(size, size, 0, 1, 4, 0)), 5), handle
WAYS = [(array, cuda.cuArrayDestroy), (mipmap, cuda.cuMipmappedArrayDestroy)]
begin()
other = subprocess.Popen([sys.executable, "-S", "-c", OTHER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
def others(line):
    other.stdin.write(line + "\n")
    other.stdin.flush()
    return int(other.stdout.readline())
assert others("room") > 0
before, chance, held, results = room(), random.Random(1), [], set()
for i in range(2500):
    make, destroy = WAYS[i % 2]
    result, handle = make(chance.randrange(1, 100))
    results.add(result)
    held.append((destroy, handle))
rooms = [room()]
chance.shuffle(held)
for destroy, handle in held[::2]: assert destroy(handle) == 0
left = room()
while take(min(room(), 64 * MIB))[0] == 0: pass
full = [others("room"), others("take")]
for destroy, handle in held[1::2]: assert destroy(handle) == 0
print(json.dumps({"results": list(results), "before": before, "most": rooms[0], "left": left, "full": full,
                  "after": room(), "others": others("take")}))
other.communicate()
""")
    assert said["results"] == [0]
    assert said["most"] > said["before"] - 300 * MIB and said["left"] >= said["most"]
    assert said["full"] == [0, 2] and said["after"] > 0 and said["others"] == 0
    assert 3 * GIB - 2 * MIB < gpu(host)["memory_peak_bytes"] <= 3 * GIB
    nothing_is_left(host)


MIPMAPS = [(1024, 1024, 0, 0, 11), (1024, 1024, 0, 0, 30), (512, 512, 64, 0, 10), (512, 512, 64, 1, 10), (512, 512, 6, 4, 10),
           (512, 512, 12, 5, 10), (16, 16, 2000, 1, 21), (609, 160, 0, 0, 9), (4000, 0, 0, 0, 12), (4, 0, 2000, 1, 11)]


def test_mipmaps_are_charged_as_the_driver_sizes_them(make_host):
    """Levels that there are not, layers and faces that do not shrink, levels that begin at whole steps."""
    host = make_host("h100-80gb")
    said = in_slice(host, f"MIPMAPS = {MIPMAPS}" + r"""
class Descriptor(c.Structure):
    _fields_ = [("width", c.c_size_t), ("height", c.c_size_t), ("depth", c.c_size_t), ("format", c.c_int),
                ("channels", c.c_uint), ("flags", c.c_uint)]
class Needs(c.Structure): _fields_ = [("size", c.c_size_t), ("rest", c.c_size_t * 6)]
begin()
sizes = []
for width, height, depth, flags, levels in MIPMAPS:
    handle, needs, before = c.c_void_p(), Needs(), room()
    d = Descriptor(width, height, depth, 0x20, 4, flags)
    assert cuda.cuMipmappedArrayCreate(c.byref(handle), c.byref(d), levels) == 0
    assert cuda.cuMipmappedArrayGetMemoryRequirements(c.byref(needs), handle, 0) == 0
    sizes.append([before - room(), needs.size])
    assert cuda.cuMipmappedArrayDestroy(handle) == 0 and room() == before
print(json.dumps(sizes))
""")
    assert [charged for charged, _ in said] == [needed for _, needed in said]
