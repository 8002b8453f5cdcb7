"""carved alone over a fake driver: sizes, placement, waiting, sessions, quotas."""
import datetime
import grp
import json
import os
import pathlib
import random
import re
import socket
import subprocess
import threading
import time

import pytest

from conftest import BUILD, clean_env, needs_admin, wait_until
from daemon_client import *
from own_daemon import Asker, ask_in_child, daemon, make_daemon, set_quota, waiting  # noqa: F401: fixtures


SLEEPER = ["sleep", "1000"]


# ---- sizes and grants ----

@pytest.mark.parametrize("size, expected", [
    ({"vram": "2.5"}, 2684354560), ({"vram": "2560MiB"}, 2684354560),
    ({"vram": "2684.35456MB"}, 2684354560), ({"gpu_memory": "4G"}, 4000000000),
    ({"gpu_memory": "4Gi"}, 4294967296), ({"vram_bytes": 123456789}, 123456789),
    ({"gpu": "0.25"}, 20 * GIB), ({"gpu": 0.5}, 40 * GIB), ({"gpu": "1"}, 80 * GIB),
    ({"gpu": 1}, 80 * GIB)])
def test_sizes(daemon, size, expected):
    session = daemon.grant(**size)
    assert session["vram_bytes"] == session["requested_bytes"] == expected
    assert session["gpus"][0]["vram_bytes"] == expected
    assert not session["tolerance_applied"] and session["state"] == "active"
    assert daemon.gpu()["available_bytes"] == 80 * GIB - expected
    assert daemon.gpu()["sessions"] == 1
    assert daemon.show(session["id"]) == session
    assert daemon.release(session["id"]).json == {"id": session["id"], "state": "released"}
    assert daemon.gpu()["available_bytes"] == 80 * GIB
    assert daemon.call("GET", "/v1/sessions").json == []
    ended = daemon.call("GET", "/v1/sessions?all=1").json
    assert [s["state"] for s in ended] == ["ended"] and ended[0]["reason"] == "released"
    assert daemon.show(session["id"])["state"] == "ended"


def test_tolerance(make_daemon):
    daemon = make_daemon(gpus=[(81559 * MIB, 0, 0, "H100")])
    for _ in range(15):
        assert not daemon.grant(vram="5")["tolerance_applied"]
    refused = daemon.request(vram="5")
    assert refused.status == 409 and refused.error["code"] == 3
    assert "4.64 GiB of 79.64 GiB free" in refused.error["message"]
    granted = daemon.grant(vram="4.9")
    assert granted["tolerance_applied"] and granted["vram_bytes"] == 4759 * MIB
    assert granted["requested_bytes"] == int(4.9 * GIB)
    # A new size is asked for as it is: what the first one was is forgotten, by a new daemon too.
    resized = daemon.call("PATCH", f"/v1/sessions/{granted['id']}", {"vram": "3"}).json
    assert resized["requested_bytes"] == resized["vram_bytes"] == 3 * GIB and not resized["tolerance_applied"]
    daemon.restart()
    assert not daemon.show(granted["id"])["tolerance_applied"]
    daemon.release(granted["id"])
    assert daemon.request(vram="4.9", vram_strict=True).status == 409


def test_memory_held_outside_is_not_promised(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 1 * GIB, 30 * GIB, "H100")])
    assert daemon.gpu()["available_bytes"] == 49 * GIB
    refused = daemon.request(vram="60")
    assert "programs outside carve hold 30 GiB" in refused.error["message"]
    daemon.gpus[0] = (80 * GIB, 1 * GIB, 0, "H100")
    daemon.write_state()
    time.sleep(0.25)  # figures that old are trusted
    assert daemon.grant(vram="60")["vram_bytes"] == 60 * GIB


@pytest.mark.parametrize("asked, lead", [
    ({"vram": "1", "gpus": 3}, "3 GPUs asked, there are 2: GPU 0 (A): "),
    ({"gpu": "3"}, "3 GPUs asked, there are 2: "),
    ({"vram": "1", "gpus": 2, "gpu_ids": "1"}, "2 GPUs asked, --gpu-ids names 1: GPU 1 (B): "),
    ({"vram": "41", "gpus": 2}, "41 GiB on each of 2 GPUs is more than there is: ")])
