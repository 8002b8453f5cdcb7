"""Interposers that do not work, for tests of the bench: each is a peers.Peer of a file made in the folder given."""
import subprocess
import sys

from conftest import ROOT

sys.path.insert(0, str(ROOT))
from bench import peers  # noqa: E402: found by the line above


def no_library(folder):
    path = folder / "text.so"
    path.write_text("no library\n")
    return peers.Peer("text", str(path))


def other_machine(folder, path):
    """That library, made out to be for another kind of machine."""
    data = bytearray(path.read_bytes())
    data[18:20] = (0xF3).to_bytes(2, "little")  # e_machine: RISC-V
    foreign = folder / "foreign.so"
    foreign.write_bytes(data)
    return peers.Peer("foreign", str(foreign))


def compiled(folder, name, code):
    path = folder / f"{name}.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", path, "-x", "c", "-"], input=code, text=True, check=True)
    return peers.Peer(name, str(path))


def lacks_a_library(folder):
    """It needs another library, which is nowhere."""
    needed = folder / "libnowhere.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", needed, "-x", "c", "-"], input="int nowhere;", text=True, check=True)
    lacking = folder / "lacking.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", lacking, "-x", "c", "-", "-x", "none", needed],
                   input="int here;", text=True, check=True)
    needed.unlink()
    return peers.Peer("lacking", str(lacking))


def dies_when_loaded(folder):
    return compiled(folder, "at-once", "__attribute__((constructor)) static void begin(void) { __builtin_trap(); }\n")


def dies_in(folder, function):
    """It stands before one function of the driver, and that ends the process."""
    return compiled(folder, "in-call", f"int {function}(void) {{ __builtin_trap(); }}\n")
