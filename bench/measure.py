"""The command line of scripts/measure-gpu: what is known of carve on a real GPU, in one call, as a page for docs/measurements.
Every step is a program of its own that may fail or take too long: the page says so, and the next one goes on."""
import contextlib
import datetime
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from bench import children, host, measure_libraries, outputs, real, report
from bench.main import Parser, number_to

HERE = pathlib.Path(__file__).parent
MIB = 1 << 20
SKIPPED = 77
SLICE_GIB = 8
PROGRAM = "scripts/measure-gpu"
SECONDS = number_to(86400, "a number of seconds")


class Failed(Exception):
    """A step has no figures; the text says why, and goes into the page."""


class Context:
    def __init__(self, options):
        self.options = options
        self.build = options.build
        self.end = time.monotonic() + options.seconds

    def left(self):
        return self.end - time.monotonic()

    def run(self, argv, most, ok=(0,), env=None):
        """Standard output and error of a command that ends by itself, in the time that is left at most."""
        most = max(1, min(most, self.left()))
        process = subprocess.Popen([str(a) for a in argv], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.STDOUT, text=True, errors="replace", start_new_session=True,
                                   env={**os.environ, **(env or {})})
        try:
            said, _ = process.communicate(timeout=most)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            raise Failed(f"did not end in {most:.0f} s") from None
        if process.returncode not in ok:
            raise Failed(f"status {process.returncode}: {report.last_line(said)}")
        return said

    def carve(self, *argv, most=60):
        return self.run([self.build / "carve", *argv], most)

    def inside(self, *size):
        """What a command goes behind that is to run in a slice of this GPU."""
        return [self.build / "carve", "run", "--ephemeral", *size, *real.slice_options(self.build), "--"]


def code(text):
    return f"```\n{text.rstrip()}\n```\n"


def table(head, rows):
    return report.markdown_table(head, [[str(cell) for cell in row] for row in rows]) + "\n"


# ---- the steps -----------------------------------------------------------------------------------

def machine(context):
    same = "the host's" if os.readlink("/proc/self/ns/pid") == "pid:[4026531836]" else "not the host's: NVML's numbers may be others"
    text = f"Kernel {os.uname().release}, {os.cpu_count()} processors, process numbers {same}.\n\n"
    return text + code(context.carve("check")) + "\n" + code(context.carve("gpu", "list"))


def driver(context):
    """Outside of slices."""
    found = json.loads(context.run([sys.executable, HERE / "measure_facts.py"], 120).splitlines()[-1])
    rows = [[what, f"{more:+.1f}", "-" if own is None else f"{own:+.1f}", remark] for what, more, own, remark in found["rows"]]
    return (table(["what was done", "MiB of the GPU", "MiB in the process's figure", ""], rows) + "\n" +
            table(["NVML, median of 50", "us"], [[name, f"{us:.0f}"] for name, us in found["times"]]))


