"""carve kubernetes check: what a cluster lacks, told with what to do about it."""
import json
import os

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer
from conftest import BUILD, clean_env, rest_long, run

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = [f"mutatingadmissionpolic{end}/{name}" for end in ("ies", "ybindings") for name in ("carve-spellings", "carve-other-spellings")] + \
    [f"validatingadmissionpolic{end}/{name}" for end in ("ies", "ybindings") for name in ("carve-spellings", "carve-other-spellings", "carve-own-slices", "carve-templates", "carve-host-paths")]
OBJECTS = [f"{CLASSES}/gpu.carve.dev", f"{CLASSES}/mig.carve.dev", *[f"{ADMISSION}/{policy}" for policy in POLICIES]]
CONTROLLER = "/apis/apps/v1/namespaces/carve/deployments/carve-controller"


@pytest.fixture
def api():
    server = ApiServer()
    server.put("/version", {"major": "1", "minor": "36", "gitVersion": "v1.36.2"})
    for path in OBJECTS:
        server.put(path, {"metadata": {"name": path.rpartition("/")[2]}})
    server.put("/api/v1/nodes/n1", {"metadata": {"name": "n1", "labels": {"nvidia.com/gpu.present": "true"}}})
    server.gpus("n1", 81079)
    server.put(CONTROLLER, {"metadata": {"name": "carve-controller", "labels": {"app.kubernetes.io/name": "carve-controller"}},
                            "status": {"availableReplicas": 2}})
    yield server
    server.close()


def check(api, *words):
    return run([BUILD / "carve", "kubernetes", "check", "--api", api.url, *words])


def bad(api):
    done = check(api, "--json")
    assert done.returncode == 1, done.stderr
    return [(f["message"], f["hint"]) for f in json.loads(done.stdout) if not f["ok"]]


def test_a_cluster_with_all_of_it_passes(api):
    done = check(api)
    assert done.returncode == 0 and "BAD" not in done.stdout and "node n1 has slices" in done.stdout
    assert all(f["ok"] for f in json.loads(check(api, "--json").stdout))
    assert not [p for p in api.objects if "carve-check" in p]


def test_the_check_tells_what_is_missing(api):
    api.put("/version", {"minor": "34+", "gitVersion": "v1.34.1"})
    api.drop = ["taints"]
    for path in OBJECTS:
        api.delete(path)
    api.put("/api/v1/nodes/n2", {"metadata": {"name": "n2", "labels": {"nvidia.com/gpu.present": "true"}}})
    api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    found = "\n".join(f"{message}; {hint}" for message, hint in bad(api))
    for words in ("v1.34.1; carve needs Kubernetes 1.36", "drops spec.devices[0].taints; switch the feature gate DRADeviceTaints on",
                  "gpu.carve.dev is missing; kubectl apply", "node n2 has GPUs and no slices",
                  "node n1 has slices, and a device plugin hands out its GPUs, too; remove"):
        assert words in found


@pytest.mark.parametrize("option", ["--token-file", "--ca-file"])
def test_a_file_that_cannot_be_read_is_named_and_nothing_is_asked_without_it(api, option):
    done = run([BUILD / "carve-kubernetes", "check", "--api", api.url, option, "/nowhere"])
    assert done.returncode == 2 and done.stderr == f"carve-kubernetes: {option} /nowhere: No such file or directory\n"
    assert api.calls == []


@pytest.mark.parametrize("actions", [["Warn"], ["Audit"]])
def test_a_binding_that_does_not_refuse_is_named(api, actions):
    binding = "validatingadmissionpolicybindings/carve-spellings"
    api.put(f"{ADMISSION}/{binding}", {"metadata": {"name": "carve-spellings"}, "spec": {"validationActions": actions}})
    assert bad(api) == [(f"{binding} refuses nothing", "kubectl apply -k /usr/share/carve/kubernetes/base")]


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_there_and_in_force(api, policy):
    api.delete(f"{ADMISSION}/{policy}")
    assert bad(api) == [(f"{policy} is missing", "kubectl apply -k /usr/share/carve/kubernetes/base")]


