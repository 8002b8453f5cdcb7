"""MIG mode is switched while the daemon lives: it sees that by itself, and what it offers follows."""
import json
import pathlib
import signal
import time

import pytest

from conftest import BUILD, PATIENCE, wait_until
from daemon_client import *
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures
from programs import python

OFF, ON, TO_BE_ON, TO_BE_OFF = (False, False, False), (True, True, False), (False, True, False), (True, False, False)
HIDDEN = (True, True, True)


def switch(host, *modes):
    done = host.run(python("mig_switch", *modes), timeout=120)
    assert done.returncode == 0, done.stderr


def mode_is(daemon, mode):
    """Of GPU 0, whose figures are asked for: who requests something is content with those of 0.2 s ago."""
    daemon.mig[0] = mode
    daemon.write_state()
    assert daemon.gpu()["mig"] == mode[0]


def switches(log):
    return [line.split("mode=")[1] for line in log.splitlines() if " gpu.mig " in line]


def log_of(host):
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log")
    return log.read_text() if log.exists() else ""


def two_gpus(make_daemon, args=()):
    return make_daemon(gpus=[(80 * GIB, 0, 0, f"Fake H{i}") for i in range(2)], args=args)


def test_a_gpu_is_offered_or_not_by_its_mode_of_now(make_daemon):
    daemon = two_gpus(make_daemon)
    mode_is(daemon, ON)
    first, second = daemon.call("GET", "/v1/gpus").json
    assert [first["mig"], first["available_bytes"]] == [True, 0]
    assert [second["mig"], second["available_bytes"]] == [False, 80 * GIB]
    refused = daemon.request(vram="4", gpu_ids="0")
    assert refused.status == 409 and "in MIG mode" in refused.error["message"]
    for _ in range(2):
        assert daemon.grant(vram="30")["gpus"][0]["index"] == 1
    mode_is(daemon, OFF)
    assert daemon.grant(vram="30")["gpus"][0]["index"] == 0


def test_a_request_goes_by_the_mode_of_now(daemon):
    for mode, status in ((ON, 409), (OFF, 201)) * 2:
        daemon.mig[0] = mode
        daemon.write_state()
        time.sleep(0.2)
        assert daemon.request(vram="4").status == status


def test_a_pending_mig_mode_is_not_in_force_yet(daemon):
    mode_is(daemon, TO_BE_ON)
    assert daemon.release(daemon.grant(vram="4")["id"]).status == 200
    mode_is(daemon, ON)
    mode_is(daemon, TO_BE_OFF)
    assert daemon.request(vram="4").status == 409
    mode_is(daemon, OFF)
    daemon.grant(vram="4")
    assert switches(daemon.log()) == ["on", "off"]


def test_while_a_gpu_does_not_answer_its_mode_is_as_before(daemon):
    mode_is(daemon, ON)
    daemon.failing = True
    daemon.write_state()
    assert daemon.gpu()["mig"]
    daemon.failing = False
    daemon.write_state()
    assert daemon.gpu()["mig"] and switches(daemon.log()) == ["on"]


def test_memory_that_only_root_is_told_is_learned_when_the_mode_is_left(make_daemon):
    """The driver tells others nothing of the memory of a GPU in MIG mode: it is a GPU all the same."""
    daemon = two_gpus(make_daemon)
    mode_is(daemon, HIDDEN)
    daemon.restart()
    first, second = daemon.call("GET", "/v1/gpus").json
    assert [first["mig"], first["available_bytes"], first["used_bytes"]] == [True, 0, None]
    assert [second["index"], second["available_bytes"]] == [1, 80 * GIB]
    mode_is(daemon, OFF)
    assert daemon.gpu()["memory_bytes"] == daemon.gpu()["available_bytes"] == 80 * GIB
    assert daemon.grant(gpu="1", gpu_ids="0")["vram_bytes"] == 80 * GIB


def test_a_session_stays_and_goes_on(daemon):
    session = daemon.grant(vram="20", ephemeral=False)
    assert session["reason"] == ""
    mode_is(daemon, ON)
    assert daemon.gpu()["sessions"] == 1
    for _ in range(2):
        now = daemon.show(session["id"])
        assert now["state"] == "active" and now["reason"].startswith("GPU 0 is in MIG mode now: ")
        assert now["gpus"] == session["gpus"]
        grown = daemon.call("PATCH", f"/v1/sessions/{session['id']}", {"vram": "21"})
        assert grown.status == 409 and grown.error["message"] == "cannot grow: GPU 0 is in MIG mode"
        daemon.restart()
        assert daemon.gpu()["mig"]
    assert daemon.call("PATCH", f"/v1/sessions/{session['id']}", {"vram": "10"}).json["vram_bytes"] == 10 * GIB
    mode_is(daemon, OFF)
    assert daemon.gpu()["available_bytes"] == 70 * GIB
    assert daemon.show(session["id"])["reason"] == ""
    assert daemon.call("PATCH", f"/v1/sessions/{session['id']}", {"vram": "30"}).json["vram_bytes"] == 30 * GIB
    mode_is(daemon, ON)
    assert daemon.release(session["id"]).status == 200
    assert daemon.show(session["id"])["reason"] == "released"


