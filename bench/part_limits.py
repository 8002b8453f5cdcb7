"""scripts/bench limits: whether slices hold, under carve, under peers, and what it looks like where nothing does."""
from bench import limits, plot, real, report

TITLES = {False: "Limits on the simulated host, by the driver's own books", True: "Limits on this GPU, as NVML tells used memory"}


def run(build, options, say):
    found = limits.limiters(options.peers, options.real, options.by_name)
    return {"gpu": real.driver()["name"] if options.real else None, "configurations": [{"name": one.name} for one in found],
            "rows": [{"configuration": one.name, **row} for one in found
                     for row in limits.measure(build, one, options, say)]}


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
        bars.append((name, sum(own) / len(own), f"{sum(own)} of {len(own)}"))
    return plot.parts_of_one("Checks that hold", bars)
