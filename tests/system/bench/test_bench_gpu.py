"""scripts/bench --driver and --gpu: over whatever driver is there, which here is the simulated one."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import threading

import pytest

import results_schema
from conftest import BUILD, ON_GPU, ROOT, clean_env, rest_long
from benchmark import bench
from build_options import sanitized

sys.path.insert(0, str(ROOT))
from bench import real, sharers, workload  # noqa: E402: found by the line above
from bench.host import BenchError  # noqa: E402

pytestmark = [pytest.mark.skipif(ON_GPU or sanitized(), reason="stands in for a GPU by a simulated host"),
              pytest.mark.once("a benchmark")]
FAKE_TORCH = pathlib.Path(__file__).with_name("fake_torch")


def on_driver(*args, env=None, timeout=240):
    return subprocess.run([str(a) for a in (BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", ROOT / "scripts/bench",
                                            "--build", BUILD, *args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=timeout, env=clean_env(env), check=False)


def no_driver_here():
    return not any(pathlib.Path(folder, "libcuda.so.1").exists() for folder in
                   ("/usr/lib/x86_64-linux-gnu", "/lib/x86_64-linux-gnu", *os.environ.get("LD_LIBRARY_PATH", "").split(":")))


@pytest.mark.skipif(not no_driver_here(), reason="this machine has a driver")
@pytest.mark.parametrize("args", rest_long([["--gpu"], ["calls", "--driver"], ["pytorch", "--gpu"]]))
def test_without_a_driver_it_says_so(args):
    done = bench(*args)
    assert done.returncode == 1 and done.stdout == "" and len(done.stderr.splitlines()) == 1
    assert "scripts/bench: no CUDA driver here" in done.stderr


@pytest.mark.long
def test_calls_over_the_driver_that_is_there(tmp_path):
    """The simulated driver takes microseconds for an allocation, and launches are real ones."""
    done = on_driver("calls", "--driver", "--quick", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert "H100" in document["driver"] and "H100" in document["machine"]["gpu"] and document["driver"] in done.stdout
    by = {(r["loop"], r["live"]): r["results"] for r in document["rows"]}
    assert by["alloc_free", 0]["direct"]["median"] > 1000 and by["launch", 0]["direct"]["median"] > 50
    assert by["init", 0]["carve"]["difference"]["median"] > 0
    assert {"launch_open", "graph_launch_contended"} <= {loop for loop, _ in by}
    assert all(result.get("goal") is None and "error" not in result for r in by.values() for result in r.values())


OF_SEVERAL = """
import json, pathlib, sys
sys.path.insert(0, sys.argv[1])
from bench import limits, real
build = pathlib.Path(sys.argv[2])
with real.own_daemon():
    carve = limits.limiters([], real.slice_options(build))[1]
    print(json.dumps([real.driver()["name"], real.listed(build)["name"], limits.family(build, carve, "linear"), limits.view(build, carve, 1)]))
"""


@pytest.mark.parametrize("visible", rest_long([None, "1"]))
def test_cudas_first_gpu_is_measured_among_several(visible):
    """Which CUDA has first because it is the fastest, and NVML last, or whichever the user says."""
    command = ["env", *([f"CUDA_VISIBLE_DEVICES={visible}"] if visible else []), sys.executable, "-c", OF_SEVERAL, ROOT, BUILD]
    done = subprocess.run([BUILD / "carve", "sim", "--gpus", "t4-16gb,h100-80gb", "--", *command], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=240, env=clean_env(), check=False)
    assert done.returncode == 0, done.stderr
    name, listed, family, view = json.loads(done.stdout)
    assert name == listed and ("T4" if visible else "H100") in name
    # Judged by memory that was seen to be used: on another GPU there was none.
    assert family["pass"] and view["pass"], (family, view)


def test_no_look_at_memory_is_lost():
    """One that takes long and tells less does not take the place of one that was noted meanwhile."""
    memory = real.UsedMemory.__new__(real.UsedMemory)

    class Nvml:
        def used(self):
            if not memory.peak:
                memory.peak = 2  # the other thread's
            return 1
    memory.nvml, memory.lock, memory.peak = Nvml(), threading.Lock(), 0
    memory.look_now()
    assert memory.peak == 2


@pytest.mark.long
def test_limits_as_nvml_tells(tmp_path):
    done = on_driver("limits", "--gpu", "--quick", "--check", "family", "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert "H100" in document["gpu"] and "as NVML tells" in done.stdout
    carve = [r for r in document["rows"] if r["configuration"] == "carve"]
    none = [r for r in document["rows"] if r["configuration"] == "none"]
    assert len(carve) == 13 and all(r["pass"] for r in carve) and not any(r["pass"] for r in none)
    # Taken was what the books of the simulated driver say when they are asked instead: all there is.
    assert all(r["over_bytes"] > 60 << 30 for r in none)


def test_lines_of_clients_are_kept_however_often_they_are_read(tmp_path):
    """They write into one file, which is read meanwhile: no word may take another's place."""
    class Talkers:
        library = None

        def command(self, *_):
            return ["sh", "-c", "for i in 1 2 3 4; do for j in $(seq 20000); do echo up; done & done; wait"]

    with contextlib.closing(workload.Workload(BUILD, Talkers(), None, (), 4, tmp_path, False)) as one:
        while one.process.poll() is None:
            one.lines()
        assert (one.lines().count("up"), len(one.lines())) == (80000, 80000)


