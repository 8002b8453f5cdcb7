"""carve agent: which GPUs, which queues, and what is refused."""
import pathlib
import signal
import time

import pytest

from conftest import BUILD, wait_until
from queueing import queues, queues_of  # noqa: F401: fixtures


def test_the_documents_example_uses_two_and_three_quarters_of_three_gpus(queues_of):
    q = queues_of("h100-80gb:3")
    started = q.host.carve("agent", "daemon", "--dynamic-gpus", "--gpus", "0-2", "--detached", "--queue", "dual_gpus=2",
                           "quarter_gpu=0.25", "half_gpu=0.5", "single_gpu=1")
    assert started.returncode == 0, started.stderr
    ids = [q.witnessed(q.gate(), queue=name) for name in ("dual_gpus", "quarter_gpu", "half_gpu", "single_gpu")]
    for id in ids[:3]:
        q.wait_state(id, "running")
    jobs = [q.job(id) for id in ids]
    assert jobs[0]["gpus"] == [0, 1]
    assert jobs[1]["gpus"] == jobs[2]["gpus"] == [2]
    assert jobs[3]["state"] == "queued" and "job 1" in jobs[3]["reason"]
    sizes = sorted(s["gpus"][0]["vram_bytes"] for s in q.host.carve_json("session", "list"))
    whole = sizes[-1]
    assert sizes == [whole // 4, whole // 2, whole]
    q.open_gate()
    assert [q.ended(id)["state"] for id in ids] == ["done"] * 4


def test_gpus_as_two_words_give_four_halves_on_two_gpus(queues):
    started = queues.host.carve("agent", "--dynamic-gpus", "--gpus", "0,", "1", "--queue", "half_gpu=0.5", "--detached")
    assert started.returncode == 0, started.stderr
    ids = [queues.witnessed(queues.gate(), queue="half_gpu") for _ in range(5)]
    for id in ids[:4]:
        queues.wait_state(id, "running")
    assert queues.state(ids[4]) == "queued"
    assert sorted(queues.job(id)["gpus"] for id in ids[:4]) == [[0], [0], [1], [1]]
    queues.open_gate()
    assert queues.ended(ids[4])["state"] == "done"


@pytest.mark.parametrize("words", [
    ["--gpus", "0,", "1", "--queue", "a=0.5", "b=1"], ["--queue", "a=0.5", "b=1", "--gpus", "0,", "1"],
    ["--gpus", "0", ",", "1", "--queue", "a=0.5", "--queue", "b=1"], ["daemon", "--gpus=0-1", "--queue", "a=0.5", "b=1"],
    ["--queue", "a=0.5", "b=1", "--gpus", "all"], ["--gpus", "0, 1", "--queue=a=0.5", "b=1"],
])
def test_gpus_and_queues_are_told_apart_in_any_order(queues, words):
    agent = queues.host.carve_json("agent", "--dynamic-gpus", "--detached", *words)
    assert agent["gpus"] == "0-1" and [q["name"] for q in agent["queues"]] == ["a", "b"]


def test_the_word_of_clearml_goes_with_each_act(queues):
    carve = queues.host.carve
    assert carve("agent", "daemon", "--detached", "--queue", "a=1", "daemon=1").returncode == 0
    assert carve("agent", "daemon", "--status").returncode == 0
    done = carve("agent", "--status", "a-1")
    assert done.returncode == 2 and "unexpected argument 'a-1'" in done.stderr
    for words in (["--drain", "daemon"], ["daemon", "--resume", "a"], ["daemon", "--stop", "a-1"]):
        done = carve("agent", *words)
        assert done.returncode == 0 and words[-1] in done.stdout, done.stderr
    queues.agent("a=1")
    assert carve("agent", "daemon", "--stop").returncode == 0
    assert queues.host.carve_json("agent", "--status") == []


@pytest.mark.parametrize("words, stopped", [
    (["--gpus", "1", "--queue", "a=1"], "a-2"),
    (["daemon", "--gpus", "1", "--queue", "a=1", "--detached"], "a-2"),
    (["--gpus", "2,3"], "a-3"),
    (["--gpus", "2-3", "--queue", "a=1", "b=2"], "a-3"),
    (["--queue", "b"], "a-3"),
    (["b=2"], "a-3"),
    (["a-2", "--queue", "a"], "a-2"),
])
def test_the_words_that_started_an_agent_stop_it_alone(queues_of, words, stopped):
    queues = queues_of("h100-80gb:4")
    for start in (["--gpus", "0", "--queue", "a=1"], ["--gpus", "1", "--queue", "a=1"], ["--gpus", "2,3", "--queue", "a=1", "b=2"]):
        assert queues.host.carve("agent", "daemon", *start, "--detached").returncode == 0
    done = queues.host.carve("agent", *words, "--stop")
    assert (done.returncode, done.stdout) == (0, f"agent {stopped} is stopped\n"), done.stderr
    assert [a["id"] for a in queues.host.carve_json("agent", "--status")] == [id for id in ("a-1", "a-2", "a-3") if id != stopped]


@pytest.mark.parametrize("words", [["--gpus", "all", "--queue", "a=1"], ["--gpus", "0-1"], ["--queue", "a=1"]])
def test_an_agent_of_all_gpus_is_stopped_by_its_words(queues, words):
    assert queues.host.carve("agent", "daemon", "--queue", "a=1", "--detached").returncode == 0
    done = queues.host.carve("agent", "daemon", *words, "--stop")
    assert (done.returncode, done.stdout) == (0, "agent a-1 is stopped\n"), done.stderr


@pytest.mark.parametrize("words, code, said", [
    (["--queue", "a"], 2, "2 agents have these GPUs and queues: name the one that is meant"),
    (["--gpus", "7"], 1, "no agent has these GPUs and queues"),
    (["--gpus", "0", "--queue", "b"], 1, "no agent has these GPUs and queues"),
    (["--gpus", "x"], 2, "--gpus: 'x'"),
    (["a-9"], 1, "there is no agent a-9"),
    ([], 2, "2 agents run: name the one that is meant"),
])
def test_words_that_name_no_one_agent_stop_none(queues, words, code, said):
    for gpu in "01":
        queues.agent("a=1", gpus=gpu)
    done = queues.host.carve("agent", *words, "--stop")
    assert done.returncode == code and said in done.stderr and len(done.stderr.splitlines()) == 1, done
    assert len(queues.host.carve_json("agent", "--status")) == 2


@pytest.mark.parametrize("started, word, stopped", [
    ("a=1", "a=0.5", False), ("a=1", "a=2", False), ("a=1", "a=1-2", False), ("a", "a=1", False), ("a=0.5", "a=1", False),
    ("a=1,max=3", "a=1,max=2", False), ("a=1", "a=1,max=2", False), ("a=1", "a=1,docker=i", False),
    ("a=1", "a", True), ("a=0.50", "a=0.5", True), ("a=1-2", "a=1-2", True), ("a=1,max=3", "a=1,max=3", True), ("a=1,max=3", "a=1", True),
])
def test_an_agent_whose_queue_has_another_size_is_not_stopped(queues, started, word, stopped):
    """What the word says of a queue must be so; what it leaves out may be anything."""
    queues.agent(started, gpus="0")
    done = queues.host.carve("agent", "daemon", "--gpus", "0", "--queue", word, "--stop")
    if stopped:
        assert (done.returncode, done.stdout) == (0, "agent a-1 is stopped\n"), done.stderr
    else:
        assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
        assert "no agent has these GPUs and queues of these sizes" in done.stderr
    assert len(queues.host.carve_json("agent", "--status")) == (not stopped)


def test_a_word_to_stop_that_is_no_size_is_refused(queues):
    queues.agent("a=1", gpus="0")
    done = queues.host.carve("agent", "--queue", "a=half", "--stop")
    assert done.returncode == 2 and "queue a: 'half' is not a number of GPUs" in done.stderr
    assert len(queues.host.carve_json("agent", "--status")) == 1


def test_agents_that_share_a_queue_count_their_own_jobs(queues):
    for gpu in "01":
        queues.agent("a=1", gpus=gpu)
    queues.wait_state(queues.witnessed(queues.gate(), queue="a"), "running")
    assert sorted(a["queues"][0]["running"] for a in queues.host.carve_json("agent", "--status")) == [0, 1]
    queues.open_gate()


@pytest.mark.parametrize("words, code, says", [
    (["half=1.25"], 2, "1.25"), (["half=0"], 2, "'0'"), (["half=-1"], 2, "negative"), (["a=0.5", "a=1"], 2, "named twice"),
    (["big=3"], 3, "3 GPUs"), (["big=5-9"], 3, "a job needs 5 GPUs"),
    (["a=1", "--gpus", "0", "1"], 2, "'1'"), (["tiny=0.001"], 3, "tiny"), ([], 2, "no queue"), (["half=x"], 2, "'x'"),
])
def test_wrong_queues_are_refused_with_one_line(queues, words, code, says):
    done = queues.host.carve("agent", "--detached", "--queue", *words) if words else queues.host.carve("agent", "--detached")
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if not line.startswith("  hint:")]
    assert len(lines) == 1 and says in lines[0]
    assert queues.host.carve_json("agent", "--status") == []


