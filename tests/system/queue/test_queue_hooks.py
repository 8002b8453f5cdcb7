"""Hooks of agents: the daemon has them run, for as long as it has the agent."""
import contextlib
import http.server
import json
import os
import pathlib
import signal
import sqlite3
import threading

import pytest

from conftest import rest_long, wait_until
from queueing import queues  # noqa: F401: fixtures

STATES = ["queued", "starting", "running", "done"]


@pytest.fixture
def posted():
    """A server; what was posted to it, and with which token."""
    got = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append((self.headers["Authorization"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *a):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    got.append(f"http://user:pass@127.0.0.1:{server.server_port}/secret")
    yield got
    server.shutdown()


def told(path, id):
    lines = path.read_text().splitlines() if path.exists() else []
    return [line.split(" ", 2)[1] for line in lines if line.startswith(f"{id} ")]


def hook(path):
    return f'echo "$CARVE_JOB_ID $CARVE_JOB_STATE $CARVE_JOB_QUEUE $(cat)" >> {path}'


def command_lines():
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass


def test_the_daemon_tells_an_agents_hook_and_webhook(queues, tmp_path, posted):
    url = posted.pop()
    out, other = tmp_path / "told", tmp_path / "other"
    env = {"CARVE_WEBHOOK": url, "CARVE_WEBHOOK_TOKEN": "t0k", "CARVE_HOOK": hook(out) + "; : pa55"}
    done = queues.host.carve("agent", "--detached", "--gpus", "0", "--queue", "half=0.5", env=env)
    assert done.returncode == 0, done.stderr
    queues.agent("other=0.5", gpus="1", options=("--hook", hook(other)))
    first, second = queues.enqueue("true"), queues.enqueue("true", queue="other")
    wait_until(lambda: told(out, first) == STATES and told(other, second) == STATES)
    assert not told(out, second) and not told(other, first)
    wait_until(lambda: [e["state"] for _, e in posted if e["id"] == first] == STATES)
    assert {token for token, _ in posted} == {"Bearer t0k"} and all(e["queue"] == "half" for _, e in posted)
    shown = queues.host.carve("agent", "--status").stdout + queues.host.carve("agent", "--status", "--json").stdout
    logs = "".join(p.read_text(errors="replace") for p in pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]).glob("*.log"))
    for text in [shown, logs, *command_lines()]:
        assert not any(secret in text for secret in ("t0k", "pass@", "pa55"))


def test_a_hook_outlives_the_daemon_that_it_was_given_to(queues, tmp_path):
    out = tmp_path / "told"
    queues.agent("half=0.5", options=("--hook", hook(out)))
    before = queues.witnessed(queues.gate())
    wait_until(lambda: told(out, before) == STATES[:3])
    os.kill(queues.host.daemon_pid(), signal.SIGKILL)
    queues.open_gate()
    wait_until(lambda: told(out, before)[-1:] == ["done"])
    after = queues.enqueue("true")
    wait_until(lambda: told(out, after) == STATES)


def test_a_hook_that_hangs_or_fails_is_noted_and_holds_up_no_job(queues, tmp_path):
    ready = tmp_path / "ready"
    body = (f"case $CARVE_JOB_STATE in starting) sleep 1000 & sleep 1000;; "
            f"done) echo end >> {ready}; exit 3;; esac; echo $CARVE_JOB_STATE >> {ready}")
    agent = queues.agent("half=0.5", options=("--hook-timeout", "1", "--hook", body))
    job = queues.enqueue("true")
    assert queues.ended(job)["state"] == "done"
    wait_until(lambda: ready.exists() and ready.read_text().split() == ["queued", "running", "end"])
    log = pathlib.Path(agent["hook_log"])
    wait_until(lambda: "failed" in log.read_text())
    assert log.read_text().splitlines() == [f"carve: note: the hook took too long and was killed for job {job}, starting",
                                            f"carve: note: the hook failed for job {job}, done"]


