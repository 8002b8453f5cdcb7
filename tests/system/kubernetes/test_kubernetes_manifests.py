"""packaging/kubernetes: the manifests are whole, and give carve's programs the rights that they use and no others."""
import json
import os
import re
import shutil
import subprocess

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")
pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer, Cluster
from conftest import BUILD, ROOT, VERSION, clean_env, run, wait_until

BASE = ROOT / "packaging" / "kubernetes" / "base"


@pytest.fixture(scope="module")
def objects():
    names = yaml.safe_load((BASE / "kustomization.yaml").read_text())["resources"]
    return [o for name in names for o in yaml.safe_load_all((BASE / name).read_text())]


def rights(objects, account):
    """{(group, resource, verb)} of a service account."""
    bound = [o["roleRef"]["name"] for o in objects if o["kind"].endswith("RoleBinding") and
             any(s["name"] == account for s in o["subjects"])]
    return {(group, resource, verb) for o in objects if o["kind"] in ("Role", "ClusterRole") and o["metadata"]["name"] in bound
            for rule in o["rules"] for group in rule["apiGroups"] for resource in rule["resources"] for verb in rule["verbs"]}


def used(calls):
    verbs = {"POST": "create", "PUT": "update", "DELETE": "delete", "WATCH": "watch", "PATCH": "patch"}
    found = set()
    for method, path in calls:
        path = path.partition("?")[0]
        group, rest = re.fullmatch(r"/(?:api/v1|apis/([^/]+)/v1)/(.*)", path).groups()
        parts = re.sub("^namespaces/[^/]+/", "", rest).split("/")
        found.add((group or "", parts[0], verbs.get(method) or ("get" if len(parts) > 1 else "list")))
    return found


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")
def test_a_nodes_plugin_has_the_rights_that_it_uses(objects, make_host):
    cluster = Cluster(make_host("h100-80gb")).started()
    try:
        claim = cluster.api.claim("c", [("gpu", cluster.api.devices()[0]["name"], "1Gi", "0")])
        cluster.kubelet.prepare(claim)
        cluster.host.carve("session", "request", "--vram", "8")
        cluster.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1", "labels": {"nvidia.com/gpu.replicas": "many"}}})
        cluster.kubelet.register()
        wait_until(lambda: {"update", "create"} <= {verb for _, _, verb in used(cluster.api.calls)} and cluster.api.warnings())
        given = rights(objects, "carve-node")
        assert used(cluster.api.calls) <= given
        # Slices are deleted where a feature gate is off; a test of the plugin shows it.
        assert given - used(cluster.api.calls) == {("resource.k8s.io", "resourceslices", "delete")}
    finally:
        cluster.close()


def test_the_controller_has_the_rights_that_it_uses(objects):
    api = ApiServer()
    process = subprocess.Popen([BUILD / "carve-kubernetes", "controller", "--collect-every", "1", "--api", api.url], env=clean_env(),
                               stderr=subprocess.DEVNULL)
    try:
        api.gpus("n1", 81079)
        api.pod("p", "carve-fraction-0.5")
        wait_until(api.templates)
        api.gpus("n2", 40390)
        wait_until(lambda: {"delete", "update"} <= {verb for _, _, verb in used(api.calls)})
        wait_until(lambda: ("resource.k8s.io", "resourceclaimtemplates", "list") in used(api.calls))
        api.put("/apis/resource.k8s.io/v1/namespaces/default/resourceclaimtemplates/carve-memory-500",
                {"metadata": {"name": "carve-memory-500", "namespace": "default"}, "spec": {"spec": {"devices": {}}}})
        api.pod("q", "carve-memory-500")
        wait_until(lambda: api.warnings("Pod"))
        assert used(api.calls) == rights(objects, "carve-controller")
    finally:
        process.terminate()
        process.wait(60)
        api.close()


def test_programs_in_manifests_take_their_options(objects):
    text = run([BUILD / "carve-kubernetes", "--help"]).stdout + run([BUILD / "carved", "--help"]).stdout
    for o in objects:
        if o["kind"] in ("DaemonSet", "Deployment"):
            for container in o["spec"]["template"]["spec"]["containers"]:
                words = container["command"]
                own = next(n for n, word in enumerate(words) if word in ("carved", "carve-kubernetes"))
                assert all(not word.startswith("--") or word in text for word in words[own:])


def test_only_the_nodes_pods_see_the_hosts_processes(objects):
    specs = {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in objects if o["kind"] in ("DaemonSet", "Deployment")}
    assert specs["carve-node"]["hostPID"] is True
    controller = specs["carve-controller"]
    assert "hostPID" not in controller and controller["securityContext"]["runAsNonRoot"]


