"""The spellings of Run:ai, KAI and ClearML, by the API server's own engine for admission policies.

CARVE_TEST_POLEVAL names a program that takes policies and pods, and prints each pod as mutated and each refusal."""
import json
import os
import re

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

from conftest import ROOT, run

POLEVAL = os.environ.get("CARVE_TEST_POLEVAL")
pytestmark = pytest.mark.skipif(not POLEVAL, reason="needs CARVE_TEST_POLEVAL, a program that evaluates admission policies")
PACKAGING = ROOT / "packaging" / "kubernetes"
POLICIES = [PACKAGING / "base" / "policies.yaml", PACKAGING / "mig-limits" / "policies.yaml"]
FRACTION, LABEL, PRODUCT = "clear.ml/fraction-1", "clearml-injector/fraction", "nvidia.com/gpu.product"


@pytest.fixture
def admit(tmp_path):
    """admit(containers' limits, labels, annotations): (the pod as mutated, [refusals])"""
    policies = tmp_path / "policies.yaml"
    # The other policy is for slices; the program does not look which resources a policy is for.
    policies.write_text(yaml.safe_dump_all(p for file in POLICIES for p in yaml.safe_load_all(file.read_text())
                                           if p["metadata"]["name"] in ("carve-spellings", "carve-mig-products")))

    def admit(*limits, labels=None, annotations=None, product=None, init=None):
        pod = {"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": "p"} | ({"labels": labels} if labels else {}) | ({"annotations": annotations} if annotations else {}),
               "spec": {"containers": [{"name": f"c{i}", "image": "x"} | ({"resources": {"limits": l, "requests": l}} if l else {})
                                       for i, l in enumerate(limits)]} | ({"nodeSelector": {PRODUCT: product, "zone": "a"}} if product else {})}
        if init:
            pod["spec"]["initContainers"] = [{"name": "init", "image": "x", "resources": {"limits": init}}]
        file = tmp_path / "pod.yaml"
        file.write_text(json.dumps(pod))
        done = run([POLEVAL, policies, file])
        assert done.returncode == 0 and "error" not in done.stdout, done.stdout + done.stderr
        mutated = re.search(r"^  -> (.*)$", done.stdout, re.M)
        return json.loads(mutated[1]), re.findall(r": deny deny (.*)$", done.stdout, re.M)

    return admit


def claimed(pod):
    """{container: template} of those that have a slice."""
    templates = {c["name"]: c["resourceClaimTemplateName"] for c in pod["spec"].get("resourceClaims", [])}
    return {c["name"]: templates[claim["name"]] for c in pod["spec"]["containers"] + pod["spec"].get("initContainers", [])
            for claim in c["resources"].get("claims", [])}


@pytest.mark.parametrize("limits, labels, annotations, expected", [
    ([{FRACTION: "0.5"}], None, None, {"c0": "carve-fraction-0.5"}),
    ([{FRACTION: "1"}], None, None, {"c0": "carve-fraction-1"}),
    ([None, {FRACTION: "0.25", "cpu": "1"}], None, None, {"c1": "carve-fraction-0.25"}),
    ([{FRACTION: "0.5", "nvidia.com/gpu": "1"}], {LABEL: "0.500", "required-resources": "0.5"}, None, {"c0": "carve-fraction-0.500"}),
    *[([None], {LABEL: f"{n / 8:.3f}"}, None, {"c0": f"carve-fraction-{n / 8:.3f}"}) for n in range(1, 8)],
    *[([{FRACTION: str(n / 8)}], {LABEL: f"{n / 8:.3f}"}, None, {"c0": f"carve-fraction-{n / 8:.3f}"}) for n in range(1, 8)],
    ([None], None, {"gpu-fraction": "0.5"}, {"c0": "carve-fraction-0.5"}),
    ([None], None, {"gpu-memory": "4096", "gpu-fraction-num-devices": "2"}, {"c0": "carve-memory-4096-x2"}),
    ([None, None], None, {"gpu-fraction": ".5", "gpu-fraction-container-name": "c1"}, {"c1": "carve-fraction-0.5"}),
    *[([{FRACTION: text}], None, None, {"c0": f"carve-fraction-{number}"})
      for text, number in (("0.7", "0.7"), ("0.104", "0.104"), ("9m", "0.009"))],
    ([None, {"nvidia.com/gpu": "1"}], {LABEL: "0.500"}, None, {"c1": "carve-fraction-0.500"}),
    ([None], {"required-resources": "half"}, None, {}),
    ([{"nvidia.com/gpu": "1"}], None, None, {}),
])
def test_a_spelling_is_a_claim_of_one_container(admit, limits, labels, annotations, expected):
    pod, refusals = admit(*limits, labels=labels, annotations=annotations)
    assert (claimed(pod), refusals) == (expected, [])
    if expected:
        left = [c["resources"].get(kind, {}) for c in pod["spec"]["containers"] for kind in ("limits", "requests")]
        assert not any(FRACTION in l or "nvidia.com/gpu" in l for l in left)


