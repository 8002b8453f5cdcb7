"""scripts/bench limits: its checks hold for carve, and fail where nothing limits."""
import json
import platform
import subprocess
import sys
import types

import pytest

import bad_peers
from conftest import BUILD, ON_GPU, ROOT, rest_long

sys.path.insert(0, str(ROOT))
from bench import limits, part_limits, peers  # noqa: E402: found by the line above

pytestmark = [pytest.mark.skipif(ON_GPU, reason="reads the simulated host's own figures"),
              pytest.mark.once("a benchmark; what it runs is also in test_limits and test_death")]
NONE, CARVE = limits.limiters([])


@pytest.mark.parametrize("check", rest_long([
    lambda by: limits.family(BUILD, by, "linear"), lambda by: limits.race(BUILD, by, "async", 1),
    lambda by: limits.race_exact(BUILD, by, "async", 1), lambda by: limits.view(BUILD, by, 2),
    lambda by: limits.kills(BUILD, by, 20)]))
def test_a_check_names_the_holders_of_memory(check):
    held, not_held = check(CARVE), check(NONE)
    assert held["pass"] and not not_held["pass"], (held, not_held)


def test_managed_memory_that_no_gpu_holds_counts():
    done = limits.Outcome(0, "", "", peak=500 << 20, left=0)
    assert limits.most_held("managed", done, 24) == (500 + 24 * 64) << 20
    assert limits.most_held("managed", done, 7) == limits.most_held("linear", done, 24) == 500 << 20


def test_every_check_is_shown_for_everyone():
    rows = [{"configuration": by.name, **limits.result("family", name, by is CARVE, "so\nmuch")}
            for by in (NONE, CARVE) for name in limits.FAMILIES[:-1 if by is NONE else None]]
    document = {"date": "now", "machine": {"cpu": "x", "cores": 2}, "load": [0, 0], "revision": "r", "quick": True,
                "gpu": None, "configurations": [{"name": "none"}, {"name": "carve"}], "rows": rows}
    shown = part_limits.text(document)
    assert shown.count("holds: so much") == 13 and shown.count("FAILS") == 12 and "not tried" in shown
    assert "carve: 13 of 13 hold" in shown and "none: 0 of 12" in shown
    assert "13 of 13" in part_limits.svg(document) and "| family | linear |" in part_limits.markdown(document)


def test_a_peer_is_told_its_limit():
    given = peers.Peer("x", "/lib.so", (("LIMIT", "{mib}m"), ("CACHE", "{scratch}/a")))
    peer = limits.limiters([given])[2]
    assert peer.command(BUILD, 2, ["true"], "/s") == ["env", "LD_PRELOAD=/lib.so", "LIMIT=2048m", "CACHE=/s/a", "true"]


def test_a_peer_that_takes_nothing_has_not_held(tmp_path):
    """Where every process dies at once, no limit was passed, and none was kept."""
    peer = limits.Limiter("dies", bad_peers.dies_in(tmp_path, "cuMemAlloc_v2"))
    row = limits.race(BUILD, peer, "linear", 1)
    assert not row["pass"] and row["rounds_over"] == 0 and "were taken" in row["measured"]


def test_a_peer_that_cannot_be_loaded_is_said_to_be_that(tmp_path):
    rows = list(limits.measure(BUILD, limits.Limiter("text", bad_peers.no_library(tmp_path)),
                               types.SimpleNamespace(quick=True, checks=[]), lambda text: None))
    assert len(rows) == 21 and {r["pass"] for r in rows} == {False}
    assert all("cannot be loaded" in r["measured"] for r in rows)


# It answers those who look for a function with the process's one of that name, and means its own.
OF_THAT_NAME = """
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>
int cuMemAlloc_v2(unsigned long long *ptr, unsigned long bytes) { return 2; }
void *dlsym(void *handle, const char *name)
{
	static void *(*next)(void *, const char *);

	if (strcmp(name, "cuMemAlloc_v2") == 0)
		return (void *)&cuMemAlloc_v2;
	if (!next)
		*(void **)&next = dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
	return next(handle, name);
}
"""


@pytest.mark.skipif(platform.machine() != "x86_64", reason="names a version of this machine's C library")
def test_a_peer_before_dlsym_that_names_its_functions(tmp_path):
    """Looked up by name, its own are called; for ever, once, was what stands before them."""
    peer = bad_peers.compiled(tmp_path, "names", OF_THAT_NAME)
    for library in (None, BUILD / "bench/libby_name.so"):
        done = limits.run(BUILD, limits.Limiter("names", peer, library=library), 2,
                          [BUILD / "tests/programs/slice_greedy", "linear", limits.PIECE], timeout=60)
        assert done.status == 0 and json.loads(done.out)["pieces"] == 0, done


def test_every_driver_call_of_the_programs_can_be_looked_up_by_name():
    """And a slice holds for programs that do so."""
    def names(*args):
        out = subprocess.run(["nm", "-D", *map(str, args)], stdout=subprocess.PIPE, text=True, check=True).stdout
        return {line.split()[-1] for line in out.splitlines() if line.split()[-1].startswith("cu")}
    programs = [BUILD / "bench/calls", BUILD / "bench/idle", *(BUILD / "tests/programs" / name for name in (
        "share_client", "slice_greedy", "limit_race", "limit_view", "death_load"))]
    by_name = names("--defined-only", BUILD / "bench/libby_name.so")
    for program in programs:
        assert names("--undefined-only", program) <= by_name, program
    row = limits.family(BUILD, limits.Limiter("carve", library=BUILD / "bench/libby_name.so"), "vmm")
    assert row["pass"], row
