"""Jobs: what they get, how they end, and how they are changed."""
import datetime
import json
import os
import pathlib
import re
import signal
import sqlite3
import stat
import subprocess
import time

import pytest

from conftest import BUILD, wait_until
from programs import python
from queueing import module_queues, queues, queues_of  # noqa: F401: fixtures

CARVE = BUILD / "carve"


def test_a_job_runs_in_a_slice_of_its_queues_size(queues, programs):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", "echo $CARVE_SESSION; sleep 0.1")
    job = queues.ended(id)
    assert job["state"] == "done" and job["exit_code"] == 0
    assert queues.host.carve("job", "logs", id).stdout.strip() == job["session"]
    session = queues.host.carve_json("session", "show", job["session"])
    total = queues.host.carve_json("gpu", "list")[0]
    assert session["vram_bytes"] == (total["memory_bytes"] - total["reserved_bytes"]) // 2
    wait_until(lambda: queues.host.carve_json("session", "show", job["session"])["state"] != "active")


def test_a_job_has_the_environment_directory_and_umask_of_its_enqueuer(queues, tmp_path):
    queues.agent("half=0.5")
    (tmp_path / "d").mkdir()
    script = f"umask 027; cd {tmp_path}/d; MINE=x {BUILD}/carve enqueue --queue half -- " \
             "sh -c 'pwd; echo $MINE; umask; ulimit -n; touch f'"
    done = queues.host.run(["sh", "-c", "ulimit -Sn 321; " + script])
    assert done.returncode == 0, done.stderr
    id = done.stdout.strip()
    assert queues.ended(id)["state"] == "done"
    assert queues.host.carve("job", "logs", id).stdout.split() == [f"{tmp_path}/d", "x", "0027", "321"]
    assert stat.S_IMODE((tmp_path / "d" / "f").stat().st_mode) == 0o640


def test_export_limits_the_environment(queues):
    queues.agent("half=0.5")
    env = {"ONE": "1", "TWO": "2"}
    for export, expected in (("NONE", ""), ("TWO,THREE=3", "2 3"), ("ALL,ONE=9", "9 2")):
        done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--json", "--export", export, "--", "sh", "-c",
                                 "echo $ONE $TWO $THREE", env=env)
        id = json.loads(done.stdout)[0]["id"]
        assert queues.host.carve("job", "logs", id).stdout.strip() == expected


def test_wait_exits_with_the_jobs_code(queues):
    queues.agent("half=0.5")

    def code(*argv):
        return queues.host.carve("enqueue", "--queue", "half", "--wait", "--", *argv).returncode

    assert code("true") == 0
    assert code("sh", "-c", "exit 7") == 7
    assert code("sh", "-c", "kill -9 $$") == 137
    assert code("no-such-command") == 127
    assert code("/etc/passwd") == 126


def test_the_wait_for_an_array_names_a_job_that_failed(queues):
    queues.agent("half=0.25")
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--array", "0-3", "--", "sh", "-c", "[ $CARVE_JOB_INDEX != 2 ] || exit 7")
    id = done.stderr.split()[2]
    assert done.returncode == 7
    assert done.stderr.splitlines()[1:] == [f"carve: job {id}: 1 of 4 jobs did not succeed", f"carve: job {id}_2: exit code 7"]


