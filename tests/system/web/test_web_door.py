"""Browsers that come by TCP: `carve web`, its links, cookies, and carve-web, which carries the bytes."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

import pytest

from conftest import BUILD, clean_env, run, wait_until
from own_daemon import make_daemon  # noqa: F401: a fixture
from tcp_door import Authority, context_of, free_port

pytestmark = pytest.mark.usefixtures("another_user")
# The door's user, and two others.
DOOR, ALICE, BOB = 60211, 60212, 60213
SAME_ORIGIN = {"Sec-Fetch-Site": "same-origin"}


class Answer:
    def __init__(self, answer):
        self.status, self.fields, self.text = answer.status, answer.headers, answer.read().decode()

    @property
    def cookie(self):
        return self.fields["Set-Cookie"].partition(";")[0]


class Door:
    """A system daemon with the key `web`, and carve-web beside it."""

    def __init__(self, make_daemon, scheme="http", starts=True, **web):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="carved-test-door-"))
        self.dir.chmod(0o755)
        self.port, self.config, self.context = free_port(), self.dir / "carved.json", None
        self.web = {"listen": f"127.0.0.1:{self.port}", "user": str(DOOR), **web}
        self.process = None
        self.write()
        self.daemon = make_daemon(args=["--system", "--config", self.config])
        if starts:
            self.start()

    def write(self, **others):
        self.config.write_text(json.dumps({"web": self.web, **others}))
        self.config.chmod(0o644)

    def start(self, user=DOOR):
        self.log = open(self.dir / "log", "w")
        self.process = subprocess.Popen(
            [BUILD / "carve-web", "--config", self.config, "--host", self.daemon.runtime / "carved.sock"], env=clean_env(), stderr=self.log,
            stdin=subprocess.DEVNULL, user=user, group=user, extra_groups=[])
        wait_until(lambda: "web.listening" in self.lines() or self.process.poll() is not None)
        assert self.process.poll() is None, self.lines()

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(60) == 0, self.lines()
        self.process = None

    def lines(self):
        return (self.dir / "log").read_text()

    def carve(self, uid, *words):
        return run([BUILD / "carve", "--host", self.daemon.runtime / "carved.sock", *words], user=uid, group=uid, extra_groups=[],
                   env=clean_env({"HOME": "/nonexistent"}))

    def link(self, uid=ALICE):
        """The path of a new link."""
        done = self.carve(uid, "web")
        assert done.returncode == 0, done.stderr
        scheme, _, rest = done.stdout.strip().partition("://")
        assert scheme == ("https" if self.context else "http") and rest.startswith(f"localhost:{self.port}/?token="), done.stdout
        return rest[rest.index("/"):]

    def get(self, path, cookie=None, method="GET", host="localhost", fields=SAME_ORIGIN):
        connection = http.client.HTTPSConnection("localhost", self.port, timeout=60, context=self.context) if self.context else \
            http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.putrequest(method, path, skip_host=True)
        for name, value in [("Host", host), ("Cookie", cookie), *fields.items()]:
            if value is not None:
                connection.putheader(name, value)
        connection.endheaders()
        answer = Answer(connection.getresponse())
        connection.close()
        return answer

    def sign_in(self, uid=ALICE):
        answer = self.get(self.link(uid), fields={"Sec-Fetch-Site": "none"})
        assert answer.status == 303, answer.text
        return answer.cookie

    def knows(self, cookie):
        return self.get("/v1/sessions", cookie).status == 200

    def at_socket(self, uid, path, cookie=None, method="GET"):
        """What a user gets at the Unix socket itself: (status, text)."""
        words = ["curl", "-s", "-w", "\n%{http_code}", "-X", method, "--unix-socket", self.daemon.runtime / "carved.sock"]
        words += ["-H", f"Cookie: {cookie}"] if cookie else []
        done = run([*words, f"http://localhost{path}"], user=uid, group=uid, extra_groups=[])
        text, _, status = done.stdout.rpartition("\n")
        return int(status), text

    def close(self):
        self.stop()
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def make_door(make_daemon):
    doors = []

    def make(**web):
        doors.append(Door(make_daemon, **web))
        return doors[-1]

    yield make
    for door in doors:
        door.close()


@pytest.fixture
def door(make_door):
    return make_door()


# ---- links and cookies -------------------------------------------------------------------------


def test_a_link_signs_a_browser_in_and_leaves_the_address_bar(door):
    answer = door.get(door.link(), fields={"Sec-Fetch-Site": "none"})
    assert (answer.status, answer.fields["Location"], answer.text) == (303, "/", "")
    words = answer.fields["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Strict", "Path=/", "Max-Age=43200"} <= set(words) and "Secure" not in words
    assert answer.fields["Cache-Control"] == "no-store" and answer.fields["Referrer-Policy"] == "no-referrer"
    page = door.get("/", answer.cookie)
    assert page.status == 200 and page.text == (pathlib.Path(__file__).parents[3] / "src/web/page.html").read_text()
    assert "script-src 'self'" in page.fields["Content-Security-Policy"]
    for path in ("/web/page.js", "/v1/version", "/v1/gpus", "/v1/sessions?living=", "/v1/timeslicing", "/v1/timeslicing/trace", "/v1/queues",
                 "/v1/jobs?ended=20", "/v1/report?by=user", "/v1/web/news"):
        assert door.get(path, answer.cookie).status == 200, path


def test_a_link_works_once(door):
    link = door.link()
    assert door.get(link).status == 303
    again = door.get(link)
    assert again.status == 401 and "used before" in again.text and "carve web" in again.text and "Set-Cookie" not in again.fields


def test_each_secret_is_another_and_is_long(door):
    secrets = {door.link().partition("=")[2] for _ in range(3)} | {door.sign_in().partition("=")[2]}
    assert len(secrets) == 4 and all(len(bytes.fromhex(secret)) == 24 for secret in secrets)


@pytest.mark.long
def test_a_link_ends_after_a_minute(door):
    link = door.link()
    time.sleep(61)
    assert door.get(link).status == 401


@pytest.mark.parametrize("token", ["", "0" * 48, "../x", "%41%20", "a" * 5000])
def test_a_guessed_link_shows_how_to_sign_in(door, token):
    answer = door.get(f"/?token={token}")
    assert answer.status == 401 and "<code>carve web</code>" in answer.text and "Set-Cookie" not in answer.fields


def test_a_user_has_four_links_and_four_browsers_and_the_oldest_goes(door):
    bob = door.sign_in(BOB)
    links = [door.link() for _ in range(5)]
    assert [door.get(link).status for link in links] == [401, 303, 303, 303, 303]
    cookies = [door.sign_in() for _ in range(5)]
    assert [door.knows(cookie) for cookie in cookies] == [False, True, True, True, True]
    assert door.knows(bob)


def test_a_browser_without_a_cookie_sees_a_page_that_says_how_to_sign_in_and_nothing_else(door):
    name = door.sign_in().partition("=")[0]
    for cookie in (None, "", f"{name}=", f"{name}={'0' * 48}", f"{name}=nonsense; a=b", f"x{name}={'0' * 48}"):
        page = door.get("/", cookie)
        assert page.status == 401 and "<code>carve web</code>" in page.text and "<script" not in page.text
        assert "default-src 'none'" in page.fields["Content-Security-Policy"]
        for path in ("/web/page.js", "/metrics", "/nothing"):
            assert (door.get(path, cookie).status, door.get(path, cookie).text) == (401, page.text)
        error = door.get("/v1/sessions", cookie)
        assert error.status == 401 and "carve web" in json.loads(error.text)["error"]["hint"]


def test_a_cookie_is_found_among_others(door):
    cookie = door.sign_in()
    assert door.knows(f"a=1; {cookie}; b=2") and door.knows(f"{'x' * 3000}=1;{cookie}")


def test_sign_out_ends_all_browsers_and_links_of_the_user_alone(door):
    alice, also, bob, link = door.sign_in(), door.sign_in(), door.sign_in(BOB), door.link()
    done = door.carve(ALICE, "web", "--sign-out")
    assert (done.returncode, done.stdout) == (0, "signed out 2 browsers\n"), done.stderr
    assert not door.knows(alice) and not door.knows(also) and door.get(link).status == 401
    assert door.knows(bob)
    assert json.loads(door.carve(ALICE, "web", "--sign-out", "--json").stdout) == {"ended": 0}


def test_a_daemon_that_starts_anew_knows_no_browser(door):
    cookie = door.sign_in()
    door.daemon.restart()
    wait_until(lambda: door.get("/v1/sessions", cookie).status == 401)
    assert door.knows(door.sign_in())


# ---- what a browser sees and may do -------------------------------------------------------------


def owners(door, cookie):
    return {session["id"]: session for session in json.loads(door.get("/v1/sessions?living=", cookie).text)["sessions"]}


def test_a_browser_sees_what_its_user_sees(door):
    mine = door.carve(ALICE, "session", "request", "--vram", "2", "--name", "train", "--json")
    assert mine.returncode == 0, mine.stderr
    id = json.loads(mine.stdout)["id"]
    alice, bob, root = door.sign_in(ALICE), door.sign_in(BOB), door.sign_in(0)
    assert owners(door, alice)[id]["name"] == "train"
    assert "train" not in door.get("/v1/sessions?living=", bob).text and id not in owners(door, bob)
    assert owners(door, root)[id]["name"] == "train"
    status, text = door.at_socket(BOB, "/v1/sessions?living=")
    assert (status, json.loads(text)) == (200, json.loads(door.get("/v1/sessions?living=", bob).text))


@pytest.mark.parametrize("uid", [ALICE, 0])
def test_a_browser_changes_nothing_whoever_is_signed_in(door, uid):
    cookie = door.sign_in(uid)
    for method, path in (("POST", "/v1/sessions"), ("DELETE", "/v1/web/browsers"), ("POST", "/v1/web/links"), ("PUT", "/v1/drains"),
                         ("DELETE", "/v1/sessions/s-abc"), ("PUT", "/"), ("POST", "/?token=1")):
        answer = door.get(path, cookie, method)
        assert answer.status == 403 and "change nothing" in answer.text, (method, path)
    for path in ("/metrics", "/v1/events", "/v1/quotas", "/v1/limits", "/v1/jobs/1", "/v1/web/door", "/v1/sessions/s-abc"):
        answer = door.get(path, cookie)
        assert answer.status == 403 and "look at the page" in answer.text, path
    assert door.knows(cookie)


@pytest.mark.parametrize("fields, host, status", [
    (SAME_ORIGIN, "example.org", 403), (SAME_ORIGIN, None, 403), (SAME_ORIGIN, "localhost.example.org", 403), ({}, "example.org", 403),
    ({"Sec-Fetch-Site": "cross-site"}, "localhost", 403), ({"Sec-Fetch-Site": "same-site"}, "localhost", 403),
    ({"Origin": "http://example.org"}, "localhost", 403), (SAME_ORIGIN, "gpu1.example.org:9480", 200), (SAME_ORIGIN, "GPU1.example.org", 200),
    ({}, "127.0.0.1", 200), (SAME_ORIGIN, "[::1]:80", 200), ({"Sec-Fetch-Site": "none"}, "localhost", 200)])
def test_only_carves_own_page_under_the_hosts_name_may_ask(make_door, fields, host, status):
    door = make_door(name="gpu1.example.org")
    url = door.carve(ALICE, "web").stdout
    assert url.startswith(f"http://gpu1.example.org:{door.port}/?token=")
    cookie = door.get(url[url.index("/?"):].strip()).cookie
    assert door.get("/v1/sessions", cookie, fields=fields, host=host).status == status


# ---- the daemon believes nobody ------------------------------------------------------------------


def test_a_cookie_is_nothing_at_the_unix_socket(door):
    door.carve(ALICE, "session", "request", "--vram", "2", "--name", "train")
    cookie = door.sign_in(ALICE)
    status, text = door.at_socket(BOB, "/v1/sessions?living=", cookie)
    assert status == 200 and "train" not in text
    assert door.at_socket(BOB, door.link(ALICE))[0] == 200  # the page itself, for BOB; the link is not used
    assert door.at_socket(BOB, "/v1/web/door")[0] == 403


def test_the_doors_user_gets_nothing_without_a_cookie(door):
    cookie = door.sign_in()
    for path in ("/", "/v1/sessions", "/v1/version", "/metrics"):
        assert door.at_socket(DOOR, path)[0] == 401, path
    assert door.at_socket(DOOR, "/v1/web/links", method="POST")[0] == 403
    assert door.at_socket(DOOR, "/v1/sessions", cookie)[0] == 200


def test_carve_web_carries_nothing_where_the_daemon_does_not_take_its_user(make_door):
    """As root it would hand root's rights on to whoever connects."""
    door = make_door(starts=False)
    for user in (0, BOB):
        door.start(user)
        answer = door.get("/v1/sessions")
        assert (answer.status, answer.text) == (503, "carved does not answer.\n")
        assert "does not take this program's user" in door.lines()
        door.stop()


