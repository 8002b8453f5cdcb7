"""Drained GPUs: nothing new is granted there, what runs goes on, and everybody who asks is told why."""
import json
import subprocess
import threading

import pytest

from conftest import BUILD, clean_env, needs_admin, run, wait_until
from daemon_client import *
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures

CARVE = BUILD / "carve"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
H100 = (80 * GIB, 0, 0, "Fake H100")
WHY = "a fan is loud; ask Zoë"

pytestmark = needs_admin


@pytest.fixture
def two(make_daemon):
    return make_daemon([H100, H100])


def carve(daemon, *argv, status=0, prefix=()):
    done = run([*prefix, CARVE, *argv, "--host", daemon.runtime / "carved.sock"])
    assert done.returncode == status, (done.returncode, done.stdout, done.stderr)
    return done


def put(daemon, drain, ids=None, status=200, **body):
    answer = daemon.call("PUT", "/v1/drains", {"drain": drain, **({"gpu_ids": ids} if ids else {}), **body})
    assert answer.status == status, answer.json
    return answer.json


def let_others_in(daemon):
    for path, mode in ((daemon.dir, 0o755), (daemon.runtime, 0o755), (daemon.runtime / "carved.sock", 0o666)):
        path.chmod(mode)


def drain(daemon, ids="0", reason=WHY):
    return put(daemon, True, ids, reason=reason)


def states(daemon):
    return [gpu["state"] for gpu in daemon.call("GET", "/v1/gpus").json]


def test_nothing_is_granted_on_a_drained_gpu_until_it_is_resumed(two):
    [row] = drain(two)
    assert [row[k] for k in ("gpu", "state", "sessions", "before")] == [0, "drained", 0, None]
    assert row["drain"]["reason"] == WHY and row["drain"]["by"] and row["drain"]["since"].endswith("Z")
    assert two.grant(vram="4")["gpus"][0]["index"] == 1
    refused = two.request(vram="4", gpu_ids="0")
    assert refused.status == 409 and refused.error["code"] == 3
    assert f"drained by {row['drain']['by']}: {WHY}" in refused.error["message"] and "resumed" in refused.error["hint"]
    assert refused.error["message"].startswith("the GPUs with room for 4 GiB are drained, and nobody knows until when: GPU 0 (")
    assert "GPU 1" not in refused.error["message"] and "less" not in refused.error["hint"]
    waited = two.request(vram="4", gpu_ids="0", wait_for=0.2)
    assert waited.error["hint"].startswith("wait longer, or ask an administrator (carve node resume)"), waited.error
    assert "drained" in two.request(gpu="2").error["message"]
    [row] = put(two, False, "0")
    assert row["drain"] is None and row["before"]["reason"] == WHY and row["state"] == "ok"
    assert two.grant(vram="4", gpu_ids="0")["gpus"][0]["index"] == 0


def test_a_session_there_goes_on_and_does_not_grow(two):
    session = two.grant(vram="4", gpu_ids="0", ephemeral=False)
    drain(two)
    assert states(two) == ["draining", "ok"]
    shown = two.show(session["id"])
    assert WHY in shown["reason"] and shown["state"] == "active"
    grown = two.call("PATCH", f"/v1/sessions/{session['id']}", {"vram": "8"})
    assert grown.status == 409 and WHY in grown.error["message"] and "cannot grow" in grown.error["message"]
    assert two.call("PATCH", f"/v1/sessions/{session['id']}", {"vram": "2"}).json["vram_bytes"] == 2 * GIB
    two.release(session["id"], force=True)
    wait_until(lambda: states(two) == ["drained", "ok"])


def test_a_request_waits_until_the_gpu_is_resumed(daemon):
    drain(daemon)
    asker = Asker(daemon, vram="4", wait_for=600)
    wait_until(lambda: waiting(daemon) and WHY in waiting(daemon)[0]["reason"])
    explained = daemon.call("GET", f"/v1/explain/{waiting(daemon)[0]['id']}").json
    assert explained["possible"] and [g["reason"] for g in explained["gpus"]] == ["drained"]
    put(daemon, False)
    asker.join(60)
    assert asker.answer.status == 201, asker.answer.json


def test_a_request_that_no_gpu_could_ever_grant_is_refused_at_once(daemon):
    drain(daemon)
    refused = daemon.request(vram="90", wait_for=600)
    assert refused.status == 409 and "more than there is" in refused.error["message"]


