"""carve-kubernetes node: claims become slices, for a kubelet and an API server that the test plays."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import threading

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import DRIVER, GIB, Cluster, parse, text
from conftest import BUILD, ROOT, Runner, process_ended, rest_long, run, wait_until
from own_daemon import make_daemon  # noqa: F401: a fixture
from programs import python

SETTINGS = "settingsProblem"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")


@pytest.fixture
def make_cluster(make_host):
    clusters = []

    def make(spec="h100-80gb"):
        clusters.append(Cluster(make_host(spec)))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def cluster(make_cluster):
    return make_cluster().started()


def device_of(cluster, index=0):
    return next(d["name"] for d in cluster.api.devices() if d["attributes"]["index"]["int"] == index)


def test_the_kubelet_learns_what_the_plugin_is(cluster):
    info = cluster.kubelet.info()
    assert text(info, 1) == "DRAPlugin" and text(info, 2) == DRIVER
    assert text(info, 3) == str(cluster.kubelet_dir / "plugins" / DRIVER / "dra.sock")
    assert [v.decode() for v in info[4]][:2] == ["v1.DRAPlugin", "v1beta1.DRAPlugin"]


@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_a_claim_becomes_a_slice_and_is_given_back(cluster, version):
    device = device_of(cluster)
    claim = cluster.api.claim("c", [("gpu", device, "10Gi", "25")])
    devices, error = cluster.kubelet.prepare(claim, version=version)[claim["uid"]]
    assert error == ""
    assert [(d["requests"], d["pool"], d["device"]) for d in devices] == [(["gpu"], "n1", device)]
    assert devices[0]["cdi"] == [f"k8s.{DRIVER}/claim={claim['uid']}-gpu"] and devices[0]["share"]
    [session] = cluster.sessions()
    assert session["vram_bytes"] == 10 * GIB and session["kept"] and session["compute_request"] == 0.25
    done = cluster.container(devices[0]["cdi"], python("mem_info"))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total"] == 10 * GIB
    assert cluster.kubelet.unprepare(claim, version=version) == {claim["uid"]: ""}
    assert cluster.sessions() == [] and cluster.specs() == []
    assert list((cluster.kubelet_dir / "plugins" / DRIVER / "claims").iterdir()) == []


def reserved(cluster, claim, pod):
    """The scheduler has reserved the claim for a pod."""
    path = f"/apis/resource.k8s.io/v1/namespaces/{claim['namespace']}/resourceclaims/{claim['name']}"
    object = cluster.api.objects[path]
    object["status"]["reservedFor"] = [{"resource": "pods", "name": pod, "uid": "u"}]
    cluster.api.put(path, object)


@pytest.mark.parametrize("readable", [True, False])
def test_slices_have_the_names_of_their_pods(cluster, readable):
    """The container's name is in the pod, which the plugin's account may have no right to read."""
    claim = cluster.api.claim("c-xyz", [("gpu", device_of(cluster), "4Gi", "0")])
    reserved(cluster, claim, "train-0")
    if readable:
        cluster.api.put("/api/v1/namespaces/default/pods/train-0", {
            "metadata": {"name": "train-0", "namespace": "default"},
            "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "t"}],
                     "containers": [{"name": "side"}, {"name": "main", "resources": {"claims": [{"name": "gpu"}]}}]},
            "status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "c-xyz"}]}})
    _, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    assert cluster.sessions()[0]["pod"] == ("default/train-0/main" if readable else "default/train-0")
    text = cluster.host.run(["curl", "-s", "--unix-socket", cluster.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", "http://carve/metrics"]).stdout
    assert 'namespace="default",pod="train-0"' in text and ('container="main"' in text) == readable


def test_pods_attach_by_a_directory_that_outlives_the_daemon(cluster):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    _, edits = cluster.device(devices[0]["cdi"][0])
    mounts = {m["containerPath"]: m["hostPath"] for m in edits["mounts"]}
    assert mounts["/run/carve-slice/attach"].endswith("/containers")
    assert not any(path.endswith("carved.sock") for path in mounts.values())
    # The same without its environment: the preloaded libraries read the slice's file.
    done = cluster.container(devices[0]["cdi"], ["env", "-i", f"SIMGPU_HOST={cluster.host.env['SIMGPU_HOST']}", *python("mem_info")])
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["total"] == 4 * GIB


@pytest.mark.parametrize("hook", [True, False])
def test_pods_of_other_users_need_the_hook(make_cluster, hook):
    cluster = make_cluster()
    cluster.started(*(["--hook-dir", BUILD] if hook else []))
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    _, edits = cluster.device(devices[0]["cdi"][0])
    assert [h["args"][1:3] for h in edits.get("hooks", [])] == ([["--register", cluster.sessions()[0]["id"]]] if hook else [])
    # As the system's daemon has it, and carve sim where all users may.
    directory = next(m["hostPath"] for m in edits["mounts"] if m["containerPath"] == "/run/carve-slice/attach")
    os.chmod(os.path.join(directory, "attach.sock"), 0o666)
    subprocess.run(["chmod", "-R", "a+rwX", cluster.host.env["SIMGPU_HOST"]], check=True)
    cluster.dir.joinpath("config.json").write_text('{"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": []}}')
    cluster.dir.chmod(0o755)
    done = cluster.container(devices[0]["cdi"], python("mem_info"), user=65534)
    if hook:
        assert done.returncode == 0 and json.loads(done.stdout)["total"] == 4 * GIB, done.stderr
    else:
        assert done.returncode != 0 and "another user's" in done.stderr + done.stdout


@pytest.mark.parametrize("claims", [
    [[("one", 0, "2Gi"), ("two", 1, "8Gi")]], [[("gpu", 0, "2Gi")], [("gpu", 1, "8Gi")]], [[("one", 0, "2Gi"), ("two", 0, "2Gi")]],
], ids=["two requests", "two claims", "two requests of one GPU"])
def test_a_container_with_two_slices_is_refused_by_name(make_cluster, claims):
    cluster = make_cluster("h100-80gb:2").started("--hook-dir", BUILD)
    ids = []
    for n, requests in enumerate(claims):
        claim = cluster.api.claim(f"c{n}", [(request, device_of(cluster, gpu), size, "0") for request, gpu, size in requests])
        devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
        assert error == ""
        ids += [id for d in devices for id in d["cdi"]]

    def start(ids):
        hooks = [hook for id in ids for hook in cluster.device(id)[1]["hooks"]]
        cluster.dir.joinpath("config.json").write_text(json.dumps(
            {"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": []}, "hooks": {"createRuntime": hooks}}))
        return cluster.container(ids, python("mem_info"))

    done = start(ids)
    first, second = (cluster.device(id)[1]["hooks"][0]["args"][2] for id in ids)
    assert done.returncode != 0 and done.stderr == (
        f"carve-hook: the container has two slices, sessions {first} and {second}, and can use one only; give it one device; "
        "in a pod name one request of one claim in the container's resources.claims\n")
    # Each of them alone, also where a device is named twice, is one slice.
    for id in ids:
        assert start([id]).returncode == 0
    assert start([ids[0], ids[0]]).returncode == 0


@pytest.mark.parametrize("variables, gib", rest_long([
    (["CUDA_DEVICE_MEMORY_LIMIT_0=1024m", "CUDA_DEVICE_MEMORY_LIMIT=3g", "CUDA_DEVICE_SM_LIMIT=20"], 1),
    (["CUDA_DEVICE_MEMORY_LIMIT=2g"], 2),
    (["CUDA_DEVICE_MEMORY_LIMIT=16g", "CUDA_DEVICE_SM_LIMIT=0"], 4),
]))
def test_the_variables_of_kai_lower_what_the_claim_grants(make_cluster, variables, gib):
    cluster = make_cluster().started("--hook-dir", BUILD)
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "50")])
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    cluster.dir.joinpath("config.json").write_text(json.dumps(
        {"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": variables}}))
    for _ in range(2):  # a container that starts again has the same
        done = cluster.container(devices[0]["cdi"], python("mem_info"))
        assert done.returncode == 0 and json.loads(done.stdout)["total"] == gib * GIB, done.stderr
        [session] = cluster.sessions()
        assert session["vram_bytes"] == gib * GIB
        assert session["compute_request"] == (0.2 if "CUDA_DEVICE_SM_LIMIT=20" in variables else 0.5)
        # The kubelet may ask again at any time.
        assert cluster.kubelet.prepare(claim)[claim["uid"]] == (devices, "")
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""} and cluster.sessions() == []


def test_a_variable_of_kai_that_makes_no_sense_stops_the_container(make_cluster):
    cluster = make_cluster().started("--hook-dir", BUILD)
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    cluster.dir.joinpath("config.json").write_text(
        '{"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": ["CUDA_DEVICE_MEMORY_LIMIT=lots"]}}')
    done = cluster.container(devices[0]["cdi"], python("mem_info"))
    assert done.returncode == 2 and "CUDA_DEVICE_MEMORY_LIMIT: 'lots' is no limit; right would be 2027m" in done.stderr
    assert cluster.sessions()[0]["vram_bytes"] == 4 * GIB


SLEEPS = ("35", "230")  # nanosleep and clock_nanosleep


def syscall_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/syscall").read_text().split()[0]
    except (OSError, IndexError):
        return None


def test_a_container_that_starts_while_carved_does_waits_for_it(make_cluster):
    """As when the DaemonSet's pod is replaced: a pod that is never restarted would fail for good."""
    cluster = make_cluster()
    alone = cluster.dir / "hook"
    alone.mkdir()
    shutil.copy(BUILD / "carve-hook", alone)  # without a `carve` beside it, which would start the daemon
    cluster.started("--hook-dir", alone)
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    cluster.dir.joinpath("config.json").write_text('{"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": []}}')
    cluster.kill()
    daemon = cluster.host.daemon_pid()
    supervisor = int(re.search(r"PPid:\t(\d+)", pathlib.Path(f"/proc/{daemon}/status").read_text())[1])
    # The daemon ends with its supervisor, as in a container that is stopped.
    os.kill(supervisor, signal.SIGKILL)
    wait_until(lambda: process_ended(daemon))
    done = []
    thread = threading.Thread(target=lambda: done.append(cluster.container(devices[0]["cdi"], python("mem_info"))))
    thread.start()

    def hook_sleeps():
        assert thread.is_alive(), done
        pids = run(["pgrep", "-f", f"^{alone}/carve-hook"]).stdout.split()
        return any(syscall_of(pid) in SLEEPS for pid in pids)

    wait_until(hook_sleeps)
    cluster.host.carve("gpu", "list")
    thread.join()
    assert done[0].returncode == 0 and json.loads(done[0].stdout)["total"] == 4 * GIB, done[0].stderr


