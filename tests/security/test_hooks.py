"""Attacks on hooks of root's agent: by what a user's job is called and says, and by a server that takes its webhook (docs/queues.md)."""
import os
import pathlib
import signal
import socket
import threading

import pytest

from conftest import wait_until

from .lab import ALICE, MALLORY, ROOT
from .test_jobs import Jobs

HOSTILE = "$(touch {lie})`touch {lie}`;touch {lie};\n\r\nX-Injected: 1\n%0d%0a'\"--url=file:///etc/shadow"


def agent_with(lab, *options, **kw):
    lab.carve_json(ROOT, "agent", "--detached", "--gpus", "all", "--queue", "half=0.5", "sixth=0.125", *options, **kw)
    jobs = Jobs.__new__(Jobs)
    jobs.lab = lab
    return jobs


@pytest.mark.attack("1", "names, tags, parameters, files and variables of a user's job, where root's hook hears of it")
def test_a_job_says_nothing_of_its_own_to_roots_hook(lab):
    told, lie = lab.dir / "told", lab.dir / "open" / "lie"
    lie.parent.mkdir()
    lie.parent.chmod(0o777)  # so that the job's user, too, could tell it
    words = HOSTILE.format(lie=lie)
    jobs = agent_with(lab, "--hook", f"{{ tr '\\0' '\\n' < /proc/$$/environ; cat; echo; id -u; }} >> {told}; echo end >> {told}")
    place = lab.home(MALLORY) / "$(touch lie)"
    place.mkdir()
    os.chown(place, MALLORY, MALLORY)
    for options in (("--name", "a;$(id)"), ("-o", f"{place}/%x"), ()):
        id = jobs.enqueue(MALLORY, "sh", "-c", "echo \"$0\"; kill -9 $$", words, options=options, cwd=place,
                          env={"CARVE_HOOK": words, "CARVE_WEBHOOK": words, "EVIL": words, "GIT_DIR": "/nowhere", "PATH": "/evil:/usr/bin:/bin"})
        jobs.ended(MALLORY, id)
    wait_until(lambda: told.exists() and told.read_text().count('"failed"') == 3 and told.read_text().endswith("end\n"))
    said = told.read_text()
    assert not any(word in said for word in ("touch", "EVIL", "nowhere", "/evil", "X-Injected", "a;$", str(MALLORY))), said
    assert not lie.exists() and not (place / "lie").exists()


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


def poster(url):
    """The process that posts for root's agent."""
    for path in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if b"events\0--stdin" in (path / "cmdline").read_bytes() and url.encode() in (path / "environ").read_bytes():
                return path
        except OSError:
            pass
    return None


@pytest.mark.attack("1", "a server that sends the webhook of root's agent to files, sockets and other hosts")
def test_a_webhook_is_led_nowhere_else(lab):
    other = Server(lambda connection, request: None)
    for to in (other.url, "file:///etc/passwd", "gopher://127.0.0.1:" + other.url.rsplit(":", 1)[1]):
        server = Server(redirects(to))
        agent = lab.carve_json(ROOT, "agent", "--detached", "--gpus", "all", "--queue", "half=0.5", env={"CARVE_WEBHOOK": server.url})
        jobs = Jobs.__new__(Jobs)
        jobs.lab = lab
        id = jobs.enqueue(ALICE, "true")
        log = pathlib.Path((agent[0] if isinstance(agent, list) else agent)["hook_log"])
        wait_until(lambda: log.exists() and f"did not take job {id}, done: HTTP status 307" in log.read_text())  # noqa: B023
        lab.carve(ROOT, "agent", "--stop", (agent[0] if isinstance(agent, list) else agent)["id"])
    assert not other.heard


@pytest.mark.parametrize("head", [b"HTTP/1.1 200 OK\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n", b"HTTP/1.1 200 OK\r\nX-A: ",
                                  b"HTTP/1.1 100 Go on\r\n\r\n"], ids=["endless", "long", "header", "never"])
@pytest.mark.attack("9", "a server that answers the webhook of root's agent without an end")
@pytest.mark.long
def test_a_server_without_an_end_holds_up_nobody(lab, head):
    server = Server(flood(head))
    jobs = agent_with(lab, env={"CARVE_WEBHOOK": server.url})
    first = jobs.enqueue(MALLORY, "true")
    wait_until(lambda: len(server.heard) >= 1)
    poster_path = wait_until(lambda: poster(server.url))
    # Others' jobs go on, and their changes are heard of elsewhere.
    for _ in range(3):
        assert jobs.ended(ALICE, jobs.enqueue(ALICE, "true", queue="sixth"))["state"] == "done"
    assert jobs.ended(MALLORY, first)["state"] == "done"
    # It gives up, and what it keeps is bounded.
    wait_until(lambda: len(server.heard) >= 2, timeout=60)
    most = int(next(line for line in (poster_path / "status").read_text().splitlines() if line.startswith("VmHWM")).split()[1])
    assert most < 64 << 10, most
    os.kill(int(poster_path.name), signal.SIGKILL)
