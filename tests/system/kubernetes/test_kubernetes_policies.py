"""The spellings of Run:ai, KAI and ClearML, by the policies of the manifests: as admission.py judges them, and as a real API server does.

The latter is skipped without CARVE_TEST_CONTROL_PLANE (control_plane.py)."""
import re

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

from admission import Admission
from cel import CelError, compile
from conftest import wait_until
from control_plane import MANIFESTS, PROGRAMS, ControlPlane

POLICIES = [MANIFESTS / "base" / "policies.yaml", MANIFESTS / "mig-limits" / "policies.yaml"]
FRACTION, LABEL, PRODUCT = "clear.ml/fraction-1", "clearml-injector/fraction", "nvidia.com/gpu.product"


@pytest.fixture(scope="module")
def admission():
    return Admission(*POLICIES)


class RealAdmission:
    """The same answers of a real API server, which gives the first of several refusals."""

    def __init__(self):
        self.plane = ControlPlane()
        try:
            self.plane.kubectl("apply", "-k", MANIFESTS / "mig-limits")
            # The account of pods, and each of the policies.
            wait_until(lambda: self.plane.get("serviceaccount", "default"), step=0.2)
            wait_until(lambda: self.admit(a_pod(None, annotations={"gpu-fraction": "2"}))[1], step=0.2)
            wait_until(lambda: claimed(self.admit(a_pod(None, annotations={"gpu-fraction": "0.5"}))[0]), step=0.2)
            wait_until(lambda: self.admit(a_pod({"nvidia.com/gpu": "1"}, product="A100-MIG-1g.5gb"))[0]["spec"]["nodeSelector"][PRODUCT] == "A100",
                       step=0.2)
            wait_until(lambda: self.admit(a_pod(None, labels={"gpu-fraction": "0.5"}))[2], step=0.2)
            wait_until(lambda: self.admit(a_node({"nvidia.com/gpu.replicas": "many"}), resource="nodes")[2], step=0.2)
        except BaseException:
            self.close()
            raise

    def admit(self, object, operation="CREATE", resource="pods"):
        assert operation == "CREATE"
        status, answer, warnings = self.plane.create_dry(resource, object)
        warnings = [re.sub("^Validation failed for .* with binding .*?: ", "", w) for w in warnings]
        if status == 201:
            return answer, [], warnings
        return None, [re.sub("^.* denied request: ", "", answer["message"])], warnings

    def close(self):
        self.plane.close()


@pytest.fixture(scope="module", params=["here", pytest.param("plane", marks=pytest.mark.skipif(
    not PROGRAMS, reason="needs CARVE_TEST_CONTROL_PLANE, a directory of Kubernetes' programs"))])
def judge(request, admission):
    """judge.admit(object): (the object as mutated, None where it is refused; [refusals]; [warnings])"""
    if request.param == "here":
        yield admission
        return
    real = RealAdmission()
    yield real
    real.close()


@pytest.fixture
def admit(judge):
    """admit(containers' limits, labels, annotations): (the pod as mutated, [refusals])"""
    def admit(*limits, **words):
        return judge.admit(a_pod(*limits, **words))[:2]

    def again(pod):
        mutated, refusals, _ = judge.admit(pod)
        return claimed(mutated or pod), refusals

    admit.again = again
    return admit


def a_node(labels):
    return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "labels": labels}}


