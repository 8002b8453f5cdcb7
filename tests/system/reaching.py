"""Ways past a slice: programs that open the driver, with an environment of their own."""
import json

from conftest import BUILD

GIB = 1 << 30
MIB = 1 << 20
CARVE = BUILD / "carve"
PROGRAMS = BUILD / "tests/programs"
REACH = PROGRAMS / "reach"


def driver_of(host):
    # Whatever else it finds wrong: the host may have another daemon than the one that it looks for.
    return json.loads(host.carve("check", "--json").stdout)["driver"]["cuda"]


def bare(host, *library_path):
    """env -i, but for what keeps a program on its simulated host."""
    names = ("SIMGPU_HOST", *(("LD_LIBRARY_PATH",) if library_path else ()))
    return ["env", "-i", *(f"{n}={host.env[n]}" for n in names if n in host.env)]
