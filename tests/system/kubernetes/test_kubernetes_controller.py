"""carve-kubernetes controller: makes the claim templates that pods name, with an API server that the test plays."""
import subprocess

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cel import Quantity, compile
from cluster import ApiServer
from conftest import BUILD, clean_env, rest_long, wait_until

LEASE = "/apis/coordination.k8s.io/v1/namespaces/carve/leases/carve-controller"


class Controllers:
    def __init__(self, directory):
        self.api, self.dir, self.running = ApiServer(), directory, []

    def start(self, *options):
        log = open(self.dir / f"log{len(self.running)}", "w")
        self.running.append(subprocess.Popen([BUILD / "carve-kubernetes", "controller", "--api", self.api.url, *options],
                                             env=clean_env(), stderr=log))
        log.close()
        return self.running[-1]

    def log(self, n=0):
        return (self.dir / f"log{n}").read_text()

    def holder(self):
        return self.api.objects.get(LEASE, {}).get("spec", {}).get("holderIdentity")

    def close(self):
        for process in self.running:
            process.terminate()
        for process in self.running:
            assert process.wait(60) in (0, 1, -9)
        self.api.close()


@pytest.fixture
def controllers(tmp_path):
    c = Controllers(tmp_path)
    yield c
    c.close()


@pytest.fixture
def api(controllers):
    controllers.start()
    wait_until(controllers.holder)
    return controllers.api


def alternatives(devices):
    return [(a["capacity"]["requests"]["memory"], a["capacity"]["requests"].get("cores"), a["selectors"][0]["cel"]["expression"])
            for a in devices["requests"][0]["firstAvailable"]]


def test_a_fraction_is_that_part_of_each_size_of_gpu(api):
    api.gpus("n1", 81079, 40390)
    api.pod("p", "carve-fraction-0.5", "team")
    devices = wait_until(lambda: api.templates().get("team/carve-fraction-0.5"))
    assert alternatives(devices) == [
        ("20195Mi", "50", "device.attributes['gpu.carve.dev'].memoryMiB == 40390"),
        ("40539Mi", "50", "device.attributes['gpu.carve.dev'].memoryMiB == 81079")]


@pytest.mark.parametrize("fraction, cores", [("0.125", "12.5"), ("0.375", "37.5"), ("0.333333", "33.3333"), ("0.001", "0.1"), ("1", "100")])
def test_the_part_of_the_time_is_not_rounded(api, fraction, cores):
    api.gpus("n1", 81079)
    api.pod("p", f"carve-fraction-{fraction}")
    devices = wait_until(lambda: api.templates().get(f"default/carve-fraction-{fraction}"))
    assert [part for _, part, _ in alternatives(devices)] == [cores]


def product(name):
    return {"device": {"attributes": {"gpu.carve.dev": {"productName": name, "memoryMiB": 81079}}}}


@pytest.mark.parametrize("words, product_name, fits", [
    ("use.a100", "NVIDIA A100-SXM4-40GB", True), ("use.a100", "NVIDIA H100 80GB HBM3", False), ("use.a100.h100", "NVIDIA H100 80GB HBM3", True),
    ("not.h100", "NVIDIA H100 80GB HBM3", False), ("not.h100.k80", "NVIDIA A100-SXM4-40GB", True), ("use.teslav100", "Tesla V100-PCIE-32GB", True),
    ("use.a100.not.sxm4", "NVIDIA A100-SXM4-40GB", False), ("use.a100.not.sxm4", "NVIDIA A100-PCIE-40GB", True),
])
def test_a_template_names_the_products_that_a_gpu_may_have(api, words, product_name, fits):
    api.gpus("n1", 81079)
    for name in (f"carve-memory-4096.{words}", f"carve-fraction-0.5.{words}"):
        api.pod(name, name)
    wait_until(lambda: len(api.templates()) == 2)
    for devices in api.templates().values():
        request = devices["requests"][0].get("exactly") or devices["requests"][0]["firstAvailable"][0]
        [selector] = request["selectors"]
        assert compile(selector["cel"]["expression"], ["device"])(product(product_name)) is fits


def test_a_size_of_memory_may_name_its_part_of_the_time(api):
    api.pod("p", "carve-memory-4096-c30-x2")
    devices = wait_until(lambda: api.templates().get("default/carve-memory-4096-c30-x2"))
    exactly = devices["requests"][0]["exactly"]
    assert exactly["capacity"]["requests"] == {"memory": "4096Mi", "cores": "30"} and exactly["count"] == 2


