"""bench/waits.py: two loads of one simulated day, the arithmetic of its lines, and its picture."""
import subprocess
import sys
import xml.etree.ElementTree

import pytest

from conftest import BUILD, ROOT

sys.path.insert(0, str(ROOT))
from bench import waits  # noqa: E402: found by the line above

pytestmark = pytest.mark.once("a simulation")
SVG = "{http://www.w3.org/2000/svg}"


def test_jobs_wait_less_than_under_other_rules(tmp_path):
    picture = tmp_path / "waits.svg"
    done = subprocess.run([sys.executable, "-m", "bench.waits", "--quick", "--build", str(BUILD), "--svg", str(picture)],
                          cwd=ROOT, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    assert "| queues, 85% | mean |" in done.stdout and "| memory, 85% | longest |" in done.stdout
    results = waits.simulate_all(BUILD, (0.85,), 1, 2)
    for (mix, _), policies in results.items():
        assert policies["carve, with limits"][0] < policies["carve"][0] < policies["first come"][0], mix
        assert ("ClearML" in policies) == (mix == "queues")
    assert results["queues", 0.85]["carve"][0] < results["queues", 0.85]["ClearML"][0]
    lines = xml.etree.ElementTree.parse(picture).getroot().findall(f"{SVG}polyline")
    assert len(lines) == 4 + 3


def test_goals_are_told_at_their_load_only():
    results = {("memory", load): {"first come": (10.0, 20.0, 30.0), "carve": (2.0, 3.0, 4.0), "carve, with limits": (4.0, 5.0, 6.0)}
               for load in (0.7, 0.85)}
    assert list(waits.goals(results)) == [
        "memory, 85%: mean wait of carve 5.0 times shorter than of first come (goal 5): met",
        "memory, 85%: mean wait of carve, with limits 2.5 times shorter than of first come (goal 5): missed"]
