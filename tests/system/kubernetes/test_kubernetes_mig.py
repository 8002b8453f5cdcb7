"""MIG instances as devices: each placement is one, counters keep two from overlapping, and claims get exactly theirs."""
import os
import subprocess
import threading

import pytest

grpc = pytest.importorskip("grpc", reason="needs python3-grpcio")

from cel import Quantity, compile
from cluster import DRIVER, Cluster
from conftest import BUILD, clean_env, rest_long, wait_until
from mig_hands import carve, instances, kill_daemon
from nvidia_module import of_instance, with_module
from programs import python

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")


@pytest.fixture
def make_cluster(make_host):
    clusters = []

    def make(spec="h100-80gb+mig", role=True):
        host = make_host(spec)
        if role:
            carve(host, "node", "set-role", "--dynamic-mig-enabled")
        clusters.append(Cluster(host))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


@pytest.fixture
def cluster(make_cluster):
    return make_cluster().started()


def mig_devices(cluster):
    return [d for d in cluster.api.devices() if d["attributes"]["type"] == {"string": "mig"}]


def device(cluster, profile, start):
    wait_until(lambda: mig_devices(cluster))
    return next(d for d in mig_devices(cluster) if d["attributes"]["profile"] == {"string": profile} and
                d["attributes"]["start"] == {"int": start})


def prepared(cluster, claim):
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    return devices


def is_possible(cluster, *devices):
    """Whether a scheduler may give all of these at once: no counter is overdrawn."""
    left = {(s["name"], c): int(v["value"]) for slice in cluster.api.slices() for s in slice["spec"].get("sharedCounters", [])
            for c, v in s["counters"].items()}
    for d in devices:
        for consumed in d["consumesCounters"]:
            for counter, v in consumed["counters"].items():
                left[consumed["counterSet"], counter] -= int(v["value"])
    return min(left.values()) >= 0


def test_each_placement_is_a_device_and_counters_keep_them_apart(cluster):
    wait_until(lambda: mig_devices(cluster))
    first = device(cluster, "1g.10gb", 0)
    assert first["capacity"]["memory"]["value"] and "allowMultipleAllocations" not in first and "taints" not in first
    assert is_possible(cluster, *[device(cluster, "1g.10gb", start) for start in range(7)])
    assert is_possible(cluster, device(cluster, "3g.40gb", 0), device(cluster, "3g.40gb", 4))
    assert not is_possible(cluster, first, device(cluster, "3g.40gb", 0))
    assert not is_possible(cluster, first, device(cluster, "7g.80gb", 0))
    # There is one set of engines for images.
    assert not is_possible(cluster, device(cluster, "1g.10gb+me", 0), device(cluster, "1g.10gb+me", 1))
    # Parts of the GPU itself are not granted.
    [gpu] = [d for d in cluster.api.devices() if d["attributes"]["type"] == {"string": "gpu"}]
    assert gpu["taints"] == [{"key": "carve.dev/no-slices", "effect": "NoSchedule"}]


def test_a_node_full_of_gpus_keeps_the_bounds_of_a_slice(make_cluster):
    """The API server of the tests refuses a slice beyond the bounds, and the fixture looks whether it did."""
    cluster = make_cluster("h100-80gb:9+mig,h100-80gb").started()
    # A pool is whole when all its slices have one generation.
    wait_until(lambda: {(s["spec"]["pool"]["resourceSliceCount"], s["spec"]["pool"]["generation"]) for s in cluster.api.slices()} ==
               {(len(cluster.api.slices()), 1)})
    slices = cluster.api.slices()
    assert len([s for s in slices if "sharedCounters" in s["spec"]]) == 2
    names = [d["name"] for d in cluster.api.devices()]
    assert len(names) == len(set(names)) and len({d["attributes"]["index"]["int"] for d in mig_devices(cluster)}) == 9
    [share] = [d for d in cluster.api.devices() if d["attributes"]["type"] == {"string": "gpu"} and "taints" not in d]
    assert share["attributes"]["index"] == {"int": 9}