def test_a_refusal_leads_with_its_reason(make_daemon, asked, lead):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "A"), (40 * GIB, 0, 0, "B")])
    refused = daemon.request(**asked, vram_strict=True)
    assert refused.status == 409 and refused.error["code"] == 3
    assert refused.error["message"].startswith(lead)


def test_several_gpus_and_ids(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "A"), (40 * GIB, 0, 0, "B"), (40 * GIB, 0, 0, "C")])
    pair = daemon.grant(vram="30", gpus=2)
    assert [g["index"] for g in pair["gpus"]] == [1, 2]
    assert [g["vram_bytes"] for g in pair["gpus"]] == [30 * GIB] * 2
    chosen = daemon.grant(vram="5", gpu_ids="0")
    assert chosen["gpus"][0]["index"] == 0
    refused = daemon.request(gpu="2")
    assert refused.status == 409 and "not empty" in refused.error["message"]
    daemon.release(pair["id"])
    assert [g["index"] for g in daemon.grant(gpu="2")["gpus"]] == [1, 2]


def test_one_current_session_a_user(daemon):
    first = daemon.request(vram="1", ephemeral=False)
    assert first.status == 201
    second = daemon.request(vram="1", ephemeral=False)
    assert second.status == 409 and first.json["id"] in second.error["message"]
    assert "--name NAME" in second.error["hint"]
    assert daemon.request(vram="1").status == 201
    named = daemon.request(vram="1", ephemeral=False, name="beside")
    assert named.status == 201 and not named.json["current"] and first.json["current"]
    assert daemon.call("GET", "/v1/sessions/current").json["id"] == first.json["id"]
    daemon.release(first.json["id"])
    assert daemon.request(vram="1", ephemeral=False).status == 201


@needs_admin
def test_a_service_keeps_any_number_of_sessions_over_a_restart(daemon):
    kept = [daemon.grant(vram="1", ephemeral=False, kept=True)["id"] for _ in range(3)]
    users = daemon.grant(vram="1", ephemeral=False)["id"]
    daemon.restart()
    assert all(daemon.show(id)["kept"] and daemon.show(id)["state"] == "active" for id in kept)
    refused = daemon.request(vram="1", ephemeral=False)
    assert refused.status == 409 and users in refused.error["message"]
    assert daemon.release(kept[0]).status == 200
    assert daemon.request(vram="1", ephemeral=True, kept=True).status == 400


@pytest.mark.usefixtures("another_user")
def test_other_users_see_the_size_only(make_daemon):
    daemon = make_daemon(args=["--system"])
    mine = daemon.grant(vram="7", name="secret")
    os.chmod(daemon.dir, 0o755)
    script = ("import sys, json; sys.path.insert(0, %r)\n"
              "from unix_http import UnixConnection\n"
              "for method, path in json.loads(sys.argv[1]):\n"
              "    c = UnixConnection(%r); c.request(method, path)\n"
              "    r = c.getresponse(); print(json.dumps([r.status, json.loads(r.read())]))\n")
    script %= (str(pathlib.Path(__file__).parents[1]), str(daemon.runtime / "carved.sock"))
    path = f"/v1/sessions/{mine['id']}"
    calls = [["GET", "/v1/sessions"], ["GET", path], ["DELETE", path + "?force=1"], ["PATCH", path],
             ["PUT", "/v1/quotas/user/nobody"], ["DELETE", "/v1/quotas/user/nobody"]]
    done = subprocess.run(["/usr/bin/python3", "-c", script, json.dumps(calls)], user=65534,
                          group=65534, stdout=subprocess.PIPE, env=clean_env(
                              {"PYTHONDONTWRITEBYTECODE": "1"}), timeout=60)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [status for status, _ in answers] == [200, 403, 403, 403, 403, 403]
    shown = answers[0][1][0]
    assert shown["vram_bytes"] == 7 * GIB and shown["id"] is None and shown["owner"] is None
    assert "secret" not in json.dumps(answers) and mine["id"] not in json.dumps(answers[0])
    assert daemon.show(mine["id"])["state"] == "active"
    # Nor of who waits.
    asker = Asker(daemon, vram="80", wait_for=600, name="secret2")
    waits, = wait_until(lambda: waiting(daemon))
    done = subprocess.run([BUILD / "carve", "explain", "--vram", "79"], user=65534, group=65534, text=True,
                          stdout=subprocess.PIPE, env=clean_env({"CARVE_RUNTIME_DIR": str(daemon.runtime)}), timeout=60)
    assert "\nahead of it: another user's (80 GiB)\n" in done.stdout and waits["id"] not in done.stdout
    daemon.release(waits["id"])
    asker.join(60)


