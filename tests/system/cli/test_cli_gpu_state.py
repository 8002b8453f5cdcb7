"""The state of each GPU, wherever GPUs are shown: since when it is lost, held by another daemon, in MIG mode."""
import json
import os
import pathlib
import re
import tempfile

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
