"""scripts/bench shares: every scenario, judged, as a table, JSON and a picture."""
import dataclasses
import os
import subprocess

from bench import latency, plot, real, report, scenarios, sharers, shares, stored, workload
from bench.host import BenchError

TITLES = {False: "Shares of a GPU's time on the simulated host, by the driver's own figures",
          True: "Shares of this GPU's time, by the times that kernels store themselves"}
QUICK_LEASE_MS = 50
# The driver's own turns are so short that this is enough to see what they come to.
DRIVER_SECONDS = 10


def names():
    return [s.name for s in scenarios.SCENARIOS] + list(latency.MEASURES)


def form_of(options, loops):
    """How this run changes every scenario. `loops`: stored.loops_per_us()."""
    more = [*(("--blocks", options.blocks) if options.blocks else ()), *(("--work", loops) if loops else ())]

    def form(scenario):
        if options.quick and not scenario.fixed_lease and scenario.mode != "off":
            scenario = dataclasses.replace(scenario, lease_ms=QUICK_LEASE_MS)
        clients = tuple(dataclasses.replace(c, args=(*c.args, *more)) for c in scenario.clients)
        return dataclasses.replace(scenario, clients=clients, on_gpu=options.real)
    return form


def ways(build, form, driver):
    """{scenario: what measures one sharer for so many seconds}. A scenario's `off` is the driver's default, anyway."""
    found = {}
    for scenario in map(form, scenarios.SCENARIOS):
        found[scenario.name] = lambda seconds, by, s=scenario: shares.judge(
            s, shares.measure(build, s, seconds, by), os.getloadavg()[0], isinstance(by, sharers.Carve),
            shares.measure_alone(build, s, seconds, by))
    bare = latency.Bare(driver)
    for name, figures in latency.MEASURES.items():
        found[name] = lambda seconds, by, figures=figures: figures(build, seconds, form, by, bare)
    return found


def attempt(build, name, by, rows):
    """What failed is a row, and takes nothing else with it."""
    try:
        return rows()
    except (BenchError, subprocess.TimeoutExpired) as error:
        by.settle(build)
        scenario = next((s for s in scenarios.SCENARIOS if s.name == name), latency.scenario(name, "", "fair", ()))
        return [{**shares.row(scenario, "did not run", None, None), "pass": False, "error": str(error)}]


NO_ROW = {"scenario": None, "what": None}
# The columns of another sharer's row that stand beside carve's.
BESIDE = ("measured", "clients", "error", "count", "idle", "alone", "used", "response", "lagged")


def beside(row, found):
    """Of another sharer's rows the one for the same figure."""
    same = next((f for f in found if (f["scenario"], f["what"]) == (row["scenario"], row["what"])), None)
    if not same:
        return {"measured": None, **{"error": f["error"] for f in found if "error" in f}}
    return {key: same[key] for key in BESIDE if key in same}


def run(build, options, say, keep):
    """All rows. `say` is told of each scenario before it runs; `keep` is given the rows as they are after each."""
    wanted = [n for n in names() if n in (options.scenarios or names())]
    seconds = options.seconds or (4 if options.quick else 60)
    carve, driver, given = sharers.all_of(options.peers, options.by_name, real.listed(build)["index"] if options.real else None)
    others = [driver, *given]
    broken = {by.name: sharers.why_not(by, os.environ) for by in others}
    measures = ways(build, form_of(options, stored.loops_per_us(build) if options.real else 0), driver)
    document = {"gpu": real.driver()["name"] if options.real else None, "seconds": seconds, "blocks": options.blocks or 1,
                "configurations": [{"name": by.name} for by in (carve, *others)], "rows": []}
    for i, name in enumerate(wanted):
        say(f"{name}, carve ({i + 1} of {len(wanted)})")
        own = attempt(build, name, carve, lambda: measures[name](seconds, carve))
        for by in others:
            say(f"{name}, {by.name} ({i + 1} of {len(wanted)})")
            for_s = min(seconds, DRIVER_SECONDS) if by is driver else seconds
            found = [{**NO_ROW, "error": broken[by.name]}] if broken[by.name] else attempt(
                build, name, by, lambda: measures[name](for_s, by))
            for row in own:
                row.setdefault("beside", {})[by.name] = beside(row, found)
        document["rows"] += own
        keep(document)
    workload.set_mode(build, "off", scenarios.LEASE_MS, scenarios.GRANULARITY)
    return document


def number(value, unit):
    if value is None:
        return "-"
    return f"{value:.2g}" if unit == "index" else f"{value:.2f} {unit}"


