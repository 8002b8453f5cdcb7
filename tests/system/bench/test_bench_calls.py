"""scripts/bench, part calls, and its regression guard: over the null driver, through a real session."""
import json
import re
import subprocess
import sys
import xml.etree.ElementTree

import pytest

import bad_peers
import results_schema
from benchmark import bench, refused
from build_options import build_option, sanitized
from conftest import BUILD, ON_GPU, ROOT, clean_env

sys.path.insert(0, str(ROOT))
from bench import calls, guard, plot, report, stats, syscalls  # noqa: E402: found by the line above

# Several tests look at one run of the bench.
pytestmark = [pytest.mark.xdist_group("bench calls"), pytest.mark.once("a benchmark")]


needs_plain_build = pytest.mark.skipif(
    ON_GPU or sanitized(), reason="the figures of an instrumented build say nothing; the null driver needs no GPU")
needs_optimized_build = pytest.mark.skipif(
    ON_GPU or sanitized() or build_option("optimization") in ("plain", "0", "g"),
    reason="the bounds are those of an optimized build")


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A quick run with the example peer beside: (what it printed, its JSON, its plot, its Markdown)."""
    folder = tmp_path_factory.mktemp("bench")
    done = bench("calls", "--quick", "--json", folder / "out.json", "--svg", folder / "out.svg",
                 "--markdown", folder / "out.md", "--peer", f"example={BUILD}/bench/libexample_peer.so", "--peer-env", "ANY=1")
    assert done.returncode == 0, done.stderr
    return (done.stdout, json.loads((folder / "out.json").read_text()), (folder / "out.svg").read_text(),
            (folder / "out.md").read_text())


def row(document, loop, live=0, idle=0):
    return next(r for r in document["rows"]
                if (r["loop"], r["live"], r["idle_processes"]) == (loop, live, idle))


@needs_plain_build
@pytest.mark.long
def test_every_row_is_measured_in_every_configuration(measured):
    printed, document, _, markdown = measured
    results_schema.check(document)
    assert document["schema"] == "carve-bench/1" and document["rounds"] == 5
    expected = {(loop, 0, 0) for loop in [*calls.LOOPS, "init", "context", "process_start"]}
    expected |= {(loop, live, 0) for loop in ("alloc_free", "alloc_free_small") for live in calls.LIVE}
    expected |= {("alloc_free", 0, 128), ("forwarded_now", 0, 0)}
    expected |= {(f"{loop}_{state}", 0, 0) for loop in calls.GATED for state in calls.GATE_STATES}
    assert {(r["loop"], r["live"], r["idle_processes"]) for r in document["rows"]} == expected
    for r in document["rows"]:
        assert set(r["results"]) == {"direct", "carve", "example"}
        for result in r["results"].values():
            assert len(result["samples"]) >= 5 and 0 < result["q1"] <= result["median"] <= result["q3"]
        assert report.title(r) in printed and f"| {report.title(r)} |" in markdown


@needs_plain_build
@pytest.mark.long
def test_hot_paths_make_no_system_call(measured):
    document = measured[1]
    for r in document["rows"]:
        if r["loop"] in calls.LOOPS and not r["idle_processes"]:
            # One of 1,024 allocations looks whether the daemon is there; a thousand are traced.
            most = 0.001 if r["loop"].startswith("alloc") else 0
            assert r["results"]["carve"]["syscalls_per_call"] <= most, report.title(r)


@needs_plain_build
@pytest.mark.long
def test_the_cost_of_a_peer_shows(measured):
    """The example makes one system call for each allocation, which takes as long as many direct ones, and lets all else
    pass."""
    document = measured[1]
    for live in calls.LIVE:
        result = row(document, "alloc_free", live)["results"]
        assert result["example"]["syscalls_per_call"] == 1 and result["direct"]["syscalls_per_call"] == 0
        assert result["example"]["least"] > result["direct"]["least"]
    assert row(document, "forwarded")["results"]["example"]["syscalls_per_call"] == 0


@needs_plain_build
@pytest.mark.long
def test_calls_go_through_the_session(measured):
    """The figures called carve's are those of a process that attached: cuInit waits for the daemon's answer, which is a
    hundred times what it takes otherwise."""
    result = row(measured[1], "init")["results"]
    assert result["carve"]["least"] > 10 * result["direct"]["least"]


@needs_plain_build
@pytest.mark.long
def test_the_plot_is_well_formed(measured):
    tree = xml.etree.ElementTree.fromstring(measured[2])
    lines = tree.findall("{http://www.w3.org/2000/svg}polyline")
    assert len(lines) == 3 and all(len(line.get("points").split()) == len(calls.LIVE) for line in lines)


@pytest.fixture(scope="module")
def counts_instructions():
    """Processors trap after single instructions; some emulators don't."""
    done = stepped("locked_add")
    if done.returncode == 1 and "does not trap" in done.stderr:
        pytest.skip(done.stderr.strip())


