"""carve events and carve audit."""
import http.server
import json
import re
import subprocess
import threading

import pytest

from conftest import BUILD, ON_GPU, ROOT, wait_until
from own_daemon import daemon, make_daemon, set_quota  # noqa: F401: fixtures

CARVE = BUILD / "carve"


class Reader:
    def __init__(self, daemon, tmp_path, *options, env=None):
        self.out, self.notes = tmp_path / "out", tmp_path / "notes"
        self.process = subprocess.Popen([CARVE, "events", "--host", daemon.runtime / "carved.sock", *options], env={**daemon.env(), **(env or {})},
                                        stdout=open(self.out, "a"), stderr=open(self.notes, "a"), stdin=subprocess.DEVNULL)

    def lines(self):
        return self.out.read_text().splitlines()

    def end(self):
        self.process.terminate()
        self.process.wait()


@pytest.fixture
def read(daemon, tmp_path):
    readers = []

    def start(*options, **kw):
        readers.append(Reader(daemon, tmp_path, *options, **kw))
        return readers[-1]

    yield start
    for reader in readers:
        reader.end()


def carve(daemon, *argv):
    return subprocess.run([CARVE, *argv, "--host", daemon.runtime / "carved.sock"], env=daemon.env(), capture_output=True, text=True)


def test_events_are_printed_from_a_number_on_as_they_come(daemon, read):
    reader = read("--from", "0", "--json")
    wait_until(lambda: reader.lines())
    assert json.loads(reader.lines()[0])["kind"] == "carved.started"
    set_quota(daemon, "12345", vram="4")
    wait_until(lambda: len(reader.lines()) == 2)
    assert json.loads(reader.lines()[1])["after"] == "vram 4 GiB, sessions no limit, gpus no limit, gpu_hours no limit"


def test_a_line_says_what_changed_and_by_whom(daemon, read):
    reader = read("--from", "0", "--kind", "quota.set")
    set_quota(daemon, "12345", vram="4")
    wait_until(lambda: reader.lines())
    assert "quota.set user 12345: vram no limit, sessions no limit, gpus no limit, gpu_hours no limit -> vram 4 GiB, sessions no limit, gpus no limit, gpu_hours no limit; by root (" \
        in reader.lines()[0]


def test_a_command_hears_of_each_event_once_over_restarts(daemon, read, tmp_path):
    told, cursor = tmp_path / "told", tmp_path / "cursor"
    command = f'echo "$CARVE_EVENT_NUMBER $CARVE_EVENT_KIND $CARVE_EVENT_LINE" >> {told}; cat >> {told}'
    reader = read("--from", "0", "--exec", command, "--cursor-file", cursor)
    wait_until(lambda: cursor.exists() and '"next": 2}' in cursor.read_text())
    reader.end()
    daemon.restart()
    read("--exec", command, "--cursor-file", cursor)
    wait_until(lambda: told.read_text().count("\n") == 4)
    first, text, second, _ = told.read_text().splitlines()
    assert first.startswith("1 carved.started carved.started carved: ") and json.loads(text)["number"] == 1
    assert second.startswith("2 carved.started ")


def test_the_audit_lists_changes_with_old_and_new_value(daemon):
    empty = carve(daemon, "audit")
    assert empty.returncode == 0 and empty.stdout == "no changes since 7 days ago\n"
    set_quota(daemon, "12345", vram="4")
    text = carve(daemon, "audit")
    assert text.returncode == 0 and "vram 4 GiB" in text.stdout and "quota.set" in text.stdout and "root" in text.stdout, text
    (change,) = json.loads(carve(daemon, "audit", "--json").stdout)
    assert change["kind"] == "quota.set" and change["subject"] == "user 12345" and change["pid"]
    assert json.loads(carve(daemon, "audit", "--user", "54321", "--json").stdout) == []
    assert len(json.loads(carve(daemon, "audit", "--user", "12345", "--kind", "quota.set", "--since", "1h", "--json").stdout)) == 1


