"""Agents on GPUs with the MIG role: a queue's size is an instance, counted in memory units."""
import getpass
import json

import pytest

from conftest import wait_until
from mig_hands import carve, instances, kill_daemon
from programs import python
from queueing import Queues, queues_of  # noqa: F401: fixture


@pytest.fixture
def mig_queues(queues_of):
    def make(spec="h100-80gb+mig", gpus=None):
        q = queues_of(spec)
        carve(q.host, "node", "set-role", "--dynamic-mig-enabled", *(["--gpu-ids", gpus] if gpus else []))
        return q
    return make


def profiles(q, *states):
    return sorted(i["profile"] for i in instances(q.host, *states))


@pytest.mark.parametrize("spec, eighth, half", [("h100-80gb+mig", "1g.10gb", "3g.40gb"), ("a100-40gb+mig", "1g.5gb", "3g.20gb")])
def test_a_queues_fraction_is_an_instance_of_so_many_memory_units(mig_queues, spec, eighth, half):
    q = mig_queues(spec)
    q.agent("eighth=0.125", "half=0.5")
    ids = [q.witnessed(q.gate(), queue=name) for name in ("eighth", "half", "eighth")]
    for id in ids:
        q.wait_state(id, "running")
    assert profiles(q, "busy") == sorted([eighth, eighth, half])
    shown = q.host.carve_json("session", "show", q.job(ids[1])["session"])
    assert shown["backend"] == "mig" and shown["mig_profile"] == half
    q.open_gate()
    assert [q.ended(id)["state"] for id in ids] == ["done"] * 3
    assert len(q.runs()) == 6
    wait_until(lambda: not instances(q.host, "busy"))


def test_the_next_job_reuses_the_instance(mig_queues):
    q = mig_queues()
    q.agent("half=0.5")
    assert q.ended(q.witnessed())["state"] == "done"
    first, = instances(q.host)
    for _ in range(3):
        assert q.ended(q.witnessed())["state"] == "done"
    assert first["uuid"] in [i["uuid"] for i in instances(q.host)]
    assert len(instances(q.host)) <= 2  # the second is made where the first's session has not ended yet


def test_a_job_sees_its_instance_as_its_gpu(mig_queues):
    q = mig_queues()
    q.agent("half=0.5")
    id = q.enqueue(*map(str, python("mem_info")))
    assert q.ended(id)["state"] == "done"
    run = carve(q.host, "run", "--mig-profile", "3g.40gb", "--", *python("mem_info"))
    assert json.loads(q.host.carve("job", "logs", id).stdout)["total"] == json.loads(run.stdout)["total"]


def test_a_whole_gpu_and_full_ones_wait_for_room(mig_queues):
    q = mig_queues()
    q.agent("whole=1", "half=0.5")
    half = q.witnessed(q.gate())
    q.wait_state(half, "running")
    whole = q.witnessed(queue="whole")
    later = q.witnessed(queue="half")  # its room is reserved for the whole one
    wait_until(lambda: f"job {half}" in q.job(whole)["reason"])
    wait_until(lambda: "reserved" in q.job(later)["reason"])
    q.open_gate()
    assert [q.ended(id)["state"] for id in (half, whole, later)] == ["done"] * 3
    order = [line.split()[0] for line in q.runs() if line.endswith("start")]
    assert order == [half, whole, later]


def test_a_job_with_a_time_limit_fills_the_reserved_gpu_before_its_time(mig_queues):
    q = mig_queues()
    q.agent("whole=1", "half=0.5")
    half = q.witnessed(q.gate(), options=("--time", "1h"))
    q.wait_state(half, "running")
    whole = q.witnessed(queue="whole")
    wait_until(lambda: f"job {half}" in q.job(whole)["reason"])
    short = q.witnessed(queue="half", options=("--time", "10m"))
    assert q.ended(short)["state"] == "done"
    assert q.state(whole) == "queued"
    q.open_gate()
    assert q.ended(whole)["state"] == "done"


