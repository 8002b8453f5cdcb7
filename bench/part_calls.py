"""scripts/bench calls: what a call costs, beside direct calls and peers."""
import dataclasses
import tempfile

from bench import calls, host, plot, real, report

REAL_IDLE = 8

text, markdown = report.text, report.markdown


def configurations(build, peers=(), scratch=None, below=None, by_name=None):
    direct = host.direct(build, below)
    found = [direct, host.through_carve(build, direct)]
    found += [host.through_peer(build, direct, peer, scratch) for peer in peers]
    return [dataclasses.replace(one, by_name=by_name) for one in found]


def run(build, options, say, keep):
    """Over a real driver calls take a thousand times as long: fewer rounds, and fewer idle processes' contexts."""
    below, only = (real.driver(), real.slice_options(build)) if options.real else (None, ())
    rounds = 5 if options.quick else 11 if below else 61
    if below and options.quick:
        rounds = 3
    live = calls.LIVE[:2] if below and options.quick else calls.LIVE
    with tempfile.TemporaryDirectory(prefix="carve-bench-") as scratch, host.session(build, only), host.pinned() as core:
        found = configurations(build, options.peers, scratch, below, options.by_name)
        rows = calls.measure(build, found, rounds, say, live, REAL_IDLE if below else calls.IDLE)
    name = f"{below['name']}, CUDA {below['cuda'] // 1000}.{below['cuda'] % 1000 // 10}" if below else None
    return {"machine": {"pinned_core": core, **({"gpu": name} if name else {})},
            "driver": f"the driver that is there ({name})" if below else "a driver that returns at once", "rounds": rounds,
            "configurations": [{"name": c.name} for c in found], "rows": rows}


def svg(document):
    return plot.svg(document["rows"])