def parts(cluster):
    return cluster.api.devices()[0]["capacity"].get("slices")


def test_replicas_are_the_most_slices_of_a_gpu(make_cluster):
    """As the node's label says; the scheduler counts one for each claim."""
    cluster = make_cluster()
    label = {"kind": "Node", "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.replicas": "4"}}}
    cluster.api.put("/api/v1/nodes/n1", label)
    cluster.started()
    assert parts(cluster) == {"value": "4", "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
    for value in ("1", "many"):
        label["metadata"]["labels"]["nvidia.com/gpu.replicas"] = value
        cluster.api.put("/api/v1/nodes/n1", label)
        cluster.kubelet.register()  # the plugin looks at once
        wait_until(lambda: parts(cluster) is None)
        label["metadata"]["labels"]["nvidia.com/gpu.replicas"] = "3"
        cluster.api.put("/api/v1/nodes/n1", label)
        cluster.kubelet.register()
        wait_until(lambda: parts(cluster) and parts(cluster)["value"] == "3")


@pytest.mark.parametrize("key, value, words", [
    ("nvidia.com/gpu.replicas", "many", "'many' is no number from 1 to 1000; the GPUs have no such limit of slices"),
    ("node-role.kubernetes.io/runai-mig-enabled", "", "'' sets no role; right would be true"),
    ("cdmo.clear.ml/gpu-partitioning", "MIG", "'MIG' sets no role; right would be mig"),
])
def test_a_label_whose_value_means_nothing_is_an_event_of_its_node(make_cluster, key, value, words):
    cluster = make_cluster()
    node = {"kind": "Node", "metadata": {"name": "n1", "labels": {key: value}}}
    cluster.api.put("/api/v1/nodes/n1", node)
    cluster.started()
    event = ("WrongLabel", f"label {key}: {words}; kubectl label --overwrite node NODE {key}=" +
             {"many": "4", "": "true", "MIG": "mig"}[value])
    wait_until(lambda: cluster.api.warnings() == [event])
    # It is told once, and again where another value was there meanwhile.
    for labels, told in (({key: value}, 1), ({}, 1), ({key: value}, 2)):
        node["metadata"]["labels"] = labels
        cluster.api.put("/api/v1/nodes/n1", node)
        # The plugin looks at once, and reads the node for the labels and for the slices. The first two reads may be of a look before.
        for _ in range(2):
            reads = cluster.api.calls.count(("GET", "/api/v1/nodes/n1"))
            cluster.kubelet.register()
            wait_until(lambda: cluster.api.calls.count(("GET", "/api/v1/nodes/n1")) >= reads + 2)
        assert cluster.api.warnings() == [event] * told
    assert cluster.log().count("label.wrong") == 2


def test_an_option_counts_before_the_label_of_replicas(make_cluster):
    cluster = make_cluster()
    cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.replicas": "4"}}})
    cluster.started("--replicas", "2")
    assert parts(cluster)["value"] == "2"
    labels = {"nvidia.com/gpu.replicas": "many", "cdmo.clear.ml/gpu-partitioning": "MIG"}
    cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1", "labels": labels}})
    cluster.kubelet.register()
    [(_, message)] = wait_until(cluster.api.warnings)
    assert "gpu-partitioning" in message
    done = run([BUILD / "carve-kubernetes", "node", "--replicas", "0"])
    assert done.returncode == 2 and "--replicas" in done.stderr


def test_preparing_and_unpreparing_may_be_repeated(cluster):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    first = cluster.kubelet.prepare(claim)
    session = cluster.sessions()[0]["id"]
    assert cluster.kubelet.prepare(claim) == first
    assert [s["id"] for s in cluster.sessions()] == [session]
    for _ in range(2):
        assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}


