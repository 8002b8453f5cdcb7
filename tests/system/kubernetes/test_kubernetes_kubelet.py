"""Pods with slices on a real kubelet and containerd, of a real control plane (kubelet_node.py). Only the GPU is simulated."""
import json
import os
import random
import signal
import subprocess
import threading

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from conftest import BUILD, clean_env, open_to_others, wait_until
from control_plane import MANIFESTS, ControlPlane
from kubelet_node import HAS_KUBELET, IMAGE, KubeletNode
from plane_node import PlaneNode

pytestmark = [pytest.mark.skipif(not HAS_KUBELET, reason="needs CARVE_TEST_CONTROL_PLANE, a directory of Kubernetes' programs, with kubelet"),
              pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet does")]


@pytest.fixture(scope="module")
def plane():
    plane = ControlPlane()
    try:
        plane.kubectl("apply", "-k", MANIFESTS / "mig-limits")
        plane.kubectl("delete", "daemonset,deployment", "--all", "-n", "carve")
        plane.kubectl("apply", "-f", MANIFESTS / "jobs" / "role.yaml")
        plane.controller()
        yield plane
    finally:
        plane.close()


class Node(PlaneNode):
    """A node with a real kubelet."""

    def __init__(self, host, plane, hook=None):
        super().__init__(host, plane, "k1")
        # Containers see these files as the host has them.
        self.dir.chmod(0o755)
        self.node = KubeletNode(plane, self.name, self.dir, self.cdi, hook)
        self.bind()

    def start(self, *options):
        super().start("--hook-dir", BUILD, *options)

    def started(self, *options):
        self.start(*options)
        wait_until(self.slices, step=0.2)
        return self

    def close(self):
        try:
            self.plane.kubectl("delete", "pods", "--all", "--grace-period=1", "--timeout=60s")
            wait_until(lambda: not self.sessions(), step=0.2)
        finally:
            self.node.close()
            super().close()
            self.remove()


@pytest.fixture
def make_node(make_host, plane):
    nodes = []

    def make(spec="h100-80gb", hooked=False):
        host = make_host(spec)
        # Hooks have the environment that their file names alone, and the simulated driver needs some of it.
        hook = {"path": str(BUILD / "carve-hook"), "args": ["carve-hook", "--host", f"{host.env['CARVE_RUNTIME_DIR']}/carved.sock"],
                "timeout": 30, "env": [f"{name}={host.env[name]}" for name in ("SIMGPU_HOST", "LD_LIBRARY_PATH")]}
        nodes.append(Node(host, plane, hook if hooked else None))
        return nodes[-1]

    yield make
    for node in nodes:
        node.close()


@pytest.fixture
def node(make_node):
    return make_node().started()


def container(name="main", command="hog", limits=None, **more):
    return {"name": name, "image": IMAGE, "command": ["sh", "-c", command], **({"resources": {"limits": limits}} if limits else {}), **more}


def pod(name, annotations=None, labels=None, containers=None, **spec):
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "annotations": annotations or {}, "labels": labels or {}},
            "spec": {"hostNetwork": True, "automountServiceAccountToken": False, "enableServiceLinks": False, "restartPolicy": "Never",
                     "tolerations": [{"operator": "Exists"}], "containers": containers or [container()], **spec}}


def phase(plane, name, *phases):
    def reached():
        p = plane.get("pod", name)
        return p["status"].get("phase") in phases and p

    try:
        return wait_until(reached, step=0.2)
    except AssertionError:
        raise AssertionError(plane.kubectl("describe", "pod", name).stdout[-3000:])


def log(plane, name, *more):
    return plane.kubectl("logs", name, *more).stdout


def test_a_pod_has_its_fraction_and_no_more(node, plane):
    plane.apply(pod("half", {"gpu-fraction": "0.5"}), pod("quarter", labels={"clearml-injector/fraction": "0.250"}))
    for name, mib in (("half", 0.5), ("quarter", 0.25)):
        phase(plane, name, "Succeeded")
        [device] = [d for s in plane.get("resourceslices") for d in s["spec"]["devices"]]
        assert f"this GPU has {int(device['attributes']['memoryMiB']['int'] * mib)} MiB" in log(plane, name)
    # The kubelet gives the claims of pods that have ended back.
    wait_until(lambda: not node.sessions(), step=0.2)
    assert node.specs() == []


