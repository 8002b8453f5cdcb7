"""scripts/bench scale: that each curve is measured, and that the exponent is the curve's."""
import json
import math
import sys
import xml.etree.ElementTree

import pytest

import results_schema
from conftest import ON_GPU, ROOT
from benchmark import bench
from build_options import sanitized

sys.path.insert(0, str(ROOT))
from bench import part_scale, scale  # noqa: E402: found by the line above

pytestmark = pytest.mark.once("a benchmark")


@pytest.mark.skipif(ON_GPU or sanitized(), reason="the figures of an instrumented build say nothing")
@pytest.mark.timed
@pytest.mark.alone
def test_every_curve_is_measured(tmp_path):
    done = bench("scale", "--quick", "--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg",
                 "--markdown", tmp_path / "out.md")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    rows = document["rows"]
    assert [r["curve"] for r in rows] == list(scale.TITLES)
    for r in rows:
        assert len(r["points"]) >= 3 and all(ns > 0 for _, ns in r["points"]) and r["title"] in done.stdout
        assert r["exponent"] < 2, r
        assert r["goal"] == ({"size": 1000, "at_most": 1e5, "met": dict(map(tuple, r["points"]))[1000] <= 1e5}
                             if r["curve"].startswith("place") else None)
    lines = xml.etree.ElementTree.parse(tmp_path / "out.svg").findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == len(rows) and "| a refusal, by GPUs |" in (tmp_path / "out.md").read_text()


@pytest.mark.parametrize("power", [0, 0.5, 1, 2])
def test_the_exponent_is_that_of_the_upper_half(power):
    points = [(n, 1000 + n ** power) for n in (10, 100)] + [(n, 3 * n ** power) for n in (1000, 10000, 100000)]
    assert scale.exponent(points) == pytest.approx(power)


def test_n_log_n_is_told_from_a_square():
    sizes = (10, 100, 1000, 10000)
    assert scale.exponent([(n, n * math.log(n)) for n in sizes]) < 1 + scale.MARGIN
    assert scale.exponent([(n, n ** 1.5) for n in sizes]) > 1 + scale.MARGIN


def test_a_curve_that_grows_too_fast_is_seen():
    """In the table, and dashed in the picture, beside guides of n and n log n."""
    sizes = (10, 100, 1000, 10000)
    rows = [{"curve": name, "title": name, "unit": "ns", "points": [[n, n ** power] for n in sizes], "exponent": power,
             "at_most": 1.25, "pass": power <= 1.25} for name, power in (("good", 1.0), ("bad", 2.0))]
    document = {"date": "now", "machine": {"cpu": "x", "cores": 2}, "load": [0, 0], "revision": "r", "quick": True,
                "rows": rows}
    assert [line.split()[-1] for line in part_scale.text(document).splitlines()[-2:]] == ["met", "MISSED"]
    picture = part_scale.svg(document)
    tree = xml.etree.ElementTree.fromstring(picture)
    good, bad = tree.findall("{http://www.w3.org/2000/svg}polyline")
    assert "stroke-dasharray" in bad.keys() and "stroke-dasharray" not in good.keys()
    assert "bad: n^2.00 MISSED" in picture and ">n log n<" in picture
