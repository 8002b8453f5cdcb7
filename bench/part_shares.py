"""scripts/bench shares: every scenario, judged, as a table, JSON and a picture."""
import dataclasses
import os

from bench import latency, plot, report, scenarios, shares, workload
from bench.host import BenchError

TITLE = "Shares of a GPU's time on the simulated host, by the driver's own books"
QUICK_LEASE_MS = 50


def quick_form(scenario):
    if scenario.fixed_lease or scenario.mode == "off":
        return scenario
    return dataclasses.replace(scenario, lease_ms=QUICK_LEASE_MS)


def names():
    return [s.name for s in scenarios.SCENARIOS] + list(latency.MEASURES)


def attempt(build, scenario, rows):
    """What failed is a row, and takes no other scenario with it."""
    try:
        return rows()
    except BenchError as error:
        workload.wait_no_sessions(build)
        return [{**shares.row(scenario, "did not run", None, None), "pass": False, "error": str(error)}]


def run(build, options, say):
    """All rows. `say` is told of each scenario before it runs."""
    wanted, rows = options.scenarios or names(), []
    seconds = options.seconds or (4 if options.quick else 60)
    form = quick_form if options.quick else (lambda s: s)
    for scenario in scenarios.SCENARIOS:
        if scenario.name in wanted:
            say(scenario.name)
            scenario = form(scenario)
            rows += attempt(build, scenario, lambda: shares.judge(
                scenario, shares.measure(build, scenario, seconds), os.getloadavg()[0]))
    for name, figures in latency.MEASURES.items():
        if name in wanted:
            say(name)
            rows += attempt(build, latency.scenario(name, "", "fair", ()), lambda: figures(build, seconds, form))
    workload.set_mode(build, "off", scenarios.LEASE_MS, scenarios.GRANULARITY)
    return {"seconds": seconds, "rows": rows}


def number(value, unit):
    if value is None:
        return "-"
    return f"{value:.2g}" if unit == "index" else f"{value:.2f} {unit}"


def verdict(r):
    return "" if r["pass"] is None else "met" if r["pass"] else "MISSED"


def got(r):
    """What each client got, where that was measured."""
    if "error" in r:
        return r["error"].splitlines()[-1][:90]
    return ", ".join(f"{100 * c['share']:.1f}%" for c in r.get("clients", []))


def cells(r):
    goal = "" if r["goal"] is None else "<= " + number(r["goal"], r["unit"])
    return [r["scenario"], r["title"], r["mode"], f"{r['lease_ms']} ms", r["what"], goal, number(r["measured"], r["unit"]),
            verdict(r), got(r)]


HEAD = ["scenario", "", "mode", "lease", "figure", "goal", "measured", "", "shares"]


def text(document):
    rows = document["rows"]
    judged = [r for r in rows if r["pass"] is not None]
    summary = f"{sum(r['pass'] for r in judged)} of {len(judged)} goals met"
    lines = [TITLE, f"{report.conditions(document)}, {document['seconds']:g} s each", "",
             *report.align([HEAD] + [cells(r) for r in rows]), "", summary]
    return "\n".join(lines) + "\n"


def markdown(document):
    head = f"{report.conditions(document)}, {document['seconds']:g} s each\n\n"
    return head + report.markdown_table(HEAD, [cells(r) for r in document["rows"]])


def svg(document):
    """How far each figure is from its goal: one bar a judged row."""
    bars = [(f"{r['scenario']}: {r['what']}", r["measured"] / r["goal"], number(r["measured"], r["unit"]))
            for r in document["rows"] if r["goal"] and r["measured"] is not None]
    return plot.bars("Shares: measured, as a part of the goal", bars)
