"""A real API server, scheduler and controller manager with carve's manifests, controller and node program; the test plays the kubelet.

Skipped without CARVE_TEST_CONTROL_PLANE (control_plane.py)."""
import json
import os
import shutil
import subprocess

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import GIB
from conftest import BUILD, clean_env, run, wait_until
from control_plane import MANIFESTS, PROGRAMS, REFUSED, ControlPlane
from plane_node import PlaneNode
from programs import python

pytestmark = [pytest.mark.skipif(not PROGRAMS, reason="needs CARVE_TEST_CONTROL_PLANE, a directory of Kubernetes' programs"),
              pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")]


@pytest.fixture(scope="module")
def plane():
    plane = ControlPlane()
    try:
        plane.kubectl("apply", "-k", MANIFESTS / "mig-limits")
        plane.controller(collect_pods_after=5)
        yield plane
    finally:
        plane.close()


class RealCluster(PlaneNode):
    """A node whose kubelet is played."""

    def __init__(self, host, plane, name):
        super().__init__(host, plane, name)
        plane.node(name)
        self.bind()

    def devices(self):
        return [d for s in self.slices() for d in s["spec"].get("devices", [])]

    def started(self, *options):
        self.start(*options)
        self.kubelet.register()
        wait_until(self.devices, step=0.2)
        return self

    def close(self):
        super().close()
        self.plane.kubectl("delete", "pods", "--all", "--force", "--grace-period=0")
        self.remove()


@pytest.fixture
def make_cluster(make_host, plane):
    clusters = []

    def make(spec="h100-80gb"):
        clusters.append(RealCluster(make_host(spec), plane, f"n{len(clusters) + 1}"))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.close()


def pod(name, annotations=None, labels=None, limits=None, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"tolerations": [{"operator": "Exists"}], "containers": [
                {"name": "main", "image": "x"} | ({"resources": {"limits": limits}} if limits else {})], **spec}}


def scheduled(plane, name):
    """The pod, once the scheduler has bound it."""
    return wait_until(lambda: (p := plane.get("pod", name)) and p["spec"].get("nodeName") and p, step=0.2)


def claims_of(plane, pod):
    """[claim as the kubelet names it], of a pod that is bound."""
    statuses = pod.get("status", {}).get("resourceClaimStatuses", [])
    extended = pod.get("status", {}).get("extendedResourceClaimStatus")
    names = [s["resourceClaimName"] for s in statuses] + ([extended["resourceClaimName"]] if extended else [])
    claims = [plane.get("resourceclaim", name) for name in names]
    assert claims and all(c["status"]["allocation"] for c in claims), (pod.get("status"), claims)
    return [{"namespace": "default", "name": c["metadata"]["name"], "uid": c["metadata"]["uid"]} for c in claims]


def prepared(cluster, claim):
    devices, error = cluster.kubelet.prepare(claim)[claim["uid"]]
    assert error == ""
    return devices


@pytest.mark.parametrize("words, gib", [
    (dict(annotations={"gpu-fraction": "0.5"}), 0.5),
    (dict(annotations={"gpu-memory": "4096"}), 4 * GIB),
    (dict(labels={"clearml-injector/fraction": "0.250"}, limits={"nvidia.com/gpu": "1"}), 0.25),
    (dict(limits={"clear.ml/fraction-1": "0.125"}), 0.125),
])
def test_a_spelling_becomes_a_slice(make_cluster, plane, words, gib):
    cluster = make_cluster().started()
    [device] = cluster.devices()
    whole = int(device["attributes"]["memoryMiB"]["int"]) << 20
    plane.apply(pod("p", **words))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    [got] = prepared(cluster, claim)
    [session] = cluster.sessions()
    assert abs(session["vram_bytes"] - (gib if gib > 1 else gib * whole)) <= 1 << 20
    done = cluster.container(got["cdi"], python("mem_info"))
    assert done.returncode == 0 and json.loads(done.stdout)["total"] == session["vram_bytes"], done.stderr
    plane.kubectl("delete", "pod", "p", "--force", "--grace-period=0")
    assert cluster.kubelet.unprepare(claim) == {claim["uid"]: ""}
    assert cluster.sessions() == []


