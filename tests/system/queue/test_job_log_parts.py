"""A job's log over HTTP, in parts (GET /v1/jobs/log): what the page shows."""
import json

from conftest import wait_until
from queueing import queues  # noqa: F401: fixtures
from unix_http import UnixConnection

PART = 32 * 1024


def ask(queues, id, **arguments):
    connection = UnixConnection(queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock")
    query = "&".join(f"{name}={value}" for name, value in arguments.items())
    connection.request("GET", f"/v1/jobs/log/{id}" + (f"?{query}" if query else ""))
    answer = connection.getresponse()
    body = json.loads(answer.read())
    connection.close()
    return answer.status, body


def part(queues, id, **arguments):
    status, body = ask(queues, id, **arguments)
    assert status == 200, body
    return body


def all_parts(queues, id):
    """The text of a job that has ended, from its first byte on."""
    text, at = "", 0
    while True:
        found = part(queues, id, **{"from": at})
        assert found["from"] == at and found["next"] - at <= PART
        text, at = text + found["text"], found["next"]
        if at == found["size"]:
            return text


def test_the_last_part_comes_first_and_then_what_follows(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("sh", "-c", f"seq 1 20000; {queues.gate()}; echo after")
    queues.wait_state(id, "running")
    last = wait_until(lambda: (found := part(queues, id))["text"].endswith("20000\n") and found)
    assert 0 < last["from"] and last["next"] == last["size"] and last["next"] - last["from"] == PART and not last["ended"]
    nothing = part(queues, id, **{"from": last["next"]})
    assert (nothing["text"], nothing["next"]) == ("", last["next"])
    queues.open_gate()
    queues.ended(id)
    rest = part(queues, id, **{"from": last["next"]})
    assert rest["text"] == "after\n" and rest["ended"] and rest["next"] == rest["size"]
    assert all_parts(queues, id) == "".join(f"{i}\n" for i in range(1, 20001)) + "after\n"
    beyond = part(queues, id, **{"from": 10 ** 12})
    assert (beyond["text"], beyond["next"]) == ("", rest["size"])


def test_no_byte_of_a_log_is_more_than_text(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("printf", r"<b>\033[31m\000\377\r\n\té\342\200\256x")
    queues.ended(id)
    assert part(queues, id)["text"] == "<b>\\x1b[31m\\x00\\xff\\x0d\n\té\\xe2\\x80\\xaex"


def test_no_part_cuts_a_character(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("/usr/bin/python3", "-c", "import sys; sys.stdout.buffer.write(b'a' + 'é漢'.encode() * 30000 + b'\\xe6\\xbc')")
    queues.ended(id)
    assert all_parts(queues, id) == "a" + "é漢" * 30000 + "\\xe6\\xbc"
    last = part(queues, id)
    assert last["text"].endswith("漢\\xe6\\xbc") and "\\x" not in last["text"][:100]


def test_a_job_that_has_not_begun_has_printed_nothing(queues):
    queues.agent("half=0.5")
    id = queues.enqueue("true", options=("--hold",))
    found = part(queues, id)
    assert (found["text"], found["size"], found["ended"]) == ("", 0, False)


def test_output_that_the_daemon_has_no_log_of_is_refused(queues, tmp_path):
    queues.agent("half=0.5")
    own = queues.enqueue("echo", "secret", options=("--output", tmp_path / "own"))
    array = queues.enqueue("sh", "-c", "echo $CARVE_JOB_INDEX", options=("--array", "1-2"))
    queues.ended(own), queues.ended(array)
    status, body = ask(queues, own)
    assert status == 409 and f"carve job logs {own}" in body["error"]["hint"] and "secret" not in json.dumps(body)
    status, body = ask(queues, array)
    assert status == 400 and "is an array" in body["error"]["message"]
    assert part(queues, f"{array}_2")["text"] == "2\n"
    for word in ("x", "-1", ""):
        assert ask(queues, own, **{"from": word})[0] == 400, word
    for id in ("999", "x", f"{array}_7"):
        assert ask(queues, id)[0] == 404, id


def test_a_log_that_its_user_replaced_is_not_read(queues, tmp_path):
    queues.agent("half=0.5")
    secret = tmp_path / "secret"
    secret.write_text("secret")
    id = queues.enqueue("sh", "-c", f'log=$(readlink /proc/$$/fd/1); rm "$log"; ln -s {secret} "$log"')
    queues.ended(id)
    assert ask(queues, id)[0] == 409
    id = queues.enqueue("sh", "-c", 'log=$(readlink /proc/$$/fd/1); rm "$log"; mkfifo "$log"')
    queues.ended(id)
    assert ask(queues, id)[0] == 409
