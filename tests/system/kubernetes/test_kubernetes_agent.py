"""carve agent --on kubernetes: each job of a queue is a pod, for an API server and a kubelet that the test plays."""
import json
import os
import signal

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer, without_mark
from conftest import rest_long, wait_until

PODS = "/api/v1/namespaces/research/pods"
ENDED = ("done", "failed", "cancelled", "timeout", "lost")


class Pods:
    """A host with an agent on kubernetes, and the verbs of its jobs."""

    def __init__(self, host, api, dir):
        self.host, self.api, self.dir = host, api, dir

    def agent(self, *queues, template="metadata: {labels: {team: a}}\nspec: {containers: [{name: main, image: cuda}]}\n", options=()):
        file = self.dir / "pod.yaml"
        file.write_text(template)
        return self.host.carve("agent", "--json", "--detached", "--on", "kubernetes", "--pod-template", file, "--namespace", "research",
                               "--api", self.api.url, *options, "--queue", *queues)

    def enqueue(self, *options, queue="half", command=("python3", "train.py")):
        done = self.host.carve("enqueue", "--json", "--queue", queue, *options, "--", *command)
        assert done.returncode == 0, done.stderr
        return str(json.loads(done.stdout)["id"])

    def job(self, id):
        return self.host.carve_json("job", "show", id)

    def state(self, id):
        return self.job(id)["state"]

    def ended(self, id):
        wait_until(lambda: self.state(id) in ENDED)
        return self.job(id)

    def pods(self, id=None):
        with self.api.lock:
            return {p: o for p, o in self.api.objects.items() if p.startswith(PODS + "/") and
                    (id is None or o["metadata"]["labels"]["carve.dev/job"] == id)}

    def pod(self, id):
        wait_until(lambda: self.pods(id))
        [(path, pod)] = self.pods(id).items()
        return path, pod

    def status(self, path, phase, code=None, **more):
        pod = self.api.objects[path]
        ended = [] if code is None else [{"name": "main", "state": {"terminated": {"exitCode": code}}}]
        self.api.put(path, {**pod, "status": {"phase": phase, "containerStatuses": ended, **more}})

    def print(self, path, text):
        with self.api.lock:
            self.api.logs.setdefault(path, []).append(text)
            self.api.changed.notify_all()

    def made(self):
        with self.api.lock:
            return [path for method, path in self.api.calls if method == "POST" and "dryRun" not in path]

    def processes(self, word):
        """Of this test's jobs: their command lines name this API server, or their directory."""
        found = []
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = open(f"/proc/{pid}/cmdline", "rb").read().decode().split("\0")
                environment = open(f"/proc/{pid}/environ", "rb").read().decode(errors="replace")
            except OSError:
                continue
            if line[0].endswith(word) and self.host.env["SIMGPU_HOST"] in environment:
                found.append(int(pid))
        return found


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
def pods(make_host, api, tmp_path):
    return Pods(make_host("h100-80gb"), api, tmp_path)


def test_each_job_is_a_pod_with_the_queues_fraction_and_the_templates_fields(pods):
    agent = json.loads(pods.agent("half=0.5").stdout)
    assert agent["pods"]["namespace"] == "research" and agent["gpus"] == ""
    pods.enqueue("--array", "4-4")
    wait_until(pods.pods)
    [pod] = pods.pods().values()
    assert without_mark(pod) == {"gpu-fraction": "0.5"} and pod["metadata"]["labels"]["team"] == "a"
    [container] = pod["spec"]["containers"]
    assert container["command"] == ["python3", "train.py"] and container["image"] == "cuda"
    env = {e["name"]: e["value"] for e in container["env"]}
    assert env["CARVE_JOB_QUEUE"] == "half" and env["CARVE_JOB_INDEX"] == "4" and env["CARVE_JOB_ATTEMPT"] == "1"
    # No slice of this host is promised for it.
    assert pods.host.carve_json("session", "list") == []


def test_logs_and_exit_codes_come_through_the_verbs_of_jobs(pods):
    pods.agent("half=0.5")
    job = pods.enqueue()
    path, _ = pods.pod(job)
    pods.status(path, "Running")
    pods.print(path, "from the pod\n")
    wait_until(lambda: "from the pod\n" in pods.host.carve("job", "logs", job).stdout)
    pods.status(path, "Failed", code=3)
    shown = pods.ended(job)
    assert (shown["state"], shown["exit_code"]) == ("failed", 3) and pods.pods() == {}
    assert pods.host.carve("job", "logs", job).stdout == "from the pod\n"
    assert list(pods.host.carve_json("session", "list")) == []


