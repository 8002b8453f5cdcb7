"""The plugin of a node against broken peers and sudden ends."""
import os
import random
import shutil
import signal
import socket
import threading

import pytest

grpc = pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import DRIVER, Cluster, field, text
from conftest import rest_long, wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


@pytest.fixture
def cluster(make_host):
    c = Cluster(make_host("h100-80gb")).started()
    yield c
    c.close()


def status_of(cluster, path, message):
    with pytest.raises(grpc.RpcError) as failed:
        cluster.kubelet.call(cluster.kubelet.socket, path, message)
    return failed.value.code()


def test_calls_that_make_no_sense_get_the_status_that_says_so(cluster):
    prepare = "/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/NodePrepareResources"
    assert status_of(cluster, "/some.Service/Method", b"") == grpc.StatusCode.UNIMPLEMENTED
    assert status_of(cluster, prepare, b"\xff\xff\xff") == grpc.StatusCode.INVALID_ARGUMENT
    assert status_of(cluster, prepare, field(1, b"x" * (5 << 20))) == grpc.StatusCode.RESOURCE_EXHAUSTED
    assert status_of(cluster, prepare, field(1, b"") * 1025) == grpc.StatusCode.INVALID_ARGUMENT
    assert cluster.kubelet.prepare() == {}


def test_bytes_that_are_no_http2_end_their_connection_and_nothing_else(cluster):
    numbers = random.Random(26)
    for i in range(200):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(60)
            s.connect(cluster.kubelet.socket)
            junk = numbers.randbytes(numbers.randrange(1, 400))
            try:
                s.sendall((PREFACE if i % 2 else b"") + junk)
                s.shutdown(socket.SHUT_WR)
                while s.recv(4096):
                    pass
            except ConnectionError:
                pass
    assert cluster.plugin.poll() is None
    assert text(cluster.kubelet.info(), 2) == DRIVER


def test_connections_that_say_nothing_do_not_keep_the_kubelet_out_for_ever(cluster):
    idle = [socket.socket(socket.AF_UNIX) for _ in range(40)]
    for s in idle:
        s.connect(cluster.kubelet.socket)
    for s in idle:
        s.close()
    assert cluster.kubelet.prepare() == {}


def test_kills_at_any_moment_lose_no_session_and_leave_none(cluster):
    device = cluster.api.devices()[0]["name"]
    numbers = random.Random(2600)
    claims = [cluster.api.claim(f"c{i}", [("gpu", device, "1Gi", "0")]) for i in range(8)]

    def call(method, claim):
        try:
            return cluster.kubelet.claims(method, [claim])
        except grpc.RpcError:
            return None

    for method in ["NodePrepareResources", "NodeUnprepareResources"] * 3:
        threads = [threading.Thread(target=call, args=[method, claim]) for claim in claims]
        for thread in threads:
            thread.start()
        threading.Event().wait(numbers.random() * 0.15)
        cluster.kill()
        cluster.start()
        for thread in threads:
            thread.join()
        for claim in claims:
            done = wait_until(lambda: call(method, claim))
            assert text(done[claim["uid"]], 2 if method == "NodePrepareResources" else 1) == ""
        assert len(cluster.sessions()) == (8 if method == "NodePrepareResources" else 0)
    assert cluster.specs() == []


def test_a_node_that_was_deleted_and_came_back_has_slices_of_its_own(cluster):
    claim = cluster.api.claim("c", [("gpu", cluster.api.devices()[0]["name"], "1Gi", "0")])
    assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    before = [s["id"] for s in cluster.sessions()]
    # Kubernetes deletes what the node owned; the claim of a pod on it may stay.
    cluster.api.delete("/api/v1/nodes/n1")
    for path in [p for p in cluster.api.objects if "/resourceslices/" in p]:
        cluster.api.delete(path)
    uid = cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1"}})["metadata"]["uid"]
    cluster.kubelet.register()
    # A look that was under way may have read the old one.
    wait_until(lambda: [s["metadata"]["ownerReferences"][0]["uid"] for s in cluster.api.slices()] == [uid])
    assert [s["id"] for s in cluster.sessions()] == before
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""} and cluster.sessions() == []


def lists(cluster):
    """How often the plugin listed its slices."""
    return sum(method == "GET" and "/resourceslices?" in path for method, path in cluster.api.calls)


def test_slices_that_a_new_kubelet_removes_after_it_registered_the_plugin_come_back(cluster):
    before = lists(cluster)
    cluster.kubelet.register()
    wait_until(lambda: lists(cluster) > before)
    for path in [p for p in cluster.api.objects if "/resourceslices/" in p]:
        cluster.api.delete(path)
    wait_until(cluster.api.slices)


