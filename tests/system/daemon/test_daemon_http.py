"""carved's HTTP API over a fake driver: what is well formed, what is not, and clients that mean harm."""
import json
import os
import pathlib
import select
import socket
import subprocess
import time

import pytest

from build_options import sanitized
from conftest import BUILD, clean_env
from daemon_client import *
from own_daemon import daemon, make_daemon, module_daemon  # noqa: F401: fixtures
from programs import SOURCES


def test_version_and_gpus(daemon):
    version = daemon.call("GET", "/v1/version").json
    assert version["pid"] == daemon.pid
    assert version["driver_version"] == "550.0.fake" and version["system"] is False
    gpu = daemon.gpu()
    assert gpu["memory_bytes"] == gpu["available_bytes"] == 80 * GIB
    assert gpu["name"] == "Fake H100" and gpu["sessions"] == 0 and gpu["held_by"] is None


def test_curl_reaches_it(daemon):
    done = subprocess.run(["curl", "-s", "--unix-socket", daemon.runtime / "carved.sock",
                           "http://localhost/v1/gpus"], stdout=subprocess.PIPE, timeout=60)
    assert json.loads(done.stdout)[0]["index"] == 0


@pytest.mark.parametrize("body", [
    b"", b"{", b"[]", b"4", b"null", b"{}", b'{"vram": 4}', b'{"vram": "4", "gpu": "1"}',
    b'{"vram": "4", "vram": "5"}', b'{"vram": "4", "colour": "red"}', b'{"vram_bytes": "4"}',
    b'{"vram_bytes": -4}', b'{"vram_bytes": 1}', b'{"vram_bytes": 1e30}', b'{"vram": "4 GiB"}',
    b'{"gpu_memory": "4"}', b'{"gpu": 1.25}', b'{"gpu": "0"}', b'{"gpu": 1e308}',
    b'{"gpu": "9999999999"}', b'{"vram": "4", "gpus": 0}', b'{"vram": "4", "gpus": 65}',
    b'{"vram": "4", "gpus": "2"}', b'{"vram": "4", "gpu_ids": "x"}', b'{"vram": "4", "gpu_ids": "1-0"}',
    b'{"vram": "4", "gpu_ids": "0,"}', b'{"vram": "4", "gpu_ids": "7"}', b'{"vram": "4", "gpu_ids": ""}',
    b'{"vram": "4", "wait_for": -1}', b'{"vram": "4", "wait_for": true}',
    b'{"vram": "4", "ephemeral": 1}', b'{"vram": "4", "vram_strict": "yes"}',
    b'{"vram": "4", "name": "a\\u0007b"}', b'{"vram": "4", "name": "' + b"x" * 64 + b'"}',
    b'{"vram": "4", "name": ""}', b'{"vram": "4", "name": "a/b"}', b'{"vram": "4", "name": "a b"}', b'{"vram": "4", "name": "s-abcdef"}',
    b'{"vram": "4\\u0000"}', b'\xff\xfe', b'{"vram": "4", "gpu_compute": "200%"}',
    b'{"mig_profile": 1}', b"[" * 60000, b'{"gpu": 1, "gpu_compute": "25%"}',
])
def test_malformed_requests_are_refused_in_words(module_daemon, body):
    answer = module_daemon.call("POST", "/v1/sessions", body)
    assert answer.status == 400, answer.json
    assert answer.error["code"] == 2 and answer.error["message"]
    assert module_daemon.call("GET", "/v1/sessions").json == []


def test_an_unknown_field_is_told_what_there_is(daemon):
    sizes = "vram_bytes, vram, gpu_memory, gpu, mig_profile"
    created = daemon.call("POST", "/v1/sessions", {"vram": "4", "device": "0"}).error
    assert created["message"] == "unknown field 'device'"
    assert created["hint"] == f"there are {sizes}, mig_start, backend, vram_strict, gpu_compute, gpus, mig_share, gpu_ids, mig_places, wait_for, " \
        "session_timeout, ephemeral, kept, priority, name, id, again, pod"
    session = daemon.call("POST", "/v1/sessions", {"vram": "4"}).json["id"]
    assert daemon.call("PATCH", f"/v1/sessions/{session}", {"size": "4"}).error["hint"] == f"there are {sizes}"
    hint = daemon.call("PUT", "/v1/timeslicing", {"modes": "fair"}).error["hint"]
    assert hint == "time-slicing takes mode, lease, granularity, gpu_ids"
    assert daemon.call("PUT", "/v1/quotas/user/root", {"memory": 1}).error["hint"].startswith("there are vram, vram_bytes, sessions, gpus")