@pytest.mark.parametrize("limits, labels, annotations, words", [
    ([{FRACTION: "1.5"}], None, None, "limit clear.ml/fraction-1: 1.5 is no fraction of a GPU; right would be 0.5"),
    ([{FRACTION: "2", "cpu": "1"}], None, {"other": "one"}, "limit clear.ml/fraction-1: 2 is no fraction"),
    ([{FRACTION: "0"}], None, None, "limit clear.ml/fraction-1: 0 is no fraction"),
    ([{FRACTION: "0.5"}, {FRACTION: "0.5"}], None, None, "one container of a pod may have it"),
    ([{FRACTION: "0.5"}, None], None, {"gpu-fraction-container-name": "c1", "gpu-fraction": "0.5"},
     "limit clear.ml/fraction-1: annotation gpu-fraction-container-name names another container"),
    ([{FRACTION: "-1"}], None, None, "limit clear.ml/fraction-1: -1 is no fraction"),
    ([{FRACTION: "0.25"}], {LABEL: "0.500"}, None, "limit clear.ml/fraction-1: 0.25 and 0.500 are two sizes"),
    ([None, {FRACTION: "0.25"}], None, {"gpu-fraction": "0.5"}, "limit clear.ml/fraction-1: 0.25 and 0.5 are two sizes"),
    ([{FRACTION: "0.5"}], None, {"gpu-memory": "4096"}, "limit clear.ml/fraction-1: 0.5 and 4096 MiB are two sizes"),
    *[([{FRACTION: text}], None, None, f"limit clear.ml/fraction-1: {text} is no fraction") for text in ("1000", "1.001")],
    ([{FRACTION: "0.5", "nvidia.com/gpu": "2"}], None, None, "limit nvidia.com/gpu: '2' beside limit clear.ml/fraction-1; right would be 1"),
    ([{"nvidia.com/gpu": "2"}], None, {"gpu-fraction": "0.5"}, "limit nvidia.com/gpu: '2' beside annotation gpu-fraction; right would be 1"),
    ([{"nvidia.com/gpu": "0"}], {LABEL: "0.500"}, None, "limit nvidia.com/gpu: '0' beside label clearml-injector/fraction"),
    ([None], {LABEL: "0.3"}, None, "'0.3' is not one of 0.125"),
    ([None], {LABEL: "0.5"}, None, "'0.5' is not one of 0.125"),
    ([None], {LABEL: "0.500", "required-resources": "half"}, None, "label required-resources: 'half'"),
    ([None], {LABEL: "0.500"}, {"gpu-memory": "4096"}, "name two sizes"),
    *[([None], None, {"gpu-fraction": text}, f"'{text}' is no fraction") for text in ("1.25", "", "0.5x", "-1", " 0.5", "1e-1", "0.0001")],
    ([None], None, {"gpu-fraction": "0.0"}, "'0.0' is no fraction"),
    *[([None], None, {"gpu-memory": text}, f"'{text}' is no number of MiB; right would be 4096") for text in ("4G", "", "0", "-1", "1e3")],
    ([None], None, {"gpu-fraction": "0.5", "gpu-memory": "4096"}, "name two sizes"),
    ([None], None, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": "33"}, "'33' is no number from 1 to 32"),
    ([None], None, {"gpu-fraction-num-devices": "2"}, "need a size"),
    ([None], None, {"gpu-fraction": "0.5", "gpu-fraction-container-name": "z"}, "this pod has no container 'z'"),
])
def test_a_wrong_value_is_refused_by_its_name(admit, limits, labels, annotations, words):
    _, refusals = admit(*limits, labels=labels, annotations=annotations)
    assert len(refusals) == 1 and words in refusals[0]


@pytest.mark.parametrize("limits", [None, {FRACTION: "0.5"}])
def test_a_fraction_of_an_init_container_is_refused(admit, limits):
    _, refusals = admit(limits, init={FRACTION: "1"})
    assert refusals == ["limit clear.ml/fraction-1: an init container cannot have it; give it to a container"]


@pytest.mark.parametrize("limits", [{"cpu": "1"}, {"cpu": "1", "nvidia.com/gpu": "1"}])
def test_an_init_container_that_is_named_has_the_slice(admit, limits):
    pod, refusals = admit({"cpu": "1"}, annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "init"}, init=limits)
    assert (claimed(pod), refusals) == ({"init": "carve-fraction-0.5"}, [])
    assert pod["spec"]["initContainers"][0]["resources"]["limits"] == {"cpu": "1"}


