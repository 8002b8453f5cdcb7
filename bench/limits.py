"""Whether slices hold, by the simulated driver's own figures: docs/dev/benchmarks.md, "Limits". Each check has a host of its
own, so that the most that was ever held on its GPU (which the driver never forgets) is that check's."""
import contextlib
import dataclasses
import json
import os
import shlex
import subprocess
import tempfile

from bench import host, peers, real, report

MIB, GIB = 1 << 20, 1 << 30
SPEC = "h100-80gb"
SLICE_GIB, RACE_GIB, VIEW_GIB = 2, 12, 4
PIECE = 64 * MIB
# The bytes that a family takes and gives in one step beyond what is asked.
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
CHECKS = ("family", "race", "view", "kills")
OUT_OF_MEMORY = 2
NOT_RUN = "did not run"
TIMED_OUT = 124  # timeout(1)'s


@dataclasses.dataclass(frozen=True)
class Limiter:
    """How a command is limited to so many GiB: by `carve run`, by a preloaded library, or not at all."""
    name: str
    peer: peers.Peer = None
    real: tuple = ()  # on the GPU that is there: real.slice_options()
    library: str = None  # peers.by_name()

    def command(self, build, gib, argv, scratch="/tmp"):
        argv = peers.by_name(self.library, argv)
        if self.name == "carve":
            return [str(build / "carve"), "run", "--vram", str(gib), *self.real, "--", *argv]
        if not self.peer:
            return argv
        return ["env", *(f"{k}={v}" for k, v in self.peer.environment(gib * 1024, 100, scratch).items()), *argv]


def limiters(given, on_gpu=(), library=None):
    """No limiter shows what a check says where nothing holds."""
    return [Limiter(name, peer, on_gpu, library) for name, peer in (
        ("none", None), ("carve", None), *((p.name, p) for p in given))]


@dataclasses.dataclass
class Outcome:
    status: int
    out: str
    errors: str
    peak: int   # most bytes ever held on the GPU
    left: int   # held when all had ended


def let_look(process, memory):
    """Has slice_greedy wait when it has taken all, until the memory was looked at."""
    for look in (lambda: None, memory.look_now):
        if not process.stdout.readline():
            return
        look()
        process.stdin.write("\n")
        process.stdin.flush()


def run_real(build, limiter, gib, argv, timeout=120, holds=False):
    """Runs a command under the limiter, on the GPU that is there."""
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as scratch, contextlib.closing(real.UsedMemory()) as memory:
        command = ["timeout", "-k", "1", str(timeout), *limiter.command(build, gib, [str(a) for a in argv], scratch)]
        command += ["race"] if holds else []
        with memory, tempfile.TemporaryFile("w+", errors="replace") as errors:
            process = subprocess.Popen([str(a) for a in command], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                       stderr=errors, text=True, errors="replace")
            with contextlib.suppress(BrokenPipeError):
                if holds:
                    let_look(process, memory)
            out, _ = process.communicate()
            errors.seek(0)
            said = errors.read()
        return Outcome(process.returncode, out, said, memory.most(), memory.left())


def run(build, limiter, gib, argv, timeout=120, spec=SPEC, holds=False):
    """Runs a command under the limiter, on a host of its own. One that does not end in time has the status of timeout(1)."""
    if limiter.real:
        return run_real(build, limiter, gib, argv, timeout, holds)
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as scratch:
        inner = shlex.join(["timeout", "-k", "1", str(timeout),
                            *map(str, limiter.command(build, gib, [str(a) for a in argv], scratch))])
        script = f'{inner}; echo "status $?"; {shlex.quote(str(build / "carve"))} sim stat --json'
        done = host.on_a_host(build, spec, ["sh", "-c", script], timeout + 60)
    if not done:
        raise host.BenchError(f"{inner}: it did not end")
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


def trouble(done):
    """How a program that did not say what it should have ended, and its last words, in a line."""
    if done.status == TIMED_OUT:
        return "did not end in time"
    said = [line.strip() for line in done.errors.splitlines() if line.strip()]
    status = done.status if done.status < 128 else 128 - done.status
    return f"{peers.ended(status)}: {said[-1][-80:]}" if said else peers.ended(status)


def most_held(name, done, pieces):
    """A driver may keep managed memory that nobody has touched in the machine's: it is what the program was given."""
    return done.peak + (pieces * PIECE if name == "managed" and done.peak < pieces * PIECE else 0)