def test_an_agent_of_fraction_gpus_and_mig_gpus_fills_both(mig_queues):
    q = mig_queues("h100-80gb,h100-80gb+mig", gpus="1")
    q.agent("half=0.5")
    ids = [q.witnessed(q.gate()) for _ in range(5)]
    for id in ids[:4]:
        q.wait_state(id, "running")
    assert sorted(q.job(id)["gpus"] for id in ids[:4]) == [[0], [0], [1], [1]]
    assert profiles(q, "busy") == ["3g.40gb"] * 2
    assert q.state(ids[4]) == "queued"
    q.open_gate()
    assert [q.ended(id)["state"] for id in ids] == ["done"] * 5


def test_jobs_with_instances_survive_a_killed_daemon(mig_queues):
    q = mig_queues()
    q.agent("half=0.5")
    ids = [q.witnessed(q.gate()) for _ in range(3)]
    for id in ids[:2]:
        q.wait_state(id, "running")
    kill_daemon(q.host)
    wait_until(lambda: q.host.carve("job", "list").returncode == 0)
    assert [q.state(id) for id in ids] == ["running", "running", "queued"]
    # The next daemon knows the profiles once it has looked at the GPU.
    wait_until(lambda: profiles(q, "busy") == ["3g.40gb"] * 2)
    q.open_gate()
    assert [q.ended(id)["state"] for id in ids] == ["done"] * 3
    assert len(q.runs()) == 6  # none ran twice
    wait_until(lambda: not instances(q.host, "busy"))


def test_cancelled_and_retried_jobs_give_their_instances_back(mig_queues):
    q = mig_queues()
    q.agent("half=0.5")
    running = q.witnessed(q.gate())
    q.wait_state(running, "running")
    q.host.carve("job", "cancel", running)
    assert q.ended(running)["state"] == "cancelled"
    wait_until(lambda: not instances(q.host, "busy"))
    again = q.enqueue("sh", "-c", '[ "$CARVE_JOB_ATTEMPT" = 3 ]', options=("--retries", "3"))
    assert q.ended(again)["state"] == "done"
    assert q.job(again)["attempt"] == 3
    wait_until(lambda: not instances(q.host, "busy"))


def test_a_higher_priority_takes_an_instance_from_a_job_that_may_run_again(mig_queues):
    q = mig_queues()
    q.agent("whole=1")
    low = q.witnessed(q.gate(), queue="whole", options=("--requeue",))
    q.wait_state(low, "running")
    high = q.witnessed(queue="whole", options=("--priority", "5"))
    assert q.ended(high)["state"] == "done"
    q.open_gate()
    assert q.ended(low)["state"] == "done"


def test_a_size_in_bytes_gets_the_smallest_instance_that_holds_it(mig_queues):
    q = mig_queues()
    q.agent("any", "half=0.5")
    id = q.witnessed(q.gate(), queue="any", options=("--vram", "9"))
    q.wait_state(id, "running")
    assert profiles(q, "busy") == ["1g.10gb"]
    larger = q.host.carve("enqueue", "--queue", "half", "--vram", "60", "--", "true")
    assert larger.returncode == 2 and "more than queue half gives" in larger.stderr
    q.open_gate()
    assert q.ended(id)["state"] == "done"


def test_an_instance_larger_than_the_users_quota_is_refused_at_enqueue(mig_queues):
    q = mig_queues()
    q.agent("half=0.5", "eighth=0.125")
    carve(q.host, "quota", "set", getpass.getuser(), "--vram", "20")
    done = q.host.carve("enqueue", "--queue", "half", "--", "true")
    assert done.returncode == 5 and "quota" in done.stderr, done.stderr
    assert q.ended(q.witnessed(queue="eighth"))["state"] == "done"


def test_a_queue_larger_than_any_instance_is_refused_when_the_agent_starts(mig_queues):
    q = mig_queues()
    done = q.host.carve("agent", "--detached", "--queue", "two=2")
    assert done.returncode == 3 and "2 GPUs" in done.stderr