def test_a_spelling_without_the_policy_that_makes_claims_is_refused(plane):
    binding = "mutatingadmissionpolicybinding", "carve-spellings"
    kept = plane.get(*binding)
    plane.kubectl("delete", *binding)
    try:
        wait_until(lambda: "annotation gpu-fraction made no claim" in plane.refusal(pod("p", {"gpu-fraction": "0.5"})), step=0.2)
    finally:
        plane.apply({"apiVersion": kept["apiVersion"], "kind": kept["kind"], "metadata": {"name": binding[1]}, "spec": kept["spec"]})
        wait_until(lambda: not plane.refusal(pod("p", {"gpu-fraction": "0.5"})), step=0.2)


def test_slices_share_a_gpu_until_it_is_full(make_cluster, plane):
    cluster = make_cluster().started()
    plane.apply(*[pod(f"p{i}", {"gpu-fraction": "0.4"}) for i in range(2)])
    claims = [claim for i in range(2) for claim in claims_of(plane, scheduled(plane, f"p{i}"))]
    for claim in claims:
        prepared(cluster, claim)
    assert len(cluster.sessions()) == 2
    plane.apply(pod("full", {"gpu-fraction": "0.4"}))
    assert "cannot allocate all claims" in unschedulable(plane, "full")
    plane.kubectl("delete", "pod", "p0", "--force", "--grace-period=0")
    assert cluster.kubelet.unprepare(claims[0]) == {claims[0]["uid"]: ""}
    [claim] = claims_of(plane, scheduled(plane, "full"))
    prepared(cluster, claim)
    assert len(cluster.sessions()) == 2


def unschedulable(plane, name):
    """The reason for which the scheduler leaves a pod."""
    def reason():
        conditions = (plane.get("pod", name) or {}).get("status", {}).get("conditions", [])
        return next((c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False" and
                     c["reason"] == "Unschedulable"), None)

    return wait_until(reason, step=0.2)


def test_several_devices_are_parts_of_as_many_gpus(make_cluster, plane):
    cluster = make_cluster("h100-80gb:3").started()
    plane.apply(pod("p", {"gpu-memory": "8192", "gpu-fraction-num-devices": "2"}))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    devices = prepared(cluster, claim)
    assert len({d["device"] for d in devices}) == 2
    [session] = cluster.sessions()
    assert [g["vram_bytes"] for g in session["gpus"]] == [8 * GIB] * 2


def test_replicas_are_the_most_slices_of_a_gpu(make_cluster, plane):
    cluster = make_cluster().started("--replicas", "2")
    plane.apply(*[pod(f"p{i}", {"gpu-memory": "1024"}) for i in range(3)])
    wait_until(lambda: sum(bool(p["spec"].get("nodeName")) for p in plane.get("pods")) == 2, step=0.2)
    [left] = [p["metadata"]["name"] for p in plane.get("pods") if not p["spec"].get("nodeName")]
    assert unschedulable(plane, left)


def with_role(cluster):
    assert cluster.host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
    cluster.started()
    wait_until(lambda: any(d["attributes"]["type"] == {"string": "mig"} for d in cluster.devices()), step=0.2)
    return cluster


def instances(cluster):
    return sorted((i["profile"], i["start"]) for i in cluster.host.carve_json("mig", "list") if i["state"] == "busy")


def test_plain_limits_are_mig_instances_that_do_not_overlap(make_cluster, plane):
    cluster = with_role(make_cluster("h100-80gb+mig"))
    plane.apply(pod("two", limits={"nvidia.com/mig-1g.10gb": "2"}), pod("large", limits={"nvidia.com/mig-3g.40gb": "1"}))
    for name in ("two", "large"):
        [claim] = claims_of(plane, scheduled(plane, name))
        prepared(cluster, claim)
    assert sorted(profile for profile, _ in instances(cluster)) == ["1g.10gb", "1g.10gb", "3g.40gb"]
    plane.apply(pod("none", limits={"nvidia.com/mig-7g.80gb": "1"}))
    assert unschedulable(plane, "none")


