"""What `carve job list` shows and in which order, the output of arrays, and jobs that are named by their names."""
import datetime
import math
import pathlib
import re
import subprocess

import pytest

from conftest import BUILD, clean_env, open_to_others, wait_until
from queueing import queues  # noqa: F401: fixtures


def table(queues, *options):
    done = queues.host.carve("job", "list", *options)
    assert done.returncode == 0, done.stderr
    head, *rows = [re.split(r"\s{2,}", line.strip()) for line in done.stdout.splitlines()]
    return [dict(zip(head, row)) for row in rows]


def listed(queues, *options):
    return [job["id"] for job in queues.host.carve_json("job", "list", *options)]


def test_job_list_shows_the_times_and_the_size_of_each_job(queues):
    queues.agent("half=0.5", "any")
    runs = queues.enqueue("sh", "-c", queues.gate())
    queues.wait_state(runs, "running")
    ended = queues.enqueue("true")
    queues.ended(ended)
    waits = queues.enqueue("true", queue="any", options=["--vram", "60", "--hold"])
    rows = {row["JOB"]: row for row in table(queues)}
    granted, = queues.job(runs)["granted_bytes"]
    assert granted == queues.host.carve_json("session", "show", queues.job(runs)["session"])["vram_bytes"]
    assert rows[runs]["SIZE"] == rows[ended]["SIZE"] == f"{math.ceil(granted / 2**30 * 100) / 100} GiB"
    assert rows[waits]["SIZE"] == "60 GiB" and queues.job(waits)["size"] == "60 GiB" and queues.job(waits)["granted_bytes"] is None
    for id in (runs, ended):
        assert re.fullmatch(r"(\d\d-\d\d )?\d\d:\d\d", rows[id]["SUBMITTED"]) and re.fullmatch(r"(\d\d-\d\d )?\d\d:\d\d", rows[id]["STARTED"])
        assert re.fullmatch(r"\d+:\d\d", rows[id]["ELAPSED"])
    assert rows[waits]["STARTED"] == rows[waits]["ELAPSED"] == "-" and rows[waits]["SUBMITTED"] != "-"
    queues.open_gate()


def test_a_job_that_waits_has_its_queues_size(queues):
    queues.agent("half=0.5", "pair=2")
    ids = [queues.enqueue("true", queue=queue, options=["--hold"]) for queue in ("half", "pair", "nowhere")]
    rows = {row["JOB"]: row["SIZE"] for row in table(queues)}
    assert [rows[id] for id in ids] == ["0.5", "2", "-"]


def test_jobs_are_listed_in_the_order_in_which_they_came(queues):
    queues.agent("half=0.5", "other=0.5")
    slow = queues.enqueue("sh", "-c", queues.gate())
    array = queues.enqueue("true", options=["--array", "2,0,10"])
    held = queues.enqueue("true", queue="other", options=["--hold"])
    quick = queues.enqueue("true")
    for id in (array, quick):
        queues.ended(id)
    order = [slow, f"{array}_0", f"{array}_2", f"{array}_10", held, quick]
    assert listed(queues) == order == [row["JOB"] for row in table(queues)]
    queues.open_gate()
    queues.ended(slow)
    assert listed(queues) == order


def test_since_leaves_out_jobs_that_ended_before(queues):
    queues.agent("half=0.5")
    held = queues.enqueue("true", options=["--hold"])
    old = queues.enqueue("true")
    end = datetime.datetime.fromisoformat(queues.ended(old)["ended"])
    wait_until(lambda: datetime.datetime.now(datetime.timezone.utc) - end > datetime.timedelta(seconds=3.1))
    new = queues.enqueue("true")
    queues.ended(new)
    assert listed(queues, "--since", "2s") == [held, new]
    assert listed(queues, "--since", "1h") == [held, old, new]
    assert listed(queues, "--since", "1h", "--last", "1") == [held, new]
    moment = (end + datetime.timedelta(seconds=1)).astimezone().strftime("%Y-%m-%dT%H:%M:%S")
    assert listed(queues, "--since", moment) == [held, new]


def test_since_lists_more_jobs_than_the_default(queues):
    queues.agent("half=0.5")
    array = queues.enqueue("true", options=["--array", "0-29"])
    queues.ended(array)
    assert len(listed(queues)) == 20 and len(listed(queues, "--since", "1h")) == 30


@pytest.mark.parametrize("since", ["tomorrow", "", "-2h", "2030-01-01", "25:00", "3"])
def test_a_moment_that_is_none_or_is_to_come_is_refused(since):
    done = subprocess.run([str(BUILD / "carve"), "job", "list", f"--since={since}"], capture_output=True, text=True, env=clean_env())
    assert done.returncode == 2 and "--since" in done.stderr and "2h (ago)" in done.stderr, done.stderr