def a_pod(*limits, labels=None, annotations=None, product=None, init=None):
    pod = {"apiVersion": "v1", "kind": "Pod",
           "metadata": {"name": "p"} | ({"labels": labels} if labels else {}) | ({"annotations": annotations} if annotations else {}),
           "spec": {"containers": [{"name": f"c{i}", "image": "x"} | ({"resources": {"limits": l, "requests": l}} if l else {})
                                   for i, l in enumerate(limits)]} | ({"nodeSelector": {PRODUCT: product, "zone": "a"}} if product else {})}
    if init:
        pod["spec"]["initContainers"] = [{"name": "init", "image": "x", "resources": {"limits": init}}]
    return pod


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
    ([None], None, {"gpu-memory": "4096", "gpu-fraction-num-devices": "1"}, {"c0": "carve-memory-4096"}),
    *[([None], None, {"gpu-fraction": text}, {"c0": f"carve-fraction-{text}"}) for text in ("1", "1.0", "0.001")],
    *[([None], None, {"gpu-memory": text}, {"c0": f"carve-memory-{text}"}) for text in ("1", "134217728")],
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
    *[([{FRACTION: text}], {LABEL: "0.500"}, None, f"limit clear.ml/fraction-1: {text} and 0.500 are two sizes") for text in ("0.25", "0.498", "0.502")],
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
    ([None], None, {"gpu-fraction": "0.5", "gpu-fraction-container-name": ""}, "this pod has no container ''"),
    *[([None], None, {"gpu-fraction": text}, f"'{text}' is no fraction") for text in ("0", "abc", "0.5 ", "½", "٠.٥", "+0.5", "0,5", "50%", "1.1")],
    *[([None], None, {"gpu-memory": text}, f"'{text}' is no number of MiB") for text in ("4Gi", "0.5", "1000000000", "999999999", "134217729", "4096 ", "４０９６")],
    *[([None], None, {"gpu-fraction": "0.5", "gpu-fraction-num-devices": text}, f"'{text}' is no number from 1 to 32") for text in ("0", "", "-1", "2.0")],
    # Texts of several lines.
    ([None], None, {"gpu-fraction": "0.5\n"}, "annotation gpu-fraction is no fraction of a GPU; right would be 0.5"),
    ([None], None, {"gpu-memory": "4096\n"}, "annotation gpu-memory is no number of MiB; right would be 4096"),
    ([None], None, {"gpu-memory": "4096", "gpu-fraction-num-devices": "2\n"}, "annotation gpu-fraction-num-devices is no number from 1 to 32"),
    ([None], None, {"gpu-memory": "4096", "gpu-fraction-container-name": "c0\n"}, "annotation gpu-fraction-container-name: this pod has no such"),
])
def test_a_wrong_value_is_refused_by_its_name(admit, limits, labels, annotations, words):
    _, refusals = admit(*limits, labels=labels, annotations=annotations)
    assert len(refusals) == 1 and words in refusals[0]


NV = "nvidia.com/container.{}.gpu-memory.{}"
MEM, PERCENT, CORES, GPU = (f"nvidia.com/{name}" for name in ("gpumem", "gpumem-percentage", "gpucores", "gpu"))


@pytest.mark.parametrize("limits, annotations, expected", [
    *[([None, None], {NV.format("c1", kind): text}, {"c1": f"carve-memory-{mib}"}) for kind in ("request", "limit")
      for text, mib in (("4Gi", 4096), ("2048Mi", 2048), ("1Mi", 1), ("4G", 3814), ("1.5Gi", 1536), ("4294967296", 4096))],
    ([None], {NV.format("c0", "request"): "4Gi", NV.format("c0", "limit"): "4096Mi"}, {"c0": "carve-memory-4096"}),
    ([{GPU: "1", "cpu": "1"}], {NV.format("c0", "limit"): "4Gi"}, {"c0": "carve-memory-4096"}),
    ([{GPU: "1", MEM: "3000"}], None, {"c0": "carve-memory-3000"}),
    ([{MEM: "3k"}], {"other": "one"}, {"c0": "carve-memory-3000"}),
    ([None, {GPU: "2", MEM: "3000", CORES: "30", "cpu": "1"}], None, {"c1": "carve-memory-3000-c30-x2"}),
    ([{GPU: "1", PERCENT: "50"}], None, {"c0": "carve-fraction-0.5"}), ([{PERCENT: "7"}], None, {"c0": "carve-fraction-0.07"}),
    ([{GPU: "1", PERCENT: "100", CORES: "100"}], None, {"c0": "carve-fraction-1-c100"}), ([{GPU: "1", CORES: "30"}], None, {"c0": "carve-fraction-1-c30"}),
    ([{GPU: "1", PERCENT: "25", CORES: "0"}], None, {"c0": "carve-fraction-0.25"}),
    ([{GPU: "1", MEM: "3000"}], {"nvidia.com/use-gputype": "A100,Tesla V100"}, {"c0": "carve-memory-3000.use.a100.teslav100"}),
    ([None], {"gpu-fraction": "0.5", "nvidia.com/use-gputype": "A100", "nvidia.com/nouse-gputype": "K80"}, {"c0": "carve-fraction-0.5.use.a100.not.k80"}),
    ([None], {"gpu-memory": "4096", "nvidia.com/nouse-gputype": "H100-PCIe"}, {"c0": "carve-memory-4096.not.h100-pcie"}),
    ([None], {"gpu-memory": "4096", "carve.dev/cores": "25"}, {"c0": "carve-memory-4096-c25"}),
])
def test_a_spelling_of_another_product_is_a_claim_of_one_container(admit, limits, annotations, expected):
    pod, refusals = admit(*limits, annotations=annotations)
    assert (refusals, claimed(pod)) == ([], expected)
    left = [c["resources"].get(kind, {}) for c in pod["spec"]["containers"] for kind in ("limits", "requests")]
    assert not any(name.startswith("nvidia.com/") for l in left for name in l)
    # Such a pod can be copied.
    assert admit.again(pod) == (expected, [])


