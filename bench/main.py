"""The command line of scripts/bench."""
import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import subprocess
import sys

from bench import guard, host, part_calls, part_limits, part_scale, part_shares

SCHEMA = "carve-bench/1"
PARTS = {"calls": part_calls, "limits": part_limits, "shares": part_shares, "scale": part_scale}


class AddPeer(argparse.Action):
    def __call__(self, parser, options, value, option_string=None):
        name, _, library = value.partition("=")
        if not name or not os.path.isfile(library):
            parser.error(f"{option_string} {value}: not NAME=/path/of/a/library.so that is there")
        options.peers.append((name, os.path.abspath(library), {}))


class AddPeerEnv(argparse.Action):
    def __call__(self, parser, options, value, option_string=None):
        key, equals, text = value.partition("=")
        if not options.peers or not key or not equals:
            parser.error(f"{option_string} {value}: not NAME=VALUE after a --peer")
        options.peers[-1][2][key] = text


def seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 1 <= value <= 3600:
        raise argparse.ArgumentTypeError(f"{text}: not a number from 1 to 3600")
    return value


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures what carve costs and keeps, beside its peers; docs/benchmarks.md "
        "explains every figure. calls: what a call costs. limits: whether slices hold. shares: who gets how much of a "
        "GPU's time. scale: how times grow with sizes.",
        epilog="example: scripts/bench shares --quick --scenario 25-75 --json /tmp/shares.json")
    parser.add_argument("part", nargs="?", choices=list(PARTS), help="what to measure (without: all, one after the other)")
    parser.add_argument("--quick", action="store_true", help="little of each: good for a look")
    parser.add_argument("--json", metavar="FILE", help="write the results and every sample there")
    parser.add_argument("--svg", metavar="FILE", help="write the part's picture there (all parts: FILE with the part's "
                        "name before its suffix)")
    parser.add_argument("--markdown", metavar="FILE", help="write the results there as docs/benchmarks.md has them")
    parser.add_argument("--build", type=pathlib.Path, default=host.ROOT / "build", help="the build directory")
    parser.add_argument("--scenario", dest="scenarios", metavar="NAME", action="append", default=[],
                        help="shares: only this one; may be repeated")
    parser.add_argument("--seconds", type=seconds, metavar="N", help="shares: so long each scenario (60; --quick: 4)")
    parser.add_argument("--guard", action="store_true", help="only compare cheap ratios with their bounds")
    parser.add_argument("--bounds", type=pathlib.Path, default=guard.BOUNDS, help="other bounds for --guard")
    parser.add_argument("--peer", dest="peers", metavar="NAME=LIBRARY", action=AddPeer, default=[],
                        help="another interposer, preloaded instead of carve's")
    parser.add_argument("--peer-env", metavar="NAME=VALUE", action=AddPeerEnv,
                        help="for the --peer before it")
    options = parser.parse_args(argv)
    if (options.scenarios or options.seconds) and options.part != "shares":
        parser.error("--scenario and --seconds are for the part shares")
    for name in options.scenarios:
        if name not in part_shares.names():
            parser.error(f"--scenario {name}: none of {', '.join(part_shares.names())}")
    return options


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


def measure(part, build, options):
    """The part's document; docs/benchmarks.md, "JSON"."""
    date = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
    before = os.getloadavg()[0]
    found = PARTS[part].run(build, options, lambda text: say(f"{part}: {text}"))
    say("")
    document = {"schema": SCHEMA, "part": part, "date": date, "quick": options.quick, "machine": machine(),
                "revision": revision(), "load": [before, os.getloadavg()[0]]}
    document["machine"].update(found.pop("machine", {}))
    return {**document, **found}


def write(path, text):
    if path:
        pathlib.Path(path).write_text(text)


def picture_path(options, part):
    path = pathlib.Path(options.svg)
    return path if options.part else path.with_name(f"{path.stem}-{part}{path.suffix}")


def run(options):
    build = options.build.resolve()
    host.enter(build)
    if options.guard:
        with host.session(build), host.pinned():
            return guard.check(build, part_calls.configurations(build, []), options.bounds)
    documents = []
    for part in [options.part] if options.part else PARTS:
        documents.append(measure(part, build, options))
        print(("\n" if len(documents) > 1 else "") + PARTS[part].text(documents[-1]), end="", flush=True)
        if options.svg:
            picture_path(options, part).write_text(PARTS[part].svg(documents[-1]))
    whole = documents[0] if options.part else {"schema": SCHEMA, "parts": documents}
    write(options.json, json.dumps(whole, indent=1) + "\n")
    write(options.markdown, "\n".join(PARTS[d["part"]].markdown(d) for d in documents))
    return 0


def main(argv=None):
    try:
        return run(parse(sys.argv[1:] if argv is None else argv))
    except host.BenchError as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