def test_all_who_look_see_the_reason(two):
    session = two.grant(vram="4", gpu_ids="0", ephemeral=False)
    drain(two, reason="fan")
    assert "draining" in carve(two, "gpu", "list").stdout and "granted there: fan\n" in carve(two, "gpu", "list").stdout
    assert two.gpu(0)["state_reason"] == "fan" and two.gpu(0)["drain"]["reason"] == "fan" and two.gpu(1)["drain"] is None
    assert two.gpu(0)["available_bytes"] == 0
    assert "drained by" in carve(two, "explain", "--vram", "4", "--ephemeral").stdout
    assert "draining: fan" in carve(two, "top", "--once").stdout
    assert "drained by" in carve(two, "session", "show", session["id"]).stdout
    rows = {row["limit"]: row["value"] for row in two.call("GET", "/v1/limits").json["limits"]}
    assert (rows["drained"], rows["placement"]) == ("GPU 0", "pack")
    checked = run([CARVE, "check", "--host", two.runtime / "carved.sock"])
    assert "note:      GPU 0 was drained by" in checked.stdout and ": fan; carve node resume" in checked.stdout
    if subprocess.run([*NOBODY, "test", "-x", CARVE]).returncode == 0:
        let_others_in(two)
        assert "granted there: fan" in carve(two, "gpu", "list", prefix=NOBODY).stdout


# ---- what outlives what ----------------------------------------------------------------------------

def test_a_drain_outlives_the_daemon_and_a_gpu_that_is_gone_for_a_while(two):
    drain(two, "1")
    before = two.gpu(1)["drain"]
    two.restart()
    assert two.gpu(1)["drain"] == before and states(two) == ["ok", "drained"]
    two.kill()
    two.gpus.pop()
    two.write_state()
    two.start()
    [row] = two.call("GET", "/v1/drains").json
    assert [row[k] for k in ("gpu", "state", "name", "drain")] == [None, "gone", None, before]
    two.kill()
    two.gpus.append(H100)
    two.write_state()
    two.start()
    assert states(two) == ["ok", "drained"] and two.gpu(1)["drain"] == before


def test_a_drain_outlives_the_life_of_the_host(make_daemon):
    """Sessions of before end then, and drains do not."""
    daemon = make_daemon()
    daemon.grant(vram="4", ephemeral=False)
    drain(daemon)
    daemon.lose()
    run(["/usr/bin/python3", "-c", "import sqlite3, sys; d = sqlite3.connect(sys.argv[1]); d.execute(\"UPDATE host SET boot='before'\"); "
                                   "d.commit()", daemon.runtime / "carve.db"])
    daemon.start()
    assert daemon.all_sessions()[0]["reason"] == "host restarted" and states(daemon) == ["drained"]


def test_resume_without_gpus_forgets_those_that_are_gone(two):
    drain(two, "0-1")
    two.kill()
    two.gpus.pop()
    two.write_state()
    two.start()
    told = carve(two, "node", "resume").stdout
    assert "GPU 0 is resumed; " in told and ", which is gone, is resumed; " in told, told
    assert two.call("GET", "/v1/drains").json == []
    assert carve(two, "node", "resume").stdout == "no GPU is drained\n"


# ---- the verbs -------------------------------------------------------------------------------------

def test_a_second_drain_replaces_the_reason(two):
    carve(two, "node", "drain", "--gpu-ids", "0", "--reason", "fan")
    told = carve(two, "node", "drain", "--reason", "move").stdout
    assert "GPU 0 was drained already" in told and told.rstrip().endswith("is replaced: fan") and "GPU 1 was" not in told
    assert [d["drain"]["reason"] for d in two.call("GET", "/v1/drains").json] == ["move", "move"]
    told = carve(two, "node", "resume", "--gpu-ids", "1").stdout
    assert told.startswith("GPU 1 is resumed; ") and told.endswith(": move\n")
    assert carve(two, "node", "resume", "--gpu-ids", "1").stdout == "GPU 1 was not drained\n"


def test_drain_waits_for_the_last_session(two):
    session = two.grant(vram="4", gpu_ids="0", ephemeral=False)
    words = [CARVE, "node", "drain", "--gpu-ids", "0", "--reason", "fan", "--wait", "--host", two.runtime / "carved.sock"]
    waits = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_env())
    assert waits.stderr.readline() == "carve: waiting for 1 session to end (Ctrl-C ends the wait, and not the drain)\n"
    two.restart()  # and the wait goes on
    two.release(session["id"], force=True)
    out, err = waits.communicate(timeout=60)
    assert waits.returncode == 0 and "drained" in out and "draining" not in out, (out, err)


def test_drain_ends_its_wait_where_somebody_resumes_the_gpu(two):
    two.grant(vram="4", gpu_ids="0", ephemeral=False)
    words = [CARVE, "node", "drain", "--gpu-ids", "0", "--reason", "fan", "--wait", "--host", two.runtime / "carved.sock"]
    waits = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=clean_env())
    waits.stderr.readline()
    put(two, False, "0")
    out, err = waits.communicate(timeout=60)
    assert waits.returncode == 1 and err == "carve: GPU 0 was resumed before it was empty\n" and out == ""