def test_each_claim_of_a_call_fails_alone(cluster):
    device = device_of(cluster)
    good = cluster.api.claim("good", [("gpu", device, "1Gi", "0")])
    bad = cluster.api.claim("bad", [("gpu", "gpu-none", "1Gi", "0")])
    missing = {"namespace": "default", "name": "missing", "uid": "1-2-3"}
    replaced = {**cluster.api.claim("replaced", [("gpu", device, "1Gi", "0")]), "uid": "other"}
    elsewhere = cluster.api.claim("elsewhere", [("gpu", device, "1Gi", "0")], node="n2")
    strange = {"namespace": "default", "name": "x", "uid": "../../etc/passwd"}
    answers = cluster.kubelet.prepare(good, bad, missing, replaced, elsewhere, strange)
    errors = {uid: error for uid, (_, error) in answers.items()}
    assert errors[good["uid"]] == ""
    assert "this node has no device gpu-none" in errors[bad["uid"]]
    assert "answered 404" in errors["1-2-3"]
    assert "was replaced" in errors["other"]
    assert "of node n2" in errors[elsewhere["uid"]]
    assert "is no claim" in errors["../../etc/passwd"]
    assert len(cluster.sessions()) == 1


def test_a_claim_without_room_is_refused_and_leaves_nothing(cluster):
    device = device_of(cluster)
    big = cluster.api.claim("big", [("gpu", device, "70Gi", "0")])
    more = cluster.api.claim("more", [("gpu", device, "20Gi", "0")])
    assert cluster.kubelet.prepare(big)[big["uid"]][1] == ""
    devices, error = cluster.kubelet.prepare(more)[more["uid"]]
    assert devices == [] and "20 GiB" in error
    assert len(cluster.sessions()) == 1 and len(cluster.specs()) == 1
    cluster.kubelet.unprepare(big)
    assert cluster.kubelet.prepare(more)[more["uid"]][1] == ""


