"""show_owners: colleagues see whose the sessions are, where the administrator allows it, and nothing more."""
import json
import pathlib
import signal
import tempfile

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, GIB, MALLORY, ROOT

TEAM = 64100
SEEN = {"id", "state", "owner", "created", "vram_bytes", "gpus"}
SEEN_OF_GPU = {"index", "uuid", "name", "vram_bytes"}
# All that a user can read without naming another user's session.
PAGES = ["/v1/sessions", "/v1/sessions?all=1", "/v1/sessions?living=", "/v1/sessions?page=", "/v1/gpus", "/v1/timeslicing", "/v1/mig",
         "/v1/jobs", "/v1/queues", "/v1/agents", "/v1/quotas", "/v1/version", "/v1/events", "/v1/timeslicing/trace"]


@pytest.fixture
def make_shown(make_lab):
    """make_shown("group") -> (lab, tell): tell({...}) has the daemon read another configuration, and waits for its log's word."""
    with tempfile.TemporaryDirectory(prefix="carve-open-") as path:
        config = pathlib.Path(path) / "carved.json"
        pathlib.Path(path).chmod(0o755)

        def make(rule, gpus="h100-80gb"):
            config.write_text(json.dumps({"show_owners": rule} if rule else {}))
            lab = make_lab(gpus, args=["--config", str(config)])

            def tell(value, word="config.read"):
                before = lab.log().count(word)
                config.write_text(json.dumps(value))
                lab.daemon.send_signal(signal.SIGHUP)
                wait_until(lambda: lab.log().count(word) > before)

            return lab, tell

        yield make


def request(lab, uid, *words, groups=()):
    return lab.carve_json(uid, "session", "request", *words, groups=groups)


def row_of(lab, viewer, groups=()):
    """The row of Alice's session as another user has it: the only one that is not the viewer's own."""
    row, = [s for s in lab.carve_json(viewer, "session", "list", groups=groups) if "pids" not in s]
    return row


def rule_of(lab, viewer):
    """What `carve limits` says of the rule: its value, and from where it comes."""
    row, = [r for r in lab.carve_json(viewer, "limits")["limits"] if r["limit"] == "show_owners"]
    return row["value"], row["from"], row["name"]


def owners(lab, viewer, groups=()):
    return [(o["owner"], o["sessions"], o["vram_bytes"]) for o in lab.carve_json(viewer, "gpu", "list", groups=groups)[0]["owners"]]


@pytest.mark.attack("2", "a user who wants to know whose sessions there are, where nobody allows it")
@pytest.mark.parametrize("rule", [None, "none"])
def test_owners_are_hidden_where_nobody_allows_it(make_shown, rule):
    lab, _ = make_shown(rule)
    request(lab, ALICE, "--vram", "2", groups=[TEAM])
    row = row_of(lab, BOB, groups=[TEAM])
    assert row["owner"] is None and set(row) == SEEN - {"created"}
    assert owners(lab, BOB, groups=[TEAM]) == [(None, 1, 2 * GIB)]
    assert "held by" not in lab.carve(BOB, "gpu", "list", groups=[TEAM]).stdout
    assert "who holds" not in lab.carve(BOB, "run", "--vram", "79", "true").stderr
    assert owners(lab, ALICE) == [(str(ALICE), 1, 2 * GIB)] == owners(lab, ROOT)


def test_members_of_a_common_group_see_each_others_names(make_shown):
    lab, _ = make_shown("group")
    granted = request(lab, ALICE, "--vram", "2", "--name", "secret", groups=[TEAM])
    row = row_of(lab, BOB, groups=[64101, TEAM])
    assert (row["owner"], row["created"], row["id"]) == (str(ALICE), granted["created"], None) and set(row) == SEEN
    assert {key for gpu in row["gpus"] for key in gpu} == SEEN_OF_GPU
    for viewer, groups in ((BOB, []), (MALLORY, [64101])):
        assert row_of(lab, viewer, groups=groups)["owner"] is None
    request(lab, BOB, "--vram", "3", groups=[TEAM])
    assert owners(lab, BOB, groups=[TEAM]) == [(str(BOB), 1, 3 * GIB), (str(ALICE), 1, 2 * GIB)]
    assert owners(lab, MALLORY) == [(None, 2, 5 * GIB)]
    lab.restart()
    assert owners(lab, BOB, groups=[TEAM]) == [(str(BOB), 1, 3 * GIB), (str(ALICE), 1, 2 * GIB)]


