"""scripts/bench limits: its checks hold for carve, and fail where nothing limits."""
import sys

import pytest

from conftest import BUILD, ON_GPU, ROOT

sys.path.insert(0, str(ROOT))
from bench import limits, part_limits  # noqa: E402: found by the line above

pytestmark = pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own books")
NONE, CARVE = limits.limiters([])


@pytest.mark.parametrize("check", [
    lambda by: limits.family(BUILD, by, "linear"), lambda by: limits.race(BUILD, by, "async", 1),
    lambda by: limits.race_exact(BUILD, by, "async", 1), lambda by: limits.view(BUILD, by, 1),
    lambda by: limits.kills(BUILD, by, 20)])
def test_a_check_tells_who_holds(check):
    held, not_held = check(CARVE), check(NONE)
    assert held["pass"] and not not_held["pass"], (held, not_held)


def test_every_check_is_shown_for_everyone():
    rows = [{"configuration": by.name, **limits.result("family", name, by is CARVE, "so\nmuch")}
            for by in (NONE, CARVE) for name in limits.FAMILIES[:-1 if by is NONE else None]]
    document = {"date": "now", "machine": {"cpu": "x", "cores": 2}, "load": [0, 0], "revision": "r", "quick": True,
                "configurations": [{"name": "none"}, {"name": "carve"}], "rows": rows}
    shown = part_limits.text(document)
    assert shown.count("holds: so much") == 13 and shown.count("FAILS") == 12 and "not tried" in shown
    assert "carve: 13 of 13 hold" in shown and "none: 0 of 12" in shown
    assert "13 of 13" in part_limits.svg(document) and "| family | linear |" in part_limits.markdown(document)


def test_a_peer_is_told_its_limit():
    peer = limits.limiters([("x", "/lib.so", {"LIMIT": "{mib}m"})])[2]
    assert peer.command(BUILD, 2, ["true"]) == ["env", "LD_PRELOAD=/lib.so", "LIMIT=2048m", "true"]