def test_containers_of_a_pod_have_slices_of_their_own(make_cluster):
    cluster = make_cluster("h100-80gb:3").started()
    a, b, c = (device_of(cluster, i) for i in range(3))
    claim = cluster.api.claim("c", [("small", a, "2Gi", "0"), ("pair/h100", b, "8Gi", "0"), ("pair/h100", c, "8Gi", "0")])
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == "" and sorted(d["requests"][0] for d in devices) == ["pair", "pair", "small"]
    assert sorted((s["vram_bytes"], len(s["gpus"])) for s in cluster.sessions()) == [(2 * GIB, 1), (8 * GIB, 2)]
    small = [d["cdi"] for d in devices if d["requests"] == ["small"]]
    assert json.loads(cluster.container(small[0], python("mem_info")).stdout)["total"] == 2 * GIB


def test_a_plugin_that_was_killed_goes_on_with_its_claims(cluster):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    prepared = cluster.kubelet.prepare(claim)
    session = cluster.sessions()[0]["id"]
    cluster.kill()
    cluster.cdi.joinpath(f"carve-claim-{claim['uid']}.json").unlink()
    cluster.start()
    wait_until(lambda: len(cluster.specs()) == 1)
    cluster.kubelet.register()
    assert cluster.kubelet.prepare(claim) == prepared
    assert [s["id"] for s in cluster.sessions()] == [session]
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}
    assert cluster.sessions() == []


