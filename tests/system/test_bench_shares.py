"""scripts/bench shares: that it measures and says what it measured. How good the figures are, it says itself."""
import json
import sys
import xml.etree.ElementTree

import pytest

from conftest import ON_GPU, ROOT
from test_bench_calls import bench, sanitized

sys.path.insert(0, str(ROOT))
from bench import latency, plot, scenarios, shares  # noqa: E402: found by the line above

needs_sim = pytest.mark.skipif(ON_GPU or sanitized(), reason="reads the simulated host's own books")


@needs_sim
def test_shares_are_measured_judged_and_shown(tmp_path):
    done = bench("shares", "--quick", "--seconds", "2", "--scenario", "25-75", "--scenario", "switch",
                 "--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg", "--markdown", tmp_path / "out.md")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    assert (document["schema"], document["part"], document["seconds"]) == ("carve-bench/1", "shares", 2)
    rows = {(r["scenario"], r["what"]): r for r in document["rows"]}
    assert set(rows) == {("25-75", "share error"), ("25-75", "worst plan"), ("25-75", "books against stored times"),
                         ("switch", "switch p50"), ("switch", "switch p99")}
    for r in document["rows"]:
        assert r["pass"] == (r["measured"] <= r["goal"]) and r["title"] in done.stdout
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
    assert shares.inside([(0, 10), (90, 110), (300, 400)], 5, 100) == 15


def test_gaps_are_between_different_sessions():
    turns = [(0, 10, 1), (12, 20, 1), (25, 30, 2), (31, 33, 7), (40, 50, 3)]
    run = run_of([], turns=turns, pids=[[1, 3], [2]])
    assert latency.gaps(run) == [5, 10] and latency.gaps(run, ends_of=0) == [5]


def test_bars_beyond_the_goal_are_cut():
    picture = plot.bars("x", [("far", 100, "100 ms"), ("near", 0.5, "1 ms")])
    assert "100 ms &gt;" in picture and xml.etree.ElementTree.fromstring(picture) is not None


@pytest.mark.parametrize("args", [["shares", "--scenario", "nothing"], ["shares", "--seconds", "0"],
                                  ["calls", "--seconds", "5"]])
def test_wrong_usage_is_refused(args):
    done = bench(*args)
    assert done.returncode == 2 and "scripts/bench: error:" in done.stderr