def test_a_claim_gets_the_instance_at_its_placement_and_gives_it_back(cluster):
    claims = [cluster.api.claim(f"c{start}", [("gpu", device(cluster, "1g.10gb", start)["name"])]) for start in (5, 2)]
    got = [prepared(cluster, claim) for claim in claims]
    assert [i["start"] for i in sorted(instances(cluster.host, "busy"), key=lambda i: i["start"])] == [2, 5]
    busy = {i["start"]: i for i in instances(cluster.host, "busy")}
    seen = cluster.container(got[0][0]["cdi"], python("devices_look"))
    assert seen.returncode == 0, seen.stderr
    assert busy[5]["uuid"][4:] in seen.stdout and busy[2]["uuid"][4:] not in seen.stdout
    assert prepared(cluster, claims[0]) == got[0]
    assert cluster.kubelet.unprepare(*claims) == {c["uid"]: "" for c in claims}
    assert cluster.sessions() == [] and cluster.specs() == [] and not instances(cluster.host, "busy")
    # An idle instance goes where its room is needed, and is taken up where it fits.
    large = cluster.api.claim("large", [("gpu", device(cluster, "7g.80gb", 0)["name"])])
    prepared(cluster, large)
    assert [i["profile"] for i in instances(cluster.host)] == ["7g.80gb"]


def test_memory_on_a_node_with_instances_alone_is_the_smallest_one_that_has_so_much(cluster):
    """The controller's template for an annotation gpu-memory, as a scheduler reads it."""
    wait_until(lambda: mig_devices(cluster))
    controller = subprocess.Popen([BUILD / "carve-kubernetes", "controller", "--api", cluster.api.url], env=clean_env(), stderr=subprocess.DEVNULL)
    try:
        cluster.api.pod("p", "carve-memory-15000")
        devices = wait_until(lambda: (t := cluster.api.templates().get("default/carve-memory-15000")) and
                             "firstAvailable" in t["requests"][0] and t)
    finally:
        controller.terminate()
        controller.wait(60)
    share, *instances_wanted = devices["requests"][0]["firstAvailable"]
    fits = [(want["name"], d) for want in instances_wanted for d in mig_devices(cluster) if all(
        compile(selector["cel"]["expression"], ["device"])({"device": seen_by_selectors(d)}) for selector in want["selectors"])]
    assert share["deviceClassName"] == "gpu.carve.dev" and not any("+" in d["attributes"]["profile"]["string"] for _, d in fits)
    assert {d["attributes"]["profile"]["string"] for name, d in fits if name == instances_wanted[0]["name"]} == {"1g.20gb", "2g.20gb"}
    name, chosen = fits[0]
    claim = cluster.api.claim("c", [("gpu/" + name, chosen["name"])])
    [got] = prepared(cluster, claim)
    assert got["requests"] == ["gpu"] and got["cdi"] == [f"k8s.gpu.carve.dev/claim={claim['uid']}-gpu"]
    assert [i["profile"] for i in instances(cluster.host, "busy")] == [chosen["attributes"]["profile"]["string"]]


def seen_by_selectors(device):
    """`device` of a selector's expression."""
    return {"driver": DRIVER, "attributes": {DRIVER: {name: next(iter(v.values())) for name, v in device["attributes"].items()}},
            "capacity": {DRIVER: {name: Quantity(v["value"]) for name, v in device["capacity"].items()}}}


def test_a_container_gets_the_capabilities_of_its_instance_alone(make_cluster):
    """The kernel module's files and nodes are made for the plugin, in a mount namespace of its own."""
    cluster = make_cluster()
    cluster.started()
    [gpu] = cluster.host.carve_json("gpu", "list")
    claims = [cluster.api.claim(f"c{start}", [("gpu", device(cluster, "1g.10gb", start)["name"])]) for start in (0, 3)]
    for claim in claims:
        prepared(cluster, claim)
    cluster.kill()
    made = instances(cluster.host, "busy")
    assert len({i["gpu_instance"] for i in made}) == 2 and all(i["compute_instance"] is not None for i in made)
    cluster.start(wrap=with_module([gpu], made))
    cluster.kubelet.register()
    for claim, start in zip(claims, (0, 3)):
        [got] = prepared(cluster, claim)
        [instance] = [i for i in made if i["start"] == start]
        paths = [n["path"] for edits in cluster.device(got["cdi"][0]) for n in edits.get("deviceNodes", [])]
        assert [p for p in paths if "caps" in p] == [f"/dev/nvidia-caps/{name}" for name in of_instance(instance)]


def test_several_instances_of_a_claim_are_requests_of_their_own(cluster):
    names = [device(cluster, "2g.20gb", start)["name"] for start in (0, 4)]
    claim = cluster.api.claim("c", [("a", names[0]), ("b", names[1])])
    assert [d["device"] for d in prepared(cluster, claim)] == names
    assert sorted(i["start"] for i in instances(cluster.host, "busy")) == [0, 4]