def test_a_queue_that_was_given_no_size_is_told_of(queues):
    done = queues.host.carve("agent", "--detached", "--queue", "foo", "half=0.5")
    assert done.returncode == 0 and done.stdout.splitlines()[1:] == [
        "queue foo: jobs of any size that say it themselves (--vram); for a fraction of a GPU each: --queue foo=0.5"]


def test_unknown_and_overlapping_gpus_are_refused(queues):
    done = queues.host.carve("agent", "--detached", "--gpus", "7", "--queue", "a=1")
    assert done.returncode == 2 and "no GPU 7" in done.stderr
    first = queues.agent("a=1", gpus="0")
    done = queues.host.carve("agent", "--detached", "--gpus", "0-1", "--queue", "b=1")
    assert done.returncode == 1 and first["id"] in done.stderr and "root" in done.stderr or "user" in done.stderr
    second = queues.agent("b=1", gpus="1")
    assert {a["id"] for a in queues.host.carve_json("agent", "--status")} == {first["id"], second["id"]}


def test_an_agent_in_the_foreground_lasts_as_long_as_its_command(queues):
    agent = queues.host.popen([BUILD / "carve", "agent",
                               "--queue", "half=0.5"])
    wait_until(lambda: queues.host.carve_json("agent", "--status"))
    id = queues.witnessed(queues.gate())
    queues.wait_state(id, "running")
    agent.send_signal(signal.SIGTERM)
    assert agent.wait(60) == 0
    assert queues.host.carve_json("agent", "--status") == []
    assert queues.state(id) == "running"  # it ends by itself
    queues.open_gate()
    assert queues.ended(id)["state"] == "done"
    waits = queues.witnessed()
    assert "no agent" in queues.job(waits)["reason"]


