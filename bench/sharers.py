"""Who divides a GPU among the slices of a scenario: carve, the driver by itself, or another interposer."""
import json
import shlex

from bench import peers, workload


class Sharer:
    """`library`: peers.by_name()'s."""

    def __init__(self, name, library=None):
        self.name, self.library = name, library


class Carve(Sharer):
    """A session each, under time-slicing as the scenario says. `gpu`: its number, where there are more."""

    def __init__(self, library=None, gpu=None):
        super().__init__("carve", library)
        self.only = [] if gpu is None else ["--gpu-ids", str(gpu)]

    def prepare(self, build, scenario):
        workload.set_mode(build, scenario.mode, scenario.lease_ms, scenario.granularity)

    def command(self, build, size, line, scratch):
        return [str(build / "carve"), "run", "--ephemeral", *map(str, size), *self.only, "--", "sh", "-c", line("")]

    def settle(self, build):
        workload.wait_no_sessions(build)


class Driver(Sharer):
    """Nothing but the driver, which shares as it always does, whatever anybody asked for."""

    def __init__(self, library=None, name="driver"):
        super().__init__(name, library)

    def prepare(self, build, scenario):
        """There is nothing to set."""

    def command(self, build, size, line, scratch):
        return ["sh", "-c", line("")]

    def settle(self, build):
        """What has ended has left nothing."""


class Peer(Driver):
    """A library in every process, told by its own variables what its slice is to have."""

    def __init__(self, peer, library=None, gpu=None):
        super().__init__(library, peer.name)
        self.peer, self.gpu = peer, gpu or 0

    def command(self, build, size, line, scratch):
        mib, percent = amounts(build, size, self.gpu)
        scratch.mkdir(exist_ok=True)
        given = self.peer.environment(mib, percent, scratch)
        return ["sh", "-c", line(shlex.join(["env", *(f"{k}={v}" for k, v in given.items())]))]


def amounts(build, size, gpu=0):
    """(MiB, percent of that GPU's time) that carve's size options stand for; 100% where none is asked for."""
    options = dict(zip(size[::2], size[1::2]))
    total = json.loads(workload.carve(build, "gpu", "list", "--json"))[gpu]["memory_bytes"] / (1 << 20)
    part = options.get("--gpu")
    return (total * part if part else options["--vram"] * 1024), 100 * options.get("--gpu-compute", part or 1)


def all_of(given, library=None, gpu=None):
    """(carve, the driver's default sharing, the peers): carve is shown beside the others."""
    return Carve(library, gpu), Driver(library), [Peer(one, library, gpu) for one in given]


def why_not(by, env):
    """Why a peer cannot be run at all; None: it can."""
    return peers.why_not(by.peer, env) if isinstance(by, Peer) else None