def test_no_gpu(make_daemon):
    daemon = make_daemon(gpus=[])
    assert daemon.call("GET", "/v1/gpus").json == []
    refused = daemon.request(vram="1")
    assert refused.status == 409 and refused.error["code"] == 3
    assert refused.error["message"].startswith("no GPU found: ")
    assert "carve sim" in refused.error["hint"]


def test_any_number_of_processes_is_read(daemon):
    """More than fit into one answer of the driver, as of a user who starts many that hold little each."""
    daemon.processes = [(0, pid, MIB) for pid in range(100000, 104000)]
    daemon.write_state()
    assert daemon.call("GET", "/v1/gpus").json[0]["outside_bytes"] == 4000 * MIB
    daemon.grant(vram="1")


def test_driver_that_fails_gets_nothing_promised(daemon):
    daemon.failing = True
    daemon.write_state()
    time.sleep(0.25)
    refused = daemon.request(vram="1")
    assert refused.status == 409 and refused.error["code"] == 3
    assert refused.error["message"] == "no GPU can be had: GPU 0 (Fake H100): the driver cannot reach it"
    daemon.failing = False
    daemon.write_state()
    time.sleep(0.25)
    daemon.grant(vram="1")


# ---- waiting ----

def test_waiting_is_first_come(daemon):
    full = daemon.grant(vram="80")
    askers = []
    for i in range(4):
        askers.append(Asker(daemon, vram="40", wait_for=600, name=f"n{i}"))
        wait_until(lambda: len(waiting(daemon)) == i + 1)
    shown = waiting(daemon)
    assert [s["position"] for s in shown] == [1, 2, 3, 4]
    assert "not enough GPU memory for 40 GiB" in shown[0]["reason"]
    daemon.release(full["id"])
    for a in askers[:2]:
        a.join(60)
        assert a.answer.status == 201
    assert [s["name"] for s in waiting(daemon)] == ["n2", "n3"]
    daemon.release(askers[0].answer.json["id"])
    askers[2].join(60)
    assert askers[2].answer.status == 201 and askers[3].is_alive()
    daemon.release(askers[1].answer.json["id"])
    askers[3].join(60)
    assert askers[3].answer.status == 201


def test_waiting_times_out_with_the_reason(daemon):
    daemon.grant(vram="80")
    start = time.monotonic()
    refused = daemon.request(vram="40", wait_for=0.5)
    assert time.monotonic() - start > 0.4
    assert refused.status == 409 and refused.error["code"] == 3
    message, hint = refused.error["message"], refused.error["hint"]
    assert "GPU 0 (Fake H100): 0 B of 80 GiB free" in message
    assert re.match(r"waited [\d.]+ m?s in vain: not enough GPU memory for 40 GiB", message), message
    assert "--wait-for" not in hint and "wait longer" in hint
    at_once = daemon.request(vram="40")
    assert "--wait-for" in at_once.error["hint"] and "waited" not in at_once.error["message"]


def test_an_impossible_request_does_not_wait(daemon):
    assert daemon.request(vram="100", wait_for=600).status == 409


