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

from bench import calls, guard, host, plot, report

SCHEMA = "carve-bench/1"


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


def parse(argv):
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description="Measures what carve costs, beside its peers; docs/benchmarks.md "
        "explains every figure.", epilog="example: scripts/bench --quick --json /tmp/calls.json")
    parser.add_argument("part", nargs="?", default="calls", choices=["calls"], help="what to measure")
    parser.add_argument("--quick", action="store_true", help="few rounds: good for a look")
    parser.add_argument("--json", metavar="FILE", help="write the results and every sample there")
    parser.add_argument("--svg", metavar="FILE", help="write the plot of alloc + free there")
    parser.add_argument("--markdown", metavar="FILE", help="write the results there as docs/benchmarks.md has them")
    parser.add_argument("--build", type=pathlib.Path, default=host.ROOT / "build", help="the build directory")
    parser.add_argument("--guard", action="store_true", help="only compare cheap ratios with their bounds")
    parser.add_argument("--bounds", type=pathlib.Path, default=guard.BOUNDS, help="other bounds for --guard")
    parser.add_argument("--peer", dest="peers", metavar="NAME=LIBRARY", action=AddPeer, default=[],
                        help="another interposer, preloaded instead of carve's")
    parser.add_argument("--peer-env", metavar="NAME=VALUE", action=AddPeerEnv,
                        help="for the --peer before it")
    return parser.parse_args(argv)


def cpu_model():
    text = pathlib.Path("/proc/cpuinfo").read_text()
    found = re.search(r"^model name\s*: (.*)$", text, re.MULTILINE)
    return found[1] if found else platform.machine()


def revision():
    done = subprocess.run(["git", "-C", host.ROOT, "describe", "--always", "--dirty"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    return done.stdout.strip() or None


def configurations(build, peers):
    direct = host.direct(build)
    found = [direct, host.through_carve(build, direct)]
    return found + [host.through_peer(direct, *peer) for peer in peers]


def machine(core):
    return {"cpu": cpu_model(), "cores": os.cpu_count(), "kernel": platform.release(), "pinned_core": core}


def measure_calls(build, options):
    rounds = 5 if options.quick else 61
    with host.session(build):
        core = host.pin()
        found = configurations(build, options.peers)
        rows = calls.measure(build, found, rounds)
    return {"schema": SCHEMA, "part": options.part,
            "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
            "machine": machine(core), "revision": revision(), "rounds": rounds,
            "configurations": [{"name": c.name} for c in found], "rows": rows}


def write(path, text):
    if path:
        pathlib.Path(path).write_text(text)


def run(options):
    build = options.build.resolve()
    host.enter(build)
    if options.guard:
        with host.session(build):
            host.pin()
            return guard.check(build, configurations(build, []), options.bounds)
    document = measure_calls(build, options)
    print(report.text(document), end="")
    write(options.json, json.dumps(document, indent=1) + "\n")
    write(options.markdown, report.markdown(document))
    write(options.svg, plot.svg(document["rows"]))
    return 0


def main(argv=None):
    try:
        return run(parse(sys.argv[1:] if argv is None else argv))
    except host.BenchError as error:
        print(f"scripts/bench: {error}", file=sys.stderr)
        return 1