def context_cost(context):
    """A context in a slice: carve's ledger beside the driver's."""
    nvml = real.Nvml()
    before = nvml.used()
    with subprocess.Popen([str(a) for a in (*context.inside("--vram", SLICE_GIB), context.build / "bench/idle", 1)],
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as idle:
        try:
            if idle.stdout.readline() != "ready\n":
                raise Failed("a process with a context does not start in a slice")
            time.sleep(1.5)
            sessions = json.loads(context.carve("session", "list", "--json"))
            shown, taken = sessions[0]["gpus"][0]["used_bytes"], nvml.used() - before
        finally:
            idle.stdin.close()
            nvml.close()
    return (f"A process with a context and a small allocation in a slice: carve's ledger {shown / MIB:.1f} MiB, "
            f"NVML's used memory {taken / MIB:+.1f} MiB.\n")


def inside(context):
    text = context_cost(context)
    smi = shutil.which("nvidia-smi")
    if not smi:
        return text + "\nnvidia-smi is not installed here.\n"
    return text + f"\nnvidia-smi in a slice of {SLICE_GIB} GiB:\n\n" + code(context.run([*context.inside("--vram", SLICE_GIB), smi], 60))


def torch(context):
    """Each of PyTorch's allocators."""
    text = ""
    for allocator in ("", "expandable_segments:True", "backend:cudaMallocAsync"):
        argv = [context.options.python, HERE / "measure_torch.py", SLICE_GIB << 30]
        said = context.run([*context.inside("--vram", SLICE_GIB), *argv], 180, (0, 1, SKIPPED), {"PYTORCH_CUDA_ALLOC_CONF": allocator})
        if "ok " not in said and "FAILED " not in said:
            raise Failed(report.last_line(said))
        text += code(said) + "\n"
    return text


def policies(context):
    """Only root can try these: it plays several users."""
    argv = [sys.executable, HERE / "measure_policies.py", context.build]
    return code(context.run(argv, 300, (0, 1)))


def rates_of(context, fractions, seconds):
    """Of trainings side by side, each in a slice: {what: samples a second} each."""
    loads = [context.options.python, HERE / "torch_load.py", seconds]
    running = [subprocess.Popen([str(a) for a in (*context.inside("--gpu", fraction), *loads)], stdin=subprocess.DEVNULL,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for fraction in fractions]
    found = []
    try:
        for process in running:
            said, why = process.communicate(timeout=max(1, min(8 * seconds + 90, context.left())))
            if process.returncode:
                raise Failed(report.last_line(why) or f"status {process.returncode}")
            found.append(json.loads(said.splitlines()[-1])["samples_per_second"])
    except subprocess.TimeoutExpired:
        raise Failed("trainings side by side did not end in time") from None
    finally:
        for process in running:
            process.kill()
            process.communicate()
    return found


def together(context):
    """Two trainings side by side, in each mode, as parts of one alone."""
    seconds = context.options.torch_seconds
    gpu = real.slice_options(context.build)
    context.carve("timeslicing", "--mode", "off", *gpu)
    alone = rates_of(context, ["1"], seconds)[0]
    rows = []
    for mode, fractions in (("off", ("0.5", "0.5")), ("fair", ("0.5", "0.5")), ("strict", ("0.25", "0.75"))):
        context.carve("timeslicing", "--mode", mode, *gpu)
        both = rates_of(context, fractions, seconds)
        rows += [[f"{mode}, {' and '.join(fractions)}", what, f"{alone[what]:,.0f}",
                  *(f"{one[what]:,.0f} ({one[what] / alone[what]:.3f})" for one in both)] for what in alone]
    context.carve("timeslicing", "--mode", "off", *gpu)
    return (f"Samples a second, {seconds:g} s each, in brackets as a part of alone. The parts of a run begin together and may "
            "not end so: where shares differ, the last ones of the slower are alone.\n\n" +
            table(["mode, slices", "", "alone", "the first", "the second"], rows))


def benched(*argv):
    """A step that is a part of scripts/bench."""
    def step(context):
        with tempfile.TemporaryDirectory(prefix="carve-measure-") as folder:
            page = pathlib.Path(folder, "page.md")
            try:
                context.run([sys.executable, host.ROOT / "scripts/bench", *argv, "--build", context.build, "--markdown", page], 600)
            except Failed as why:
                if not page.exists():
                    raise
                return f"Not all of it: {why}\n\n{page.read_text()}"
            return page.read_text()
    step.__doc__ = " ".join(argv)
    return step


def tests(context):
    """The system tests, on this GPU."""
    if real.simulated():
        raise Failed("./scripts/test runs them on simulated hosts of their own")
    most = max(60, context.left() - 10)
    argv = ["timeout", "--signal=INT", f"{most:.0f}", context.options.python, "-m", "pytest", "-q", "-rfE", "--tb=line", "-p",
            "no:cacheprovider", *(("-k", context.options.tests) if context.options.tests else ()), host.ROOT / "tests/system"]
    said = context.run(argv, most + 9, (0, 1, 2, 124), {"CARVE_TEST_GPU": "1", "CARVE_BUILD": str(context.build)})
    told = [line for line in said.splitlines() if re.match(r"(FAILED|ERROR) |.*\b(passed|failed|no tests ran)\b", line)]
    return code("\n".join(told) or said[-2000:])


STEPS = {
    "machine": ("The machine", machine),
    "driver": ("What the driver does, outside of slices", driver),
    "inside": ("Inside a slice", inside),
    "torch": ("PyTorch in a slice", torch),
    "policies": ("An administrator's policies", policies),
    "together": ("Two PyTorch programs side by side", together),
    "calls": ("What a call costs over this driver", benched("calls", "--driver", "--quick")),
    "shares": ("Shares of time", benched("shares", "--gpu", "--seconds", "20", "--scenario", "25-75", "--scenario", "50-30-20",
                                         "--scenario", "fair-25-75", "--scenario", "lease-50ms", "--scenario", "switch",
                                         "--scenario", "hand-over", "--scenario", "loss")),
    "limits": ("Limits", benched("limits", "--gpu", "--quick")),
    "tests": ("System tests", tests),
}

# ---- the page ------------------------------------------------------------------------------------


def default_page(gpu, version):
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    return host.ROOT / "docs/measurements" / f"{datetime.date.today()}-{slug}-driver-{version}.md"


def driver_version(build):
    said = host.checked([build / "carve", "check"], os.environ)
    found = re.search(r"^driver: +(\S+)", said, re.MULTILINE)
    return found.group(1) if found else "unknown"


def revision():
    with contextlib.suppress(OSError):
        done = subprocess.run(["git", "-C", str(host.ROOT), "rev-parse", "--short", "HEAD"], stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True, check=False)
        if done.returncode == 0:
            return done.stdout.strip()
    return "unknown"


def parse(argv):
    parser = Parser(
        prog=PROGRAM, description="Measures carve on this machine's first GPU in one call, and writes a page for "
        "docs/measurements/. What takes too long or fails is said there, and the rest goes on. Exit status: 0 a page was written, 1 "
        "there is no GPU, 2 wrong usage.",
        epilog=f"example: {PROGRAM} --seconds 540 --only driver --only torch")
    parser.add_argument("--out", metavar="FILE", type=pathlib.Path, help="the page (docs/measurements/DATE-GPU-driver-VERSION.md)")
    parser.add_argument("--only", metavar="STEP", action="append", choices=list(STEPS), help=f"only this step: {', '.join(STEPS)}; "
                        "may be repeated")
    parser.add_argument("--seconds", metavar="N", type=SECONDS, default=3600, help="begin nothing after so many seconds, and end "
                        "what runs then (3600)")
    parser.add_argument("--torch-seconds", metavar="N", type=SECONDS, default=15, help="each part of trainings side by side (15)")
    parser.add_argument("--tests", metavar="EXPRESSION", help="only those system tests whose names match (pytest's -k)")
    parser.add_argument("--python", metavar="PROGRAM", default="python3", help="one that has torch, and pytest for the tests (python3)")
    parser.add_argument("--build", metavar="DIR", type=pathlib.Path, default=host.ROOT / "build", help="the build, or what --pack made")
    parser.add_argument("--pack", metavar="DIR", type=pathlib.Path, help="only copy what a machine without Debian's packages needs to "
                        "run all of this to DIR (with --build DIR): programs, and the libraries that they are linked to")
    options = parser.parse_args(argv)
    if not os.access(options.build / "carve", os.X_OK):
        parser.error(f"--build {options.build}: no carve is there; ./scripts/build makes one in build/")
    options.build = options.build.resolve()
    try:
        if options.pack and os.path.lexists(options.pack) and (not options.pack.is_dir() or any(options.pack.iterdir())):
            parser.error(f"--pack {options.pack}: is there already; a new or empty folder is needed")
        if options.out:
            outputs.check(options.out)
    except OSError as error:
        parser.error(f"--out {options.out}: {outputs.why(error)}")
    return options


def measured(context, name):
    title, step = STEPS[name]
    begin = time.monotonic()
    if context.left() < 5:
        return f"## {title}\n\nNot measured: no time was left.\n"
    print(f"{PROGRAM}: {name} ...", file=sys.stderr, flush=True)
    try:
        text = step(context)
    except (Failed, host.BenchError, OSError, ValueError, LookupError) as why:
        text = f"Not measured: {why}\n"
    finally:
        children.end_all()
    return f"## {title}\n\n{text.rstrip()}\n\n({time.monotonic() - begin:.0f} s)\n"


def main(argv=None):
    options = parse(argv)
    if options.pack:
        measure_libraries.pack(options.build, options.pack)
        return 0
    children.adopt()
    measure_libraries.use(options.build)
    try:
        gpu = real.driver()["name"]
        with real.own_daemon():
            version = driver_version(options.build)
            children.end_all()  # a step may start a daemon of its own
            page = options.out or default_page(gpu, version)
            page.parent.mkdir(parents=True, exist_ok=True)
            parts = [f"# {gpu}, driver {version}, {datetime.date.today()}\n\nBy `{PROGRAM}` at {revision()}"
                     f"{', on a simulated host' if real.simulated() else ''}.\n"]
            context = Context(options)
            for name in STEPS:
                if not options.only or name in options.only:
                    parts.append(measured(context, name))
                    outputs.write(page, "\n".join(parts))
            print(page)
    except host.BenchError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    finally:
        children.end_all()
    return 0