def stepped(*loops, preload=""):
    """What loops of bench/calls.c execute over the null driver."""
    env = clean_env({"LD_LIBRARY_PATH": str(BUILD / "bench/null_driver"), "LD_PRELOAD": str(preload)})
    return subprocess.run([BUILD / "bench/calls", "--instructions", *loops], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=env, check=False)


@needs_plain_build
def test_instructions_are_counted(counts_instructions):
    """A locked addition, a jump and a system call are seen as what they are, in every call alike."""
    def counted(*loops, preload=""):
        found = guard.Counts()
        found.add("", json.loads(stepped(*loops, preload=preload).stdout))
        return {loop: row for (_, loop, _), row in found.by_row.items()}
    direct = counted("forwarded", "locked_add", "alloc_free")
    example = counted("forwarded", "alloc_free", preload=BUILD / "bench/libexample_peer.so")
    assert direct["locked_add"]["locked"] == 1 and 1 <= direct["locked_add"]["instructions"] <= 8
    assert direct["locked_add"]["syscalls"] == direct["forwarded"]["locked"] == 0
    assert direct["forwarded"] == example["forwarded"] and 5 < direct["forwarded"]["instructions"] < 50
    assert (direct["alloc_free"]["syscalls"], example["alloc_free"]["syscalls"]) == (0, 1)
    assert example["alloc_free"]["instructions"] > direct["alloc_free"]["instructions"] + 5


def cells(printed):
    """{title: the other cells of its line}, of one of the guard's two tables."""
    return {line[0]: line[1:] for line in (re.split("  +", text) for text in printed.splitlines()[1:])}


@pytest.fixture(scope="module")
def guarded(counts_instructions):
    return bench("--guard")


@needs_optimized_build
@pytest.mark.timed
def test_guard_holds(guarded):
    assert guarded.returncode == 0, guarded.stdout + guarded.stderr
    instructions, times = guarded.stdout.split("\n\n")
    bounds = json.loads(guard.BOUNDS.read_text())
    assert list(cells(instructions)) == [b["title"] for b in bounds["instructions"]]
    assert list(cells(times)) == [b["title"] for b in bounds["times"]]


@needs_optimized_build
@pytest.mark.timed
def test_guard_catches_a_path_that_doubled(guarded):
    """Each bound is below twice of what carve adds to the call now. Whoever makes a path shorter lowers its bound."""
    added = cells(guarded.stdout.split("\n\n")[0])
    for bound in json.loads(guard.BOUNDS.read_text())["instructions"]:
        now = dict(zip(guard.COUNTED, map(int, added[bound["title"]][::2])))
        for what, most in guard.allowed(bound).items():
            assert most == 0 or most < 2 * now[what], f"{bound}: {what} is {now[what]} now: lower it in bench/bounds.json"
        doubled = {what: 2 * value for what, value in now.items()}
        assert doubled == now or not guard.holds(bound, doubled)  # where carve adds nothing, all that it would is above


@needs_plain_build
@pytest.mark.timed
def test_guard_fails_above_a_bound(tmp_path, counts_instructions):
    """Whatever can not be is above; what is as large as it likes is not."""
    kept = {"instructions": 10 ** 9, "locked": 10 ** 9, "syscalls": 10 ** 9}
    instructions = [{"title": f"no {what}", "loop": "forwarded", **kept, what: -10 ** 9} for what in guard.COUNTED]
    times = [{"title": "no time", "loop": "forwarded", "over": "direct", "at_most": 1e-9},
             {"title": "any time", "loop": "forwarded", "over": "direct", "at_most": 1e9}]
    (tmp_path / "bounds.json").write_text(json.dumps(
        {"instructions": [*instructions, {"title": "any number", "loop": "forwarded", **kept}], "times": times}))
    done = bench("--guard", "--bounds", tmp_path / "bounds.json")
    above = [line.split("  ")[0] for line in done.stdout.splitlines() if line.endswith("ABOVE")]
    assert done.returncode == 1 and above == ["no instructions", "no locked", "no syscalls", "no time"], done.stderr


