"""`carve enqueue --wait`: passes standard input on, prints what the job prints, and obeys Ctrl-C and SIGTERM."""
import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import termios

import pytest

from conftest import BUILD, PATIENCE, wait_until
from queueing import queues  # noqa: F401: a fixture

CARVE = BUILD / "carve"


def waiter(queues, *words, queue="half", **kw):
    """Its process, and the job's ID."""
    process = queues.host.popen([CARVE, "enqueue", "--queue", queue, "--wait", *words], **kw)
    said = process.stderr.readline()
    while said.startswith("carve: note:"):
        said = process.stderr.readline()
    return process, said.split()[2]


def test_the_output_comes_while_the_job_runs(queues):
    queues.agent("half=0.5")
    process, id = waiter(queues, "--", "sh", "-c", "echo one; " + queues.gate() + "; printf two; exit 7")
    assert process.stdout.readline() == "one\n"
    assert queues.state(id) == "running"
    queues.open_gate()
    assert process.stdout.read() == "two" and process.wait(60) == 7
    assert f"carve: job {id}: exit code 7" in process.stderr.read()


def test_standard_error_is_apart_where_the_job_has_a_file_for_it(queues, tmp_path):
    queues.agent("half=0.5")
    script = "echo out; echo err >&2"
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--", "sh", "-c", script)
    assert done.returncode == 0 and sorted(done.stdout.split()) == ["err", "out"]
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "-e", f"{tmp_path}/%j.e", "--", "sh", "-c", script)
    id, *said = done.stderr.splitlines()
    assert (done.returncode, done.stdout, said) == (0, "out\n", ["err"])
    assert (tmp_path / f"{id.split()[2]}.e").read_text() == "err\n"
    both = f"{tmp_path}/both"
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "-o", both, "-e", both, "--", "sh", "-c", script)
    assert sorted(done.stdout.split()) == ["err", "out"] and len(done.stderr.splitlines()) == 1


@pytest.fixture(autouse=True)
def own_cache(queues, tmp_path):
    queues.host.env["XDG_CACHE_HOME"] = str(tmp_path / "cache")


@pytest.mark.parametrize("options", [[], ["-o", "%j.out"]], ids=["logs", "file"])
def test_the_output_of_each_attempt_comes_once(queues, tmp_path, options):
    queues.agent("half=0.5")
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--retries", "2", "--chdir", str(tmp_path), *options, "--",
                             "sh", "-c", "echo try $CARVE_JOB_ATTEMPT; exit 75")
    assert (done.returncode, done.stdout) == (75, "try 1\ntry 2\ntry 3\n")


def test_output_that_is_no_plain_file_is_not_waited_for(queues):
    queues.agent("half=0.5")
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "-o", "/dev/null", "--", "echo", "one")
    assert (done.returncode, done.stdout) == (0, "")


def test_with_json_nothing_but_json_is_printed(queues):
    queues.agent("half=0.5")
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--json", "--", "echo", "one")
    job, = json.loads(done.stdout)
    assert job["state"] == "done"


def test_ctrl_c_says_how_to_cancel_and_the_next_one_cancels(queues):
    queues.agent("half=0.5")
    process, id = waiter(queues, "--", "sh", "-c", "echo one; exec sleep 100")
    assert process.stdout.readline() == "one\n"
    process.send_signal(signal.SIGINT)
    assert f"job {id} goes on; Ctrl-C again cancels it" in process.stderr.readline()
    assert queues.state(id) == "running"
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 143 and queues.state(id) == "cancelled"
    assert process.stderr.read().splitlines()[-1] == f"carve: job {id}: cancelled"


def test_ctrl_c_is_obeyed_while_nobody_reads_the_output(queues):
    queues.agent("half=0.5")
    process, id = waiter(queues, "--", "sh", "-c", f"head -c 10000000 /dev/zero; touch {queues.dir}/written; exec sleep 100")
    wait_until((queues.dir / "written").exists)
    wait_until(lambda: struct.unpack("i", fcntl.ioctl(process.stdout, termios.FIONREAD, b"1234"))[0] == fcntl.fcntl(
        process.stdout, fcntl.F_GETPIPE_SZ))
    for said in (f"job {id} goes on", f"job {id} is cancelled"):
        process.send_signal(signal.SIGINT)
        assert select.select([process.stderr], [], [], PATIENCE)[0] and said in process.stderr.readline()
    assert len(process.stdout.read()) == 10000000
    assert process.wait(60) == 143 and queues.state(id) == "cancelled"


def test_sigterm_cancels_a_job_that_waits(queues):
    process, id = waiter(queues, "--", "true")  # there is no agent
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1 and queues.state(id) == "cancelled"


def test_sigquit_ends_the_waiting_alone(queues):
    queues.agent("half=0.5")
    process, id = waiter(queues, "--", "sh", "-c", "echo one; " + queues.gate())
    assert process.stdout.readline() == "one\n"
    process.send_signal(signal.SIGQUIT)
    assert process.wait(60) == 128 + signal.SIGQUIT and queues.state(id) == "running"
    queues.open_gate()
    assert queues.ended(id)["state"] == "done"


