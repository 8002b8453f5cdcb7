"""Attacks on what the daemon counts and records of users: the tallies of `carve report`, and recorded commands."""
import json
import time

import pytest

from .lab import ALICE, CARVE, MALLORY
from .test_budgets import COMMON

# Sessions of as many names, each of which ends at once.
NAMES = COMMON + """
s = http()
for i in range(int(sys.argv[1])):
    call(s, 'POST', '/v1/sessions', json.dumps({'vram': '1', 'name': f'n{i}'}).encode())
    id = json.loads(answer(s)[1])['id']
    call(s, 'DELETE', f'/v1/sessions/{id}'); answer(s)
"""

# Reports that are asked for on as many connections, again and again, and never read. Prints how many were refused.
REPORTS = COMMON + """
connections = [http() for i in range(int(sys.argv[1]))]
for s in connections: call(s, 'GET', '/v1/report?by=name')
refused = sum(b' 429 ' in answer(s)[0].split(b'\\r\\n')[0] for s in connections)
print(refused, flush=True)
for s in connections: call(s, 'GET', '/v1/report?by=name')
held()
"""

CALLS = COMMON + """
s = http()
found = []
for method, path, body in json.loads(sys.argv[1]):
    call(s, method, path, json.dumps(body).encode())
    head, text = answer(s)
    found.append(int(head.split()[1]))
print(json.dumps(found))
"""


@pytest.mark.attack("9", "sessions of a thousand names fill the tallies and push out others'")
def test_names_by_the_thousand_are_one_row(lab):
    assert lab.run(ALICE, CARVE, "run", "--ephemeral", "--name", "mine", "--vram", "1", "--", "true").returncode == 0
    assert lab.python(MALLORY, NAMES, 1000).returncode == 0
    found = lab.carve_json(0, "report", "--by", "name")["rows"]
    of_mallory = [row for row in found if row["uid"] == MALLORY]
    assert len(of_mallory) == 33 and [row["other"] for row in of_mallory].count(True) == 1
    assert sum(row["sessions"] for row in of_mallory) == 1000
    assert [row["name"] for row in found if row["uid"] == ALICE] == ["mine"]


@pytest.mark.attack("9", "reports that are asked for by the hundred")
def test_reports_of_one_user_delay_no_others(lab):
    assert lab.run(ALICE, CARVE, "run", "--ephemeral", "--name", "mine", "--vram", "1", "--", "true").returncode == 0
    done = lab.python(MALLORY, REPORTS, 200, method=lab.popen)
    assert int(done.stdout.readline()) > 100
    assert done.stdout.readline() == "sent\n"
    begin = time.monotonic()
    row, = lab.carve_json(ALICE, "report", "--by", "name")["rows"]
    assert row["name"] == "mine" and time.monotonic() - begin < 30


@pytest.mark.attack("9", "what others did is read from reports and recorded commands, or changed there")
def test_others_reports_and_commands_are_not_to_be_had(lab):
    assert lab.run(ALICE, CARVE, "session", "request", "--vram", "1", "--name", "secret").returncode == 0
    alices, = lab.carve_json(ALICE, "session", "list")
    assert lab.run(ALICE, CARVE, "run", "--session", "secret", "--record-command", "--", "true", "secret").returncode == 0
    for by in ("user", "group", "gpu", "name"):
        assert lab.carve_json(MALLORY, "report", "--by", by)["rows"] == []
    calls = [["GET", f"/v1/report?uid={ALICE}", {}], ["GET", "/v1/report?uid=0", {}],
             ["POST", "/v1/commands/recorded", {"session": alices["id"], "command": "rm -rf /"}],
             ["POST", "/v1/commands/recorded", {"session": "s-nobody", "command": "true"}],
             *[["PATCH", f"/v1/commands/recorded/{n}", {"exit_code": 1}] for n in (0, 1, 2, -1, 2**63)]]
    done = lab.python(MALLORY, CALLS, json.dumps(calls))
    assert json.loads(done.stdout)[:4] in ([403, 403, 403, 404], [403, 403, 404, 404]), done.stdout
    assert set(json.loads(done.stdout)[4:]) == {404}
    listed = lab.run(MALLORY, CARVE, "session", "list", "--json").stdout
    assert "secret" not in listed
    command, = lab.carve_json(ALICE, "session", "show", alices["id"])["commands"]
    assert command["exit_code"] == 0 and command["command"] == "true secret"