def test_memory_is_a_share_or_the_smallest_instance_that_has_it(make_cluster, plane):
    cluster = with_role(make_cluster("h100-80gb,h100-80gb+mig"))
    whole = next(int(d["attributes"]["memoryMiB"]["int"]) for d in cluster.devices() if d["attributes"]["type"] == {"string": "gpu"})
    # While there is a GPU without the role it is a slice of that.
    plane.apply(pod("share", {"gpu-memory": str(whole - 8192)}))
    [claim] = claims_of(plane, scheduled(plane, "share"))
    prepared(cluster, claim)
    assert [s["vram_bytes"] >> 20 for s in cluster.sessions()] == [whole - 8192] and instances(cluster) == []
    for name, mib, profile in (("p", 8192, "1g.10gb"), ("q", 12000, "1g.20gb"), ("r", 30000, "3g.40gb")):
        plane.apply(pod(name, {"gpu-memory": str(mib + 1000)}))
        [claim] = claims_of(plane, scheduled(plane, name))
        before = instances(cluster)
        prepared(cluster, claim)
        [got] = [i for i in instances(cluster) if i not in before]
        assert got[0] == profile
    plane.apply(pod("none", {"gpu-memory": "70000"}))
    assert unschedulable(plane, "none")


def test_memory_in_a_cluster_that_has_mig_alone_is_an_instance_and_a_fraction_waits(make_cluster, plane):
    cluster = with_role(make_cluster("h100-80gb+mig"))
    plane.apply(pod("p", {"gpu-memory": "4096"}), pod("half", {"gpu-fraction": "0.5"}))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    [device] = prepared(cluster, claim)
    assert [profile for profile, _ in instances(cluster)] == ["1g.10gb"]
    done = cluster.container(device["cdi"], python("mem_info"))
    assert done.returncode == 0 and json.loads(done.stdout)["total"] >= 4 * GIB, done.stderr
    assert unschedulable(plane, "half")


@pytest.mark.parametrize("key, value, words", [
    ("nvidia.com/gpu.replicas", "many", "is no number from 1 to 1000; the GPUs have no such limit of slices"),
    ("node-role.kubernetes.io/runai-mig-enabled", "yes", "sets no role; right would be true"),
    ("cdmo.clear.ml/gpu-partitioning", "MIG", "sets no role; right would be mig"),
])
def test_kubectl_warns_of_a_label_of_a_node_whose_value_means_nothing(make_cluster, plane, key, value, words):
    cluster = make_cluster().started()
    done = plane.kubectl("label", "node", cluster.name, f"{key}={value}")
    assert f"label {key}: '{value}' {words}" in done.stderr
    done = check(plane)
    assert f"label {key}: '{value}' {words}" in done.stdout
    cluster.kubelet.register()  # it looks at once
    wait_until(lambda: f"label {key}: '{value}' {words}" in plane.kubectl("describe", "node", cluster.name).stdout.partition("Events:")[2], step=0.2)
    assert plane.kubectl("label", "node", cluster.name, f"{key}-").stderr == ""


def test_an_init_container_of_the_product_of_mig_single_has_an_instance(make_cluster, plane):
    cluster = make_cluster("a100-40gb+mig")
    plane.kubectl("label", "node", cluster.name, "nvidia.com/gpu.product=A100-SXM4-40GB")
    with_role(cluster)
    plane.apply(pod("p", nodeSelector={"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}, initContainers=[
        {"name": "init", "image": "x", "resources": {"limits": {"nvidia.com/gpu": "1"}}}]))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    prepared(cluster, claim)
    assert [profile for profile, _ in instances(cluster)] == ["1g.5gb"]


