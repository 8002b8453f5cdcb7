"""scripts/bench scale: growth curves, their exponents, and a picture of them."""
from bench import plot, report, scale

TITLE = "Growth: the time of one operation by the size of what it works among"
HEAD = ["", "sizes", "times", "grows as n^", "at most", "", "one takes"]


def run(build, options, say, keep):
    return {"rows": scale.measure(build, options.quick, say, lambda rows: keep({"rows": rows}))}


def goal_text(goal):
    if not goal:
        return ""
    return f"<= {report.time_text(goal['at_most'])} at {goal['size']:,}: {'met' if goal['met'] else 'MISSED'}"


def cells(r):
    return [r["title"], f"{r['points'][0][0]:,} .. {r['points'][-1][0]:,}",
            " ".join(report.time_text(ns) + "," for _, ns in r["points"])[:-1], f"{r['exponent']:.2f}",
            f"{r['at_most']:.2f}", "met" if r["pass"] else "MISSED", goal_text(r.get("goal"))]


def text(document):
    lines = [TITLE, report.conditions(document), "", *report.align([HEAD] + [cells(r) for r in document["rows"]])]
    return "\n".join(lines) + "\n"


def markdown(document):
    table = report.markdown_table(HEAD, [cells(r) for r in document["rows"]])
    return f"{report.conditions(document)}\n\n{table}"


def svg(document):
    names = {r["curve"]: f"{r['curve']}: n^{r['exponent']:.2f}" for r in document["rows"]}
    return plot.growth(TITLE + report.unfinished(document), {names[r["curve"]]: r["points"] for r in document["rows"]},
                       [names[r["curve"]] for r in document["rows"] if not r["pass"]])