def test_a_session_that_ended_is_made_again_for_its_claim(cluster):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    cluster.kubelet.prepare(claim)
    before = cluster.sessions()[0]["id"]
    cluster.host.carve("session", "release", before)
    assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    [after] = cluster.sessions()
    assert after["id"] != before and after["id"] in json.dumps(cluster.specs())
    cluster.kubelet.unprepare(claim)
    assert cluster.sessions() == []


def test_claims_that_the_api_server_lost_are_given_back(cluster):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    cluster.kubelet.prepare(claim)
    cluster.kill()
    cluster.api.forget(claim)
    cluster.start()
    wait_until(lambda: not cluster.sessions())


def test_a_prepared_claim_needs_no_api_server(cluster):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "4Gi", "0")])
    cluster.kubelet.prepare(claim)
    cluster.api.down = True
    assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    other = {"namespace": "default", "name": "d", "uid": "d"}
    assert "does not answer" in cluster.kubelet.prepare(other)["d"][1]
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}


def test_a_full_node_is_prepared_in_one_go(cluster):
    device = device_of(cluster)
    claims = [cluster.api.claim(f"c{i}", [("gpu", device, "1Gi", "0")]) for i in range(64)]
    answers = [None] * 64

    def one(i):
        answers[i] = cluster.kubelet.prepare(claims[i])[claims[i]["uid"]][1]

    threads = [threading.Thread(target=one, args=[i]) for i in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers == [""] * 64 and len(cluster.sessions()) == 64
    assert set(cluster.kubelet.unprepare(*claims).values()) == {""}
    assert cluster.sessions() == []


def test_a_claim_that_names_no_size_gets_the_whole_gpu(cluster):
    [device] = cluster.api.devices()
    memory = device["capacity"]["memory"]
    assert memory["requestPolicy"]["default"] == memory["value"]
    claim = cluster.api.claim("c", [("container-0-request-0", device["name"], memory["value"], "0")])
    assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    assert cluster.sessions()[0]["vram_bytes"] == int(memory["value"][:-2]) << 20


def test_devices_tell_what_claims_can_have(make_cluster):
    cluster = make_cluster("h100-80gb:2").started()
    [slice] = cluster.api.slices()
    assert slice["spec"]["driver"] == DRIVER and slice["spec"]["nodeName"] == slice["spec"]["pool"]["name"] == "n1"
    assert slice["metadata"]["ownerReferences"][0]["uid"] == cluster.api.objects["/api/v1/nodes/n1"]["metadata"]["uid"]
    gpus = cluster.host.carve_json("gpu", "list")
    for device, gpu in zip(slice["spec"]["devices"], gpus):
        assert device["name"] == gpu["uuid"].lower() and device["allowMultipleAllocations"] is True
        assert device["capacity"]["memory"]["value"] == f"{gpu['available_bytes'] >> 20}Mi"
        assert device["attributes"]["memoryMiB"]["int"] == gpu["available_bytes"] >> 20
        assert device["capacity"]["cores"] == {"value": "100", "requestPolicy": {"default": "0", "validRange": {"min": "0"}}}


@pytest.mark.long
def test_eight_eighths_of_the_time_are_one_gpu(make_cluster):
    cluster = make_cluster("h100-80gb")
    assert cluster.host.carve("timeslicing", "--mode", "fair").returncode == 0
    cluster.started()
    for i in range(8):
        claim = cluster.api.claim(f"c{i}", [("gpu", device_of(cluster), "8Gi", "12500m")])
        assert cluster.kubelet.prepare(claim)[claim["uid"]][1] == ""
    assert [s["compute_request"] for s in cluster.sessions()] == [0.125] * 8


def test_a_field_that_an_older_plugin_published_goes(cluster):
    [slice] = cluster.api.slices()
    step = {"min": "0", "step": "1"}
    cluster.api.put(f"/apis/resource.k8s.io/v1/resourceslices/{slice['metadata']['name']}", json.loads(json.dumps(slice).replace(
        '"validRange": {"min": "0"}', f'"validRange": {json.dumps(step)}')))
    assert cluster.api.devices()[0]["capacity"]["cores"]["requestPolicy"]["validRange"] == step
    cluster.kubelet.register()
    wait_until(lambda: cluster.api.devices()[0]["capacity"]["cores"]["requestPolicy"]["validRange"] == {"min": "0"})


def test_claims_do_not_change_what_is_published_and_other_sessions_do(cluster):
    full = cluster.api.devices()[0]["capacity"]["memory"]["value"]
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "8Gi", "0")])
    cluster.kubelet.prepare(claim)
    session = cluster.host.carve_json("session", "request", "--vram", "16")["id"]
    wait_until(lambda: cluster.api.devices()[0]["capacity"]["memory"]["value"] != full)
    left = int(cluster.api.devices()[0]["capacity"]["memory"]["value"][:-2])
    assert int(full[:-2]) - 16 * 1024 - 64 <= left <= int(full[:-2]) - 16 * 1024
    assert cluster.api.slices()[0]["spec"]["pool"]["generation"] == 2
    cluster.host.carve("session", "release", session)
    wait_until(lambda: cluster.api.devices()[0]["capacity"]["memory"]["value"] == full)