def test_signals_that_the_caller_ignores_are_ignored(queues):
    queues.agent("half=0.5")
    process = queues.host.popen(["sh", "-c", f"trap '' INT; exec {CARVE} enqueue --queue half --wait -- sh -c 'echo one; "
                                 + queues.gate().replace("'", "") + "'"])
    assert process.stdout.readline() == "one\n"
    process.send_signal(signal.SIGINT)
    queues.open_gate()
    assert process.wait(60) == 0 and "goes on" not in process.stderr.read()


def test_the_wait_goes_on_where_the_daemon_is_killed(queues):
    queues.agent("half=0.5")
    process, id = waiter(queues, "--", "sh", "-c", "echo one; " + queues.gate() + "; echo two")
    assert process.stdout.readline() == "one\n"
    os.kill(queues.host.daemon_pid(), signal.SIGKILL)
    wait_until(lambda: queues.state(id) == "running")
    queues.open_gate()
    assert process.stdout.read() == "two\n" and process.wait(60) == 0


def test_the_job_reads_standard_input_to_its_end(queues, tmp_path):
    queues.agent("half=0.5")
    (tmp_path / "long").write_bytes(bytes(range(256)) * 1000)  # more than a pipe holds
    for file in ("long", "empty"):
        (tmp_path / file).touch()
        with open(tmp_path / file) as stdin:
            done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--", "sha256sum", stdin=stdin)
        assert done.stdout.split()[0] == queues.host.run(["sha256sum", tmp_path / file]).stdout.split()[0], done.stderr
    assert list((tmp_path / "cache/carve/input").iterdir()) == []


def test_the_next_attempt_goes_on_in_standard_input(queues):
    queues.agent("half=0.5")
    process, _ = waiter(queues, "--retries", "2", "--", "sh", "-c", "read line; echo $line; exit 75", stdin=subprocess.PIPE)
    process.stdin.write("one\ntwo\n")
    process.stdin.close()
    assert process.stdout.read() == "one\ntwo\n\n" and process.wait(60) == 75


def test_a_line_reaches_the_job_while_it_runs(queues):
    queues.agent("half=0.5")
    process, _ = waiter(queues, "--", "cat", stdin=subprocess.PIPE)
    for line in ("one\n", "two\n"):
        process.stdin.write(line)
        process.stdin.flush()
        assert process.stdout.readline() == line
    process.stdin.close()
    assert process.wait(60) == 0


def test_standard_input_of_a_job_ends_with_its_waiter(queues):
    queues.agent("half=0.5")
    process, id = waiter(queues, "--", "sh", "-c", "cat; echo over", stdin=subprocess.PIPE)
    process.stdin.write("one\n")
    process.stdin.flush()
    assert process.stdout.readline() == "one\n"
    process.kill()
    process.wait()
    assert queues.ended(id)["state"] == "done"
    assert queues.host.carve("job", "logs", id).stdout == "one\nover\n"


def test_a_job_that_starts_after_its_waiter_left_has_no_standard_input(queues):
    process, id = waiter(queues, "--", "sh", "-c", "cat; echo over", stdin=subprocess.PIPE)
    process.send_signal(signal.SIGQUIT)
    assert process.wait(60) == 128 + signal.SIGQUIT
    queues.agent("half=0.5")
    assert queues.ended(id)["state"] == "done"
    assert queues.host.carve("job", "logs", id).stdout == "over\n"


def test_a_waiter_in_the_background_of_its_terminal_is_not_stopped(queues):
    """Whoever reads from a terminal there gets SIGTTIN."""
    queues.agent("half=0.5")
    shell = f"set -m; {CARVE} enqueue --queue half --wait -- sh -c '{queues.gate()}; exit 7' & {queues.gate('typed')}; " \
            f"echo > {queues.dir}/gate; wait %1; echo code $?"
    leader, follower = os.openpty()
    process = queues.host.popen(["setsid", "--ctty", "sh", "-c", shell], stdin=follower)
    os.write(leader, b"for the shell\n")
    queues.open_gate("typed")
    assert process.communicate(timeout=PATIENCE)[0] == "code 7\n"
    os.close(leader)
    os.close(follower)


def test_a_file_is_standard_input_where_one_is_named(queues, tmp_path):
    queues.agent("half=0.5")
    for index in "01":
        (tmp_path / f"in.{index}").write_text(f"line {index}\n")
    id = queues.enqueue("cat", options=["--chdir", str(tmp_path), "--input", "in.%a", "--array", "0-2"])
    jobs = queues.ended(id)
    assert [j["state"] for j in jobs] == ["done", "done", "failed"]
    assert [queues.host.carve("job", "logs", f"{id}_{i}").stdout for i in "01"] == ["line 0\n", "line 1\n"]
    assert jobs[2]["reason"] == "in.2: No such file or directory"
    done = queues.host.carve("enqueue", "--queue", "half", "--wait", "--chdir", str(tmp_path), "-i", "in.1", "--", "cat")
    assert done.stdout == "line 1\n"