@pytest.mark.parametrize("victim", ["kubelet", "plugin", "containerd"])
def test_a_pod_goes_on_and_others_come_after_a_kill(node, plane, victim):
    plane.apply(pod("first", {"gpu-fraction": "0.5"}, containers=[container(command="hog 2; while ! [ -e /tmp/go ]; do sleep 0.2; done; hog")]))
    wait_until(lambda: "cuMemGetInfo now says" in plane.kubectl("logs", "first", status=None).stdout, step=0.2)
    if victim == "plugin":
        node.kill()
        node.start()
        # A claim that comes before would be asked for again after a minute.
        wait_until(lambda: node.log().count("kubelet.registered") == 2)
    else:
        node.node.kill(victim)
        node.node.start_again(victim)
    plane.apply(pod("second", {"gpu-fraction": "0.25"}))
    phase(plane, "second", "Succeeded")
    plane.kubectl("exec", "first", "--", "sh", "-c", ": > /tmp/go")
    phase(plane, "first", "Succeeded")
    text = log(plane, "first")
    assert text.count("this GPU has") == 2 and len({line.split("MiB,")[0] for line in text.splitlines() if "this GPU has" in line}) == 1
    wait_until(lambda: not node.sessions(), step=0.2)


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_kills_at_any_moment_while_pods_come_and_go_leave_nothing_behind(node, plane):
    numbers = random.Random(2603)

    def kill(victim):
        if victim == "carved":
            os.kill(node.host.daemon_pid(), signal.SIGKILL)
        elif victim == "plugin":
            node.kill()
            node.start()
        elif victim in ("kubelet", "containerd"):
            node.node.kill(victim)
            node.node.start_again(victim)
        else:
            plane.restart(victim)

    left = set()
    for i in range(24):
        name = f"p{i}"
        forever = numbers.random() < 0.3
        plane.apply(pod(name, numbers.choice([{"gpu-fraction": "0.1"}, {"gpu-memory": "4096"}]), containers=[
            container(command="hog; sleep inf" if forever else f"hog; sleep {numbers.randrange(4)}")]))
        left.add(name)
        # A moment of the pod's start, run or end, in seconds.
        threading.Event().wait(numbers.random() * 3)
        kill(numbers.choice(["carved", "plugin", "kubelet", "containerd", "kube-apiserver", "carve-controller", "kube-scheduler"]))
        gone = {n for n in sorted(left) if numbers.random() < (0.5 if forever else 0.1)}
        for n in sorted(gone):
            plane.kubectl("delete", "pod", n, "--grace-period=1", "--wait=false")
        left -= gone
    for name in sorted(left):
        # A claim that a plugin did not answer for is asked for again after 60 to 90 s, and another kill may have followed.
        p = wait_until(lambda: (p := plane.get("pod", name))["status"].get("phase") in ("Running", "Succeeded", "Failed") and p, timeout=400, step=0.5)
        assert p["status"]["phase"] != "Failed", plane.kubectl("describe", "pod", name).stdout
        wait_until(lambda: "this GPU has" in plane.kubectl("logs", name, status=None).stdout, step=0.5)
    plane.kubectl("delete", "pods", "--all", "--grace-period=1", "--wait=false")
    wait_until(lambda: not plane.get("pods"), timeout=400, step=0.5)
    wait_until(lambda: not node.sessions() and not plane.get("resourceclaims"), timeout=400, step=0.5)
    assert node.specs() == [] and list((node.kubelet_dir / "plugins" / "gpu.carve.dev" / "claims").iterdir()) == []
    plane.apply(pod("after", {"gpu-fraction": "1"}))
    phase(plane, "after", "Succeeded")


