"""Reservation pods: GPUs with slices of claims are not free for those who do not know DRA. The test plays the device plugin."""
import subprocess
import threading

import pytest

grpc = pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import GIB, Cluster, PodResources
from conftest import BUILD, clean_env, wait_until
from pod_security import restricted_faults

PODS = "/api/v1/namespaces/runai-reservation/pods"
OPTIONS = ("--reserve-namespace", "runai-reservation", "--reserve-image", "carve", "--reserve-label", "app=runai-reservation")


class DevicePlugin:
    """Gives each pod that asks for a GPU one that is free, in its own order: as a kubelet with NVIDIA's plugin does."""

    def __init__(self, api, uuids, env=lambda uuid: uuid):
        self.api, self.free, self.given, self.env = api, list(uuids), {}, env
        self.most = 0  # pods at a time
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    def pods(self):
        return {p: o for p, o in self.api.objects.items() if p.startswith(PODS + "/")}

    def serve(self):
        while not self.stopped.wait(0.02):
            with self.api.lock:
                for path in [p for p in self.given if p not in self.api.objects]:
                    self.free.append(self.given.pop(path))
                for path, pod in self.pods().items():
                    if "status" not in pod:
                        self.start(path, pod)
                self.most = max(self.most, len(self.pods()))

    def start(self, path, pod):
        [container] = pod["spec"]["containers"]
        assert container["resources"]["limits"] == {"nvidia.com/gpu": "1"} and pod["spec"]["nodeName"] == "n1"
        assert restricted_faults(pod["spec"]) == [] and pod["spec"]["priorityClassName"] == "system-node-critical"
        if not self.free:
            self.api.put(path, {**pod, "status": {"phase": "Failed", "reason": "UnexpectedAdmissionError"}})
            return
        self.given[path] = self.free.pop(0)
        env = {**clean_env(), "NVIDIA_VISIBLE_DEVICES": self.env(self.given[path])}
        program = subprocess.Popen([BUILD / "carve-kubernetes", "hold"], env=env, stdout=subprocess.PIPE, text=True)
        self.api.logs[path] = [program.stdout.readline()]
        program.terminate()
        assert program.wait(60) == 0
        self.api.put(path, {**pod, "status": {"phase": "Running"}})

    def stop(self):
        self.stopped.set()
        self.thread.join()


class Node:
    def __init__(self, cluster, plugins):
        self.cluster, self.plugins = cluster, plugins
        self.api = cluster.api
        self.uuids = {d["name"]: d["attributes"]["uuid"]["string"] for d in self.api.devices()}
        self.devices = sorted(self.uuids)

    def plug(self, uuids=None, **more):
        self.plugin = DevicePlugin(self.api, self.uuids.values() if uuids is None else uuids, **more)
        self.plugins.append(self.plugin)

    def claim(self, name, device):
        return self.api.claim(name, [("gpu", device, str(4 * GIB), "0")])

    def prepare(self, claim):
        [(devices, error)] = self.cluster.kubelet.prepare(claim).values()
        return error or devices

    def held(self):
        """UUIDs by reservation pods that are there."""
        with self.api.lock:
            return sorted(self.plugin.given[p] for p in self.plugin.pods() if p in self.plugin.given)


@pytest.fixture
def node(make_host):
    cluster, plugins = Cluster(make_host("h100-80gb:3")), []
    cluster.started(*OPTIONS)
    yield Node(cluster, plugins)
    cluster.close()
    for plugin in plugins:
        plugin.stop()


def test_the_first_claim_of_a_gpu_reserves_it_and_the_last_one_frees_it(node):
    wanted = node.devices[-1]
    # The plugin would give that one last: the others are given back.
    others = [u for d, u in node.uuids.items() if d != wanted]
    node.plug([*others, node.uuids[wanted]])
    one, two = node.claim("one", wanted), node.claim("two", wanted)
    assert node.prepare(one)[0]["device"] == wanted
    assert node.held() == [node.uuids[wanted]] and node.plugin.most == 3
    [pod] = node.plugin.pods().values()
    assert pod["metadata"]["labels"]["app"] == "runai-reservation"
    assert node.prepare(two)[0]["device"] == wanted and node.held() == [node.uuids[wanted]]
    assert list(node.cluster.kubelet.unprepare(one).values()) == [""] and node.held() == [node.uuids[wanted]]
    assert list(node.cluster.kubelet.unprepare(two).values()) == [""]
    wait_until(lambda: not node.plugin.pods())


