"""scripts/bench pytorch --gpu: training and inference inside a slice of the whole GPU against outside."""
import json
import pathlib
import shutil
import subprocess

from bench import host, plot, real, report, stats

TITLE = "PyTorch: samples a second, inside a slice of the whole GPU and outside"
LOAD = pathlib.Path(__file__).with_name("torch_load.py")
SKIPPED = 77
HEAD = ["", "outside", "inside", "inside / outside", "(95% confidence)"]


class Skipped(Exception):
    """There is nothing here that it could be measured with; the text says what is missing."""


def rates(argv, seconds, timeout):
    try:
        done = subprocess.run([str(a) for a in (*argv, LOAD, seconds)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, errors="replace", timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise host.BenchError(f"{' '.join(map(str, argv))} {LOAD.name}: it did not end in {timeout} s") from None
    last = report.last_line(done.stderr)
    if done.returncode == SKIPPED:
        raise Skipped(last)
    if done.returncode:
        raise host.BenchError(f"{' '.join(map(str, argv))} {LOAD.name}: status {done.returncode}: {last}")
    return json.loads(done.stdout.splitlines()[-1])


def result(rounds, about, found):
    """Of as many rounds as both have behind them."""
    return {"skipped": None, "rounds": rounds, "torch": about["torch"], "machine": {"gpu": about["gpu"]}, "rows": [
        {"title": what, "unit": "samples/s", "outside": stats.summary(outside), "inside": stats.summary(found["inside"][what]),
         "ratio": stats.compare(found["inside"][what], outside)["ratio"]} for what, outside in found["outside"].items()]}


def run(build, options, say, keep):
    """In each round both run once, and another one first. A missing part makes a document without rows."""
    python = shutil.which(options.python)
    rounds, seconds = (3, 2) if options.quick else (11, 10)
    inside = [build / "carve", "run", "--ephemeral", "--gpu", "1", *real.slice_options(build), "--", python]
    ways = {"outside": [python], "inside": inside}
    found, document = {name: {} for name in ways}, None
    try:
        if not python:
            raise Skipped(f"there is no {options.python} to run PyTorch with")
        for index in range(rounds):
            for name in sorted(ways, reverse=index % 2 == 0):
                say(f"{name} a slice, round {index + 1} of {rounds}")
                about = rates(ways[name], seconds, 600)
                for what, rate in about["samples_per_second"].items():
                    found[name].setdefault(what, []).append(rate)
            document = result(index + 1, about, found)
            keep(document)
    except Skipped as why:
        return {"skipped": str(why), "rounds": 0, "rows": []}
    return document


def cells(r):
    ratio = r["ratio"]
    return [r["title"], f"{r['outside']['median']:,.0f}", f"{r['inside']['median']:,.0f}", f"{ratio['median']:.4f}",
            f"{ratio['low']:.4f} .. {ratio['high']:.4f}"]


def conditions(document):
    return f"{report.conditions(document)}, torch {document['torch']}, {document['machine']['gpu']}, {document['rounds']} rounds"


def text(document):
    if document["skipped"]:
        return f"{TITLE}: not measured: {document['skipped']}\n"
    return "\n".join([TITLE, conditions(document), "", *report.align([HEAD] + [cells(r) for r in document["rows"]])]) + "\n"


def markdown(document):
    if document["skipped"]:
        return f"PyTorch: not measured: {document['skipped']}\n"
    return f"{conditions(document)}\n\n{report.markdown_table(HEAD, [cells(r) for r in document['rows']])}"


def svg(document):
    return plot.parts_of_one("PyTorch inside a slice, as a part of outside" + report.unfinished(document), [
        (r["title"], min(1.0, r["ratio"]["median"]), f"{r['ratio']['median']:.3f}") for r in document["rows"]])
