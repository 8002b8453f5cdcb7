"""All that carve writes to an API server, against the OpenAPI document of a Kubernetes release.

CARVE_TEST_K8S_OPENAPI names the file (api/openapi-spec/swagger.json of a release, or GET /openapi/v2 of a cluster)."""
import json
import os
import subprocess

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")
pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer, Cluster
from conftest import BUILD, ROOT, clean_env, wait_until
from mig_hands import carve

FILE = os.environ.get("CARVE_TEST_K8S_OPENAPI")
pytestmark = pytest.mark.skipif(not FILE, reason="needs CARVE_TEST_K8S_OPENAPI, the OpenAPI document of Kubernetes")
PACKAGING = ROOT / "packaging" / "kubernetes"
TYPES = {"string": str, "boolean": bool, "object": dict, "array": list}
# Types that take several forms of JSON.
FREE = ("IntOrString", "Quantity", "RawExtension", "JSON", "Time", "MicroTime", "FieldsV1")


@pytest.fixture(scope="module")
def faults():
    """faults(object): where it has fields that its schema does not know, lacks some, or has other types."""
    definitions = json.loads(open(FILE).read())["definitions"]
    kinds = {(k["group"], k["version"], k["kind"]): name for name, d in definitions.items()
             for k in d.get("x-kubernetes-group-version-kind", [])}

    def look(value, schema, path):
        name = schema.get("$ref", "").rpartition("/")[2]
        if name.endswith(FREE):
            return []
        schema = definitions[name] if name else schema
        kind = schema.get("type", "object" if "properties" in schema else None)
        if kind == "integer":
            return [] if type(value) is int else [f"{path} is no integer"]
        if kind in TYPES and type(value) is not TYPES[kind]:
            return [f"{path} is no {kind}"]
        if kind == "array":
            return [f for i, v in enumerate(value) for f in look(v, schema["items"], f"{path}[{i}]")]
        if kind != "object":
            return []
        known, rest = schema.get("properties", {}), schema.get("additionalProperties")
        found = [f"{path}.{key} is missing" for key in schema.get("required", []) if key not in value]
        for key, v in value.items():
            if key in known or rest:
                found += look(v, known.get(key, rest), f"{path}.{key}")
            elif known:
                found.append(f"{path}.{key} is unknown")
        return found

    def faults(object):
        group, _, version = object["apiVersion"].rpartition("/")
        return look(object, {"$ref": "#/definitions/" + kinds[group, version, object["kind"]]}, object["kind"])

    return faults


def test_a_fault_is_found(faults):
    slice = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "s"},
             "spec": {"driver": "d", "pool": {"name": "n", "generation": "1"}, "devices": [{"name": "a", "counters": []}]}}
    assert set(faults(slice)) == {"ResourceSlice.spec.pool.resourceSliceCount is missing",
                                  "ResourceSlice.spec.pool.generation is no integer",
                                  "ResourceSlice.spec.devices[0].counters is unknown"}


@pytest.mark.parametrize("file", [f for d in ("base", "whole-gpus", "mig-limits") for f in sorted((PACKAGING / d).glob("*.yaml"))
                                  if f.name != "kustomization.yaml"], ids=lambda f: f"{f.parent.name}/{f.name}")
def test_manifests_fit(faults, file):
    objects = list(yaml.safe_load_all(file.read_text()))
    assert objects and [f for o in objects for f in faults(o)] == []


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")
def test_slices_of_gpus_and_instances_fit(faults, make_host):
    host = make_host("h100-80gb+mig,a100-40gb+mig,h100-80gb")
    carve(host, "node", "set-role", "--dynamic-mig-enabled")
    cluster = Cluster(host).started()
    try:
        wait_until(lambda: any("sharedCounters" in s["spec"] for s in cluster.api.slices()) and len(cluster.api.devices()) > 30)
        assert [f for s in cluster.api.slices() for f in faults(s)] == []
    finally:
        cluster.close()


def test_templates_and_leases_fit(faults):
    api = ApiServer()
    process = subprocess.Popen([BUILD / "carve-kubernetes", "controller", "--api", api.url], env=clean_env(), stderr=subprocess.DEVNULL)
    try:
        api.gpus("n1", 81079)
        for name in ("carve-fraction-0.5", "carve-memory-4096-x2"):
            api.pod(name, name)
        wait_until(lambda: len(api.templates()) == 2)
        written = [o for p, o in api.objects.items() if "/resourceclaimtemplates/" in p or "/leases/" in p]
        assert len(written) == 3 and [f for o in written for f in faults(o)] == []
    finally:
        process.terminate()
        process.wait(60)
        api.close()
