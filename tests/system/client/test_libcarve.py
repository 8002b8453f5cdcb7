"""libcarve, as C programs use it: what it sends, what it refuses, and the example against a daemon."""
import json
import subprocess

import pytest

from conftest import BUILD, ON_GPU, clean_env, wait_until
from fake_daemon import fake, session  # noqa: F401: a fixture

GIB = 1 << 30
CASES = BUILD / "tests/programs/api_cases"

needs_sim = pytest.mark.skipif(ON_GPU, reason="goes by a simulated GPU's size")


def case(fake, *args):  # noqa: F811
    done = subprocess.run([CASES, fake.dir + "/carved.sock", *args], env=clean_env(), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done


@pytest.mark.parametrize("name, sent", [
    ("all", {"vram_bytes": 4 * GIB, "gpu_compute": "25%", "gpu_ids": "0-1", "name": "n", "wait_for": 1.5,
             "session_timeout": 60, "gpus": 2, "priority": -5, "ephemeral": True, "vram_strict": True}),
    ("gpu-memory", {"vram_bytes": 4_000_000_000}), ("gpu", {"gpu": "0.25"}), ("bytes", {"vram_bytes": 2 * GIB}),
    ("earlier", {"vram_bytes": 4 * GIB}), ("later", {"vram_bytes": 4 * GIB})])
def test_a_request_is_sent_as_it_is_filled_in(fake, name, sent):  # noqa: F811
    done = case(fake, name)
    assert done.returncode == 0 and json.loads(done.stdout)["id"] == "s-abc123"
    assert fake.sent("POST") == [("/v1/sessions", sent)]


@pytest.mark.parametrize("name, words", [
    ("later-asks", "does not know"), ("no-struct-size", "the request's size is 0 bytes"), ("no-size", "not exactly one of"),
    ("two-sizes", "not exactly one of"), ("malformed", "4x"), ("too-many-bytes", "vram_bytes"), ("nan", "wait_for"),
    ("negative", "session_timeout"), ("not-utf-8", "name: not a text in UTF-8"), ("resize-more", "nothing else"),
    ("no-such-flag", "0x2")])
def test_a_request_that_makes_no_sense_is_not_sent(fake, name, words):  # noqa: F811
    done = case(fake, name, "s-abc123")
    code, message, _ = done.stdout.splitlines()
    assert done.returncode == 2 and code == "2" and words in message
    assert fake.requests == []


def test_the_daemons_error_comes_with_code_and_hint(fake):  # noqa: F811
    fake.answers["POST", "/v1/sessions"] = (409, {"error": {"code": 3, "message": "no room", "hint": "wait"}})
    assert case(fake, "gpu").stdout == "3\nno room\nwait\n"


@needs_sim
def test_the_example_asks_resizes_and_releases(host, examples):
    done = host.run([examples / "session"])
    assert done.returncode == 0, done.stderr
    *told, last = done.stdout.splitlines()
    answers = {what: json.loads(answer) for what, answer in (line.split(": ", 1) for line in told)}
    assert list(answers) == ["granted", "shown", "resized"] and last == "released"
    assert [a["vram_bytes"] for a in answers.values()] == [2 * GIB, 2 * GIB, GIB]
    assert len({a["id"] for a in answers.values()}) == 1 and answers["shown"]["name"].startswith("example-")
    assert host.carve_json("session", "list") == []


@needs_sim
def test_the_example_says_why_it_was_refused(host, examples):
    done = host.run([examples / "session", "400"])
    assert done.returncode == 3 and "session: request: 400 GiB" in done.stderr
    explanation = json.loads(done.stdout.removeprefix("explanation: "))
    assert explanation["granted"] is False and explanation["gpus"][0]["reason"] == "no_memory"
    bad = host.run([examples / "session", "4x"])
    assert bad.returncode == 2 and bad.stdout == "" and "4x" in bad.stderr
    larger = host.run([examples / "session", "2", "400"])
    assert larger.returncode == 3 and "session: resize: " in larger.stderr and larger.stdout.endswith("\nreleased\n")
    assert host.carve_json("session", "list") == []


@needs_sim
def test_the_current_session_is_meant_where_none_is_named(host, examples):
    """And processes inside keep it, but for force."""
    assert "no current session" in host.run([CASES, "", "show"]).stdout
    given = host.carve_json("session", "request", "--vram", "2")
    hog = host.popen([BUILD / "carve", "run", examples / "hog", "1000"])
    wait_until(lambda: host.carve_json("session", "show")["pids"] != [])
    assert json.loads(host.run([CASES, "", "show"]).stdout)["id"] == given["id"]
    explained = json.loads(host.run([CASES, "", "explain"]).stdout)
    assert explained["id"] == given["id"] and explained["granted"] is True
    assert json.loads(host.run([CASES, "", "explain-request"]).stdout)["asked"]
    assert host.run([CASES, "", "release"]).returncode == 1 and hog.poll() is None
    assert host.run([CASES, "", "force"]).returncode == 0
    hog.wait(60)
    assert host.carve_json("session", "list") == []