@pytest.mark.parametrize("limits, annotations, words", [
    *[([None], {NV.format("c0", "limit"): text}, f"annotation {NV.format('c0', 'limit')}: '{text}' is no memory of a GPU; right would be 4Gi")
      for text in ("", "0", "many", "-4Gi", "1Ki", "4 Gi", "4GiB", "999999999Ti")],
    ([None], {NV.format("c0", "request"): "2Gi", NV.format("c0", "limit"): "4Gi"}, "are two sizes; a slice has one size"),
    ([None, None], {NV.format("c0", "limit"): "2Gi", NV.format("c1", "limit"): "2Gi"}, "name the memory of two containers"),
    ([None], {NV.format("main", "limit"): "2Gi"}, "this pod has no container 'main'"),
    ([None], {NV.format("c0", "limit"): "2Gi", "gpu-fraction": "0.5"}, "stands beside another spelling of a slice"),
    ([None], {NV.format("c0", "limit"): "2Gi", "nvidia.com/container.c0.gpus.devices": "GPU-1"}, "names GPUs that another scheduler chose"),
    ([{MEM: "0"}], None, "limit nvidia.com/gpumem: '0' of container 'c0' is not valid; right would be nvidia.com/gpumem: 4096"),
    ([{PERCENT: "101"}], None, "limit nvidia.com/gpumem-percentage: '101' of container 'c0' is not valid"),
    ([{MEM: "4096", CORES: "101"}], None, "is not valid; right would be"), ([{MEM: "4096", GPU: "33"}], None, "is not valid; right would be"),
    ([{MEM: "4096", PERCENT: "50"}], None, "name two sizes; give one of them"),
    ([{MEM: "4096"}, {MEM: "4096"}], None, "is not the only one; one container of a pod may have it"),
    ([{MEM: "4096"}], {"gpu-memory": "4096"}, "stands beside another spelling of a slice"),
    ([{MEM: "4096"}], {NV.format("c0", "limit"): "4Gi"}, "stands beside another spelling of a slice"),
    *[([None], {"gpu-memory": "4096", "nvidia.com/use-gputype": text}, "take names of products, such as A100,V100") for text in ("", "A_100", ",", "A100,", "*")],
    *[([None], {"gpu-memory": "4096", "carve.dev/cores": text}, "no per cent of a GPU's time") for text in ("0", "101", "half", "")],
    ([None], {"gpu-memory": "4096", "nvidia.com/use-gputype": ",".join(["A100-SXM4-40GB"] * 4)}, "are too long together"),
])
def test_a_spelling_of_another_product_that_carve_cannot_follow_is_refused_by_name(admit, limits, annotations, words):
    _, refusals = admit(*limits, annotations=annotations)
    assert refusals and words in refusals[0], refusals


def test_a_limit_of_hami_of_an_init_container_is_refused(admit):
    _, refusals = admit(None, init={MEM: "4096"})
    assert len(refusals) == 1 and "is of an init container; give it to a container" in refusals[0]


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


