"""packaging/kubernetes/chart: with its own values it is the same as the kustomize manifests; values change what they say."""
import json
import shutil

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

from conftest import BUILD, ROOT, run
from helm import Chart

PACKAGING = ROOT / "packaging" / "kubernetes"
CLUSTER_WIDE = {"ClusterRole", "ClusterRoleBinding", "DeviceClass", "MutatingAdmissionPolicy", "MutatingAdmissionPolicyBinding",
                "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"}


def render(namespace="carve", **values):
    return Chart(PACKAGING / "chart", namespace, **values).objects()


def by_helm(namespace="carve", **values):
    done = run(["helm", "template", "carve", PACKAGING / "chart", "--namespace", namespace, "--kube-version", "1.36.0",
                *[w for k, v in values.items() for w in ("--set-json", f"{k}={json.dumps(v)}")]])
    assert done.returncode == 0, done.stderr
    return [o for o in yaml.safe_load_all(done.stdout) if o]


RENDERERS = [render, pytest.param(by_helm, marks=pytest.mark.skipif(not shutil.which("helm"), reason="needs helm"))]


def containers(object):
    spec = object["spec"]["template"]["spec"]
    return spec.get("initContainers", []) + spec["containers"]


def keyed(objects):
    """By kind and name; what the chart says besides is left out where it is the API server's own default."""
    for o in objects:
        if o["kind"] in ("DaemonSet", "Deployment"):
            for c in containers(o):
                assert c.pop("imagePullPolicy", "IfNotPresent") == "IfNotPresent"
    return {(o["kind"], o["metadata"]["name"]): o for o in objects}


def kustomized(name):
    """What `kubectl kustomize` makes of a directory, as far as these use it: the namespace and the image."""
    file = yaml.safe_load((PACKAGING / name / "kustomization.yaml").read_text())
    objects = []
    for resource in file["resources"]:
        path = PACKAGING / name / resource
        objects += kustomized(resource.rpartition("/")[2]) if path.is_dir() else list(yaml.safe_load_all(path.read_text()))
    for o in objects:
        if o["kind"] not in CLUSTER_WIDE | {"Namespace"}:
            o["metadata"]["namespace"] = "carve"
        if o["kind"] in ("DaemonSet", "Deployment"):
            for c in containers(o):
                c["image"] = "carve:0.1.0"
    return objects


@pytest.mark.parametrize("objects", RENDERERS)
@pytest.mark.parametrize("directory, values", [("base", {}), ("whole-gpus", {"wholeGpus": {"enabled": True}}),
                                               ("mig-limits", {"migLimits": {"enabled": True}})])
def test_the_chart_is_the_same_as_the_manifests(objects, directory, values):
    expected = keyed(kustomized(directory))
    # Helm makes the release's namespace itself.
    del expected["Namespace", "carve"]
    assert keyed(objects(**values)) == expected


@pytest.mark.parametrize("objects", RENDERERS)
def test_it_can_be_in_another_namespace(objects):
    for o in objects("gpus"):
        assert o["kind"] in CLUSTER_WIDE or o["metadata"]["namespace"] == "gpus"
        assert all(s["namespace"] == "gpus" for s in o.get("subjects", []))
        if o["metadata"]["name"] == "carve-own-slices" and "matchConditions" in o["spec"]:
            assert "system:serviceaccount:gpus:carve-node'" in o["spec"]["matchConditions"][0]["expression"]


@pytest.mark.parametrize("objects", RENDERERS)
def test_time_slicing_is_named_as_run_ai_does(objects, tmp_path):
    slicing = {"mode": "strict", "lease": "250ms"}
    built = keyed(objects(**{"global": {"core": {"timeSlicing": slicing}}}))
    node = built["DaemonSet", "carve-node"]["spec"]["template"]
    carved = next(c for c in node["spec"]["containers"] if c["name"] == "carved")
    [file] = built["ConfigMap", "carve"]["data"].items()
    assert carved["command"][-2:] == ["--config", f"/etc/carve/{file[0]}"]
    # A change of it restarts the daemons.
    assert json.loads(node["metadata"]["annotations"]["carve.dev/time-slicing"]) == slicing
    config = tmp_path / file[0]
    config.write_text(file[1])
    done = run([BUILD / "carved", "--check-config", "--config", config])
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("objects", RENDERERS)
def test_values_reach_what_they_are_for(objects):
    built = keyed(objects(image={"repository": "registry.example/carve", "tag": "1.2", "pullPolicy": "IfNotPresent"},
                          imagePullSecrets=[{"name": "key"}], kubeletDir="/data/kubelet",
                          node={"nodeSelector": {"nvidia.com/gpu.present": "yes"}, "tolerations": [], "maxUnavailable": 2},
                          controller={"replicas": 3, "resources": {}}, sharing={"timeSlicing": {"replicas": 4}}))
    node, controller = built["DaemonSet", "carve-node"]["spec"], built["Deployment", "carve-controller"]["spec"]
    assert {c["image"] for o in built.values() if o["kind"] in ("DaemonSet", "Deployment") for c in containers(o)} == \
        {"registry.example/carve:1.2"}
    spec = node["template"]["spec"]
    assert spec["nodeSelector"] == {"nvidia.com/gpu.present": "yes"} and spec["imagePullSecrets"] == [{"name": "key"}] and spec["tolerations"] == []
    assert node["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 2 and controller["replicas"] == 3
    plugin = next(c for c in spec["containers"] if c["name"] == "plugin")
    assert plugin["command"][-4:] == ["--kubelet-dir", "/data/kubelet", "--replicas", "4"]
    assert {"/data/kubelet/plugins", "/data/kubelet/plugins_registry"} <= {m["mountPath"] for m in plugin["volumeMounts"]}


@pytest.mark.parametrize("renderer", RENDERERS)
def test_reservations_are_made_where_a_value_says_so_and_with_no_other_rights(renderer):
    off, on = renderer(), renderer(reservation={"enabled": True, "namespace": "runai-reservation", "label": "app=runai-reservation"})
    assert not any("reservation" in json.dumps(o) for o in off)
    objects = keyed(on)
    plugin = next(c for c in containers(objects["DaemonSet", "carve-node"]) if c["name"] == "plugin")
    assert plugin["args"] == ["--reserve-namespace", "runai-reservation", "--reserve-image", "carve:0.1.0", "--reserve-label",
                              "app=runai-reservation", "--reserve-resource", "nvidia.com/gpu"]
    role = objects["Role", "carve-reservation"]
    assert role["metadata"]["namespace"] == "runai-reservation"
    assert [(r["resources"], r["verbs"]) for r in role["rules"]] == [(["pods"], ["list", "create", "delete"]), (["pods/log"], ["get"])]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
def test_reservations_by_kustomize_are_those_of_the_chart():
    done = run(["kubectl", "kustomize", PACKAGING / "reservation"])
    assert done.returncode == 0, done.stderr
    made = keyed([o for o in yaml.safe_load_all(done.stdout) if o])
    wanted = keyed(render(reservation={"enabled": True}))
    for key in (("Role", "carve-reservation"), ("RoleBinding", "carve-reservation")):
        assert made[key] == wanted[key]
    plugins = [next(c for c in containers(o["DaemonSet", "carve-node"]) if c["name"] == "plugin") for o in (made, wanted)]
    assert plugins[1]["args"][:6] == plugins[0]["args"]