def test_names_stand_in_lists_top_and_explanations(make_shown):
    lab, _ = make_shown("all")
    request(lab, ALICE, "--vram", "60")
    request(lab, ALICE, "--vram", "2", "--name", "more")
    for argv in (["gpu", "list"], ["explain", "--vram", "40", "--ephemeral"]):
        assert f"GPU 0 is held by {ALICE} 62 GiB in 2 sessions since " in lab.carve(MALLORY, *argv).stdout, argv
    refused = lab.carve(MALLORY, "run", "--vram", "40", "true")
    assert refused.returncode == 125 and refused.stderr.endswith("; `carve gpu list` shows who holds the GPUs\n"), refused.stderr
    explained = lab.carve_json(MALLORY, "explain", "--vram", "40")
    assert [o["owner"] for o in explained["gpus"][0]["owners"]] == [str(ALICE)]
    assert lab.carve(MALLORY, "session", "list").stdout.count(f" {ALICE} ") == 2
    assert str(ALICE) in lab.carve(MALLORY, "top", "--once").stdout


def test_requests_that_wait_show_their_owner_and_an_end_shows_none(make_shown):
    lab, _ = make_shown("all")
    full = request(lab, ALICE, "--vram", "70")
    waits = lab.popen(BOB, CARVE, "session", "request", "--vram", "40", "--wait-for", "10m", "--name", "secret")
    row, = wait_until(lambda: [s for s in lab.carve_json(MALLORY, "session", "list") if s["state"] == "waiting"])
    assert row["owner"] == str(BOB) and set(row) == SEEN | {"asked", "position"}
    assert f"ahead of it: a request of {BOB} (40 GiB)" in lab.carve(MALLORY, "explain", "--vram", "40").stdout
    assert lab.carve(ALICE, "session", "release", full["id"]).returncode == 0
    assert waits.wait(60) == 0
    ended, = [s for s in lab.carve_json(MALLORY, "session", "list", "--all") if s["state"] == "ended"]
    assert ended["owner"] is None and set(ended) == SEEN - {"created"}


@pytest.mark.attack("2", "a colleague who wants to know more than whose a session is")
def test_nothing_but_the_owner_is_shown(make_shown):
    lab, _ = make_shown("all")
    id = request(lab, ALICE, "--vram", "2", "--name", "secret-name", "--session-timeout", "12345")["id"]
    command = lab.popen(ALICE, CARVE, "run", "--session", id, "sh", "-c", "echo $$; exec sleep 98765")
    pid = command.stdout.readline().strip()
    uuid = lab.carve_json(ALICE, "session", "show", id)["stamp"]
    read = """
sys.path.insert(0, LAB["tests"])
from unix_http import UnixConnection
for page in json.loads(sys.argv[1]):
    connection = UnixConnection(LAB["http"])
    connection.request("GET", page)
    answer = connection.getresponse()
    print(page, answer.status, answer.read().decode())
"""
    done = lab.python(MALLORY, read, json.dumps(PAGES))
    assert done.returncode == 0 and str(ALICE) in done.stdout, done.stderr
    for secret in ("secret-name", id, uuid, "98765", "12345", "ends_at", f" {pid}", f"[{pid}"):
        assert secret not in done.stdout.replace("daemon", ""), secret
    for argv, code in ((["session", "show", id], 5), (["session", "show", "secret-name"], 1), (["explain", id], 5),
                       (["session", "release", id], 5), (["session", "resize", id, "1"], 5)):
        refused = lab.carve(MALLORY, *argv)
        assert refused.returncode == code and "secret" not in refused.stderr.replace(argv[-1], ""), refused
        assert pid not in refused.stderr


def test_instances_show_their_owner_and_not_the_session(make_shown):
    lab, tell = make_shown("all", "h100-80gb+mig")
    assert lab.carve(ROOT, "node", "set-role", "--dynamic-mig-enabled").returncode == 0
    request(lab, ALICE, "--mig-profile", "1g.10gb")
    instance, = lab.carve_json(MALLORY, "mig", "list")
    assert (instance["owner"], instance["session"], instance["sessions"], instance["pids"]) == (str(ALICE), None, [], [])
    tell({})
    assert lab.carve_json(MALLORY, "mig", "list")[0]["owner"] is None


def test_a_wrong_rule_is_refused_and_the_last_one_holds(make_shown):
    lab, tell = make_shown("all")
    request(lab, ALICE, "--vram", "2")
    tell({"show_owners": "friends"}, word="config.refused")
    assert rule_of(lab, BOB) == ("all", "carved.json", "show_owners")
    assert "show_owners takes" in lab.log()
    assert row_of(lab, BOB)["owner"] == str(ALICE)
    tell({})
    assert row_of(lab, BOB)["owner"] is None and rule_of(lab, BOB) == ("none", "default", None)
