"""Names of sessions are their owner's: other users' names are nobody's business, but an administrator's."""
import json

from .lab import ALICE, BOB, MALLORY, ROOT


def request(lab, uid, *words):
    return lab.carve_json(uid, "session", "request", *words)["id"]


def test_a_name_that_several_users_gave_is_refused_with_the_ids(lab):
    ids = [request(lab, uid, "--vram", "1", "--name", "train") for uid in (ALICE, BOB)]
    for argv in (["show", "train"], ["resize", "train", "2"], ["release", "train"]):
        done = lab.carve(ROOT, "session", *argv)
        assert done.returncode == 1 and "2 sessions are called train: " in done.stderr, done.stderr
        assert f"{ids[0]} of {ALICE}" in done.stderr and f"{ids[1]} of {BOB}" in done.stderr
    assert lab.carve_json(ALICE, "session", "show", "train")["id"] == ids[0]
    own = request(lab, ROOT, "--vram", "1", "--name", "train")
    assert lab.carve_json(ROOT, "session", "show", "train")["id"] == own
    assert lab.carve(ROOT, "session", "release", ids[0]).returncode == 0
    assert lab.carve(ROOT, "session", "release", "train").stdout == f"{own}: released\n"
    assert lab.carve(ROOT, "session", "release", "train").stdout == f"{ids[1]}: released\n"


def test_an_administrator_is_told_that_nobody_has_such_a_session(lab):
    assert "there is no session nosuch here; " in lab.carve(ROOT, "session", "show", "nosuch").stderr


def test_another_users_name_is_no_name_of_yours(lab):
    theirs = request(lab, ALICE, "--vram", "1", "--name", "secret-train")
    for argv in (["session", "show", "secret-train"], ["session", "release", "secret-train"], ["session", "resize", "secret-train", "2"],
                 ["explain", "secret-train"]):
        done = lab.carve(MALLORY, *argv)
        assert done.returncode == 1 and "there is no session secret-train of yours" in done.stderr
        assert theirs not in done.stderr
    assert lab.carve(MALLORY, "run", "--session", "secret-train", "true").returncode == 125
    assert request(lab, MALLORY, "--vram", "1", "--name", "secret-train") != theirs


def test_the_current_session_is_each_users_own(lab):
    ids = {uid: request(lab, uid, "--vram", "1") for uid in (ALICE, BOB)}
    for uid in (ALICE, BOB):
        assert lab.carve_json(uid, "session", "show")["id"] == lab.carve_json(uid, "session", "show", "current")["id"] == ids[uid]
    for uid in (MALLORY, ROOT):
        assert "you have no current session" in lab.carve(uid, "session", "release").stderr
    assert "secret" not in json.dumps(lab.carve_json(MALLORY, "session", "list"))


def test_a_session_that_an_administrator_released_says_so_to_its_owner_alone(lab):
    id = request(lab, ALICE, "--vram", "1", "--session-timeout", "2h")
    assert lab.carve(ROOT, "session", "release", id).returncode == 0
    done = lab.carve(ALICE, "run", "true")
    assert done.returncode == 125 and f"your session {id} ended at 20" in done.stderr
    assert "Z: released by root, an administrator; " in done.stderr
    assert done.stderr.endswith("request a new one: carve session request --vram 1GiB --session-timeout 2h\n")
    assert lab.carve_json(ALICE, "session", "show", id)["ended_by"] == "administrator"
    assert id not in lab.carve(BOB, "run", "true").stderr and id not in lab.carve(ROOT, "run", "true").stderr
    assert lab.carve_json(ROOT, "session", "show", id)["request_again"] is None
