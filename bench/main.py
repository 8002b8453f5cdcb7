"""The command line of scripts/bench."""
import argparse
import contextlib
import dataclasses
import datetime
import json
import os
import pathlib
import platform
import re
import signal
import subprocess
import sys

from bench import (children, guard, host, limits, outputs, part_calls, part_limits, part_pytorch, part_scale, part_shares,
                   peers, real)

SCHEMA = "carve-bench/1"
ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
RESERVED = ("direct", "carve", "none", "driver")  # columns of ours
PARTS = {"calls": part_calls, "limits": part_limits, "shares": part_shares, "scale": part_scale, "pytorch": part_pytorch}


class AddPeer(argparse.Action):
    def __call__(self, parser, options, value, option_string=None):
        name, _, library = value.partition("=")
        if not name or not os.path.isfile(library):
            parser.error(f"{option_string} {value}: not NAME=/path/of/a/library.so that is there")
        if name in (*RESERVED, *(p.name for p in options.peers)):
            parser.error(f"{option_string} {value}: the name {name} is taken")
        unfit = peers.unfit(library)
        if unfit:
            parser.error(f"{option_string} {value}: {unfit}")
        options.peers = [*options.peers, peers.Peer(name, os.path.abspath(library))]


class AddPeerEnv(argparse.Action):
    def __call__(self, parser, options, value, option_string=None):
        key, equals, text = value.partition("=")
        if not options.peers or not key or not equals:
            parser.error(f"{option_string} {value}: not NAME=VALUE after a --peer")
        *others, last = options.peers
        options.peers = [*others, dataclasses.replace(last, env=(*last.env, (key, text)))]


def number_to(most, what="a number"):
    """The type of an option: from 1 on."""
    def number(text):
        try:
            value = float(text)
        except ValueError:
            value = 0
        if not 1 <= value <= most:
            raise argparse.ArgumentTypeError(f"{text}: not {what} from 1 to {most}")
        return value
    return number


class Parser(argparse.ArgumentParser):
    def error(self, message):
        """One line: the usage has as many as there are options."""
        self.exit(2, f"{self.prog}: error: {message} (--help tells more)\n")


def count(text):
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise argparse.ArgumentTypeError(f"{text}: not a whole number from 1 to 65535")
    return int(text)