def test_a_waiting_client_that_goes_is_forgotten(daemon):
    full = daemon.grant(vram="80")
    s = socket.socket(socket.AF_UNIX)
    s.connect(str(daemon.runtime / "carved.sock"))
    body = b'{"vram": "80", "wait_for": 60, "ephemeral": true}'
    s.send(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    wait_until(lambda: waiting(daemon))
    s.close()
    wait_until(lambda: not waiting(daemon))
    daemon.release(full["id"])
    daemon.grant(vram="80")


def test_a_big_request_is_not_passed_for_ever(daemon):
    base = daemon.grant(vram="40")
    big = Asker(daemon, vram="70", wait_for=600)
    wait_until(lambda: waiting(daemon))
    passed = 0
    for _ in range(40):
        small = daemon.request(vram="1")
        if small.status != 201:
            break
        passed += 1
        daemon.release(small.json["id"])
    assert passed == 16
    assert "go first" in small.error["message"]
    daemon.release(base["id"])
    big.join(60)
    assert big.answer.status == 201
    daemon.grant(vram="1")


def test_nor_by_sessions_that_grow(daemon):
    first, base = daemon.grant(vram="10"), daemon.grant(vram="40")
    path = f"/v1/sessions/{first['id']}"
    big = Asker(daemon, vram="60", wait_for=600)
    wait_until(lambda: waiting(daemon) and waiting(daemon)[0]["reason"])
    grown = 0
    for _ in range(40):
        answer = daemon.call("PATCH", path, {"vram": "11"})
        if answer.status != 200:
            break
        grown += 1
        assert daemon.call("PATCH", path, {"vram": "10"}).status == 200
    assert grown == 16 and answer.status == 409 and answer.error["code"] == 3
    assert "go first" in answer.error["message"]
    assert daemon.call("PATCH", path, {"vram": "9"}).status == 200  # less is always right
    daemon.release(base["id"])
    big.join(60)
    assert big.answer.status == 201
    assert daemon.call("PATCH", path, {"vram": "11"}).status == 200


def test_a_big_request_is_served_under_a_stream_of_small_ones(make_daemon):
    """However the small ones come and go: without a bound on passing, none of the big ones ever found the GPU
    empty, as some small one is always on it."""
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "A"), (24 * GIB, 0, 0, "B")])
    over = threading.Event()
    served = [0]

    def small(seed):
        dice, held = random.Random(seed), None
        while not over.is_set():
            answer = daemon.request(vram=str(dice.choice([1, 2, 4])), gpu_ids="0",
                                    wait_for=dice.choice([0, 0.1]))
            if held:  # given back only when the next one is there
                daemon.release(held)
            held = answer.json["id"] if answer.status == 201 else None
            served[0] += bool(held)
        if held:
            daemon.release(held)

    threads = [threading.Thread(target=small, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    try:
        for kind in ({"gpu": "1", "gpu_ids": "0"}, {"vram": "80"}, {"vram": "24", "gpus": 2}):
            wait_until(lambda: served[0] > 20)
            big = daemon.request(wait_for=600, **kind)
            assert big.status == 201, big.json
            daemon.release(big.json["id"])
            served[0] = 0
    finally:
        over.set()
        for t in threads:
            t.join()


def test_a_request_that_waits_for_figures_is_not_overtaken(daemon):
    """A request that only waits until the driver has said what is free is no reason to refuse others."""
    daemon.delay = 25
    daemon.write_state()
    time.sleep(0.4)
    askers = [Asker(daemon, vram="1")]  # the figures are old: a sample is taken
    time.sleep(0.04)
    askers += [Asker(daemon, vram="1")]  # this one waits for the sample after it
    askers[0].join(60)
    connection = UnixConnection(daemon.runtime / "carved.sock")
    statuses = []
    for _ in range(40):  # and these find figures that are new enough
        connection.request("POST", "/v1/sessions", '{"vram": "1", "ephemeral": true}')
        response = connection.getresponse()
        response.read()
        statuses.append(response.status)
    connection.close()
    askers[1].join(60)
    assert statuses == [201] * 40
    assert [a.answer.status for a in askers] == [201, 201]


def test_a_waiting_request_can_be_released(daemon):
    daemon.grant(vram="80")
    asker = Asker(daemon, vram="40", wait_for=600)
    wait_until(lambda: waiting(daemon))
    assert daemon.release(waiting(daemon)[0]["id"]).status == 200
    asker.join(60)
    assert asker.answer.status == 409


@needs_admin
def test_priorities(daemon):
    full = daemon.grant(vram="80")
    low = Asker(daemon, vram="80", wait_for=600, priority=-5, name="low")
    wait_until(lambda: len(waiting(daemon)) == 1)
    plain = Asker(daemon, vram="80", wait_for=600, name="plain")
    wait_until(lambda: len(waiting(daemon)) == 2)
    high = Asker(daemon, vram="80", wait_for=600, priority=100, name="high")
    wait_until(lambda: len(waiting(daemon)) == 3)
    assert [s["name"] for s in waiting(daemon)] == ["high", "plain", "low"]
    for asker in (high, plain, low):
        daemon.release(full["id"])
        asker.join(60)
        full = asker.answer.json
        assert asker.answer.status == 201
    assert daemon.request(vram="1", priority=101).status == 400


def test_explain(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 10 * GIB, "A"), (24 * GIB, 0, 0, "B")])
    daemon.grant(vram="20", gpu_ids="1")
    explain = lambda **body: daemon.call("POST", "/v1/explain", body)
    yes = explain(vram="30").json
    assert yes["granted"] and yes["on"] == [{"index": 0, "vram_bytes": 30 * GIB}]
    assert [g["reason"] for g in yes["gpus"]] == ["fits", "no_memory"]
    no = explain(vram="78").json
    assert not no["granted"] and no["on"] == []
    assert "programs outside carve hold 10 GiB" in no["gpus"][0]["message"]
    assert no["gpus"][1]["message"] == "4 GiB of 24 GiB free"
    assert explain(vram="1", gpu_ids="1").json["gpus"][0]["reason"] == "not_allowed"
    assert explain(gpu="2").json["gpus"][1]["reason"] == "not_empty"
    assert explain(vram="x").status == 400
    assert len(daemon.call("GET", "/v1/sessions").json) == 1  # it takes nothing