def test_a_request_for_two_instances_is_one_slice_of_both(make_cluster):
    """As `nvidia.com/mig-1g.10gb: 2` is: the scheduler chose their places, on two GPUs."""
    cluster = make_cluster("h100-80gb:2+mig").started()
    wait_until(lambda: len({d["attributes"]["index"]["int"] for d in mig_devices(cluster)}) == 2)
    places = [(0, 5), (1, 2), (0, 3)]
    names = [next(d["name"] for d in mig_devices(cluster) if d["attributes"]["profile"] == {"string": "1g.10gb"} and
                  (d["attributes"]["index"]["int"], d["attributes"]["start"]["int"]) == place) for place in places]
    claim = cluster.api.claim("c", [("container-0", name) for name in names])
    devices = prepared(cluster, claim)
    assert sorted(d["device"] for d in devices) == sorted(names) and len({tuple(d["cdi"]) for d in devices}) == 1
    busy = instances(cluster.host, "busy")
    assert sorted((i["gpu"], i["start"]) for i in busy) == sorted(places)
    [session] = cluster.sessions()
    assert {g["instance"] for g in session["gpus"]} == {i["uuid"] for i in busy}
    for uuid in (i["uuid"] for i in busy):  # a process uses one of them
        seen = cluster.container(devices[0]["cdi"], ["env", f"CUDA_VISIBLE_DEVICES={uuid}", *python("devices_look")])
        assert seen.returncode == 0 and uuid[4:] in seen.stdout, seen.stderr
    assert prepared(cluster, claim) == devices
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}
    assert cluster.sessions() == [] and not instances(cluster.host, "busy")


def test_several_instances_are_made_all_or_none(cluster):
    wait_until(lambda: mig_devices(cluster))
    carve(cluster.host, "session", "request", "--mig-profile", "3g.40gb")
    [other] = instances(cluster.host, "busy")
    # One of the places is free.
    names = [device(cluster, "1g.10gb", start)["name"] for start in (other["start"], (other["start"] + 4) % 8)]
    claim = cluster.api.claim("c", [("a", name) for name in names])
    assert "no room for 2 MIG instances 1g.10gb" in cluster.kubelet.prepare(claim)[claim["uid"]][1]
    assert [i["uuid"] for i in instances(cluster.host, "busy")] == [other["uuid"]]
    assert [s["id"] for s in cluster.sessions()] == [other["session"]]
    mixed = cluster.api.claim("mixed", [("a", names[0]), ("a", device(cluster, "2g.20gb", 0)["name"])])
    assert "request a has MIG instances of two profiles" in cluster.kubelet.prepare(mixed)[mixed["uid"]][1]


def test_claims_outlive_plugin_and_daemon(cluster):
    claim = cluster.api.claim("c", [("gpu", device(cluster, "3g.40gb", 4)["name"])])
    got = prepared(cluster, claim)
    [before] = instances(cluster.host, "busy")
    cluster.kill()
    kill_daemon(cluster.host)
    cluster.started()
    assert prepared(cluster, claim) == got
    [after] = instances(cluster.host, "busy")
    assert (after["uuid"], after["session"]) == (before["uuid"], before["session"])
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}
    wait_until(lambda: not instances(cluster.host, "busy"))


@pytest.mark.long
def test_instances_of_others_taint_what_they_are_in_the_way_of(cluster):
    wait_until(lambda: mig_devices(cluster))
    carve(cluster.host, "session", "request", "--mig-profile", "1g.10gb")
    [own] = instances(cluster.host, "busy")
    wait_until(lambda: "taints" in device(cluster, "1g.10gb", own["start"]))
    assert device(cluster, "7g.80gb", 0)["taints"] == [{"key": "carve.dev/no-slices", "effect": "NoSchedule"}]
    assert "taints" not in device(cluster, "1g.10gb", (own["start"] + 3) % 7)
    carve(cluster.host, "session", "release")
    wait_until(lambda: "taints" not in device(cluster, "7g.80gb", 0))


def test_slices_follow_the_role(make_cluster):
    cluster = make_cluster(role=False).started()
    assert not mig_devices(cluster)
    carve(cluster.host, "node", "set-role", "--dynamic-mig-enabled")
    wait_until(lambda: mig_devices(cluster))
    carve(cluster.host, "node", "remove-role", "--dynamic-mig-enabled")
    wait_until(lambda: not mig_devices(cluster) and len(cluster.api.slices()) == 1)


@pytest.mark.parametrize("gate", ["consumesCounters", "sharedCounters"])
def test_an_api_server_without_counters_gets_no_slices(make_cluster, gate):
    cluster = make_cluster()
    cluster.api.drop = [gate]
    cluster.start()
    cluster.kubelet.register()
    wait_until(lambda: f"dropped spec.{gate}" in cluster.log() or f"].{gate}" in cluster.log())
    cluster.kill()