def test_memory_needs_no_gpu_to_be_known_and_several_gpus_are_different_ones(api):
    api.pod("p", "carve-memory-4096-x2")
    devices = wait_until(lambda: api.templates().get("default/carve-memory-4096-x2"))
    exactly = devices["requests"][0]["exactly"]
    assert exactly["count"] == 2 and exactly["capacity"]["requests"] == {"memory": "4096Mi"}
    assert devices["constraints"] == [{"distinctAttribute": "gpu.carve.dev/uuid", "requests": ["gpu"]}]


def instances_of(node, *sizes, profile="1g.10gb"):
    return {"metadata": {"name": f"{node}-mig"}, "spec": {"driver": "gpu.carve.dev", "nodeName": node, "devices": [
        {"name": f"{node}-{mib}", "attributes": {"profile": {"string": profile}}, "capacity": {"memory": {"value": f"{mib}Mi"}}} for mib in sizes]}}


def names_of(api, key="default/carve-memory-4096"):
    devices = api.templates().get(key)
    return devices and [(a["name"], a["deviceClassName"]) for a in devices["requests"][0].get("firstAvailable", [])]


def test_memory_is_a_share_or_the_smallest_instance_that_has_so_much(api):
    """As Run:ai chooses between its fractions and a MIG instance."""
    api.gpus("n1", 81079)
    slices = "/apis/resource.k8s.io/v1/resourceslices/"
    api.put(slices + "n2-mig", instances_of("n2", 40448, 9856, 2048))
    api.put(slices + "n3-mig", instances_of("n3", 9900, profile="1g.10gb+me"))
    for name in ("carve-memory-4096", "carve-memory-9856", "carve-memory-40449", "carve-memory-4096-x2"):
        api.pod(name, name)
    share = ("share", "gpu.carve.dev")
    wait_until(lambda: names_of(api) == [share, ("mig9856", "mig.carve.dev"), ("mig40448", "mig.carve.dev")])
    wait_until(lambda: names_of(api, "default/carve-memory-9856") == names_of(api))
    wait_until(lambda: names_of(api, "default/carve-memory-40449") == [share])
    # Instances of two GPUs cannot be asked for.
    wait_until(lambda: names_of(api, "default/carve-memory-4096-x2") == [])
    [first, second, _] = api.templates()["default/carve-memory-4096"]["requests"][0]["firstAvailable"]
    assert first["capacity"] == {"requests": {"memory": "4096Mi"}} and "capacity" not in second
    # A role that comes or goes changes templates that are there.
    api.put(slices + "n4-mig", instances_of("n4", *range(5000, 9000, 500)))
    wait_until(lambda: [name for name, _ in names_of(api) or []] == ["share", *[f"mig{mib}" for mib in range(5000, 8500, 500)]])
    for node in ("n2", "n3", "n4"):
        api.delete(f"{slices}{node}-mig")
    wait_until(lambda: names_of(api) == [])


@pytest.mark.parametrize("profile, memory, fits", [("1g.10gb", "9856Mi", True), ("1g.10gb", str((9856 << 20) + 1), True), ("1g.10gb", "9857Mi", False),
                                                   ("1g.10gb", "9855Mi", False), ("1g.10gb+me", "9856Mi", False)])
def test_the_instance_of_a_size_is_chosen_by_its_memory(api, profile, memory, fits):
    api.put("/apis/resource.k8s.io/v1/resourceslices/n1-mig", instances_of("n1", 9856))
    api.pod("p", "carve-memory-4096")
    wait_until(lambda: [name for name, _ in names_of(api) or []] == ["share", "mig9856"])
    [selector] = api.templates()["default/carve-memory-4096"]["requests"][0]["firstAvailable"][1]["selectors"]
    device = {"attributes": {"gpu.carve.dev": {"profile": profile}}, "capacity": {"gpu.carve.dev": {"memory": Quantity(memory)}}}
    assert compile(selector["cel"]["expression"], ["device"])({"device": device}) is fits


def test_a_new_size_of_gpu_comes_into_templates_that_are_there(api):
    api.gpus("n1", 81079)
    api.pod("p", "carve-fraction-0.25")
    wait_until(lambda: "default/carve-fraction-0.25" in api.templates())
    api.gpus("n2", 23028)
    wait_until(lambda: len(alternatives(api.templates().get("default/carve-fraction-0.25", {"requests": [{"firstAvailable": []}]}))) == 2)


def test_each_size_that_the_policies_take_gets_its_template(api):
    api.gpus("n1", 81079)
    sizes = ["0.001", "0.100001", "0.999999", "1", "1.0", "1.000000", *[f"{n / 8:.3f}" for n in range(1, 8)]]
    names = [f"carve-fraction-{size}" for size in sizes] + ["carve-memory-1", "carve-memory-134217728", "carve-memory-134217728-x32"]
    for name in names:
        api.pod(name, name)
    wait_until(lambda: {f"default/{name}" for name in names} == set(api.templates()))


