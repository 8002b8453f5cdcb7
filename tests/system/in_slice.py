"""The beginning of programs in a slice, and where they are judged: by the driver's own books (`carve sim stat`)."""
import json
import sys

from conftest import wait_until
from programs import HERE, SOURCES, python
from real_gpu import SLACK

MIB = 1 << 20
GIB = 1 << 30

# A program that a test has in it begins with this: cuda.py, and modules of tests/programs.
BEGIN = f"import sys; sys.path[:0] = {str(HERE)!r}, {str(SOURCES)!r}\nfrom cuda import *\n"


def in_slice(host, code, *run, **kw):
    """The program's output, as JSON."""
    done = host.carve("run", *(run or ("--vram", "3")), "--", sys.executable, "-S", "-c", BEGIN + code, **kw)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def program_in_slice(host, name, *arguments, run=("--vram", "3"), **kw):
    """The output of tests/programs/NAME.py, as JSON."""
    done = host.carve("run", *run, "--", *python(name, *arguments), **kw)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def gpu(host):
    return host.stat()["gpus"][0]


def context_bytes(host):
    """The memory that a context takes on this host's GPU."""
    return wait_until(lambda: host.carve_json("gpu", "list")[0]["context_bytes"])


def pieces_in(host, room, piece):
    """How many fit where a context, or several, took a part of it."""
    return host.measured(room // piece, -(-SLACK // piece))


def nothing_is_left(host):
    wait_until(lambda: gpu(host)["memory_used_bytes"] == 0)


TAKER = r"""
begin()
for line in sys.stdin: print(room() if line.strip() == "room" else take(2 * MIB)[0], flush=True)
"""


OTHER = r"""
begin()
for line in sys.stdin: print(room(), flush=True)
"""
