"""Attacks on those who hear of the ends of jobs: by what a user's job is called and says, by the number of ends, and by a server that takes
root's webhook (docs/user/queues.md, "Ends told elsewhere")."""
import json
import os
import pathlib
import socket
import threading

import pytest

from conftest import PATIENCE, rest_long, wait_until

from .lab import ALICE, BOB, CARVE, MALLORY, ROOT
from .test_jobs import Jobs, jobs  # noqa: F401: a fixture

HOSTILE = "$(touch {lie})`touch {lie}`;touch {lie};\n\r\nX-Injected: 1\n%0d%0a'\"--url=file:///etc/shadow"


class Reader:
    """A `carve job events` of that user, from the first end on."""

    def __init__(self, lab, uid, *options, env=None):
        self.dir = lab.dir / f"reader-{uid}"
        self.dir.mkdir()
        os.chown(self.dir, uid, uid)
        self.notes, self.cursor = self.dir / "notes", self.dir / "cursor.json"
        self.process = lab.popen(uid, CARVE, "job", "events", "--from", "0", "--cursor-file", self.cursor, *options, env=env,
                                 stdout=open(self.dir / "out", "w"), stderr=open(self.notes, "w"), stdin=None)

    def ends(self):
        lines = (self.dir / "out").read_text().splitlines()
        return [json.loads(line) for line in lines]


@pytest.mark.attack("1", "names, tags, parameters, files and variables of a user's job, where root's command hears of its end")
def test_a_job_says_nothing_of_its_own_to_roots_command(lab, jobs):
    told, lie = lab.dir / "told", lab.dir / "open" / "lie"
    lie.parent.mkdir()
    lie.parent.chmod(0o777)  # so that the job's user, too, could tell it
    words = HOSTILE.format(lie=lie)
    Reader(lab, ROOT, "--exec", f"{{ tr '\\0' '\\n' < /proc/$$/environ; cat; echo; id -u; }} >> {told}; echo end >> {told}")
    place = lab.home(MALLORY) / "$(touch lie)"
    place.mkdir()
    os.chown(place, MALLORY, MALLORY)
    for options in (("--name", "a;$(id)"), ("-o", f"{place}/%x"), ()):
        id = jobs.enqueue(MALLORY, "sh", "-c", "echo \"$0\"; kill -9 $$", words, options=options, cwd=place,
                          env={"CARVE_EXEC": words, "CARVE_WEBHOOK": words, "EVIL": words, "GIT_DIR": "/nowhere", "PATH": "/evil:/usr/bin:/bin"})
        jobs.ended(MALLORY, id)
    wait_until(lambda: told.exists() and told.read_text().count('"failed"') == 3 and told.read_text().endswith("end\n"))
    said = told.read_text()
    assert not any(word in said for word in ("touch", "EVIL", "nowhere", "/evil", "X-Injected", "a;$", str(MALLORY))), said
    assert not lie.exists() and not (place / "lie").exists()


FLOODS = [150, 1200]


@pytest.mark.attack("9", "a user whose cancelled array lies between the ends of others")
@pytest.mark.parametrize("flood", rest_long(FLOODS))
def test_a_user_hears_of_no_end_but_their_own_and_soon(lab, jobs, flood):
    """Root hears of all ends."""
    first = jobs.enqueue(BOB, "true")
    jobs.ended(BOB, first)
    array = jobs.enqueue(ALICE, "true", options=("--array", f"0-{flood - 1}", "--hold"))
    assert lab.carve(ALICE, "job", "cancel", array).returncode == 0
    second = jobs.enqueue(BOB, "true")
    jobs.ended(BOB, second)
    bob, root, mallory = (Reader(lab, uid, "--json") for uid in (BOB, ROOT, MALLORY))
    wait_until(lambda: [end["id"] for end in bob.ends()] == [first, second], timeout=10)
    wait_until(lambda: len(root.ends()) == flood + 2, timeout=5 * PATIENCE)
    ends = root.ends()
    assert {end["state"] for end in ends if end["id"].startswith(f"{array}_")} == {"cancelled"} and (ends[0]["id"], ends[-1]["id"]) == (first, second)
    assert [end["number"] for end in ends] == sorted(end["number"] for end in ends)
    # She has looked at all numbers, and seen none of the ends.
    wait_until(lambda: json.loads(mallory.cursor.read_text())["next"] == flood + 3)
    assert not mallory.ends() and len(bob.ends()) == 2


class Server:
    """Takes connections and does with each what it is made for: answer(connection, request)."""

    def __init__(self, answer):
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}/x"
        self.heard, self.answer = [], answer
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                connection = self.listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self.talk, args=(connection,), daemon=True).start()

    def talk(self, connection):
        try:
            request = connection.recv(65536)
            self.heard.append(request)
            self.answer(connection, request)
            connection.close()
        except OSError:
            pass  # the other side has had enough


def flood(head):
    def answer(connection, request):
        connection.sendall(head)
        while True:
            connection.sendall(b"x" * 65536)
    return answer


def redirects(to):
    return lambda connection, request: connection.sendall(
        b"HTTP/1.1 307 Go on\r\nLocation: " + to.encode() + b"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")


@pytest.mark.attack("1", "a server that sends root's webhook to files, sockets and other hosts")
def test_a_webhook_is_led_nowhere_else(lab, jobs):
    other = Server(lambda connection, request: None)
    id = jobs.enqueue(ALICE, "true")
    jobs.ended(ALICE, id)
    for to in (other.url, "file:///etc/passwd", "gopher://127.0.0.1:" + other.url.rsplit(":", 1)[1]):
        server = Server(redirects(to))
        reader = Reader(lab, ROOT, env={"CARVE_WEBHOOK": server.url})
        wait_until(lambda: f"did not take the end of job {id}, done: HTTP status 307" in reader.notes.read_text())  # noqa: B023
        reader.process.kill()
        reader.process.wait()
        reader.dir.rename(reader.dir.with_name(f"reader-{server.url.rsplit(':', 1)[1].split('/')[0]}"))
    assert not other.heard


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-A: ",
                                  b"HTTP/1.1 100 Go on\r\n\r\n"], ids=["endless", "long", "header", "never"])
@pytest.mark.attack("9", "a server that answers root's webhook without an end")
@pytest.mark.long
def test_a_server_without_an_end_fills_no_memory(lab, jobs, head):
    server = Server(flood(head))
    reader = Reader(lab, ROOT, env={"CARVE_WEBHOOK": server.url})
    assert jobs.ended(MALLORY, jobs.enqueue(MALLORY, "true"))["state"] == "done"
    # It gives up and tries again, and what it keeps is bounded.
    wait_until(lambda: len(server.heard) >= 2, timeout=60)
    pids = [int(path.parent.name) for path in pathlib.Path("/proc").glob("[0-9]*/cmdline") if path.exists() and str(reader.cursor).encode() in path.read_bytes()]
    assert pids
    for pid in pids:
        status = dict(line.split(":", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
        assert int(status["VmHWM"].split()[0]) < 64 << 10, status