def test_an_api_server_that_was_away_gets_what_changed_meanwhile(cluster):
    [path] = [p for p in cluster.api.objects if "/resourceslices/" in p]
    value = cluster.api.objects[path]["spec"]["devices"][0]["capacity"]["memory"]["value"]
    cluster.api.down = True
    cluster.host.carve("session", "request", "--vram", "8")
    wait_until(lambda: "slices.failed" in cluster.log())
    cluster.api.down = False
    wait_until(lambda: cluster.api.objects[path]["spec"]["devices"][0]["capacity"]["memory"]["value"] != value)


def test_a_plugin_ends_at_once_while_the_api_server_takes_no_slices(cluster):
    cluster.api.stalled = "/resourceslices"
    cluster.kubelet.register()
    wait_until(lambda: cluster.api.stalls)
    cluster.plugin.terminate()
    assert cluster.plugin.wait(6) == 0  # the call has 15 s
    cluster.api.resume()
    cluster.start()
    cluster.kubelet.register()
    assert cluster.kubelet.prepare() == {}


def calls_of(cluster, method, claims):
    """Threads that call for a claim each, and the {uid: answer} that they fill; a call that fails has none."""
    answers = {}

    def call(claim):
        try:
            answers.update(cluster.kubelet.claims(method, [claim]))
        except grpc.RpcError:
            pass

    threads = [threading.Thread(target=call, args=[claim]) for claim in claims]
    for thread in threads:
        thread.start()
    return threads, answers


def test_a_plugin_ends_at_once_while_a_claim_is_not_read_and_the_kubelet_asks_again(cluster):
    claim = cluster.api.claim("c", [("gpu", cluster.api.devices()[0]["name"], "1Gi", "0")])
    cluster.api.stalled = "/resourceclaims"
    threads, answers = calls_of(cluster, "NodePrepareResources", [claim] * 2)
    wait_until(lambda: cluster.api.stalls)
    cluster.plugin.terminate()
    assert cluster.plugin.wait(6) == 0, cluster.log()  # the call has 8 s, and is repeated for 10
    for thread in threads:
        thread.join()
    assert answers == {} and cluster.sessions() == []
    cluster.api.resume()
    cluster.start()
    cluster.kubelet.register()
    assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == "" and len(cluster.sessions()) == 1


def test_a_plugin_ends_at_once_while_a_claim_waits_for_room(cluster):
    device = cluster.api.devices()[0]["name"]
    first, second = (cluster.api.claim(name, [("gpu", device, "60Gi", "0")]) for name in ("first", "second"))
    assert cluster.kubelet.prepare(first)[first["uid"]][1] == ""
    threads, answers = calls_of(cluster, "NodePrepareResources", [second])
    wait_until(lambda: list((cluster.kubelet_dir / "plugins" / DRIVER / "claims").glob(second["uid"] + "*")))
    cluster.plugin.terminate()
    assert cluster.plugin.wait(6) == 0, cluster.log()  # room is waited for 10 s
    for thread in threads:
        thread.join()
    assert answers == {}
    cluster.start()
    cluster.kubelet.register()
    assert cluster.kubelet.unprepare(first) == {first["uid"]: ""}
    assert cluster.kubelet.prepare(second)[second["uid"]][1] == "" and len(cluster.sessions()) == 1


@pytest.mark.parametrize("method", rest_long(["NodePrepareResources", None, "NodeUnprepareResources"]))
def test_a_plugin_ends_at_once_while_carved_is_stopped(cluster, method):
    """Also where it is told twice."""
    claim = cluster.api.claim("c", [("gpu", cluster.api.devices()[0]["name"], "1Gi", "0")])
    if method == "NodeUnprepareResources":
        assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    daemon = cluster.host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        threads, answers = calls_of(cluster, method, [claim] * 2) if method else ([], {})
        if method == "NodePrepareResources":
            wait_until(lambda: any("/resourceclaims/" in path for _, path in cluster.api.calls))
        cluster.kubelet.register()  # it looks at carved at once
        cluster.plugin.terminate()
        wait_until(lambda: "node.ends" in cluster.log())
        cluster.plugin.terminate()
        assert cluster.plugin.wait(4) == 0, cluster.log()
        for thread in threads:
            thread.join()
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert answers == {} and not cluster.kubelet.registry.exists()
    cluster.start()
    cluster.kubelet.register()
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""} and cluster.sessions() == [] and cluster.specs() == []