@pytest.mark.parametrize("limits", [None, {"nvidia.com/gpu": "1"}])
@pytest.mark.parametrize("policy", [None, "Always"])
def test_a_whole_gpu_of_a_mig_product_of_an_init_container_is_an_instance(judge, limits, policy):
    pod = a_pod({"cpu": "1"}, limits, product="A100-SXM4-40GB-MIG-1g.5gb", init={"cpu": "1", "nvidia.com/gpu": "1"})
    pod["spec"]["initContainers"][0].update({"restartPolicy": policy} if policy else {}, resources={
        kind: {"cpu": "1", "nvidia.com/gpu": "1"} for kind in ("limits", "requests")})
    mutated, refusals, _ = judge.admit(pod)
    resource = "nvidia.com/mig-1g.5gb"
    assert refusals == [] and mutated["spec"]["nodeSelector"][PRODUCT] == "A100-SXM4-40GB"
    for kind in ("limits", "requests"):
        assert mutated["spec"]["initContainers"][0]["resources"][kind] == {"cpu": "1", resource: "1"}
        assert [c["resources"].get(kind) for c in mutated["spec"]["containers"]] == [{"cpu": "1"}, limits and {resource: "1"}]


@pytest.mark.parametrize("limits, product", [
    ({"nvidia.com/gpu": "1"}, "A100-SXM4-40GB"),
    ({"nvidia.com/gpu": "1"}, "A100-MIG-small"),
    ({"nvidia.com/gpu": "1"}, None),
    ({"cpu": "1"}, "A100-SXM4-40GB-MIG-1g.5gb"),
])
def test_other_products_are_left_alone(admit, limits, product):
    pod, refusals = admit(limits, product=product)
    assert refusals == []
    assert not any("mig" in resource for resource in pod["spec"]["containers"][0]["resources"].get("limits", {}))
    assert pod["spec"].get("nodeSelector", {}).get(PRODUCT) == product


def copied(template, claim=True, annotations=None):
    """A pod that was written down while it ran, with the label of the policy, and changed."""
    pod = a_pod(None, labels={"carve.dev/template": template}, annotations=annotations)
    if claim:
        pod["spec"]["resourceClaims"] = [{"name": "carve-gpu", "resourceClaimTemplateName": "carve-fraction-0.5"}]
        pod["spec"]["containers"][0]["resources"] = {"claims": [{"name": "carve-gpu"}]}
    return pod


@pytest.mark.parametrize("pod, why", [
    (copied("carve-fraction-0.5", annotations={"gpu-fraction": "0.5"}), None),
    (copied("carve-fraction-0.5"), None),
    (copied("carve-fraction-0.5", annotations={"gpu-fraction": "0.25"}), "is not the size of annotation gpu-fraction; take out this label"),
    (copied("carve-fraction-0.5", annotations={"gpu-memory": "4096"}), "is not the size of annotation gpu-memory"),
    (copied("carve-fraction-0.5", annotations={"gpu-fraction": "0.5", "gpu-fraction-num-devices": "2"}), "is not the size of annotation"),
    (copied("carve-fraction-0.25", annotations={"gpu-fraction": "0.25"}), "label carve.dev/template: 'carve-fraction-0.25' has no claim in this pod"),
    (copied("carve-fraction-0.5", claim=False), "has no claim in this pod"),
])
def test_a_pod_that_was_copied_gets_the_size_that_it_names_or_none(judge, pod, why):
    mutated, refusals, _ = judge.admit(pod)
    assert why in refusals[0] if why else (refusals, claimed(mutated)) == ([], {"c0": "carve-fraction-0.5"})


@pytest.mark.parametrize("annotations, labels, words", [
    (None, {"gpu-fraction": "0.5"}, "label gpu-fraction gets no slice: gpu-fraction is an annotation"),
    (None, {"gpu-memory": "4096"}, "label gpu-memory gets no slice: gpu-memory is an annotation"),
    ({LABEL: "0.500"}, None, "annotation clearml-injector/fraction gets no slice: clearml-injector/fraction is a label"),
    ({"nvidia.com/use-gputype": "A100"}, None,
     "annotations nvidia.com/use-gputype and nvidia.com/nouse-gputype count for pods that name a slice, and this pod names none"),
])
def test_a_spelling_in_the_wrong_place_is_warned_of(judge, annotations, labels, words):
    mutated, refusals, warnings = judge.admit(a_pod(None, annotations=annotations, labels=labels))
    assert (claimed(mutated), refusals, warnings) == ({}, [], [words])


