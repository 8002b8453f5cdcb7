"""Requests that wait are rows: the daemon may die at any moment, and the line stays as it was."""
import sqlite3

from conftest import wait_until
from daemon_client import *
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures


class Lost(Asker):
    """Its connection may end with the daemon: .answer is None then."""

    def run(self):
        try:
            super().run()
        except OSError:
            pass


def line(daemon):
    return [s["id"] for s in waiting(daemon)]


def rows(daemon):
    with sqlite3.connect(f"file:{daemon.runtime / 'carve.db'}?mode=ro", uri=True) as database:
        return database.execute("SELECT id, passed FROM waiting ORDER BY since").fetchall()


def wait_in_line(daemon, count, **body):
    """So many requests that wait, named by their place."""
    ids = ["s-place" + "abc"[i] for i in range(count)]
    askers = []
    for place, id in enumerate(ids):
        askers.append(Lost(daemon, id=id, wait_for=600, **body))
        wait_until(lambda: line(daemon) == ids[:place + 1])
    wait_until(lambda: [id for id, _ in rows(daemon)] == ids)
    return ids, askers


def ask_again(daemon, id, **body):
    asker = Lost(daemon, id=id, wait_for=600, **body)
    wait_until(lambda: asker.answer or any(s["id"] == id and "started again" not in (s["reason"] or "")
                                           for s in waiting(daemon)))
    return asker


def test_a_request_that_waits_keeps_its_place_when_the_daemon_is_killed(daemon):
    full = daemon.grant(vram="80")
    ids, askers = wait_in_line(daemon, 3, vram="60")
    before = waiting(daemon)
    daemon.restart()
    for asker in askers:
        asker.join(60)
        assert asker.answer is None
    after = waiting(daemon)
    keys = ("id", "position", "created", "asked")
    assert [[s[k] for k in keys] for s in after] == [[s[k] for k in keys] for s in before]
    # The last comes back first, and still is the last.
    askers = [ask_again(daemon, id, vram="60") for id in reversed(ids)]
    assert line(daemon) == ids
    daemon.release(full["id"])
    for id, asker in zip(ids, reversed(askers)):
        asker.join(60)
        assert asker.answer.status == 201 and asker.answer.json["id"] == id
        daemon.release(id)
    assert rows(daemon) == []


def test_nobody_takes_the_room_of_a_request_whose_client_is_not_back_yet(daemon):
    full = daemon.grant(vram="80")
    (first,), _ = wait_in_line(daemon, 1, vram="60")
    daemon.kill()
    daemon.start()
    assert line(daemon) == [first]
    daemon.release(full["id"])
    refused = daemon.request(vram="1")
    assert refused.status == 409 and "earlier requests" in refused.error["message"]
    back = ask_again(daemon, first, vram="60")
    back.join(60)
    assert back.answer.status == 201
    assert daemon.grant(vram="1")


def test_a_request_whose_client_does_not_come_back_is_forgotten(daemon):
    daemon.grant(vram="60")
    (lost,), _ = wait_in_line(daemon, 1, vram="40")
    daemon.restart()
    later = Lost(daemon, vram="10", wait_for=600)
    later.join(60)
    assert later.answer.status == 201
    assert line(daemon) == [] and rows(daemon) == []
    assert f"request.forgotten id={lost}" in daemon.log()


def test_the_time_of_a_request_runs_on_while_there_is_no_daemon(daemon):
    daemon.grant(vram="80")
    asker = Lost(daemon, id="s-shortw", vram="40", wait_for=2)
    wait_until(lambda: rows(daemon))
    daemon.restart()
    asker.join(60)
    again = daemon.request(id="s-shortw", vram="40", wait_for=600)
    assert again.status == 409 and "in vain" in again.error["message"]
    assert rows(daemon) == []


def test_a_request_that_was_passed_often_is_next_after_a_restart_too(daemon):
    base = daemon.grant(vram="50")
    (first,), _ = wait_in_line(daemon, 1, vram="40")
    for _ in range(16):
        daemon.release(daemon.grant(vram="1")["id"])
    assert rows(daemon) == [(first, 16)]
    daemon.restart()
    back = ask_again(daemon, first, vram="40")
    assert daemon.request(vram="1").status == 409
    daemon.release(base["id"])
    back.join(60)
    assert back.answer.status == 201


def test_a_call_for_a_request_that_waits_takes_it_from_the_call_before(daemon):
    full = daemon.grant(vram="80")
    (id,), (before,) = wait_in_line(daemon, 1, vram="40")
    again = Lost(daemon, id=id, vram="40", wait_for=600)
    before.join(60)
    assert before.answer.status == 409 and "another call asked" in before.answer.error["message"]
    assert line(daemon) == [id]
    daemon.release(full["id"])
    again.join(60)
    assert again.answer.status == 201 and again.answer.json["id"] == id


def test_a_client_that_gives_up_leaves_no_row(daemon):
    daemon.grant(vram="80")
    connection = UnixConnection(daemon.runtime / "carved.sock")
    connection.request("POST", "/v1/sessions", '{"id": "s-gonexy", "vram": "40", "wait_for": 600}')
    wait_until(lambda: rows(daemon))
    connection.close()
    wait_until(lambda: not line(daemon))
    assert rows(daemon) == []


def test_a_request_that_waits_and_is_long_is_refused_and_one_that_does_not_wait_is_not(daemon):
    long = '"vram": "1", "ephemeral": true}' + " " * 5000
    assert daemon.call("POST", "/v1/sessions", "{" + long).status == 201
    refused = daemon.call("POST", "/v1/sessions", '{"wait_for": 5, ' + long)
    assert refused.status == 400 and "4096 bytes" in refused.error["message"]