def test_a_class_whose_resource_was_dropped_is_told(api):
    path = f"{CLASSES}/whole-gpu.carve.dev"
    api.put(f"{CLASSES}/other.example", {"metadata": {"name": "other.example"}, "spec": {}})
    api.put(path, {"metadata": {"name": "whole-gpu.carve.dev"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}})
    assert check(api).returncode == 0
    api.put(path, {"metadata": {"name": "whole-gpu.carve.dev"}, "spec": {}})
    [(message, hint)] = bad(api)
    assert message == "class whole-gpu.carve.dev has no extended resource" and "DRAExtendedResource" in hint


@pytest.mark.parametrize("version, minor, good", [("v1.36.2", "36", True), ("v1.36.3-gke.1", "36+", True), ("v1.36.0", "36", False), ("v1.36.1-eks-2", "36+", False),
                                                  ("v1.37.0", "37", True), ("v1.35.9", "35", False)])
def test_a_release_that_gives_one_part_twice_is_told(api, version, minor, good):
    api.put("/version", {"major": "1", "minor": minor, "gitVersion": version})
    assert check(api).returncode == (not good)
    if not good:
        assert bad(api) == [(f"the API server is {version}", "carve needs Kubernetes 1.36.2 or newer; 1.36.0 and 1.36.1 can give one part of a GPU twice")]


@pytest.mark.parametrize("name", ["gpu.carve.dev", "mig.carve.dev"])
def test_a_class_that_was_deleted_is_told(api, name):
    api.delete(f"{CLASSES}/{name}")
    assert bad(api) == [(f"deviceclasses/{name} is missing", "kubectl apply -k /usr/share/carve/kubernetes/base")]


def test_a_gate_that_was_closed_after_the_classes_were_made_is_told(api):
    """The classes that are there keep their resources; no pod gets them."""
    api.drop = ["extendedResourceName"]
    done = check(api)
    assert done.returncode == 0 and "DRAExtendedResource is off; whole-gpus and mig-limits would need it" in done.stdout
    api.drop = []
    api.put(f"{CLASSES}/mig-1g.10gb.carve.dev", {"metadata": {"name": "mig-1g.10gb.carve.dev"},
                                                 "spec": {"extendedResourceName": "nvidia.com/mig-1g.10gb"}})
    assert check(api).returncode == 0
    api.drop = ["extendedResourceName"]
    [(message, hint)] = bad(api)
    assert message.startswith("the feature gate DRAExtendedResource is off") and hint.startswith("switch the gate on")
    assert not [p for p in api.objects if "check" in p]


@pytest.mark.parametrize("taints, told", [
    ([{"key": "carve.dev/driver-failed", "effect": "NoExecute"}], True), ([{"key": "example/seen", "effect": "None"}], False), ([], False),
])
def test_a_node_whose_only_device_is_tainted_is_told(api, taints, told):
    [slice] = api.slices()
    slice["spec"]["devices"][0]["taints"] = taints
    if told:
        assert bad(api) == [("node n1 has no device that pods can get: they have the taint carve.dev/driver-failed",
                             "/usr/share/doc/carve/admin/cluster.md says what each taint means (When something is wrong)")]
        slice["spec"]["devices"].append({"name": "gpu-1", "attributes": {}})
    assert check(api).returncode == 0
    slice["spec"]["devices"] = []
    assert [message for message, _ in bad(api)] == ["node n1 has no device that pods can get"]


def test_settings_that_carved_did_not_take_are_told(api):
    [slice] = api.slices()
    slice["spec"]["devices"][0]["attributes"]["settingsProblem"] = {"string": "granularity: '7' is outside 1% to 50%"}
    assert bad(api) == [("node n1: carved kept its old settings: granularity: '7' is outside 1% to 50%",
                         "correct global.core.timeSlicing of the chart, or carved's configuration file")]