def test_the_product_of_mig_single_is_an_instance(make_cluster, plane):
    cluster = make_cluster("a100-40gb+mig")
    plane.kubectl("label", "node", cluster.name, "nvidia.com/gpu.product=A100-SXM4-40GB")
    with_role(cluster)
    plane.apply(pod("p", limits={"nvidia.com/gpu": "1"}, nodeSelector={"nvidia.com/gpu.product": "A100-SXM4-40GB-MIG-1g.5gb"}))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    prepared(cluster, claim)
    assert [profile for profile, _ in instances(cluster)] == ["1g.5gb"]


def test_the_scheduler_leaves_a_place_that_the_driver_refuses(make_cluster, plane):
    cluster = with_role(make_cluster("h100-80gb+mig"))
    cluster.host.carve("sim", "fault", "mig-create", "--call", "nvmlDeviceCreateGpuInstance", "--count", "1")
    plane.apply(pod("first", limits={"nvidia.com/mig-1g.10gb": "1"}))
    [claim] = claims_of(plane, scheduled(plane, "first"))
    [refused] = [r["device"] for r in plane.get("resourceclaim", claim["name"])["status"]["allocation"]["devices"]["results"]]
    assert "the driver refuses it" in cluster.kubelet.prepare(claim)[claim["uid"]][1]
    wait_until(lambda: [d["name"] for d in cluster.devices() if {"key": "carve.dev/place-refused", "effect": "NoSchedule"}.items() <=
                        d.get("taints", [{}])[0].items()] == [refused], step=0.2)
    plane.kubectl("delete", "pod", "first", "--force", "--grace-period=0")
    wait_until(lambda: not plane.get("resourceclaims"), step=0.2)
    plane.apply(pod("second", limits={"nvidia.com/mig-1g.10gb": "1"}))
    [claim] = claims_of(plane, scheduled(plane, "second"))
    [device] = prepared(cluster, claim)
    assert device["device"] != refused


def test_a_driver_that_fails_has_its_pods_evicted(make_cluster, plane):
    cluster = make_cluster().started()
    plane.apply(pod("p", {"gpu-fraction": "0.5"}))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    prepared(cluster, claim)
    assert cluster.host.carve("sim", "fault", "lost", "--gpu", "0").returncode == 0
    wait_until(lambda: (p := plane.get("pod", "p")) is None or "deletionTimestamp" in p["metadata"], step=0.5)


def test_a_plugin_writes_slices_of_its_own_node_alone(make_cluster, plane):
    cluster = make_cluster("h100-80gb").started()
    [slice] = [s for s in plane.get("resourceslices") if s["spec"].get("nodeName") == cluster.name]
    plane.node("other")
    slice = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "of-other"},
             "spec": slice["spec"] | {"nodeName": "other", "pool": {"name": "other", "generation": 1, "resourceSliceCount": 1}}}
    (plane.dir / "slice.json").write_text(json.dumps(slice))
    done = plane.kubectl("--token", cluster.token.read_text(), "create", "-f", plane.dir / "slice.json", status=None)
    plane.kubectl("delete", "node", "other")
    assert "carve's plugin of a node changes the slices of that node only" in done.stderr


def test_a_node_that_was_deleted_and_made_again_has_its_slices(make_cluster, plane):
    """The garbage collector takes the slices of the old node away."""
    cluster = make_cluster().started()
    [before] = [s["metadata"]["uid"] for s in plane.get("resourceslices")]
    plane.kubectl("delete", "node", cluster.name)
    wait_until(lambda: not plane.get("resourceslices"), step=0.2)
    plane.node(cluster.name)
    # Tokens are bound to a node's UID; a pod that starts anew has another one, and so has the plugin here.
    cluster.kill()
    plane.token("carve-node", "--bound-object-kind=Node", f"--bound-object-name={cluster.name}")
    cluster.started()
    [after] = [s["metadata"]["uid"] for s in plane.get("resourceslices")]
    assert after != before


def test_an_api_server_that_was_killed_is_waited_for(make_cluster, plane):
    cluster = make_cluster().started()
    plane.restart("kube-apiserver")
    plane.apply(pod("p", {"gpu-fraction": "0.75"}))
    [claim] = claims_of(plane, scheduled(plane, "p"))
    prepared(cluster, claim)
    assert len(cluster.sessions()) == 1