def test_an_agent_whose_command_is_killed_ends(queues):
    agent = queues.host.popen([BUILD / "carve", "agent", "--queue", "half=0.5"])
    wait_until(lambda: queues.host.carve_json("agent", "--status"))
    agent.kill()
    agent.wait()
    wait_until(lambda: not queues.host.carve_json("agent", "--status"))


def test_stop_now_ends_jobs(queues):
    agent = queues.agent("half=0.5")
    id = queues.witnessed("sleep 1000")
    queues.wait_state(id, "running")
    assert queues.host.carve("agent", "--stop", agent["id"], "--now").returncode == 0
    job = queues.ended(id)
    assert job["state"] == "cancelled" and "agent" in job["reason"]


def test_a_drained_queue_starts_nothing_until_it_is_resumed(queues):
    queues.agent("half=0.5", "other=0.25")
    assert queues.host.carve("agent", "--drain", "half").returncode == 0
    id = queues.witnessed()
    other = queues.witnessed(queue="other")
    assert queues.ended(other)["state"] == "done"
    assert queues.state(id) == "queued" and "drained" in queues.job(id)["reason"]
    assert queues.host.carve("agent", "--resume", "half").returncode == 0
    assert queues.ended(id)["state"] == "done"
    assert queues.host.carve("agent", "--drain", "nothing").returncode == 1