@pytest.mark.parametrize("argv, code, words", [
    (["drain", "--gpu-ids", "0"], 2, ["no reason given", "--reason"]),
    (["drain", "--reason", ""], 2, ["1 to 128 bytes"]),
    (["drain", "--reason", "  "], 2, ["1 to 128 bytes"]),
    (["drain", "--reason", "x" * 129], 2, ["1 to 128 bytes"]),
    (["drain", "--reason", "a\nb"], 2, ["1 to 128 bytes"]),
    (["drain", "--reason", "a\x1b[31mb"], 2, ["1 to 128 bytes"]),
    (["drain", "--reason", "a‮b"], 2, ["1 to 128 bytes"]),
    (["drain", "--reason", "\udcff"], 2, ["UTF-8"]),
    (["drain", "--reason", "x", "--gpu-ids", "7"], 2, ["there is no GPU 7"]),
    (["drain", "--reason", "x", "--gpu-ids", "0-"], 2, ["0-"]),
    (["drain", "elsewhere.example", "--reason", "x"], 2, ["is not this host", "kubectl cordon elsewhere.example"]),
    (["resume", "elsewhere.example"], 2, ["is not this host"]),
    (["resume", "--gpu-ids", "7"], 2, ["there is no GPU 7"]),
    (["resume", "--reason", "x"], 2, ["--reason"]),
])
def test_wrong_words_are_refused_in_one_line(two, argv, code, words):
    done = carve(two, "node", *argv, status=code)
    assert done.stdout == "" and len(done.stderr.splitlines()) == 1
    for word in words:
        assert word in done.stderr, done.stderr
    assert two.call("GET", "/v1/drains").json == []


def test_the_longest_reason_is_shown_whole(two):
    reason = "ä" * 64
    drain(two, "0-1", reason=reason)
    assert f": {reason}" in two.request(vram="4").error["message"]
    explained = two.call("POST", "/v1/explain", {"vram": "4", "ephemeral": True}).json
    assert all(gpu["message"].endswith(reason) for gpu in explained["gpus"])


@pytest.mark.parametrize("body", [{}, {"drain": 1}, {"drain": True}, {"drain": True, "reason": 3}, {"drain": True, "reason": "a\0b"},
                                  {"drain": False, "reason": "x"}, {"drain": True, "reason": "x", "gpu_ids": 0}, [], "x"])
def test_a_wrong_body_is_refused(two, body):
    answer = two.call("PUT", "/v1/drains", body)
    assert answer.status == 400 and answer.error["message"], answer.json
    assert two.call("GET", "/v1/drains").json == []


def test_others_may_look_and_not_change(two):
    if subprocess.run([*NOBODY, "test", "-x", CARVE]).returncode != 0:
        pytest.skip("another user cannot run what was built")
    let_others_in(two)
    for argv in (["drain", "--reason", "x"], ["resume"]):
        done = carve(two, "node", *argv, status=5, prefix=NOBODY)
        assert "only root and members of group carve" in done.stderr
    assert states(two) == ["ok", "ok"]


def test_many_ask_while_gpus_are_drained_and_resumed(two):
    """No grant is on a GPU that was drained before the request came."""
    wrong, stop = [], threading.Event()

    def ask():
        while not stop.is_set():
            answer = two.request(vram="1")
            if answer.status == 201:
                two.release(answer.json["id"], force=True)

    askers = [threading.Thread(target=ask) for _ in range(3)]
    for asker in askers:
        asker.start()
    for turn in range(10):
        drain(two, str(turn % 2))
        answer = two.request(vram="1")
        wrong += [s for s in answer.json["gpus"] if s["index"] == turn % 2] if answer.status == 201 else []
        put(two, False)
    stop.set()
    for asker in askers:
        asker.join(60)
    assert wrong == []


def test_drains_are_in_the_audit_with_the_user_and_both_reasons(two):
    for argv in (["drain", "--gpu-ids", "0", "--reason", "fan"], ["drain", "--gpu-ids", "0", "--reason", "move"], ["resume"]):
        carve(two, "node", *argv)
    events = [e for e in json.loads(carve(two, "audit", "--json").stdout) if e["kind"].startswith("gpu.")]
    assert [(e["kind"], e["before"], e["after"], e["text"]) for e in events] == [
        ("gpu.drained", "not drained", "drained", "fan"), ("gpu.drained", "drained: fan", "drained", "move"),
        ("gpu.resumed", "drained: move", "not drained", None)]
    title, first = carve(two, "audit", "--kind", "gpu.drained").stdout.splitlines()[:2]
    assert first[title.index("AFTER"):].split() == ["drained", "fan"] and first[title.index("REASON"):] == "fan"
    assert all(e["subject"] == "GPU 0" and e["process"] == "carve" for e in events)


def test_requests_that_wait_for_a_drained_gpu_hold_up_nobody(make_daemon):
    """They would be next after 16 others, and then close all GPUs that they may use."""
    daemon = make_daemon([H100, (24 * GIB, 0, 0, "Fake A10")])
    drain(daemon)
    asker = Asker(daemon, vram="40", wait_for=600)
    wait_until(lambda: waiting(daemon) and WHY in waiting(daemon)[0]["reason"])
    for _ in range(20):
        daemon.release(daemon.grant(vram="4")["id"], force=True)
    session = daemon.grant(vram="4", ephemeral=False)
    assert daemon.call("PATCH", f"/v1/sessions/{session['id']}", {"vram": "8"}).status == 200
    put(daemon, False)
    asker.join(60)
    assert asker.answer.status == 201
