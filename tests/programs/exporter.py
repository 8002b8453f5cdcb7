"""Takes its memory in two ways and has a child import both; prints how the slice's room changed."""
import subprocess

from cuda import *

begin()
SIZE = c.c_size_t(256 << 20)

steps = [room()]
ptr, ipc = c.c_ulonglong(), c.create_string_buffer(64)
ok(cuda.cuMemAlloc_v2(c.byref(ptr), SIZE))
ok(cuda.cuIpcGetMemHandle(ipc, ptr))
prop = Prop(type=1, handles=1, at=Location(1, 0))
handle, fd = c.c_ulonglong(), c.c_int()
ok(cuda.cuMemCreate(c.byref(handle), SIZE, c.byref(prop), c.c_ulonglong(0)))
ok(cuda.cuMemExportToShareableHandle(c.byref(fd), handle, 1, c.c_ulonglong(0)))
steps.append(room())
child = subprocess.Popen([*sys.argv[1:], ipc.raw.hex(), str(fd.value)],
                         pass_fds=[fd.value], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
said = json.loads(child.stdout.readline())
steps.append(room())
child.communicate("\n")
assert child.returncode == 0
ok(cuda.cuMemFree_v2(ptr))
ok(cuda.cuMemRelease(handle))
steps.append(room())
print(json.dumps({"steps": steps, "importer": said}))