@pytest.mark.parametrize("forget", [False, True])
def test_a_watch_that_ended_goes_on_and_one_that_is_too_old_lists_again(api, forget):
    api.gpus("n1", 81079)
    api.pod("first", "carve-memory-1000")
    wait_until(lambda: "default/carve-memory-1000" in api.templates())
    lists = sum(method == "GET" and path.startswith("/api/v1/pods") for method, path in api.calls)
    api.cut_watches(forget)
    api.pod("second", "carve-memory-2000")
    wait_until(lambda: "default/carve-memory-2000" in api.templates())
    after = sum(method == "GET" and path.startswith("/api/v1/pods") for method, path in api.calls)
    assert (after > lists) == forget


def test_a_template_goes_when_no_pod_names_it_and_comes_back_with_the_next_pod(controllers):
    api = controllers.api
    controllers.start("--collect-every", "1")
    pods = "/api/v1/namespaces/team/pods/"
    api.put("/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/carve-memory-7",
            {"metadata": {"name": "carve-memory-7", "namespace": "team"}, "spec": {"spec": {"devices": {}}}})  # somebody's own
    for name in ("a", "b"):
        api.pod(name, "carve-memory-500", "team")
    api.pod("c", "carve-memory-600", "team")
    wait_until(lambda: {"team/carve-memory-500", "team/carve-memory-600"} <= set(api.templates()))
    api.delete(pods + "a")
    api.delete(pods + "c")
    wait_until(lambda: set(api.templates()) == {"team/carve-memory-500", "team/carve-memory-7"})
    api.delete(pods + "b")
    wait_until(lambda: set(api.templates()) == {"team/carve-memory-7"})
    api.pod("d", "carve-memory-500", "team")
    wait_until(lambda: "team/carve-memory-500" in api.templates())


TEMPLATES = "/apis/resource.k8s.io/v1/namespaces/team/resourceclaimtemplates/"


@pytest.mark.parametrize("seen", [True, False], ids=["by the watch", "by the next list"])
def test_a_template_that_somebody_deleted_is_made_again_while_a_pod_names_it(controllers, seen):
    api = controllers.api
    controllers.start()
    api.pod("p", "carve-memory-500", "team")
    wait_until(lambda: "team/carve-memory-500" in api.templates())
    wait_until(lambda: any(m == "WATCH" and "resourceclaimtemplates" in p for m, p in api.calls))
    before = api.objects[TEMPLATES + "carve-memory-500"]["metadata"]["uid"]
    with api.lock:
        api.delete(TEMPLATES + "carve-memory-500")
        if not seen:
            api.cut_watches(forget=True)
    wait_until(lambda: "team/carve-memory-500" in api.templates())
    assert api.objects[TEMPLATES + "carve-memory-500"]["metadata"]["uid"] != before


def test_a_template_that_was_deleted_with_its_namespace_comes_back_with_the_next_pod_there(controllers):
    api = controllers.api
    controllers.start()
    api.pod("p", "carve-memory-500", "team")
    wait_until(lambda: "team/carve-memory-500" in api.templates())
    wait_until(lambda: any(m == "WATCH" and "resourceclaimtemplates" in p for m, p in api.calls))
    with api.lock:
        api.delete("/api/v1/namespaces/team/pods/p")
        api.delete(TEMPLATES + "carve-memory-500")
    # A pod of another namespace is looked at after the deletion.
    api.pod("q", "carve-memory-600")
    wait_until(lambda: "default/carve-memory-600" in api.templates())
    wait_until(lambda: any("namespaces/team/pods" in p for _, p in api.calls))
    assert "team/carve-memory-500" not in api.templates()
    api.pod("p", "carve-memory-500", "team")
    wait_until(lambda: "team/carve-memory-500" in api.templates())


def test_a_template_that_carve_did_not_make_is_told_and_left_alone(controllers):
    api = controllers.api
    foreign = {"metadata": {"name": "carve-fraction-0.2", "namespace": "team"},
               "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.carve.dev"}}]}}}}
    api.put(TEMPLATES + "carve-fraction-0.2", foreign)
    api.gpus("n1", 81079)
    controllers.start()
    api.pod("p", "carve-fraction-0.2", "team")
    [(reason, message)] = wait_until(lambda: api.warnings("Pod", "team"))
    assert reason == "ForeignTemplate" and message == (
        "claim template carve-fraction-0.2 is not carve's, though it has a name of carve's; "
        "kubectl -n team delete resourceclaimtemplate carve-fraction-0.2, and make the pod again")
    assert api.templates()["team/carve-fraction-0.2"] == foreign["spec"]["spec"]["devices"]
    api.delete(TEMPLATES + "carve-fraction-0.2")
    wait_until(lambda: "firstAvailable" in api.templates().get("team/carve-fraction-0.2", {"requests": [{}]})["requests"][0])
    assert len(api.warnings("Pod", "team")) == 1 and controllers.log().count("template.failed") == 1


