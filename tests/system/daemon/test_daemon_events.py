"""The event log of the daemon: GET /v1/events."""
import grp
import os
import pathlib
import pwd
import threading

import pytest

from conftest import administrator, wait_until
from daemon_client import *
from disk import fill, tiny_disk  # noqa: F401: fixtures
from own_daemon import daemon, make_daemon, set_quota  # noqa: F401: fixtures


def events(daemon, query="from=0"):
    """All events, in parts as a client reads them."""
    found, part = [], daemon.call("GET", f"/v1/events?{query}").json
    while True:
        found += part["events"]
        next = part["next"]
        part = daemon.call("GET", f"/v1/events?{query}&from={next}" if "from" not in query else f"/v1/events?from={next}").json
        if part["next"] == next:
            return found


def kinds(daemon):
    return [e["kind"] for e in events(daemon)]


def test_a_start_is_an_event_of_the_daemon_itself(daemon):
    (event,) = events(daemon)
    assert event["kind"] == "carved.started" and event["uid"] is None and event["number"] == 1, event
    assert f"carved.started event=1" in daemon.log()


def test_a_quota_tells_who_set_it_with_old_and_new_value(daemon):
    set_quota(daemon, "12345", vram="4", sessions=2)
    set_quota(daemon, "12345", vram="8")
    first, second = [e for e in events(daemon) if e["kind"] == "quota.set"]
    assert first["before"] == "vram no limit, sessions no limit, gpus no limit, gpu_hours no limit"
    assert first["after"] == second["before"] == "vram 4 GiB, sessions 2, gpus no limit, gpu_hours no limit"
    assert second["after"] == "vram 8 GiB, sessions no limit, gpus no limit, gpu_hours no limit"
    assert second["uid"] == os.getuid() and second["pid"] == os.getpid() and second["owner"] == "12345"
    assert second["subject"] == "user 12345" and "python" in second["process"]
    assert second["parents"].split(",")[0].endswith(f" {os.getppid()}"), second
    assert 'quota.set event=' in daemon.log() and 'after="vram 8 GiB, sessions no limit, gpus no limit, gpu_hours no limit"' in daemon.log()


def test_numbers_go_on_after_a_restart(daemon):
    before = events(daemon)
    daemon.restart()
    after = events(daemon)
    assert after[:len(before)] == before
    assert [e["number"] for e in after] == list(range(1, len(after) + 1)) and len(after) == len(before) + 1


def test_a_call_waits_for_the_next_event(daemon):
    first = daemon.call("GET", "/v1/events").json
    assert first["events"] == []
    answers = []
    caller = threading.Thread(target=lambda: answers.append(daemon.call("GET", f"/v1/events?wait=1&from={first['next']}").json))
    caller.start()
    caller.join(0.3)
    assert caller.is_alive()
    set_quota(daemon, "12345", vram="4")
    caller.join(60)
    assert [e["kind"] for e in answers[0]["events"]] == ["quota.set"]


@pytest.mark.parametrize("query, words", [
    ("from=x", "from: takes a whole number"), ("from=-1", "from: takes a whole number"), ("since=1d", "since: takes"),
    ("kind=quota", "there are no events of kind quota"), ("uid=x", "uid: takes"), ("from=99999999999999999999999", "from: takes"),
])
def test_wrong_words_are_refused(daemon, query, words):
    answer = daemon.call("GET", f"/v1/events?{query}")
    assert answer.status == 400 and words in answer.error["message"], answer.json


def test_a_number_beyond_the_last_one_is_answered_with_the_next(daemon):
    next = daemon.call("GET", "/v1/events").json["next"]
    for number in (next + 1, 1 << 53, (1 << 63) - 1):
        answer = daemon.call("GET", f"/v1/events?wait=1&from={number}").json
        assert answer["events"] == [] and answer["next"] == next