@pytest.mark.parametrize("argv, words", [
    (["audit", "--since", "yesterday"], "--since: 'yesterday' is not understood"),
    (["audit", "--since", "2099-01-01"], "is not in the past"),
    (["audit", "--kind", "x"], "there are no events of kind x; for example: quota.set, gpu.drained or config.read"),
    (["audit", "--kind", ""], "--kind: '' is no kind of events"),
    (["audit", "--user", "nobody-here"], "there is no user 'nobody-here'"),
    (["events", "--from", "99"], "--from 99: the next event has number 2"),
    (["events", "--kind", "quota", "--from", "0"], "there are no events of kind quota"),
    (["events", "--exec-timeout", "3"], "there is no command to kill"),
])
def test_wrong_words_are_refused(daemon, argv, words):
    done = carve(daemon, *argv)
    assert done.returncode == 2 and words in done.stderr, done.stderr


def test_every_kind_is_completed_and_stands_in_the_page():
    table = (ROOT / "src/daemon/events/event_kinds.c").read_text()
    kinds = set(re.findall(r'\{"([a-z_]+\.[a-z_]+)"', table))
    page = (ROOT / "docs/man/carve-events.1").read_text()
    assert len(kinds) > 15 and {k for k in kinds if k not in page} == set()
    options = (ROOT / "src/cli/verbs.c").read_text().split("{OPT_EVENT_KIND,")[1].split("},")[0]
    assert set(" ".join(re.findall(r'"([^"]*)"', options)).split()) >= kinds


def test_a_long_value_is_cut_in_the_table_and_whole_in_json(make_daemon, tmp_path):
    file = tmp_path / "carved.json"
    file.write_text("{}")
    daemon = make_daemon(args=["--config", file])
    file.write_text(json.dumps({"idle_exempt": {"users": [f"user-{n:03}" for n in range(32)]}}))
    daemon.reload()
    wait_until(lambda: "config.read" in carve(daemon, "audit").stdout)
    lines = carve(daemon, "audit", "--kind", "config.read").stdout.splitlines()
    assert max(map(len, lines)) < 300 and "..." in lines[-1]
    (*_, change) = json.loads(carve(daemon, "audit", "--kind", "config.read", "--json").stdout)
    assert "user-010" in change["after"] and "user-010" not in lines[-1]


def test_a_long_log_is_listed_whole(daemon):
    for number in range(150):
        set_quota(daemon, "12345", vram=str(number + 1))
    changes = json.loads(carve(daemon, "audit", "--json").stdout)
    assert [c["after"].split(",")[0] for c in changes] == [f"vram {n + 1} GiB" for n in range(150)]


@pytest.mark.skipif(ON_GPU, reason="tests the simulated driver")
def test_a_mig_role_is_in_the_audit(make_host):
    host = make_host("a100-40gb:2+mig")
    assert host.carve("node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "1").returncode == 0
    assert host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
    assert host.carve("node", "remove-role", "--dynamic-mig-enabled").returncode == 0
    changes = [(c["subject"], c["before"], c["after"]) for c in json.loads(host.carve("audit", "--kind", "mig.role", "--json").stdout)]
    assert changes == [("GPU 1", "none", "dynamic-mig"), ("GPU 0", "none", "dynamic-mig"), ("GPUs 0-1", "dynamic-mig", "none")]


def test_a_webhook_gets_each_event_until_it_takes_it_and_a_command_hears_of_it_once(daemon, read, tmp_path):
    taken, asked = [], []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            asked.append(body["number"])
            status = 500 if len(asked) == 1 else 200
            if status == 200:
                taken.append((body["number"], body["kind"], self.headers["Authorization"]))
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args):
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    reader = read("--from", "0", "--webhook", f"http://127.0.0.1:{server.server_port}/hook", "--cursor-file", tmp_path / "cursor",
                  "--exec", f"echo $CARVE_EVENT_NUMBER >> {tmp_path / 'told'}", env={"CARVE_WEBHOOK_TOKEN": "secret"})
    wait_until(lambda: taken)
    set_quota(daemon, "12345", vram="4")
    wait_until(lambda: len(taken) == 2)
    server.shutdown()
    # The command hears of each event, too, and not again where the server alone failed.
    assert (tmp_path / "told").read_text() == "1\n2\n"
    assert asked == [1, 1, 2] and taken == [(1, "carved.started", "Bearer secret"), (2, "quota.set", "Bearer secret")]
    assert "did not take event 1, carved.started: HTTP status 500" in reader.notes.read_text()