def test_a_field_that_is_nearly_spelled_right_is_named(daemon):
    assert daemon.call("POST", "/v1/sessions", {"vram": "4", "gpu_id": "0"}).error["hint"] == "did you mean 'gpu_ids'?"
    assert daemon.call("PUT", "/v1/quotas/user/root", {"vrams": 1}).error["hint"] == "did you mean 'vram'?"


@pytest.mark.parametrize("body, message", [
    ('{"vram_bytes": -1}', "vram_bytes: -1 is negative"),
    ('{"vram_bytes": 0}', "vram_bytes: 0 is below the smallest slice of 100 MB"),
    ('{"vram": "4 GiB"}', "vram: '4 GiB' has a blank in it"),
    ('{"gpu_memory": "4"}', "gpu_memory: '4' has no unit"),
    ('{"gpu": -1}', "gpu: '-1' is negative"),
    ('{"vram": "4", "wait_for": -1}', "wait_for: -1 is negative"),
    ('{"vram": "4", "wait_for": 1e30}', "wait_for: 1e+30 is more than 30 years"),
    ('{"vram": "4", "session_timeout": -0.5}', "session_timeout: -0.5 is negative"),
    ('{"vram": "4", "session_timeout": 0}', "session_timeout: it must be more than 0 seconds"),
    ('{"vram": "4", "session_timeout": "0"}', "session_timeout: it must be more than 0 seconds"),
    ('{"vram": "4", "gpus": 0}', "gpus: 0 is outside 1 to 64"),
    ('{"vram": "4", "gpu_ids": "9"}', "gpu_ids: there is no GPU 9"),
    ('{"vram": "4", "gpu_ids": "0,0"}', "gpu_ids: GPU 0 is named twice"),
    ('{"vram": "4", "gpu_ids": "0-2,1"}', "gpu_ids: GPU 1 is named twice"),
    ('null', "the body is not a JSON object"),
    ('{"vram": "4\\u0000"}',
     "the body is not JSON that carved takes: line 1: a text has the character \\u0000"),
    ('{"vram": "4", "vram": "5"}',
     "the body is not JSON that carved takes: line 1: a field is there twice")])
def test_errors_name_the_field_and_the_value_as_given(module_daemon, body, message):
    answer = module_daemon.call("POST", "/v1/sessions", body)
    assert answer.status == 400 and answer.error["message"] == message
    assert "--" not in answer.error["hint"]


def test_unknown_paths_and_methods(daemon):
    assert daemon.call("GET", "/nothing").status == 404
    assert daemon.call("GET", "/v2/gpus").status == 404
    assert daemon.call("GET", "/v1/sessions/s-nobody").status == 404
    assert daemon.call("GET", "/v1/sessions/a/b").status == 404
    assert daemon.call("DELETE", "/v1/sessions/s-nobody").status == 404
    assert daemon.call("PUT", "/v1/gpus").status == 405
    assert daemon.call("POST", "/v1/version", {}).status == 405


def test_bodies_are_bounded(daemon):
    assert daemon.call("POST", "/v1/sessions", b"x" * 70000).status == 413
    assert daemon.call("GET", "/v1/version").status == 200


def test_curl_sees_the_answer_to_a_huge_body(daemon):
    for options in ([], ["-H", "Expect:"], ["-H", "Transfer-Encoding: chunked"]):
        done = subprocess.run(["curl", "-sS", *options, "--data-binary", "@-", "--unix-socket",
                               daemon.runtime / "carved.sock", "http://localhost/v1/sessions"],
                              input=bytes(50 << 20), stdout=subprocess.PIPE, timeout=60)
        assert done.returncode == 0
        assert "larger than 65536 bytes" in json.loads(done.stdout)["error"]["message"]


