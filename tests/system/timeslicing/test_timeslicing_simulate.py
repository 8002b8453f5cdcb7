"""carve timeslicing simulate: shares, pictures, and what it says to bad input. No GPU, no daemon."""
import json
import subprocess
import xml.etree.ElementTree

import pytest

from conftest import BUILD, clean_env

SVG = "{http://www.w3.org/2000/svg}"


def simulate(*options, env=None):
    return subprocess.run([str(BUILD / "carve"), "timeslicing", "simulate", *options], timeout=60,
                          capture_output=True, text=True, env=clean_env(env))


def simulated(*options):
    done = simulate(*options, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def received(result):
    return [s["received"] for s in result["sessions"]]


def test_the_documents_example():
    for mode in "strict", "fair":
        result = simulated("--fractions", "0.25,0.75", "--mode", mode)
        assert received(result) == pytest.approx([0.25, 0.75], abs=0.005)
        assert [s["limit"] for s in result["sessions"]] == \
            ([0.25, 0.75] if mode == "strict" else [1, 1])
        assert result["plan_ns"] == 5_000_000_000 and result["lease_ns"] == 250_000_000
    idle = simulated("--fractions", "0.25,0.75", "--mode", "strict", "--idle", "2")
    assert received(idle) == pytest.approx([0.25, 0], abs=0.005) and idle["idle"] > 0.74
    idle = simulated("--fractions", "0.25,0.75", "--mode", "fair", "--idle", "2")
    assert received(idle) == pytest.approx([1, 0], abs=0.005)


def test_half_a_gpu_has_half_of_each_plan():
    result = simulated("--fractions", "50%,50%", "--mode", "strict")
    for plan in 0, 1:
        begin, end = plan * result["plan_ns"], (plan + 1) * result["plan_ns"]
        for session in 1, 2:
            held = sum(max(0, min(lease["to_ns"], end) - max(lease["from_ns"], begin))
                       for lease in result["leases"] if lease["session"] == session)
            assert held == pytest.approx(2.5e9, abs=0.03e9)


def test_sessions_sized_by_memory():
    for mode in "strict", "fair":
        assert received(simulated("--memory-only", "1", "--mode", mode)) == \
            pytest.approx([1], abs=0.001)
        result = simulated("--fractions", "0.25,0.75", "--memory-only", "2", "--mode", mode)
        assert received(result) == pytest.approx([0.2475, 0.7425, 0.005, 0.005], abs=0.003)


def test_a_shorter_lease_means_shorter_waits():
    waits = [max(s["longest_wait_ns"] for s in simulated("--fractions", "0.5,0.25,0.25", "--lease",
                                                         lease)["sessions"])
             for lease in ("250ms", "50ms", "5ms")]
    assert waits[0] > 3 * waits[1] > 9 * waits[2]


def test_the_table_and_the_lanes():
    done = simulate("--fractions", "0.25", "--memory-only", "1", "--mode", "strict", "--idle",
                    "2:90%")
    assert done.returncode == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].split()[:4] == ["SESSION", "REQUEST", "LIMIT", "RECEIVED"]
    assert lines[1].split()[:3] == ["1", "25%", "25%"]
    # It may be ahead by a part of a lease of these 100 s.
    assert 24.8 < float(lines[1].split()[3].rstrip("%")) < 25.2
    assert lines[2].split()[:3] == ["2", "0%", "100%"] and "up to" in lines[2]
    lanes = [line for line in lines if line.endswith("|")]
    assert len(lanes) == 3 and len({len(line) for line in lanes}) == 1
    assert 8 <= lanes[0].count("#") and "/" in lanes[2]


def test_the_picture(tmp_path):
    path = tmp_path / "plan.svg"
    done = simulate("--fractions", "0.25,0.25", "--mode", "strict", "--svg", str(path))
    assert done.returncode == 0 and str(path) in done.stdout
    root = xml.etree.ElementTree.parse(path).getroot()
    texts = [t.text for t in root.iter(SVG + "text")]
    assert {"1: 25%", "2: 25%", "idle", "plan 1", "plan 2"} <= set(texts)
    fills = [r.get("fill") for r in root.iter(SVG + "rect")]
    # 5 leases a plan each, and the time between them.
    assert fills.count("#3465a4") >= 10 and fills.count("#c8553d") >= 10
    assert fills.count("url(#idle)") >= 10


@pytest.mark.parametrize("options,words", [
    (["--fractions", "0.5,0.6"], ["0.5,0.6", "1.1", "0.25,0.75"]),
    (["--fractions", "0.5,"], ["--fractions: '0.5,' has an empty place"]), (["--fractions", "half"], ["'half'"]),
    (["--fractions", "0.5", "--lease", "1ms"], ["'1ms'", "5 ms", "10 s"]),
    (["--fractions", "0.5", "--lease", "11s"], ["'11s'"]),
    (["--fractions", "0.5", "--lease", "50"], ["'50'", "unit"]),
    (["--fractions", "0.5", "--granularity", "60%"], ["'60%'", "50%"]),
    (["--fractions", "0.5", "--granularity", "0.1%"], ["'0.1%'", "1%"]),
    (["--fractions", "0.5", "--mode", "off"], ["'off'", "strict"]),
    (["--fractions", "0.5", "--mode", "fairly"], ["'fairly'"]),
    (["--fractions", "0.5", "--idle", "2"], ["'2'"]),
    (["--fractions", "0.5", "--idle", "1:x"], ["'x'"]),
    (["--fractions", "0.5", "--idle", "1:200%"], ["'200%'", "--idle 1:25%"]),
    (["--fractions", "0.5,0.2", "--idle", "1:50%,2,1:20%"], ["session 1", "twice"]),
    (["--fractions", "1.0000000001"], ["'1.0000000001'", "more than the whole GPU"]),
    (["--fractions", "0.5", "--seconds", "1"], ["'1'", "plan"]),
    (["--fractions", "0.5", "--memory-only", "65"], ["--memory-only"]),
    (["--memory-only", "0"], ["no sessions"]), ([], ["no sessions"]), (["x"], ["'x'"]),
])
def test_bad_input_is_one_line_and_exit_2(options, words):
    done = simulate(*options)
    assert done.returncode == 2 and done.stdout == ""
    assert done.stderr.startswith("carve: ") and len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr


def test_a_picture_to_standard_output():
    done = simulate("--fractions", "0.5", "--svg", "-")
    assert done.returncode == 0 and done.stdout.startswith("<svg ") and done.stdout.endswith("</svg>\n")
    done = simulate("--fractions", "0.5", "--svg", "-", "--json")
    assert done.returncode == 2 and "--json: the picture" in done.stderr and done.stdout == ""


def test_a_picture_that_can_not_be_written(tmp_path):
    done = simulate("--fractions", "0.5", "--svg", str(tmp_path / "no" / "plan.svg"))
    assert done.returncode == 1 and "plan.svg" in done.stderr and done.stdout == ""


def test_it_starts_no_daemon(tmp_path):
    done = simulate("--fractions", "1", env={"CARVE_RUNTIME_DIR": str(tmp_path / "run")})
    assert done.returncode == 0 and not (tmp_path / "run").exists()


def test_help_offers_the_modes_that_it_takes():
    help_of = [line for line in simulate("--help").stdout.splitlines() if "--mode" in line and "usage" not in line]
    assert "fair or strict" in help_of[0] and "off" not in help_of[0]
