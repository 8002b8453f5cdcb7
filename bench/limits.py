"""Whether slices hold, by the simulated driver's own books: docs/benchmarks.md, "Limits". Each check has a host of its
own, so that the most that was ever held on its GPU (which the driver never forgets) is that check's."""
import dataclasses
import json
import shlex
import subprocess

from bench import host

MIB, GIB = 1 << 20, 1 << 30
SPEC = "h100-80gb"
SLICE_GIB, RACE_GIB, VIEW_GIB = 2, 12, 4
PIECE = 64 * MIB
# What a family takes and gives in one step beyond what is asked.
STEP = {"async": 32 * MIB, "async-free": 32 * MIB, "pool": 32 * MIB, "mipmap": 32 * MIB, "graph": 32 * MIB}
FAMILIES = ("linear", "pitch", "managed", "async", "async-free", "pool", "vmm", "mapped", "array", "mipmap", "graph",
            "context", "module")
# A context takes far more than a piece; what a module takes, the driver alone knows: one too many is loaded, and
# unloaded at once.
CONTEXT, MODULE_OVER = 600 * MIB, PIECE
# The simulated driver keeps modules in the machine's memory: without a limit, no more than this GPU's.
MODULE_SPEC = "t4-16gb"
RACES = {"linear": 2 * MIB, "vmm": 2 * MIB, "async": 32 * MIB}
RACERS = 6
OUT_OF_MEMORY = 2


@dataclasses.dataclass(frozen=True)
class Limiter:
    """How a command is limited to so many GiB: by `carve run`, by a preloaded library, or not at all."""
    name: str
    library: str = None
    env: tuple = ()

    def command(self, build, gib, argv):
        if self.name == "carve":
            return [str(build / "carve"), "run", "--vram", str(gib), "--", *argv]
        if not self.library:
            return argv
        given = [f"{key}={value.replace('{mib}', str(gib * 1024))}" for key, value in self.env]
        return ["env", f"LD_PRELOAD={self.library}", *given, *argv]


def limiters(peers):
    """No limiter shows what a check says where nothing holds."""
    return [Limiter("none"), Limiter("carve"), *(Limiter(n, lib, tuple(env.items())) for n, lib, env in peers)]


@dataclasses.dataclass
class Outcome:
    status: int
    out: str
    errors: str
    peak: int   # most bytes ever held on the GPU
    left: int   # held when all had ended


def run(build, limiter, gib, argv, timeout=300, spec=SPEC):
    """Runs a command under the limiter, on a host of its own."""
    inner = shlex.join(map(str, limiter.command(build, gib, [str(a) for a in argv])))
    script = f'{inner}; echo "status $?"; {shlex.quote(str(build / "carve"))} sim stat --json'
    done = subprocess.run([str(build / "carve"), "sim", "--gpus", spec, "--", "sh", "-c", script],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=host.fresh_env(), timeout=timeout, check=False)
    out, mark, rest = done.stdout.rpartition("status ")
    if not mark:
        raise host.BenchError(f"{inner}: no simulated host\n{done.stderr[-500:]}")
    status, _, stat = rest.partition("\n")
    gpu = json.loads(stat)["gpus"][0]
    return Outcome(int(status), out, done.stderr, gpu["memory_peak_bytes"], gpu["memory_used_bytes"])


def result(check, family, ok, measured, **details):
    return {"check": check, "family": family, "pass": ok, "measured": measured, **details}


def mib(count):
    return f"{count / MIB:,.0f} MiB"


def over_text(over):
    return f"over by {mib(over)}" if over > 0 else "never over"


def family(build, limiter, name):
    """Takes all there is in that way: never more than the slice, refused only when it is full, all given back."""
    done = run(build, limiter, SLICE_GIB, [build / "tests/programs/slice_greedy", name, PIECE],
               spec=MODULE_SPEC if name == "module" else SPEC)
    over = done.peak - SLICE_GIB * GIB
    if not done.out.startswith("{"):
        return result("family", name, False, f"did not run: {done.errors.strip()[-80:]}", over_bytes=over)
    said = json.loads(done.out)
    short = -over - (CONTEXT if name == "context" else PIECE + STEP.get(name, 0))
    ok = (over <= (MODULE_OVER if name == "module" else 0) and short < 0 and done.left == 0 and
          said["result"] == OUT_OF_MEMORY and said["given"])
    words = over_text(over) + (f", refused {mib(short)} too early" if short >= 0 else "")
    if said["result"] != OUT_OF_MEMORY:
        words += f", error {said['result']}"
    return result("family", name, ok, words, over_bytes=over, result=said["result"])


def race(build, limiter, name, rounds):
    """Processes take step by step until each is refused, all at once: how often they came to more than the slice."""
    program = shlex.join([str(build / "tests/programs/slice_greedy"), name, str(RACES[name])])
    everyone = f"for i in $(seq {RACERS}); do {program} > /dev/null & done; wait"
    overs = [run(build, limiter, RACE_GIB, ["sh", "-c", everyone]).peak - RACE_GIB * GIB for _ in range(rounds)]
    bad = sum(o > 0 for o in overs)
    return result("race", name, bad == 0, f"{bad} of {rounds} rounds over" + (f", by {mib(max(overs))}" if bad else ""),
                  rounds=rounds, rounds_over=bad, worst_over_bytes=max(overs))


def race_exact(build, limiter, name, rounds):
    """All take an equal share at once, then step by step: the room must be had to the last step, and come back."""
    done = run(build, limiter, RACE_GIB, [build / "tests/programs/limit_race", name, RACES[name], RACERS, rounds])
    over = done.peak - RACE_GIB * GIB
    ok = done.status == 0 and over <= 0
    words = "to the last step" if ok else f"{over_text(over)}; {done.errors.strip()[-80:]}"
    return result("race, exact", name, ok, words, over_bytes=over, rounds=rounds)


def view(build, limiter, seconds):
    """free + used = total in every look of cuMemGetInfo and NVML, while others take and give."""
    done = run(build, limiter, VIEW_GIB, [build / "tests/programs/limit_view", seconds, 4])
    looks = done.out.split()
    ok = done.status == 0 and done.peak <= VIEW_GIB * GIB
    words = f"{int(looks[0]):,} looks agree" if done.status == 0 and looks else done.errors.strip()[-80:]
    return result("view", "all", ok, f"{words}, {over_text(done.peak - VIEW_GIB * GIB)}")


def kills(build, limiter, count):
    """Processes that are killed at random while they take and give: nobody waits, and nothing stays behind."""
    done = run(build, limiter, VIEW_GIB, [build / "tests/programs/death_load", count, 1])
    ok = done.status == 0 and done.peak <= VIEW_GIB * GIB and done.left == 0
    said = done.out.split()
    words = f"{int(said[0]):,} operations" if done.status == 0 and said else done.errors.strip()[-80:]
    return result("kills", f"{count} kills", ok, f"{words}, {over_text(done.peak - VIEW_GIB * GIB)}")


def measure(build, limiter, quick, say):
    rounds = 2 if quick else 20
    rows = []
    # The control takes all there is: not in modules, which are the machine's memory.
    for name in FAMILIES[:-1] if limiter.name == "none" else FAMILIES:
        say(f"{limiter.name}, {name}")
        rows.append(family(build, limiter, name))
    for name in RACES:
        say(f"{limiter.name}, race for {name}")
        rows.append(race(build, limiter, name, rounds))
        rows.append(race_exact(build, limiter, name, 2 if quick else 10))
    say(f"{limiter.name}, view and kills")
    return rows + [view(build, limiter, 1 if quick else 10), kills(build, limiter, 30 if quick else 1000)]
