"""carve mig simulate: an administrator's own trace, pictures, and what it says to bad input. No GPU, no daemon."""
import contextlib
import json
import os
import pty
import random
import subprocess
import xml.etree.ElementTree

import pytest

from conftest import BUILD, clean_env

SVG = "{http://www.w3.org/2000/svg}"


def simulate(*options, text=None):
    return subprocess.run([str(BUILD / "carve"), "mig", "simulate", *map(str, options)], timeout=120, input=text,
                          capture_output=True, text=True, env=clean_env())


def simulated(*options, text=None):
    done = simulate(*options, "--json", text=text)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def policies(result):
    return {p["policy"]: p for p in result["policies"]}


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    """Requests of many sizes, four fifths of what eight GPUs have."""
    path, draw, now = tmp_path_factory.mktemp("trace") / "requests.csv", random.Random(5), 0.0
    lines = ["arrival,size,duration"]
    for _ in range(4000):
        now += draw.expovariate(17)
        lines.append(f"{now:.4f},{draw.choice(['4', '9GiB', '1g.20gb', '2g.20gb', '3g.40gb', '70'])},{draw.expovariate(1):.4f}")
    path.write_text("\n".join(lines) + "\n")
    return path


def test_policies_are_compared_on_ones_own_trace(trace):
    result = simulated(trace)
    assert result["gpu_count"] == 8 and result["requests"] == 4000 and result["never"] == 0 and not result["waits"]
    asked = {tuple(w["profiles"]): w["requests"] for w in result["asked"]}
    assert set(asked) == {("1g.10gb",), ("1g.20gb",), ("2g.20gb",), ("3g.40gb",), ("7g.80gb",)}
    assert sum(asked.values()) == 4000
    found = policies(result)
    assert set(found) == {"carve", "first-fit", "first-fit, driver", "best-fit", "worst-fit", "round-robin", "MFI", "FGD",
                          "repacking"}
    assert 0.5 < found["worst-fit"]["accepted"] < found["first-fit"]["accepted"] < found["carve"]["accepted"] < 1
    assert found["carve"]["reused"] > 0 and found["first-fit"]["reused"] == 0
    for p in found.values():
        assert p["mean_wait_ns"] == 0 and 0 < p["used"] <= 1 and p["granted"] < 4000


def test_a_request_without_room_waits(trace):
    found = policies(simulated(trace, "--wait"))
    for p in found.values():
        assert p["granted"] == 4000 and p["accepted"] == pytest.approx(1) and p["longest_wait_ns"] > p["mean_wait_ns"] > 0
    assert found["carve"]["mean_wait_ns"] < found["worst-fit"]["mean_wait_ns"]
    assert found["repacking"]["mean_wait_ns"] < found["first-fit"]["mean_wait_ns"]


def test_the_same_trace_gives_the_same_figures(trace):
    assert simulated(trace) == simulated("-", text=trace.read_text())


def test_a_pool_may_have_several_models():
    text = "0,4,10\n1,30,10\n2,60,10\n3,500,10\n"
    result = simulated("-", "--gpus", "h100-80gb:2,a100-40gb:1", text=text)
    assert result["gpu_count"] == 3 and result["never"] == 1
    assert [w["profiles"] for w in result["asked"]] == [["1g.10gb", "1g.5gb"], ["3g.40gb", "7g.40gb"], ["7g.80gb", None],
                                                        [None, None]]
    assert policies(result)["carve"]["granted"] == 3


def test_tables_and_a_picture(trace, tmp_path):
    picture = tmp_path / "fit.svg"
    done = simulate(trace, "--svg", picture, "--wait")
    assert done.returncode == 0, done.stderr
    for words in ("ASKED", "4 GiB to 9 GiB", "POLICY", "MEAN WAIT", "repacking", "4000 requests in", "a request that finds no room waits",
                  str(picture)):
        assert words in done.stdout, words
    root = xml.etree.ElementTree.parse(picture).getroot()
    texts = [t.text for t in root.iter(SVG + "text")]
    assert "carve" in texts and "first-fit" in texts
    widths = [float(r.get("width")) for r in root.iter(SVG + "rect")][1:]
    assert len(widths) == 9 and max(widths) <= 520


@pytest.mark.parametrize("text", [
    "0,10,60\n1,1g.10gb,60",  # without the last line's end
    "arrival,size,duration\r\n0,10,60\r\n1,1g.10gb,60\r\n",
    "\ufeffarrival,size,duration\n0,10,60\n1,1g.10gb,60\n",
    '"arrival","size","duration"\n"0","10","60"\n"1","1g.10gb","60"\n',
    "1764220000,10,60\n1764220001.0,1g.10gb,1m\n",  # since 1970
    "1e-05,10,6e1\n1.0E+00,1g.10gb,60\n",
])
def test_traces_as_programs_write_them(text):
    result = simulated("-", text=text)
    assert result["requests"] == 2 and result["span_ns"] == pytest.approx(1e9, rel=1e-4)
    assert policies(result)["carve"]["used"] == pytest.approx(2 / 64)