def test_policies_refuse_rather_than_pass_when_they_fail(objects):
    for o in objects:
        if o["kind"] in ("MutatingAdmissionPolicy", "ValidatingAdmissionPolicy"):
            assert o["spec"]["failurePolicy"] == "Fail"
            assert any(b["kind"] == o["kind"] + "Binding" and b["spec"]["policyName"] == o["metadata"]["name"] for b in objects)


def test_the_page_removes_what_the_manifests_have(objects):
    text = (ROOT / "docs/admin/cluster.md").read_text().partition("## Removing carve\n")[2].partition("\n## ")[0]
    named = [(kind, name) for kind, names in re.findall(r"`kubectl delete ([a-z]+) ([a-z.-]+(?: [a-z.-]+)*)`", text) for name in names.split()]
    assert len(named) >= 3 and set(named) <= {(o["kind"].lower(), o["metadata"]["name"]) for o in objects}


def test_the_seven_fractions_of_clearml_are_named(objects):
    policy = next(o for o in objects if o["kind"] == "ValidatingAdmissionPolicy" and o["metadata"]["name"] == "carve-spellings")
    rule = next(v for v in policy["spec"]["validations"] if "0.125" in v["expression"])
    assert re.findall(r"'(0\.\d+)'", rule["expression"]) == [f"{n / 8:.3f}" for n in range(1, 8)]
    assert all(f"{n / 8:.3f}" in rule["messageExpression"] for n in range(1, 8))


def test_every_profile_that_a_gpu_has_is_an_extended_resource():
    classes = list(yaml.safe_load_all((BASE.parent / "mig-limits" / "deviceclasses.yaml").read_text()))
    resources = {re.search("profile == '(.*)'", c["spec"]["selectors"][0]["cel"]["expression"])[1]: c["spec"]["extendedResourceName"]
                 for c in classes}
    models = json.loads(run([BUILD / "carve", "sim", "--list", "--json"]).stdout)
    # Profiles of integrated GPUs are named after memory that they do not have.
    assert set(resources) == {p["name"] for m in models for p in m.get("mig_profiles", []) if ".0gb" not in p["name"]}
    assert all(resource == "nvidia.com/mig-" + profile.replace("+", ".") for profile, resource in resources.items())
    assert len({c["metadata"]["name"] for c in classes}) == len(set(resources.values())) == len(classes)


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
def test_whole_gpus_are_an_extended_resource_where_that_is_wanted(objects):
    done = run(["kubectl", "kustomize", BASE.parent / "whole-gpus"])
    assert done.returncode == 0, done.stderr
    classes = {o["metadata"]["name"]: o["spec"] for o in yaml.safe_load_all(done.stdout) if o["kind"] == "DeviceClass"}
    assert classes["whole-gpu.carve.dev"]["extendedResourceName"] == "nvidia.com/gpu"
    assert "extendedResourceName" not in classes["gpu.carve.dev"]


@pytest.mark.skipif(not shutil.which("kubectl"), reason="needs kubectl")
def test_kustomize_builds_all_of_it(objects):
    done = run(["kubectl", "kustomize", BASE])
    assert done.returncode == 0, done.stderr
    built = list(yaml.safe_load_all(done.stdout))
    assert len(built) == len(objects)
    assert all("image" not in c or c["image"] == f"carve:{VERSION}" for o in built
               for c in (o.get("spec") or {}).get("template", {}).get("spec", {}).get("containers", []))


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The files that the build installs, as it is below /usr of an image."""
    root = tmp_path_factory.mktemp("installed")
    done = run(["/usr/bin/meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], env=clean_env({"DESTDIR": str(root)}))
    assert done.returncode == 0, done.stderr
    return next(root.rglob("carve-hook")).parents[1]


@pytest.mark.once("runs the manifests' own commands")
def test_a_nodes_files_are_put_on_the_host_beside_those_that_run(objects, installed, tmp_path):
    node = next(o for o in objects if o["kind"] == "DaemonSet")
    for name in ("front", "hook"):
        (tmp_path / name).mkdir()

    def start():
        for container in node["spec"]["template"]["spec"]["initContainers"]:
            done = run([word.replace("/usr/", f"{installed}/").replace("/var/lib/carve-node", str(tmp_path))
                        for word in container["command"]])
            assert done.returncode == 0, done.stderr
    start()
    files = [tmp_path / "front/libcuda.so.1", tmp_path / "front/libnvidia-ml.so.1", tmp_path / "hook/carve-hook"]
    assert all(file.read_bytes()[:4] == b"\x7fELF" for file in files)
    # The next version: a program that has a file mapped keeps it as it was.
    with_them_mapped = [file.open("rb") for file in files]
    start()
    for held, file in zip(with_them_mapped, files):
        assert os.fstat(held.fileno()).st_ino != file.stat().st_ino
        held.close()
    assert sorted(p.name for d in ("front", "hook") for p in (tmp_path / d).iterdir()) == sorted(f.name for f in files)