def test_memory_that_frees_outside_ends_a_wait(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 60 * GIB, "H100")])
    asker = Asker(daemon, vram="40", wait_for=600)
    wait_until(lambda: waiting(daemon))
    daemon.gpus[0] = (80 * GIB, 0, 0, "H100")
    daemon.write_state()
    asker.join(60)
    assert asker.answer.status == 201


def test_a_slow_driver_is_not_asked_all_the_time(make_daemon):
    """While it answers, programs' own calls may wait in it: a request that waits for others' memory takes some of its time."""
    daemon = make_daemon(gpus=[(80 * GIB, 0, 60 * GIB, "H100")])
    asker = Asker(daemon, vram="40", wait_for=600)
    wait_until(lambda: waiting(daemon))
    daemon.delay, calls = 20, daemon.dir / "state.calls"
    daemon.write_state()
    wait_until(calls.exists)
    began, before = time.monotonic(), len(calls.read_text())
    time.sleep(2)
    told = calls.read_text()[before:]
    assert "m" in told and len(told) * 0.02 < 0.4 * (time.monotonic() - began)
    daemon.gpus[0] = (80 * GIB, 0, 0, "H100")
    daemon.write_state()
    asker.join(60)
    assert asker.answer.status == 201


# ---- the life of sessions ----

def test_session_timeout(daemon):
    session = daemon.grant(vram="1", session_timeout=0.6)
    assert session["ends_at"]
    wait_until(lambda: daemon.call("GET", "/v1/sessions").json == [])
    assert daemon.show(session["id"])["reason"] == "its time of 600ms was up"


def test_one_off_ends_with_its_owner(daemon):
    child, session = ask_in_child(daemon, {"vram": "1", "ephemeral": True}, "")
    assert daemon.show(session["id"])["state"] == "active"
    child.kill()
    child.wait()
    wait_until(lambda: daemon.show(session["id"])["state"] == "ended")


def test_a_session_does_not_end_with_its_owner(daemon):
    child, session = ask_in_child(daemon, {"vram": "1"}, "")
    child.kill()
    child.wait()
    time.sleep(0.3)
    assert daemon.show(session["id"])["state"] == "active"


def test_one_off_lives_while_a_command_or_an_attached_process_does(daemon):
    child, session = ask_in_child(daemon, {"vram": "1", "ephemeral": True}, "")
    command = Attached(daemon)
    assert command.ask(COMMAND, session["id"])[0] == OK  # this process, that is
    command.close()
    child.kill()
    child.wait()
    time.sleep(0.3)
    assert daemon.show(session["id"])["state"] == "active"
    daemon.release(session["id"])