def test_slices_are_published_again_after_a_registration(cluster):
    [path] = [p for p in cluster.api.objects if "/resourceslices/" in p]
    cluster.api.delete(path)
    cluster.kubelet.register()
    wait_until(cluster.api.slices)


@pytest.mark.parametrize("gate", ["allowMultipleAllocations"])
def test_an_api_server_that_drops_fields_is_told_apart(make_cluster, gate):
    cluster = make_cluster()
    cluster.api.drop = [gate]
    cluster.start()
    cluster.kubelet.register()
    wait_until(lambda: f"dropped spec.devices[0].{gate}" in cluster.log())
    assert "DRAConsumableCapacity" in cluster.log()
    wait_until(lambda: not cluster.api.slices())


def test_health_of_devices_is_told_and_follows(cluster):
    stream = cluster.kubelet.stream(cluster.kubelet.socket, "/v1alpha1.DRAResourceHealth/NodeWatchResources")
    report = [parse(d) for d in parse(next(stream))[1]]
    assert text(parse(report[0][1][0]), 1) == "n1" and text(parse(report[0][1][0]), 2) == device_of(cluster)
    assert report[0][2] == [1]
    daemon = cluster.host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        for message in stream:
            if parse(parse(message)[1][0]).get(2, [0]) == [0]:
                break
        else:
            raise AssertionError("the stream ended")
    finally:
        os.kill(daemon, signal.SIGCONT)
    stream.cancel()


def test_carved_becomes_the_plugin_where_it_is_told_to():
    done = run([BUILD / "carved", "--kubernetes", "--help"])
    assert done.returncode == 0 and done.stdout.startswith("carve-kubernetes - ")