@pytest.mark.parametrize("spelling, labels, annotations, limits", [
    ("annotation gpu-fraction", None, {"gpu-fraction": "0.5"}, {}),
    ("annotation gpu-memory", None, {"gpu-memory": "4096"}, {}),
    ("label clearml-injector/fraction", {LABEL: "0.500"}, None, {}),
    ("limit clear.ml/fraction-1", None, None, {FRACTION: "0.5"}),
])
@pytest.mark.parametrize("place", ["the same container", "another container", "an init container"])
def test_a_slice_beside_a_mig_limit_is_refused(admit, spelling, labels, annotations, limits, place):
    mig = {"nvidia.com/mig-1g.10gb": "1"}
    containers, init = {"the same container": ([limits | mig], None), "another container": ([limits, mig], None),
                        "an init container": ([limits], mig)}[place]
    _, refusals = admit(*containers, labels=labels, annotations=annotations, init=init)
    assert refusals == [f"{spelling} and limit nvidia.com/mig-1g.10gb are two slices; give one of them, or write a claim of your own"]


@pytest.mark.parametrize("product, profile", [("A100-SXM4-40GB-MIG-1g.5gb", "1g.5gb"), ("NVIDIA-H100-80GB-HBM3-MIG-3g.40gb", "3g.40gb"),
                                              ("A100-SXM4-80GB-MIG-1g.10gb.me", "1g.10gb.me")])
def test_a_whole_gpu_of_a_mig_product_is_an_instance_of_that_profile(admit, product, profile):
    pod, refusals = admit({"nvidia.com/gpu": "2", "cpu": "1"}, {"cpu": "1"}, {"nvidia.com/gpu": "1"}, product=product)
    resource = f"nvidia.com/mig-{profile}"
    for kind in ("limits", "requests"):
        assert [c["resources"][kind] for c in pod["spec"]["containers"]] == [
            {"cpu": "1", resource: "2"}, {"cpu": "1"}, {resource: "1"}]
    assert pod["spec"]["nodeSelector"] == {PRODUCT: product.partition("-MIG-")[0], "zone": "a"}
    assert refusals == [] and "resourceClaims" not in pod["spec"]


@pytest.mark.parametrize("limits, product, annotations", [
    ({"nvidia.com/gpu": "1"}, "A100-SXM4-40GB", None),
    ({"nvidia.com/gpu": "1"}, "A100-MIG-small", None),
    ({"nvidia.com/gpu": "1"}, None, None),
    ({"cpu": "1"}, "A100-SXM4-40GB-MIG-1g.5gb", None),
    ({"nvidia.com/gpu": "1"}, "A100-SXM4-40GB-MIG-1g.5gb", {"gpu-fraction": "0.5"}),
])
def test_other_products_are_left_alone(admit, limits, product, annotations):
    pod, _ = admit(limits, product=product, annotations=annotations)
    assert not any("mig" in resource for resource in pod["spec"]["containers"][0]["resources"].get("limits", {}))
    assert pod["spec"].get("nodeSelector", {}).get(PRODUCT) == product