def test_a_job_that_asks_for_standard_input_makes_no_pod(pods):
    pods.agent("half=0.5")
    shown = pods.ended(pods.enqueue("--input", "/etc/hostname"))
    assert shown["state"] == "failed" and "a pod has no standard input" in shown["reason"] and pods.pods() == {}


def test_a_cancelled_job_deletes_its_pod_with_the_jobs_grace(pods):
    pods.agent("half=0.5")
    job = pods.enqueue("--grace", "7s")
    path, _ = pods.pod(job)
    pods.host.carve("job", "cancel", job)
    assert pods.ended(job)["state"] == "cancelled" and pods.pods() == {}
    assert ("DELETE", path + "?gracePeriodSeconds=7") in pods.api.calls


def test_a_job_is_not_cancelled_before_its_pod_is_deleted(pods):
    pods.agent("half=0.5")
    job = pods.enqueue("--grace", "0s")
    path, _ = pods.pod(job)
    pods.status(path, "Running")
    pods.api.down = True
    pods.api.cut_watches()
    pods.host.carve("job", "cancel", job)
    wait_until(lambda: "does not answer" in pods.job(job)["reason"])
    assert pods.state(job) == "running" and path in pods.api.objects
    pods.api.down = False
    assert pods.ended(job)["state"] == "cancelled" and pods.pods() == {}


def test_max_pods_and_max_of_a_queue_hold_and_priority_goes_first(pods):
    pods.agent("half=0.5", "one=1,max=1", options=("--max-pods", "2"))
    first, second = pods.enqueue(queue="one"), pods.enqueue(queue="one")
    pods.pod(first)
    wait_until(lambda: "as many jobs of its queue" in pods.job(second)["reason"])
    third, low, high = pods.enqueue(), pods.enqueue(), pods.enqueue("--priority", "0")
    pods.pod(third)
    wait_until(lambda: "as many pods of the agent" in pods.job(low)["reason"])
    urgent = pods.enqueue("--hold")
    assert len(pods.pods()) == 2 and len(pods.made()) == 2
    pods.status(pods.pod(first)[0], "Succeeded", code=0)
    assert pods.ended(first)["state"] == "done"
    # The queue `half` is the first one of the list, and `low` came before `high`.
    pods.pod(low)
    assert not pods.pods(high) and not pods.pods(urgent)


def test_a_job_of_higher_priority_ends_one_that_may_run_again(pods):
    """Its second attempt is another pod."""
    pods.agent("half=0.5", options=("--max-pods", "1"))
    job = pods.enqueue("--requeue", "--priority", "-5")
    path, _ = pods.pod(job)
    urgent = pods.enqueue()
    pods.pod(urgent)
    assert path not in pods.api.objects and pods.state(job) == "queued"
    pods.status(pods.pod(urgent)[0], "Succeeded", code=0)
    again, pod = pods.pod(job)
    assert again != path and again.endswith("-2")


def test_retries_make_another_pod_for_each_attempt(pods):
    pods.agent("half=0.5")
    job = pods.enqueue("--retries", "1")
    path, _ = pods.pod(job)
    pods.status(path, "Failed", code=9)
    wait_until(lambda: list(pods.pods(job)) not in ([], [path]))
    again, pod = pods.pod(job)
    assert again.endswith("-2") and path.endswith("-1")
    pods.status(again, "Succeeded", code=0)
    assert pods.ended(job)["state"] == "done" and len(pods.made()) == 2


@pytest.mark.parametrize("victim", rest_long(["both", "carve-kubernetes", "carve-shim"]))
def test_a_kill_neither_loses_the_job_nor_runs_it_twice(pods, victim):
    pods.agent("half=0.5")
    job = pods.enqueue()
    path, _ = pods.pod(job)
    pods.status(path, "Running")
    pods.print(path, "first\n")
    wait_until(lambda: "first\n" in pods.host.carve("job", "logs", job).stdout)
    for name in ("carve-shim", "carve-kubernetes"):
        if victim in (name, "both"):
            for pid in pods.processes(name):
                os.kill(pid, signal.SIGKILL)
    pods.print(path, "second\n")
    pods.status(path, "Succeeded", code=0)
    shown = pods.ended(job)
    assert (shown["state"], shown["attempt"]) == ("done", 1), shown
    assert pods.host.carve("job", "logs", job).stdout == "first\nsecond\n"
    assert len(pods.made()) == 1 and pods.pods() == {}


