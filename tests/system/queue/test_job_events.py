"""The ends of jobs, which `carve job events` tells to a command and to a URL: each at least once, whatever is started anew."""
import http.server
import json
import os
import pathlib
import signal
import threading

import pytest

from conftest import BUILD, process_ended, rest_long, wait_until
from queueing import queues  # noqa: F401: fixtures

CARVE = BUILD / "carve"


@pytest.fixture
def posted():
    """A server: .got has what was posted to it and with which token, .status is what it answers."""
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            server.got.append((self.headers["Authorization"], json.loads(self.rfile.read(int(self.headers["Content-Length"])))))
            self.send_response(server.status)
            self.end_headers()

        def log_message(self, *a):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.got, server.status = [], 200
    server.url = f"http://user:pass@127.0.0.1:{server.server_port}/secret"
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


class Reader:
    """A `carve job events` with a cursor file, and what it wrote to standard error."""

    def __init__(self, queues, tmp_path):
        self.queues, self.cursor, self.notes, self.out = queues, tmp_path / "cursor.json", tmp_path / "notes", tmp_path / "told"
        self.process = None

    def start(self, *options, **kw):
        """Returns once it has a cursor: ends that come from now on are told."""
        kw.setdefault("stdout", open(self.notes.with_name("printed"), "a"))
        self.process = self.queues.host.popen([CARVE, "job", "events", "--cursor-file", self.cursor, *options], stderr=open(self.notes, "a"), **kw)
        wait_until(lambda: self.process.poll() is not None or self.cursor.exists() and self.cursor.read_text())
        return self

    def kill(self):
        self.process.kill()
        self.process.wait()

    def said(self):
        return self.notes.read_text()

    def command(self, more=":"):
        return f'{more}; echo "$CARVE_JOB_ID $CARVE_JOB_STATE $CARVE_JOB_QUEUE $(cat)" >> {self.out}'

    def told(self):
        lines = self.out.read_text().splitlines() if self.out.exists() else []
        return [line.split(" ", 1)[0] for line in lines]

    def next(self):
        return json.loads(self.cursor.read_text())["next"]


@pytest.fixture
def reader(queues, tmp_path):
    reader = Reader(queues, tmp_path)
    yield reader
    if reader.process:
        reader.kill()


def done(queues, count=1):
    ids = [queues.enqueue("true") for _ in range(count)]
    assert all(queues.ended(id)["state"] == "done" for id in ids)
    return ids


def asked(queues, query):
    socket = queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    return json.loads(queues.host.run(["curl", "-s", "--unix-socket", socket, f"http://x/v1/jobs/ends{query}"]).stdout)


def command_lines():
    for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            pass


def test_each_end_goes_to_a_command_and_to_a_url(queues, reader, posted):
    queues.agent("half=0.5")
    before, = done(queues)
    wait_until(lambda: asked(queues, "")["next"] == 2)
    reader.start(env={"CARVE_WEBHOOK": posted.url, "CARVE_WEBHOOK_TOKEN": "t0k", "CARVE_EXEC": reader.command() + "; : pa55"})
    good, bad = queues.enqueue("true"), queues.enqueue("sh", "-c", "exit 3")
    wait_until(lambda: len(reader.told()) == 2 and len(posted.got) == 2)
    assert before not in reader.told()  # the first end is the next one, where --from does not name another
    mine = posted.url.split("//")[1]  # with its port: the command lines of the tests beside this test are not its own
    assert not any(secret in line for secret in ("t0k", mine, "pa55") for line in command_lines())
    ends = {end["id"]: end for _, end in posted.got}
    assert set(ends[good]) == {"number", "id", "queue", "state", "at_ns", "attempt"}
    assert (ends[good]["state"], ends[bad]["state"], ends[good]["queue"]) == ("done", "failed", "half")
    assert {token for token, _ in posted.got} == {"Bearer t0k"} and sorted(end["number"] for end in ends.values()) == [2, 3]
    for line in reader.out.read_text().splitlines():
        id, state, queue, text = line.split(" ", 3)
        assert json.loads(text) == ends[id] and (state, queue) == (ends[id]["state"], "half")
    reader.kill()
    assert not reader.said() and not reader.notes.with_name("printed").read_text()


