"""The work of an administrator on MIG instances by hand: `list`, `make PROFILE_ID START SIZE [no-compute]`, `destroy ID` and
`take-apart ID` (its compute instances alone), after the GPU's index. Prints what there is afterwards as JSON. `kinds`: prints
the profiles that there are."""
import ctypes as c
import json
import sys

KINDS = 32
NOT_FOUND = 6
nvml = c.CDLL("libnvidia-ml.so.1")
gpu = c.c_void_p()


def ok(status, what):
    if status:
        sys.exit(f"{what}: {status}")


def text_of(device):
    text = c.create_string_buffer(96)
    ok(nvml.nvmlDeviceGetUUID(device, text, 96), "uuid")
    return text.value.decode()


def computes(gi):
    found = []
    for kind in range(KINDS):
        info, many, count = (c.c_uint * 32)(), (c.c_void_p * 16)(), c.c_uint(16)
        if nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, kind, 0, info) == 0:
            status = nvml.nvmlGpuInstanceGetComputeInstances(gi, info[0], many, c.byref(count))
            if status == NOT_FOUND:
                # Somebody else removed the instance since it was listed.
                return []
            ok(status, "computes")
            found += [c.c_void_p(many[i]) for i in range(count.value)]
    return found


class ComputeInfo(c.Structure):
    _fields_ = [("device", c.c_void_p), ("gi", c.c_void_p), ("id", c.c_uint), ("profile", c.c_uint), ("start", c.c_uint),
                ("size", c.c_uint)]


class Info(c.Structure):
    _fields_ = [("device", c.c_void_p), ("id", c.c_uint), ("profile", c.c_uint), ("start", c.c_uint), ("size", c.c_uint)]


def uuids(gi):
    info = ComputeInfo()
    return [text_of(c.c_void_p(info.device)) for compute in computes(gi)
            if nvml.nvmlComputeInstanceGetInfo_v2(compute, c.byref(info)) == 0]


class Kind(c.Structure):
    _fields_ = [(name, c.c_uint) for name in ("version", "id", "p2p", "slices", "limit", "sms", "ce", "dec", "enc", "jpeg", "ofa")]
    _fields_ += [("mib", c.c_ulonglong), ("name", c.c_char * 96)]


def kinds():
    found = []
    for kind in range(KINDS):
        info, places, count = Kind(version=c.sizeof(Kind) | 2 << 24), (c.c_uint * 64)(), c.c_uint(32)
        if nvml.nvmlDeviceGetGpuInstanceProfileInfoV(gpu, kind, c.byref(info)) == 0:
            ok(nvml.nvmlDeviceGetGpuInstancePossiblePlacements_v2(gpu, info.id, places, c.byref(count)), "placements")
            found.append({"id": info.id, "profile": info.name.decode().removeprefix("MIG "), "mib": info.mib, "sms": info.sms,
                          "slices": info.slices, "limit": info.limit, "size": places[1],
                          "starts": sorted(places[2 * i] for i in range(count.value))})
    return found


def profile_ids():
    for kind in range(KINDS):
        info = (c.c_uint * 64)()
        if nvml.nvmlDeviceGetGpuInstanceProfileInfo(gpu, kind, info) == 0:
            yield info[0]


def instances():
    found = []
    for profile in profile_ids():
        many, count, info = (c.c_void_p * 64)(), c.c_uint(64), Info()
        ok(nvml.nvmlDeviceGetGpuInstances(gpu, profile, many, c.byref(count)), "instances")
        for i in range(count.value):
            gi = c.c_void_p(many[i])
            if nvml.nvmlGpuInstanceGetInfo(gi, c.byref(info)) == 0:
                found.append({"id": info.id, "profile": info.profile, "start": info.start, "size": info.size,
                              "uuids": uuids(gi)})
    return sorted(found, key=lambda i: i["start"])


def whole(gi):
    """The compute profile with the most multiprocessors."""
    found = []
    for kind in range(KINDS):
        info = (c.c_uint * 32)()
        if nvml.nvmlGpuInstanceGetComputeInstanceProfileInfo(gi, kind, 0, info) == 0:
            found.append((info[3], info[0]))
    return max(found)[1]


def make(profile, start, size, *options):
    gi = c.c_void_p()
    place = (c.c_uint * 2)(int(start), int(size))
    ok(nvml.nvmlDeviceCreateGpuInstanceWithPlacement(gpu, int(profile), place, c.byref(gi)), "make")
    if not options:
        ok(nvml.nvmlGpuInstanceCreateComputeInstance(gi, whole(gi), c.byref(c.c_void_p())), "make compute")


def take_apart(number):
    gi = c.c_void_p()
    ok(nvml.nvmlDeviceGetGpuInstanceById(gpu, int(number), c.byref(gi)), "find")
    for compute in computes(gi):
        ok(nvml.nvmlComputeInstanceDestroy(compute), "destroy compute")
    return gi


def destroy(number):
    ok(nvml.nvmlGpuInstanceDestroy(take_apart(number)), "destroy")


def main(index, verb, *rest):
    ok(nvml.nvmlInit_v2() or nvml.nvmlDeviceGetHandleByIndex_v2(int(index), c.byref(gpu)), "open")
    {"list": lambda: None, "kinds": lambda: None, "make": make, "destroy": destroy, "take-apart": take_apart}[verb](*rest)
    print(json.dumps(kinds() if verb == "kinds" else instances()))


if __name__ == "__main__":
    main(*sys.argv[1:])
