"""Every function by every way a program can come to it: which are not the front's and should be, or are and should not."""
from cuda import *

hooks, functions = set(json.loads(os.environ["HOOKS"])), set(json.loads(os.environ["FUNCTIONS"]))
class Info(c.Structure):
    _fields_ = [("file", c.c_char_p), ("base", c.c_void_p), ("name", c.c_char_p), ("address", c.c_void_p)]
libc = c.CDLL(None)
libc.dlsym.restype, libc.dlsym.argtypes = c.c_void_p, [c.c_void_p, c.c_char_p]
def where(address):
    info = Info()
    assert libc.dladdr(c.c_void_p(address), c.byref(info))
    return info.file.decode(), (info.name or b"").decode()
wrong, counts = [], {"linked": 0, "dlsym": 0, "cuGetProcAddress": 0, "cuGetProcAddress_v2": 0}
def see(way, asked, address):
    file, name = where(address)
    counts[way] += 1
    if ("/front/" not in file and (name in hooks or asked in hooks)) or ("/front/" in file and asked not in hooks
                                                                              and way == "dlsym"):
        wrong.append([way, asked, file, name])
for name in sorted(functions):
    for handle in (0, cuda._handle):  # RTLD_DEFAULT is what a linked program is bound to
        address = libc.dlsym(handle, name.encode())
        if address:
            see("linked" if handle == 0 else "dlsym", name, address)
bases = {name.removesuffix("_ptsz").removesuffix("_ptds") for name in functions}
bases |= {b[:-3] for b in bases if b[-3:-1] == "_v"}
for base in sorted(bases):
    for version in (2000, 3020, 4000, 11020, 11070, 12000, 12080, 13000, 13010, 13020, 13030, 13040):
        for flags in (0, 1, 2):  # default, legacy, per-thread stream
            for name, more in ("cuGetProcAddress_v2", [None]), ("cuGetProcAddress", []):
                found = c.c_void_p()
                getattr(cuda, name)(base.encode(), c.byref(found), version, c.c_ulonglong(flags), *more)
                if found.value:
                    see(name, base if base in hooks else "", found.value)
print(json.dumps([wrong, counts]))
