"""carve notice: a text that each user is shown once, on a terminal."""
import json
import os
import pty
import subprocess

import pytest

from conftest import BUILD, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures

CARVE = BUILD / "carve"


def carve(daemon, *argv):
    return subprocess.run([CARVE, *argv, "--host", daemon.runtime / "carved.sock"], env=daemon.env(), capture_output=True, text=True)


def on_terminal(daemon, *argv, stdout=subprocess.PIPE):
    """(exit status, standard output, what the terminal at standard error shows)"""
    ours, its = pty.openpty()
    process = subprocess.Popen([CARVE, *argv], env={**daemon.env(), "CARVE_HOST": str(daemon.runtime / "carved.sock")}, stdin=subprocess.DEVNULL,
                               stdout=stdout, stderr=its, text=True)
    os.close(its)
    shown = b""
    while True:
        try:
            part = os.read(ours, 4096)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(ours)
    out = process.stdout.read() if process.stdout else ""
    return process.wait(), out, shown.decode().replace("\r\n", "\n")


def test_a_notice_is_shown_once_on_a_terminal_and_over_restarts(daemon):
    assert carve(daemon, "notice", "GPU 3 is repaired", "on Friday").returncode == 0
    daemon.restart()
    status, out, shown = on_terminal(daemon, "session", "list")
    assert status == 0 and shown.startswith("carve: notice by root, ") and shown.endswith(": GPU 3 is repaired on Friday\n")
    assert "notice" not in out
    daemon.restart()
    assert on_terminal(daemon, "session", "list")[2] == ""
    assert carve(daemon, "notice", "another").returncode == 0
    assert ": another\n" in on_terminal(daemon, "gpu", "list")[2]


def test_no_script_takes_the_notice_for_the_user(daemon):
    carve(daemon, "notice", "read this")
    for argv in (["session", "list"], ["gpu", "list", "--json"], ["quota", "list"]):
        assert "read this" not in (done := carve(daemon, *argv)).stdout + done.stderr
    assert on_terminal(daemon, "session", "list", "--json")[2] == ""
    assert on_terminal(daemon, "notice")[2] == ""
    assert on_terminal(daemon, "help")[2] == ""
    assert "read this" in on_terminal(daemon, "session", "list")[2]


def test_a_notice_is_shown_before_the_command_of_run(daemon):
    carve(daemon, "notice", "first")
    _, _, shown = on_terminal(daemon, "run", "--vram", "1", "--", "sh", "-c", "echo then >&2")
    assert 0 <= shown.index("first") < shown.index("then")


def test_a_notice_is_shown_to_whoever_asks_and_taken_back(daemon):
    assert carve(daemon, "notice").stdout == "there is no notice\n"
    carve(daemon, "notice", "come\nback")
    shown = carve(daemon, "notice", "--show").stdout
    assert shown.startswith("notice by root, ") and shown.endswith(": come\n  back\n")
    assert json.loads(carve(daemon, "notice", "--show", "--json").stdout)["lines"] == ["come", "back"]
    assert carve(daemon, "notice", "--clear").stdout == "there is no notice\n"
    again = carve(daemon, "notice", "--clear")
    assert (again.returncode, again.stdout) == (0, "there was no notice to take back\n")
    assert on_terminal(daemon, "session", "list")[2] == ""
    changes = [(c["before"], c["after"]) for c in json.loads(carve(daemon, "audit", "--kind", "notice.set", "--json").stdout)]
    assert changes == [(None, "come?back"), ("come?back", None)]


def test_control_characters_of_a_notice_reach_no_terminal(daemon):
    answer = daemon.call("PUT", "/v1/notice", {"text": "a\x1b]0;title\x07b\r\x9b31mc\u202ed\n\nend"})
    assert answer.json["text"] == "a?]0;title?b??31mc?d\n\nend"
    shown = on_terminal(daemon, "session", "list")[2]
    assert shown.endswith(": a?]0;title?b??31mc?d\n  \n  end\n"), shown


@pytest.mark.parametrize("argv, words", [
    (["notice", ""], "the text is empty"), (["notice", " "], "the text is empty"), (["notice", "x" * 1024], "longer than 1023 bytes"),
    (["notice", "--clear", "x"], "exclude each other"), (["notice", "--clear", "--show"], "exclude each other"),
    (["notice", b"\xff"], "is not UTF-8"),
])
def test_wrong_words_are_refused(daemon, argv, words):
    done = carve(daemon, *argv)
    assert done.returncode == 2 and words in done.stderr, done.stderr


@pytest.mark.parametrize("method, body", [
    ("PUT", {}), ("PUT", {"text": ""}), ("PUT", {"text": 1}), ("PUT", {"text": "a", "more": 1}), ("PUT", "x"), ("PUT", []),
    ("PUT", {"text": "x" * 1024}), ("POST", {}), ("POST", {"seen": "1"}), ("POST", {"seen": 1, "uid": 5}), ("POST", "["),
])
def test_wrong_bodies_are_refused(daemon, method, body):
    assert daemon.call(method, "/v1/notice", body).status == 400


def test_a_number_that_is_not_the_notices_marks_nothing(daemon):
    carve(daemon, "notice", "one")
    number = daemon.call("GET", "/v1/notice").json["number"]
    for wrong in (number - 1, number + 1, -1, (1 << 63) - 1):
        assert daemon.call("POST", "/v1/notice", {"seen": wrong}).json["due"] is True
    assert daemon.call("POST", "/v1/notice", {"seen": number}).json["due"] is False