def family(build, limiter, name):
    """Takes all there is in that way: never more than the slice, refused only when it is full, all given back."""
    done = run(build, limiter, SLICE_GIB, [build / "tests/programs/slice_greedy", name, PIECE],
               spec=MODULE_SPEC if name == "module" else SPEC, holds=True)
    if not done.out.startswith("{"):
        return result("family", name, False, f"{NOT_RUN}: {trouble(done)}", over_bytes=done.peak - SLICE_GIB * GIB)
    said = json.loads(done.out)
    over = most_held(name, done, said["pieces"]) - SLICE_GIB * GIB
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
    runs = [run(build, limiter, RACE_GIB, ["sh", "-c", everyone]) for _ in range(rounds)]
    overs = [done.peak - RACE_GIB * GIB for done in runs]
    bad = sum(o > 0 for o in overs)
    # A client that takes nothing holds the limit, and has shown nothing.
    idle = next((done for done in runs if done.peak < RACE_GIB * GIB / 2), None)
    words = f"{bad} of {rounds} rounds over" + (f", by {mib(max(overs))}" if bad else "")
    if idle:
        words += f"; in one only {mib(idle.peak)} were taken: {trouble(idle)}"
    return result("race", name, bad == 0 and not idle, words, rounds=rounds, rounds_over=bad, worst_over_bytes=max(overs))


def race_exact(build, limiter, name, rounds):
    """All take an equal share at once, then step by step: the room must be had to the last step, and come back."""
    done = run(build, limiter, RACE_GIB, [build / "tests/programs/limit_race", name, RACES[name], RACERS, rounds])
    over = done.peak - RACE_GIB * GIB
    ok = done.status == 0 and over <= 0
    words = "to the last step" if ok else over_text(over) + (f"; {trouble(done)}" if done.status else "")
    return result("race, exact", name, ok, words, over_bytes=over, rounds=rounds)


def view(build, limiter, seconds):
    """free + used = total in every look of cuMemGetInfo and NVML, while others take and give."""
    done = run(build, limiter, VIEW_GIB, [build / "tests/programs/limit_view", seconds, 4])
    looks = done.out.split()
    ok = done.status == 0 and int(looks[0]) > 0 and done.peak <= VIEW_GIB * GIB
    words = f"{int(looks[0]):,} looks agree" if done.status == 0 and looks else trouble(done)
    return result("view", "all", ok, f"{words}, {over_text(done.peak - VIEW_GIB * GIB)}")


def kills(build, limiter, count):
    """Processes that are killed at random while they take and give: nobody waits, and nothing stays behind."""
    done = run(build, limiter, VIEW_GIB, [build / "tests/programs/death_load", count, 1])
    ok = done.status == 0 and done.peak <= VIEW_GIB * GIB and done.left == 0
    said = done.out.split()
    words = f"{int(said[0]):,} operations" if done.status == 0 and said else trouble(done)
    return result("kills", f"{count} kills", ok, f"{words}, {over_text(done.peak - VIEW_GIB * GIB)}")


def checks(limiter, quick):
    """[(check, family, what does it for a build)]"""
    rounds, exact, looks, deaths = (2, 2, 1, 30) if quick else (20, 10, 10, 1000)
    # The control takes all there is: not where that is the machine's memory.
    left_out = {"module", "managed" if limiter.real and not real.simulated() else ""} if limiter.name == "none" else ()
    found = [("family", name, lambda build, n=name: family(build, limiter, n)) for name in FAMILIES if name not in left_out]
    for name in RACES:
        found.append(("race", name, lambda build, n=name: race(build, limiter, n, rounds)))
        found.append(("race, exact", name, lambda build, n=name: race_exact(build, limiter, n, exact)))
    return found + [("view", "all", lambda build: view(build, limiter, looks)),
                    ("kills", f"{deaths} kills", lambda build: kills(build, limiter, deaths))]


def measure(build, limiter, options, say):
    """The row of each check of one limiter, as it is there. Where a check cannot be made at all, its row says why, and does
    not hold."""
    broken = limiter.peer and peers.why_not(limiter.peer, dict(os.environ) if limiter.real else host.fresh_env())
    wanted = [c for c in checks(limiter, options.quick) if c[0].split(",")[0] in (options.checks or CHECKS)]
    for i, (check, name, attempt) in enumerate(wanted):
        say(f"{limiter.name}: {check}, {name} ({i + 1} of {len(wanted)})")
        try:
            yield result(check, name, False, f"{NOT_RUN}: {broken}") if broken else attempt(build)
        except host.BenchError as error:
            yield result(check, name, False, f"{NOT_RUN}: {report.last_line(str(error))[-100:]}")