def check(plane):
    token = plane.dir / "admin.token"
    token.write_text("administrator")
    return subprocess.run([BUILD / "carve-kubernetes", "check", "--api", plane.url, "--ca-file", plane.ca, "--token-file", token],
                          env=clean_env({}), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=60)


def controller_runs(plane):
    """The test says of the controller's pods what a kubelet and the controller of deployments, which are not there, would."""
    status = {"status": {"replicas": 2, "readyReplicas": 2, "availableReplicas": 2}}
    plane.kubectl("patch", "deployment", "carve-controller", "-n", "carve", "--subresource=status", "--type=merge", "-p", json.dumps(status))


def test_check_finds_nothing_missing(make_cluster, plane):
    make_cluster().started()
    controller_runs(plane)
    done = check(plane)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_jobs_pod_is_followed_with_the_rights_of_its_role_and_deleted_when_nobody_does(make_cluster, plane):
    make_cluster().started()
    plane.kubectl("apply", "-f", MANIFESTS / "jobs" / "role.yaml")
    token = plane.dir / "jobs.token"
    token.write_text(plane.kubectl("create", "token", "carve-jobs").stdout.strip())
    words = [BUILD / "carve-kubernetes", "run", "--api", plane.url, "--ca-file", plane.ca, "--token-file", token, "--image", "x",
             "--fraction", "0.5", "--name", "job-1", "--follow-every", "1", "--grace", "0", "--", "true"]
    process = subprocess.Popen(words, env=clean_env({}), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        mark = wait_until(lambda: (p := plane.get("pod", "job-1")) and p["metadata"]["annotations"].get("carve.dev/followed"), step=0.2)
        wait_until(lambda: plane.get("pod", "job-1")["metadata"]["annotations"]["carve.dev/followed"] != mark, step=0.5)
        assert claims_of(plane, scheduled(plane, "job-1"))
    finally:
        process.kill()
        process.wait()
    # It has no kubelet that would confirm its end.
    wait_until(lambda: (p := plane.get("pod", "job-1")) is None or "deletionTimestamp" in p["metadata"], step=0.5)


@pytest.mark.parametrize("gate", ["DRAConsumableCapacity", "DRAPartitionableDevices", "DRADeviceTaints"])
def test_a_cluster_without_a_gate_gets_no_slices_that_promise_something_else(make_cluster, plane, gate):
    """The API server drops the fields of that gate without a word."""
    plane.restart("kube-apiserver", feature_gates=f"{gate}=false")
    try:
        cluster = make_cluster("h100-80gb+mig")
        assert cluster.host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
        cluster.start()
        cluster.kubelet.register()
        wait_until(lambda: "the API server dropped spec." in cluster.log(), step=0.2)
        # The rest is no whole pool, which the scheduler passes over.
        wait_until(lambda: len(plane.get("resourceslices")) <= 1, step=0.2)
        assert not any(d["attributes"]["type"] == {"string": "mig"} for d in cluster.devices())
        done = check(plane)
        assert done.returncode != 0 and gate in done.stdout, done.stdout + done.stderr
    finally:
        plane.restart("kube-apiserver")


@pytest.mark.skipif(not shutil.which("helm"), reason="needs helm")
def test_a_real_api_server_takes_the_chart_with_any_values(plane):
    plane.kubectl("create", "namespace", "runai-reservation", status=None)
    chart = MANIFESTS / "chart"
    values = ["wholeGpus.enabled=true,migLimits.enabled=true,sharing.timeSlicing.replicas=4,global.core.timeSlicing.mode=strict",
              "reservation.enabled=true,reservation.namespace=runai-reservation"]
    for value in ["", *values]:
        done = run(["helm", "template", "carve", chart, "--namespace", "carve", "--kube-version", "1.36.0",
                    *(["--set", value] if value else [])])
        assert done.returncode == 0, done.stderr
        (plane.dir / "chart.yaml").write_text(done.stdout)
        plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", plane.dir / "chart.yaml")


@pytest.fixture
def bare_plane():
    """A cluster without anything of carve's."""
    plane = ControlPlane()
    try:
        yield plane
    finally:
        plane.close()


@pytest.mark.skipif(not shutil.which("helm"), reason="needs helm")
def test_helm_installs_changes_and_removes_the_chart(bare_plane):
    def helm(*words, status=0):
        done = run(["helm", *words, "--namespace", "carve", "--kubeconfig", bare_plane.kubeconfig])
        assert done.returncode == status, done.stdout + done.stderr
        return done

    def refused():
        return bare_plane.refusal(REFUSED)

    def modes():
        return [m["data"] for m in bare_plane.get("configmaps", "--namespace", "carve") if m["metadata"]["name"] == "carve"]

    def all_of_carve():
        kinds = "daemonsets,deployments,serviceaccounts,configmaps,clusterroles,clusterrolebindings,deviceclasses"
        kinds += ",validatingadmissionpolicies,mutatingadmissionpolicies"
        return [o["metadata"]["name"] for o in bare_plane.get(kinds, "--all-namespaces") if o["metadata"]["name"].startswith("carve")]

    chart = MANIFESTS / "chart"
    assert not all_of_carve()
    helm("install", "carve", chart, "--create-namespace")
    wait_until(refused, step=0.2)
    assert "gpu-fraction" in refused()
    assert bare_plane.get("daemonset", "carve-node", "--namespace", "carve")
    assert not modes()
    helm("upgrade", "carve", chart, "--set", "global.core.timeSlicing.mode=fair,migLimits.enabled=true")
    assert "fair" in json.dumps(modes())
    done = helm("upgrade", "carve", chart, "--set", "global.core.timeSlicing.mode=FAIR", status=1)
    assert "must be one of 'off', 'fair', 'strict'" in done.stderr
    assert "fair" in json.dumps(modes())
    assert [str(release["revision"]) for release in json.loads(helm("list", "--output", "json").stdout)] == ["2"]
    helm("rollback", "carve", "1")
    assert not modes()
    helm("uninstall", "carve", "--wait")
    wait_until(lambda: not all_of_carve(), step=0.2)
    wait_until(lambda: not refused(), step=0.2)


@pytest.mark.parametrize("name", ["whole-gpus", "reservation", "jobs/role.yaml"])
def test_a_real_api_server_takes_the_other_manifests(plane, name):
    plane.kubectl("create", "namespace", "carve-reservation", status=None)
    plane.kubectl("apply", "--dry-run=server", "--validate=strict", *(["-f"] if name.endswith("yaml") else ["-k"]), MANIFESTS / name)


def with_kubectl(plane):
    return clean_env({"KUBECONFIG": str(plane.kubeconfig), "PATH": f"{PROGRAMS}:{os.environ['PATH']}"})


def test_commands_of_carve_ask_the_cluster_by_kubectl(make_cluster, plane):
    cluster = make_cluster("h100-80gb+mig").started()
    controller_runs(plane)
    done = run([BUILD / "carve", "kubernetes", "check"], env=with_kubectl(plane))
    assert done.returncode == 0, done.stdout + done.stderr
    done = run([BUILD / "carve", "node", "set-role", "--dynamic-mig-enabled", cluster.name], env=with_kubectl(plane))
    assert done.returncode == 0, done.stderr
    assert plane.get("node", cluster.name)["metadata"]["labels"]["node-role.kubernetes.io/runai-mig-enabled"] == "true"
    cluster.kubelet.register()  # it looks at once
    wait_until(lambda: any(d["attributes"]["type"] == {"string": "mig"} for d in cluster.devices()), step=0.2)
    assert run([BUILD / "carve", "node", "remove-role", cluster.name], env=with_kubectl(plane)).returncode == 0
    cluster.kubelet.register()
    wait_until(lambda: not any(d["attributes"]["type"] == {"string": "mig"} for d in cluster.devices()), step=0.2)