@pytest.mark.parametrize("annotations, labels, words", [
    ({"gpu-fraction": "0.5"}, None, "annotation gpu-fraction made no claim"),
    ({"gpu-memory": "4096"}, None, "annotation gpu-memory made no claim"),
    (None, {LABEL: "0.500"}, "label clearml-injector/fraction made no claim"),
])
def test_a_spelling_without_the_policy_that_makes_claims_is_refused(annotations, labels, words):
    admission = Admission(*POLICIES)
    admission.policies = [p for p in admission.policies if p.kind == "ValidatingAdmissionPolicy"]
    [refusal] = admission.admit(a_pod(None, annotations=annotations, labels=labels))[1]
    assert words in refusal and "`carve kubernetes check`" in refusal


def test_a_limit_of_another_container_beside_a_slice_is_refused(admit):
    _, refusals = admit({"nvidia.com/gpu": "1"}, {"nvidia.com/gpu": "1"}, annotations={"gpu-fraction": "0.5"})
    assert len(refusals) == 1 and "limit nvidia.com/gpu of container 'c1' beside annotation gpu-fraction" in refusals[0]


def test_the_product_of_mig_single_beside_a_slice_is_refused(admit):
    _, refusals = admit(None, annotations={"gpu-fraction": "0.5"}, product="A100-SXM4-40GB-MIG-1g.5gb")
    assert len(refusals) == 1 and "A100-SXM4-40GB-MIG-1g.5gb are two slices" in refusals[0]


def test_a_claim_is_added_to_those_that_a_pod_has(judge):
    pod = a_pod({"cpu": "1"}, annotations={"gpu-fraction": "0.5"})
    pod["spec"]["resourceClaims"] = [{"name": "net", "resourceClaimTemplateName": "net"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "net"}]
    mutated, refusals, _ = judge.admit(pod)
    assert refusals == [] and [c["name"] for c in mutated["spec"]["resourceClaims"]] == ["net", "carve-gpu"]
    assert mutated["spec"]["containers"][0]["resources"]["claims"] == [{"name": "net"}, {"name": "carve-gpu"}]


def test_a_sidecar_that_is_named_has_the_slice(judge):
    pod = a_pod(None, annotations={"gpu-fraction": "0.5", "gpu-fraction-container-name": "init"}, init={"cpu": "1"})
    pod["spec"]["initContainers"][0]["restartPolicy"] = "Always"
    mutated, refusals, _ = judge.admit(pod)
    assert (claimed(mutated), refusals) == ({"init": "carve-fraction-0.5"}, [])


@pytest.mark.parametrize("operation", ["CREATE", "UPDATE", "DELETE"])
@pytest.mark.parametrize("user, node, refused", [
    ("system:serviceaccount:carve:carve-node", "n1", False),
    ("system:serviceaccount:carve:carve-node", "n2", True),
    ("system:serviceaccount:carve:carve-node", None, True),
    ("system:admin", None, False),
])
def test_a_plugin_changes_the_slices_of_its_own_node_alone(admission, operation, user, node, refused):
    slice = {"metadata": {"name": "s"}, "spec": {"nodeName": "n1"}}
    extra = {"authentication.kubernetes.io/node-name": [node]} if node else {}
    _, refusals, _ = admission.admit(None if operation == "DELETE" else slice, operation, "resourceslices", user, extra, slice)
    assert refusals == (["carve's plugin of a node changes the slices of that node only"] if refused else [])


@pytest.mark.parametrize("words", [dict(annotations={"gpu-fraction": "0.5"}), dict(annotations={"gpu-memory": "4096"}), dict(labels={LABEL: "0.500"}),
                                   dict(limits={FRACTION: "0.5"}), {}])
@pytest.mark.parametrize("scheduler", ["kai-scheduler", "runai-scheduler", "default-scheduler", None])
def test_a_slice_whose_scheduler_may_not_know_it_is_warned_of(judge, words, scheduler):
    pod = a_pod(words.get("limits"), annotations=words.get("annotations"), labels=words.get("labels"))
    pod["spec"] |= {"schedulerName": scheduler} if scheduler else {}
    _, refusals, warnings = judge.admit(pod)
    told = bool(words) and scheduler in ("kai-scheduler", "runai-scheduler")
    assert refusals == [] and [w.startswith(f"schedulerName '{scheduler}': the pod stays pending unless") for w in warnings] == [True] * told


