"""carve-metrics: /metrics by TCP, with TLS and without; who may read it; Debian's Prometheus as a reader."""
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import time
import urllib.error
import urllib.request

import pytest

from conftest import BUILD, clean_env, run, wait_until
from daemon_client import GIB
from metrics_text import Metrics, assert_promtool_takes
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from tcp_door import Authority, context_of, free_port

TOKEN = "0123456789abcdef0123456789abcdef"


class Exporter:
    """carve-metrics beside a daemon, with the key `metrics` of a configuration."""

    def __init__(self, daemon, dir, **metrics):
        self.dir, self.daemon = dir, daemon
        self.port = free_port()
        self.config = dir / "carved.json"
        self.metrics = {"listen": f"127.0.0.1:{self.port}", **metrics}
        self.write(**self.metrics)
        self.log = open(dir / "metrics.log", "w+")
        self.process = subprocess.Popen([BUILD / "carve-metrics", "--config", self.config, "--host", daemon.runtime / "carved.sock"],
                                        env=clean_env(), stderr=self.log, stdin=subprocess.DEVNULL)
        self.wait()

    def write(self, **metrics):
        self.config.write_text(json.dumps({"metrics": metrics}))

    def lines(self):
        return (self.dir / "metrics.log").read_text()

    def wait(self, number=1):
        wait_until(lambda: self.lines().count("metrics.listening") >= number or self.process.poll() is not None)
        assert self.process.poll() is None, self.lines()

    def get(self, path="/metrics", context=None, token=None, host="127.0.0.1", method="GET"):
        """(HTTP's status, the text)"""
        scheme = "https" if context else "http"
        request = urllib.request.Request(f"{scheme}://{host}:{self.port}{path}", method=method,
                                         headers={"Authorization": f"Bearer {token}"} if token else {})
        try:
            with urllib.request.urlopen(request, timeout=60, context=context) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()

    def metrics_of(self, **how):
        status, text = self.get(**how)
        assert status == 200, text
        return Metrics(text)

    def close(self):
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(60) == 0, self.lines()
        self.log.close()


@pytest.fixture
def make_exporter(tmp_path):
    exporters = []

    def make(daemon, **metrics):
        exporters.append(Exporter(daemon, tmp_path, **metrics))
        return exporters[-1]

    yield make
    for exporter in exporters:
        exporter.close()


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca")


def secret(path, text=TOKEN):
    path.write_text(text + "\n")
    path.chmod(0o600)
    return str(path)


def test_a_reader_that_nobody_knows_sees_sums_of_gpus_alone(daemon, make_exporter):
    session = daemon.grant(vram="4", name="secret")["id"]
    exporter = make_exporter(daemon)
    metrics = exporter.metrics_of()
    assert metrics.value("carve_gpu_memory_promised_bytes", gpu="0") == 4 * GIB
    assert session not in metrics.text and "secret" not in metrics.text and "carve_slice" not in metrics.text
    assert_promtool_takes(metrics.text)


def test_a_token_shows_all_slices_and_a_wrong_one_gets_403_and_is_counted(daemon, make_exporter, tmp_path):
    session = daemon.grant(vram="4")["id"]
    exporter = make_exporter(daemon, token_file=secret(tmp_path / "token"))
    metrics = exporter.metrics_of(token=TOKEN)
    assert metrics.value("carve_slice_memory_limit_bytes", session=session) == 4 * GIB
    assert metrics.value("carve_metrics_refused_total", reason="token") == 0
    assert_promtool_takes(metrics.text)
    for token in (None, "wrong" * 5, TOKEN + "0", TOKEN[:-1]):
        status, text = exporter.get(token=token)
        assert status == 403 and session not in text and "metrics.token_file" in text
    time.sleep(1.1)  # answers are shared for a second
    assert exporter.metrics_of(token=TOKEN).value("carve_metrics_refused_total", reason="token") == 4


