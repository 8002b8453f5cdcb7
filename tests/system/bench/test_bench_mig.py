"""bench/mig.py: a few small cases, the arithmetic of its tables, and its picture."""
import json
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT))
from bench import mig  # noqa: E402: found by the line above

pytestmark = pytest.mark.once("a simulation")


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    path = tmp_path_factory.mktemp("mig") / "results.json"
    done = subprocess.run([sys.executable, "-m", "bench.mig", "--quick", "--build", str(BUILD), "--results", str(path)],
                          cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(path.read_text()), done.stdout


def test_the_policy_is_no_worse_than_any_rival(quick):
    results, output = quick
    for policy in (mig.PLACEMENT, mig.OURS):
        assert mig.below(results, mig.QUICK, policy) == []
        assert f"{policy}: 0 of 28 comparisons are below a rival beyond noise" in output
    for case in mig.QUICK:
        if case[4] == "lossy":
            gap, part = mig.closed(results[mig.key_of(case)], mig.OURS)
            assert gap > 1 and part > mig.GOALS[8]


def test_gains_are_means_with_their_intervals():
    values = {"first-fit": [0.5, 0.5], "carve": [0.51, 0.52], "repacking": [0.55, 0.55]}
    mean, half = mig.gain(values, "lossy", "carve", "first-fit")
    assert mean == pytest.approx(3) and half == pytest.approx(mig.T_95 * 1.0, rel=0.01)
    gap, part = mig.closed(values, "carve")
    assert (gap, part) == (pytest.approx(10), pytest.approx(30))
    waits = {"first-fit": [2.0, 2.0], "carve": [1.0, 1.0]}
    assert mig.gain(waits, "waiting", "carve", "first-fit")[0] == pytest.approx(50)


def test_results_below_a_rival_are_found():
    case = (8, "uniform", 1.0, "exponential", "lossy")
    values = {p: [0.7, 0.71, 0.7, 0.71, 0.7] for p in (*mig.RIVALS, mig.OURS, mig.PLACEMENT, mig.BOUND)}
    values["FGD"] = [v + 0.02 for v in values["FGD"]]
    found = mig.below({mig.key_of(case): values}, [case], mig.OURS)
    assert [(rival, round(mean)) for _, rival, mean, _ in found] == [("FGD", -3)]


def test_the_picture_has_a_bar_for_each_policy():
    policies = (*mig.RIVALS, mig.OURS, mig.PLACEMENT, mig.BOUND)
    results = {mig.key_of((gpus, mix, 1.0, "exponential", "lossy")): {p: [0.7, 0.72] for p in policies}
               for gpus in (8, 100) for mix in mig.MIXES}
    root = xml.etree.ElementTree.fromstring("\n".join(mig.svg(results)))
    bars = [r for r in root.iter("{http://www.w3.org/2000/svg}rect") if r.find("{http://www.w3.org/2000/svg}title") is not None]
    assert len(bars) == 2 * len(mig.MIXES) * len(mig.COLOURS)
