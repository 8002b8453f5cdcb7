"""Prints what the driver says of its first GPU's memory: {"free", "total"}, in bytes."""
from cuda import *

begin()
free, total = c.c_size_t(), c.c_size_t()
ok(cuda.cuMemGetInfo_v2(c.byref(free), c.byref(total)))
print(json.dumps({"free": free.value, "total": total.value}))