def test_resize(daemon):
    session = daemon.grant(vram="10")
    path = f"/v1/sessions/{session['id']}"
    assert daemon.call("PATCH", path, {"vram": "20"}).json["vram_bytes"] == 20 * GIB
    assert daemon.gpu()["available_bytes"] == 60 * GIB
    refused = daemon.call("PATCH", path, {"vram": "81"})
    assert refused.status == 409 and refused.error["code"] == 3
    assert daemon.call("PATCH", path, {"vram": "20", "name": "x"}).status == 400
    assert daemon.call("PATCH", path, {"gpu": "0.5"}).json["vram_bytes"] == 40 * GIB
    daemon.restart()
    assert daemon.show(session["id"])["vram_bytes"] == 40 * GIB


def test_a_limit_lowers_a_session_and_raises_nothing(daemon):
    session = daemon.grant(vram="10", gpu_compute="50%")
    path = f"/v1/sessions/{session['id']}"

    def lower(**body):
        answer = daemon.call("PATCH", path, {"lower": True, **body})
        assert answer.status == 200, answer.error
        return answer.json["vram_bytes"], answer.json["compute_request"]

    assert lower(vram="20", gpu_compute="80%") == (10 * GIB, 0.5)
    assert lower(vram="4") == (4 * GIB, 0.5)
    assert lower(vram="8", gpu_compute="20%") == (4 * GIB, 0.2)
    for body in ({"gpu": "0.1"}, {"vram": "0.01"}, {"vram": "many"}, {}):
        assert daemon.call("PATCH", path, {"lower": True, **body}).status == 400
    daemon.restart()
    assert daemon.show(session["id"])["vram_bytes"] == 4 * GIB
    bare = daemon.grant(vram="1")
    path = f"/v1/sessions/{bare['id']}"
    assert lower(vram="2", gpu_compute="30%") == (1 * GIB, 0.3)


def test_a_name_stands_for_the_id(daemon):
    first = daemon.grant(vram="1", name="train.1")
    path = "/v1/sessions/train.1"
    assert daemon.show("train.1") == first
    assert daemon.call("PATCH", path, {"vram": "2"}).json["vram_bytes"] == 2 * GIB
    refused = daemon.request(vram="1", name="train.1")
    assert refused.status == 409
    assert refused.error["message"] == f"your session {first['id']} is called train.1 already"
    daemon.restart()
    assert daemon.request(vram="1", name="train.1").status == 409
    assert daemon.release("train.1").json["id"] == first["id"]
    assert daemon.show("train.1")["state"] == "ended"
    second = daemon.grant(vram="80", name="train.1")
    assert daemon.show("train.1")["id"] == second["id"] != first["id"]
    asker = Asker(daemon, vram="1", name="next", wait_for=600)
    wait_until(lambda: waiting(daemon))
    assert daemon.show("next")["state"] == "waiting"
    assert "is called next already" in daemon.request(vram="1", name="next", wait_for=600).error["message"]
    assert daemon.release("next").status == 200
    asker.join(60)
    assert asker.answer.status == 409
    daemon.release("train.1")
    assert daemon.show("train.1")["id"] == second["id"]  # of two that ended the later one


def test_history_says_who_had_what_when(daemon):
    session = daemon.grant(vram="3", name="job")
    daemon.release(session["id"])
    ended, = daemon.call("GET", "/v1/sessions?all=1").json
    assert ended["owner"] == session["owner"] and ended["vram_bytes"] == 3 * GIB
    assert ended["created"] == session["created"] <= ended["ended"] and ended["name"] == "job"
    assert ended["received"] is None and ended["gpus"][0]["peak_bytes"] == 0


def test_history_is_bounded(make_daemon, tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"history_sessions": 40}')
    daemon = make_daemon(args=["--config", config])

    def ended():
        return [s["name"] for s in daemon.call("GET", "/v1/sessions?all=1").json]

    for i in range(300):
        daemon.release(daemon.grant(vram="1", name=f"n{i}")["id"])
    assert ended() == [f"n{i}" for i in range(260, 300)]
    config.write_text('{"history_sessions": 3}')
    daemon.reload()
    wait_until(lambda: "config.read" in daemon.log())
    daemon.release(daemon.grant(vram="1", name="last")["id"])
    assert ended() == ["n298", "n299", "last"]
    assert [s["gpus"] != [] for s in daemon.call("GET", "/v1/sessions?all=1").json] == [True] * 3


