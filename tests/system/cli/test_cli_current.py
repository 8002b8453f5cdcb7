"""The current session of a user, which `carve run` joins, and the sessions with names beside it."""
import json
import os
import signal

import pytest

from command import CARVE, GIB, active, fails
from conftest import wait_until
from policed import policed  # noqa: F401: a fixture

WHICH = ("sh", "-c", "echo $CARVE_SESSION")


def request(host, *words):
    return host.carve_json("session", "request", *words)["id"]


def joined(host, *words):
    return host.carve("run", *words, *WHICH).stdout.strip()


def test_a_second_request_without_a_name_names_the_first(host):
    first = request(host, "--vram", "2")
    fails(host.carve("session", "request", "--vram", "1"), 1, f"you have a current session already: {first};", "--name NAME",
          f"carve session release {first}")
    assert [s["id"] for s in active(host)] == [first]


def test_a_second_request_without_a_name_is_refused_while_the_first_waits(host):
    full = request(host, "--gpu", "1", "--name", "full")
    first = host.popen([CARVE, "session", "request", "--vram", "70", "--wait-for", "10m"])
    id, = wait_until(lambda: [s["id"] for s in host.carve_json("session", "list") if s["state"] == "waiting"])
    fails(host.carve("session", "request", "--vram", "70", "--wait-for", "10m"), 1, f"your request {id} for a current session waits already")
    assert host.carve_json("session", "show")["id"] == id and host.carve_json("explain", "current")["position"] == 1
    fails(host.carve("run", "true"), 125, f"session {id} is not active, but waiting")
    assert host.carve("session", "release", "full").stdout == f"{full}: released\n"
    assert first.wait(60) == 0 and host.carve_json("session", "show")["id"] == id


def test_a_request_for_the_current_session_is_taken_back_without_its_id(host):
    request(host, "--gpu", "1", "--name", "full")
    first = host.popen([CARVE, "session", "request", "--vram", "70", "--wait-for", "10m"])
    id, = wait_until(lambda: [s["id"] for s in host.carve_json("session", "list") if s["state"] == "waiting"])
    assert host.carve("session", "release").stdout == f"{id}: released\n"
    assert first.wait(60) == 1 and [s["name"] for s in active(host)] == ["full"]


def test_names_make_sessions_beside_the_current_one(host):
    train = request(host, "--vram", "1", "--name", "train")
    current = request(host, "--vram", "2")
    evaluate = request(host, "--vram", "3", "--name", "eval")
    fails(host.carve("session", "request", "--vram", "1", "--name", "eval"), 1, f"your session {evaluate} is called eval already")
    assert joined(host) == current
    assert joined(host, "--session", "train") == joined(host, "--session", train) == train
    assert joined(host, "--session", "current") == current
    assert {s["id"]: (s["name"], s["current"]) for s in active(host)} == {
        train: ("train", False), current: ("", True), evaluate: ("eval", False)}
    names = {line.split()[0]: line.split()[1] for line in host.carve("session", "list").stdout.splitlines()}
    assert names == {"ID": "NAME", train: "train", current: "(current)", evaluate: "eval"}
    assert f"{current}, active\nname:      (current)\n" in host.carve("session", "show").stdout
    assert "(current)" in host.carve("top", "--once").stdout


def test_verbs_mean_the_current_session_or_the_named_one(host):
    train = request(host, "--vram", "1", "--name", "train")
    current = request(host, "--vram", "2")
    assert host.carve_json("session", "show")["id"] == host.carve_json("session", "show", "current")["id"] == current
    assert host.carve_json("session", "show", "train")["id"] == train
    assert host.carve_json("session", "resize", "3")["vram_bytes"] == 3 * GIB
    assert host.carve_json("session", "resize", "train", "4")["id"] == train
    assert host.carve_json("session", "show", "current")["vram_bytes"] == 3 * GIB
    assert host.carve("session", "release", "train").stdout == f"{train}: released\n"
    assert host.carve("session", "release").stdout == f"{current}: released\n"
    assert active(host) == []


