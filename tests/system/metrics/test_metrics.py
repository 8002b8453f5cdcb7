"""/metrics on the Unix socket: what it has, for whom, and in which format."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import threading

import pytest

from conftest import BUILD, ON_GPU, clean_env, needs_admin, run, wait_until
from daemon_client import GIB, UnixConnection, wait_gone
from metrics_text import Metrics, assert_promtool_takes
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures
from programs import python

SLICE_FAMILIES = {
    "carve_slice_memory_request_bytes", "carve_slice_memory_limit_bytes", "carve_slice_memory_used_bytes",
    "carve_slice_memory_peak_bytes", "carve_slice_memory_refused_bytes", "carve_slice_gpu_seconds_total",
    "carve_slice_wait_seconds_total", "carve_slice_overrun_seconds_total", "carve_slice_compute_request_ratio",
    "carve_slice_compute_limit_ratio", "carve_slice_compute_received_ratio"}


def scrape_raw(daemon, path="/metrics"):
    connection = UnixConnection(daemon.runtime / "carved.sock")
    connection.request("GET", path)
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer, text


def scrape(daemon, path="/metrics"):
    answer, text = scrape_raw(daemon, path)
    assert answer.status == 200, text
    return Metrics(text.decode())


def scrape_as(uid, daemon, path="/metrics", gid=None, groups=()):
    """A scrape by another user: (HTTP's status, the text)."""
    words = ["setpriv", f"--reuid={uid}", f"--regid={gid or uid}"]
    words += [f"--groups={','.join(map(str, groups))}"] if groups else ["--clear-groups"]
    done = run([*words, "curl", "-s", "-w", "\n%{http_code}", "--unix-socket", daemon.runtime / "carved.sock",
                f"http://carve{path}"])
    assert done.returncode == 0, done.stderr
    text, _, status = done.stdout.rpartition("\n")
    return int(status), text


def test_promtool_takes_a_scrape_with_every_family(make_daemon):
    daemon = make_daemon(gpus=((80 * GIB, 0, 3 * GIB, "Fake H100"), (40 * GIB, 0, 0, "Fake A100")))
    daemon.call("PUT", "/v1/timeslicing", {"mode": "fair"})
    session = daemon.grant(vram="4", name="train", gpu_ids="0")["id"]
    answer, text = scrape_raw(daemon)
    assert answer.getheader("Content-Type") == "text/plain; version=0.0.4; charset=utf-8"
    assert_promtool_takes(text.decode())
    metrics = Metrics(text.decode())
    assert SLICE_FAMILIES <= {name for name, _, _ in metrics.samples}
    for family in SLICE_FAMILIES:
        (labels, _), = metrics.all(family)
        assert labels == {"gpu": "0", "gpu_uuid": daemon.gpu()["uuid"], "session": session, "user": "root", "name": "train"}
    assert metrics.value("carve_slice_memory_limit_bytes") == metrics.value("carve_slice_memory_request_bytes") == 4 * GIB
    assert metrics.value("carve_gpu_memory_total_bytes", gpu="1") == 40 * GIB
    assert metrics.value("carve_gpu_memory_promised_bytes", gpu="0") == 4 * GIB
    assert metrics.value("carve_gpu_memory_outside_bytes", gpu="0") == metrics.value("carve_gpu_memory_used_bytes", gpu="0") == 3 * GIB
    assert metrics.value("carve_gpu_sessions", gpu="0") == 1 and metrics.value("carve_gpu_sessions", gpu="1") == 0
    assert metrics.value("carve_slices_omitted") == 0
    wait_until(lambda: scrape(daemon).value("carve_ready") == 1)
    assert metrics.types["carve_slice_gpu_seconds_total"] == "counter" and metrics.types["carve_gpu_sessions"] == "gauge"


def test_an_idle_slice_keeps_its_zeros(daemon):
    daemon.call("PUT", "/v1/timeslicing", {"mode": "strict"})
    daemon.grant(gpu="0.25")
    metrics = scrape(daemon)
    for family in SLICE_FAMILIES - {"carve_slice_memory_request_bytes", "carve_slice_memory_limit_bytes",
                                    "carve_slice_compute_request_ratio", "carve_slice_compute_limit_ratio"}:
        assert metrics.value(family) == 0, family
    assert metrics.value("carve_slice_compute_request_ratio") == metrics.value("carve_slice_compute_limit_ratio") == 0.25


def test_a_slice_of_a_pod_has_its_names_as_labels_after_a_restart_too(daemon):
    one = daemon.grant(vram="1", pod="default/train-0/main", ephemeral=False)["id"]
    two = daemon.grant(vram="1", pod="default/train-1")["id"]
    assert daemon.show(one)["pod"] == "default/train-0/main"
    daemon.restart()
    labels = [labels for labels, _ in scrape(daemon).all("carve_slice_memory_limit_bytes")]
    found = {l["session"]: (l.get("namespace"), l.get("pod"), l.get("container")) for l in labels}
    assert found[one] == ("default", "train-0", "main") and found.get(two, ("default", "train-1", None)) == ("default", "train-1", None)


@pytest.mark.parametrize("pod", ["default", "default/", "/pod", "a/b/c/d", "A/b", "a/b c", "a//c", "a/b/", 'a/b"', "x" * 400])
def test_a_wrong_pod_is_refused_with_a_right_one(daemon, pod):
    answer = daemon.request(vram="1", pod=pod)
    assert answer.status == 400 and "default/train-0/main" in answer.error["hint"], answer.json


def test_requests_that_wait_are_counted(daemon):
    daemon.grant(vram="60")
    asker = Asker(daemon, vram="60", wait_for=100)
    wait_until(lambda: waiting(daemon))
    metrics = scrape(daemon)
    assert metrics.value("carve_requests_waiting") == 1 and metrics.value("carve_sessions") == 1
    daemon.release(waiting(daemon)[0]["id"])
    asker.join()


def test_each_slice_of_a_session_on_several_gpus_has_its_row(make_daemon):
    daemon = make_daemon(gpus=((80 * GIB, 0, 0, "Fake H100"),) * 3)
    session = daemon.grant(vram="4", gpus=2)["id"]
    rows = scrape(daemon).all("carve_slice_memory_limit_bytes", session=session)
    assert [labels["gpu"] for labels, _ in rows] == ["0", "1"]


def test_a_user_name_with_quotes_and_bytes_that_are_no_utf8_is_escaped():
    """The writer itself is tested with all kinds of names (tests/unit/test_metrics_text.c); here promtool reads them."""
    text = subprocess.run([BUILD / "tests/unit/metrics_sample"], stdout=subprocess.PIPE, check=True).stdout
    assert_promtool_takes(text.decode())
    assert Metrics(text.decode()).all("carve_test_ratio") == [({"name": 'a"b\\c\nd', "user": "\ufffd\ufffdé"}, 0.25)]


@needs_admin
def test_another_user_sees_own_slices_and_the_sums_of_gpus(make_daemon, another_user):
    daemon = make_daemon(args=["--system"])
    mine = daemon.grant(vram="4")["id"]
    done = run(["setpriv", "--reuid=60101", "--regid=60101", "--clear-groups", "curl", "-s", "--unix-socket",
                daemon.runtime / "carved.sock", "-d", '{"vram": "2"}', "http://carve/v1/sessions"])
    other = json.loads(done.stdout)["id"]
    assert {labels["session"] for labels, _ in scrape(daemon).all("carve_slice_memory_limit_bytes")} == {mine, other}
    status, text = scrape_as(60101, daemon)
    metrics = Metrics(text)
    assert status == 200
    assert {labels["session"] for labels, _ in metrics.all("carve_slice_memory_limit_bytes")} == {other}
    assert metrics.value("carve_gpu_memory_promised_bytes", gpu="0") == 6 * GIB and mine not in text
    assert metrics.value("carve_slices") == 1


@needs_admin
def test_members_of_the_readers_group_see_all_slices_and_change_nothing(make_daemon, another_user, request):
    place = pathlib.Path(tempfile.mkdtemp(prefix="carve-test-"))  # the daemon, which is another user, reads it again
    request.addfinalizer(lambda: shutil.rmtree(place))
    place.chmod(0o755)
    config = place / "carved.json"
    config.write_text(json.dumps({"metrics": {"readers": "nogroup"}}))
    daemon = make_daemon(args=["--system", "--config", config])
    mine = daemon.grant(vram="4")["id"]
    _, text = scrape_as(60102, daemon, groups=[65534])
    assert [labels["session"] for labels, _ in Metrics(text).all("carve_slice_memory_limit_bytes")] == [mine]
    _, text = scrape_as(60102, daemon)
    assert Metrics(text).all("carve_slice_memory_limit_bytes") == []
    config.write_text(json.dumps({"metrics": {"readers": "daemon"}}))
    daemon.reload()
    wait_until(lambda: not Metrics(scrape_as(60102, daemon, groups=[65534])[1]).all("carve_slice_memory_limit_bytes"))


def test_without_sessions_neither_slices_nor_queues_are_told(daemon):
    session = daemon.grant(vram="4", name="secret")["id"]
    metrics = scrape(daemon, "/metrics?sessions=none")
    assert session not in metrics.text and "secret" not in metrics.text and "carve_queue" not in metrics.text
    assert metrics.value("carve_gpu_sessions", gpu="0") == 1
    assert_promtool_takes(metrics.text)
    wrong = daemon.call("GET", "/metrics?sessions=some")
    assert wrong.status == 400 and wrong.error["message"] == "sessions: 'some' is no choice; there is 'none'"


@needs_admin
def test_requests_that_are_not_permitted_are_counted(make_daemon, another_user):
    daemon = make_daemon(args=["--system"])
    before = scrape(daemon).value("carve_http_refused_total")
    status, _ = scrape_as(60103, daemon, "/v1/jobs?uid=0")
    assert status == 403
    assert scrape(daemon).value("carve_http_refused_total") == before + 1


def counted(host, session, family):
    """Waits until a family's counter of a slice has grown beyond zero, and returns it."""
    return wait_until(lambda: [value for _, value in host_scrape(host).all(family, session=session) if value])[0]


def host_scrape(host):
    done = host.run(["curl", "-s", "--unix-socket", host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", "http://carve/metrics"])
    return Metrics(done.stdout)


@pytest.mark.skipif(ON_GPU, reason="kills the daemon of a simulated host")
def test_counters_of_slices_go_on_after_a_killed_daemon(make_host):
    host = make_host("h100-80gb")
    assert host.carve("timeslicing", "--mode", "fair").returncode == 0
    programs = [host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "4", "--", *python("busy")]) for _ in range(2)]
    sessions = wait_until(lambda: (found := [s["id"] for s in host.carve_json("session", "list")])[1:] and found)
    families = ("carve_slice_gpu_seconds_total", "carve_slice_wait_seconds_total")
    before = {(family, session): counted(host, session, family) for family in families for session in sessions}
    one = sessions[0]
    refused = host.run([BUILD / "carve", "run", "--session", one, "--", *python("take", 9 << 10)])
    told = host_scrape(host).value("carve_slice_memory_refused_bytes", session=one)
    peak = host_scrape(host).value("carve_slice_memory_peak_bytes", session=one)
    assert told >= 9 << 30, refused.stderr
    pid = host.daemon_pid()
    os.kill(pid, signal.SIGKILL)
    wait_gone(pid)
    host.daemon_pid()
    after = host_scrape(host)
    for (family, session), value in before.items():
        assert after.value(family, session=session) >= value, family
    assert after.value("carve_slice_memory_peak_bytes", session=one) >= peak > 0
    assert after.value("carve_slice_memory_refused_bytes", session=one) == told
    assert_promtool_takes(after.text)
    for program in programs:
        program.terminate()
        program.communicate()


@pytest.mark.skipif(ON_GPU, reason="a simulated GPU that nobody else uses")
def test_gpu_time_is_counted_where_time_is_not_sliced_too(make_host):
    host = make_host("h100-80gb")
    idle = host.carve_json("session", "request", "--vram", "4")["id"]
    program = host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "4", "--", *python("busy")])
    (busy,) = wait_until(lambda: [s["id"] for s in host.carve_json("session", "list") if s["id"] != idle])
    first = counted(host, busy, "carve_slice_gpu_seconds_total")
    wait_until(lambda: host_scrape(host).value("carve_slice_gpu_seconds_total", session=busy) > first + 1)
    assert host_scrape(host).value("carve_slice_gpu_seconds_total", session=idle) == 0
    program.terminate()
    program.communicate()


