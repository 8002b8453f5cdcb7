"""carve-kubernetes run: a command as a pod, for an API server that the test plays."""
import json
import signal
import subprocess

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer
from conftest import BUILD, clean_env, run, wait_until

PODS = "/api/v1/namespaces/default/pods"


class Run:
    """A running command, and the kubelet of its pod."""

    def __init__(self, api, *options, command=("python3", "train.py")):
        self.api = api
        self.process = subprocess.Popen([BUILD / "carve-kubernetes", "run", "--api", api.url, *options, "--", *command],
                                        env=clean_env(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)

    def pods(self):
        with self.api.lock:
            return [p for p in self.api.objects if p.startswith(PODS + "/")]

    def pod(self):
        wait_until(self.pods)
        [self.path] = self.pods()
        return self.api.objects[self.path]

    def status(self, phase, code=None, **more):
        pod = self.api.objects[self.path]
        statuses = [{"name": "sidecar", "state": {"terminated": {"exitCode": 99}}}]
        if code is not None:
            statuses.append({"name": pod["spec"]["containers"][0]["name"], "state": {"terminated": {"exitCode": code}}})
        self.api.put(self.path, {**pod, "status": {"phase": phase, "containerStatuses": statuses, **more}})

    def print(self, text):
        with self.api.lock:
            self.api.logs.setdefault(self.path, []).append(text)
            self.api.changed.notify_all()

    def end(self):
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


@pytest.fixture
def api():
    server = ApiServer()
    yield server
    server.close()


@pytest.fixture
def start(api):
    runs = []

    def begin(*options, **more):
        runs.append(Run(api, *options, **more))
        return runs[-1]

    yield begin
    for one in runs:
        one.process.kill()
        one.process.wait()


def test_a_pod_runs_the_command_and_its_exit_code_is_the_programs(start):
    one = start("--image", "cuda:12", "--fraction", "0.5")
    pod = one.pod()
    assert pod["metadata"]["annotations"] == {"gpu-fraction": "0.5"}
    assert pod["spec"]["restartPolicy"] == "Never"
    [container] = pod["spec"]["containers"]
    assert container["image"] == "cuda:12" and container["command"] == ["python3", "train.py"]
    one.status("Pending", message="0/3 nodes are available")
    assert one.process.stderr.readline().endswith(": 0/3 nodes are available\n")
    one.status("Running")
    one.print("step 1\n")
    assert one.process.stdout.readline() == "step 1\n"
    one.print("\nstep 2\n")
    one.print("no end of line")
    one.status("Failed", code=7)
    assert one.end()[:2] == (7, "\nstep 2\nno end of line")
    assert one.pods() == []


@pytest.mark.parametrize("wrap", [lambda pod: pod, lambda pod: {"kind": "PodTemplate", "template": pod}],
                         ids=["pod", "template"])
def test_a_template_says_all_but_the_command(start, tmp_path, wrap):
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(wrap({
        "metadata": {"name": "mine", "labels": {"required-resources": "0.25", "clearml-injector/fraction": "0.250"}},
        "spec": {"restartPolicy": "Always", "nodeSelector": {"a": "b"},
                 "containers": [{"name": "c", "image": "i", "args": ["x"]}, {"name": "sidecar", "image": "s"}]}})))
    one = start("--pod-template", file)
    pod = one.pod()
    assert pod["metadata"]["name"].startswith("carve-job-") and pod["metadata"]["labels"]["clearml-injector/fraction"] == "0.250"
    assert pod["spec"]["nodeSelector"] == {"a": "b"} and pod["spec"]["restartPolicy"] == "Never"
    assert pod["spec"]["containers"] == [{"name": "c", "image": "i", "command": ["python3", "train.py"]},
                                         {"name": "sidecar", "image": "s"}]
    one.status("Succeeded", code=0)
    assert one.end()[0] == 0