def test_claims_of_a_template_say_that_it_is_carves(api):
    api.pod("p", "carve-memory-500", "team")
    wait_until(lambda: "team/carve-memory-500" in api.templates())
    made = api.objects[TEMPLATES + "carve-memory-500"]
    assert made["spec"]["metadata"] == {"annotations": {"carve.dev/template": "carve-memory-500"}}


def test_a_template_that_could_not_be_made_is_tried_again(controllers):
    api = controllers.api
    api.forbidden = "resourceclaimtemplates/carve-memory-500"
    controllers.start()
    api.pod("p", "carve-memory-500", "team")
    wait_until(lambda: "template.failed" in controllers.log())
    api.forbidden = None
    wait_until(lambda: "team/carve-memory-500" in api.templates())


def test_no_template_goes_while_the_api_server_does_not_tell_all_pods(controllers):
    api = controllers.api
    controllers.start("--collect-every", "1")
    api.pod("p", "carve-memory-500")
    wait_until(api.templates)
    api.down = True
    api.cut_watches()
    wait_until(lambda: "templates.unknown" in controllers.log())
    api.down = False
    lists = len([p for m, p in api.calls if "managed-by" in p])
    wait_until(lambda: len([p for m, p in api.calls if "managed-by" in p]) > lists)
    assert list(api.templates()) == ["default/carve-memory-500"]


def test_a_list_without_an_end_is_not_read_for_ever(controllers):
    controllers.api.stuck = True
    controllers.start()
    wait_until(lambda: "names one page of /api/v1/pods twice" in controllers.log())


def test_names_that_are_no_size_make_nothing(api):
    for n, name in enumerate(["x", "carve-fraction-1.25", "carve-fraction-0", "carve-memory-0", "carve-memory-1-x0", "carve-memory-1-x33",
                              "carve-fraction-0.5-x2-x2"]):
        api.pod(f"p{n}", name)
    api.pod("good", "carve-memory-500")
    wait_until(lambda: "default/carve-memory-500" in api.templates())
    assert list(api.templates()) == ["default/carve-memory-500"]


def test_an_api_server_that_is_away_is_waited_for(controllers, api):
    api.down = True
    api.cut_watches()
    wait_until(lambda: "watch.failed" in controllers.log())
    api.down = False
    api.pod("p", "carve-memory-500")
    wait_until(lambda: "default/carve-memory-500" in api.templates())


def test_a_second_controller_waits_and_takes_over(controllers):
    first = controllers.start()
    name = wait_until(controllers.holder)
    controllers.start()
    first.terminate()
    assert first.wait(60) == 0
    wait_until(lambda: controllers.holder() not in (None, "", name))
    controllers.api.pod("p", "carve-memory-500")
    wait_until(lambda: controllers.api.templates())


@pytest.mark.parametrize("answer, wrong", rest_long([
    ("<html>Welcome</html>", "is no JSON"), ({}, "has no valid items"), ({"items": []}, "has no valid resourceVersion"),
    ("", "is no JSON"), ({"items": {}, "metadata": {"resourceVersion": "1"}}, "has no valid items"),
    ({"items": [], "metadata": {"resourceVersion": "one"}}, "has no valid resourceVersion"),
], 3))
def test_a_list_that_makes_no_sense_is_named_in_the_log(controllers, answer, wrong):
    api = controllers.api
    api.nonsense["/api/v1/pods"] = answer
    controllers.start()
    wait_until(lambda: f"the API server's answer {wrong}" in controllers.log())
    assert "GET /api/v1/pods?limit=500" in controllers.log() and "answered 200" not in controllers.log()
    api.nonsense.clear()
    api.pod("p", "carve-memory-500")
    wait_until(api.templates)


def test_a_lease_that_is_no_json_is_named_in_the_log(controllers):
    api = controllers.api
    api.nonsense["/leases/"] = "<html>Welcome</html>"
    controllers.start()
    wait_until(lambda: "the API server's answer is no JSON" in controllers.log())
    assert not any(method == "POST" for method, _ in api.calls)
    api.nonsense.clear()
    wait_until(controllers.holder)


