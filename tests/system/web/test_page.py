"""The page at the daemon's socket: its files, the news, and what a browser may ask."""
import html.parser
import pathlib
import re
import time

import pytest

from conftest import ROOT
from daemon_client import UnixConnection
from own_daemon import daemon, make_daemon, module_daemon  # noqa: F401: fixtures

FILES = sorted(path for path in (ROOT / "src/web").iterdir() if path.suffix in (".html", ".css", ".js", ".svg"))


def get(daemon, path, method="GET", host="localhost", **fields):
    """`fields`: the request's own, with _ for -. (the answer, its text)"""
    connection = UnixConnection(daemon.runtime / "carved.sock")
    connection.putrequest(method, path, skip_host=True)
    for name, value in [("Host", host), *fields.items()]:
        if value is not None:
            connection.putheader(name.replace("_", "-"), value)
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer, text


def test_every_file_of_the_page_is_there_as_it_was_written(daemon):
    types = {".html": "text/html", ".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
    for path in FILES:
        answer, text = get(daemon, f"/web/{path.name}")
        assert (answer.status, text) == (200, path.read_text()), path
        assert answer.getheader("Content-Type").split(";")[0] == types[path.suffix]
    assert get(daemon, "/")[1] == (ROOT / "src/web/page.html").read_text()
    for name in ("nothing", "..", "page.html/x", "../page.html"):
        assert get(daemon, f"/web/{name}")[0].status == 404, name


def test_the_page_may_load_nothing_but_its_own_files(daemon):
    answer, text = get(daemon, "/")
    policy = dict(part.strip().partition(" ")[::2] for part in answer.getheader("Content-Security-Policy").split(";"))
    assert policy["default-src"] == "'none'" and policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == policy["style-src"] == policy["connect-src"] == "'self'"
    assert answer.getheader("X-Content-Type-Options") == "nosniff"

    class Inline(html.parser.HTMLParser):
        script = False

        def handle_starttag(self, tag, attributes):
            names = dict(attributes)
            assert not [name for name in names if name.startswith("on") or name == "style"], (tag, attributes)
            assert tag != "style" and (tag != "script" or names["src"])
            self.script = tag == "script"

        def handle_data(self, data):
            assert not self.script or not data.strip()

        def handle_endtag(self, tag):
            self.script = False

    Inline().feed(text)
    # Names of users are text everywhere: nothing makes HTML of a string.
    for path in pathlib.Path(ROOT / "src/web").glob("*.js"):
        assert not re.search(r"insertAdjacentHTML|outerHTML|document\.write|eval\(|innerHTML\s*=[^=]", path.read_text()), path


REFUSED = [
    ("DELETE", {"Sec_Fetch_Site": "same-origin"}, "change nothing"),
    ("POST", {"Origin": "http://localhost"}, "change nothing"),
    ("PUT", {"Origin": "null"}, "change nothing"),
    ("GET", {"Origin": "http://localhost"}, "another page"),
    ("GET", {"Sec_Fetch_Site": "cross-site"}, "another page"),
    ("GET", {"Sec_Fetch_Site": "same-site"}, "another page"),
    ("GET", {"Sec_Fetch_Site": ""}, "another page"),
    ("GET", {"Sec_Fetch_Site": "same-origin", "host": "example.org"}, "has to ask for localhost"),
    ("GET", {"Sec_Fetch_Site": "none", "host": "localhost.example.org"}, "has to ask for localhost"),
    ("GET", {"Sec_Fetch_Site": "none", "host": "127.0.0.1.example.org:8080"}, "has to ask for localhost"),
    ("GET", {"Sec_Fetch_Site": "none", "host": None}, "has to ask for localhost"),
]


@pytest.mark.parametrize("method, fields, why", REFUSED)
def test_browsers_change_nothing_and_ask_for_no_other_page(module_daemon, method, fields, why):
    before = module_daemon.call("GET", "/v1/sessions").json
    answer, text = get(module_daemon, "/v1/sessions", method, **fields)
    assert answer.status == 403 and why in text, text
    assert module_daemon.call("GET", "/v1/sessions").json == before


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "localhost.evil.example", "localhost.", "10.0.0.1"])
def test_a_foreign_name_is_refused_where_a_browser_says_nothing_of_itself(module_daemon, host):
    """By plain HTTP a browser sends neither Origin nor Sec-Fetch-Site with what a page asks of its own host (DNS rebinding)."""
    for path in ("/", "/v1/sessions", "/v1/web/news"):
        answer, text = get(module_daemon, path, host=host)
        assert answer.status == 403 and "has to ask for localhost" in text, path


@pytest.mark.parametrize("host", ["localhost", "carved", "d", None])
def test_programs_name_the_socket_as_they_like(module_daemon, host):
    assert get(module_daemon, "/v1/sessions", host=host)[0].status == 200


def test_more_pages_have_news_less_often(daemon):
    """Where all of them would take more than 1% of a core: 20 pages that take 3.4 ms each have news every 6 s. Pages that come while
    others have theirs may have news at once, so one round of several counts."""
    for _ in range(3):
        daemon.grant(vram="1", ephemeral=True)
    crowd = [UnixConnection(daemon.runtime / "carved.sock") for _ in range(20)]

    def round_s():
        for connection in crowd:
            connection.request("GET", "/v1/web/news")
        begun = time.monotonic()
        for connection in crowd:
            assert connection.getresponse().read()
        return time.monotonic() - begun

    assert any(round_s() > 3 for _ in range(5))


@pytest.mark.parametrize("host", ["localhost", "localhost:8080", "127.0.0.1:1", "[::1]:8080"])
@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_the_page_itself_may_ask_for_lists(module_daemon, host, site):
    assert get(module_daemon, "/v1/sessions", host=host, Sec_Fetch_Site=site)[0].status == 200


def test_a_field_that_stands_there_twice_is_refused(daemon):
    connection = UnixConnection(daemon.runtime / "carved.sock")
    connection.putrequest("GET", "/v1/sessions")  # has a Host
    connection.putheader("Host", "localhost")
    connection.endheaders()
    answer = connection.getresponse()
    assert answer.status == 400 and b"twice" in answer.read()


def test_news_come_as_an_event_of_a_stream(daemon):
    daemon.grant(vram="4")
    for _ in range(2):
        answer, text = get(daemon, "/v1/web/news")
        assert answer.status == 200 and answer.getheader("Content-Type") == "text/event-stream"
        assert "event: news\n" in text and text.endswith("\n\n")


def test_listeners_that_go_away_leave_the_others_theirs(daemon):
    daemon.grant(vram="4")
    gone = [UnixConnection(daemon.runtime / "carved.sock") for _ in range(20)]
    for connection in gone:
        connection.request("GET", "/v1/web/news")
    stays = UnixConnection(daemon.runtime / "carved.sock")
    stays.request("GET", "/v1/web/news")
    for connection in gone[::2] + gone[1::2]:
        connection.close()
    assert stays.getresponse().status == 200
    stays.close()