def test_a_hooks_program_that_was_killed_is_started_again_and_one_of_a_stopped_agent_ends(queues, tmp_path):
    out, pid = tmp_path / "told", tmp_path / "pid"
    agent = queues.agent("half=0.5", options=("--hook", f"echo $PPID > {pid}.new; mv {pid}.new {pid}; {hook(out)}"))
    first = queues.enqueue("true")
    wait_until(lambda: told(out, first) == STATES)
    os.kill(int(pid.read_text()), signal.SIGKILL)
    ids = []
    wait_until(lambda: ids.append(queues.enqueue("true")) or queues.ended(ids[-1]) and told(out, ids[-1]), step=0.5)
    assert queues.host.carve("agent", "--stop", agent["id"]).returncode == 0
    program = pathlib.Path(f"/proc/{pid.read_text().strip()}")
    wait_until(lambda: not program.exists())


def kill_daemon(queues):
    """None follows on it until a command comes."""
    queues.kill_daemon()


def blocked_hook(tmp_path):
    """One that says who runs it, and waits for a file before it tells of a change."""
    return (f"echo $PPID > {tmp_path}/pid.new; mv {tmp_path}/pid.new {tmp_path}/pid; "
            f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done; {hook(tmp_path / 'told')}")


def ends(tmp_path, ids):
    return [told(tmp_path / "told", id).count("done") for id in ids]


@pytest.mark.parametrize("killed", rest_long(["both", "program", "daemon"]))
def test_each_end_is_told_where_the_hooks_program_or_the_daemon_is_killed(queues, tmp_path, killed):
    """The program has dealt with none of the changes then: they are in its pipe, or not even there."""
    queues.agent("half=0.5", options=("--hook", blocked_hook(tmp_path)))
    ids = [queues.enqueue("true") for _ in range(5)]
    assert all(queues.ended(id)["state"] == "done" for id in ids)
    wait_until((tmp_path / "pid").exists)
    if killed != "program":
        kill_daemon(queues)
    if killed != "daemon":
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    queues.host.carve("queue", "list")
    wait_until(lambda: all(ends(tmp_path, ids)), timeout=60)
    if killed == "program":
        assert ends(tmp_path, ids) == [1] * 5


def test_ends_are_told_though_more_changes_came_than_are_remembered(queues, tmp_path):
    queues.agent("half=0.5", options=("--hook", blocked_hook(tmp_path)))
    ids = [queues.enqueue("true") for _ in range(2)]
    assert all(queues.ended(id)["state"] == "done" for id in ids)
    wait_until((tmp_path / "pid").exists)
    queues.enqueue("true", queue="other", options=["--array", "0-4999", "--hold"])
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    (tmp_path / "go").touch()
    wait_until(lambda: ends(tmp_path, ids) == [1, 1], timeout=60)


def test_an_end_that_was_dealt_with_is_not_told_again_by_the_next_daemon(queues, tmp_path):
    (tmp_path / "go").touch()
    queues.agent("half=0.5", options=("--hook", blocked_hook(tmp_path)))
    first = queues.enqueue("true")

    def is_noted():
        with sqlite3.connect(f"file:{queues.host.env['CARVE_RUNTIME_DIR']}/queue.db?mode=ro", uri=True) as db:
            return db.execute("SELECT max(change) FROM job").fetchone() == db.execute("SELECT max(change) FROM told").fetchone()

    wait_until(lambda: told(tmp_path / "told", first) == STATES and is_noted())
    kill_daemon(queues)
    second = queues.enqueue("true")
    wait_until(lambda: told(tmp_path / "told", second) == STATES)
    assert ends(tmp_path, [first, second]) == [1, 1]


@pytest.mark.parametrize("options, says", [(("--webhook", "file:///etc/passwd"), "http://"),
                                           (("--hook", "true", "--hook-timeout", "x"), "--hook-timeout"),
                                           (("--hook", "true", "--hook-timeout", "0"), "--hook-timeout")])
def test_wrong_hooks_are_refused_with_one_line(queues, options, says):
    done = queues.host.carve("agent", "--detached", "--queue", "half=0.5", *options)
    assert done.returncode == 2 and says in done.stderr, done.stderr
    assert queues.host.carve_json("agent", "--status") == []