def test_each_wrong_label_of_a_node_is_told(api):
    api.objects["/api/v1/nodes/n1"]["metadata"]["labels"].update({
        "nvidia.com/gpu.replicas": "many", "node-role.kubernetes.io/runai-mig-enabled": "yes", "cdmo.clear.ml/gpu-partitioning": "MIG"})
    assert [message.split("'")[0] for message, _ in bad(api)] == [
        f"node n1: label {key}: " for key in ("nvidia.com/gpu.replicas", "node-role.kubernetes.io/runai-mig-enabled", "cdmo.clear.ml/gpu-partitioning")]


def test_a_controller_that_does_not_run_is_told(api):
    api.objects[CONTROLLER]["status"] = {"replicas": 2}
    [(message, hint)] = bad(api)
    assert message == "no pod of the controller is ready" and hint.startswith("kubectl -n carve get pods")
    # Wherever a chart has put it.
    elsewhere = CONTROLLER.replace("/carve/", "/gpus/")
    api.put(elsewhere, api.delete(CONTROLLER))["metadata"]["namespace"] = "gpus"
    [(message, hint)] = bad(api)
    assert message == "no pod of the controller is ready" and hint.startswith("kubectl -n gpus get pods")
    api.delete(elsewhere)
    assert bad(api) == [("the controller is missing", "kubectl apply -k /usr/share/carve/kubernetes/base")]


def test_a_node_without_slices_is_told_with_where_its_plugin_logs(api):
    api.put("/api/v1/nodes/n2", {"metadata": {"name": "n2", "labels": {"nvidia.com/gpu.present": "true"}}})
    assert bad(api) == [("node n2 has GPUs and no slices", "kubectl apply -k /usr/share/carve/kubernetes/base")]
    api.put("/apis/apps/v1/namespaces/gpus/daemonsets/carve-node",
            {"metadata": {"name": "carve-node", "namespace": "gpus", "labels": {"app.kubernetes.io/name": "carve-node"}}})
    assert bad(api) == [("node n2 has GPUs and no slices", "kubectl -n gpus logs -l app.kubernetes.io/name=carve-node -c plugin")]


@pytest.mark.parametrize("key, value, right", [("nvidia.com/gpu.replicas", "many", "4"), ("nvidia.com/gpu.replicas", "1001", "4"),
                                               ("node-role.kubernetes.io/runai-mig-enabled", "yes", "true"),
                                               ("cdmo.clear.ml/gpu-partitioning", "MIG", "mig")])
def test_a_label_whose_value_means_nothing_is_told(api, key, value, right):
    node = api.objects["/api/v1/nodes/n1"]
    node["metadata"]["labels"][key] = value
    [(message, hint)] = bad(api)
    assert message.startswith(f"node n1: label {key}: '{value}' ") and hint == f"kubectl label --overwrite node NODE {key}={right}"
    node["metadata"]["labels"][key] = right
    assert check(api).returncode == 0


def test_a_label_that_an_option_takes_the_place_of_is_not_told(api):
    api.objects["/api/v1/nodes/n1"]["metadata"]["labels"]["nvidia.com/gpu.replicas"] = "many"
    api.put("/apis/apps/v1/namespaces/carve/daemonsets/carve-node", {
        "metadata": {"name": "carve-node", "labels": {"app.kubernetes.io/name": "carve-node"}},
        "spec": {"template": {"spec": {"containers": [{"name": "plugin", "command": ["carve-kubernetes", "node", "--replicas", "4", "--hook-dir", "/h"]}]}}}})
    assert check(api).returncode == 0


@pytest.mark.parametrize("with_hook", [["--hook-dir", "/var/lib/carve-node/hook"], ["--hook-dir=/var/lib/carve-node/hook"]])
def test_a_plugin_without_the_hook_is_told(api, with_hook):
    plugin = {"name": "plugin", "args": ["node"]}
    daemons = {"metadata": {"name": "carve-node", "labels": {"app.kubernetes.io/name": "carve-node"}},
               "spec": {"template": {"spec": {"containers": [{"name": "carved", "args": ["--pod"]}, plugin]}}}}
    api.put("/apis/apps/v1/namespaces/carve/daemonsets/carve-node", daemons)
    [(message, hint)] = bad(api)
    assert "run without --hook-dir" in message and "--hook-dir" in hint
    plugin["args"] += with_hook
    api.put("/apis/apps/v1/namespaces/carve/daemonsets/carve-node", daemons)
    assert check(api).returncode == 0