def test_an_api_server_that_is_away_is_the_jobs_reason_and_no_word_in_its_log(pods):
    pods.agent("half=0.5")
    pods.api.down = True
    job = pods.enqueue()
    wait_until(lambda: "does not answer" in pods.job(job)["reason"])
    pods.api.down = False
    path, _ = pods.pod(job)
    pods.status(path, "Running")
    pods.print(path, "first\n")
    wait_until(lambda: "first\n" in pods.host.carve("job", "logs", job).stdout)
    pods.api.down = True
    pods.api.cut_watches()
    wait_until(lambda: "does not answer" in pods.job(job)["reason"])
    pods.api.down = False
    pods.print(path, "second\n")
    pods.status(path, "Succeeded", code=0)
    assert pods.ended(job)["state"] == "done"
    assert pods.host.carve("job", "logs", job).stdout == "first\nsecond\n"
    assert len(pods.made()) == 1


def kill_followers(pods):
    for name in ("carve-shim", "carve-kubernetes"):
        for pid in pods.processes(name):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_the_pod_of_a_cancelled_job_goes_though_all_that_follow_it_are_killed(pods, phase):
    pods.agent("half=0.5")
    job = pods.enqueue("--grace", "0s")
    path, _ = pods.pod(job)
    pods.status(path, phase)
    pods.api.down = True
    pods.api.cut_watches()
    pods.host.carve("job", "cancel", job)
    wait_until(lambda: "cancelled" in pods.job(job)["reason"])
    kill_followers(pods)
    pods.api.down = False
    shown = pods.ended(job)
    assert (shown["state"], shown["reason"]) == ("cancelled", "cancelled")
    assert pods.pods() == {} and len(pods.made()) == 1


@pytest.mark.parametrize("held", [False, True])
def test_a_job_that_is_cancelled_before_its_pod_is_taken_up_deletes_it(pods, held):
    pods.agent("half=0.5")
    job = pods.enqueue("--grace", "0s")
    path, _ = pods.pod(job)
    pods.status(path, "Running")
    pods.host.carve("agent", "--drain")
    kill_followers(pods)
    wait_until(lambda: pods.state(job) == "queued")
    if held:
        pods.host.carve("job", "hold", job)
    pods.host.carve("job", "cancel", job)
    assert path in pods.api.objects and "its pod is to be deleted" in pods.job(job)["reason"]
    pods.host.carve("agent", "--resume")
    assert pods.ended(job)["state"] == "cancelled" and pods.pods() == {} and len(pods.made()) == 1


def test_a_pod_that_is_deleted_or_evicted_is_a_lost_attempt_and_is_told(pods):
    pods.agent("half=0.5")
    job = pods.enqueue()
    path, _ = pods.pod(job)
    pods.api.delete(path)
    shown = pods.ended(job)
    assert shown["state"] == "lost" and shown["reason"] == "its pod was deleted by another"
    job = pods.enqueue("--retries", "1")
    path, _ = pods.pod(job)
    pods.status(path, "Failed", message="The node was low on resource: memory")
    wait_until(lambda: list(pods.pods(job)) not in ([], [path]))
    again, _ = pods.pod(job)
    pods.status(again, "Failed", message="The node was low on resource: memory")
    shown = pods.ended(job)
    assert shown["state"] == "lost" and "low on resource" in shown["reason"] and shown["attempt"] == 2


