"""Which of several GPUs a request gets: the setting, its reload, and the GPU time that was used lately."""
import json
import subprocess
import time

import pytest

from conftest import BUILD, listens, run, wait_until
from daemon_client import *
from mig_hands import call
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures

CARVE = BUILD / "carve"
H100 = (80 * GIB, 0, 0, "Fake H100")


@pytest.fixture
def placed(make_daemon, tmp_path):
    """A daemon with three GPUs and this placement, whose configuration can be written anew."""
    def make(placement, gpus=(H100,) * 3):
        config = tmp_path / "carved.json"
        config.write_text(json.dumps({"placement": placement} if placement else {}))
        daemon = make_daemon(gpus, args=("--config", str(config)))
        daemon.config = config
        return daemon
    return make


def gpus_of(daemon, **body):
    return [gpu["index"] for gpu in daemon.grant(**body)["gpus"]]


def placement(daemon):
    return daemon.call("GET", "/v1/version").json["placement"]


@pytest.mark.parametrize("setting, want", [(None, [0] * 4), ("pack", [0] * 4), ("spread", [0, 1, 2, 0])])
def test_sessions_are_packed_or_spread(placed, setting, want):
    daemon = placed(setting)
    assert placement(daemon) == (setting or "pack")
    assert [gpus_of(daemon, vram="10")[0] for _ in range(4)] == want


def test_spread_holds_for_fractions_and_for_several_gpus(placed):
    daemon = placed("spread")
    assert gpus_of(daemon, vram="10", gpu_ids="1") == [1]
    assert gpus_of(daemon, gpu="0.25", gpus=2) == [0, 2]
    explained = daemon.call("POST", "/v1/explain", {"vram": "1", "ephemeral": True}).json
    assert [on["index"] for on in explained["on"]] == [1] and explained["placement"] == "spread"
    told = run([CARVE, "explain", "--vram", "1", "--ephemeral", "--host", daemon.runtime / "carved.sock"])
    limits = run([CARVE, "limits", "--host", daemon.runtime / "carved.sock"]).stdout.splitlines()
    assert ["placement", "spread", "-", "carved.json,", "placement"] in [line.split() for line in limits]
    assert "would be granted: 1 GiB on GPU 1 (sessions are spread over GPUs)\n" in told.stdout


def test_a_reload_changes_the_placement_of_the_next_request(placed):
    daemon = placed("pack")
    assert [gpus_of(daemon, vram="10") for _ in range(2)] == [[0], [0]]
    daemon.config.write_text('{"placement": "spread"}')
    daemon.reload()
    wait_until(lambda: placement(daemon) == "spread")
    assert [gpus_of(daemon, vram="10") for _ in range(2)] == [[1], [2]]


@pytest.mark.parametrize("wrong", ['"pak"', "1", "null", "true", '["pack"]', '"Pack"'])
def test_a_wrong_placement_is_refused_with_the_right_words_and_the_last_one_holds(placed, wrong):
    daemon = placed("spread")
    daemon.config.write_text(f'{{"placement": {wrong}}}')
    checked = subprocess.run([BUILD / "carved", "--config", daemon.config, "--check-config"], capture_output=True, text=True)
    assert checked.returncode == 2 and 'placement takes "pack" or "spread"' in checked.stderr, checked.stderr
    daemon.reload()
    wait_until(lambda: daemon.call("GET", "/v1/version").json["config_error"])
    assert 'placement takes "pack" or "spread"' in daemon.call("GET", "/v1/version").json["config_error"]
    assert placement(daemon) == "spread"
    assert 'placement takes "pack" or "spread"' in run([CARVE, "check", "--host", daemon.runtime / "carved.sock"]).stdout


def work(daemon, seconds, *busy):
    """GPUs are busy meanwhile: (GPU, per cent)."""
    daemon.busy = list(busy)
    daemon.write_state()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        daemon.call("GET", "/v1/gpus")
        time.sleep(0.2)
    daemon.busy = [(gpu, 0) for gpu, _ in busy]
    daemon.write_state()


def busy(daemon):
    return [gpu["busy_percent"] for gpu in daemon.call("GET", "/v1/gpus").json]


@pytest.mark.parametrize("setting", ["pack", "spread"])
def test_the_gpu_that_was_used_least_is_taken_of_equal_ones(placed, setting):
    daemon = placed(setting)
    assert busy(daemon) == [0, 0, 0]
    work(daemon, 7, (0, 100), (1, 60))
    seen = busy(daemon)
    assert seen[0] >= 2 and seen[0] > seen[1] >= 1 and seen[2] == 0, seen
    assert gpus_of(daemon, gpu="1") == [2]
    assert gpus_of(daemon, gpu="1") == [1]
    # Memory comes first.
    assert gpus_of(daemon, vram="10") == [0]


def test_time_that_was_used_does_not_count_where_time_is_sliced(placed):
    daemon = placed("pack")
    work(daemon, 5, (0, 100))
    assert busy(daemon)[0] >= 1
    assert daemon.call("PUT", "/v1/timeslicing", {"mode": "fair"}).status == 200
    assert gpus_of(daemon, vram="10") == [0]


# ---- MIG instances ---------------------------------------------------------------------------------

@pytest.mark.parametrize("setting, want", [("pack", 1), ("spread", 2)])
def test_instances_are_packed_or_spread(make_host, tmp_path, setting, want):
    host = make_host("h100-80gb:2+mig")
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"placement": setting}))
    served = host.popen([BUILD / "carved", "--runtime-dir", host.env["CARVE_RUNTIME_DIR"], "--config", config, "--foreground"])
    try:
        wait_until(lambda: listens(host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"))
        assert host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
        answers = [call(host, "POST", "/v1/sessions", {"kept": True, "vram": "4"}) for _ in range(3)]
        assert [status for status, _ in answers] == [201] * 3
        # The look for the size of a context costs a GPU time, so that either may be the first.
        found = [session["gpus"][0]["index"] for _, session in answers]
        assert len(set(found[:2])) == want and (setting == "spread" or len(set(found)) == 1), found
    finally:
        served.terminate()
        served.wait(60)