def test_without_web_in_the_configuration_there_is_no_door(door):
    cookie = door.sign_in()
    door.config.write_text("{}")
    door.daemon.reload()
    wait_until(lambda: door.carve(ALICE, "web").returncode == 1)
    done = door.carve(ALICE, "web")
    assert "serves its page at its Unix socket alone" in done.stderr and "doc/carve/user/web.md" in done.stderr
    assert door.get("/v1/sessions", cookie).status == 503
    done = run([BUILD / "carve-web", "--config", door.config], env=clean_env())
    assert done.returncode == 0 and "web.listen is not set" in done.stdout


# ---- connections ---------------------------------------------------------------------------------


def test_a_daemon_that_is_away_is_told(door):
    cookie = door.sign_in()
    door.daemon.kill()
    answer = door.get("/", cookie)
    assert (answer.status, answer.text) == (503, "carved does not answer.\n")
    door.daemon.start()
    wait_until(lambda: door.get("/", cookie).status == 401)


def opened(door, text=b""):
    s = socket.create_connection(("127.0.0.1", door.port), timeout=60)
    s.sendall(text)
    return s


def test_connections_that_prove_nothing_give_way(door):
    cookie = door.sign_in()
    request = f"GET /v1/version HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode()
    kept = opened(door, request)
    assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
    silent = [opened(door, text) for text in (b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n") for _ in range(100)]
    assert door.knows(cookie)
    kept.sendall(request)  # a browser that is signed in keeps its connection
    assert kept.recv(65536).startswith(b"HTTP/1.1 200 ")
    silent[0].settimeout(60)
    assert silent[0].recv(1) == b""  # the oldest
    for s in [kept, *silent]:
        s.close()


@pytest.mark.parametrize("text, status", [
    (b"\0\1\2\3 nonsense\r\n\r\n", 501), (b"GET /" + b"x" * 20000 + b" HTTP/1.1\r\n\r\n", 414),
    (b"GET / HTTP/1.1\r\nX: " + b"y" * 20000 + b"\r\n\r\n", 431)], ids=["nonsense", "target", "head"])
def test_requests_that_are_none_are_refused(door, text, status):
    with opened(door, text) as s:
        assert s.recv(64).split(b" ")[1] == str(status).encode()
    assert door.get("/").status == 401


@pytest.mark.long
def test_a_request_that_never_ends_is_cut(door):
    with opened(door, b"GET / HTTP/1.1\r\n") as s:
        begun = time.monotonic()
        with pytest.raises(OSError):
            while time.monotonic() < begun + 120:
                s.sendall(b"x: y\r\n")
                time.sleep(1)
        assert time.monotonic() < begun + 90


def test_news_come_through_the_door(door):
    cookie = door.sign_in()
    s = opened(door, f"GET /v1/web/news HTTP/1.1\r\nHost: localhost\r\nCookie: {cookie}\r\n\r\n".encode())
    data = b""
    while b"\n\n" not in data.partition(b"\r\n\r\n")[2]:
        part = s.recv(65536)
        assert part
        data += part
    assert b"Content-Type: text/event-stream" in data and b"event: news\n" in data
    s.close()


# ---- TLS and the configuration -------------------------------------------------------------------


@pytest.fixture
def authority():
    with tempfile.TemporaryDirectory(prefix="carved-test-ca-") as dir:
        os.chmod(dir, 0o755)
        yield Authority(pathlib.Path(dir))


def test_tls_makes_the_cookie_secure(make_door, authority):
    cert, key = authority.issue("server")
    os.chown(key, DOOR, DOOR)
    door = make_door(tls={"cert": cert, "key": key})
    door.context = context_of(authority)
    answer = door.get(door.link())
    assert answer.status == 303 and "; Secure" in answer.fields["Set-Cookie"] and answer.cookie.startswith("__Host-carve-")
    assert door.knows(answer.cookie) and not door.knows(answer.cookie.removeprefix("__Host-"))
    context, door.context = door.context, None
    with pytest.raises((OSError, http.client.HTTPException)):
        door.get("/", answer.cookie)  # no TLS
    old = context_of(authority)
    old.minimum_version, old.maximum_version = ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1
    old.set_ciphers("ALL:@SECLEVEL=0")
    door.context = old
    with pytest.raises(OSError):
        door.get("/", answer.cookie)
    door.context = context
    # A large answer, in pieces, and a renewed certificate.
    assert door.get("/web/page.js", answer.cookie).text == (pathlib.Path(__file__).parents[3] / "src/web/page.js").read_text()
    authority.issue("server")
    os.chown(key, DOOR, DOOR)
    door.process.send_signal(1)
    wait_until(lambda: "web.config_read" in door.lines())
    assert door.knows(answer.cookie)


def test_one_address_elsewhere_has_a_part_of_the_places(make_door, authority):
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
        try:
            s.connect(("192.0.2.1", 9))  # nothing is sent
            own = s.getsockname()[0]
        except OSError:
            own = "127.0.0.1"
    if own.startswith("127."):
        pytest.skip("needs an address of this machine that is no loopback address")
    cert, key = authority.issue("server")
    os.chown(key, DOOR, DOOR)
    door = make_door(tls={"cert": cert, "key": key}, listen=f"0.0.0.0:{free_port()}", name="localhost")
    door.port = int(door.web["listen"].rpartition(":")[2])
    door.context = context_of(authority)
    silent = [socket.create_connection((own, door.port), timeout=60) for _ in range(32)]
    here = socket.create_connection(("127.0.0.1", door.port), timeout=60)
    one_more = socket.create_connection((own, door.port), timeout=60)
    assert silent[0].recv(1) == b""
    for s in (silent[1], here, one_more):
        s.settimeout(1)
        with pytest.raises(TimeoutError):
            s.recv(1)
    for s in [*silent, here, one_more]:
        s.close()
    assert door.knows(door.sign_in())


@pytest.mark.parametrize("web, message", [
    ({"listen": "0.0.0.0:9480"}, "web.listen: other machines reach 0.0.0.0:9480, which takes \"tls\": {\"cert\": FILE, \"key\": FILE};"),
    ({"listen": "[::]:9480"}, "web.listen: other machines reach [::]:9480"),
    ({"listen": "9480"}, "web.listen takes an address and a port"),
    ({"listen": "127.0.0.1:9480", "user": "root"}, "web.user takes the name or the number of a user of its own, not root"),
    ({"listen": "127.0.0.1:9480", "user": "0"}, "web.user takes"),
    ({"listen": "127.0.0.1:9480", "name": "a b"}, "web.name takes a host name"),
    ({"listen": "127.0.0.1:9480", "tls": {"cert": "/x"}}, "web.tls lacks key"),
    ({"listen": "127.0.0.1:9480", "tls": {"cert": "/x", "key": "y"}}, "key takes an absolute path"),
    ({"tls": {"cert": "/x", "key": "/y"}}, "web.listen is missing"),
    ({"lisen": "127.0.0.1:9480"}, "lisen"), ("127.0.0.1:9480", "web takes an object such as")])
@pytest.mark.parametrize("program", ["carved", "carve-web"])
def test_a_wrong_configuration_is_told_in_one_line(tmp_path, program, web, message):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"web": web}))
    done = run([BUILD / program, "--config", config, "--check-config" if program == "carved" else "--check"], env=clean_env())
    assert done.returncode == 2 and message in done.stderr, done.stderr


