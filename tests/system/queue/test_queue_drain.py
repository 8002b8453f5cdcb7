"""Drained GPUs, as those who run commands, jobs and MIG instances meet them."""
import json
import re
import subprocess

from conftest import BUILD, needs_admin, wait_until
from mig_hands import instances, with_role
from queueing import queues, queues_of  # noqa: F401: fixtures

pytestmark = needs_admin


def drain(host, ids, reason="fan"):
    done = host.carve("node", "drain", "--gpu-ids", ids, "--reason", reason)
    assert done.returncode == 0, done.stderr


def resume(host):
    assert host.carve("node", "resume").returncode == 0


def states(host):
    return [gpu["state"] for gpu in host.carve_json("gpu", "list")]


def test_a_command_goes_on_and_another_one_joins_its_session(make_host):
    host = make_host("h100-80gb:2")
    session = host.carve_json("session", "request", "--vram", "4")["id"]
    runs = host.popen([BUILD / "carve", "run", "--", "sh", "-c", "echo begun; read line; echo $line"], stdin=subprocess.PIPE)
    assert runs.stdout.readline() == "begun\n"
    drain(host, "0")
    joined = host.carve("run", "--", "sh", "-c", "echo $CARVE_SESSION")
    assert joined.stdout == session + "\n" and joined.returncode == 0
    assert f"carve: warning: session {session}: GPU 0 was drained by " in joined.stderr and ": fan; the session goes on" in joined.stderr
    assert states(host) == ["draining", "ok"]
    assert runs.communicate("on\n", timeout=60)[0] == "on\n" and runs.returncode == 0
    assert host.carve("session", "release").returncode == 0
    wait_until(lambda: states(host) == ["drained", "ok"])
    assert json.loads(host.carve("node", "drain", "--gpu-ids", "0", "--reason", "move", "--json").stdout)[0]["before"]["reason"] == "fan"


# ---- queues ----------------------------------------------------------------------------------------

def test_jobs_go_to_other_gpus_and_say_what_they_wait_for(queues):
    queues.agent("half=0.5", "pair=2")
    first = queues.witnessed(queues.gate())
    queues.wait_state(first, "running")
    at = queues.host.carve_json("session", "show", queues.job(first)["session"])["gpus"][0]["index"]
    drain(queues.host, str(at), "its fan is loud")
    others = [queues.witnessed(queues.gate()) for _ in range(2)]
    for id in others:
        queues.wait_state(id, "running")
    last = queues.witnessed()
    wait_until(lambda: re.search(f"; GPU {at} is drained by .*: its fan is loud$", queues.job(last)["reason"]))
    assert "its fan is loud" in queues.host.carve("queue", "explain", last).stdout
    pair = queues.witnessed(queue="pair")
    gpus = queues.host.carve_json("gpu", "list")
    assert gpus[at]["sessions"] == 1 and gpus[1 - at]["sessions"] == 2
    queues.open_gate()
    assert [queues.ended(id)["state"] for id in (first, *others, last)] == ["done"] * 4
    assert queues.state(pair) == "queued"
    resume(queues.host)
    assert queues.ended(pair)["state"] == "done"


def test_an_agent_may_start_while_its_gpu_is_drained(queues_of):
    q = queues_of("h100-80gb")
    drain(q.host, "0")
    q.agent("half=0.5")
    id = q.witnessed()
    wait_until(lambda: "GPU 0 is drained by" in q.job(id)["reason"])
    resume(q.host)
    assert q.ended(id)["state"] == "done"


# ---- MIG -------------------------------------------------------------------------------------------

def test_no_instance_is_made_on_a_drained_gpu(make_host):
    host = with_role(make_host, "h100-80gb:2+mig")
    drain(host, "0")
    assert states(host) == ["drained", "ok"]
    session = host.carve_json("session", "request", "--vram", "4")
    assert session["gpus"][0]["index"] == 1
    refused = host.carve("run", "--ephemeral", "--mig-profile", "1g.10gb", "--gpu-ids", "0", "true")
    assert refused.returncode == 125 and "GPU 0: drained by root: fan" in refused.stderr
    explained = host.carve_json("explain", "--mig-profile", "1g.10gb", "--gpu-ids", "0", "--ephemeral")
    assert explained["possible"] and explained["gpus"][0]["reason"] == "drained"
    assert not [i for i in instances(host) if i["gpu"] == 0]
    drain(host, "1", "move")
    assert states(host) == ["drained", "draining"]
    assert "move" in host.carve("session", "show").stdout
    resized = host.carve("session", "resize", "30")
    assert resized.returncode != 0 and "drained by root: move" in resized.stderr
    resume(host)
    assert host.carve("session", "resize", "30").returncode == 0


def test_an_instance_that_is_being_made_is_not_given_once_its_gpu_is_drained(make_host):
    host = with_role(make_host)
    host.carve("sim", "fault", "mig-time", "--delay", "3")
    waits = host.popen([BUILD / "carve", "session", "request", "--mig-profile", "1g.10gb", "--wait-for", "10m"])
    wait_until(lambda: [s for s in host.carve_json("session", "list") if "is being made" in s["reason"]])
    drain(host, "0")
    wait_until(lambda: [s for s in host.carve_json("session", "list") if "drained by" in s["reason"]])
    wait_until(lambda: instances(host, "idle"))
    assert [s["state"] for s in host.carve_json("session", "list")] == ["waiting"]
    resume(host)
    assert waits.wait(60) == 0 and len(instances(host, "busy")) == 1


def test_a_request_for_an_instance_waits_until_its_gpu_is_resumed(make_host):
    host = with_role(make_host)
    drain(host, "0")
    waits = host.popen([BUILD / "carve", "session", "request", "--mig-profile", "1g.10gb", "--wait-for", "10m"])
    wait_until(lambda: [s for s in host.carve_json("session", "list") if "drained by" in s["reason"]])
    # An instance of that size is never there.
    assert not host.carve_json("explain", "--vram", "500", "--ephemeral")["possible"]
    resume(host)
    assert waits.wait(60) == 0 and instances(host, "busy")


def test_jobs_of_instances_wait_for_a_drained_gpu(queues_of):
    q = queues_of("h100-80gb+mig")
    assert q.host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
    q.agent("eighth=0.125")
    assert q.ended(q.witnessed(queue="eighth"))["state"] == "done"
    drain(q.host, "0")
    id = q.witnessed(queue="eighth")
    wait_until(lambda: "GPU 0 is drained by" in q.job(id)["reason"])
    resume(q.host)
    assert q.ended(id)["state"] == "done"