def test_a_sessions_requested_share_of_time_is_kept_and_shown(daemon):
    """Kept in mode off too, and changed by a resize to a fraction."""
    half = daemon.grant(gpu="0.5")
    assert half["compute_request"] == 0.5
    assert daemon.grant(vram="1")["compute_request"] == 0
    assert daemon.grant(vram="1", gpu_compute="30%")["compute_request"] == 0.3
    assert daemon.grant(gpu="0.1", gpu_compute="95%")["compute_request"] == 0.95  # nothing is promised
    assert daemon.gpu()["compute_mode"] == "off" and daemon.gpu()["compute_promised"] == 1.75
    path = f"/v1/sessions/{half['id']}"
    assert daemon.call("PATCH", path, {"vram": "10"}).json["compute_request"] == 0.5
    assert daemon.call("PATCH", path, {"gpu": "0.25"}).json["compute_request"] == 0.25
    assert daemon.gpu()["compute_promised"] == 1.5
    daemon.restart()
    assert daemon.show(half["id"])["compute_request"] == 0.25
    assert daemon.gpu()["compute_promised"] == 1.5


# ---- quotas ----

def test_quota_of_memory_sessions_and_gpus(make_daemon):
    me = str(os.geteuid())
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, f"G{i}") for i in range(3)])
    quota = set_quota(daemon, me, vram="16", sessions=3, gpus=2)
    assert quota["vram_bytes"] == 16 * GIB and quota["id"] == os.geteuid()
    first = daemon.grant(vram="10")
    refused = daemon.request(vram="7")
    assert refused.status == 403 and refused.error["code"] == 5
    assert "16 GiB of GPU memory: 10 GiB are held, 7 GiB more" in refused.error["message"]
    assert daemon.request(vram="17", wait_for=600).status == 403  # never: not waited for
    assert daemon.call("PATCH", f"/v1/sessions/{first['id']}", {"vram": "17"}).status == 403
    two = daemon.grant(vram="1", gpus=2)
    assert daemon.request(vram="1", gpus=3).status == 403
    daemon.grant(vram="1")
    assert "3 sessions" in daemon.request(vram="1").error["message"]
    shown, = daemon.call("GET", "/v1/quotas").json
    assert shown["used"].pop("gpu_hours") < 0.1
    assert shown["used"] == {"vram_bytes": 13 * GIB, "sessions": 3, "gpus": 2}
    daemon.release(two["id"])
    asker = Asker(daemon, vram="6", wait_for=600)  # may come true
    wait_until(lambda: waiting(daemon))
    daemon.release(first["id"])
    asker.join(60)
    assert asker.answer.status == 201
    daemon.restart()
    assert daemon.request(vram="12").status == 403
    assert daemon.call("DELETE", f"/v1/quotas/user/{me}").status == 200
    daemon.grant(vram="12")
    assert daemon.call("GET", "/v1/quotas").json == []


def test_quota_of_a_group_and_nonsense(daemon):
    gid = str(os.getegid())
    set_quota(daemon, gid, kind="group", sessions=1)
    daemon.grant(vram="1")
    name = grp.getgrgid(int(gid)).gr_name
    assert f"your group {name}'s quota is 1 session for all its members together: 1 is held" in daemon.request(vram="1").error["message"]
    for body in ({"vram": -1}, {"vram": "x"}, {"sessions": "4"}, {"colour": 1}, []):
        assert daemon.call("PUT", f"/v1/quotas/group/{gid}", body).status == 400
    assert daemon.call("PUT", "/v1/quotas/user/no-such-user", {"sessions": 1}).status == 404


def test_quotas_hold_under_concurrent_requests(daemon):
    set_quota(daemon, str(os.geteuid()), vram="8")
    askers = [Asker(daemon, vram="1") for _ in range(40)]
    for a in askers:
        a.join(60)
    assert sum(a.answer.status == 201 for a in askers) == 8
    assert sum(a.answer.status == 403 for a in askers) == 32


# ---- sizes as they are shown ----

