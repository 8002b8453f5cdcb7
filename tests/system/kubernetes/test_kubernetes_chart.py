"""packaging/kubernetes/chart: with its own values it is the same as the kustomize manifests; values change what they say."""
import json
import shutil

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

from conftest import BUILD, ROOT, VERSION, run
from helm import Chart, Refused, merged

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
                c["image"] = f"carve:{VERSION}"
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


def refusal(*options):
    """The words of helm on its standard error."""
    done = run(["helm", "template", "carve", PACKAGING / "chart", "--kube-version", "1.36.0", *options])
    assert done.returncode == 1, done.stdout
    return done.stderr


WRONG_VALUES = [
    ("global.core.timeSlicing.mode=FAIR", "/global/core/timeSlicing/mode': value must be one of 'off', 'fair', 'strict'"),
    ("global.core.timeSlicing.granularity=7", "/global/core/timeSlicing/granularity'"),
    ("global.core.timeSlicing.granularity=150", "/global/core/timeSlicing/granularity'"),
    ("global.core.timeSlicing.granularity=abc", "/global/core/timeSlicing/granularity'"),
    ("global.core.timeSlicing.lease=4ms", "/global/core/timeSlicing/lease': '4ms' does not match"),
    ("wholeGPUs.enabled=true", "'wholeGPUs' not allowed"),
    ("sharing.timeSlicing.replicas=-1", "/sharing/timeSlicing/replicas': minimum: got -1, want 0"),
    ("sharing.timeSlicing.replicas=1001", "/sharing/timeSlicing/replicas': maximum: got 1,001, want 1,000"),
    ("node.nodeSelector.gpu=true", "/node/nodeSelector/gpu': got boolean, want string"),
    ("reservation.label=app", "/reservation/label': 'app' does not match"),
    ("reservation.namespace=Own_Pods", "/reservation/namespace': 'Own_Pods' does not match"),
    ("image.tag=20261127", "/image/tag': got number, want string"),
    ("driverRoot=/", "/driverRoot': '/' does not match"),
    ("node.maxUnavailable=0", "/node/maxUnavailable': minimum: got 0, want 1"),
]


@pytest.mark.skipif(not shutil.which("helm"), reason="needs helm")
@pytest.mark.parametrize("option, words", WRONG_VALUES)
def test_a_wrong_value_is_refused_before_the_cluster_is_changed(option, words):
    assert words in refusal("--set", option)


@pytest.mark.skipif(not shutil.which("helm"), reason="needs helm")
def test_a_mode_that_yaml_takes_for_false_is_refused(tmp_path):
    values = tmp_path / "values.yaml"
    values.write_text("global: {core: {timeSlicing: {mode: off}}}")
    assert "/global/core/timeSlicing/mode': value must be one of 'off'" in refusal("-f", values)


def value_faults(values):
    """The places of values that the chart's schema refuses, as helm asks it."""
    jsonschema = pytest.importorskip("jsonschema", reason="needs python3-jsonschema")
    schema = json.loads((PACKAGING / "chart" / "values.schema.json").read_text())
    own = yaml.safe_load((PACKAGING / "chart" / "values.yaml").read_text())
    return ["/".join(map(str, e.absolute_path)) for e in jsonschema.Draft7Validator(schema).iter_errors(merged(own, values))]


def nested(option):
    """{a: {b: value}} of a.b=value."""
    key, _, text = option.partition("=")
    value = yaml.safe_load(text)
    for name in reversed(key.split(".")):
        value = {name: value}
    return value


@pytest.mark.parametrize("option", [option for option, _ in WRONG_VALUES])
def test_the_schema_refuses_a_wrong_value_at_its_place(option):
    assert value_faults({}) == []
    place = option.partition("=")[0].replace(".", "/")
    assert value_faults(nested(option)) == [place if place != "wholeGPUs/enabled" else ""]


SLICINGS = [("granularity", value) for value in (7, 150, "abc", "7", "150", "51%", "0.9%", "50.1%", 0.009, 0.51, "0.51", "0.009", "", "5 %", -1, True, "5%%")]
SLICINGS += [("granularity", value) for value in ("5%", "1%", "50%", "12.5%", "49.9999%", 0.05, 0.01, 0.5, "0.05", ".5", "0.01", "0.49", "0.123456")]
SLICINGS += [("lease", value) for value in ("abc", "4ms", "4.9ms", "10001ms", "11s", "10.1s", "0.004s", "", 250, "250", "1h", "0s", "-5ms")]
SLICINGS += [("lease", value) for value in ("250ms", "5ms", "5.5ms", "9999.9ms", "10000ms", "10s", "0.005s", "0.25s", ".5s", "1.5s", "9.999s", "0.010s")]