@pytest.mark.parametrize("path, namespace, refused", [
    ("/run/carve", "default", True), ("/var/run/carve/carved.sock", "default", True), ("/run/carve-claims/", "kube-system", True),
    ("//run//carve", "default", True), ("/run/carve", "carve", False), ("/run/carvery", "default", False), ("/var/lib/data", "default", False),
])
def test_a_pod_may_not_mount_carves_sockets(admission, path, namespace, refused):
    pod = a_pod(None)
    pod["spec"]["volumes"] = [{"name": "other", "emptyDir": {}}, {"name": "host", "hostPath": {"path": path}}]
    _, refusals, _ = admission.admit(pod, namespace=namespace)
    assert refusals == ([f"hostPath '{path}' is carve's own; pods get slices by claims, annotations or limits"] if refused else [])


@pytest.mark.parametrize("name, user, refused", [
    ("carve-fraction-0.2", "someone", True), ("carve-memory-4096-x2", "system:serviceaccount:carve:carve-node", True),
    ("carve-fraction-0.2", "system:serviceaccount:carve:carve-controller", False), ("carve-gpus", "someone", False), (None, "someone", False),
])
def test_the_controller_alone_makes_templates_of_its_names(admission, name, user, refused):
    template = {"metadata": {"name": name} if name else {"generateName": "carve-fraction-"}, "spec": {"spec": {"devices": {}}}}
    _, refusals, _ = admission.admit(template, "CREATE", "resourceclaimtemplates", user)
    assert [r.startswith("carve's controller alone makes templates") for r in refusals] == [True] * refused


@pytest.mark.parametrize("key, good, wrong", [
    ("nvidia.com/gpu.replicas", ["0", "4", "1000"], ["many", "1001", "", "4.5"]),
    ("node-role.kubernetes.io/runai-mig-enabled", ["true", "false"], ["", "yes", "True"]),
    ("cdmo.clear.ml/gpu-partitioning", ["mig", "none"], ["MIG"]),
])
def test_a_label_of_a_node_whose_value_means_nothing_is_warned_of(judge, key, good, wrong):
    for operation in ("CREATE", "UPDATE") if isinstance(judge, Admission) else ("CREATE",):
        for value in good + wrong:
            _, refusals, warnings = judge.admit(a_node({key: value}), operation, resource="nodes")
            assert refusals == [] and [w.startswith(f"label {key}: '{value}' ") for w in warnings] == [True] * (value in wrong)


@pytest.mark.parametrize("text, value", [
    ("'a' in {'a': 1} && !('b' in {'a': 1})", True), ("{'a': 1}.b == 2 || true", True), ("false && {'a': 1}.b == 2", False),
    ("[1, 2].exists(x, x / 0 == 1 || x == 2)", True), ("'0.5\\n'.matches('^0.5$')", False), ("string(1000.0 / 1000.0) + string(0.25)", "10.25"),
    ("string(quantity('9m').asApproximateFloat())", "0.009"), ("true ? 1 : {'a': 1}.b", 1), ("1 == 1.0 && '1' != 1", True),
    ("double(int(2.7)) - 1.0 * 2.0", 0.0), ("[1] + [2, 3].filter(x, x > 2)", [1, 3]),
])
def test_expressions_mean_what_cel_says(text, value):
    assert compile(text, ())({}) == value


@pytest.mark.parametrize("text", ["1 + 1.0", "1 + '1'", "'1' < 2", "[1][1]", "{'a': 1}.b", "1 ? 2 : 3", "double('0.5 ')", "quantity('one')",
                                  "string([1])", "{'a': 1}.b == 2 || false", "1.startsWith('1')", "other", "lower('A')", "'a'.lower()",
                                  "variables.none", "(1", "'a", "1 1", "object.?a"])
def test_an_expression_that_means_nothing_is_no_value(text):
    with pytest.raises(CelError):
        compile(text, ("variables", "object"))({"object": {}})
