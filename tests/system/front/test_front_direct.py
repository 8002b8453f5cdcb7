"""The entries of functions that carve does not hook: from the first call on they jump to the driver's directly, and
where the process may not have such pages they go through the slots as before. In a slice, over the simulated driver."""
import json
import subprocess

import pytest

from conftest import BUILD
from functions import FUNCTIONS, HOOKS
from programs import python


def forwarded():
    """{name: offset in the front's library}"""
    symbols = subprocess.run(["nm", "-D", BUILD / "src/front/libcuda.so.1"], check=True, capture_output=True, text=True)
    offsets = {line.split()[2]: int(line.split()[0], 16) for line in symbols.stdout.splitlines() if " T " in line}
    return {name: offsets[name] for name in set(FUNCTIONS) - set(HOOKS)}


def in_slice(host, name):
    done = host.carve("run", "--ephemeral", "--gpu-memory", "4Gi", "--isolation", "preload", "--", *python(name),
                      env={"ENTRIES": json.dumps(forwarded())})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_entries_jump_to_the_driver_after_the_first_call(host):
    before, first, after, mapping, writable, again = in_slice(host, "entries_bound")
    assert before == {"slot": len(forwarded())}
    assert first == again == [0, True]
    # The driver lacks some: their slots lead to the front's own answer.
    assert set(after) <= {"direct", "elsewhere"} and after["direct"] > 300
    assert mapping == "r-xp"
    assert writable == []


def test_slots_stay_where_no_page_may_become_executable(host):
    seen = in_slice(host, "entries_denied")
    if seen == "unknown":
        pytest.skip("this kernel has no PR_SET_MDWE (before Linux 6.3)")
    assert seen == [[0, True], {"slot": len(forwarded())}, "r-xp"]


def test_a_breakpoint_on_an_entry_can_be_taken_away_again(host):
    assert in_slice(host, "entries_breakpoint") == [[0, True], "direct", "cc", "slot", 3]  # CUDA_ERROR_NOT_INITIALIZED


@pytest.mark.long
def test_threads_that_come_for_the_first_time_at_once(host):
    assert in_slice(host, "entries_race") == 20
