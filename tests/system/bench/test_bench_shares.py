"""scripts/bench shares: that it measures and says what it measured. How good the figures are, it says itself."""
import json
import pathlib
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import bad_peers
import results_schema
from conftest import ON_GPU, ROOT
from benchmark import bench, refused
from build_options import sanitized

sys.path.insert(0, str(ROOT))
from bench import latency, part_shares, plot, scenarios, sharers, shares, workload  # noqa: E402: found by the line above

# Notes its FOLDER in the file NOTE.
NOTER = """
#include <stdio.h>
#include <stdlib.h>
__attribute__((constructor)) static void begin(void)
{
	const char *note = getenv("NOTE"), *folder = getenv("FOLDER");
	FILE *file = note ? fopen(note, "w") : NULL;

	if (file) {
		fputs(folder, file);
		fclose(file);
	}
}
"""

pytestmark = pytest.mark.once("a benchmark")

needs_sim = pytest.mark.skipif(ON_GPU or sanitized(), reason="reads the simulated host's own figures")


@needs_sim
@pytest.mark.timed
def test_shares_are_measured_judged_and_shown(tmp_path):
    done = bench("shares", "--quick", "--seconds", "2", "--scenario", "25-75", "--scenario", "switch",
                 "--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg", "--markdown", tmp_path / "out.md")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], document["part"], document["seconds"]) == ("carve-bench/1", "shares", 2)
    rows = {(r["scenario"], r["what"]): r for r in document["rows"]}
    assert set(rows) == {("25-75", "share error"), ("25-75", "worst plan"), ("25-75", "figures against stored times"),
                         ("switch", "switch p50"), ("switch", "switch p99")}
    for r in document["rows"]:
        # A bound that a machine played too slowly is neither met nor missed.
        assert r["proven"] == (r["lagged"] <= (0.1 if r["scenario"] == "25-75" else 0.01))
        assert r["pass"] == ((r["measured"] <= r["goal"]) if r["proven"] else None) and r["title"] in done.stdout
    few, many = rows["25-75", "share error"]["clients"]
    assert 0 < few["busy_ns"] < many["busy_ns"] and abs(few["share"] + many["share"] - 1) < 1e-6
    # Two measures of one truth.
    assert abs(few["stored_ns"] / few["busy_ns"] - 1) < 0.1
    assert rows["switch", "switch p50"]["count"] > 0
    xml.etree.ElementTree.parse(tmp_path / "out.svg")
    assert "| 25-75 |" in (tmp_path / "out.md").read_text()


def run_of(busy, passed=1000, turns=(), pids=()):
    return shares.Run([], 0, passed, busy, [(passed, busy)], [], None, list(turns), list(pids))


def test_errors_are_points_of_the_time():
    clients = scenarios.fractions(0.25, 0.75)
    assert shares.errors([0.3, 0.7], clients, False) == pytest.approx([5, 5])
    assert shares.errors([0.3, 0.7], clients, True) == pytest.approx([0, 5])
    run = run_of([200, 600])
    assert run.parts("used") == [0.25, 0.75] and run.parts("time") == [0.2, 0.6]
    assert shares.jain([1, 1, 1]) == 1 and shares.jain([1, 0]) == 0.5
    assert shares.covered([(90, 110), (0, 10), (300, 400)], 5, 100) == (15, 2)
    assert shares.covered([(0, 10), (5, 20), (6, 8)], 0, 100) == (20, 3)


@pytest.mark.parametrize("alone, missing", [(0.365, 0.5), (0.5, 4)])
def test_a_client_that_cannot_use_its_share_is_judged_by_what_it_gets_alone(alone, missing):
    scenario = next(s for s in scenarios.SCENARIOS if s.name == "mixed-40-40-20")
    runs = [run_of([1000 * part]) for part in (alone, 0.4, 0.2)]
    run = run_of([360, 410, 200])
    row, = shares.judge(scenario, run, 0, alone=runs)
    assert row["measured"] == pytest.approx(missing) and row["pass"] == (missing < 1)
    assert [c["alone"] for c in row["clients"]] == [alone, 0.4, 0.2]
    assert part_shares.shares_text(row) == f"36.0%, 41.0%, 20.0%; alone {100 * alone:.1f}%, 40.0%, 20.0%"