def test_each_container_has_its_own_limit_while_a_neighbour_restarts(node, plane):
    plane.apply({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate", "metadata": {"name": "two"}, "spec": {"spec": {
        "devices": {"requests": [{"name": name, "exactly": {"deviceClassName": "gpu.carve.dev", "capacity": {"requests": {"memory": memory}}}}
                                 for name, memory in (("small", "2Gi"), ("large", "8Gi"))]}}}})
    containers = [container("small", "hog; sleep 1; exit 1") | {"resources": {"claims": [{"name": "gpus", "request": "small"}]}},
                  container("large", "while :; do hog; sleep 1; done") | {"resources": {"claims": [{"name": "gpus", "request": "large"}]}}]
    plane.apply(pod("p", containers=containers, restartPolicy="Always", resourceClaims=[{"name": "gpus", "resourceClaimTemplateName": "two"}]))

    def restarts():
        return {c["name"]: c["restartCount"] for c in plane.get("pod", "p")["status"].get("containerStatuses", [])}.get("small", 0)

    wait_until(lambda: restarts() >= 1, step=0.5)
    before = log(plane, "p", "-c", "large").count("this GPU has 8192 MiB")
    wait_until(lambda: log(plane, "p", "-c", "large").count("this GPU has 8192 MiB") > before, step=0.5)
    # The kubelet removes the container before the last one at any time.
    wait_until(lambda: "this GPU has 2048 MiB" in log(plane, "p", "-c", "small", "--previous"), step=0.5)
    assert all("8192" in line for line in log(plane, "p", "-c", "large").splitlines() if "this GPU has" in line)
    plane.kubectl("delete", "pod", "p", "--grace-period=1")
    plane.kubectl("delete", "resourceclaimtemplate", "two")


def test_a_container_of_another_user_has_its_slice(node, plane):
    open_to_others(node.host)
    subprocess.run(["chmod", "-R", "a+rwX", node.host.env["SIMGPU_HOST"]], check=True)
    plane.apply(pod("p", {"gpu-memory": "4096"}, securityContext={"runAsUser": 1000, "runAsNonRoot": True}, hostPID=True))
    phase(plane, "p", "Succeeded", "Failed")
    assert "this GPU has 4096 MiB" in log(plane, "p")


def test_the_variables_of_kai_lower_a_pods_slice(node, plane):
    plane.apply(pod("p", {"gpu-fraction": "0.5"}, containers=[container(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "2027m"}])]),
                pod("odd", {"gpu-fraction": "0.25"}, containers=[container(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "lots"}])]))
    phase(plane, "p", "Succeeded")
    assert "this GPU has 2027 MiB" in log(plane, "p")
    wait_until(lambda: "CUDA_DEVICE_MEMORY_LIMIT" in plane.kubectl("describe", "pod", "odd").stdout.partition("Events:")[2], step=0.5)


def test_a_plain_limit_is_an_instance_in_the_container(make_node, plane):
    node = make_node("h100-80gb+mig")
    assert node.host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
    node.started()
    wait_until(lambda: any(d["attributes"]["type"] == {"string": "mig"} for s in plane.get("resourceslices") for d in s["spec"].get("devices", [])),
               step=0.2)
    plane.apply(pod("p", containers=[container(limits={"nvidia.com/mig-1g.10gb": "1"})]))
    phase(plane, "p", "Succeeded")
    assert "this GPU has 9972 MiB" in log(plane, "p")
    wait_until(lambda: not node.sessions(), step=0.2)


def run_words(plane, *more):
    token = plane.dir / "jobs.token"
    token.write_text(plane.kubectl("create", "token", "carve-jobs").stdout.strip())
    return [BUILD / "carve-kubernetes", "run", "--api", plane.url, "--ca-file", plane.ca, "--token-file", token, *more]


def test_a_command_as_a_pod_prints_its_log_and_ends_with_its_code(node, plane, tmp_path):
    template = tmp_path / "pod.json"
    template.write_text(json.dumps(pod("ignored")))
    done = subprocess.run(run_words(plane, "--pod-template", template, "--fraction", "0.5", "--", "sh", "-c", "hog; echo end; exit 7"),
                          env=clean_env({}), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=100)
    assert done.returncode == 7 and done.stdout.endswith("end\n") and "this GPU has" in done.stdout, done.stderr
    wait_until(lambda: not plane.get("pods") and not node.sessions(), step=0.2)