@pytest.mark.parametrize("label, value", rest_long([("node-role.kubernetes.io/runai-mig-enabled", "true"), ("cdmo.clear.ml/gpu-partitioning", "mig")]))
def test_labels_of_a_node_give_the_role_and_take_it_back(make_cluster, label, value):
    cluster = make_cluster(role=False).started()

    def labelled(labels):
        cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1", "labels": labels}})
        # A registration has the plugin look at once.
        cluster.kubelet.register()

    assert not mig_devices(cluster)
    labelled({label: value})
    wait_until(lambda: mig_devices(cluster))
    # A plugin that was killed knows who set it.
    cluster.kill()
    cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1"}})
    cluster.started()
    wait_until(lambda: not mig_devices(cluster))
    # A role that was set by hand is left alone.
    carve(cluster.host, "node", "set-role", "--dynamic-mig-enabled")
    labelled({})
    wait_until(lambda: mig_devices(cluster))
    assert cluster.host.carve_json("gpu", "list")[0]["role"] == "dynamic-mig"


def test_a_label_without_mig_mode_is_one_line_in_the_log_and_an_event(make_cluster):
    cluster = make_cluster("h100-80gb", role=False)
    cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {
        "name": "n1", "labels": {"node-role.kubernetes.io/runai-mig-enabled": "true"}}})
    cluster.started()
    for _ in range(2):
        cluster.kubelet.register()
    wait_until(lambda: "role.failed" in cluster.log())
    assert "no GPU here is in MIG mode" in cluster.log() and cluster.log().count("role.failed") == 1
    [(reason, message)] = wait_until(cluster.api.warnings)
    assert reason == "NoRole" and "no GPU here is in MIG mode; carve node set-role --dynamic-mig-enabled --enable-mode" in message


@pytest.mark.parametrize("call", rest_long(["nvmlGpuInstanceCreateComputeInstance", "nvmlDeviceCreateGpuInstance"]))
def test_an_instance_that_is_made_half_way_is_no_slice_and_leaves_nothing(cluster, call):
    """The second of two: the claim fails as a whole."""
    names = [device(cluster, "1g.10gb", start)["name"] for start in (0, 4)]
    claim = cluster.api.claim("c", [("gpu", name) for name in names])
    carve(cluster.host, "sim", "fault", "mig-create", "--call", call, "--skip", "1")
    _, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error and cluster.sessions() == [] and cluster.specs() == [] and not instances(cluster.host, "busy")


def test_a_plugin_that_is_killed_while_it_makes_an_instance_makes_it_once(cluster):
    claim = cluster.api.claim("c", [("gpu", device(cluster, "3g.40gb", 0)["name"])])
    done = []

    def call():
        try:
            done.append(cluster.kubelet.prepare(claim))
        except grpc.RpcError:
            pass

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: instances(cluster.host) or done)
    cluster.kill()
    cluster.start()
    thread.join()
    cluster.kubelet.register()
    prepared(cluster, claim)
    assert [(i["profile"], i["start"]) for i in instances(cluster.host, "busy")] == [("3g.40gb", 0)] and len(cluster.sessions()) == 1


REFUSED = [{"key": "carve.dev/place-refused", "effect": "NoSchedule"}]


def refused_once(cluster, start):
    """A claim of a place that the driver refuses once."""
    claim = cluster.api.claim("c", [("gpu", device(cluster, "1g.10gb", start)["name"])])
    carve(cluster.host, "sim", "fault", "mig-create", "--call", "nvmlDeviceCreateGpuInstance", "--count", "1")
    _, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert f"the driver refuses it at memory unit {start}, though nothing is in the way there" in error, error
    assert cluster.sessions() == [] and cluster.specs() == []
    wait_until(lambda: device(cluster, "1g.10gb", start).get("taints") == REFUSED)
    assert "taints" not in device(cluster, "1g.10gb", start + 1) and "taints" not in device(cluster, "2g.20gb", start)
    return claim


@pytest.mark.long
def test_a_place_that_the_driver_refuses_is_tainted_until_the_gpu_changed(cluster):
    claim = refused_once(cluster, 2)
    prepared(cluster, cluster.api.claim("other", [("gpu", device(cluster, "1g.10gb", 5)["name"])]))
    prepared(cluster, claim)
    assert [i["start"] for i in sorted(instances(cluster.host, "busy"), key=lambda i: i["start"])] == [2, 5]
    wait_until(lambda: "taints" not in device(cluster, "1g.10gb", 2))


@pytest.mark.long
def test_a_place_that_the_driver_refused_is_tried_again_as_the_kubelet_asks(cluster):
    claim = refused_once(cluster, 4)
    wait_until(lambda: cluster.kubelet.prepare(claim)[claim["uid"]][1] == "", 90)
    wait_until(lambda: "taints" not in device(cluster, "1g.10gb", 4))