@pytest.mark.parametrize("by", [sharers.Carve(), sharers.Driver()], ids=["carve", "driver"])
def test_one_client_that_fails_ends_its_workload(host, tmp_path, by, monkeypatch):
    """At once, and with its words: it does not count as one that is slow."""
    client = tmp_path / "tests/programs/share_client"
    client.parent.mkdir(parents=True)
    client.write_text('#!/bin/sh\ncase $2 in\n*.3) echo "no third one" >&2; exit 1;;\nesac\necho up\nexec sleep 1000\n')
    client.chmod(0o755)
    (tmp_path / "carve").symlink_to(BUILD / "carve")
    for name, value in host.env.items():
        monkeypatch.setenv(name, value)
    with contextlib.closing(workload.Workload(tmp_path, by, ("--gpu", 0.5), (), 4, tmp_path, True)) as one:
        with pytest.raises(BenchError) as caught:
            one.wait_up()
        assert one.process.poll() is not None and "no third one" in str(caught.value).splitlines()


@pytest.mark.timed
def test_shares_by_the_kernels_own_times(tmp_path):
    done = on_driver("shares", "--gpu", "--quick", "--scenario", "25-75", "--scenario", "tree", "--scenario", "hand-over",
                     "--json", tmp_path / "out.json")
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert not [r["error"] for r in document["rows"] if "error" in r]
    assert not [b["error"] for r in document["rows"] for b in r["beside"].values() if "error" in b]
    rows = {(r["scenario"], r["what"]): r for r in document["rows"]}
    few, many = rows["25-75", "share error"]["clients"]
    assert few["share"] < 0.4 < 0.6 < many["share"]
    beside = rows["25-75", "share error"]["beside"]["driver"]["clients"]
    assert beside[0]["share"] == pytest.approx(0.5, abs=0.05)
    # Four processes against one: the driver goes round processes.
    assert rows["tree", "share error"]["beside"]["driver"]["clients"][0]["share"] > 0.7
    assert rows["hand-over", "from idle to the batch p50"]["count"] > 0


@pytest.mark.timed
def test_kernels_of_fixed_work(host, programs):
    """They store longer times the more they are to do."""
    def mean_ns(steps):
        done = host.run([programs / "share_client", "--work", str(steps), "--kernel-us", "1000", "--seconds", "0.3",
                         "--sync-every", "1"])
        assert done.returncode == 0, done.stderr
        said = json.loads(done.stdout.splitlines()[-1])
        return said["stored_ns"] / said["kernels"]
    assert mean_ns(20) > 4 * mean_ns(2)


@pytest.mark.timed
def test_pytorch_inside_a_slice_against_outside(tmp_path):
    """With a torch that does nothing, more slowly inside a slice: this proves the flow, and no figure."""
    done = on_driver("pytorch", "--gpu", "--quick", "--json", tmp_path / "out.json", "--svg", tmp_path / "out.svg",
                     "--markdown", tmp_path / "out.md", env={"PYTHONPATH": str(FAKE_TORCH)})
    assert done.returncode == 0, done.stderr
    document = json.loads((tmp_path / "out.json").read_text())
    results_schema.check(document)
    assert document["torch"] == "0.fake" and document["rounds"] == 3 and document["skipped"] is None
    assert [r["title"] for r in document["rows"]] == [
        f"{model}, {what}" for model in ("convolutions", "transformer") for what in ("training", "inference")]
    for r in document["rows"]:
        assert len(r["inside"]["samples"]) == len(r["outside"]["samples"]) == 3
        assert r["ratio"]["median"] < 0.95 and r["title"] in done.stdout


@pytest.mark.parametrize("env, words", rest_long([
    ({"PYTHONPATH": str(FAKE_TORCH), "FAKE_TORCH_NO_GPU": "1"}, "torch 0.fake finds no GPU"),
    ({"PYTHONPATH": "/no/such"}, "has no torch")]))
def test_pytorch_is_skipped_with_a_line(env, words):
    done = on_driver("pytorch", "--gpu", "--quick", "--python", "/usr/bin/python3", env=env)
    if words == "has no torch" and "not measured" not in done.stdout:
        pytest.skip("/usr/bin/python3 has torch here")
    assert done.returncode == 0 and done.stdout.startswith("PyTorch:") and words in done.stdout
    assert len(done.stdout.splitlines()) == 1