def test_waits_of_centuries_are_told_as_the_longest_there_is():
    found = policies(simulated("-", "--gpus", "h100-80gb:1", "--wait", text="0,70,9e9\n" * 4))
    for p in found.values():
        assert p["granted"] == 4 and p["mean_wait_ns"] <= p["longest_wait_ns"] == 2**63 - 1


def test_a_long_simulation_tells_a_terminal_how_far_it_is(tmp_path):
    path, (reader, terminal) = tmp_path / "long.csv", pty.openpty()
    path.write_text("0,10,60\n" * 20000)
    with subprocess.Popen([str(BUILD / "carve"), "mig", "simulate", str(path), "--wait", "--json"], stdout=subprocess.PIPE,
                          stderr=terminal, text=True, env=clean_env()) as simulates:
        os.close(terminal)
        told = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while piece := os.read(reader, 65536):
                told += piece
        assert json.loads(simulates.stdout.read())["requests"] == 20000
    os.close(reader)
    lines = told.decode().split("\r\033[K")
    assert simulates.returncode == 0 and lines[0] == lines[-1] == ""
    for policy in ("carve", "FGD"):
        percents = [int(line.split(": ")[2][:-1]) for line in lines if line.startswith(f"carve: simulating {policy}: ")]
        assert percents == sorted(set(percents)) and percents[0] == 0 and percents[-1] > 90 and len(percents) > 50
    assert simulate(path, "--json").stderr == ""


def test_a_queue_of_tens_of_thousands_is_simulated_in_seconds():
    """Each request once looked at all that wait: 60,000 took more than a minute."""
    draw, text = random.Random(9), []
    for number in range(60000):
        text.append(f"{number / 100},{draw.choice(['4', '9', '18', '30', '70'])},{draw.expovariate(1):.4f}\n")
    found = policies(simulated("-", "--wait", text="".join(text)))
    for p in found.values():
        assert p["granted"] == 60000 and p["longest_wait_ns"] > p["mean_wait_ns"] > 60 * 10**9
    assert found["carve"]["mean_wait_ns"] < found["first-fit"]["mean_wait_ns"]


def test_long_waits_are_told_in_hours():
    done = simulate("-", "--gpus", "h100-80gb:1", "--wait", text="0,70,63154.3425\n" * 2)
    assert done.returncode == 0 and done.stdout.count("17.5 h") == 9, done.stdout
    assert "8.8 h" in done.stdout


@pytest.mark.parametrize("text, words", [
    ("", "standard input: the trace has no request"),
    ("arrival,size,duration\n", "standard input: the trace has no request"),
    ("0,4,9.1e9\n", "seconds: '9.1e9' is more than 9000000000"),
    ("0,4,1e\n", "seconds: '1e'"),
    ("0,4,nan\n", "seconds: 'nan'"),
    ('0,"4,1\n', "'\"4' is neither"),
    ("0;4;1\n", "fewer than three fields"),
    ("0,4\n", "line 1: fewer than three fields"),
    ("0,4,1\n\n1,4,1,9\n", "line 3: more than three fields"),
    ("0,4,1\nx,4,1\n", "line 2: seconds: 'x'"),
    ("0,4,-1\n", "'-1'"),
    ("0,9g.99gb,1\n", "'9g.99gb' is neither a size nor a profile of these GPUs"),
    ("0,,1\n", "'' is neither"),
    ("0,4," + "1" * 300 + "\n", "longer than 255 characters"),
])
def test_bad_lines_are_named(text, words):
    done = simulate("-", text=text)
    assert done.returncode == 2 and words in done.stderr, done.stderr
    assert len(done.stderr.splitlines()) <= 2


@pytest.mark.parametrize("spec, words", [
    ("h100", "no such GPU model"), ("t4-16gb", "this model has no MIG"), ("", "no such GPU model"),
    ("h100-80gb:0", "--gpus"), ("h100-80gb:99999", "--gpus"), ("h100-80gb:9000,a30-24gb:9000", "more than 10000 GPUs"),
    ("h100-80gb,", "no such GPU model"), ("h100-80gb+mig", "no such GPU model"),
])
def test_bad_pools_are_named(spec, words):
    done = simulate("-", "--gpus", spec, text="0,4,1\n")
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_a_file_that_is_not_there():
    done = simulate("/nonexistent.csv")
    assert done.returncode == 1 and "cannot read /nonexistent.csv" in done.stderr
    assert simulate().returncode == 2