def test_why_a_pod_waits_is_told_in_job_show(pods):
    pods.agent("half=0.5")
    job = pods.enqueue()
    path, pod = pods.pod(job)
    pods.api.put(path, {**pod, "status": {"phase": "Pending", "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "cuda"'}}}]}})
    wait_until(lambda: pods.job(job)["reason"] == 'its pod waits: Back-off pulling image "cuda"')


def test_a_daemon_that_is_killed_finds_its_pods_and_its_agent_again(pods):
    pods.agent("half=0.5", options=("--max-pods", "1"))
    job, waits = pods.enqueue(), pods.enqueue()
    path, _ = pods.pod(job)
    for pid in pods.processes("carved"):
        os.kill(pid, signal.SIGKILL)
    pods.status(path, "Succeeded", code=0)
    assert pods.ended(job)["state"] == "done"
    path, _ = pods.pod(waits)
    pods.status(path, "Succeeded", code=0)
    assert pods.ended(waits)["state"] == "done" and len(pods.made()) == 2


def test_values_of_clearmls_chart_give_each_queue_its_pod_and_its_most(pods):
    done = pods.agent("default0500", "default0250", template="""
agentk8sglue:
  basePodTemplate: {image: cuda}
  queues:
    default0500:
      templateOverrides:
        labels: {required-resources: "0.5", clearml-injector/fraction: "0.500"}
        resources: {limits: {nvidia.com/gpu: 1, clear.ml/fraction-1: "0.5"}}
      queueSettings: {maxPods: 1}
    default0250:
      templateOverrides:
        labels: {clearml-injector/fraction: "0.250"}
""")
    assert [q["max"] for q in json.loads(done.stdout)["queues"]] == [1, None]
    one, two = pods.enqueue(queue="default0500"), pods.enqueue(queue="default0500")
    other = pods.enqueue(queue="default0250")
    _, pod = pods.pod(one)
    assert pod["metadata"]["labels"]["clearml-injector/fraction"] == "0.500"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"nvidia.com/gpu": 1, "clear.ml/fraction-1": "0.5"}
    assert pods.pod(other)[1]["metadata"]["labels"]["clearml-injector/fraction"] == "0.250"
    assert not pods.pods(two)


def test_the_size_of_a_queue_or_a_job_takes_the_place_of_the_templates_in_any_spelling(pods):
    """The policies of a cluster refuse a pod that names two."""
    pods.agent("a=0.25", "b", template="""
queues:
  a: &sizes
    templateOverrides:
      labels: {required-resources: "0.5", clearml-injector/fraction: "0.500"}
      resources: {limits: {nvidia.com/gpu: 1, clear.ml/fraction-1: "0.5", cpu: 1}, requests: {clear.ml/fraction-1: "0.5"}}
      annotations: {gpu-fraction-num-devices: "2", other: "1"}
  b: *sizes
basePodTemplate: {image: cuda}
""")
    for job, annotations in ((pods.enqueue(queue="a"), {"gpu-fraction": "0.25"}), (pods.enqueue("--gpu", "0.125", queue="b"), {"gpu-fraction": "0.125"}),
                             (pods.enqueue("--vram", "4", queue="b"), {"gpu-memory": "4096"})):
        _, pod = pods.pod(job)
        assert without_mark(pod) == annotations | {"other": "1"}
        assert "clearml-injector/fraction" not in pod["metadata"]["labels"]
        assert pod["spec"]["containers"][0]["resources"] == {"limits": {"cpu": 1}, "requests": {}}


def test_a_job_may_ask_for_less_than_its_queue_and_not_for_more(pods):
    pods.agent("half=0.5", "any")
    assert without_mark(pods.pod(pods.enqueue("--gpu", "0.25"))[1]) == {"gpu-fraction": "0.25"}
    assert without_mark(pods.pod(pods.enqueue("--vram", "4", queue="any"))[1]) == {"gpu-memory": "4096"}
    done = pods.host.carve("enqueue", "--queue", "half", "--gpu", "0.75", "--", "true")
    assert done.returncode == 2 and "more than queue half gives" in done.stderr


def test_errors_of_the_command_are_one_line(pods):
    def says(*options, code=2, **more):
        done = pods.agent("half=0.5", options=options, **more)
        assert done.returncode == code and done.stderr.startswith('{"error":') and done.stderr.count("\n") == 1, done.stderr
        return done.stderr

    assert "'0' is no number" in says("--max-pods", "0")
    assert "--gpus does not go" in says("--gpus", "0")
    assert "No such file" in says("--token-file", "/nowhere")
    assert "spce is unknown" in says(template="spce: {}\n")
    assert "--namespace: 'A B' is no name for it" in says("--namespace", "A B")
    assert "--api: 'foo' is no URL" in says("--api", "foo")
    assert "no image" in says(template="spec: {}\n")
    done = pods.host.carve("agent", "--max-pods", "3", "--queue", "a=1")
    assert done.returncode == 2 and done.stderr.count("\n") == 1 and "--on kubernetes" in done.stderr
    done = pods.host.carve("agent", "--on", "slurm", "--queue", "a=1")
    assert done.returncode == 2 and "'slurm'" in done.stderr
    assert pods.host.carve_json("agent", "--status") == []