def test_a_certificate_that_is_missing_is_told(tmp_path):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"web": {"listen": "127.0.0.1:9480", "user": "no-such-user", "tls": {"cert": "/nowhere/cert", "key": "/k"}}}))
    done = run([BUILD / "carve-web", "--config", config, "--check"], env=clean_env())
    assert done.returncode == 2 and "carve-web: web.tls.cert: /nowhere/cert:" in done.stderr
    done = run([BUILD / "carved", "--config", config, "--check-config"], env=clean_env())
    assert done.returncode == 0 and "web.tls.cert: carve-web cannot read /nowhere/cert: No such file or directory" in done.stderr
    assert "web.user: /etc/passwd has no user no-such-user; until it has, no browser is signed in" in done.stderr


# ---- a browser -----------------------------------------------------------------------------------


@pytest.mark.long
def test_chromium_signs_in_by_the_link_and_shows_the_page(door, tmp_path):
    from browser import Browser
    browser = Browser(tmp_path / "chromium")
    try:
        browser.go(f"http://localhost:{door.port}/")
        assert "carve web" in browser.text("body")
        door.carve(ALICE, "session", "request", "--vram", "2", "--name", "train")
        browser.go(f"http://localhost:{door.port}{door.link()}")
        browser.wait("return document.querySelector('#status')?.dataset.state === 'live'")
        assert browser.run("return location.pathname + location.search") == "/" and "train" in browser.text("#slices")
        assert browser.run("return document.cookie") == ""
        door.carve(ALICE, "web", "--sign-out")
        browser.wait("return document.querySelector('#notice').innerText.includes('You are not signed in')")
    finally:
        browser.close()
