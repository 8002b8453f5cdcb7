"""bench/scrape.py: what a scrape of /metrics costs the daemon."""
import json
import sys

import pytest

from build_options import sanitized
from conftest import BUILD, ON_GPU, ROOT, clean_env, run

pytestmark = [pytest.mark.skipif(ON_GPU, reason="starts a simulated host of its own"),
              pytest.mark.skipif(sanitized(), reason="the daemon is slower with sanitizers")]


def test_a_scrape_of_8_gpus_and_200_sessions_costs_less_than_5_ms():
    """CPU time of the whole daemon, which other programs on the machine change little."""
    done = run([sys.executable, ROOT / "bench/scrape.py", "--scrapes", "30"], env=clean_env({"CARVE_BUILD": str(BUILD)}))
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["gpus"], found["slices"]) == (8, 200)
    assert 0 < found["cpu_ms"] < 5, found