def test_another_path_or_method_is_refused(daemon, make_exporter):
    exporter = make_exporter(daemon)
    assert exporter.get("/")[0] == exporter.get("/v1/sessions")[0] == exporter.get("/metricsx")[0] == 404
    assert exporter.get(method="POST")[0] == 405
    assert exporter.get("/metrics?x=1")[0] == 200


def test_tls_with_client_certificates(daemon, make_exporter, authority):
    session = daemon.grant(vram="4")["id"]
    cert, key = authority.issue("server")
    exporter = make_exporter(daemon, tls={"cert": cert, "key": key, "client_ca": str(authority.cert)})
    metrics = exporter.metrics_of(context=context_of(authority, authority.issue("prometheus")))
    assert metrics.value("carve_slice_memory_limit_bytes", session=session) == 4 * GIB
    status, text = exporter.get(context=context_of(authority))
    assert status == 403 and "client_ca" in text
    stranger = Authority(authority.dir / "other", "stranger").issue("prometheus")
    with pytest.raises((OSError, urllib.error.URLError)):
        exporter.get(context=context_of(authority, stranger))
    with pytest.raises((OSError, urllib.error.URLError)):
        exporter.get()  # plain HTTP
    time.sleep(1.1)
    metrics = exporter.metrics_of(context=context_of(authority, authority.issue("again")))
    assert metrics.value("carve_metrics_refused_total", reason="certificate") == 1
    assert metrics.value("carve_metrics_refused_total", reason="tls") == 2


def test_old_versions_of_tls_are_refused(daemon, make_exporter, authority):
    cert, key = authority.issue("server")
    exporter = make_exporter(daemon, tls={"cert": cert, "key": key})
    context = context_of(authority)
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.raises((OSError, urllib.error.URLError)):
        exporter.get(context=context)
    assert exporter.get(context=context_of(authority))[0] == 200


def test_renewed_certificates_and_tokens_are_taken_on_sighup(daemon, make_exporter, authority, tmp_path):
    cert, key = authority.issue("server")
    exporter = make_exporter(daemon, tls={"cert": cert, "key": key}, token_file=secret(tmp_path / "token"))
    context = context_of(authority)
    authority.issue("server")
    secret(tmp_path / "token", "another" * 5)
    exporter.process.send_signal(1)
    wait_until(lambda: "metrics.config_read" in exporter.lines())
    assert exporter.get(context=context, token="another" * 5)[0] == 200
    assert exporter.get(context=context, token=TOKEN)[0] == 403
    secret(tmp_path / "token", "short")
    exporter.process.send_signal(1)
    wait_until(lambda: "config_refused" in exporter.lines())
    assert "its first line has 5 characters, and takes 16 to 511" in exporter.lines()
    assert exporter.get(context=context, token="another" * 5)[0] == 200


def test_another_address_is_taken_on_sighup(daemon, make_exporter):
    exporter = make_exporter(daemon)
    exporter.port = free_port()
    exporter.write(listen=f"127.0.0.1:{exporter.port}")
    exporter.process.send_signal(1)
    exporter.wait(2)
    assert exporter.get()[0] == 200


def test_it_ends_where_nothing_is_configured(tmp_path):
    config = tmp_path / "carved.json"
    config.write_text('{"over_policy": "report"}')
    done = run([BUILD / "carve-metrics", "--config", config], env=clean_env())
    assert done.returncode == 0 and "metrics.listen is not set" in done.stdout


@pytest.mark.parametrize("metrics, message", [
    ({"listen": "0.0.0.0:9400"}, "metrics.listen: other machines reach 0.0.0.0:9400"),
    ({"listen": "127.0.0.1:9400", "token_file": "/nowhere/token"}, "metrics.token_file: /nowhere/token: No such file or directory"),
    ({"listen": "127.0.0.1:9400", "tls": {"cert": "/nowhere/cert", "key": "/k"}}, "metrics.tls.cert: /nowhere/cert:"),
])
def test_a_wrong_configuration_is_told_in_one_line(tmp_path, metrics, message):
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"metrics": metrics}))
    done = run([BUILD / "carve-metrics", "--config", config, "--check"], env=clean_env())
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("argv", [["--check"], []])
def test_a_configuration_that_is_missing_is_told_in_one_line(tmp_path, argv):
    config = tmp_path / "carved.json"
    done = run([BUILD / "carve-metrics", "--config", config, *argv], env=clean_env())
    assert done.returncode == 2
    assert done.stderr == f"carve-metrics: there is no file {config}; write it, or name another with --config FILE\n"