def test_a_request_waiting_for_a_gpu_that_went_into_mig_mode_is_told(make_daemon):
    daemon = two_gpus(make_daemon)
    daemon.grant(vram="70", gpu_ids="0")
    asker = Asker(daemon, vram="20", gpu_ids="0", wait_for=600)
    wait_until(lambda: waiting(daemon))
    mode_is(daemon, ON)
    asker.join(PATIENCE)
    assert asker.answer.status == 409 and "in MIG mode" in asker.answer.error["message"]


@pytest.mark.parametrize("by", ["verb", "configuration"])
def test_time_is_sliced_as_was_set(make_daemon, tmp_path, by):
    config = tmp_path / "config.json"
    setting = {"mode": "strict", "lease": "50ms"}
    config.write_text(json.dumps({"timeSlicing": setting} if by == "configuration" else {}))
    daemon = two_gpus(make_daemon, args=["--config", config])
    if by == "verb":
        assert daemon.call("PUT", "/v1/timeslicing", setting).status == 200

    def modes():
        return [(g["mode"], g["lease_ns"]) for g in daemon.call("GET", "/v1/timeslicing").json]

    assert modes() == [("strict", 50_000_000)] * 2
    daemon.grant(vram="4", gpu_compute="60%", gpu_ids="0")
    for restart in (False, True):
        mode_is(daemon, ON)
        assert [m for m, _ in modes()] == ["off", "strict"]
        if restart:
            daemon.restart()
        mode_is(daemon, OFF)
        assert modes() == [("strict", 50_000_000)] * 2
    over = daemon.request(vram="4", gpu_compute="60%", gpu_ids="0")
    assert over.status == 409 and "60% of its time is promised" in over.error["message"]


def test_a_gpu_that_left_mig_mode_is_as_any_other(make_host):
    host = make_host("h100-80gb,a100-80gb+mig")
    assert [g["mig"] for g in host.carve_json("gpu", "list")] == [False, True]
    switch(host, 1, 0)
    first, second = host.carve_json("gpu", "list")
    assert [first["mig"], first["available_bytes"]] == [True, 0]
    assert not second["mig"] and second["available_bytes"] > 79 * GIB
    # The cost of a context there was not known: the request waits for it.
    done = host.carve("run", "--ephemeral", "--gpu-ids", "1", "--vram", "4", "--", *python("context_and_gib"))
    assert done.returncode == 0, done.stderr
    assert wait_until(lambda: host.carve_json("gpu", "list")[1]["context_bytes"]) > 100 * MIB
    assert log_of(host).count("context.learned") == 2
    done = host.carve("session", "request", "--gpu-ids", "0", "--vram", "4")
    assert done.returncode == 3 and "GPU 0 (NVIDIA H100 80GB HBM3): in MIG mode" in done.stderr


def test_a_gpu_that_left_mig_mode_while_another_is_learned_is_learned_too(make_host):
    host = make_host("a100-80gb+mig,h100-80gb")
    assert host.carve("sim", "fault", "hang", "--call", "cuCtxCreate_v2", "--delay", "5", "--count", "1").returncode == 0
    with host.popen([BUILD / "carve", "gpu", "list"]):
        # A list waits until all is learned, but the figures that it asks for are there before.
        wait_until(lambda: "carved.listening" in log_of(host))
        switch(host, 0)
        with host.popen([BUILD / "carve", "gpu", "list"]):
            wait_until(lambda: switches(log_of(host)) == ["off"])
    assert all(g["context_bytes"] for g in host.carve_json("gpu", "list"))
    assert log_of(host).count("context.learned") == 2


def test_a_session_whose_gpu_went_into_mig_mode_says_so_and_goes_on(make_host):
    host = make_host("h100-80gb")
    run = ["run", *python("context_and_gib")]
    assert host.carve("session", "request", "--vram", "4").returncode == 0
    assert host.carve(*run).returncode == 0
    switch(host, 1)
    listed = host.carve("gpu", "list").stdout.splitlines()[-1]
    assert listed == ("GPU 0 is in MIG mode: no slices of it are granted, and 1 session on it cannot use it until that "
                      "is switched off")
    assert "GPU 0 is in MIG mode now" in host.carve("session", "show").stdout
    session, = host.carve_json("session", "list")
    assert "; GPU 0 is in MIG mode now" in host.carve("explain", session["id"]).stdout
    checked = host.carve("check")
    assert checked.returncode == 1 and "GPU 0 went into MIG mode, and 1 session on it cannot" in checked.stdout
    assert host.carve(*run).returncode == 100  # CUDA_ERROR_NO_DEVICE
    switch(host, 0)
    assert host.carve(*run).returncode == 0
    assert "MIG mode" not in host.carve("session", "show").stdout + host.carve("gpu", "list").stdout


def test_while_somebody_is_there_nobody_has_to_ask(make_host):
    host = make_host("h100-80gb")
    with host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "4", "sleep", "1000"]) as running:
        wait_until(lambda: host.carve_json("session", "list"))
        switch(host, 1)
        wait_until(lambda: switches(log_of(host)) == ["on"])
        switch(host, 0)
        wait_until(lambda: switches(log_of(host)) == ["on", "off"])
        running.send_signal(signal.SIGTERM)