def parse(argv):
    parser = Parser(
        prog="scripts/bench", description="Measures what carve costs and keeps, beside its peers. bench/README.md explains "
        "it, and docs/dev/benchmarks.md every figure. calls: what a call costs. limits: whether slices hold. shares: who gets how much of a "
        "GPU's time. scale: how times grow with sizes. pytorch (--gpu): training and inference inside a slice.",
        epilog="example: scripts/bench shares --quick --scenario 25-75 --json /tmp/shares.json")
    parser.add_argument("part", nargs="?", choices=list(PARTS), help="what to measure (without: all, one after the other)")
    parser.add_argument("--quick", action="store_true", help="little of each: good for a look")
    parser.add_argument("--json", metavar="FILE", help="keep the results and every sample there, as they come")
    parser.add_argument("--svg", metavar="FILE", help="write the part's picture there (all parts: FILE with the part's "
                        "name before its suffix)")
    parser.add_argument("--markdown", metavar="FILE", help="write the results there as tables in Markdown")
    parser.add_argument("--build", type=pathlib.Path, default=host.ROOT / "build", help="the build directory")
    parser.add_argument("--scenario", dest="scenarios", metavar="NAME", action="append", default=[],
                        help="shares: only this one; may be repeated")
    parser.add_argument("--seconds", type=number_to(3600), metavar="N", help="shares: so long each scenario (60; --quick: 4)")
    parser.add_argument("--blocks", type=count, metavar="N", help="shares: kernels are grids of so many blocks (1), for "
                        "peers that go by these")
    parser.add_argument("--check", dest="checks", metavar="NAME", action="append", default=[], choices=limits.CHECKS,
                        help=f"limits: only this one ({', '.join(limits.CHECKS)}); may be repeated")
    parser.add_argument("--driver", action="store_true", help="calls: over the driver that is there instead of the null "
                        "driver")
    parser.add_argument("--gpu", action="store_true", help="all on this machine's first GPU (CUDA's), through its own driver; "
                        "without a part also PyTorch inside a slice against outside")
    parser.add_argument("--by-name", action="store_true", help="programs look the driver's functions up with dlsym, as the "
                        "CUDA runtime does, for peers that stand before that alone")
    parser.add_argument("--python", metavar="PROGRAM", default="python3", help="pytorch: a Python that has torch (python3)")
    parser.add_argument("--guard", action="store_true", help="only compare hot paths with their bounds")
    parser.add_argument("--bounds", type=pathlib.Path, default=guard.BOUNDS, help="other bounds for --guard")
    parser.add_argument("--peer", dest="peers", metavar="NAME=LIBRARY", action=AddPeer, default=[],
                        help="another interposer, preloaded instead of carve's")
    parser.add_argument("--peer-env", metavar="NAME=VALUE", action=AddPeerEnv,
                        help="for the --peer before it")
    options = parser.parse_args(argv)
    if (options.scenarios or options.seconds or options.blocks) and options.part not in ("shares", None):
        parser.error("--scenario, --seconds and --blocks are for the part shares")
    if options.driver and options.part != "calls":
        parser.error("--driver is for the part calls; --gpu is for all")
    options.real = options.driver or options.gpu
    if options.part == "pytorch" and not options.gpu:
        parser.error("the part pytorch is for --gpu")
    if options.guard and (options.part or options.real):
        parser.error("--guard goes without a part, --driver and --gpu")
    if options.checks and options.part not in ("limits", None):
        parser.error("--check is for the part limits")
    check_outputs(parser, options)
    if not os.access(options.build / "carve", os.X_OK):
        parser.error(f"--build {options.build}: no carve is there; ./scripts/build makes one in build/")
    if options.guard and not options.bounds.is_file():
        parser.error(f"--bounds {options.bounds}: no such file")
    for name in options.scenarios:
        if name not in part_shares.names():
            parser.error(f"--scenario {name}: none of {', '.join(part_shares.names())}")
    return options


def check_outputs(parser, options):
    """Before anything is measured: what cannot be kept need not be."""
    given = [("--json", options.json), ("--markdown", options.markdown),
             *(("--svg", picture_path(options, part)) for part in (parts(options) if options.svg else []))]
    seen = {}
    for option, path in given:
        if not path:
            continue
        if not os.path.isdir(os.path.dirname(os.path.abspath(path))):
            parser.error(f"{option} {path}: there is no such folder")
        try:
            outputs.check(path)
        except OSError as error:
            parser.error(f"{option} {path}: cannot be written: {outputs.why(error)}")
        whole = outputs.target(path)
        if whole in seen and outputs.replaced(whole):
            parser.error(f"{option} {path}: {seen[whole]} goes there already")
        seen[whole] = option