@pytest.mark.parametrize("killed", rest_long(["both", "reader", "daemon"]))
def test_each_end_is_told_though_reader_and_daemon_are_killed(queues, reader, tmp_path, killed):
    """The command has dealt with none of the ends then."""
    queues.agent("half=0.5")
    gate = f"while [ ! -e {tmp_path}/go ]; do sleep 0.05; done"
    reader.start("--exec", reader.command(gate))
    ids = done(queues, 3)
    if killed != "reader":
        queues.kill_daemon()
    if killed != "daemon":
        reader.kill()
    (tmp_path / "go").touch()
    queues.host.carve("queue", "list")  # a command starts the next daemon
    if killed != "daemon":
        reader.start("--exec", reader.command())
        wait_until(lambda: f"goes on with end 1, as {reader.cursor} says" in reader.said())
    later = done(queues)
    # A command that was asked when its reader was killed may have gone on.
    wait_until(lambda: set(reader.told()) == {*ids, *later}, timeout=60)
    wait_until(lambda: reader.next() == 5)


def test_an_end_that_was_told_is_not_told_again(queues, reader):
    queues.agent("half=0.5")
    reader.start("--exec", reader.command())
    first, = done(queues)
    wait_until(lambda: reader.next() == 2)
    reader.kill()
    queues.kill_daemon()
    second, = done(queues)
    reader.start("--from", "0", "--exec", reader.command())  # where a file says how far it is, that counts
    wait_until(lambda: reader.next() == 3)
    assert reader.told() == [first, second]


def test_a_command_that_fails_is_run_again_and_is_said_to_fail_once(queues, reader, tmp_path):
    queues.agent("half=0.5")
    reader.start("--exec-timeout", "1", "--exec",
                 f"echo x >> {tmp_path}/tries; case $(wc -l < {tmp_path}/tries) in 1) sleep 1000 & sleep 1000;; 2) kill -9 $$;; 3) exit 7;; esac; " + reader.command())
    first, = done(queues)
    wait_until(lambda: reader.told() == [first], timeout=60)
    second, = done(queues)
    wait_until(lambda: reader.told() == [first, second])
    assert reader.said().splitlines() == [
        f"carve: note: the command for the end of job {first}, done, took too long and was killed; carve tries again until it succeeds",
        "carve: note: the command succeeds again"]


def test_a_webhook_that_refuses_is_asked_again_and_the_command_is_not_run_again(queues, reader, posted):
    queues.agent("half=0.5")
    posted.status = 503
    reader.start("--webhook", posted.url, "--exec", reader.command())
    id, = done(queues)
    wait_until(lambda: len(posted.got) >= 2)
    assert reader.next() == 1
    posted.status = 200
    wait_until(lambda: "takes posts again" in reader.said())
    wait_until(lambda: reader.next() == 2)
    assert reader.told() == [id] and {end["id"] for _, end in posted.got} == {id}
    assert reader.said().splitlines() == [
        f"carve: note: the webhook at 127.0.0.1:{posted.server_port} did not take the end of job {id}, done: HTTP status 503; "
        "carve tries again until it succeeds", "carve: note: the webhook takes posts again"]


