"""carve kubernetes check: what a cluster lacks, told with what to do about it."""
import json
import os

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer
from conftest import BUILD, clean_env, run

CLASSES = "/apis/resource.k8s.io/v1/deviceclasses"
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
POLICIES = [f"mutatingadmissionpolic{end}/carve-spellings" for end in ("ies", "ybindings")] + \
    [f"validatingadmissionpolic{end}/{name}" for end in ("ies", "ybindings") for name in ("carve-spellings", "carve-own-slices")]
OBJECTS = [f"{CLASSES}/gpu.carve.dev", *[f"{ADMISSION}/{policy}" for policy in POLICIES]]
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


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_is_there_and_in_force(api, policy):
    api.delete(f"{ADMISSION}/{policy}")
    assert bad(api) == [(f"{policy} is missing", "kubectl apply -k packaging/kubernetes/base")]


def test_a_class_whose_resource_was_dropped_is_told(api):
    path = f"{CLASSES}/whole-gpu.carve.dev"
    api.put(f"{CLASSES}/other.example", {"metadata": {"name": "other.example"}, "spec": {}})
    api.put(path, {"metadata": {"name": "whole-gpu.carve.dev"}, "spec": {"extendedResourceName": "nvidia.com/gpu"}})
    assert check(api).returncode == 0
    api.put(path, {"metadata": {"name": "whole-gpu.carve.dev"}, "spec": {}})
    [(message, hint)] = bad(api)
    assert message == "class whole-gpu.carve.dev has no extended resource" and "DRAExtendedResource" in hint


def test_a_controller_that_does_not_run_is_told(api):
    api.objects[CONTROLLER]["status"] = {"replicas": 2}
    [(message, hint)] = bad(api)
    assert message == "no pod of the controller is ready" and hint.startswith("kubectl -n carve get pods")
    api.delete(CONTROLLER)
    assert bad(api) == [("the controller is missing", "kubectl apply -k packaging/kubernetes/base")]


def test_a_device_plugin_may_stay_beside_reservations(api):
    api.put("/api/v1/nodes/n1", {"metadata": {"name": "n1"}, "status": {"allocatable": {"nvidia.com/gpu": "8"}}})
    assert [message for message, _ in bad(api)] == ["node n1 has slices, and a device plugin hands out its GPUs, too"]
    api.put("/apis/apps/v1/namespaces/carve/daemonsets/carve-node", {
        "metadata": {"name": "carve-node", "labels": {"app.kubernetes.io/name": "carve-node"}},
        "spec": {"template": {"spec": {"containers": [{"name": "plugin", "args": ["--reserve-namespace", "carve-reservation"]}]}}}})
    assert check(api).returncode == 0


def test_an_api_server_that_is_away_is_code_4(api):
    api.down = True
    done = check(api)
    assert done.returncode == 4 and "does not answer" in done.stderr and done.stderr.count("\n") == 1


def test_without_an_address_kubectl_is_asked(api, tmp_path):
    script = tmp_path / "kubectl"
    script.write_text(f"#!/bin/sh\nif [ $1 = create ]; then exec curl -sf -X POST -H 'Content-Type: application/json' -d @- \"{api.url}$3\"; fi\n"
                      f"exec curl -sf \"{api.url}$3\"\n")
    script.chmod(0o755)
    env = clean_env({"PATH": f"{tmp_path}:{os.environ['PATH']}"})
    done = run([BUILD / "carve", "kubernetes", "check"], env=env)
    assert done.returncode == 0, done.stdout + done.stderr
