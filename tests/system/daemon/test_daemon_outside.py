"""Programs outside carve: the keys of the configuration, the list, and the command that prints it."""
import json
import subprocess

import pytest

from conftest import BUILD, wait_until
from reaching import CARVE, GIB, PROGRAMS, REACH, driver_of  # noqa: F401

WRONG = {
    '{"outside_policy": "end"}': 'outside_policy takes "report" or "kill"',
    '{"outside_policy": true}': 'outside_policy takes "report" or "kill"',
    '{"outside_seconds": 1}': "outside_seconds takes a number from 2 to 86400",
    '{"outside_seconds": "10s"}': "outside_seconds takes a number from 2 to 86400",
    '{"outside_exempt": ["ci"]}': 'outside_exempt takes an object such as {"users": ["ci"], "groups": ["video"]}',
    '{"outside_exempt": {"user": ["ci"]}}': "outside_exempt: user is unknown; it has users and groups",
    '{"outside_exempt": {"users": "ci"}}': 'outside_exempt.users takes a list of names or numbers, such as ["ci", 1001]',
    '{"outside_exempt": {"groups": [-1]}}': "outside_exempt.groups: entry 1 is neither a name nor a number",
    '{"outside_exempt": {"groups": ["a", ""]}}': "outside_exempt.groups: entry 2 is neither a name nor a number",
    json.dumps({"outside_exempt": {"users": list(range(33))}}): "outside_exempt.users takes 32 names at most",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_wrong_policy_is_refused_with_its_key_and_a_right_value(tmp_path, text):
    (tmp_path / "carved.json").write_text(text)
    done = subprocess.run([BUILD / "carved", "--config", tmp_path / "carved.json", "--check-config"], capture_output=True, text=True)
    assert done.returncode == 2 and WRONG[text] in done.stderr, done.stderr


def test_a_right_policy_is_taken(tmp_path):
    (tmp_path / "carved.json").write_text('{"outside_policy": "kill", "outside_seconds": 2.5, "outside_exempt": {"users": ["root", 7], "groups": []}}')
    done = subprocess.run([BUILD / "carved", "--config", tmp_path / "carved.json", "--check-config"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_program_outside_is_listed_with_its_memory_and_gpu(make_host):
    host = make_host("h100-80gb:2")
    assert "No program outside carve uses a GPU.\noutside_policy is report" in host.carve("outside").stdout
    program = host.popen([REACH, "path", driver_of(host), str(3 * GIB)], stdin=subprocess.PIPE)
    assert program.stdout.readline() and program.stdout.readline() == "holds\n"
    shown, = wait_until(lambda: host.carve_json("outside")["programs"])
    assert shown["pid"] == program.pid and shown["memory_bytes"] >= 3 * GIB and [gpu["index"] for gpu in shown["gpus"]] == [0]
    assert shown["owner"] == "root" and shown["spared"] == "root" and shown["command"] and shown["since"]
    head, row, policy = host.carve("outside").stdout.splitlines()
    assert head.split() == ["PID", "OWNER", "COMMAND", "GPU", "MEMORY", "SINCE", "FATE"]
    assert str(program.pid) in row and "it stays: root's" in row
    program.communicate("", timeout=60)
    wait_until(lambda: not host.carve_json("outside")["programs"])