def cpu_model():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def revision():
    done = subprocess.run(["git", "-C", host.ROOT, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() or None


def machine():
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "kernel": platform.release()}


def say(text):
    """What goes on, for who waits at a terminal."""
    if sys.stderr.isatty():
        print(f"\r\033[K{text}", end="", file=sys.stderr, flush=True)


def warn(text):
    say("")
    print(f"scripts/bench: {text}", file=sys.stderr)


def measure(part, build, options, results):
    """The part's document goes to the results, as far as it is there; bench/README.md, "JSON"."""
    head = {"schema": SCHEMA, "part": part, "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "quick": options.quick, "revision": revision()}
    before = os.getloadavg()[0]

    def document(found, complete):
        return {**head, "complete": complete, "load": [before, os.getloadavg()[0]], **found,
                "machine": {**machine(), **found.get("machine", {})}}

    found = PARTS[part].run(build, options, lambda text: say(f"{part}: {text}"),
                            lambda found: results.keep(document(found, False)))
    results.keep(document(found, True))
    say("")


class Results:
    """What was measured so far, on its way to the files that were asked for: they have it all the time. One that cannot be
    written does not cost the others."""

    def __init__(self, options):
        self.options = options
        self.documents = []     # of the parts, in order; the last one may be under way
        self.unwritten = {}     # {file: why it is not as it should be}

    def keep(self, document):
        """Takes the place of the same part's earlier document."""
        if self.documents and self.documents[-1]["part"] == document["part"]:
            self.documents.pop()
        self.documents.append(document)
        self.write()

    def latest(self, part):
        return next((d for d in self.documents if d["part"] == part), None)

    def fail(self, part, error):
        """What there is of the part is all there will be."""
        if self.latest(part):
            self.keep({**self.latest(part), "error": error})

    def show(self, part):
        if self.latest(part):
            print("\n" * (len(self.documents) > 1) + PARTS[part].text(self.latest(part)), end="", flush=True)

    def tell_of_files(self):
        paths = [p for p in (self.options.json, self.options.markdown) if p and outputs.replaced(p)]
        if paths and self.documents:
            warn(f"ended early: {' and '.join(paths)} {'have' if len(paths) > 1 else 'has'} what was measured until then")

    def complete(self):
        return [d["part"] for d in self.documents if d["complete"]] == parts(self.options)

    def write(self, over=False):
        """`over`: there will be no more."""
        options, last = self.options, self.documents[-1]
        over = over or self.complete()
        whole = last if options.part else {"schema": SCHEMA, "complete": self.complete(), "parts": self.documents}
        if options.svg:
            self.put("--svg", picture_path(options, last["part"]), PARTS[last["part"]].svg(last), over or last["complete"])
        self.put("--json", options.json, json.dumps(whole, indent=1) + "\n", over)
        self.put("--markdown", options.markdown, "\n".join(PARTS[d["part"]].markdown(d) for d in self.documents), over)

    def put(self, option, path, text, final):
        """What is no file gets the final text alone."""
        if not path or not (final or outputs.replaced(path)):
            return
        try:
            outputs.write(path, text)
            self.unwritten.pop(path, None)
        except OSError as error:
            if path not in self.unwritten:
                warn(f"{option} {path}: not written: {outputs.why(error)}")
            self.unwritten[path] = error


def parts(options):
    return [options.part] if options.part else [p for p in PARTS if options.gpu or p != "pytorch"]


def picture_path(options, part):
    path = pathlib.Path(options.svg)
    return path if options.part else path.with_name(f"{path.stem}-{part}{path.suffix}")


def run(options):
    build = options.build.resolve()
    options.by_name = build / "bench/libby_name.so" if options.by_name else None
    if not options.real:
        host.enter(build)
        return run_parts(build, options)
    real.driver()
    with real.own_daemon():
        if company := real.company(build):
            warn(company)
        return run_parts(build, options)


def run_parts(build, options):
    if options.guard:
        with host.session(build), host.pinned():
            return guard.check(build, part_calls.configurations(build), options.bounds)
    results = Results(options)
    for part in parts(options):
        try:
            measure(part, build, options, results)
        except (host.BenchError, subprocess.TimeoutExpired) as error:  # the other parts can be measured still
            warn(error if options.part else f"{part}: {error}")
            results.fail(part, str(error))
        except Ended:
            with contextlib.suppress(OSError):  # a terminal that has gone
                results.show(part)
                results.tell_of_files()
            raise
        results.show(part)
    if results.documents and not results.complete():
        results.write(over=True)
    return int(not results.complete() or bool(results.unwritten))


class Ended(BaseException):
    """A signal that ends programs came; its number is the argument."""


def end_by(number, _):
    """Only once: what has to be tidied up then is not to be cut off."""
    for other in ENDING:
        signal.signal(other, signal.SIG_IGN)
    raise Ended(number)


def main(argv=None):
    options = parse(sys.argv[1:] if argv is None else argv)
    children.adopt()
    for number in ENDING:
        signal.signal(number, end_by)
    try:
        return run(options)
    except host.BenchError as error:
        warn(error)
        return 1
    except Ended as ended:
        say("")
        return 128 + ended.args[0]
    except BrokenPipeError:
        sys.stdout = None  # nobody reads any more; neither is there anything to flush
        return 1
    finally:
        children.end_all()
