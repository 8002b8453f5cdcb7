"""The state of each GPU, wherever GPUs are shown: since when it is lost, held by another daemon, in MIG mode."""
import json
import os
import pathlib
import re
import tempfile
import time

import pytest

from conftest import process_ended, wait_until


@pytest.fixture
def host(make_host):
    return make_host("h100-80gb:3")


def states(host, **kw):
    return [g["state"] for g in host.carve_json("gpu", "list", **kw)]


def test_a_lost_gpu_shows_everywhere(host):
    assert states(host) == ["ok"] * 3
    host.carve("sim", "fault", "lost", "--gpu", "1")
    assert states(host) == ["ok", "lost", "ok"]
    since = host.carve_json("gpu", "list")[1]["state_since"]
    listed = host.carve("gpu", "list").stdout
    assert f"GPU 1 is lost since {since}: " in listed and "gpu-reset" in listed
    done = host.carve("check")
    assert done.returncode == 1 and f"GPU 1 is lost since {since}" in done.stdout
    line = next(r for r in host.carve("top", "--once").stdout.splitlines() if r.startswith("1 "))
    assert re.search(r" lost since \d\d:\d\d *$", line), line
    shown = json.loads(host.carve("check", "--json").stdout)["gpus"]
    assert [(g["state"], g["state_text"]) for g in shown] == [("ok", "ok"), ("lost", f"lost since {since}"), ("ok", "ok")]
    assert shown[1]["state_since"] == since and shown[1]["held_by"] is None
    assert f"  state:    lost since {since}\n" in done.stdout and "  state:    ok\n" in done.stdout
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text()
    assert "gpu.state index=1" in log and "state=lost before=ok" in log
    assert "cannot reach it" in host.carve("session", "request", "--vram", "4", "--gpu-ids", "1").stderr
    host.carve("sim", "fault", "lost", "--clear")
    assert states(host) == ["ok"] * 3


def test_a_gpu_that_is_back_is_in_the_block_of_its_like(host):
    """Its state is of another second than theirs."""
    def blocks():
        return [line for line in host.carve("check").stdout.splitlines() if line.startswith("GPU") and ": " in line]

    assert states(host) == ["ok"] * 3
    host.carve("sim", "fault", "lost", "--gpu", "1")
    wait_until(lambda: states(host)[1] == "lost")
    assert len(blocks()) == 2
    time.sleep(1)
    host.carve("sim", "fault", "lost", "--clear")
    wait_until(lambda: states(host) == ["ok"] * 3)
    assert len({g["state_since"] for g in host.carve_json("gpu", "list")}) == 2
    assert len(blocks()) == 1


@pytest.mark.parametrize("gpu", [0, 2])
@pytest.mark.parametrize("error", [3, 15, 16, 999])
def test_an_error_of_nvml_about_one_gpu_leaves_the_others(host, gpu, error):
    assert states(host) == ["ok"] * 3
    host.carve("sim", "fault", "nvml", "--gpu", gpu, "--error", error)
    wait_until(lambda: states(host)[gpu] != "ok")
    assert [s for i, s in enumerate(states(host)) if i != gpu] == ["ok"] * 2
    assert host.carve("run", "--ephemeral", "--vram", "4", "true").returncode == 0
    host.carve("sim", "fault", "nvml", "--clear")
    wait_until(lambda: states(host) == ["ok"] * 3)


def test_a_session_says_that_its_gpu_is_lost(host):
    session = host.carve_json("session", "request", "--vram", "4", "--gpu-ids", "1")["id"]
    assert host.carve_json("session", "show", session)["reason"] == ""
    host.carve("sim", "fault", "lost", "--gpu", "1")
    assert states(host)[1] == "lost"
    shown = host.carve("session", "show", session).stdout
    assert "because:   GPU 1 is lost: nothing can be begun there; see `carve gpu list`" in shown, shown
    assert "GPU 1 is lost" in host.carve("session", "list", "--all").stdout
    for options in ([], ["--session", session]):
        done = host.carve("run", *options, "true")
        assert (done.returncode, done.stderr) == (0, f"carve: warning: session {session}: GPU 1 is lost: nothing can be begun there; "
                                                     "see `carve gpu list`\n")
    host.carve("sim", "fault", "lost", "--clear")
    assert states(host) == ["ok"] * 3
    assert host.carve_json("session", "show", session)["reason"] == ""
    assert host.carve("run", "true").stderr == ""


def test_a_gpu_that_is_lost_when_the_daemon_starts_shows_and_comes_back(host):
    """It tells nothing of itself then, not even its UUID: the daemon remembers which one it is."""
    session = host.carve_json("session", "request", "--vram", "4", "--gpu-ids", "1")["id"]
    before = host.carve_json("gpu", "list")[1]
    host.carve("sim", "fault", "lost", "--gpu", "1")
    pid = host.daemon_pid()
    os.kill(pid, 9)
    wait_until(lambda: process_ended(pid))
    assert states(host) == ["ok", "lost", "ok"]
    lost = host.carve_json("gpu", "list")[1]
    assert [lost[k] for k in ("uuid", "name", "memory_bytes")] == [before[k] for k in ("uuid", "name", "memory_bytes")]
    assert "GPU 1 is lost since" in host.carve("gpu", "list").stdout
    assert host.carve("check").returncode == 1
    one_off = ["run", "--ephemeral", "--vram", "4", "--gpu-ids", "1"]
    assert "cannot reach it" in host.carve(*one_off, "true").stderr
    host.carve("sim", "fault", "lost", "--clear")
    wait_until(lambda: states(host) == ["ok"] * 3)
    assert host.carve_json("session", "show", session)["gpus"][0]["uuid"] == before["uuid"]
    done = host.carve("run", "--session", session, "sh", "-c", "echo $CARVE_SESSION")
    assert done.stdout == session + "\n", done.stderr
    assert host.carve(*one_off, "true").returncode == 0