@pytest.mark.parametrize("words,message", [
    ([], "say which part to run: node, controller, run, template or check"),
    (["node", "--node-name", "../x"], "--node-name: '../x' is no name"),
    (["node", "--node-name", "n", "--api", "ftp://x"], "is no URL"),
    (["node", "--node-name", "n"], "this is no pod of a cluster"),
    (["controller", "--namespace", "A"], "--namespace: 'A' is no name"),
    (["chek"], "'chek' is no part; say which to run: node"),
    (["check", "more"], "check: 'more' is one word too many"),
    (["controller", "--replicas", "3"], "--replicas does not go with controller"),
    (["controller", "--grace", "3"], "--grace does not go with controller"),
    (["node", "--fraction", "0.5"], "--fraction does not go with node"),
    (["node", "--collect-every", "5"], "--collect-every does not go with node"),
    (["check", "--namespace", "a"], "--namespace does not go with check"),
    (["run", "--json", "--", "true"], "--json does not go with run"),
    (["node", "--node-name", "n", "--reserve-label", "a=b"], "--reserve-label only goes with --reserve-namespace"),
])
def test_wrong_usage_is_told_in_one_line(words, message):
    done = run([BUILD / "carve-kubernetes", *words])
    assert done.returncode == 2 and message in done.stderr and done.stderr.count("\n") == 1


def test_every_option_stands_in_the_manual_page():
    options = set(re.findall(r"--[a-z][a-z-]+", run([BUILD / "carve-kubernetes", "--help"]).stdout)) - {"--kubernetes"}
    page = (ROOT / "docs" / "man" / "carve-kubernetes.8").read_text().replace("\\-", "-")
    assert {o for o in options if f"Fl {o[1:]}" not in page} == set()


class FakeDriverHost(Runner):
    """A daemon over a driver that the test writes, as a host for a plugin."""

    def __init__(self, daemon):
        self.daemon = daemon
        self.env = dict(daemon.env(), CARVE_RUNTIME_DIR=str(daemon.runtime),
                        LD_LIBRARY_PATH=f"{BUILD}/tests/programs/fake_nvml:{BUILD}/sim")

    def mode(self, gpu, mode):
        self.daemon.modes[gpu] = mode
        self.daemon.write_state()


EXCLUSIVE, PROHIBITED = 3, 2  # nvmlComputeMode_t


@pytest.mark.parametrize("mode, words", rest_long([(EXCLUSIVE, "exclusive: one process at a time may use it"),
                                         (PROHIBITED, "prohibited: no program may use it")]))
def test_a_gpu_whose_compute_mode_lets_no_two_processes_in_gets_no_slices(make_daemon, mode, words):
    """carve changes no compute mode, and so has none to put back."""
    host = FakeDriverHost(make_daemon(gpus=[(80 * GIB, 0, 0, f"Fake H100 {n}") for n in range(2)]))
    cluster = Cluster(host)
    try:
        cluster.started()
        wait_until(lambda: len(cluster.api.devices()) == 2)
        before = cluster.api.claim("before", [("gpu", device_of(cluster, 1), "10Gi", "0")])
        assert cluster.kubelet.prepare(before)[before["uid"]][1] == ""
        host.mode(1, mode)
        wait_until(lambda: [d.get("taints") for d in cluster.api.devices()] == [
            None, [{"key": "carve.dev/compute-mode", "effect": "NoSchedule"}]])
        # The scheduler did not know yet.
        late = cluster.api.claim("late", [("gpu", device_of(cluster, 1), "10Gi", "0")])
        assert f"GPU 1 is in compute mode {words}; as root on the node: nvidia-smi --compute-mode=0" in \
            cluster.kubelet.prepare(late)[late["uid"]][1]
        assert cluster.kubelet.prepare(before)[before["uid"]][1] == ""
        cluster.kill()
        cluster.started()
        assert cluster.kubelet.prepare(before)[before["uid"]][1] == ""
        host.mode(1, 0)
        wait_until(lambda: not any("taints" in d for d in cluster.api.devices()))
        assert cluster.kubelet.prepare(late)[late["uid"]][1] == ""
        assert cluster.kubelet.unprepare(before, late) == {c["uid"]: "" for c in (before, late)}
    finally:
        cluster.close()