def test_a_gpu_that_is_anothers_is_refused_and_nothing_is_kept(node):
    wanted = node.devices[0]
    node.plug([u for d, u in node.uuids.items() if d != wanted])
    assert "is another's" in node.prepare(node.claim("one", wanted))
    assert node.plugin.pods() == {} and node.cluster.sessions() == []


@pytest.mark.parametrize("env", ["void", "all", "0", ""])
def test_a_plugin_that_does_not_tell_the_gpu_fails_closed(node, env):
    node.plug(env=lambda uuid: env)
    assert "names no GPU by its UUID" in node.prepare(node.claim("one", node.devices[0]))
    assert node.cluster.sessions() == []


def test_a_plugin_that_was_killed_finds_its_reservations(node):
    node.plug()
    claim = node.claim("one", node.devices[1])
    node.prepare(claim)
    before = set(node.plugin.pods())
    node.cluster.kill()
    node.cluster.started(*OPTIONS)
    assert node.prepare(claim)[0]["device"] == node.devices[1]
    assert set(node.plugin.pods()) == before and len(before) == 1
    node.cluster.kubelet.unprepare(claim)
    wait_until(lambda: not node.plugin.pods())


def test_a_reservation_whose_label_was_taken_away_keeps_others_out(node):
    """Nobody knows it as carve's any more: its GPU is another's, and is not granted once more."""
    node.plug()
    device = node.devices[0]
    node.prepare(node.claim("one", device))
    with node.api.lock:
        [(path, pod)] = node.plugin.pods().items()
        labels = {k: v for k, v in pod["metadata"]["labels"].items() if k != "carve.dev/reservation"}
        node.api.put(path, {**pod, "metadata": {**pod["metadata"], "labels": labels}})
    assert "is another's" in node.prepare(node.claim("two", device))
    assert len(node.cluster.sessions()) == 1


@pytest.mark.parametrize("how", ["deleted", "evicted"])
def test_a_reservation_that_goes_while_a_slice_uses_its_gpu_is_made_again(node, how):
    node.plug()
    wanted = node.devices[1]
    claim = node.claim("one", wanted)
    node.prepare(claim)
    wait_until(lambda: any(m == "WATCH" and p.startswith(PODS) for m, p in node.api.calls))
    with node.api.lock:
        [(path, pod)] = node.plugin.pods().items()
        if how == "deleted":
            node.api.delete(path)
        else:
            node.api.put(path, {**pod, "status": {"phase": "Failed", "reason": "Evicted"}})
    wait_until(lambda: path not in node.plugin.pods() and node.held() == [node.uuids[wanted]])
    # The others that the search for the GPU made are deleted, and so is this one after the last claim.
    wait_until(lambda: len(node.plugin.pods()) == 1)
    node.cluster.kubelet.unprepare(claim)
    wait_until(lambda: not node.plugin.pods())


def test_a_gpu_that_was_lost_to_another_pod_is_reserved_again_when_it_is_free(node):
    node.plug()
    wanted = node.devices[1]
    node.prepare(node.claim("one", wanted))
    wait_until(lambda: any(m == "WATCH" and p.startswith(PODS) for m, p in node.api.calls))
    with node.api.lock:
        [path] = node.plugin.pods()
        # Another pod has the GPU before anybody hears that the reservation is gone.
        node.api.delete(path)
        node.plugin.given.pop(path)
    wait_until(lambda: "reservation.lost" in node.cluster.log() and "is another's" in node.cluster.log())
    with node.api.lock:
        node.plugin.free.append(node.uuids[wanted])
    wait_until(lambda: node.held() == [node.uuids[wanted]])