def test_run_with_a_size_takes_a_slice_of_its_own_beside_the_current_session(host):
    current = request(host, "--vram", "8")
    for words in (["--vram", "4"], ["--vram", "8"], ["--ephemeral", "--vram", "4"]):
        done = host.carve("run", *words, CARVE, "session", "show", "--json")
        own = json.loads(done.stdout)
        assert own["id"] != current and own["ephemeral"] and not own["current"]
        assert own["vram_bytes"] == int(words[-1]) * GIB
    assert [s["id"] for s in active(host)] == [current]
    assert joined(host) == current


def test_a_user_with_named_sessions_alone_is_told_a_name(host):
    request(host, "--vram", "1", "--name", "train")
    for argv, code in ((["run", "true"], 125), (["session", "show"], 1), (["session", "resize", "2"], 1), (["session", "release"], 1)):
        fails(host.carve(*argv), code, "you have no current session", "such as train")
    assert len(active(host)) == 1


@pytest.mark.parametrize("name", ["current", "s-abc", "-x", "a/b", ""])
def test_a_name_that_could_mean_something_else_is_refused(host, name):
    done = host.carve("session", "request", "--vram", "1", f"--name={name}")
    fails(done, 2, "name: ")
    assert name != "current" or "stands for the session without a name" in done.stderr


def test_a_restart_leaves_the_current_session_current(make_host):
    host = make_host("h100-80gb")
    train, current = request(host, "--vram", "1", "--name", "train"), request(host, "--vram", "2")
    os.kill(host.daemon_pid(), signal.SIGKILL)
    assert joined(host) == current and joined(host, "--session", "train") == train
    fails(host.carve("session", "request", "--vram", "1"), 1, current)


def end_of_time(host, *words):
    """The ID of a session whose time was up."""
    id = request(host, "--session-timeout", "1", *words)
    wait_until(lambda: all(s["id"] != id for s in host.carve_json("session", "list")))
    return id


def test_a_session_whose_time_was_up_says_so_to_the_next_command(host):
    id = end_of_time(host, "--vram", "2.5")
    said = (f"you have no current session: your session {id} ended at 20", "Z because its time of 1s was up; ",
            "request a new one: carve session request --vram 2560MiB --session-timeout 1s\n")
    fails(host.carve("run", "true"), 125, "run: no size given, and ", *said)
    for argv in (["session", "show"], ["session", "resize", "2"], ["session", "release"]):
        fails(host.carve(*argv), 1, *said)
    shown = host.carve_json("session", "show", id)
    assert (shown["ended_by"], shown["reason"], shown["current"]) == ("time", "its time of 1s was up", False)
    assert host.run(shown["request_again"].replace("carve", str(CARVE), 1).split()).returncode == 0
    assert host.carve("session", "release").returncode == 0
    done = host.carve("run", "true")  # its owner ended the last one
    assert f"{id}" not in done.stderr and "and you have no current session; " in done.stderr


def test_a_named_session_whose_time_was_up_says_so(host):
    id = end_of_time(host, "--gpu", "0.25", "--name", "train")
    said = (f"your session {id} ended at 20", " because its time of 1s was up; request a new one: ",
            "carve session request --gpu 0.25 --session-timeout 1s --name train\n")
    fails(host.carve("run", "--session", "train", "true"), 125, *said)
    fails(host.carve("session", "release", "train"), 1, *said)
    assert host.carve_json("session", "show", "train")["id"] == id
    assert id not in host.carve("run", "true").stderr  # it was no current session


def test_a_session_that_a_policy_released_says_so(policed):
    policed(idle_timeout=4, idle_warning=2)
    id = request(policed.host, "--vram", "1")
    wait_until(lambda: policed.host.carve_json("session", "list") == [])
    fails(policed.host.carve("run", "true"), 125, f"your session {id} ended at 20", "Z: it used no GPU time for 4s (idle_timeout); ",
          "request a new one: carve session request --vram 1GiB\n")
    assert policed.host.carve_json("session", "show", id)["ended_by"] == "policy"


def test_an_end_of_ones_own_is_no_news(host):
    ids = [request(host, "--vram", "1"), request(host, "--vram", "1", "--name", "train")]
    for id in ids:
        host.carve("session", "release", id)
    assert {host.carve_json("session", "show", id)["ended_by"] for id in ids} == {"owner"}
    assert ids[0] not in host.carve("run", "true").stderr
    fails(host.carve("run", "--session", "train", "true"), 125, f"session {ids[1]} ended at 20", "Z: released; `carve session list` shows those that have not ended")