def test_a_drained_gpu_has_a_taint_and_keeps_its_pods(make_cluster):
    cluster = make_cluster("h100-80gb:2").started()
    wait_until(lambda: len(cluster.api.devices()) == 2)
    before = cluster.api.claim("before", [("gpu", device_of(cluster, 1), "10Gi", "0")])
    assert cluster.kubelet.prepare(before)[before["uid"]][1] == ""
    cluster.host.carve("node", "drain", "--gpu-ids", "1", "--reason", "its fan is loud")
    taint = [{"key": "carve.dev/drained", "effect": "NoSchedule"}]
    wait_until(lambda: {d["attributes"]["index"]["int"]: d.get("taints") for d in cluster.api.devices()} == {0: None, 1: taint})
    # The scheduler did not know yet.
    late = cluster.api.claim("late", [("gpu", device_of(cluster, 1), "10Gi", "0")])
    assert "drained by " in (error := cluster.kubelet.prepare(late)[late["uid"]][1]) and "its fan is loud" in error
    cluster.kill()
    cluster.started()
    assert cluster.kubelet.prepare(before)[before["uid"]][1] == ""
    cluster.host.carve("node", "resume")
    wait_until(lambda: not any("taints" in d for d in cluster.api.devices()))
    assert cluster.kubelet.prepare(late)[late["uid"]][1] == ""


def test_settings_that_carved_does_not_take_are_told_with_its_gpus(make_daemon, tmp_path):
    """As after a change of a ConfigMap: carved keeps the settings that it had."""
    config = tmp_path / "carved.json"
    config.write_text('{"timeSlicing": {"mode": "fair"}}')
    daemon = make_daemon(args=("--config", config))
    cluster = Cluster(FakeDriverHost(daemon)).started()

    def told():
        return [d["attributes"].get(SETTINGS, {}).get("string") for d in cluster.api.devices()]

    try:
        assert told() == [None]
        config.write_text('{"timeSlicing": {"mode": "fair", "granularity": 7}}')
        os.kill(daemon.pid, signal.SIGHUP)
        wait_until(lambda: told() != [None])
        [problem] = told()
        assert "granularity: '7' is outside 1% to 50%" in problem and len(problem) <= 64
        assert cluster.log().count("settings.refused error=\"carved kept its old settings: ") == 1
        config.write_text('{"timeSlicing": {"mode": "fair"}}')
        os.kill(daemon.pid, signal.SIGHUP)
        wait_until(lambda: told() == [None])
    finally:
        cluster.close()


def test_nothing_is_published_before_the_kubelet_knows_the_plugin(make_cluster):
    """Pods are bound as soon as there are devices, and a kubelet that does not know the plugin takes them up again a minute later."""
    cluster = make_cluster()
    cluster.start()
    node = "/api/v1/nodes/n1"
    # It has looked at the node, and so at its GPUs.
    wait_until(lambda: ("GET", node) in cluster.api.calls)
    assert cluster.api.slices() == [] and not any("resourceslices" in path for _, path in cluster.api.calls)
    cluster.kubelet.register()
    wait_until(cluster.api.slices)


@pytest.mark.parametrize("status", [None, 429, 503])
def test_a_claim_waits_for_an_api_server_that_is_away_for_a_moment(cluster, status):
    claim = cluster.api.claim("c", [("gpu", device_of(cluster), "10Gi", "0")])
    serve, asked = cluster.api.serve, threading.Event()

    def refuse(method, path, body):
        if "resourceclaims" not in path:
            return serve(method, path, body)
        asked.set()
        return cluster.api.status(status, "try again")

    if status:
        cluster.api.serve = refuse
    else:
        cluster.api.down = True
    done = []
    thread = threading.Thread(target=lambda: done.append(cluster.kubelet.prepare(claim)[claim["uid"]][1]))
    thread.start()
    if status:
        assert asked.wait(60)
    cluster.api.serve, cluster.api.down = serve, False
    thread.join()
    assert done == [""]
    assert len(cluster.sessions()) == 1