def test_without_the_api_server_no_new_claim_is_granted(node):
    node.plug()
    claim = node.claim("one", node.devices[0])
    node.prepare(claim)
    new = node.claim("two", node.devices[1])
    node.api.down = True
    assert isinstance(node.prepare(new), str)
    assert node.prepare(claim)[0]["device"] == node.devices[0] and len(node.cluster.sessions()) == 1
    node.api.down = False


@pytest.fixture
def kubelet(node):
    kubelet = PodResources(node.cluster.kubelet_dir)
    yield kubelet
    kubelet.close()


def given_away(node):
    """{device: effect} of GPUs with that taint."""
    return {d["name"]: t["effect"] for d in node.api.devices() for t in d.get("taints", []) if t["key"] == "carve.dev/given-away"}


@pytest.mark.parametrize("id", ["{}", "{}::1"], ids=["a whole GPU", "a share of the device plugin's"])
def test_a_gpu_that_a_device_plugin_gave_away_has_its_pods_go_elsewhere(node, kubelet, id):
    taken = node.devices[0]
    kubelet.pods["default", "training"] = {"nvidia.com/gpu": [id.format(node.uuids[taken])], "vendor.example/nic": ["eth0"]}
    # A reservation holds another one: it is carve's own.
    kubelet.pods["runai-reservation", "carve-reservation-1"] = {"nvidia.com/gpu": [node.uuids[node.devices[1]]]}
    node.cluster.kubelet.register()
    wait_until(lambda: given_away(node) == {taken: "NoExecute"})
    kubelet.pods["default", "carve-reservation-2"] = {"nvidia.com/gpu": [node.uuids[node.devices[2]]]}
    wait_until(lambda: given_away(node) == {taken: "NoExecute", node.devices[2]: "NoExecute"})
    kubelet.pods.clear()
    wait_until(lambda: given_away(node) == {})


def test_slices_that_are_prepared_stay_when_their_gpu_is_given_away(node, kubelet):
    node.plug()
    device = node.devices[0]
    claim = node.claim("one", device)
    node.prepare(claim)
    kubelet.pods["default", "training"] = {"nvidia.com/gpu": [node.uuids[device]]}
    node.cluster.kubelet.register()
    wait_until(lambda: given_away(node) == {device: "NoSchedule"})
    node.cluster.kubelet.unprepare(claim)
    wait_until(lambda: given_away(node) == {device: "NoExecute"})


def test_a_kubelet_that_does_not_tell_leaves_what_it_told(node, kubelet):
    kubelet.pods["default", "training"] = {"nvidia.com/gpu": [node.uuids[node.devices[0]]]}
    node.cluster.kubelet.register()
    wait_until(lambda: given_away(node))
    kubelet.status = grpc.StatusCode.UNAVAILABLE
    kubelet.pods.clear()
    wait_until(lambda: "kubelet.no_pod_resources" in node.cluster.log())
    assert given_away(node) and "with the status 14" in node.cluster.log()
    kubelet.status = None
    wait_until(lambda: not given_away(node))
    assert node.cluster.log().count("kubelet.no_pod_resources") == 1


@pytest.mark.parametrize("options,what", [
    (["--reserve-namespace", "A/b", "--reserve-image", "i"], "no name of a namespace"),
    (["--reserve-namespace", "a"], "--reserve-image"),
    (["--reserve-namespace", "a", "--reserve-image", "i", "--reserve-label", "x"], "KEY=VALUE"),
])
def test_bad_options_are_one_line(options, what):
    done = subprocess.run([BUILD / "carve-kubernetes", "node", "--node-name", "n1", "--api", "http://127.0.0.1:1", *options],
                          env=clean_env(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and what in done.stderr and done.stderr.count("\n") == 1


def test_claims_of_all_gpus_at_once_need_one_reservation_each(node):
    node.plug()
    claims = [node.claim(f"c{i}", d) for i, d in enumerate(node.devices)]
    done = node.cluster.kubelet.prepare(*claims)
    assert [error for _, error in done.values()] == ["", "", ""]
    assert node.held() == sorted(node.uuids.values()) and node.plugin.most <= 4
