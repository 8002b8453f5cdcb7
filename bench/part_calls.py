"""scripts/bench calls: what a call costs, beside direct calls and peers."""
from bench import calls, host, plot, report

text, markdown = report.text, report.markdown


def configurations(build, peers):
    direct = host.direct(build)
    found = [direct, host.through_carve(build, direct)]
    return found + [host.through_peer(direct, *peer) for peer in peers]


def run(build, options, say):
    rounds = 5 if options.quick else 61
    say(f"{rounds} rounds")
    with host.session(build), host.pinned() as core:
        found = configurations(build, options.peers)
        rows = calls.measure(build, found, rounds)
    return {"machine": {"pinned_core": core}, "driver": "a driver that returns at once", "rounds": rounds,
            "configurations": [{"name": c.name} for c in found], "rows": rows}


def svg(document):
    return plot.svg(document["rows"])
