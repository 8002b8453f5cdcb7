"""Takes memory by a function that nobody has classified, looked up by name or by cuGetProcAddress (`HOW`), and says what becomes
of the slice's room: take_newest.py HOW BYTES."""
from cuda import *

how, size = sys.argv[1], int(sys.argv[2])
begin()
if how == "name":
    function = cuda.cuMemTakeNewest
else:
    found = c.c_void_p()
    ok(cuda.cuGetProcAddress_v2(b"cuMemTakeNewest", c.byref(found), 13040, c.c_uint64(0), None))
    function = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_size_t)(found.value)
before, at = room(), c.c_uint64()
ok(function(c.byref(at), c.c_size_t(size)))
end = time.monotonic() + 30
while room() > before - size and time.monotonic() < end:
    time.sleep(0.02)
print(json.dumps({"counted": before - room(), "refused": take(before - size + 2 * MIB)[0] == OOM, "granted": take(64 * MIB)[0] == 0}))