def test_a_lost_gpu_that_no_daemon_has_seen_is_unknown_until_it_answers(host):
    host.carve("sim", "fault", "lost", "--gpu", "1")
    assert states(host) == ["ok", "lost", "ok"]
    assert host.carve_json("gpu", "list")[1]["name"] == "unknown"
    host.carve("sim", "fault", "lost", "--clear")
    wait_until(lambda: states(host) == ["ok"] * 3)
    shown = host.carve_json("gpu", "list")
    assert len({g["name"] for g in shown}) == 1 and len({g["uuid"] for g in shown}) == 3
    host.carve_json("session", "request", "--vram", "4", "--gpu-ids", "1")


NO_FIGURES = "NVML gives no memory figures for it (unified memory has none): carve cannot make slices of it"
NVML_NOT_SUPPORTED, NVML_RESET_REQUIRED, NVML_UNKNOWN = 3, 16, 999


def memory_fails(host, error):
    """NVML answers so about the memory of GPU 0."""
    for call in "nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2":
        assert host.carve("sim", "fault", "nvml", "--gpu", "0", "--call", call, "--error", error).returncode == 0


@pytest.mark.parametrize("begins", ["before the daemon", "later"])
def test_a_gpu_whose_nvml_has_no_memory_figures_is_told_as_that(make_host, begins):
    """As of unified memory. Its name is known all the same, other GPUs are used, and nobody is told to restart the host."""
    host = make_host("thor-128gb,h100-80gb")
    if begins == "later":
        assert states(host) == ["ok"] * 2
    memory_fails(host, NVML_NOT_SUPPORTED)
    assert states(host) == ["unsupported", "ok"]
    gpu = host.carve_json("gpu", "list")[0]
    assert (gpu["name"], gpu["state_reason"]) == ("NVIDIA Thor", NO_FIGURES)
    listed = host.carve("gpu", "list").stdout
    assert f"GPU 0 is unsupported since {gpu['state_since']}: {NO_FIGURES}\n" in listed and "dmesg" not in listed
    done = host.carve("session", "request", "--vram", "4", "--gpu-ids", "0")
    assert done.returncode == 3 and done.stderr.endswith(f": GPU 0 (NVIDIA Thor): {NO_FIGURES}\n")
    assert host.carve("run", "--ephemeral", "--vram", "4", "true").returncode == 0
    done = host.carve("check", "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 0, found["missing"]
    note, = (c for c in found["conditions"] if c["name"] == "figures")
    assert note["state"] == "note" and NO_FIGURES in note["message"]
    assert f"unsupported since {gpu['state_since']}: {NO_FIGURES}" == found["gpus"][0]["state_text"]
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text()
    assert f'state=unsupported before={"ok" if begins == "later" else "new"} error="{NO_FIGURES}"' in log
    host.carve("sim", "fault", "nvml", "--clear")
    wait_until(lambda: states(host) == ["ok"] * 2)


@pytest.mark.parametrize("error, said", [(NVML_RESET_REQUIRED, "it needs a reset (nvidia-smi --gpu-reset)"), (NVML_UNKNOWN, "the driver cannot reach it")])
def test_a_failing_gpu_is_told_with_the_drivers_reason(host, error, said):
    assert states(host) == ["ok"] * 3
    session = host.carve_json("session", "request", "--vram", "4", "--gpu-ids", "0")["id"]
    memory_fails(host, error)
    assert states(host) == ["failing", "ok", "ok"]
    since = host.carve_json("gpu", "list")[0]["state_since"]
    assert f"GPU 0 is failing since {since}: {said}; dmesg may say why\n" in host.carve("gpu", "list").stdout
    refused = host.carve("run", "--ephemeral", "--vram", "4", "--gpu-ids", "0", "true").stderr
    assert refused.endswith(f": GPU 0 (NVIDIA H100 80GB HBM3): {said}\n"), refused
    assert f"GPU 0 is failing ({said}): nothing can be begun there" in host.carve_json("session", "show", session)["reason"]
    done = host.carve("check")
    assert done.returncode == 1 and f"GPU 0 is failing since {since}: {said}; " in done.stdout
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text()
    assert f'state=failing before=ok error="{said}"' in log and "temporarily unavailable" not in log


def test_a_gpu_in_mig_mode_without_the_role_says_so(make_host):
    host = make_host("h100-80gb+mig,h100-80gb")
    assert states(host) == ["mig", "ok"]
    assert ("  state:    mig: no slices of it are granted in MIG mode; carve node set-role --dynamic-mig-enabled lets carve make "
            "instances of it\n") in host.carve("check").stdout
    refused = host.carve("session", "request", "--vram", "4", "--gpu-ids", "0")
    assert refused.returncode == 3 and "; carve node set-role --dynamic-mig-enabled lets carve make instances of" in refused.stderr


def test_gpus_of_another_daemon_are_held_until_it_ends(host):
    assert states(host) == ["ok"] * 3
    with tempfile.TemporaryDirectory() as other:
        env = {"CARVE_RUNTIME_DIR": other}
        assert states(host, env=env) == ["held"] * 3
        holder = f"held by another daemon (process {host.daemon_pid()} of "
        assert f"  state:    held: {holder}" in host.carve("check", env=env).stdout
        assert holder in host.carve("top", "--once", env=env).stdout
        os.kill(host.daemon_pid(), 15)
        wait_until(lambda: states(host, env=env) == ["ok"] * 3)
        os.kill(int(pathlib.Path(other, "lock").read_text().split()[0]), 15)
        wait_until(lambda: not os.path.exists(other + "/carved.sock"))