def test_a_plugin_that_waits_for_carved_ends_at_once(make_host, tmp_path):
    cluster = Cluster(make_host("h100-80gb"))
    cluster.start("--host", tmp_path / "carved.sock")
    try:
        wait_until(lambda: "carved.awaited" in cluster.log())
        cluster.plugin.terminate()
        assert cluster.plugin.wait(4) == 0, cluster.log()
    finally:
        cluster.close()


def test_a_plugin_that_was_upgraded_takes_up_the_claims_of_the_old_one(cluster):
    claim = cluster.api.claim("c", [("gpu", cluster.api.devices()[0]["name"], "1Gi", "0")])
    prepared = cluster.kubelet.prepare(claim)
    [session] = cluster.sessions()
    # The old layout: one file for a slice, in place of a directory.
    slices = cluster.kubelet_dir / "plugins" / DRIVER / "slices"
    shutil.rmtree(slices / session["id"])
    (slices / session["id"]).write_text(f"CARVE_SESSION={session['id']}\n")
    cluster.kill()
    cluster.start()
    wait_until((slices / session["id"] / "environment").exists)
    cluster.kubelet.register()
    assert cluster.kubelet.prepare(claim) == prepared and [s["id"] for s in cluster.sessions()] == [session["id"]]
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""} and list(slices.iterdir()) == []


def test_claims_that_are_released_while_a_plugin_starts_stay_released(cluster):
    """It makes what its claims had once more, and the kubelet's calls come meanwhile."""
    device = cluster.api.devices()[0]["name"]
    for _ in range(3):
        claims = [cluster.api.claim(f"c{i}", [("gpu", device, "1Gi", "0")]) for i in range(32)]
        for method, error in (("NodePrepareResources", 2), ("NodeUnprepareResources", 1)):
            threads, answers = calls_of(cluster, method, claims)
            for thread in threads:
                thread.join()
            assert [text(answer, error) for answer in answers.values()] == [""] * len(claims)
            if method == "NodePrepareResources":
                cluster.kill()
                cluster.start()
        # By the time it looks at its slices it has made all once more that it will.
        before = lists(cluster)
        cluster.kubelet.register()
        wait_until(lambda: lists(cluster) > before)
        assert cluster.sessions() == []


def test_a_plugin_that_starts_before_carved_waits_for_it(make_host, tmp_path):
    cluster = Cluster(make_host("h100-80gb"))
    carved = tmp_path / "carved.sock"
    cluster.start("--host", carved)
    try:
        wait_until(lambda: "carved.awaited" in cluster.log())
        assert cluster.plugin.poll() is None
        cluster.host.carve_json("gpu", "list")  # it starts carved
        carved.symlink_to(f"{cluster.host.env['CARVE_RUNTIME_DIR']}/carved.sock")
        cluster.kubelet.register()
        wait_until(cluster.api.slices)
    finally:
        cluster.close()


STEPS = ["prepare.begun", "prepare.session", "prepare.spec", "release.session", "release.spec",
         "prepare.chosen", "prepare.files", "prepare.prepared", "release.files", "release.released"]


@pytest.mark.parametrize("step", rest_long(STEPS, 5))
def test_a_plugin_that_is_killed_between_two_steps_goes_on_where_it_was(cluster, tmp_path, step):
    """A claim of two slices, so that there is a step between them."""
    device = cluster.api.devices()[0]["name"]
    claim = cluster.api.claim("c", [("a", device, "1Gi", "0"), ("b", device, "2Gi", "0")])
    releases = step.startswith("release")
    if releases:
        assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    flag = tmp_path / "flag"
    flag.touch()
    cluster.kill()
    cluster.host.env["CARVE_KILL_POINT"] = f"{step}:{flag}"
    cluster.start()
    del cluster.host.env["CARVE_KILL_POINT"]
    cluster.kubelet.register()
    with pytest.raises(grpc.RpcError):
        cluster.kubelet.claims("NodeUnprepareResources" if releases else "NodePrepareResources", [claim])
    assert cluster.plugin.wait(60) == -9 and not flag.exists()
    cluster.start()
    cluster.kubelet.register()
    if not releases:
        devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
        assert error == "" and sorted(s["vram_bytes"] for s in cluster.sessions()) == [1 << 30, 2 << 30]
        assert all(cluster.device(id) for d in devices for id in d["cdi"])
        assert cluster.kubelet.prepare(claim)[claim["uid"]] == (devices, "")
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}
    plugin = cluster.kubelet_dir / "plugins" / DRIVER
    assert cluster.sessions() == [] and cluster.specs() == []
    assert list((plugin / "claims").iterdir()) == [] and list((plugin / "slices").iterdir()) == []