def test_a_job_that_was_tried_again_keeps_the_log_of_each_attempt(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", "echo try $CARVE_JOB_ATTEMPT; exit 75", options=["--retries", "2"])
    assert queues.ended(id)["attempt"] == 3
    said = [queues.host.carve("job", "logs", id, *options).stdout for options in ([], *(["--attempt", str(n)] for n in (1, 2, 3)))]
    assert said == ["try 3\n", "try 1\n", "try 2\n", "try 3\n"]
    done = queues.host.carve("job", "logs", id, "--attempt", "4")
    assert done.returncode == 1 and f"job {id} has had 3 attempts" in done.stderr
    assert queues.host.carve("job", "logs", id, "--attempt", "0").returncode == 2


def test_a_long_array_is_enqueued_again_whole(queues):
    """The daemon reads 2,000 rows at a time, and serves others meanwhile."""
    count = 4000
    id = queues.enqueue("true", options=["--hold", "--array", f"0-{count - 1}%7"])
    for index in (1, 1999, 2000, 3999):
        assert queues.host.carve("job", "cancel", f"{id}_{index}").returncode == 0
    for options, left, array in (([], count, f"0-{count - 1}%7"), (["--failed"], 4, "1,1999-2000,3999%7")):
        again = queues.host.carve_json("job", "rerun", id, *options)
        assert again["count"] == left
        assert queues.job(f"{again['id']}_1999")["asked"]["array"] == array
        assert queues.host.carve("job", "cancel", again["id"]).returncode == 0
    assert queues.host.carve("job", "rerun", f"{id}_9", "--failed").returncode == 1


def test_sessions_of_running_jobs_are_not_released_by_mistake(queues):
    queues.agent("half=0.5")
    id = queues.witnessed(queues.gate())
    queues.wait_state(id, "running")
    done = queues.host.carve("release", "--all")
    assert done.returncode == 1 and f"`carve job cancel {id}` ends that job" in done.stderr
    queues.open_gate()
    assert queues.ended(id)["state"] == "done"


def test_output_is_byte_for_byte_what_was_written(queues, tmp_path):
    queues.agent("half=0.5")
    data = bytes(range(256)) * 4096
    (tmp_path / "data").write_bytes(data)
    id = queues.enqueue("cat", str(tmp_path / "data"))
    assert queues.ended(id)["state"] == "done"
    assert pathlib.Path(queues.job(id)["log"]).read_bytes() == data
    id = queues.enqueue("sh", "-c", "echo out; echo err >&2", options=["-o", f"{tmp_path}/%j-%x.o", "-e", f"{tmp_path}/%j.e",
                                                                      "--name", "n"])
    assert queues.ended(id)["state"] == "done"
    assert (tmp_path / f"{id}-n.o").read_text() == "out\n" and (tmp_path / f"{id}.e").read_text() == "err\n"
    assert queues.host.carve("job", "logs", id).stdout == "out\n"


def test_logs_are_followed_to_the_end(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", "echo one; " + queues.gate() + "; echo two")
    follower = queues.host.popen([BUILD / "carve", "job", "logs", "-f", id])
    assert follower.stdout.readline() == "one\n"
    queues.open_gate()
    assert follower.stdout.read() == "two\n" and follower.wait(60) == 0


def test_an_array_runs_each_index_once_and_no_more_than_allowed(queues):
    queues.agent("half=0.1")
    id = queues.witnessed(options=["--array", "0-9%3"])
    jobs = queues.ended(id)
    assert [j["index"] for j in jobs] == list(range(10)) and {j["state"] for j in jobs} == {"done"}
    assert sorted(queues.runs()) == sorted(f"{id}_{i} 1 {what}" for i in range(10) for what in ("start", "end"))


def test_an_arrays_limit_holds(queues):
    queues.agent("half=0.1")
    id = queues.witnessed(queues.gate(), options=["--array", "1,3,5-9%2"])
    wait_until(lambda: sum(j["state"] == "running" for j in queues.jobs(id)) == 2)
    states = [j["state"] for j in queues.jobs(id)]
    assert states.count("running") == 2 and states.count("queued") == 5
    queues.open_gate()
    assert {j["state"] for j in queues.ended(id)} == {"done"}


def test_a_sweep_has_all_combinations(queues):
    queues.agent("half=0.25")
    id = queues.enqueue("sh", "-c", "echo {lr}/{bs} $lr $bs", options=["--param", "lr=0.1,0.01", "--param", "bs=1,2,3"])
    jobs = queues.ended(id)
    said = sorted(queues.host.carve("job", "logs", j["id"]).stdout.strip() for j in jobs)
    assert said == sorted(f"{lr}/{bs} {lr} {bs}" for lr in ("0.1", "0.01") for bs in "123")


def test_only_a_job_that_is_there_can_have_failed(queues):
    done = queues.host.carve("job", "rerun", "99", "--failed")
    assert done.returncode == 1 and "there is no job 99" in done.stderr
    id = queues.enqueue("true", options=["--hold"])
    done = queues.host.carve("job", "rerun", id, "--failed")
    assert done.returncode == 1 and f"no job of {id} has failed" in done.stderr


@pytest.mark.parametrize("options, said", [
    (["--input", "/nosuch"], "--input: /nosuch: No such file"), (["-i", "nosuch"], "--input: nosuch: No such file"),
    (["-i", "."], "--input: .: Is a directory"), (["-o", "/nosuch/out"], "--output: /nosuch/out: No such file"),
    (["-e", "nosuch/err"], "--error: nosuch/err: No such file"), (["-o", "."], "--output: .: Is a directory"),
    (["-o", "nosuch/%j"], "--output: nosuch/%j: No such file"), (["-e", "/nosuch/%x.%j"], "--error: /nosuch/%x.%j: No such file")])
def test_a_job_whose_files_cannot_be_opened_is_refused(queues, options, said):
    done = queues.host.carve("enqueue", "--queue", "half", *options, "--", "true")
    assert done.returncode == 2 and said in done.stderr, done.stderr
    assert queues.host.carve_json("job", "list") == []


def test_files_that_are_not_known_yet_are_not_looked_for(queues, tmp_path):
    """Those of another name for each job, and those that another job makes."""
    queues.agent("half=0.5")
    queues.enqueue("true", options=["--hold", "-o", "/nosuch/out"])
    queues.enqueue("true", options=["-i", "none.%a", "--array", "0-1"])
    queues.enqueue("true", options=["-o", "none.%j/out"])
    here = ["--chdir", str(tmp_path)]
    first = queues.enqueue("sh", "-c", f"{queues.gate()}; mkdir made; echo text > made/file", options=[*here, "-o", "/dev/null"])
    second = queues.enqueue("cat", options=[*here, "--after", first, "-i", "made/file", "-o", "made/%j"])
    queues.open_gate()
    assert queues.ended(second)["state"] == "done", queues.job(second)
    assert (tmp_path / "made" / second).read_text() == "text\n"


def test_a_job_is_shown_in_units_that_people_read(queues):
    id = queues.enqueue("true", options=["--begin", "2031-11-30T08:00", "--time", "90s", "--retries", "2", "--retry-on", "75,KILL", "--vram", "2"])
    shown = queues.host.carve("job", "show", id).stdout
    assert queues.job(id)["asked"]["begin"] > 1 << 60  # as the API takes it
    for line in (r"begin      2031-11-\d\dT\d\d:00:00.000Z", "time       90 s", "retry on   75 KILL", "vram       2 GiB"):
        assert re.search(f"^{line}$", shown, re.M), shown


def test_failed_jobs_of_an_array_are_run_again(queues, tmp_path):
    queues.agent("half=0.25")
    id = queues.witnessed('[ "$CARVE_JOB_INDEX" -lt 2 ] || [ -e "$W.ok" ] || exit 3', options=["--array", "0-3"])
    assert [j["state"] for j in queues.ended(id)] == ["done", "done", "failed", "failed"]
    (tmp_path / "witness.ok").touch()
    again = queues.host.carve_json("job", "rerun", id, "--failed")
    assert again["count"] == 2
    assert [(j["index"], j["state"]) for j in queues.ended(again["id"])] == [(2, "done"), (3, "done")]


def test_retries_follow_exit_codes(queues):
    queues.agent("half=0.5")
    id = queues.witnessed("exit 75", options=["--retries", "2", "--retry-on", "75"])
    job = queues.ended(id)
    assert job["state"] == "failed" and job["exit_code"] == 75 and job["attempt"] == 3
    assert [line.split()[1] for line in queues.runs(id)] == ["1", "2", "3"]
    id = queues.witnessed("exit 1", options=["--retries", "2", "--retry-on", "75,KILL"])
    assert queues.ended(id)["attempt"] == 1
    for on in ("KILL", "SIGKILL", "137"):
        id = queues.enqueue("sh", "-c", "kill -9 $$", options=["--retries", "1", "--retry-on", on])
        assert queues.ended(id)["attempt"] == 2, on


def test_a_jobs_figures_are_those_of_its_current_attempt(queues):
    """Between two attempts there are none."""
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", f"{queues.gate('gate$CARVE_JOB_ATTEMPT')}; exit 75", options=["--retries", "1"])
    first = queues.wait_state(id, "running")
    assert queues.host.carve("agent", "--drain", "half").returncode == 0
    queues.open_gate("gate1")
    waits = queues.wait_state(id, "queued")
    assert {waits[key] for key in ("session", "started", "signal", "exit_code")} == {None} and waits["gpus"] == []
    assert [waits[key] for key in ("attempt", "peak_bytes", "gpu_ns", "rss_bytes")] == [1, 0, 0, 0]
    assert queues.host.carve("agent", "--resume", "half").returncode == 0
    again = queues.wait_state(id, "running")
    assert again["attempt"] == 2 and again["session"] not in (None, first["session"]) and again["started"] > first["started"]
    assert [again[key] for key in ("peak_bytes", "gpu_ns", "rss_bytes")] == [0, 0, 0]
    queues.open_gate("gate2")
    ended = queues.ended(id)
    assert (ended["state"], ended["exit_code"], ended["session"]) == ("failed", 75, again["session"])
    assert min(ended[key] for key in ("gpu_ns", "rss_bytes")) > 0


def test_a_jobs_gpu_time_is_of_a_whole_gpu(queues):
    """Half a GPU for a second is half a second: less than the job took in all, as little as it took."""
    queues.agent("half=0.5")
    begin = time.monotonic()
    id = queues.enqueue("sleep", "1")
    used = queues.ended(id)["gpu_ns"] / 1e9
    assert 0.49 <= used <= 0.51 * (time.monotonic() - begin)
    shown = queues.host.carve("job", "show", id).stdout
    assert re.search(r"^GPU time +\S+ m?s of a whole GPU$", shown, re.M), shown


def test_a_time_limit_ends_a_job(queues):
    queues.agent("half=0.5")
    id = queues.witnessed("sleep 1000", options=["--time", "1s"])
    job = queues.ended(id)
    assert job["state"] == "timeout" and "time limit" in job["reason"]


def test_a_job_shows_what_was_asked_for_and_not_its_environment(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("echo", "{lr}", options=["--param", "lr=0.1,0.2", "--time", "30m", "--priority", "-2"])
    queues.ended(id)
    job = queues.host.carve_json("job", "show", f"{id}_1")
    asked = (job[0] if isinstance(job, list) else job)["asked"]
    assert asked["argv"] == ["echo", "{lr}"] and asked["params"] == {"lr": "0.2"} and asked["time"] == 1800
    assert "env" not in asked
    shown = queues.host.carve("job", "show", f"{id}_1").stdout
    assert "command    echo {lr}\nparameters lr=0.2\n" in shown and "priority   -2\n" in shown


def test_a_job_that_comes_into_a_queue_without_an_agent_says_so(queues):
    queues.agent("half=0.5", "full=1")
    first = queues.enqueue("true", options=["--hold"])
    for argv, says in ((["job", "move", first, "--queue", "nobodys"], "no agent serves queue nobodys (carve agent --queue nobodys=N"),
                       (["job", "clone", first, "--queue", "else"], "no agent serves queue else"),
                       (["job", "edit", first, "--queue", "half"], None), (["job", "move", first, "--queue", "full"], None)):
        done = queues.host.carve(*argv)
        assert done.returncode == 0 and (says in done.stderr if says else not done.stderr), (argv, done.stderr)
    assert queues.host.carve("agent", "--drain", "half").returncode == 0
    for argv in (["job", "move", first, "--queue", "half"], ["enqueue", "--queue", "half", "true"]):
        assert "its queue is drained (carve agent --resume half" in queues.host.carve(*argv).stderr


def test_waiting_says_what_did_not_succeed(queues):
    queues.agent("half=0.5")
    good, bad = queues.enqueue("true"), queues.enqueue("sh", "-c", "exit 4")
    done = queues.host.carve("job", "wait", good, bad)
    assert (done.returncode, done.stdout, done.stderr) == (4, "", f"carve: job {bad}: exit code 4\n")


def test_an_id_that_cannot_be_printed_is_said_with_the_error(queues):
    with open("/dev/full", "w") as full:
        done = subprocess.run([CARVE, "enqueue", "--queue", "half", "true"], env=queues.host.env, stdout=full, stderr=subprocess.PIPE, text=True)
    job, = queues.host.carve_json("job", "list")
    assert done.returncode == 1 and f"job {job['id']} is enqueued" in done.stderr, done.stderr


def test_output_that_was_removed_is_said_to_be(queues, tmp_path):
    queues.agent("half=0.5")
    id = queues.enqueue("echo", "text", options=["-o", f"{tmp_path}/out"])
    queues.ended(id)
    assert queues.host.carve("job", "logs", id).stdout == "text\n"
    (tmp_path / "out").unlink()
    done = queues.host.carve("job", "logs", id)
    assert done.returncode == 1 and "removed" in done.stderr, done.stderr


def test_a_queue_that_no_agent_serves_is_said_beside_one_that_is(queues):
    queues.agent("half=0.5")
    done = queues.host.carve("enqueue", "--queue", "half_gup", "true")
    assert done.returncode == 0 and "no agent serves queue half_gup" in done.stderr
    assert not queues.host.carve("enqueue", "--queue", "half", "true").stderr


def test_a_job_that_ignores_sigterm_is_killed_after_its_grace(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", "trap '' TERM; echo up; while :; do sleep 0.05; done", options=["--grace", "0.2"])
    wait_until(lambda: "up" in queues.host.carve("job", "logs", id).stdout)
    assert queues.host.carve("job", "cancel", id).returncode == 0
    assert queues.ended(id)["state"] == "cancelled"


def test_processes_that_a_job_left_behind_end_with_it(queues, tmp_path):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", f"setsid sleep 1000 & echo $! > {tmp_path}/pid; sleep 0.1")
    assert queues.ended(id)["state"] == "done"
    wait_until(lambda: not pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}").exists())


@pytest.mark.parametrize("kind, code, runs", [("ok", 0, True), ("ok", 1, False), ("any", 1, True), ("notok", 1, True),
                                              ("notok", 0, False)])
def test_a_job_comes_after_another(queues, kind, code, runs):
    queues.agent("half=0.5")
    first = queues.witnessed(queues.gate() + f"; [ {code} = 0 ] || exit {code}")
    second = queues.witnessed(options=["--after", f"{kind}:{first}"])
    queues.wait_state(first, "running")
    assert queues.state(second) == "queued"
    queues.open_gate()
    job = queues.ended(second)
    assert job["state"] == ("done" if runs else "cancelled")
    assert bool(queues.runs(second)) == runs
    assert runs or first in job["reason"]


def test_a_job_that_does_not_exist_cannot_be_waited_for(queues):
    queues.agent("half=0.5")
    done = queues.host.carve("enqueue", "--queue", "half", "--after", "99", "--", "true")
    assert done.returncode == 2 and "99" in done.stderr


def test_held_jobs_wait_for_their_release(queues):
    queues.agent("half=0.5")
    id = queues.witnessed(options=["--hold"])
    assert queues.ended(queues.witnessed())["state"] == "done"
    assert queues.state(id) == "held"
    assert queues.host.carve("queue", "explain", id).stdout.startswith(f"job {id} is held: `carve job release` lets it start\n")
    assert queues.host.carve("job", "release", id).returncode == 0
    assert queues.ended(id)["state"] == "done"


def test_a_begin_in_the_future_is_waited_for(queues):
    queues.agent("half=0.5")
    id = queues.witnessed(options=["--begin", "now+1h"])
    assert queues.ended(queues.witnessed())["state"] == "done"
    job = queues.job(id)
    begin = datetime.datetime.fromtimestamp(job["asked"]["begin"] // 10**9, datetime.timezone.utc)
    assert job["reason"] == f"its time to begin has not come: {begin:%Y-%m-%dT%H:%M:%SZ}" and "starts_by" not in job
    assert queues.host.carve("job", "edit", id, "--begin", "now+1s").returncode == 0
    assert queues.ended(id)["state"] == "done"


def test_waiting_jobs_are_moved_edited_and_cancelled(queues):
    queues.agent("half=0.5")
    moved = queues.witnessed(queue="nobodys")
    edited = queues.witnessed("sleep 1000", queue="nobodys")
    gone = queues.witnessed(queue="nobodys")
    assert queues.host.carve("job", "cancel", gone).returncode == 0
    assert queues.state(gone) == "cancelled"
    assert queues.host.carve("job", "move", moved, "--queue", "half").returncode == 0
    assert queues.ended(moved)["queue"] == "half"
    assert queues.host.carve("job", "edit", edited, "--time", "1s", "--queue", "half", "--name", "new").returncode == 0
    job = queues.ended(edited)
    assert job["state"] == "timeout" and job["name"] == "new"
    assert queues.host.carve("job", "cancel", gone).returncode == 1
    assert queues.runs(gone) == []


def test_another_size_takes_the_place_of_the_first(queues):
    queues.agent("own")
    id = queues.enqueue("true", queue="own", options=["--vram", "4", "--hold"])
    assert queues.host.carve("job", "edit", id, "--gpu", "0.5").returncode == 0
    assert "gpu        0.5" in queues.host.carve("job", "show", id).stdout
    again = queues.host.carve_json("job", "clone", id, "--vram", "2")["id"]
    assert queues.host.carve_json("session", "show", queues.ended(again)["session"])["vram_bytes"] == 2 << 30
    assert "vram       2 GiB\n" in queues.host.carve("job", "show", again).stdout


def test_higher_priority_goes_first_in_a_queue(queues):
    queues.agent("half=1,max=1", gpus="0")
    first = queues.witnessed(queues.gate())
    queues.wait_state(first, "running")
    low, high = queues.witnessed(options=["--priority", "-1"]), queues.witnessed(options=["--priority", "1"])
    queues.open_gate()
    queues.ended(low)
    starts = [line.split()[0] for line in queues.runs() if line.endswith("start")]
    assert starts == [first, high, low]


def test_priority_preempts_what_was_enqueued_for_it(queues, tmp_path):
    queues.agent("half=1", gpus="0")
    low = queues.witnessed(f"[ $CARVE_JOB_ATTEMPT -gt 1 ] || sleep 1000; {queues.gate()}", options=["--requeue", "--priority", "-1"])
    queues.wait_state(low, "running")
    wait_until(lambda: queues.runs(low))
    high = queues.witnessed()
    assert queues.ended(high)["state"] == "done"
    wait_until(lambda: f"{low} 2 start" in queues.runs(low))
    # Both are of the attempt before.
    job = queues.job(low)
    assert job["state"] == "running" and job["reason"] == "" and job["signal"] is None
    queues.open_gate()
    job = queues.ended(low)
    assert job["state"] == "done" and job["attempt"] == 2


def test_explain_names_position_blocker_and_start(queues_of):
    queues = queues_of("h100-80gb:1")
    queues.agent("half=0.5", "whole=1")
    runs = queues.enqueue("sh", "-c", queues.gate(), options=("--time", "1h"))
    queues.wait_state(runs, "running")
    first = queues.enqueue("true", queue="whole")
    second = queues.enqueue("true", queue="whole")
    urgent = queues.enqueue("true", queue="whole", options=("--after", f"any:{runs}", "--priority", "5"))
    later = queues.enqueue("true", options=("--begin", "now+2h"))

    def explain(id):
        return queues.host.carve_json("queue", "explain", id)

    def hours(id):
        job = explain(id)
        return (datetime.datetime.fromisoformat(job["starts_by"]) - datetime.datetime.fromisoformat(job["enqueued"])).total_seconds() / 3600
    wait_until(lambda: explain(first).get("blocked_by") == runs)
    assert explain(first)["reason"] == f"it starts when job {runs} ends"
    assert explain(first)["starts_after"] == {"jobs": [runs], "ends": "any", "exact": True}
    assert 0.9 < hours(first) < 1.1 and explain(first)["position"] == 2
    assert explain(second)["position"] == 3 and explain(second)["blocked_by"] == first
    assert explain(urgent)["position"] == 1 and explain(urgent)["blocked_by"] == runs
    assert "its time to begin has not come: 20" in explain(later)["reason"]
    assert "starts_by" not in explain(later) and "blocked_by" not in explain(later)
    said = queues.host.carve("queue", "explain", first).stdout.splitlines()
    assert said[0] == f"job {first} is queued: it starts when job {runs} ends"
    assert said[1] == "position 2 of queue whole" and said[2].startswith("it starts by 20")
    queues.open_gate()
    assert queues.ended(second)["state"] == "done"
    assert "position" not in explain(second)


def test_explain_names_all_jobs_whose_end_lets_a_job_start(queues_of):
    queues = queues_of("h100-80gb:1")
    queues.agent("half=0.5", "quarter=0.25")
    ids = [queues.enqueue("sh", "-c", queues.gate(f"gate{place}"), queue="quarter" if place else "half") for place in range(3)]
    for id in ids:
        queues.wait_state(id, "running")
    fourth, fifth = (queues.enqueue("true", queue="quarter") for _ in range(2))
    one, two, three = ids

    def explain(id):
        return queues.host.carve_json("queue", "explain", id)
    wait_until(lambda: "starts_after" in explain(fourth) and "starts_after" in explain(fifth))
    assert explain(fourth)["reason"] == f"it starts when one of jobs {one}, {two}, {three} ends"
    assert "blocked_by" not in explain(fourth)
    assert queues.host.carve("queue", "explain", fourth).stdout.splitlines() == [
        f"job {fourth} is queued: it starts when one of jobs {one}, {two}, {three} ends", "position 1 of queue quarter"]
    # The fourth job takes a quarter of what the first leaves.
    assert explain(fifth)["reason"] == f"it starts at the latest when job {one} ends" and explain(fifth)["blocked_by"] == one
    behind = queues.enqueue("true", options=("--priority", "-1"))
    wait_until(lambda: "starts_after" in explain(behind))
    queues.open_gate("gate2")
    assert queues.ended(fourth)["state"] == "done" and queues.state(one) == queues.state(two) == "running"
    queues.open_gate("gate0")
    queues.open_gate("gate1")
    queues.ended(behind)


def test_jobs_of_arrays_are_called_by_array_and_index_in_reasons(queues_of):
    queues = queues_of("h100-80gb:1")
    queues.agent("whole=1")
    array = queues.enqueue("sh", "-c", queues.gate(), queue="whole", options=("--array", "5,7", "--requeue", "--priority", "-1"))
    queues.wait_state(f"{array}_5", "running")
    behind = queues.enqueue("true", queue="whole", options=("--priority", "-2"))
    after = queues.enqueue("true", queue="whole", options=("--after", f"ok:{array}_7"))
    never = queues.enqueue("true", queue="whole", options=("--after", f"notok:{array}_7"))

    def explain(id):
        return queues.host.carve_json("queue", "explain", id)
    wait_until(lambda: explain(behind).get("blocked_by") == f"{array}_7")
    # Of the array its first job that waits.
    assert explain(array)["id"] == f"{array}_7" and explain(array)["blocked_by"] == f"{array}_5"
    assert explain(array)["reason"] == f"it starts when job {array}_5 ends"
    assert explain(after)["blocked_by"] == f"{array}_7"
    urgent = queues.enqueue("sh", "-c", queues.gate(), queue="whole", options=("--array", "3", "--priority", "1"))
    wait_until(lambda: queues.state(f"{urgent}_3") == "running")
    said = queues.job(f"{array}_5")
    assert said["state"] == "queued" and said["attempt"] == 1
    queues.open_gate()
    assert queues.ended(never)["reason"] == f"job {array}_7, which it comes after, did not fail"
    assert queues.ended(f"{array}_5")["attempt"] == 2


def test_a_size_of_its_own_stays_within_the_queues(queues):
    queues.agent("half=0.5", "own")
    id = queues.enqueue("true", options=["--vram", "2"])
    job = queues.ended(id)
    assert queues.host.carve_json("session", "show", job["session"])["vram_bytes"] == 2 << 30
    done = queues.host.carve("enqueue", "--queue", "half", "--vram", "70", "--", "true")
    assert done.returncode == 2 and "half" in done.stderr
    done = queues.host.carve("enqueue", "--queue", "own", "--", "true")
    assert done.returncode == 2 and "size" in done.stderr
    assert queues.ended(queues.enqueue("true", queue="own", options=["--vram", "3"]))["state"] == "done"


@pytest.mark.parametrize("queue, size, granted", [
    ("own", ["--vram", "41"], 41 << 30), ("own", ["--gpu", "0.52"], None), ("part=0.52", [], None)])
def test_a_job_waits_for_its_whole_size(queues_of, queue, size, granted):
    """No job gets the 93% of its size that a person may be granted, who sees it."""
    queues = queues_of("h100-80gb:1")
    session = queues.host.carve_json("session", "request", "--vram", "40")
    queues.agent(queue)
    id = queues.enqueue("true", queue=queue.split("=")[0], options=size)
    wait_until(lambda: "others than queues" in queues.job(id)["reason"])
    assert queues.job(id)["granted_bytes"] is None
    queues.host.carve("session", "release", session["id"])
    job = queues.ended(id)
    gpu, = queues.host.carve_json("gpu", "list")
    granted = granted or int((gpu["memory_bytes"] - gpu["reserved_bytes"]) * 0.52)
    assert job["state"] == "done" and job["granted_bytes"] == [granted]
    said = queues.host.carve("job", "show", id).stdout
    assert re.search(r"^granted +4[0-9.]+ GiB$", said, re.M), said


def test_a_job_that_no_gpu_holds_whole_is_refused_though_93_percent_would_fit(queues):
    queues.agent("own", "whole=1")
    done = queues.host.carve("enqueue", "--queue", "own", "--vram", "80", "--", "true")
    assert done.returncode == 3 and "no GPU of queue own's agent can ever grant 80 GiB: it has 2 GPUs, with 79.11 GiB at most" in done.stderr, done.stderr
    assert queues.ended(queues.enqueue("true", queue="whole"))["state"] == "done"


def test_a_job_does_not_wait_for_what_little_the_driver_or_a_desktop_holds(queues_of):
    """Programs outside carve that hold no more than a hundredth of the GPU may hold that for ever."""
    queues = queues_of("h100-80gb:1")
    with queues.host.popen(python("hold", 100), stdin=subprocess.PIPE) as desktop:
        assert desktop.stdout.readline() == "0\n"
        queues.agent("half=0.5", "whole=1")
        ids = [queues.enqueue("sh", "-c", queues.gate()) for _ in range(2)]
        for id in ids:
            queues.wait_state(id, "running")
        first, second = (queues.job(id)["granted_bytes"][0] for id in ids)
        assert 0 < first - second < 1 << 30
        queues.open_gate()
        job = queues.ended(queues.enqueue("true", queue="whole"))
        assert job["state"] == "done" and job["granted_bytes"] == [first + second]
        desktop.stdin.close()


def test_memory_outside_carve_is_waited_for(queues, programs):
    """Sessions that are no queue's are waited for, too."""
    session = queues.host.carve_json("session", "request", "--gpu", "0.75", "--gpu-ids", "0")
    queues.agent("half=0.5", gpus="0")
    id = queues.witnessed()
    wait_until(lambda: "others than queues" in queues.job(id)["reason"])
    queues.host.carve("session", "release", session["id"])
    assert queues.ended(id)["state"] == "done"


def test_changes_keep_the_name_of_a_queue_without_jobs(queues):
    queues.agent("half=0.5")
    queues.ended(queues.enqueue("true"))
    socket = queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    told = json.loads(queues.host.run(["curl", "-s", "--unix-socket", socket, "http://x/v1/jobs/events?from=0"]).stdout)
    assert [(e["state"], e["queue"]) for e in told["events"]] == [
        (state, "half") for state in ("queued", "starting", "running", "done")]


@pytest.mark.parametrize("options", [
    ["-o", b"o\xff"], ["-e", b"o\xff"], ["-i", b"o\xff"], ["--name", b"\xff"], ["--param", b"a=1,\xff,2"], ["--export", b"A=\xff"], ["--chdir", b"\xff"],
    ["--after", b"ok:\xff"], ["--docker", b"\xff"], ["--docker-arg", b"--env=\xff"], ["--queue", b"\xff"], ["--array", b"0\xff"]])
def test_text_that_is_not_utf_8_is_refused_and_not_left_out(module_queues, tmp_path, options):
    os.mkdir(bytes(tmp_path) + b"/\xff")
    done = subprocess.run([bytes(CARVE), "enqueue", "--queue", "half", *options, "--", "true"], env=module_queues.host.env, cwd=tmp_path,
                          capture_output=True)
    assert done.returncode == 2 and rb"\xff" in done.stderr and b"not UTF-8" in done.stderr, done.stderr
    assert done.stderr.count(b"\n") == 1 and module_queues.host.carve_json("job", "list") == []


def test_an_environment_that_is_too_large_is_refused_and_says_what_helps(queues):
    env = queues.host.env | {f"LONG{i}": "x" * 100_000 for i in range(6)}
    done = queues.host.run([str(CARVE), "enqueue", "--queue", "half", "--", "true"], env=env)
    assert done.returncode == 2 and "512 KiB" in done.stderr and "--export" in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert queues.host.run([str(CARVE), "enqueue", "--queue", "half", "--export", "PATH", "--", "true"], env=env).returncode == 0


def test_a_variable_that_is_not_utf_8_is_said_to_be_left_out(queues, tmp_path):
    env = {os.fsencode(name): os.fsencode(value) for name, value in queues.host.env.items()} | {b"ODD": b"o\xff"}
    done = subprocess.run([CARVE, "enqueue", "--queue", "half", "true"], env=env, capture_output=True)
    assert done.returncode == 0 and b"does not get ODD" in done.stderr, done.stderr
    os.mkdir(bytes(tmp_path) + b"/\xff")
    done = subprocess.run([CARVE, "enqueue", "--queue", "half", "true"], env=env, cwd=bytes(tmp_path) + b"/\xff", capture_output=True)
    assert done.returncode == 2 and b"not UTF-8" in done.stderr, done.stderr


def test_changes_are_told_as_they_come(queues):
    queues.agent("half=0.5")
    watcher = queues.host.popen([BUILD / "carve", "job", "events"])
    said = []
    for _ in range(50):  # the watcher may not listen yet
        id = queues.witnessed()
        queues.ended(id)
        os.set_blocking(watcher.stdout.fileno(), False)
        try:
            said.append(os.read(watcher.stdout.fileno(), 1 << 20).decode())
        except BlockingIOError:
            continue
        whole = f"job {id}: queued\njob {id}: starting\njob {id}: running\njob {id}: done\n"
        if whole in "".join(said):
            break
    watcher.kill()
    watcher.wait()
    assert whole in "".join(said)


@pytest.mark.parametrize("options, says", [
    (["--array", "3-1"], "array"), (["--array", "0-9999999"], "array"), (["--array", "x"], "array"), (["--time", "soon"], "time"),
    (["--time", "0s"], "time"), (["--time", "0"], "for example: 90s"), (["--time", "3600"], "say 3600s, or 3600m for minutes"), (["--begin", "later"], "begin"),
    (["--begin", "2026-13-01T00:00"], "begin"), (["--begin", "2026-02-30"], "begin"), (["--after", "bad:1"], "'bad:1'"), (["--retries", "-1"], "retries"), (["--after", "x"], "after"),
    (["--priority", "1000"], "priority"), (["--param", "x"], "param"), (["--vram", "0"], "vram"), (["--name", "a b"], "name"),
    (["--export", "a b"], "export"), (["--chdir", "/no/such"], "chdir"), (["--grace", "x"], "grace"), (["--retry-on", "x"], "retry-on"),
    (["--docker-arg", "x"], "--docker-arg: 'x'"), (["--docker-arg=--ipc=host"], "--docker-arg: the job has no container"),
    (["--retries", "1", "--retry-on", ""], "retry-on"), (["--retry-on", "75"], "goes with --retries"), (["--name", "n\u00e4me"], "ASCII"), (["--param", "lr=1,,2"], "param"), (["--param", "lr=1,"], "param"),
])
def test_bad_options_are_refused_and_nothing_is_enqueued(module_queues, options, says):
    done = module_queues.host.carve("enqueue", "--queue", "half", *options, "--", "true")
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert len([line for line in done.stderr.splitlines() if not line.startswith("  hint:")]) == 1
    assert module_queues.host.carve_json("job", "list") == []


@pytest.mark.parametrize("options, command, says", [
    (["--param", "lr=1,2"], ["train"], "param: the command never uses lr; write {lr} where its value belongs"),
    (["--param", "lr=1,2"], ["train", "lrx", "--xlr"], "the command never uses lr"),
    (["--param", "lr=1", "--param", "bs=1,2"], ["train", "--lr={lr}"], "the command never uses bs"),
    (["--param", "lr=1,2"], ["train", "{lr}/{bs}"], "param: {bs} in the command is no parameter; give its values: --param bs=1,2"),
    (["--array", "0-9999999"], ["true"], "--array: '0-9999999' has too many jobs: 100000 are possible"),
    (["--array", "1,0-99999"], ["true"], "has too many jobs"),
    (["--after", "ok:3,ok:4"], ["true"], "repeat --after for each job: --after ok:17 --after any:18")])
def test_sweeps_and_lists_that_are_wrong_say_what_would_be_right(module_queues, options, command, says):
    done = module_queues.host.carve("enqueue", "--queue", "half", *options, "--", *command)
    assert done.returncode == 2 and says in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert module_queues.host.carve_json("job", "list") == []


def test_a_sweeps_command_may_use_a_parameter_as_a_variable_and_keep_its_own_braces(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", "echo $lr ${lr} ${HOME:+x} | awk '{print $2, $3}'", options=["--param", "lr=0.1"])
    assert queues.ended(id)["state"] == "done" and queues.host.carve("job", "logs", f"{id}_0").stdout == "0.1 x\n"
    id = queues.enqueue("echo", "{print}", "{lr}", "{}", "{ lr }", "{0}", options=["--param", "lr=0.1", "--param", "print={print}"])
    assert queues.ended(id)["state"] == "done"
    assert queues.host.carve("job", "logs", f"{id}_0").stdout == "{print} 0.1 {} { lr } {0}\n"
    id = queues.enqueue("echo", "{bs}")
    assert queues.ended(id)["state"] == "done" and queues.host.carve("job", "logs", id).stdout == "{bs}\n"


def test_jobs_that_do_not_exist_are_said_to(queues):
    for verb in ("show", "cancel", "logs", "wait", "rerun"):
        done = queues.host.carve("job", verb, "99")
        assert done.returncode == 1 and "no job 99" in done.stderr, verb
        for word in ("../x", "", "a b", "x" * 64):
            done = queues.host.carve("job", verb, word)
            assert done.returncode == 2 and "is neither the ID nor the name of a job" in done.stderr, done.stderr


def test_a_long_array_is_there_whole_and_goes_whole(queues):
    """It is written and cancelled in parts, while others are served; nobody sees a part of it."""
    queues.agent("half=0.5")
    id = queues.enqueue("true", options=["--array", "0-4999", "--hold"])
    other = queues.enqueue("true")
    assert int(other) == int(id) + 1
    jobs = queues.jobs(id)
    assert [j["index"] for j in jobs] == list(range(5000)) and {j["state"] for j in jobs} == {"held"}
    assert queues.job(f"{id}_4999")["id"] == f"{id}_4999"
    assert queues.host.carve("job", "release", id).returncode == 0
    done = queues.host.carve("job", "cancel", id)
    assert done.returncode == 0, done.stderr
    assert {j["state"] for j in queues.jobs(id)} <= {"cancelled", "done", "running"}
    assert {j["state"] for j in queues.ended(id)} <= {"cancelled", "done"}
    assert queues.ended(other)["state"] == "done"


def test_a_job_that_runs_is_not_started_again_while_a_long_array_is_released(queues):
    """None of the array can be decided on meanwhile; the last decision's job is no candidate in its place."""
    queues.agent("half=0.1")
    runs = queues.witnessed(queues.gate())
    queues.wait_state(runs, "running")
    array = queues.enqueue("true", options=["--array", "0-19999", "--hold"])
    for verb in ("release", "hold", "release", "cancel"):
        assert queues.host.carve("job", verb, array).returncode == 0
    assert queues.job(runs)["attempt"] == 1 and queues.state(runs) == "running"
    queues.open_gate()
    assert queues.ended(runs)["state"] == "done" and queues.runs(runs) == [f"{runs} 1 start", f"{runs} 1 end"]


def test_long_lists_come_in_parts(queues):
    queues.agent("half=0.5")
    first = queues.enqueue("true", options=("--array", "0-299"), queue="none")
    queues.enqueue("true", queue="other")
    listed = queues.host.carve_json("job", "list")
    assert [j["id"] for j in listed] == [f"{first}_{i}" for i in range(300)] + ["2"]
    assert [j["index"] for j in queues.jobs(first)] == list(range(300))
    assert [j["id"] for j in queues.host.carve_json("job", "list", "--queue", "other")] == ["2"]
    assert queues.host.carve_json("queue", "explain", "2")["position"] == 1
    counts = {q["name"]: q["waiting"] for q in queues.host.carve_json("queue", "list")}
    assert counts == {"half": 0, "none": 300, "other": 1}
    assert queues.host.carve("job", "move", first, "--queue", "half").returncode == 0
    assert queues.host.carve("job", "wait", first).returncode == 0
    ended = queues.host.carve_json("job", "list", "--last", "150")
    assert len(ended) == 151 and {j["state"] for j in ended[:-1]} == {"done"}
    assert [j["index"] for j in ended[:-1]] == sorted(j["index"] for j in ended[:-1])
    assert {q["name"]: q["waiting"] for q in queues.host.carve_json("queue", "list")} == {"half": 0, "other": 1}


def test_an_array_not_written_whole_is_removed(queues, tmp_path):
    queues.agent("half=0.5")
    kill = tmp_path / "kill"
    queues.kill_daemon()
    kill.touch()
    queues.host.carve("queue", "list", env={"CARVE_KILL_POINT": f"enqueue.part:{kill}"})
    # The client asks again, and the next daemon, without a kill point, takes it whole.
    done = queues.host.carve("enqueue", "--queue", "half", "--hold", "--array", "0-2999", "--", "true")
    assert not kill.exists()
    assert done.returncode == 0, done.stderr
    listed = queues.host.carve_json("job", "list")
    assert len(listed) == 3000 and {j["array"] for j in listed} == {int(done.stdout)}


def test_a_snapshot_is_of_tracked_files_as_they_are_now(queues, tmp_path):
    queues.agent("half=0.5")
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    home = {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}

    def git(*argv):
        assert queues.host.run(["git", *argv], cwd=tree, env=home).returncode == 0

    git("init", "-q")
    (tree / "sub" / "code").write_text("committed")
    (tree / "gone").write_text("committed")
    git("add", ".")
    git("-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "one")
    (tree / "sub" / "code").write_text("edited")
    (tree / "new").write_text("added")
    (tree / "untracked").write_text("no")
    (tree / "gone").unlink()
    git("add", "new")
    enqueue = ["enqueue", "--queue", "half", "--hold", "--snapshot", "--", "sh", "-c", "cat code; ls .."]
    id = queues.host.carve(*enqueue, cwd=tree / "sub", env=home).stdout.strip()
    (tree / "sub" / "code").write_text("later")
    again = queues.host.carve(*enqueue, cwd=tree / "sub", env=home).stdout.strip()
    for job, code in ((id, "edited"), (again, "later")):
        queues.host.carve("job", "release", job)
        queues.ended(job)
        assert queues.host.carve("job", "logs", job).stdout == code + "new\nsub\n"
    # A directory without tracked files, as one for results.
    (tree / "runs" / "1").mkdir(parents=True)
    bare = queues.host.carve("enqueue", "--queue", "half", "--snapshot", "--wait", "--", "sh", "-c", "ls ../..; touch result",
                             cwd=tree / "runs" / "1", env=home)
    assert (bare.returncode, bare.stdout) == (0, "new\nruns\nsub\n"), bare.stderr
    # A tree that came from elsewhere runs no program of its own.
    witness = tmp_path / "ran"
    for name in ("post-index-change", "post-checkout", "pre-auto-gc", "fsmonitor"):
        program = tree / ".git" / "hooks" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f"#!/bin/sh\ntouch {witness}\n")
        program.chmod(0o755)
    git("config", "core.fsmonitor", str(tree / ".git" / "hooks" / "fsmonitor"))
    (tree / "sub" / "code").write_text("later still")
    assert queues.host.carve(*enqueue, cwd=tree / "sub", env=home).returncode == 0
    assert not witness.exists()
    git("config", "--unset", "core.fsmonitor")
    git("diff", "--cached", "--exit-code", "--", "sub/code")  # the tree's own index is as it was
    done = queues.host.carve(*enqueue, cwd=tmp_path, env={**home, "GIT_CEILING_DIRECTORIES": str(tmp_path)})
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert done.stderr.startswith("carve: --snapshot: git rev-parse: not a git repository"), done.stderr


def test_old_jobs_are_forgotten_where_their_requests_are_long(queues, tmp_path):
    """A request has all of an environment: a few users' jobs could fill the disk otherwise."""
    state = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"])
    config = tmp_path / "config"
    config.write_text('{"history_text_mib": 1}')
    queues.host.popen([BUILD / "carved", "--runtime-dir", state, "--foreground", "--config", config])
    wait_until((state / "carved.sock").exists)
    queues.agent("half=0.5")
    short = queues.enqueue("true", options=["--export", "NONE"])
    queues.ended(short)
    queues.host.env.update({f"LONG_{i}": "x" * 100000 for i in range(4)})
    long = []
    for _ in range(4):  # the first to end is the first to be forgotten: two at a time may end in any order
        long.append(queues.enqueue("true"))
        queues.ended(long[-1])
    wait_until(lambda: [j["id"] for j in queues.host.carve_json("job", "list")] == long[-2:])


def test_old_jobs_are_forgotten_with_their_logs(queues, tmp_path):
    """The daemon keeps so many that ended, and no text that no job has."""
    state = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"])
    config = tmp_path / "config"
    config.write_text('{"history_jobs": 3}')
    daemon = queues.host.popen([BUILD / "carved", "--runtime-dir", state, "--foreground", "--config", config])
    wait_until((state / "carved.sock").exists)
    queues.agent("half=0.5")
    for options in ([], [], [], [], ["--array", "0-1"]):  # one after the other: an old one is nowhere to be asked about
        queues.ended(queues.enqueue("true", options=options))
    wait_until(lambda: len(queues.host.carve_json("job", "list")) == 3)
    logs = [pathlib.Path(j["log"]) for j in queues.host.carve_json("job", "list")]
    wait_until(lambda: sorted(logs[0].parent.glob("*.log")) == sorted(logs))
    daemon.terminate()
    daemon.communicate()
    with sqlite3.connect(state / "queue.db") as db:
        assert db.execute("SELECT count(*) FROM spec").fetchone()[0] == db.execute("SELECT count(DISTINCT spec) FROM job").fetchone()[0]
    db.close()


@pytest.mark.parametrize("size, code, said", [
    (["own", "--vram", "200"], 3, "no GPU of queue own's agent can ever grant 200 GiB: it has 2 GPUs, with 79.11 GiB at most; `carve gpu list`"),
    (["own", "--vram", "500"], 3, "can ever grant 500 GiB: it has 2 GPUs, with 79.11 GiB at most; a size without a unit is GiB: did you mean 500MiB?"),
    (["own", "--vram", "2TiB"], 3, "can ever grant 2 TiB: it has 2 GPUs, with 79.11 GiB at most\n"),
    (["own", "--gpu", "4"], 3, "can ever grant 4 whole GPUs: it has 2 GPUs, with 79.11 GiB at most"),
    (["half", "--vram", "200"], 2, "the job asks for 200 GiB, more than queue half gives: 0.5 of a GPU, at most 39.56 GiB"),
    (["half", "--gpu", "0.75"], 2, "the job asks for 0.75 of a GPU, more than queue half gives: 0.5 of a GPU, at most 39.56 GiB"),
    (["dual", "--gpu", "3"], 2, "the job asks for 3 whole GPUs, more than queue dual gives: 2 whole GPUs, at most 79.11 GiB each"),
])
def test_a_job_that_is_too_large_is_told_its_size_and_the_most_there_is(queues, size, code, said):
    queues.agent("own", "half=0.5", "dual=2")
    done = queues.host.carve("enqueue", "--queue", *size, "--", "true")
    assert done.returncode == code and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