@needs_sim
@pytest.mark.timed
def test_clients_are_measured_alone_where_a_scenario_asks_for_it(tmp_path):
    done = bench("shares", "--quick", "--seconds", "2", "--scenario", "mixed-40-40-20", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    row, = document["rows"]
    assert len(row["clients"]) == 3 and all(c["alone"] > 0 and c["wanted"] <= c["alone"] for c in row["clients"])
    assert done.stdout.count("%; alone ") >= 1


def test_figures_that_differ_from_stored_times_show():
    def error(busy, ns, count):
        run = run_of([busy], passed=1_000_000)
        run.stored = [(ns, count)]
        return shares.book_error(run)

    assert error(500_000, 500_000, 1) == 0 and error(501_500, 500_000, 1) == 0
    assert error(490_000, 500_000, 1) == pytest.approx(1) and error(512_000, 500_000, 1) == pytest.approx(1)


def test_shares_under_a_lagging_clock_are_not_judged():
    scenario = scenarios.SCENARIOS[0]
    slow, fast = (shares.row(scenario, "x", measured, 1, lagged=lagged) for measured, lagged in ((0, 0.02), (2, 0.005)))
    assert (slow["pass"], slow["proven"], fast["pass"], fast["proven"]) == (None, False, False, True)
    assert shares.row(scenario, "x", 0, 1, lagged=0.02, lag_max=shares.SHARES_LAG_MAX)["pass"]


def test_the_sum_counts_what_is_unproven():
    scenario = scenarios.SCENARIOS[0]
    document = {"gpu": None, "seconds": 2, "blocks": 1, "configurations": [{"name": "carve"}], "date": "d", "quick": True,
                "machine": {"cpu": "c", "cores": 2}, "load": [0, 0], "revision": "r", "rows": [
                    shares.row(scenario, "x", measured, goal, lagged=lagged)
                    for measured, goal, lagged in ((0, 1, 0), (2, 1, 0), (0, 1, 0.02), (2, None, 0.02))]}
    assert part_shares.text(document).endswith("\n1 of 2 goals met, 1 more unproven here\n")
    del document["rows"][2]
    assert part_shares.text(document).endswith("\n1 of 2 goals met\n")


def test_gaps_are_between_different_sessions():
    turns = [(0, 10, 1), (12, 20, 1), (25, 30, 2), (31, 33, 7), (40, 50, 3)]
    run = run_of([], turns=turns, pids=[[1, 3], [2]])
    assert latency.gaps(run) == [5, 10] and latency.gaps(run, ends_of=0) == [5]


def test_bars_beyond_the_goal_are_cut():
    bars = [plot.Bar("far", 100, "100 ms", beside={"driver": 3}), plot.Bar("near", 0.5, "1 ms"), plot.Bar("?", 0.5, "x", False)]
    picture = plot.bars("x", bars)
    tree = xml.etree.ElementTree.fromstring(picture)
    assert "100 ms &gt;" in picture and "unproven here" in picture and "driver" in picture
    _, far, near, unproven = tree.findall("{http://www.w3.org/2000/svg}rect")
    assert far.get("width") > near.get("width") == unproven.get("width")
    assert len({r.get("fill") for r in (far, near, unproven)}) == 3
    assert "unproven here" not in plot.bars("x", bars[:2])


def test_labels_do_not_lie_over_each_other():
    assert plot.apart({"a": 100, "b": 10, "c": 104}) == {"a": 100, "b": 10, "c": 100 + plot.LABEL_PX}


@pytest.mark.parametrize("args", [["shares", "--scenario", "nothing"], ["shares", "--seconds", "0"],
                                  ["calls", "--seconds", "5"]])
def test_wrong_usage_is_refused(capsys, args):
    assert "scripts/bench: error:" in refused(capsys, *args)[-1]


@needs_sim
@pytest.mark.timed
def test_others_stand_beside(tmp_path):
    """The driver's default keeps no share; a peer is told its percentage and its folder; one that is broken says so."""
    peer = bad_peers.compiled(tmp_path, "noter", NOTER)
    broken = bad_peers.dies_when_loaded(tmp_path)
    done = bench("shares", "--quick", "--seconds", "2", "--scenario", "25-75", "--scenario", "switch",
                 "--json", tmp_path / "out.json", "--peer", f"noter={peer.library}", "--peer-env", f"NOTE={tmp_path}/note-{{percent}}-{{mib}}",
                 "--peer-env", "FOLDER={scratch}", "--peer", f"broken={broken.library}")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert [c["name"] for c in document["configurations"]] == ["carve", "driver", "noter", "broken"]
    row = next(r for r in document["rows"] if r["what"] == "share error")
    beside = row["beside"]
    for name in ("driver", "noter"):
        # Half each is 25 points from 25% and 75%; less where one of the two got no processor meanwhile.
        assert beside[name]["measured"] > 2
        assert sum(c["share"] for c in beside[name]["clients"]) == pytest.approx(1)
    assert "SIGILL" in beside["broken"]["error"] or "signal 4" in beside["broken"]["error"]
    assert "did not run: a process with it ends with signal 4" in done.stdout
    notes = sorted(p.name.split("-")[1] for p in tmp_path.glob("note-*"))
    assert {"25", "75"} <= set(notes)
    folders = {p.read_text() for p in tmp_path.glob("note-*") if "-25-" in p.name or "-75-" in p.name}
    assert len(folders) == 2 and not any(pathlib.Path(f).exists() for f in folders)
    assert next(r for r in document["rows"] if r["what"] == "switch p50")["beside"]["driver"]["measured"] is not None


def test_a_peers_amounts_are_those_of_the_size(monkeypatch):
    monkeypatch.setattr(workload, "carve", lambda *args: json.dumps([{"memory_bytes": 100 << 30}]))
    assert sharers.amounts(None, ("--gpu", 0.25)) == (25 * 1024, 25)
    assert sharers.amounts(None, ("--vram", 2)) == (2048, 100)
    assert sharers.amounts(None, ("--vram", 10, "--gpu-compute", 0.75)) == (10240, 75)


def test_nothing_used_is_a_row_that_says_so(monkeypatch):
    """As is a command that hangs: neither takes the other scenarios with it."""
    def hangs():
        raise subprocess.TimeoutExpired("carve", 1)

    monkeypatch.setattr(shares, "measure", lambda *args, **more: run_of([0, 0]))
    bare = latency.Bare(sharers.Driver())
    for rows in (lambda: latency.losses(None, 1, lambda s: s, bare.driver, bare), hangs):
        row, = part_shares.attempt(None, "loss", bare.driver, rows)
        assert row["what"] == "did not run" and row["error"] and not row["pass"]