def test_text_that_is_no_json_is_told_with_its_line(tmp_path):
    config = tmp_path / "carved.json"
    config.write_text("{\n  metrics\n}\n")
    done = run([BUILD / "carve-metrics", "--config", config, "--check"], env=clean_env())
    assert done.returncode == 2 and f"{config}: line 2: " in done.stderr, done.stderr


def test_options_that_are_wrong_are_refused():
    for argv in (["--port", "9400"], ["now"]):
        done = run([BUILD / "carve-metrics", *argv], env=clean_env())
        assert done.returncode == 2 and "see carve-metrics --help" in done.stderr


def test_a_daemon_that_is_away_is_answered_with_503_and_counted(daemon, make_exporter):
    exporter = make_exporter(daemon)
    daemon.kill()
    assert exporter.get()[0] == 503
    daemon.start()
    wait_until(lambda: exporter.get()[0] == 200)
    assert exporter.metrics_of().value("carve_metrics_unanswered_total") >= 1


def test_scrapes_within_a_second_cost_the_daemon_one(daemon, make_exporter):
    exporter = make_exporter(daemon)
    before = exporter.metrics_of().value("carve_scrapes_total")
    for _ in range(50):
        exporter.get()
    time.sleep(1.1)
    assert exporter.metrics_of().value("carve_scrapes_total") < before + 20


def opened(exporter, text=b""):
    s = socket.create_connection(("127.0.0.1", exporter.port), timeout=60)
    if text:
        s.sendall(text)
    return s


def test_silent_and_endless_clients_keep_no_reader_out(daemon, make_exporter, tmp_path):
    exporter = make_exporter(daemon, token_file=secret(tmp_path / "token"))
    silent = [opened(exporter, text) for text in (b"", b"GET /metrics HT", b"GET /metrics HTTP/1.1\r\nX: ") for _ in range(60)]
    metrics = exporter.metrics_of(token=TOKEN)
    assert metrics.value("carve_metrics_connections") <= 64
    time.sleep(1.1)
    assert exporter.metrics_of(token=TOKEN).value("carve_metrics_refused_total", reason="too_many") >= 100
    for s in silent:
        s.close()


def test_silent_clients_of_tls_keep_no_reader_out(daemon, make_exporter, authority, tmp_path):
    cert, key = authority.issue("server")
    exporter = make_exporter(daemon, tls={"cert": cert, "key": key}, token_file=secret(tmp_path / "token"))
    silent = [opened(exporter, text) for text in (b"", b"\x16\x03\x01\x02\x00\x01", os.urandom(100)) for _ in range(60)]
    assert exporter.get(context=context_of(authority), token=TOKEN)[0] == 200
    for s in silent:
        s.close()


def test_a_client_that_says_nothing_is_closed_after_a_while(daemon, make_exporter):
    exporter = make_exporter(daemon)
    with opened(exporter, b"GET /metrics HT") as s:
        assert s.recv(1) == b""


@pytest.mark.parametrize("text, status", [
    (b"GET /metrics HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhello", 413),
    (b"GET /" + b"x" * 300 + b" HTTP/1.1\r\n\r\n", 414),
    (b"GET /metrics HTTP/1.1\r\n" + b"X: " + b"y" * 20000 + b"\r\n\r\n", 431),
    (b"\0\1\2\3 nonsense\r\n\r\n", 400),
    (b"GET /metrics HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n", 400),
], ids=["body", "target", "head", "nonsense", "upgrade"])
def test_requests_that_are_none_are_refused(daemon, make_exporter, text, status):
    exporter = make_exporter(daemon)
    with opened(exporter, text) as s:
        assert s.recv(64).split(b" ")[1] == str(status).encode()
    assert exporter.get()[0] == 200