def test_many_scrapes_at_once_are_refused_beyond_a_bound_and_counted(daemon):
    for _ in range(30):
        daemon.grant(vram="1")
    answers = []

    def ask():
        answers.append(scrape_raw(daemon)[0].status)

    threads = [threading.Thread(target=ask) for _ in range(32)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(answers) <= {200, 429} and 200 in answers
    assert scrape(daemon).value("carve_scrapes_total") >= answers.count(200)


def test_slices_beyond_the_bound_are_left_out_and_counted(make_daemon):
    gpus = 64
    daemon = make_daemon(gpus=((80 * GIB, 0, 0, "Fake H100"),) * gpus)
    for _ in range(40):
        daemon.grant(vram="1", gpus=gpus)
    metrics = scrape(daemon)
    shown, left_out = metrics.value("carve_slices"), metrics.value("carve_slices_omitted")
    # All slices are of one user, whose own daemon it is: root leaves a quarter for others all the same.
    assert shown + left_out == 40 * gpus and shown in (1536, 2048)
    assert len(metrics.all("carve_slice_memory_limit_bytes")) == shown
    assert metrics.value("carve_gpu_memory_promised_bytes", gpu="63") == 40 * GIB


@pytest.mark.parametrize("metrics, message", [
    ({"listen": "0.0.0.0:9400"},
     'metrics.listen: other machines reach 0.0.0.0:9400, which takes "tls": {"cert": FILE, "key": FILE, "client_ca": FILE}; '
     'without tls it takes "127.0.0.1:9400" or "[::1]:9400"'),
    ({"listen": "192.0.2.1:9400", "tls": {"cert": "/c", "key": "/k"}},
     "metrics.listen: other machines reach 192.0.2.1:9400, so that readers have to prove who they are: add "
     "metrics.tls.client_ca or metrics.token_file"),
    ({"listen": "localhost:9400"}, 'metrics.listen takes an address and a port such as "127.0.0.1:9400" or "[::1]:9400"'),
    ({"listen": "127.0.0.1"}, 'metrics.listen takes an address and a port such as "127.0.0.1:9400" or "[::1]:9400"'),
    ({"listen": "127.0.0.1:0"}, 'metrics.listen takes an address and a port such as "127.0.0.1:9400" or "[::1]:9400"'),
    ({"listen": "127.0.0.1:9400", "tls": {"cert": "/c"}},
     'metrics.tls lacks key: it takes {"cert": FILE, "key": FILE, "client_ca": FILE}'),
    ({"listen": "127.0.0.1:9400", "token_file": "token"},
     'metrics.token_file takes an absolute path such as "/etc/carve/metrics.token"'),
    ({"token_file": "/token"}, 'metrics.listen is missing: it takes an address and a port such as "127.0.0.1:9400" or "[::1]:9400"'),
    ({"port": 9400}, "unknown key of metrics 'port'"),
    ("127.0.0.1:9400", 'metrics takes an object such as {"listen": "127.0.0.1:9400"}'),
])
def test_a_wrong_key_is_refused_with_a_right_value(tmp_path, metrics, message):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"metrics": metrics}))
    done = run([BUILD / "carved", "--config", config, "--check-config"], env=clean_env())
    assert done.returncode == 2 and message in done.stderr, done.stderr


@pytest.mark.parametrize("metrics", [
    {}, {"listen": "127.0.0.1:9400"}, {"listen": "[::1]:9400"}, {"listen": "127.5.5.5:1", "token_file": "/etc/token"},
    {"listen": "0.0.0.0:9400", "tls": {"cert": "/c", "key": "/k", "client_ca": "/ca"}},
    {"listen": "[::]:9400", "tls": {"cert": "/c", "key": "/k"}, "token_file": "/etc/token"}])
def test_a_right_key_is_taken(tmp_path, metrics):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"metrics": metrics}))
    done = run([BUILD / "carved", "--config", config, "--check-config"], env=clean_env())
    assert done.returncode == 0, done.stderr
