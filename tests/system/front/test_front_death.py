"""A process that is killed at any instruction of the front leaves the slice whole, and its neighbours unmoved."""
import os

import pytest

from front_host import in_slice

pytestmark = pytest.mark.once("the front beside a stand-in for the daemon: neither is instrumented")

# Every how many instructions a process is killed; CARVE_TEST_STRIDE=1 kills it at each of them (minutes).
STRIDES = {"allocate": 97, "map": 701, "fork": 53, "attach": 2003}


@pytest.mark.parametrize("scenario", [s if s == "allocate" else pytest.param(s, marks=pytest.mark.long) for s in STRIDES])
def test_killed_at_any_instruction(scenario):
    stride = int(os.environ.get("CARVE_TEST_STRIDE", STRIDES[scenario]))
    status, lines, books = in_slice(scenario, program="front_tracer", more=[str(stride)])
    assert (status, lines) == (0, [])
    assert books["committed"] == 0
    assert 0 < books["peak"] <= 1 << 30
    assert books["attached"] > 5