def test_a_pod_that_is_refused_is_an_error_and_not_tried_again(start, api, tmp_path):
    file = tmp_path / "pod.json"
    file.write_text(json.dumps({"spec": {"conatiners": [], "containers": [{"image": "i", "name": "c"}]}}))
    code, _, err = start("--pod-template", file).end()
    assert code == 1 and "answered 422: .spec.conatiners is unknown" in err and err.count("\n") == 1
    assert [method for method, _ in api.calls] == ["POST"] and len(api.invalid) == 1
    api.invalid.clear()


def test_whole_gpus_are_different_devices(start):
    one = start("--image", "i", "--fraction", "2")
    assert one.pod()["metadata"]["annotations"] == {"gpu-fraction": "1", "gpu-fraction-num-devices": "2"}


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("phase", ["Pending", "Running"])
def test_a_signal_deletes_the_pod(start, api, phase, number):
    one = start("--image", "i")
    one.pod()
    one.status(phase)
    asked = "/log" if phase == "Running" else one.path
    wait_until(lambda: any(asked in path for _, path in api.calls))
    one.process.send_signal(number)
    assert one.end()[0] == 128 + number and one.pods() == []


def test_an_api_server_that_was_away_costs_no_line_and_prints_none_twice(start, api):
    one = start("--image", "i")
    one.pod()
    one.status("Running")
    one.print("first\n")
    assert one.process.stdout.readline() == "first\n"
    api.down = True
    api.cut_watches()
    assert "does not answer" in one.process.stderr.readline()
    one.print("second\n")
    one.status("Succeeded", code=0)
    api.down = False
    assert one.end()[:2] == (0, "second\n")


def test_a_pod_that_is_evicted_or_deleted_is_a_failure(start, api):
    one = start("--image", "i")
    one.pod()
    one.status("Failed", message="The node was low on resource: memory")
    code, _, err = one.end()
    assert code == 1 and "low on resource" in err and one.pods() == []
    other = start("--image", "i")
    other.pod()
    api.delete(other.path)
    code, _, err = other.end()
    assert code == 1 and "was deleted" in err


def test_errors_say_what_would_be_right(api, tmp_path):
    def says(*options):
        done = run([BUILD / "carve-kubernetes", "run", "--api", api.url, *options, "--", "true"])
        assert done.returncode == 2 and done.stderr.count("\n") == 1
        return done.stderr

    assert "--image" in says()
    assert "'1.5' is no size" in says("--image", "i", "--fraction", "1.5")
    (tmp_path / "pod.yaml").write_text("kind: Pod\n")
    assert "kubectl create --dry-run=client -o json" in says("--pod-template", tmp_path / "pod.yaml")
    assert "-o json" in says("--pod-template", tmp_path / "none")
    assert "no name for it" in says("--image", "i", "--namespace", "../kube-system")
    assert api.calls == []


def test_a_queues_job_is_a_pod(api, make_host):
    """Its log, its exit code and its end are the pod's, by the same verbs as any job's."""
    host = make_host("h100-80gb")
    host.carve_json("agent", "--detached", "--queue", "pods=0.25")

    def enqueue():
        done = host.carve("enqueue", "--json", "--queue", "pods", "--", BUILD / "carve-kubernetes", "run", "--api", api.url,
                          "--image", "i", "--fraction", "0.25", "--", "true")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["id"]

    def kubelet_of(job):
        one = Run.__new__(Run)
        one.api = api
        assert one.pod()["metadata"]["labels"]["carve.dev/job"] == str(job)
        one.status("Running")
        return one

    def state(job):
        return host.carve_json("job", "show", str(job))["state"]

    job = enqueue()
    pod = kubelet_of(job)
    pod.print("from the pod\n")
    pod.status("Failed", code=3)
    wait_until(lambda: state(job) == "failed")
    assert host.carve_json("job", "show", str(job))["exit_code"] == 3
    assert host.carve("job", "logs", str(job)).stdout == "from the pod\n" and pod.pods() == []
    job = enqueue()
    pod = kubelet_of(job)
    host.carve("job", "cancel", str(job))
    wait_until(lambda: state(job) == "cancelled")
    assert pod.pods() == []