def test_slow_clients_stall_nobody(daemon):
    slow = []
    for _ in range(50):
        s = socket.socket(socket.AF_UNIX)
        s.connect(str(daemon.runtime / "carved.sock"))
        s.send(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
        slow.append(s)
    daemon.grant(vram="1")
    assert not any(select.select(slow, [], [], 0)[0]), "they are dropped after 15 s, and nobody waits for that"
    for s in slow:
        s.close()


def test_slow_clients_do_not_fill_the_log(daemon):
    """Each broken request is a message of the HTTP library's; the log has one a second, and their number."""
    start = time.monotonic()
    broken = []
    for _ in range(300):
        broken.append(socket.socket(socket.AF_UNIX))
        broken[-1].connect(str(daemon.runtime / "carved.sock"))
        broken[-1].send(b"POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
    daemon.gpu()
    for s in broken:
        s.close()

    def lines():
        return [line for line in daemon.log().splitlines() if " warning http" in line]

    def told():
        return sum(int(line.rpartition("lines=")[2]) if "http.not_logged lines=" in line else 1
                   for line in lines())
    wait_until(lambda: told() >= 100)
    assert len(lines()) <= 2 + 2 * (time.monotonic() - start)


def raw_answer(daemon, text):
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(60)
        s.connect(str(daemon.runtime / "carved.sock"))
        s.sendall(text)
        answer = b""
        while part := s.recv(65536):
            answer += part
    head, body = answer.split(b"\r\n\r\n", 1)
    return int(head.split()[1]), body


@pytest.mark.parametrize("line, field, status", [
    ("/v1/" + "x" * 40000, "", 414), ("/v1/sessions?" + f"a={'x' * 600}&" * 30, "", 414),
    ("/v1/gpus", "X-A: " + "y" * 40000 + "\r\n", 431), ("/v1/gpus", f"X-A: {'y' * 60}\r\n" * 300, 431),
    ("/v1/" + "x" * 15000, "", 404), ("/v1/gpus", "X-A: " + "y" * 15000 + "\r\n", 200)],
    ids=["path", "query", "field", "fields", "path-below", "field-below"])
def test_a_head_that_is_too_long_is_answered_in_json(daemon, line, field, status):
    text = f"GET {line} HTTP/1.1\r\nHost: x\r\n{field}Connection: close\r\n\r\n".encode()
    got, body = raw_answer(daemon, text)
    assert got == status, body
    if status in (414, 431):
        assert json.loads(body)["error"] == {"code": 2, "hint": "",
                                             "message": "the request's head is larger than 16384 bytes"}


class Wire:
    """A connection to the daemon, byte by byte."""

    def __init__(self, daemon):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(60)
        self.socket.connect(str(daemon.runtime / "carved.sock"))
        self.text = b""

    def send(self, text):
        self.socket.sendall(text)

    def answer(self, body=True):
        """The next answer: its status, its fields, and its body."""
        while b"\r\n\r\n" not in self.text:
            assert self.more(), self.text
        head, self.text = self.text.split(b"\r\n\r\n", 1)
        line, *fields = head.decode().split("\r\n")
        fields = {name.lower(): value.strip() for name, _, value in (field.partition(":") for field in fields)}
        length = int(fields.get("content-length", 0)) if body else 0
        while len(self.text) < length:
            assert self.more(), self.text
        text, self.text = self.text[:length], self.text[length:]
        assert line.startswith("HTTP/1.1 ")
        return int(line.split()[1]), fields, text

    def more(self):
        try:
            part = self.socket.recv(65536)
        except ConnectionResetError:
            return False
        self.text += part
        return bool(part)

    def ended(self):
        """Whether nothing follows what was read."""
        return not self.text and not self.more()


@pytest.fixture
def wire(module_daemon):
    wires = []

    def make():
        wires.append(Wire(module_daemon))
        return wires[-1]

    yield make
    for w in wires:
        w.socket.close()


VERSION_REQUEST = b"GET /v1/version HTTP/1.1\r\nHost: x\r\n\r\n"


def test_requests_that_are_sent_ahead_are_answered_in_order(wire):
    w = wire()
    body = b'{"vram": "x"}'
    post = b"POST /v1/sessions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    paths = ["/v1/version", "/v1/gpus", "/nowhere", "/v1/sessions"]
    w.send(b"".join(f"GET {path} HTTP/1.1\r\n\r\n".encode() + post for path in paths * 100))
    for path in paths * 100:
        status, fields, text = w.answer()
        assert status == (404 if path == "/nowhere" else 200)
        assert path != "/v1/version" or json.loads(text)["pid"]
        status, fields, text = w.answer()
        assert status == 400 and "vram" in json.loads(text)["error"]["message"]
    w.send(b"GET /v1/version HTTP/1.1\r\nConnection: close\r\n\r\n" + VERSION_REQUEST)
    assert w.answer()[1]["connection"] == "close" and w.ended()


@pytest.mark.skipif(sanitized(), reason="the sanitizers have a malloc() of their own")
def test_a_daemon_without_memory_for_what_is_sent_ahead_goes_on(make_daemon, monkeypatch):
    env = Daemon.env
    monkeypatch.setattr(Daemon, "env", lambda self: {
        **env(self), "LD_PRELOAD": str(BUILD / "tests/programs/liblacks_memory.so")})
    daemon = make_daemon()
    lacked = 12345  # as tests/programs/lacks_memory.c has it
    for _ in range(10):
        w = Wire(daemon)
        w.send(VERSION_REQUEST + b"GET /".ljust(lacked, b"a"))
        status, _, body = w.answer()
        assert status == 200 and json.loads(body)["pid"] == daemon.worker
        assert w.ended(), "what was sent ahead is lost, and the connection says so"
        w.socket.close()


def test_a_client_that_has_sent_all_still_gets_its_answer(daemon):
    """`nc -N` and socat end their own side as soon as their input has ended."""
    holds = daemon.call("POST", "/v1/sessions", {"gpu": 1}).json["id"]
    waits, goes = Wire(daemon), Wire(daemon)
    body = b'{"gpu": 1, "wait_for": 600, "ephemeral": true, "name": "%s"}'
    for w, name in ((goes, b"goes"), (waits, b"waits")):
        w.send(b"POST /v1/sessions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(body) - 2 + len(name), body % name))
        w.socket.shutdown(socket.SHUT_WR)
        assert not select.select([w.socket], [], [], 0.5)[0], "it has no answer yet"
    goes.socket.close()
    assert daemon.call("DELETE", f"/v1/sessions/{holds}").status == 200
    status, _, text = waits.answer()
    assert status == 201 and json.loads(text)["name"] == "waits" and waits.ended()


@pytest.mark.skipif(sanitized(), reason="the sanitizers keep memory that was freed")
def test_a_request_that_waits_keeps_its_target_once(daemon):
    def resident():
        line, = (line for line in open(f"/proc/{daemon.worker}/status") if line.startswith("VmRSS:"))
        return int(line.split()[1]) << 10

    assert daemon.call("POST", "/v1/sessions", {"gpu": 1}).status == 201
    body, target, count = b'{"gpu": 1, "wait_for": 600, "ephemeral": true}', b"/v1/sessions?a=".ljust(16000, b"a"), 500
    before, wires = resident(), [Wire(daemon) for _ in range(count)]
    for w in wires:
        w.send(b"POST %s HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (target, len(body), body))
    assert daemon.call("GET", "/v1/version").status == 200  # in the same user's turns, so all have been read
    grown = (resident() - before) / count
    assert not select.select([w.socket for w in wires], [], [], 0)[0], "all of them wait"
    for w in wires:
        w.socket.close()
    assert grown < 2.2 * len(target), "the target, and what the session that waits takes itself"


def test_a_request_may_come_in_pieces(wire):
    w = wire()
    w.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    text = b'POST /v1/sessions HTTP/1.1\r\nHost: x\r\nContent-Length: 13\r\n\r\n{"vram": "x"}'
    for at in range(len(text)):
        w.send(text[at:at + 1])
        time.sleep(0.001)
    assert w.answer()[0] == 400
    for at in range(1, len(text), 7):
        w.send(text[:at])
        time.sleep(0.002)
        w.send(text[at:])
        assert w.answer()[0] == 400


def test_python_keeps_its_connection_and_sends_chunks(module_daemon):
    connection = UnixConnection(module_daemon.runtime / "carved.sock")
    connection.connect()
    first = connection.sock
    for turn in range(20):
        connection.request("GET", "/v1/version")
        assert json.loads(connection.getresponse().read())["pid"]
        connection.request("POST", "/v1/sessions", iter([b'{"vram"', b': ', b'"x"}']), {"Transfer-Encoding": "chunked"},
                           encode_chunked=True)
        answer = connection.getresponse()
        assert answer.status == 400 and "vram" in json.loads(answer.read())["error"]["message"]
    assert connection.sock is first
    connection.close()


def test_an_older_http_ends_with_its_answer(wire):
    w = wire()
    w.send(b"GET /v1/version HTTP/1.0\r\n\r\n")
    status, fields, text = w.answer()
    assert status == 200 and fields["connection"] == "close" and json.loads(text)["pid"] and w.ended()
    w = wire()
    for _ in range(3):
        w.send(b"GET /v1/version HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
        status, fields, text = w.answer()
        assert status == 200 and fields["connection"] == "keep-alive"


def test_a_head_is_answered_without_its_body(wire, module_daemon):
    w = wire()
    w.send(VERSION_REQUEST.replace(b"GET", b"HEAD") + VERSION_REQUEST)
    status, fields, _ = w.answer(body=False)
    assert status == 200
    status, others, text = w.answer()
    assert status == 200 and fields["content-length"] == others["content-length"] == str(len(text))
    done = subprocess.run(["curl", "-sI", "--unix-socket", module_daemon.runtime / "carved.sock",
                           "http://localhost/v1/gpus"], stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0 and done.stdout.startswith("HTTP/1.1 200 ")


def test_a_client_that_waits_for_a_word_before_its_body_gets_it(wire):
    w = wire()
    for _ in range(2):
        w.send(b"POST /v1/sessions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n")
        assert w.answer()[0] == 100
        w.send(b"{}")
        assert w.answer()[0] == 400
    # Nobody waits who sends the body at once.
    w.send(b"POST /v1/sessions HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n{}")
    assert w.answer()[0] == 400


@pytest.mark.parametrize("target, fields, status", [
    (b"http://localhost/v1/version", b"", 200), (b"/v1/version", b"Connection: Upgrade\r\nUpgrade: tcp\r\n", 200),
    (b"/v1/%76ersion?x", b"", 200), (b"/v1/sessions?all=1&page=%78", b"", 400), (b"/v1/sessions?all=1&page=", b"", 200),
    (b"/v1/%00", b"", 400), (b"*", b"", 404)],
    ids=["absolute", "upgrade", "escape", "argument", "empty", "zero", "star"])
def test_targets_are_taken_as_http_has_them(wire, target, fields, status):
    w = wire()
    w.send(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n" + fields + b"\r\n" + VERSION_REQUEST)
    assert w.answer()[0] == status
    assert w.answer()[0] == 200, "the connection goes on"


@pytest.mark.parametrize("target, message", [
    (b"/v1/sessions/%ff%fe", "there is no session ??"), (b"/%ff%ff%ff%ff", "there is no /????"),
    (b"/v1/sessions/" + "ä".encode() * 600, "there is no session ??"), (b"/v1/sessions/x" + "ä".encode() * 600, "there is no session x")],
    ids=["name", "path", "cut", "cut_elsewhere"])
def test_a_refusal_is_json_whatever_the_target_has(wire, target, message):
    w = wire()
    w.send(b"GET " + target + b" HTTP/1.1\r\nHost: x\r\n\r\n")
    status, _, body = w.answer()
    assert status == 404 and json.loads(body)["error"]["message"].replace("ä", "?").startswith(message), body


@pytest.mark.parametrize("text, status", [
    (b"FOO /v1/version HTTP/1.1\r\n\r\n", 501), (b"\x16\x03\x01\x02\x00", 501), (b"GET /v1/version HTTP/2.0\r\n\r\n", 505),
    (b"GET /v1/version HTTP/1.1\r\nA\x00: b\r\n\r\n", 400), (b"POST /v1/sessions HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400),
    (b"POST /v1/sessions HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400),
    (b"POST /v1/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n0\r\n\r\n", 400),
    (b"POST /v1/sessions HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nno\r\n", 400),
    (b"POST /v1/sessions HTTP/1.1\r\nTransfer-Encoding: gzip\r\n\r\n", 400),
    (b"GET /v1/version HTTP/1.1\r\nA: " + b"b" * 100000, 431)],
    ids=["method", "tls", "version", "field", "length", "lengths", "both", "chunk", "encoding", "endless"])
def test_faults_of_the_protocol_are_refused_in_json(wire, text, status):
    w = wire()
    w.send(VERSION_REQUEST)
    assert w.answer()[0] == 200
    try:
        w.send(text + VERSION_REQUEST)
    except BrokenPipeError:  # it hung up before it had all of it
        pass
    got, fields, body = w.answer()
    assert got == status and fields["connection"] == "close", body
    error = json.loads(body)["error"]
    assert error["code"] == 2 and error["message"].startswith("this is no request that carved takes: ")
    assert w.ended()


@pytest.mark.long
def test_connections_on_which_nothing_moves_end(daemon):
    """Idle, within a head, within a body, and with an answer that nobody reads; not while a request waits."""
    daemon.grant(vram="79")
    idle, head, body, waits, unread = (Wire(daemon) for _ in range(5))
    head.send(b"GET /v1/ver")
    body.send(b"POST /v1/sessions HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")
    wanted = b'{"vram": "79", "wait_for": 60, "ephemeral": true}'
    waits.send(b"POST /v1/sessions HTTP/1.1\r\nContent-Length: %d\r\n\r\n%s" % (len(wanted), wanted))
    unread.socket.setblocking(False)
    try:
        while True:
            unread.send(VERSION_REQUEST * 100)
    except BlockingIOError:
        unread.socket.setblocking(True)
        unread.socket.settimeout(60)
    begin = time.monotonic()
    ready = []
    while len(ready) < 3:
        ready = select.select([w.socket for w in (idle, head, body, waits)], [], [], 60)[0]
        assert time.monotonic() - begin > 13 or not ready
        assert waits.socket not in ready and time.monotonic() - begin < 60
        time.sleep(0.1)
    assert idle.ended() and head.ended() and body.ended()
    wait_until(lambda: unread.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) or
               select.select([], [unread.socket], [], 0)[1])
    while unread.more():
        unread.text = b""
    for w in (idle, head, body, waits, unread):
        w.socket.close()


def test_no_function_of_the_c_library_is_overridden():
    """A program that has one of that name is called by each library it loads."""
    if sanitized():
        pytest.skip("a sanitizer does that")
    def functions(*words):
        done = subprocess.run(["nm", "--defined-only", *words], stdout=subprocess.PIPE, text=True, check=True)
        return {name.split("@")[0] for *_, kind, name in map(str.split, done.stdout.splitlines()) if kind in "TWi"}

    maps = pathlib.Path("/proc/self/maps").read_text()
    library = next(word for word in maps.split() if word.endswith("/libc.so.6"))
    theirs = functions("-D", library)
    assert "recv" in theirs
    for program in ("carve", "carved", "carve-kubernetes", "carve-shim", "src/client/libcarve.so"):
        ours = functions(BUILD / program)
        assert ours and not ours & theirs - {"_init", "_fini"}


@pytest.mark.usefixtures("another_user")
@pytest.mark.parametrize("name, kind, words", [("carved.sock", socket.SOCK_STREAM, "too many connections to carved"),
                                               ("attach.sock", socket.SOCK_SEQPACKET, "this user has too many connections")])
def test_a_user_cannot_take_all_connections(make_daemon, name, kind, words):
    daemon = make_daemon(args=["--system"])
    os.chmod(daemon.dir, 0o755)
    hostile = subprocess.Popen(["/usr/bin/python3", SOURCES / "crowd.py", daemon.runtime / name, str(int(kind))], user=65534,
                               group=65534, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert words in hostile.stdout.readline()
        # Root, and another user, who gets half of what is left.
        session = daemon.grant(vram="1")["id"]
        attached = Attached(daemon)
        assert attached.ask(WORKLOAD, session)[0] == OK
        attached.close()
        script = ("import sys; sys.path.insert(0, %r)\nfrom attach_client import *\nfrom unix_http import UnixConnection\n"
                  "class D: runtime = __import__('pathlib').Path(%r)\n"
                  "c = UnixConnection(D.runtime / 'carved.sock'); c.request('GET', '/v1/gpus')\n"
                  "print(c.getresponse().status, Attached(D).ask(WORKLOAD, 's-nobody')[0] == NO_SESSION)")
        done = subprocess.run(["/usr/bin/python3", "-c", script % (str(pathlib.Path(__file__).parents[1]), str(daemon.runtime))],
                              user=65533, group=65533, text=True, stdout=subprocess.PIPE, timeout=60,
                              env=clean_env({"PYTHONDONTWRITEBYTECODE": "1"}))
        assert done.stdout == "200 True\n"
    finally:
        hostile.stdin.close()
        hostile.wait(60)
