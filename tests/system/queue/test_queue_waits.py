"""Jobs that wait for others to end, or for a time."""
from conftest import wait_until
from queueing import queues  # noqa: F401: fixtures

# Jobs whose end takes the daemon many rounds of its loop.
LONG = 20000


def test_a_job_is_cancelled_as_soon_as_one_of_several_fails(queues):
    queues.agent("tenth=0.1")
    runs = queues.enqueue("sh", "-c", queues.gate("never"), queue="tenth")
    fails = queues.enqueue("sh", "-c", queues.gate() + "; exit 1", queue="tenth")
    after = queues.enqueue("true", queue="tenth", options=("--after", f"ok:{runs}", "--after", f"ok:{fails}"))
    queues.wait_state(fails, "running")
    assert "has not ended" in queues.job(after)["reason"]
    queues.open_gate()
    assert f"job {fails}" in queues.ended(after)["reason"]
    assert queues.state(runs) == "running"


def test_a_job_waits_for_one_of_an_array_or_for_all(queues):
    queues.agent("tenth=0.1")
    array = queues.enqueue("sh", "-c", f'[ "$CARVE_JOB_INDEX" != 5 ] || {{ {queues.gate()}; }}', queue="tenth",
                           options=("--array", "3,5,8"))
    of_one = queues.enqueue("true", queue="tenth", options=("--after", f"ok:{array}_8", "--array", "0-2"))
    of_all = queues.enqueue("true", queue="tenth", options=("--after", f"ok:{array}"))
    assert [job["state"] for job in queues.ended(of_one)] == 3 * ["done"]
    assert queues.state(f"{array}_5") == "running" and "has not ended" in queues.job(of_all)["reason"]
    queues.open_gate()
    assert queues.ended(of_all)["state"] == "done"


def test_a_failed_job_ends_all_that_come_after_it(queues):
    queues.agent("tenth=0.1")
    first = before = queues.enqueue("sh", "-c", queues.gate() + "; exit 1", queue="tenth")
    chain = []
    for _ in range(10):
        before = queues.enqueue("true", queue="tenth", options=("--after", f"ok:{before}"))
        chain.append(before)
    last = queues.enqueue("true", queue="tenth", options=("--after", f"notok:{before}"))
    queues.wait_state(first, "running")
    queues.open_gate()
    assert queues.ended(last)["state"] == "done"
    assert {queues.state(id) for id in chain} == {"cancelled"}


def test_a_held_job_waits_for_its_release_and_for_others(queues):
    queues.agent("tenth=0.1")
    first = queues.enqueue("sh", "-c", queues.gate(), queue="tenth")
    early, late, never = [queues.enqueue("true", queue="tenth", options=("--hold", "--after", f"{kind}:{first}"))
                          for kind in ("ok", "ok", "notok")]
    queues.wait_state(first, "running")
    assert queues.host.carve("job", "release", early).returncode == 0
    assert "has not ended" in queues.job(early)["reason"]
    queues.open_gate()
    assert queues.ended(early)["state"] == "done" and queues.ended(never)["state"] == "cancelled"
    assert queues.state(late) == "held"
    assert queues.host.carve("job", "release", late).returncode == 0
    assert queues.ended(late)["state"] == "done"


def test_times_come_for_those_that_wait_for_them(queues):
    queues.agent("tenth=0.1")
    late, soon, gone = [queues.enqueue("true", queue="tenth", options=("--begin", begin, "--array", "0-2"))
                        for begin in ("now+1h", "now+2s", "now+1s")]
    assert queues.host.carve("job", "cancel", gone).returncode == 0
    assert [job["state"] for job in queues.ended(soon)] == 3 * ["done"]
    assert {job["state"] for job in queues.jobs(late)} == {"queued"}
    assert queues.host.carve("job", "edit", late + "_1", "--begin", "now+1s").returncode == 0
    assert queues.ended(late + "_1")["state"] == "done"
    assert [job["state"] for job in queues.jobs(late)] == ["queued", "done", "queued"]


def test_the_daemon_answers_while_a_long_array_ends_with_what_it_waited_for(queues):
    queues.agent("tenth=0.1")
    first = queues.enqueue("sh", "-c", queues.gate() + "; exit 1", queue="tenth")
    queues.enqueue("true", queue="later", options=("--after", f"ok:{first}", "--array", f"0-{LONG - 1}"))
    queues.wait_state(first, "running")
    waiting = []

    def all_ended():
        left = [q["waiting"] for q in queues.host.carve_json("queue", "list") if q["name"] == "later"]
        waiting.append(left[0] if left else 0)
        return not waiting[-1]
    assert not all_ended() and waiting == [LONG]
    queues.open_gate()
    wait_until(all_ended, step=0)
    assert [count for count in waiting if 0 < count < LONG], waiting


def test_no_job_comes_after_itself(queues):
    first = queues.enqueue("true", options=["--hold"])
    second = queues.enqueue("true", options=["--after", f"any:{first}"])
    array = queues.enqueue("true", options=["--array", "0-2", "--after", f"ok:{second}"])

    def edit(job, *after):
        done = queues.host.carve("job", "edit", job, *(word for one in after for word in ("--after", one)))
        return done.returncode, done.stderr

    for job, after in ((first, first), (first, second), (second, f"notok:{array}_1"), (first, array), (f"{array}_1", array)):
        code, said = edit(job, after)
        assert code == 2 and "would wait for itself" in said and said.count("\n") == 1, (job, after, said)
    assert edit(f"{array}_0", f"{array}_1") == (0, "")
    code, said = edit(f"{array}_1", second, f"any:{array}_0")
    assert code == 2 and f"job {array}_0" in said, said
    queues.agent("half=0.5")
    assert queues.host.carve("job", "release", first).returncode == 0
    assert {job["state"] for job in queues.ended(array)} == {"done"}