@pytest.mark.parametrize("key, value", SLICINGS)
def test_the_schema_takes_what_the_nodes_programs_take(tmp_path, key, value):
    faults = value_faults({"global": {"core": {"timeSlicing": {"mode": "fair", key: value}}}})
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"timeSlicing": {"mode": "fair", key: value}}))
    done = run([BUILD / "carved", "--check-config", "--config", config])
    assert (faults == []) == (done.returncode == 0), (faults, done.stderr)
    assert faults in ([], [f"global/core/timeSlicing/{key}"])


@pytest.mark.parametrize("mode, faults", [("fair", []), ("strict", []), ("'off'", []), ("off", ["global/core/timeSlicing/mode"])])
def test_a_mode_that_yaml_takes_for_false_is_refused_by_the_schema(mode, faults):
    assert value_faults(yaml.safe_load(f"global: {{core: {{timeSlicing: {{mode: {mode}}}}}}}")) == faults


def schema_faults(schema, values, definitions, path=""):
    """Values without a place in the schema."""
    schema = definitions[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema
    known = schema.get("properties")
    if not isinstance(values, dict) or known is None:
        return []
    faults = [f"{path}/{name}" for name in values if name not in known]
    return faults + [f for name in values if name in known for f in schema_faults(known[name], values[name], definitions, f"{path}/{name}")]


def test_the_schema_knows_every_value():
    schema = json.loads((PACKAGING / "chart" / "values.schema.json").read_text())
    values = yaml.safe_load((PACKAGING / "chart" / "values.yaml").read_text())
    assert schema_faults(schema, values, schema["definitions"]) == []


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
    assert {"/data/kubelet/plugins/gpu.carve.dev", "/data/kubelet/plugins_registry"} <= {m["mountPath"] for m in plugin["volumeMounts"]}


@pytest.mark.parametrize("renderer", RENDERERS)
def test_reservations_are_made_where_a_value_says_so_and_with_no_other_rights(renderer):
    off, on = renderer(), renderer(reservation={"enabled": True, "namespace": "runai-reservation", "label": "app=runai-reservation"})
    assert not any("reservation" in json.dumps(o) for o in off)
    objects = keyed(on)
    plugin = next(c for c in containers(objects["DaemonSet", "carve-node"]) if c["name"] == "plugin")
    assert plugin["args"] == ["--reserve-namespace", "runai-reservation", "--reserve-image", f"carve:{VERSION}", "--reserve-label",
                              "app=runai-reservation", "--reserve-resource", "nvidia.com/gpu"]
    role = objects["Role", "carve-reservation"]
    assert role["metadata"]["namespace"] == "runai-reservation"
    assert [(r["resources"], r["verbs"]) for r in role["rules"]] == [(["pods"], ["list", "watch", "create", "delete"]), (["pods/log"], ["get"])]


@pytest.mark.parametrize("objects", RENDERERS)
def test_a_namespace_that_is_there_is_not_made(objects):
    made = keyed(objects(reservation={"enabled": True, "namespace": "runai-reservation", "createNamespace": False}))
    assert not any(kind == "Namespace" for kind, _ in made)
    assert made["Role", "carve-reservation"]["metadata"]["namespace"] == "runai-reservation"


BOTH = {"wholeGpus": {"enabled": True}, "reservation": {"enabled": True}}


def test_whole_gpus_have_one_owner():
    with pytest.raises(Refused, match="wholeGpus.enabled and reservation.enabled exclude each other"):
        render(**BOTH)


@pytest.mark.skipif(not shutil.which("helm"), reason="needs helm")
def test_helm_refuses_two_owners_of_whole_gpus():
    options = [word for key, value in BOTH.items() for word in ("--set-json", f"{key}={json.dumps(value)}")]
    assert "wholeGpus.enabled and reservation.enabled exclude each other" in refusal(*options)


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


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
def test_reservations_by_kustomize_have_the_image_of_the_base(tmp_path):
    shutil.copytree(PACKAGING, tmp_path / "kubernetes")
    base = tmp_path / "kubernetes" / "base" / "kustomization.yaml"
    base.write_text(base.read_text().replace("newName: carve", "newName: registry.example/carve").replace(f'newTag: "{VERSION}"', 'newTag: "1.2"'))
    done = run(["kubectl", "kustomize", tmp_path / "kubernetes" / "reservation"])
    assert done.returncode == 0, done.stderr
    made = keyed([o for o in yaml.safe_load_all(done.stdout) if o])
    plugin = next(c for c in containers(made["DaemonSet", "carve-node"]) if c["name"] == "plugin")
    assert plugin["args"][2:4] == ["--reserve-image", plugin["image"]] == ["--reserve-image", "registry.example/carve:1.2"]