@pytest.fixture
def agent(node, plane, tmp_path):
    """A queue named half, whose jobs are pods of the cluster, for an agent on the same host."""
    template, token = tmp_path / "pod.json", plane.dir / "jobs.token"
    template.write_text(json.dumps(pod("ignored")))
    token.write_text(plane.kubectl("create", "token", "carve-jobs").stdout.strip())
    done = node.host.carve("agent", "--detached", "--on", "kubernetes", "--pod-template", template, "--namespace", "default", "--api", plane.url,
                           "--ca-file", plane.ca, "--token-file", token, "--queue", "half=0.5")
    assert done.returncode == 0, done.stderr
    return node.host


def enqueue(host, *command):
    done = host.carve("enqueue", "--json", "--queue", "half", "--", *command)
    assert done.returncode == 0, done.stderr
    return str(json.loads(done.stdout)["id"])


def job_in(host, id, *states):
    return wait_until(lambda: (job := host.carve_json("job", "show", id))["state"] in states and job, step=0.2)


def test_jobs_of_a_queue_are_pods_with_logs_codes_and_cancel(agent, node, plane):
    good, bad = enqueue(agent, "sh", "-c", "hog; echo $CARVE_JOB_ID"), enqueue(agent, "sh", "-c", "exit 7")
    assert job_in(agent, good, "done", "failed", "lost")["state"] == "done"
    assert job_in(agent, bad, "done", "failed", "lost")["exit_code"] == 7
    log = agent.carve("job", "logs", good).stdout
    assert "CUDA_ERROR_OUT_OF_MEMORY" in log and log.endswith(f"{good}\n")
    long = enqueue(agent, "sh", "-c", "hog; sleep inf")
    job_in(agent, long, "running")
    wait_until(lambda: "cuMemGetInfo" in agent.carve("job", "logs", long).stdout, step=0.2)
    assert agent.carve("job", "cancel", long).returncode == 0
    assert job_in(agent, long, "cancelled", "failed", "done")["state"] == "cancelled"
    wait_until(lambda: not plane.get("pods") and not node.sessions(), step=0.2)


def simulated(host):
    """The parts of a pod by which its container finds the simulated GPU; a real one's device nodes come with NVIDIA's runtime."""
    place = host.env["SIMGPU_HOST"]
    return {"name": "SIMGPU_HOST", "value": place}, {"name": "gpu", "mountPath": place}, {"name": "gpu", "hostPath": {"path": place}}


@pytest.mark.parametrize("variables, mib", [
    ({"CUDA_DEVICE_MEMORY_LIMIT": "2027m"}, lambda gpu: 2027),
    ({"NVIDIA_VISIBLE_DEVICES": "UUID", "GPU_PORTION": "0.25", "RUNAI_NUM_OF_GPUS": "0.25"}, lambda gpu: gpu // 4),
], ids=["hami", "kai"])
def test_pods_of_kai_without_claims_are_limited_by_the_hook_of_all_containers(make_node, plane, variables, mib):
    node = make_node(hooked=True)
    [gpu] = node.host.carve_json("gpu", "list")
    variable, mount, volume = simulated(node.host)
    env = [{"name": name, "value": value.replace("UUID", gpu["uuid"])} for name, value in variables.items()]
    plane.apply(pod("kai", containers=[container(env=[variable, *env], volumeMounts=[mount])], volumes=[volume]),
                pod("plain", containers=[container(command="ls /run")]),
                pod("labelled", {"carve.vram": "1GiB"}, containers=[container(env=[variable], volumeMounts=[mount])], volumes=[volume]),
                pod("odd", containers=[container(env=[{"name": "CUDA_DEVICE_MEMORY_LIMIT", "value": "lots"}])]))
    for name in ("kai", "plain", "labelled"):
        phase(plane, name, "Succeeded")
    assert f"this GPU has {mib((gpu['memory_bytes'] - gpu['reserved_bytes']) >> 20)} MiB" in log(plane, "kai")
    assert "this GPU has 1024 MiB" in log(plane, "labelled") and log(plane, "plain") == ""
    phase(plane, "odd", "Failed")
    assert "CUDA_DEVICE_MEMORY_LIMIT: 'lots' is no limit" in plane.kubectl("describe", "pod", "odd").stdout