def test_events_are_filtered_by_kind_and_user(daemon):
    set_quota(daemon, "12345", vram="4")
    set_quota(daemon, "12346", vram="4")
    assert [e["kind"] for e in daemon.call("GET", "/v1/events?from=0&kind=carved.started").json["events"]] == ["carved.started"]
    assert [e["owner"] for e in daemon.call("GET", "/v1/events?from=0&uid=12346").json["events"]] == ["12346"]
    assert [e["kind"] for e in daemon.call("GET", "/v1/events?from=0&changes=1").json["events"]] == ["quota.set"] * 2
    assert len(daemon.call("GET", "/v1/events?since=1").json["events"]) == 3
    assert daemon.call("GET", f"/v1/events?since={1 << 62}").json["events"] == []


def last(daemon, kind):
    return [e for e in events(daemon) if e["kind"] == kind][-1]


def test_a_quota_that_stays_as_it_was_is_no_event(daemon):
    set_quota(daemon, "12345", vram="4")
    set_quota(daemon, "12345", vram="4")
    assert kinds(daemon).count("quota.set") == 1


def test_a_mode_tells_its_gpus_with_old_and_new_setting(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "Fake H100")] * 3)
    assert daemon.call("PUT", "/v1/timeslicing", {"mode": "fair", "gpu_ids": "0,1"}).status == 200
    event = last(daemon, "timeslicing.set")
    assert (event["subject"], event["before"], event["after"]) == ("GPUs 0-1", "off", "fair, lease 250 ms, granularity 5%")
    assert event["pid"] == os.getpid()
    assert daemon.call("PUT", "/v1/timeslicing", {"mode": "strict", "lease": "100ms"}).status == 200
    changed = [(e["subject"], e["before"], e["after"]) for e in events(daemon) if e["kind"] == "timeslicing.set"][1:]
    assert changed == [("GPUs 0-1", "fair, lease 250 ms, granularity 5%", "strict, lease 100 ms, granularity 5%"),
                       ("GPU 2", "off", "strict, lease 100 ms, granularity 5%")]
    assert daemon.call("PUT", "/v1/timeslicing", {"mode": "strict"}).status == 200
    assert kinds(daemon).count("timeslicing.set") == 3


def test_a_lost_gpu_is_an_event_and_so_is_its_return(daemon):
    daemon.failing = True
    daemon.write_state()
    wait_until(lambda: "gpu.lost" in kinds(daemon), timeout=90)
    lost = last(daemon, "gpu.lost")
    assert lost["subject"] == "GPU 0" and lost["before"] == "ok" and lost["after"] in ("lost", "failing") and lost["text"]
    daemon.failing = False
    daemon.write_state()
    wait_until(lambda: "gpu.back" in kinds(daemon), timeout=90)
    assert last(daemon, "gpu.back")["after"] == "ok"


def test_a_configuration_tells_what_changed_and_what_was_wrong(make_daemon, tmp_path):
    file = tmp_path / "carved.json"
    file.write_text('{"over_seconds": 4, "living_sessions": 100}')
    daemon = make_daemon(args=["--config", file])
    file.write_text('{"over_seconds": 5, "over_policy": "kill", "living_sessions": 100}')
    daemon.reload()
    wait_until(lambda: "config.read" in kinds(daemon))
    read = last(daemon, "config.read")
    assert read["before"] == '{"over_seconds": 4}' and read["after"] == '{"over_policy": "kill", "over_seconds": 5}'
    assert read["subject"] == str(file)
    file.write_text('{"over_policy": "ki\\nll"}')
    daemon.reload()
    wait_until(lambda: "config.refused" in kinds(daemon))
    assert "over_policy takes" in last(daemon, "config.refused")["text"]
    daemon.restart()
    wait_until(lambda: kinds(daemon).count("config.refused") == 2)


def test_a_restart_says_how_many_sessions_go_on(daemon):
    daemon.grant(vram="1", ephemeral=False)
    daemon.restart()
    assert last(daemon, "carved.started")["text"] == "1 session goes on"