def test_a_token_that_comes_twice_is_none(daemon, make_exporter, tmp_path):
    exporter = make_exporter(daemon, token_file=secret(tmp_path / "token"))
    field = f"Authorization: Bearer {TOKEN}\r\n"
    for fields, status in ((field, 200), (field * 2, 403)):
        with opened(exporter, f"GET /metrics HTTP/1.1\r\nHost: a\r\n{fields}\r\n".encode()) as s:
            assert s.recv(64).split(b" ")[1] == str(status).encode()


def test_two_scrapes_over_one_connection(daemon, make_exporter):
    exporter = make_exporter(daemon)
    with opened(exporter) as s:
        for _ in range(3):
            s.sendall(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n")
            data = b""
            while b"carve_metrics_refused_total{reason=\"slow\"} 0\n" not in data:
                part = s.recv(65536)
                assert part
                data += part
            assert b"Connection: keep-alive" in data


def test_a_reader_that_reads_slowly_holds_nobody_up(make_daemon, make_exporter, tmp_path):
    daemon = make_daemon(gpus=((80 * GIB, 0, 0, "Fake H100"),) * 8)
    for _ in range(75):
        daemon.grant(vram="1", gpus=8)
    exporter = make_exporter(daemon, token_file=secret(tmp_path / "token"))
    request = f"GET /metrics HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
    slow = [opened(exporter, request) for _ in range(20)]
    assert len(exporter.metrics_of(token=TOKEN).all("carve_slice_memory_limit_bytes")) == 600
    for s in slow:
        s.close()


def prometheus_config(exporter, **job):
    return {"global": {"scrape_interval": "1s", "scrape_timeout": "1s"},
            "scrape_configs": [{"job_name": "carve", "static_configs": [{"targets": [f"localhost:{exporter.port}"]}], **job}]}


@pytest.mark.parametrize("proof", ["token", "certificate"])
def test_prometheus_scrapes_it(daemon, make_exporter, authority, tmp_path, proof):
    """Debian's Prometheus itself, with a configuration as docs/admin/monitoring.md has it."""
    program = shutil.which("prometheus")
    if not program:
        pytest.skip("needs Debian's package prometheus")
    session = daemon.grant(vram="4", name="train")["id"]
    cert, key = authority.issue("server")
    tls = {"ca_file": str(authority.cert)}
    if proof == "token":
        exporter = make_exporter(daemon, tls={"cert": cert, "key": key}, token_file=secret(tmp_path / "token"))
        job = {"scheme": "https", "tls_config": tls, "authorization": {"credentials_file": str(tmp_path / "token")}}
    else:
        exporter = make_exporter(daemon, tls={"cert": cert, "key": key, "client_ca": str(authority.cert)})
        client = authority.issue("prometheus")
        job = {"scheme": "https", "tls_config": {**tls, "cert_file": client[0], "key_file": client[1]}}
    (tmp_path / "prometheus.yml").write_text(json.dumps(prometheus_config(exporter, **job)))  # JSON is YAML
    port = free_port()
    with open(tmp_path / "prometheus.log", "w") as log:
        process = subprocess.Popen([program, f"--config.file={tmp_path}/prometheus.yml", f"--storage.tsdb.path={tmp_path}/data",
                                    f"--web.listen-address=127.0.0.1:{port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def query(text):
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?query={text}", timeout=10) as answer:
                return json.loads(answer.read())["data"]["result"]
        except OSError:
            return []

    try:
        wait_until(lambda: [r for r in query("up") if r["value"][1] == "1"], timeout=120)
        (result,) = wait_until(lambda: query("carve_slice_memory_limit_bytes"))
        assert float(result["value"][1]) == 4 * GIB
        labels = result["metric"]
        assert (labels["session"], labels["name"], labels["gpu"], labels["job"]) == (session, "train", "0", "carve")
    finally:
        process.terminate()
        process.wait(60)