@pytest.mark.parametrize("leads", rest_long([True, False]), ids=["leader", "candidate"])
@pytest.mark.parametrize("path", ["/leases/", "/api/v1/pods", "/resourceclaimtemplates"])
def test_a_controller_ends_at_once_while_the_api_server_answers_nothing(controllers, path, leads):
    api = controllers.api
    if not leads and path != "/leases/":
        pytest.skip("a candidate asks for nothing else")
    for i in range(20):
        api.pod(f"p{i}", f"carve-memory-{1000 + i}")
    if leads:
        api.stalled = None if path == "/leases/" else path
        controllers.start()
        wait_until(controllers.holder)
    api.stalled = path
    process = controllers.running[0] if leads else controllers.start()
    wait_until(lambda: api.stalls)
    process.terminate()
    assert process.wait(8) == 0  # a list has 30 s, a lease 4 s for each of two calls, and there may be 20 templates
    if path != "/leases/":
        assert not controllers.holder()


@pytest.mark.long
def test_a_leader_that_is_killed_is_followed_by_one_and_nothing_is_made_twice(controllers):
    first = controllers.start()
    name = wait_until(controllers.holder)
    controllers.api.pod("p", "carve-memory-500")
    wait_until(lambda: controllers.api.templates())
    controllers.start()
    controllers.start()
    first.kill()
    wait_until(lambda: controllers.holder() not in (None, "", name))
    controllers.api.pod("q", "carve-memory-600", "team")
    wait_until(lambda: "team/carve-memory-600" in controllers.api.templates())
    writes = [p for m, p in controllers.api.calls if m == "POST" and "templates" in p]
    assert len(writes) == 2
    # The third one only looks at the lease.
    assert sum(m == "GET" and p.startswith("/api/v1/pods") for m, p in controllers.api.calls) == 2


@pytest.mark.once("it judges memory")
def test_five_thousand_pods_cost_calls_by_the_page_and_memory_by_the_template(controllers):
    for i in range(5000):
        controllers.api.pod(f"p{i}", f"carve-memory-{1000 + i % 10}", f"team-{i % 20}")
    for i in range(1000):
        controllers.api.gpus(f"n{i}", *[81079] * 8)
    process = controllers.start()
    wait_until(lambda: len(controllers.api.templates()) == 20)
    wait_until(lambda: any(m == "WATCH" and "/pods" in p for m, p in controllers.api.calls))
    pages = [p for m, p in controllers.api.calls if m == "GET" and p.startswith("/api/v1/pods")]
    assert len(pages) == 10
    writes = [p for m, p in controllers.api.calls if m == "POST" and "templates" in p]
    assert len(writes) == len(controllers.api.templates())
    rss = next(int(line.split()[1]) for line in open(f"/proc/{process.pid}/status") if line.startswith("VmHWM"))
    assert rss < 64 * 1024


def job_pod(api, name, mark, namespace="team"):
    path = f"/api/v1/namespaces/{namespace}/pods/{name}"
    api.put(path, {"metadata": {"name": name, "namespace": namespace, "labels": {"carve.dev/pod": name},
                                "annotations": {"carve.dev/followed": mark} if mark else {}}, "spec": {}})
    return path


def test_pods_of_jobs_that_nobody_follows_are_deleted_and_no_others(controllers):
    api = controllers.api
    left, followed = job_pod(api, "left", "100/0"), job_pod(api, "followed", "100/0")
    kept = [job_pod(api, "unmarked", None), job_pod(api, "odd", "yesterday"), job_pod(api, "slow", "100/300")]
    api.pod("other", "carve-memory-500", "team")
    controllers.start("--collect-pods-after", "2")
    beats = 101

    def left_is_gone():
        nonlocal beats
        job_pod(api, "followed", f"{beats}/0")
        beats += 1
        return left not in api.objects

    wait_until(left_is_gone, step=0.2)
    wait_until(lambda: "pod.deleted path=" + left in controllers.log())
    assert all(path in api.objects for path in [*kept, followed, "/api/v1/namespaces/team/pods/other"])
    wait_until(lambda: followed not in api.objects)  # once nobody does
    assert all(path in api.objects for path in kept)


def test_a_controller_that_is_told_so_deletes_no_pods(controllers):
    api = controllers.api
    job_pod(api, "left", "100/0")
    api.pod("p", "carve-memory-500")
    controllers.start("--collect-pods-after", "0", "--collect-every", "1")
    wait_until(lambda: any("managed-by" in path for _, path in api.calls))
    assert not any("dev%2Fpod" in path for _, path in api.calls)