def test_the_name_of_a_process_brings_no_control_characters_along(daemon):
    comm = pathlib.Path("/proc/self/comm")
    before = comm.read_text()
    try:
        comm.write_text("a\x1b[2J\rb")
        set_quota(daemon, "12345", vram="4")
    finally:
        comm.write_text(before.strip())
    assert last(daemon, "quota.set")["process"] == "a?[2J?b"
    assert "\x1b" not in daemon.log() and "\r" not in daemon.log()


def near(daemon):
    return [(e["subject"], e["after"]) for e in events(daemon) if e["kind"] == "quota.near"]


def test_a_use_that_comes_to_90_percent_of_a_quota_is_told_once_each_time(daemon):
    user = pwd.getpwuid(os.getuid()).pw_name
    set_quota(daemon, user, vram="10")
    first = daemon.grant(vram="8")["id"]
    assert near(daemon) == []
    second = daemon.grant(vram="1")["id"]
    assert near(daemon) == [(f"user {user}", "9 GiB of 10 GiB")]
    daemon.grant(vram="1")
    assert len(near(daemon)) == 1  # it was near before
    daemon.release(first), daemon.release(second)
    daemon.grant(vram="1")
    assert len(near(daemon)) == 1
    third = daemon.grant(vram="5", ephemeral=False)["id"]
    assert daemon.call("PATCH", f"/v1/sessions/{third}", {"vram": "7.5"}).status == 200
    assert near(daemon)[1:] == [(f"user {user}", "9.5 GiB of 10 GiB")]


def test_sessions_and_gpus_of_a_user_and_a_group_are_told_with_their_limits(make_daemon):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "Fake H100")] * 2)
    user, group = pwd.getpwuid(os.getuid()).pw_name, grp.getgrgid(os.getgid()).gr_name
    set_quota(daemon, user, gpus=2)
    set_quota(daemon, group, kind="group", sessions=2)
    daemon.grant(vram="1", gpu_ids="0")
    daemon.grant(vram="1", gpu_ids="1")
    assert sorted(near(daemon)) == [(f"group {group}", "2 sessions of 2 sessions"), (f"user {user}", "2 GPUs of 2 GPUs")]


def test_a_user_who_crosses_a_limit_without_end_is_told_of_now_and_then(daemon):
    set_quota(daemon, pwd.getpwuid(os.getuid()).pw_name, sessions=2)
    daemon.grant(vram="1")
    for _ in range(30):
        daemon.release(daemon.grant(vram="1")["id"])
    assert len(near(daemon)) == 10


def test_a_limit_of_one_session_is_used_up_whenever_it_is_used_and_told_never(daemon):
    set_quota(daemon, pwd.getpwuid(os.getuid()).pw_name, sessions=1, gpus=1)
    daemon.grant(vram="1")
    assert near(daemon) == []


def test_a_limit_of_nothing_is_never_near(daemon):
    set_quota(daemon, pwd.getpwuid(os.getuid()).pw_name, vram="0")
    assert daemon.request(vram="1").status != 201 and near(daemon) == []


def test_events_on_a_full_disk_are_in_the_log_of_the_daemon_alone(make_daemon, tiny_disk):
    daemon = make_daemon(args=["--state-dir", tiny_disk])
    fill(tiny_disk / "filler")
    numbers = []
    for number in range(200):
        daemon.call("PUT", "/v1/notice", {"text": f"{number} " + "x" * 1000})
        daemon.call("PUT", "/v1/quotas/user/12345", {"sessions": number})
        if "event.unrecorded" in daemon.log():
            break
    answer = daemon.call("PUT", "/v1/notice", {"text": "more" * 250})
    assert answer.status == 409 and "cannot be recorded" in answer.error["message"], answer.json
    (tiny_disk / "filler").unlink()
    assert daemon.call("PUT", "/v1/notice", {"text": "room"}).status == 200
    numbers = [e["number"] for e in events(daemon)]
    assert last(daemon, "notice.set")["after"] == "room" and numbers == sorted(set(numbers))
