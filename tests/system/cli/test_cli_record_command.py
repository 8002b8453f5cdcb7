"""carve run --record-command: the command and its exit status in the history, where its user wants that."""
import json
import os

import pytest

from conftest import BUILD, clean_env, run  # noqa: F401: fixtures come from conftest

CARVE = BUILD / "carve"
SECRET = "token-1234"


def listed(host):
    return host.carve_json("session", "list", "--all")


def test_a_command_is_kept_only_if_its_user_wants_that(host):
    assert host.carve("run", "--vram", "1", "--", "sh", "-c", f"exit 3; {SECRET}").returncode == 3
    session, = listed(host)
    assert session["commands"] == [] and SECRET not in json.dumps(session)
    assert "COMMAND" not in host.carve("session", "list", "--all").stdout
    assert host.carve("run", "--record-command", "--vram", "1", "--", "sh", "-c", "exit 5").returncode == 5
    recorded, = [s for s in listed(host) if s["commands"]]
    command, = recorded["commands"]
    assert (command["command"], command["exit_code"]) == ("sh -c 'exit 5'", 5)
    assert command["began"] <= command["ended"]
    text = host.carve("session", "list", "--all").stdout
    assert "sh -c 'exit 5'" in text and "EXIT" in text
    assert "command:   sh -c 'exit 5', began" in host.carve("session", "show", recorded["id"]).stdout
    assert "with exit status 5" in host.carve("session", "show", recorded["id"]).stdout


def test_the_environment_is_a_users_setting(host):
    env = {**host.env, "CARVE_RECORD_COMMAND": "1"}
    run([CARVE, "run", "--vram", "1", "--", "sh", "-c", "kill -9 $$"], env=clean_env(env))
    session, = listed(host)
    command, = session["commands"]
    assert command["exit_code"] == 128 + 9


def test_a_session_keeps_its_newest_commands_and_long_ones_are_cut(host):
    assert host.carve("session", "request", "--vram", "1").returncode == 0
    for i in range(10):
        assert host.carve("run", "--record-command", "--", "true", str(i)).returncode == 0
    assert host.carve("run", "--record-command", "--", "true", "ä" * 300).returncode == 0
    session, = host.carve_json("session", "list")
    texts = [c["command"] for c in session["commands"]]
    assert len(texts) == 8 and texts[0] == "true 3"
    assert texts[-1].endswith("...") and len(texts[-1].encode()) <= 255
    assert host.carve("session", "release", session["id"]).returncode == 0
    ended, = listed(host)
    assert [c["command"] for c in ended["commands"]] == texts


def test_a_command_cannot_move_the_cursor_of_who_lists_it(host):
    assert host.carve("run", "--record-command", "--vram", "1", "--", "true", "\x1b[2J\nx").returncode == 0
    session, = listed(host)
    assert "\x1b" not in session["commands"][0]["command"] and "\n" not in session["commands"][0]["command"]