def test_a_reader_waits_for_a_daemon_that_is_away_and_starts_none(queues, reader):
    queues.agent("half=0.5")
    reader.start("--exec", reader.command())
    worker = queues.host.daemon_pid()
    supervisor = int(pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"], "lock").read_text().split()[0])
    os.kill(supervisor, signal.SIGTERM)
    wait_until(lambda: process_ended(worker) and process_ended(supervisor))
    wait_until(lambda: reader.said().count("\n") == 1)
    assert "carve tries again until it succeeds" in reader.said() and reader.process.poll() is None
    id, = done(queues)
    wait_until(lambda: reader.told() == [id], timeout=60)
    assert reader.said().splitlines()[1:] == ["carve: note: the daemon answers again"]


def test_all_ends_of_a_new_database_are_told(queues, reader):
    """Its numbers begin anew, so the cursor's number says nothing of them."""
    queues.agent("half=0.5")
    reader.start("--exec", reader.command())
    done(queues, 3)
    wait_until(lambda: reader.next() == 4)
    reader.kill()
    queues.kill_daemon()
    for path in pathlib.Path(queues.host.env["CARVE_RUNTIME_DIR"]).glob("queue.db*"):
        path.unlink()
    queues.agent("half=0.5")
    ids = done(queues, 5)
    reader.start("--exec", reader.command())
    wait_until(lambda: set(reader.told()[3:]) == set(ids))
    assert "database of jobs is not the last one" in reader.said()


def test_ends_are_printed_from_a_number_on(queues, reader):
    queues.agent("half=0.5")
    ids = [id for _ in range(3) for id in done(queues)]
    printed = reader.notes.with_name("printed")
    reader.start("--from", "2", "--json")
    wait_until(lambda: printed.read_text().count("\n") == 2)
    assert [(end["number"], end["id"]) for end in map(json.loads, printed.read_text().splitlines())] == [(2, ids[1]), (3, ids[2])]
    reader.kill()
    plain = queues.host.popen([CARVE, "job", "events", "--from", "0"])
    assert [plain.stdout.readline() for _ in ids] == [f"job {id}: done\n" for id in ids]
    plain.kill()


def test_without_a_name_the_cursor_is_in_the_users_state_directory(queues, tmp_path):
    state = tmp_path / "state"
    process = queues.host.popen([CARVE, "job", "events", "--exec", "true"], env={"XDG_STATE_HOME": str(state)})
    wait_until(lambda: (state / "carve/events.json").exists() and (state / "carve/events.json").read_text())
    cursor = json.loads((state / "carve/events.json").read_text())
    assert cursor["next"] == 1 and len(cursor["database"]) == 16
    second = queues.host.carve("job", "events", "--exec", "true", env={"XDG_STATE_HOME": str(state)})
    assert second.returncode == 1 and "another `carve job events` uses" in second.stderr and "--cursor-file" in second.stderr
    process.kill()


def test_a_file_that_is_no_cursor_is_left_alone(queues, tmp_path):
    for text in ("export PATH\n", '{"database": "", "next": 7}\n', json.dumps({"database": "x", "next": "7"}).ljust(160), "x" * 160, "y" * 5000):
        (tmp_path / "file").write_text(text)
        done = queues.host.carve("job", "events", "--exec", "true", "--cursor-file", tmp_path / "file")
        assert done.returncode == 1 and "is no cursor file" in done.stderr and (tmp_path / "file").read_text() == text


@pytest.mark.parametrize("options, says", [(("--webhook", "file:///etc/passwd"), "http://"), (("--exec", "true", "--exec-timeout", "x"), "--exec-timeout"),
                                           (("--exec", "true", "--exec-timeout", "0"), "--exec-timeout"), (("--exec-timeout", "5"), "--exec CMD"), (("--from", "x"), "--from"),
                                           (("--from", "-1"), "--from"), (("--from", "99"), "the next end has number 1"),
                                           (("--hook", "true"), "carve job events --exec"), (("--stdin",), "carve job events --from")])
def test_a_wrong_option_is_refused_with_the_right_one(queues, tmp_path, options, says):
    done = queues.host.carve("job", "events", *options, env={"XDG_STATE_HOME": str(tmp_path)})
    assert done.returncode == 2 and says in done.stderr, done.stderr


def test_a_command_gets_each_end_as_a_line(queues, reader):
    """`cat >> FILE` makes a file of one object a line, and `read` succeeds."""
    queues.agent("half=0.5")
    reader.start("--exec", f"read -r end && echo \"$end\" >> {reader.out} && cat >> {reader.out}")
    ids = done(queues, 2)
    wait_until(lambda: reader.out.exists() and reader.out.read_text().count("\n") == 2)
    assert {json.loads(line)["id"] for line in reader.out.read_text().splitlines()} == set(ids)


@pytest.mark.parametrize("option", ["--hook", "--webhook", "--hook-timeout"])
def test_an_agent_says_which_command_tells_of_ends_now(queues, option):
    refused = queues.host.carve("agent", "--detached", "--queue", "half=0.5", option, "x")
    assert refused.returncode == 2 and f"unknown option {option}" in refused.stderr and "carve job events --" in refused.stderr
    assert queues.host.carve_json("agent", "--status") == []