@pytest.mark.parametrize("what", rest_long(["deviceclasses", "nodes", "mutatingadmissionpolicies", "deployments", "daemonsets"], 2))
def test_objects_that_the_user_may_not_see_are_not_reported_as_missing(api, what):
    api.forbidden = f"/{what}"
    found = bad(api)
    assert found and all("403" in message and ("must see" in hint or "is not known" in hint) for message, hint in found)


def test_a_device_plugin_may_stay_beside_reservations(api):
    api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    assert [message for message, _ in bad(api)] == ["node n1 has slices, and a device plugin hands out its GPUs, too"]
    api.put("/apis/apps/v1/namespaces/carve/daemonsets/carve-node", {
        "metadata": {"name": "carve-node", "labels": {"app.kubernetes.io/name": "carve-node"}},
        "spec": {"template": {"spec": {"containers": [{"name": "plugin", "args": ["--reserve-namespace", "carve-reservation", "--hook-dir", "/h"]}]}}}})
    assert check(api).returncode == 0


def test_an_api_server_that_is_away_is_code_4(api):
    api.down = True
    done = check(api)
    assert done.returncode == 4 and "does not answer" in done.stderr and done.stderr.count("\n") == 1


@pytest.fixture
def with_kubectl(tmp_path):
    """Runs the check with a kubectl that is this script, and knows no other cluster."""
    def check(script, *words):
        (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "kubectl").chmod(0o755)
        return run([BUILD / "carve", "kubernetes", "check", *words],
                   env=clean_env({"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}))

    return check


def test_without_an_address_kubectl_is_asked(api, with_kubectl):
    done = with_kubectl(f"if [ $1 = create ]; then exec curl -sf -X POST -H 'Content-Type: application/json' -d @- \"{api.url}$3\"; fi\n"
                        f"exec curl -sf \"{api.url}$3\"")
    assert done.returncode == 0, done.stdout + done.stderr


NO_CLUSTER = "name a configuration by KUBECONFIG, or the API server by --api URL"


@pytest.mark.parametrize("words, code, line", [
    ("The connection to the server localhost:8080 was refused - did you specify the right host or port?", 4,
     f"kubectl has no configuration that names a cluster; {NO_CLUSTER}"),
    ("\nUnable to connect to the server: no such host\nTo learn more", 4,
     f"kubectl reaches no cluster: Unable to connect to the server: no such host; {NO_CLUSTER}"),
    ("", 4, f"kubectl reaches no cluster: it does not say why; {NO_CLUSTER}"),
    ("error: You must be logged in to the server (Unauthorized)", 5,
     "kubectl may not ask for /version: error: You must be logged in to the server (Unauthorized)"),
    ("Error from server (InternalError): \33[2Jetcd", 1,
     "kubectl could not ask for /version: Error from server (InternalError): \\x1b[2Jetcd"),
])
def test_a_kubectl_that_fails_is_told_in_one_line(with_kubectl, words, code, line):
    for options in ([], ["--json"]):
        done = with_kubectl(f"printf '%b\\n' '{words}' >&2\nexit 1", *options)
        assert (done.returncode, done.stdout, done.stderr) == (code, "", f"carve-kubernetes: {line}\n")


def test_without_kubectl_the_check_says_what_to_name(tmp_path):
    done = run([BUILD / "carve", "kubernetes", "check"], env=clean_env({"PATH": str(tmp_path)}))
    assert done.returncode == 4 and done.stderr == \
        "carve-kubernetes: no API server is named, and there is no kubectl; give --api URL, or install kubectl\n"