def verdict(r):
    if r["pass"] is None:
        return "" if r["proven"] or r["goal"] is None else "unproven here"
    return "met" if r["pass"] else "MISSED"


def got(r):
    """What each client got, where that was measured, or what the figure comes from."""
    if "error" in r:
        return last_words(r["error"])
    if "response" in r:
        return f"{r['response']:.2f} ms, alone {r['alone']:.2f} ms"
    if "used" in r:
        return f"{100 * r['used']['fair']:.1f}% used, {100 * r['used']['off']:.1f}% without carve"
    return shares_text(r)


def last_words(error):
    return report.last_line(error, "?")[:90]


def shares_text(r):
    """Of more than four the least and the most; beside what each has alone where that was measured."""
    parts = [f"{100 * c['share']:.1f}%" for c in r.get("clients", [])]
    alone = [f"{100 * c['alone']:.1f}%" for c in r.get("clients", []) if "alone" in c]
    if alone:
        return f"{', '.join(parts)}; alone {', '.join(alone)}"
    if len(parts) <= 4:
        return ", ".join(parts)
    return f"{len(parts)} of " + " .. ".join(f"{100 * edge(c['share'] for c in r['clients']):.1f}%" for edge in (min, max))


def beside_text(r, name):
    """Another's figure, and what its clients got."""
    other = r.get("beside", {}).get(name)
    if not other:
        return ""
    if other["measured"] is None:
        return f"did not run: {last_words(other['error'])}" if "error" in other else "-"
    parts = shares_text(other) or (f"{other['response']:.2f} ms" if "response" in other else "")
    return number(other["measured"], r["unit"]) + (f" ({parts})" if parts else "")


def other_names(document):
    return [c["name"] for c in document["configurations"][1:]]


def cells(r, others):
    goal = "" if r["goal"] is None else "<= " + number(r["goal"], r["unit"])
    return [r["scenario"], r["title"], r["mode"], f"{r['lease_ms']} ms", r["what"], goal, number(r["measured"], r["unit"]),
            verdict(r), f"{100 * r['lagged']:.1f}%", got(r), *(beside_text(r, name) for name in others)]


HEAD = ["scenario", "", "mode", "lease", "figure", "goal", "carve", "", "lag", "what each got"]


def table(document):
    others = other_names(document)
    return [*HEAD, *others], [cells(r, others) for r in document["rows"]]


SHORT_HEAD = ["", "goal", "carve", "", "lag", "what each got"]


def short_rows(document):
    """The table's, for a terminal: one line for what a scenario is, and one each for its figures."""
    lines, others, last = [], other_names(document), None
    for r in document["rows"]:
        _, _, _, _, what, goal, measured, *rest = cells(r, others)
        if r["scenario"] != last:
            # A line of its own, which no column is as wide as.
            about = f"{r['scenario']}: {r['title']}" if r["title"] else r["scenario"]
            lines.append(f"{about} ({r['mode']}" + (f", leases of {r['lease_ms']} ms)" if r["mode"] != "off" else ")"))
            last = r["scenario"]
        lines.append(["  " + what, goal, measured, *rest])
    return lines


def short_table(document):
    lines = short_rows(document)
    aligned = iter(report.align([[*SHORT_HEAD, *other_names(document)], *(line for line in lines if isinstance(line, list))]))
    return [next(aligned), *(line if isinstance(line, str) else next(aligned) for line in lines)]


def text(document):
    judged = [r for r in document["rows"] if r["pass"] is not None and r["what"] != shares.BOOKS]
    unproven = sum(verdict(r) == "unproven here" for r in document["rows"])
    summary = f"{sum(r['pass'] for r in judged)} of {len(judged)} goals met" + (
        f", {unproven} more unproven here" if unproven else "")
    lines = [TITLES[bool(document["gpu"])], f"{report.conditions(document)}, {document['seconds']:g} s each", "",
             *short_table(document), "", summary]
    return "\n".join(lines) + "\n"


def markdown(document):
    return (f"{report.conditions(document)}, {document['seconds']:g} s each\n\n"
            f"{report.markdown_table(*table(document))}")


def svg(document):
    """How far each figure is from its goal, and where others are beside: one bar a judged row. That the figures are right
    is no figure of carve's."""
    bars = [plot.Bar(f"{r['scenario']}: {r['what']}", r["measured"] / r["goal"], number(r["measured"], r["unit"]), r["proven"],
                     {name: other["measured"] / r["goal"] for name, other in r.get("beside", {}).items()
                      if other["measured"] is not None})
            for r in document["rows"] if r["goal"] and r["measured"] is not None and r["what"] != shares.BOOKS]
    return plot.bars("Shares: measured, as a part of the goal" + report.unfinished(document), bars)
