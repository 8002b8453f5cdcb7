"""Interposers that are given by path: what each is told of its limits, and whether the loader takes it at all."""
import dataclasses
import os
import platform
import re
import signal
import struct
import subprocess
import tempfile

from bench import report

LOAD_TIMEOUT_S = 20
WHOLE_MIB = 100 << 10  # for what needs no limit, but may have to be told one


@dataclasses.dataclass(frozen=True)
class Peer:
    """`env`: ((name, value), ...). In a value, {mib} stands for a slice's memory, {percent} for its part of the GPU's time,
    {scratch} for a folder that the processes of one slice have for themselves, as they would in a container."""
    name: str
    library: str
    env: tuple = ()

    def environment(self, mib=WHOLE_MIB, percent=100, scratch="/tmp"):
        words = {"{mib}": f"{mib:.0f}", "{percent}": f"{percent:.0f}", "{scratch}": str(scratch)}
        found = {"LD_PRELOAD": self.library}
        for key, value in self.env:
            for word, meaning in words.items():
                value = value.replace(word, meaning)
            found[key] = value
        return found


ELF_HEADER = struct.Struct("<4sBB10xHH")  # magic, word size, byte order, type, machine
SHARED_OBJECT = 3


def elf_header(path):
    with open(path, "rb") as file:
        start = file.read(ELF_HEADER.size)
    return ELF_HEADER.unpack(start) if len(start) == ELF_HEADER.size else (b"", 0, 0, 0, 0)


def unfit(library):
    """Why no process here could have this file as a library, in a few words; None: it may do."""
    try:
        magic, size, order, kind, machine = elf_header(library)
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if magic != b"\x7fELF":
        return "not a library: no ELF file"
    _, own_size, own_order, _, own_machine = elf_header("/proc/self/exe")
    if (size, order, machine) != (own_size, own_order, own_machine):
        return f"a library for another kind of machine: this is {platform.machine()}"
    return None if kind == SHARED_OBJECT else "not a shared library"


# Runs a command with one more library before all others.
BEFORE = 'LD_PRELOAD="$0${LD_PRELOAD:+:$LD_PRELOAD}" exec "$@"'


def by_name(library, argv):
    """The command, with its driver calls looked up by name (bench/by_name.c); without a library, the command itself."""
    return ["sh", "-c", BEFORE, str(library), *map(str, argv)] if library else [str(a) for a in argv]


def ended(status):
    """How a process ended, for people: "status 1", "signal 11 (Segmentation fault)"."""
    if status >= 0:
        return f"status {status}"
    return f"signal {-status} ({signal.strsignal(-status)})"


def why_not(peer, env):
    """Why a process cannot be started with this library in it, in a line; None: it can. The loader itself goes on without
    a library that it cannot load, and figures would be those of nothing."""
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as scratch:
        try:
            done = subprocess.run(["/bin/true"], env={**env, **peer.environment(scratch=scratch)}, stdin=subprocess.DEVNULL,
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=LOAD_TIMEOUT_S, check=False)
        except subprocess.TimeoutExpired:
            return f"a process with it did not end in {LOAD_TIMEOUT_S} s"
    said = done.stderr.decode(errors="replace")
    refused = re.search(r"object '([^']*)' from LD_PRELOAD cannot be preloaded \((.*)\)", said)
    if refused:
        return f"{os.path.basename(refused[1])} cannot be loaded: {refused[2]}"
    if done.returncode:
        last = report.last_line(said)[-80:]
        return f"a process with it ends with {ended(done.returncode)}" + (f": {last}" if last else "")
    return None