def test_an_unknown_queue_is_refused_with_those_that_are_there(queues):
    queues.agent("half=0.5")
    waits = queues.enqueue("true", queue="later")
    done = queues.host.carve("job", "list", "--queue", "hlaf")
    assert done.returncode == 2 and "there is no queue 'hlaf'" in done.stderr and "half, later" in done.stderr, done.stderr
    assert listed(queues, "--queue", "half") == [] and listed(queues, "--queue", "later") == [waits]
    # A queue that only ended jobs name is known, too.
    assert queues.host.carve("job", "cancel", waits).returncode == 0
    queues.ended(waits)
    assert listed(queues, "--queue", "later") == [waits] and listed(queues, "--queue", "later", "--last", "0") == []


def as_nobody(host, *argv):
    return host.run(["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", str(BUILD / "carve"), *argv])


@pytest.fixture
def shared(queues, another_user):
    queues.agent("half=0.5")
    open_to_others(queues.host)
    runtime = pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"])
    runtime.chmod(0o755)
    for name in ("carved.sock", "attach.sock"):
        (runtime / name).chmod(0o666)
    return queues


def test_user_lists_one_users_jobs_and_others_are_refused(shared):
    own = shared.enqueue("true")
    shared.ended(own)
    assert listed(shared, "--user", "root") == listed(shared, "--user", "0") == [own]
    assert listed(shared, "--user", "nobody") == []
    refused = as_nobody(shared.host, "job", "list", "--user", "root")
    assert refused.returncode == 5 and "only root and members of group carve" in refused.stderr, refused.stderr
    assert as_nobody(shared.host, "job", "list", "--user", "nobody").returncode == 0
    done = shared.host.carve("job", "list", "--user", "nosuchuser")
    assert done.returncode == 2 and "there is no user 'nosuchuser'" in done.stderr, done.stderr


def test_session_release_user_ends_all_sessions_of_that_user(shared):
    host = shared.host
    mine = host.carve_json("session", "request", "--vram", "1")["id"]
    assert as_nobody(host, "session", "request", "--vram", "1").returncode == 0
    refused = as_nobody(host, "session", "release", "--user", "root")
    assert refused.returncode == 5 and "only root and members of group carve" in refused.stderr, refused.stderr
    own = as_nobody(host, "session", "release", "--user", "nobody")
    assert own.returncode == 0 and own.stdout.count(": released") == 1, own.stdout + own.stderr
    assert as_nobody(host, "session", "request", "--vram", "1").returncode == 0
    done = host.carve("session", "release", "--user", "nobody")
    assert done.returncode == 0 and done.stdout.count(": released") == 1, done.stdout + done.stderr
    assert host.carve("session", "release", "--user", "nobody").stdout == "nobody has no sessions\n"
    assert [s["id"] for s in host.carve_json("session", "list")] == [mine]


@pytest.mark.parametrize("options", [["--user", "root", "--all"], ["--user", "root", "s-abc"], ["--user", "nosuchuser"], ["--user", ""]])
def test_session_release_user_with_another_choice_is_refused(host, options):
    done = host.carve("session", "release", *options)
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr


def test_logs_of_an_array_have_the_index_in_front(queues):
    queues.agent("quarter=0.25")
    array = queues.enqueue("sh", "-c", "echo one $CARVE_JOB_INDEX; printf two", queue="quarter", options=["--array", "0-2"])
    queues.ended(array)
    want = [line for i in range(3) for line in (f"{i}: one {i}", f"{i}: two")]
    for name in (array, array + "_*"):
        done = queues.host.carve("job", "logs", name)
        assert (done.returncode, done.stdout.splitlines()) == (0, want), done.stderr
    assert queues.host.carve("job", "logs", f"{array}_1").stdout == "one 1\ntwo"


def test_followed_logs_of_an_array_merge_line_by_line(queues):
    queues.agent("half=0.5")
    array = queues.enqueue("sh", "-c", f"printf begin; [ $CARVE_JOB_INDEX = 0 ] || {queues.gate()}; echo ' end'",
                           options=["--array", "0-3", "--retries", "0"])
    with subprocess.Popen([str(BUILD / "carve"), "job", "logs", "-f", array], stdout=subprocess.PIPE, text=True, env=queues.host.env) as child:
        assert child.stdout.readline() == "0: begin end\n"
        queues.open_gate()
        assert sorted(child.stdout.read().splitlines()) == [f"{i}: begin end" for i in (1, 2, 3)]
        assert child.wait() == 0