def test_memory_shown_as_available_can_be_requested(make_daemon):
    """Of 64 GPUs of any size, some of it held outside; what is held then is not shown as less than it is."""
    dice = random.Random(2)
    totals = [dice.randrange(1 << dice.randrange(30, 39)) + GIB for _ in range(64)]
    daemon = make_daemon(gpus=[(total, 0, dice.randrange(total // 2), f"G{i}") for i, total in enumerate(totals)])

    def listed():
        done = subprocess.run([BUILD / "carve", "gpu", "list"], stdout=subprocess.PIPE, text=True, check=True, timeout=60,
                              env=clean_env({"CARVE_RUNTIME_DIR": str(daemon.runtime)}))
        heading, *rows = done.stdout.splitlines()
        at = heading.index("AVAILABLE")
        return [row[at:].split("  ")[0].replace(" ", "") for row in rows]

    exact = [gpu["available_bytes"] for gpu in daemon.call("GET", "/v1/gpus").json]
    for i, text in enumerate(listed()):
        granted = daemon.grant(vram=text, vram_strict=True, gpu_ids=str(i))
        assert granted["vram_bytes"] > exact[i] * 0.98
        shown = subprocess.run([BUILD / "carve", "session", "list"], stdout=subprocess.PIPE, text=True, check=True,
                               env=clean_env({"CARVE_RUNTIME_DIR": str(daemon.runtime)}), timeout=60).stdout
        assert text in shown.replace(" ", ""), (text, shown)
        daemon.release(granted["id"])


def test_the_history_comes_in_parts(daemon):
    """Each ended session is in one part, in the order of their ends; the living are in the last."""
    ended = []
    for _ in range(150):
        ended.append(daemon.grant(vram="1")["id"])
        assert daemon.release(ended[-1]).status == 200
    living = daemon.grant(vram="1")["id"]
    listed, page, sizes = [], "", []
    while page is not None:
        answer = daemon.call("GET", f"/v1/sessions?all=1&page={page}")
        assert answer.status == 200
        listed += [session["id"] for session in answer.json["sessions"]]
        sizes.append(len(answer.json["sessions"]))
        page = answer.json["next"]
    assert listed == [*ended, living]
    assert len(sizes) == 3 and max(sizes) <= 64
    newest = [session["id"] for session in daemon.call("GET", "/v1/sessions?all=1").json]
    assert newest == [*ended[-128:], living]
    for wrong in "x", "1.2", "1.2.3.4", "1.2.x", "-", "1.2.3%20":
        assert daemon.call("GET", f"/v1/sessions?all=1&page={wrong}").status == 400


@pytest.mark.once("a preloaded library stands before the sanitizers' own")
def test_a_clock_that_is_set_ends_no_session_early(make_daemon, monkeypatch, tmp_path):
    ahead, env = tmp_path / "ahead", Daemon.env
    monkeypatch.setattr(Daemon, "env", lambda self: {
        **env(self), "LD_PRELOAD": str(BUILD / "tests/programs/libset_clock.so"), "SET_CLOCK": str(ahead)})
    daemon = make_daemon()
    session = daemon.grant(vram="1", ephemeral=False, session_timeout=3600)
    endless = daemon.grant(vram="1")["id"]

    def set_clock(seconds):
        (tmp_path / "new").write_text(str(seconds))
        (tmp_path / "new").rename(ahead)

    def ends_at():
        return datetime.datetime.fromisoformat(daemon.show(session["id"])["ends_at"].replace("Z", "+00:00"))

    def is_seen(step):
        """The daemon reads two clocks one after the other, and may be interrupted in between."""
        return any(abs(float(seconds) - step) < 60 for seconds in re.findall(r"clock\.set seconds=(\S+)", daemon.log()))

    before = ends_at()
    for seconds, step in ((7200, 7200), (-86400, -93600)):
        set_clock(seconds)
        wait_until(lambda: is_seen(step))
        assert abs((ends_at() - before).total_seconds() - seconds) < 60
    daemon.restart()
    assert abs((ends_at() - before).total_seconds() + 86400) < 60
    assert daemon.show(session["id"])["state"] == "active" and daemon.show(endless)["ends_at"] is None