def test_guard_takes_what_carve_adds():
    """The median of some calls, through the gate where the bound says so; without a bound there are no locked instructions
    and no system calls."""
    def series(*instructions):
        return [{"loop": "init", "live": 0, "ns": [1.0]},
                {"loop": "launch", "live": 0, "instructions": list(instructions), "locked": [1] * 3, "syscalls": [0] * 3}]
    counts = guard.Counts()
    for name, found in (("direct", (10, 10, 10)), ("carve", (14, 14, 900)), ("open", (47, 46, 2))):
        counts.add(name, series(*found))
    off, opened = ({"loop": "launch", "instructions": 4}, {"loop": "launch", "gate": "open", "instructions": 35})
    assert counts.added(off) == {"instructions": 4, "locked": 0, "syscalls": 0}
    assert guard.holds(off, counts.added(off))
    assert counts.added(opened)["instructions"] == 36 and not guard.holds(opened, counts.added(opened))
    for what in ("locked", "syscalls"):
        assert not guard.holds(off, {**counts.added(off), what: 1})
        assert guard.holds({**off, what: 1}, {**counts.added(off), what: 1})


def test_guard_takes_the_least_times():
    samples = calls.Samples(["direct", "carve"])
    for direct, carve in ((2.0, 3.0), (9.0, 4.0)):
        samples.add(("launch", 0, 0), "direct", direct)
        samples.add(("launch", 0, 0), "carve", carve)
    samples.add(("alloc_free", 50000, 0), "carve", 12.0)
    assert guard.ratio(samples, {"loop": "launch", "over": "direct"}) == 1.5
    assert guard.ratio(samples, {"loop": "alloc_free", "live": 50000, "over": "launch"}) == 4


def test_statistics():
    summary = stats.summary([4, 1, 3, 2, 5])
    assert (summary["least"], summary["q1"], summary["median"], summary["q3"]) == (1, 2, 3, 4)
    # Paired by round: what slows both of a round down by the same doesn't show.
    compared = stats.compare([11, 111, 61], [10, 110, 60])["difference"]
    assert compared["low"] == compared["median"] == compared["high"] == 1
    wide = stats.interval(list(range(100)))
    assert 30 < wide["low"] < wide["median"] < wide["high"] < 70
    assert wide == stats.interval(list(range(100)))


def test_system_calls_are_counted_between_the_marks():
    log = ['1 futex(0x7f, FUTEX_WAIT) = 0\n',
           '1 write(-1, "begin launch live=0 calls=4", 27) = -1 EBADF (Bad file descriptor)\n',
           '1 getppid( <unfinished ...>\n', '2 pause() = ?\n', '1 <... getppid resumed>) = 7\n', '1 getppid() = 7\n',
           '1 write(-1, "end launch live=0 calls=4", 25) = -1 EBADF (Bad file descriptor)\n',
           '1 mmap(NULL, 4096) = 0x7f\n',
           '1 write(-1, "begin alloc_free live=9 calls=4", 31) = -1 EBADF (Bad file descriptor)\n',
           '1 write(-1, "end alloc_free live=9 calls=4", 29) = -1 EBADF (Bad file descriptor)\n']
    assert syscalls.rates(log) == {("launch", 0): 0.5, ("alloc_free", 9): 0}


def test_plot_of_one_point():
    result = stats.summary([5.0, 5.0])
    rows = [{"loop": "alloc_free", "live": 0, "idle_processes": 0, "results": {"a<b": result}}]
    assert "a&lt;b" in plot.svg(rows)


@pytest.mark.parametrize("args", [["--peer", "nothing"], ["--peer", "x=/no/such.so"], ["--peer-env", "A=1"],
                                  ["nonsense"]])
def test_wrong_usage_is_refused(capsys, args):
    assert "scripts/bench: error:" in refused(capsys, *args)[-1]


@needs_plain_build
@pytest.mark.long
def test_a_peer_that_fails_is_a_cell(tmp_path):
    """And the others, and its own rows that it does manage, are measured."""
    given = [bad_peers.lacks_a_library(tmp_path),
             bad_peers.dies_when_loaded(tmp_path), bad_peers.dies_in(tmp_path, "cuLaunchKernel")]
    args = [arg for peer in given for arg in ("--peer", f"{peer.name}={peer.library}")]
    done = bench("calls", "--quick", "--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg", *args)
    assert done.returncode == 0 and done.stderr == ""
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    for r in document["rows"]:
        results = r["results"]
        assert results["carve"]["median"] > 0 and set(results) == {"direct", "carve", *(p.name for p in given)}
        assert "ends with status 127" in results["lacking"]["error"]
        assert "ends with signal 4" in results["at-once"]["error"]
        failed = r["loop"].startswith("launch") or r["loop"].startswith("graph_launch_")  # these begin with a launch
        assert ("signal 4" in results["in-call"]["error"]) if failed else results["in-call"]["median"] > 0
    assert "did not run: a process with it ends with status 127" in done.stdout
