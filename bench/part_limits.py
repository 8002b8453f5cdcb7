"""scripts/bench limits: whether slices hold, under carve, under peers, and what it looks like where nothing does."""
import os

from bench import host, limits, plot, real, report

TITLES = {False: "Limits on the simulated host, by the driver's own figures", True: "Limits on this GPU, as NVML tells used memory"}


def run(build, options, say, keep):
    limiters = limits.limiters(options.peers, real.slice_options(build) if options.real else (), options.by_name)
    found = {"gpu": real.driver()["name"] if options.real else None, "configurations": [{"name": one.name} for one in limiters],
             "rows": []}
    if options.real:  # what a driver keeps for itself from the first context on is nobody's
        host.checked([build / "bench/idle", 1], os.environ)
    for one in limiters:
        for row in limits.measure(build, one, options, say):
            found["rows"].append({"configuration": one.name, **row})
            keep(found)
    return found


def table(document):
    """One line a check, one column a configuration."""
    names = [c["name"] for c in document["configurations"]]
    lines = {}
    for r in document["rows"]:
        words = r["measured"].replace("\n", " ")
        cell = words if words.startswith(limits.NOT_RUN) else ("holds: " if r["pass"] else "FAILS: ") + words
        lines.setdefault((r["check"], r["family"]), {})[r["configuration"]] = cell
    return ["check", "", *names], [[*check, *(by.get(n, "not tried") for n in names)] for check, by in lines.items()]


def text(document):
    head, rows = table(document)
    lines = [TITLES[bool(document["gpu"])], report.conditions(document), "", *report.align([head, *rows])]
    for name in (c["name"] for c in document["configurations"]):
        own = [r["pass"] for r in document["rows"] if r["configuration"] == name]
        lines.append(f"{name}: {sum(own)} of {len(own)} hold")
    return "\n".join(lines) + "\n"


def markdown(document):
    head, rows = table(document)
    return f"{report.conditions(document)}\n\n{report.markdown_table(head, rows)}"


def svg(document):
    """Checks that hold, one bar a configuration."""
    bars = []
    for name in (c["name"] for c in document["configurations"]):
        own = [r["pass"] for r in document["rows"] if r["configuration"] == name]
        bars.append((name, sum(own) / max(len(own), 1), f"{sum(own)} of {len(own)}"))
    return plot.parts_of_one("Checks that hold" + report.unfinished(document), bars)