def test_followed_logs_of_an_array_go_on_with_the_next_attempt(queues):
    queues.agent("half=0.5")
    array = queues.enqueue("sh", "-c", "echo try $CARVE_JOB_ATTEMPT; [ $CARVE_JOB_ATTEMPT = 2 ]", options=["--array", "5", "--retries", "1"])
    done = queues.host.carve("job", "logs", "-f", array)
    assert done.returncode == 0 and done.stdout.splitlines()[-1] == "5: try 2", done.stdout
    assert queues.host.carve("job", "logs", "--attempt", "1", array).stdout == "5: try 1\n"


def test_an_array_that_printed_nothing_is_told(queues):
    queues.agent("half=0.5")
    array = queues.enqueue("true", options=["--array", "0-1", "--hold"])
    done = queues.host.carve("job", "logs", array)
    assert done.returncode == 1 and f"no job of array {array} has printed anything: its 2 jobs have had 0 attempts" in done.stderr, done.stderr
    done = queues.host.carve("job", "logs", "--attempt", "3", array)
    assert done.returncode == 1 and f"no job of array {array} has had 3 attempts: the most is 0" in done.stderr, done.stderr


def test_a_jobs_name_stands_for_its_id(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", "echo out", options=["--name", "train&go+1%"])
    array = queues.enqueue("true", options=["--name", "sweep", "--array", "0-2", "--hold"])
    assert queues.host.carve_json("job", "wait", "train&go+1%")[0]["id"] == id
    assert queues.host.carve_json("job", "show", "train&go+1%")["id"] == id
    assert queues.host.carve("job", "logs", "train&go+1%").stdout == "out\n"
    assert len(queues.jobs("sweep")) == len(queues.jobs(array + "_*")) == 3
    done = queues.host.carve("enqueue", "--queue", "half", "--after", "ok:swoop", "--", "true")
    assert done.returncode == 2 and "--after: there is no job 'swoop'" in done.stderr, done.stderr
    after = queues.enqueue("true", options=["--after", "any:sweep", "--name", "then"])
    assert queues.job(after)["asked"]["after"] == [f"any:{array}"]
    assert queues.host.carve_json("queue", "explain", "then")["id"] == after
    assert queues.host.carve("job", "cancel", "sweep").stdout == f"job {array}: cancelled\n"
    assert queues.ended(after)["state"] == "done"
    again = queues.host.carve("job", "rerun", "then").stdout.strip()
    assert queues.job(again)["name"] == "then"


def test_a_name_of_several_jobs_is_refused_with_the_candidates(queues):
    queues.agent("half=0.5")
    first = queues.enqueue("true", options=["--name", "train"])
    queues.ended(first)
    second = queues.enqueue("true", options=["--name", "train", "--hold"])
    for verb in ("show", "logs", "wait", "rerun"):
        done = queues.host.carve("job", verb, "train")
        assert done.returncode == 2 and f"2 jobs: {first} (done), {second} (held)" in done.stderr, done.stderr
    # Only a job that has not ended can be cancelled.
    assert queues.host.carve("job", "cancel", "train").stdout == f"job {second}: cancelled\n"
    done = queues.host.carve("job", "show", "nobody-has-this")
    assert done.returncode == 1 and "there is no job 'nobody-has-this'" in done.stderr, done.stderr


def test_a_name_that_looks_like_an_id_or_an_option_is_refused(queues):
    queues.agent("half=0.5")
    held = queues.enqueue("true", options=["--hold"])
    for name in ("17", "1_0", "1_*", "0", "1__2"):
        for argv in (["enqueue", "--queue", "half", "--name", name, "--", "true"], ["job", "edit", held, "--name", name]):
            done = queues.host.carve(*argv)
            assert done.returncode == 2 and done.stderr.count("\n") == 1 and not done.stdout, done
            assert f"--name: '{name}' looks like the ID of a job; begin it with a letter, for example: run-17" in done.stderr, done.stderr
    for argv in (["enqueue", "--queue", "half", "--name", "-x", "--", "true"], ["job", "edit", held, "--name=-x"]):
        done = queues.host.carve(*argv)
        assert done.returncode == 2 and "--name: '-x' looks like an option; begin it with a letter" in done.stderr, done.stderr
    assert len(queues.host.carve_json("job", "list")) == 1
    for name in ("run-17", "17th", "x1_0"):
        queues.enqueue("true", options=["--name", name, "--hold"])


def test_the_name_of_an_array_and_an_index_stand_for_that_job(queues):
    queues.agent("quarter=0.25")
    array = queues.enqueue("sh", "-c", "echo of $CARVE_JOB_INDEX", queue="quarter", options=["--array", "0-2", "--name", "arr"])
    queues.ended(array)
    assert queues.host.carve("job", "logs", "arr_1").stdout == "of 1\n"
    assert queues.host.carve("job", "logs", "arr_*").stdout == queues.host.carve("job", "logs", "arr").stdout == "0: of 0\n1: of 1\n2: of 2\n"
    assert queues.host.carve_json("job", "show", "arr_2")["id"] == f"{array}_2"
    assert queues.host.carve("job", "wait", "arr_0").returncode == 0
    for name, said in (("arr_3", f"there is no job {array}_3"), ("arr_x", "there is no job 'arr_x'"), ("other_1", "there is no job 'other_1'"),
                       ("_1", "there is no job '_1'")):
        done = queues.host.carve("job", "logs", name)
        assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr
    # A job that has the whole text as its name goes first, and a job alone has no index.
    alone = queues.enqueue("true", queue="quarter", options=["--name", "arr_1", "--hold"])
    assert queues.host.carve_json("job", "show", "arr_1")["id"] == alone
    assert queues.host.carve("job", "show", "arr_1_0").returncode == 1
    held = queues.enqueue("true", queue="quarter", options=["--name", "later", "--array", "4,5", "--hold"])
    assert queues.host.carve("job", "cancel", "later_5").stdout == f"job {held}_5: cancelled\n"
    assert [queues.job(f"{held}_{i}")["state"] for i in (4, 5)] == ["held", "cancelled"]
    queues.enqueue("true", queue="quarter", options=["--name", "later", "--array", "4,5", "--hold"])
    done = queues.host.carve("job", "show", "later_4")
    assert done.returncode == 2 and "'later' is the name of 2 jobs" in done.stderr, done.stderr


def test_a_job_that_is_not_there_is_a_failure_in_every_verb(queues):
    """The documented exit code of that is 1; 2 is for words that make no sense."""
    queues.agent("half=0.5")
    more = {"edit": ["--priority", "3"], "move": ["--queue", "half"]}
    for job in ("999", "9_9", "nope", "nope_1"):
        for verb in ("show", "logs", "wait", "cancel", "hold", "release", "rerun", "clone", "edit", "move"):
            done = queues.host.carve("job", verb, job, *more.get(verb, []))
            assert done.returncode == 1 and "there is no job" in done.stderr and done.stderr.count("\n") == 1, (verb, done)
        assert queues.host.carve("queue", "explain", job).returncode == 1
        done = queues.host.carve("enqueue", "--queue", "half", "--after", job, "--", "true")
        assert done.returncode == 2 and "--after: there is no job" in done.stderr, done.stderr


@pytest.mark.parametrize("when", ["2020-01-01", "2020-01-01T08:00", "2020-01-01T08:00:30"])
def test_a_beginning_in_the_past_is_refused(host, when):
    done = host.carve("enqueue", "--queue", "half", "--begin", when, "--", "true")
    assert done.returncode == 2 and f"--begin: '{when}' is in the past; for example: now, now+30m" in done.stderr, done.stderr


def test_a_directory_that_the_user_cannot_enter_is_refused(shared):
    done = as_nobody(shared.host, "enqueue", "--queue", "half", "--chdir", "/root", "--", "true")
    assert done.returncode == 2 and "--chdir: /root cannot be entered: Permission denied" in done.stderr, done.stderr


def test_an_array_takes_one_number(queues):
    queues.agent("half=0.5")
    ids = [queues.enqueue("sh", "-c", "echo $CARVE_JOB_ID $x", options=options)
           for options in ([], ["--array", "0-2"], [], ["--array", "0-1999", "--hold"], ["--param", "x=1,2"], [])]
    assert ids == ["1", "2", "3", "4", "5", "6"]
    queues.ended("2")
    assert queues.host.carve("job", "logs", "2").stdout.splitlines() == [f"{i}: 2_{i}" for i in range(3)]
    assert queues.job("2_1")["array"] == 2 and queues.host.carve("job", "show", "2_3").returncode == 1
    # The numbers go on after the daemon has started anew.
    queues.kill_daemon()
    assert queues.enqueue("true", options=["--array", "0-1"]) == "7" and queues.enqueue("true") == "8"


def test_arrays_of_a_long_text_take_one_number_each(queues):
    """The text alone may take the daemon longer than a part of its work may: no job of the array is written in the first part."""
    queues.agent("half=0.5")
    words = [f"{i:050}" for i in range(9000)]
    ids = [queues.enqueue("true", *words, options=["--array", "0-299", "--hold"]) for _ in range(30)]
    assert ids == [str(i) for i in range(1, 31)]


def test_jobs_start_in_the_order_in_which_they_came_before_and_after_a_restart(queues):
    queues.agent("whole=1", gpus="0")
    first = queues.witnessed(queues.gate(), queue="whole")
    queues.wait_state(first, "running")
    array = queues.witnessed(queue="whole", options=["--array", "3,1"])
    last = queues.witnessed(queue="whole")
    queues.kill_daemon()
    queues.open_gate()
    queues.ended(last)
    assert [line.split()[0] for line in queues.runs() if line.endswith("start")] == [first, f"{array}_1", f"{array}_3", last]