def test_a_queue_with_a_maximum_runs_no_more(queues):
    queues.agent("half=0.25,max=1")
    ids = [queues.witnessed(queues.gate()) for _ in range(2)]
    queues.wait_state(ids[0], "running")
    assert queues.state(ids[1]) == "queued"
    queues.open_gate()
    assert queues.ended(ids[1])["state"] == "done"


def wake_ups(pid):
    """How often its threads went to sleep so far."""
    return sum(int(line.split()[1]) for task in pathlib.Path(f"/proc/{pid}/task").iterdir()
               for line in (task / "status").read_text().splitlines() if line.startswith("voluntary_ctxt_switches"))


@pytest.mark.timed
@pytest.mark.parametrize("waiting", [[], ["--queue", "nobodys"], ["--queue", "half", "--hold"], ["--queue", "half", "--begin", "now+1h"]])
def test_queues_wake_nothing_while_nothing_can_start(queues, waiting):
    """The daemon looks after its files once a second; queues add nothing to that."""
    queues.agent("half=0.5")
    queues.ended(queues.witnessed())
    if waiting:
        assert queues.host.carve("enqueue", *waiting, "--", "true").returncode == 0
    pid = queues.host.daemon_pid()
    time.sleep(3)  # what the job began is over
    before, began = wake_ups(pid), time.monotonic()
    time.sleep(5)
    assert wake_ups(pid) - before <= 3 * (time.monotonic() - began)


@pytest.mark.parametrize("word, right", [
    ("stop", "carve agent --stop"), ("start", "carve agent --queue NAME=N --detached"),
    ("drain", "carve agent --drain"), ("resume", "carve agent --resume")])
def test_a_word_for_an_act_starts_no_agent(host, word, right):
    for words in ([word], ["daemon", word], [word, "half=0.5"]):
        done = host.carve("agent", *words, "--detached")
        assert done.returncode == 2 and done.stderr == \
            f"carve: agent: '{word}' would be the name of a queue: did you mean {right}?; a queue of that name: --queue {word}\n", done.stderr
    assert host.carve_json("agent", "--status") == []


@pytest.mark.parametrize("options, said", [
    (["--docker-allow", "foo"], "--docker-allow: podman, docker and apptainer have no option 'foo'"),
    (["--docker-allow", "env,ipcc"], "--docker-allow: podman, docker and apptainer have no option 'ipcc'"),
    (["--docker-deny", "--privilged"], "--docker-deny: podman, docker and apptainer have no option 'privilged'"),
    (["--docker-allow", ""], "--docker-allow: the list is empty"), (["--docker-deny", " , "], "--docker-deny: the list is empty"),
    (["--docker", ""], "--docker: '' is not the name of an image"), (["--docker", "two words"], "--docker: 'two words' is not the name"),
    (["--docker=--rm"], "--docker: '--rm' is not the name of an image")])
def test_options_of_an_agent_that_mean_nothing_are_refused(host, options, said):
    done = host.carve("agent", "--queue", "half=0.5", "--detached", *options)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert host.carve_json("agent", "--status") == []


def test_an_agent_takes_the_options_of_each_runtime_in_its_lists(host):
    done = host.carve("agent", "--queue", "half=0.5", "--detached", "--docker-allow", "env,ipc, --shm-size,e,bind,nv",
                      "--docker-deny", "privileged,volume,add-caps")
    assert done.returncode == 0, done.stderr
