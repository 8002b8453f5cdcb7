"""The scenarios of `scripts/bench shares`: who works beside whom, and what each is to get."""
import dataclasses

LEASE_MS, GRANULARITY = 250, 5
# Enough in the queue that a session has work for its whole turn. Time that it leaves idle while it waits for a
# processor is charged to it, and would look like a share that it did not get.
KERNELS = ("--kernel-us", 1000, "--sync-every", 64)


@dataclasses.dataclass(frozen=True)
class Client:
    size: tuple
    args: tuple = KERNELS
    wanted: float = None  # share of the time; None: not judged
    processes: int = 1


@dataclasses.dataclass(frozen=True)
class Scenario:
    """goal: most points between a share and what was wanted; `floor`: only missing ones count. `of`: shares are of the
    time that was "used" (what switches cost is a figure of its own) or of all "time"."""
    name: str
    title: str
    mode: str
    clients: tuple
    goal: float = 0.5
    floor: bool = False
    of: str = "used"
    lease_ms: int = LEASE_MS
    granularity: int = GRANULARITY
    checked: bool = True   # against the times that kernels stored
    per_plan: bool = True
    visitors: bool = False  # sessions come and go beside, a second each
    fixed_lease: bool = False  # --quick takes no shorter one
    on_gpu: bool = False       # measured by bench/stored.py, without a simulated driver's figures
    as_alone: bool = False     # each client is measured alone at its share, too, and is not to get less beside the others


def fraction(f, *args, wanted=None, **more):
    return Client(("--gpu", f), args or KERNELS, f if wanted is None else wanted, **more)


def memory(*args, wanted=None, gib=2, **more):
    return Client(("--vram", gib), args or KERNELS, wanted, **more)


def compute(f, wanted):
    """That part of the compute, with less memory: leaves room beside fractions that sum to 1."""
    return Client(("--vram", 10, "--gpu-compute", f), KERNELS, wanted)


def fractions(*values):
    return tuple(fraction(f) for f in values)


def idle(f):
    """Has a context, and works 1 ms of each 100 ms."""
    return dataclasses.replace(fraction(f, "--kernel-us", 1000, "--sync-every", 1, "--duty", 1, "--period-ms", 100),
                               wanted=None)


def lease_scenario(ms):
    return Scenario(f"lease-{ms}ms", f"25% and 75%, leases of {ms} ms", "strict", fractions(0.25, 0.75), lease_ms=ms,
                    fixed_lease=True)


STRICT_EQUAL = tuple(fraction(0.125) for _ in range(8))

SCENARIOS = [
    Scenario("25-75", "25% and 75%", "strict", fractions(0.25, 0.75)),
    Scenario("50-30-20", "50%, 30% and 20%", "strict", fractions(0.5, 0.3, 0.2)),
    Scenario("10-90", "10% and 90%", "strict", fractions(0.1, 0.9)),
    Scenario("8-equal", "8 equal ones", "strict", STRICT_EQUAL),
    Scenario("fair-25-75", "25% and 75%", "fair", fractions(0.25, 0.75), goal=1, floor=True),
    Scenario("fair-8-equal", "8 equal ones", "fair", STRICT_EQUAL, goal=1, floor=True),
    Scenario("strict-alone", "25% alone: the rest stays idle", "strict", fractions(0.25), of="time"),
    Scenario("fair-idle", "50% idles beside 30% and 20%: 55% and 45%", "fair",
             (fraction(0.3, wanted=0.545), fraction(0.2, wanted=0.445), idle(0.5)), goal=1, floor=True,
             per_plan=False),
    Scenario("memory-alone-strict", "memory-sized alone", "strict", (memory(wanted=1),), goal=1, of="time"),
    Scenario("memory-alone-fair", "memory-sized alone", "fair", (memory(wanted=1),), goal=1, of="time"),
    Scenario("memory-beside-strict", "25% and memory-sized: 25% and 75%", "strict",
             (fraction(0.25), memory(wanted=0.75))),
    Scenario("memory-beside-fair", "25% and memory-sized: 62.5% and 37.5%", "fair",
             (fraction(0.25, wanted=0.625), memory(wanted=0.375)), goal=1, floor=True),
    Scenario("memory-beside-1", "25%, 75% and two memory-sized: these 1% together", "strict",
             (compute(0.25, 0.2475), compute(0.75, 0.7425), memory(wanted=0.005),
              memory(wanted=0.005)), lease_ms=50, fixed_lease=True, per_plan=False),
    Scenario("mixed", "kernels of 50 us, 5 ms and 100 ms: a third each", "strict",
             (fraction(0.33, "--kernel-us", 50, "--sync-every", 1024, wanted=0.33),
              fraction(0.33, "--kernel-us", 5000, "--sync-every", 32, wanted=0.33),
              fraction(0.34, "--kernel-us", 100000, "--sync-every", 8, wanted=0.34)), goal=1, per_plan=False),
    # Parts of all time by the GPU's clock: time that long kernels' hand-overs leave idle would show here. With 8 kernels of 50 us in
    # its queue a client does not fill its turns, alone neither: the others' kernels are not to take more from it.
    *(Scenario(f"mixed-{'-'.join(str(round(100 * f)) for f in parts)}",
               "kernels of 50 us, 5 ms and 100 ms, few in the queue: as alone", "strict",
               tuple(fraction(f, "--kernel-us", us, "--sync-every", n)
                     for f, us, n in zip(parts, (50, 5000, 100000), (8, 8, 1))),
               goal=1, floor=True, of="time", per_plan=False, checked=False, as_alone=True)
      for parts in ((0.4, 0.4, 0.2), (0.2, 0.3, 0.5))),
    Scenario("graphs", "graphs of 20 kernels beside single ones", "strict",
             (fraction(0.5, "--graph", 20, "--kernel-us", 500, "--sync-every", 16), fraction(0.5)), goal=1),
    Scenario("never-syncs", "one never synchronises", "strict",
             (fraction(0.5, "--sync-every", 0, "--kernel-us", 1000), fraction(0.5))),
    # It cannot hand them in as fast as a GPU runs them: what that leaves idle is nobody's loss but its own.
    Scenario("1us", "kernels of 1 us as fast as it can, beside 50%", "fair",
             (dataclasses.replace(fraction(0.5, "--kernel-us", 1, "--sync-every", 0), wanted=None), fraction(0.5)),
             of="time", goal=1, floor=True, checked=False),
    Scenario("tree", "4 processes in one session, 1 in the other: half each", "strict",
             (fraction(0.5, processes=4), fraction(0.5))),
    *(lease_scenario(ms) for ms in (50, 10, 5)),
    Scenario("visitors", "25% and 50%, others come and go each second", "strict", fractions(0.25, 0.5), of="time",
             visitors=True, goal=1, per_plan=False),
    Scenario("off-25-75", "the driver's default: 25% and 75% are not kept", "off", fractions(0.25, 0.75), goal=None,
             checked=False),
]
