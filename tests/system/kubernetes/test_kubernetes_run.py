"""carve-kubernetes run: a command as a pod, for an API server that the test plays."""
import json
import re
import signal
import socket
import subprocess
import time

import pytest

pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import ApiServer, without_mark
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
    assert without_mark(pod) == {"gpu-fraction": "0.5"}
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


def test_a_sidecar_has_another_log_and_keeps_no_pod_from_its_end(start, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("spec: {containers: [{name: main, image: i}, {name: proxy, image: s}]}")
    one = start("--pod-template", file)
    one.pod()
    one.status("Running")
    one.print("of main\n")
    assert one.process.stdout.readline() == "of main\n"
    assert any("container=main" in path for _, path in one.api.calls)
    # The sidecar goes on: the pod's phase stays.
    one.status("Running", code=4)
    assert one.end()[0] == 4 and one.pods() == []


def test_a_pod_that_is_refused_is_an_error_and_not_tried_again(start, api, tmp_path):
    file = tmp_path / "pod.json"
    file.write_text(json.dumps({"spec": {"conatiners": [], "containers": [{"image": "i", "name": "c"}]}}))
    code, _, err = start("--pod-template", file).end()
    assert code == 1 and "answered 422: .spec.conatiners is unknown" in err and err.count("\n") == 1
    assert [method for method, _ in api.calls] == ["POST"] and len(api.invalid) == 1
    api.invalid.clear()


def test_whole_gpus_are_different_devices(start):
    one = start("--image", "i", "--fraction", "2")
    assert without_mark(one.pod()) == {"gpu-fraction": "1", "gpu-fraction-num-devices": "2"}


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
    (tmp_path / "pod.yaml").write_text("kind: Pod\nspce: {}\n")
    assert "spce is unknown" in says("--pod-template", tmp_path / "pod.yaml")
    assert "No such file" in says("--pod-template", tmp_path / "none")
    assert "--state-file /nosuch/x: No such file" in says("--image", "i", "--state-file", "/nosuch/x")
    assert "--state-file: the path is empty" in says("--image", "i", "--state-file", "")
    assert "'4Gi' is no size" in says("--image", "i", "--gpu-memory", "4Gi")
    assert "'soon' is no time" in says("--image", "i", "--grace", "soon")
    assert "no name for it" in says("--image", "i", "--namespace", "../kube-system")
    assert api.calls == []


VALUES = """
agentk8sglue:
  basePodTemplate:
    nodeSelector: {pool: gpus}
    image: cuda:12
    env:
    - {name: A, value: base}
  queues:
    default0500:
      templateOverrides:
        labels:
          required-resources: "0.5"
          clearml-injector/fraction: "0.500"
        resources:
          limits:
            nvidia.com/gpu: 1
        env:
        - {name: A, value: mine}
        - {name: B, value: "1"}
      queueSettings:
        maxPods: 10
    plain: {}
"""


def template(*options):
    return run([BUILD / "carve-kubernetes", "template", *options])


def test_a_template_is_checked_without_an_api_server(tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("{kind: Pod, spec: {containers: [{name: main, image: i}]}}")
    done = template("--pod-template", file)
    assert done.returncode == 0 and done.stderr == \
        "carve-kubernetes: no API server is named, so the file alone was checked; --api URL asks it, too\n"
    assert json.loads(done.stdout)["pod"]["spec"]["containers"][0]["image"] == "i"
    file.write_text("{kind: Deployment}")
    done = template("--pod-template", file)
    assert done.returncode == 2 and "kind is neither Pod nor PodTemplate" in done.stderr


@pytest.mark.parametrize("values, said", [
    ("basePodTemplate: {fileMount: [{name: a}]}", "basePodTemplate has fileMount, which no pod has"),
    ("agentk8sglue: {basePodTemplate: {customBashScript: x}}", "basePodTemplate has customBashScript, which no pod has"),
    ("basePodTemplate: {name: x}", "basePodTemplate has name, which no pod has"),
    ("queues: {q: {templateOverrides: {nodeSelectr: {a: b}}}}", "queues.q.templateOverrides has nodeSelectr, which no pod has"),
])
def test_a_key_of_values_that_is_no_field_of_a_pod_is_refused(api, tmp_path, values, said):
    file = tmp_path / "values.yaml"
    file.write_text(values)
    for options in [], ["--api", api.url]:
        done = template(*options, "--pod-template", file)
        assert done.returncode == 2 and said in done.stderr and len(done.stderr.splitlines()) == 1, done
        assert "a field newer than Kubernetes 1.36 goes below spec" in done.stderr
    assert not api.calls


def test_each_field_that_no_pod_has_gets_a_line(api, tmp_path):
    """Where an API server is asked it says that itself, because it knows the fields of its Kubernetes."""
    file = tmp_path / "pod.yaml"
    file.write_text("{kind: Pod, spec: {resourcez: {}, nodeSelectr: {a: b}, containers: [{name: main, image: i}, {name: b, imag: j, resources: {}}],"
                    " initContainers: [{name: c, hostname: h}], securityContext: {x: y}}}")
    done = template("--pod-template", file)
    assert done.returncode == 2 and done.stdout == ""
    lines = done.stderr.splitlines()
    assert [line.split("no pod has ")[1].split()[0].rstrip(";:,") for line in lines] == [
        "spec.resourcez", "spec.nodeSelectr", "spec.containers[1].imag", "spec.initContainers[0].hostname"], lines
    assert "--api URL" in lines[-1]
    file.write_text("basePodTemplate: {image: i, spec: {newer: 1}, stdinOnce: true, terminationMessagePath: /t}\nqueues: {a: {}, b: {}}")
    done = template("--pod-template", file)
    assert done.returncode == 2 and done.stderr.count("no pod has spec.newer") == len(done.stderr.splitlines()) == 1, done.stderr
    api.down = True
    done = template("--api", api.url, "--pod-template", file)
    assert done.returncode == 0, done.stderr
    spec = json.loads(done.stdout)["queues"]["a"]["pod"]["spec"]
    assert spec == {"newer": 1, "containers": [{"name": "main", "image": "i", "stdinOnce": True, "terminationMessagePath": "/t"}]}


@pytest.mark.parametrize("options, said", [
    (["--fraction", "abc"], "--fraction: 'abc' is no size"), (["--fraction", "1.5"], "--fraction: '1.5' is no size"),
    (["--fraction", "0.1234567"], "--fraction: '0.1234567' is no size"), (["--gpu-memory", "0"], "--gpu-memory: '0' is no size"),
    (["--gpu-memory", "4Gi"], "--gpu-memory: '4Gi' is no size"), (["--image", ""], "the pod has no image")])
def test_options_of_a_template_are_checked_without_an_api_server(options, said):
    done = template("--image", "i", *options)
    assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, done


def test_a_pod_without_an_image_and_a_misspelt_key_of_metadata_are_refused(tmp_path):
    file = tmp_path / "pod.yaml"
    for text, said in (("{metadata: {lables: {a: b}}, spec: {containers: [{name: a, image: i}]}}", "no pod has metadata.lables"),
                       ("{metadata: {labels: {a: b}}}", "the pod has no image"), ("queues: {q: {}}", "queue q: the pod has no image")):
        file.write_text(text)
        done = template("--pod-template", file)
        assert done.returncode == 2 and said in done.stderr and done.stderr.count("\n") == 1 and not done.stdout, done


def test_an_agent_needs_an_api_server(tmp_path):
    done = run([BUILD / "carve", "agent", "--on", "kubernetes", "--queue", "half=0.5", "--docker", "i", "--detached"],
               env=clean_env({"CARVE_RUNTIME_DIR": str(tmp_path)}))
    assert done.returncode == 2 and "this is no pod of a cluster, and no API server is named; --api" in done.stderr


def test_values_of_clearmls_chart_are_a_template_for_each_queue(api, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(VALUES)
    done = template("--api", api.url, "--pod-template", file)
    assert done.returncode == 0, done.stderr
    queues = json.loads(done.stdout)["queues"]
    half = queues["default0500"]
    assert half["max_pods"] == 10 and "max_pods" not in queues["plain"]
    assert half["pod"]["metadata"]["labels"] == {"required-resources": "0.5", "clearml-injector/fraction": "0.500"}
    assert half["pod"]["spec"]["nodeSelector"] == {"pool": "gpus"}
    assert half["pod"]["spec"]["containers"] == [{
        "name": "main", "image": "cuda:12", "resources": {"limits": {"nvidia.com/gpu": 1}},
        "env": [{"name": "A", "value": "mine"}, {"name": "B", "value": "1"}]}]
    assert queues["plain"]["pod"]["spec"]["containers"] == [{"name": "main", "image": "cuda:12",
                                                             "env": [{"name": "A", "value": "base"}]}]
    # The API server was asked about both, and has neither.
    assert [method for method, _ in api.calls] == ["POST", "POST"] and api.objects == {}


CHART = """
imageCredentials: {enabled: true, existingSecret: regcred}
agentk8sglue:
  defaultContainerImage: ubuntu:24.04
  queue: q1
  basePodTemplate:
    podSecurityContext: {runAsUser: 1001, fsGroup: 1001}
    containerSecurityContext: {runAsUser: 1001, allowPrivilegeEscalation: false}
    fileMounts: []
    hostAliases: [{ip: 127.0.0.1, hostnames: [foo.local]}]
    runtimeClassName: ""
    schedulerName: ""
    priorityClassName: high
    initContainers: [{name: first, image: busybox}]
  queues:
    q1: {templateOverrides: {podSecurityContext: {fsGroup: 7, runAsUser: null}, containerSecurityContext: {runAsUser: 2002}, priorityClassName: ""}}
    q2: {templateOverrides: {image: cuda:12}}
"""


def test_keys_of_clearmls_chart_become_fields_that_a_pod_has(api, tmp_path):
    file = tmp_path / "values.yaml"
    file.write_text(CHART)
    api.down = True
    done = template("--api", api.url, "--pod-template", file)
    assert done.returncode == 0, done.stderr
    queues = {name: entry["pod"]["spec"] for name, entry in json.loads(done.stdout)["queues"].items()}
    assert queues["q1"]["securityContext"] == {"fsGroup": 7}
    assert queues["q2"]["securityContext"] == {"runAsUser": 1001, "fsGroup": 1001}
    container, = queues["q1"]["containers"]
    assert container["securityContext"] == {"runAsUser": 2002, "allowPrivilegeEscalation": False}
    assert (container["image"], queues["q2"]["containers"][0]["image"]) == ("ubuntu:24.04", "cuda:12")
    assert "priorityClassName" not in queues["q1"] and queues["q2"]["priorityClassName"] == "high"
    assert queues["q1"]["imagePullSecrets"] == [{"name": "regcred"}]
    for spec in queues.values():
        assert spec["initContainers"] == [{"name": "first", "image": "busybox"}] and spec["hostAliases"]
        assert not {"podSecurityContext", "containerSecurityContext", "fileMounts", "defaultContainerImage", "runtimeClassName",
                    "schedulerName"} & {*spec, *spec["containers"][0]}


@pytest.mark.parametrize("text,what", [
    ("agentk8sglue: {basePodTemplate: {fileMounts: [{name: a.txt, folderPath: /x, fileContent: hi}]}}", "basePodTemplate has fileMounts"),
    ("queues: {q: {templateOverrides: {fileMounts: [{name: a}]}}}", "queues.q.templateOverrides has fileMounts"),
    ("{imageCredentials: {enabled: true}, agentk8sglue: {queues: {q: {}}}}", "imageCredentials has no existingSecret"),
    ("agentk8sglue: {defaultContainerImage: 7}", "defaultContainerImage is no text"),
    ("a: [", "line 2"),
    ("metadata: {labels: {required-resources: 0.5}}", "in quotes"),
    ("spec: {containers: []}", "no list of containers"),
    ("spec: {containers: [{image: i}]}", "without a name"),
    ("a: 1\na: 2", "twice"),
    ("--- {}\n--- {}", "more than one document"),
    ("spec: &a {b: *a}", "nested too deeply"),
    ("a: &a [1,1,1,1,1,1,1,1,1]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\n"
     "d: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d,*d,*d,*d]", "too large"),
    ("queues: {a: {queueSettings: {maxPods: 0}}}", "maxPods is no number"),
    ("queues: {'a b': {}}", "a b"),
    ("queues: []", "queues is no object"),
    ("", "it is empty"),
    ("{kind: Deployment, spec: {template: {spec: {containers: [{name: a, image: i}]}}}}", "kind is neither Pod nor PodTemplate"),
    ("7", "no object"),
    ("a: !!binary aGk=", "tags"),
    ("spec: {containers: [{name: a, image: [1, 2]}]}", "spec.containers[0].image is no text"),
    ("spec: {hostNetwork: 'yes', containers: [{name: a, image: i}]}", "spec.hostNetwork is no true or false"),
    ("spec: {terminationGracePeriodSeconds: soon, containers: [{name: a, image: i}]}", "spec.terminationGracePeriodSeconds is no number"),
    ("basePodTemplate: {image: 7}", "spec.containers[0].image is no text"),
    ("basePodTemplate: {tolerations: {a: b}}", "spec.tolerations is no list"),
    ("{kind: Pod, metadata: {name: a}}", "spec is missing"),
    ("{kind: [Pod], spec: {containers: [{name: a, image: i}]}}", "kind is neither Pod nor PodTemplate"),
    ("{basePodTemplate: {image: i}, queus: {q: {}}}", "queus is unknown: did you mean queues?"),
    ("agentk8sglue: {basePodTemplat: {image: i}}", "agentk8sglue.basePodTemplat is unknown: did you mean basePodTemplate?"),
    ("agentk8sglue: {basePodTemplate: {image: i}, qeues: {}}", "agentk8sglue.qeues is unknown: did you mean queues?"),
    ("{basePodTemplate: {image: i}, colour: red}", "colour is unknown: values have basePodTemplate and queues"),
    ("queues: {q: {templateOveride: {image: i}}}", "queues.q.templateOveride is unknown: a queue has templateOverrides"),
    ("queues: {q: {maxPods: 3}}", "queues.q.maxPods is unknown"),
    ("queues: {q: {queueSettings: {maxPod: 3}}}", "queues.q.queueSettings.maxPod is unknown: carve reads maxPods there"),
    ("queues: {q: {queueSettings: {maxPods: x}}}", "queues.q.queueSettings.maxPods is no number from 1 on"),
    ("queues: {q: {queueSettings: [1]}}", "queues.q.queueSettings is no object"),
    ("basePodTemplate: {image: i, labels: {clearml-injector/fraction: abc}}", "label clearml-injector/fraction: 'abc' is no size of ClearML's; right would be"),
    ("basePodTemplate: {image: i, annotations: {gpu-fraction: '1.5'}}", "annotation gpu-fraction: '1.5' is no fraction of a GPU; right would be 0.5"),
    ("basePodTemplate: {image: i, annotations: {gpu-fraction: abc}}", "annotation gpu-fraction: 'abc' is no fraction"),
    ("basePodTemplate: {image: i, annotations: {gpu-memory: '0'}}", "annotation gpu-memory: '0' is no number of MiB"),
    ("basePodTemplate: {image: i, annotations: {gpu-fraction-num-devices: '33'}}", "annotation gpu-fraction-num-devices: '33' is no number"),
    ("basePodTemplate: {image: i, annotations: {carve.dev/cores: '101'}}", "annotation carve.dev/cores: '101' is no per cent"),
    ("basePodTemplate: {image: i, labels: {clearml-injector/fraction: '0.500', required-resources: half}}", "label required-resources: 'half' is no number"),
    ("queues: {q: {templateOverrides: {image: i, labels: {clearml-injector/fraction: '0.5'}}}}", "label clearml-injector/fraction: '0.5' is no size"),
])
def test_bad_templates_are_refused_with_one_line(api, tmp_path, text, what):
    file = tmp_path / "pod.yaml"
    file.write_text(text)
    done = template("--api", api.url, "--pod-template", file)
    assert done.returncode == 2 and what in done.stderr and done.stderr.count("\n") == 1, done.stderr
    assert api.calls == []


def test_a_pod_that_the_api_server_would_refuse_is_refused_before_a_job_is_there(api, tmp_path):
    file = tmp_path / "pod.yaml"
    file.write_text("queues: {half: {templateOverrides: {image: i, spec: {nodeSelecter: {a: b}}}}}")
    done = template("--api", api.url, "--pod-template", file)
    assert done.returncode == 2 and "queue half: the API server answered 422" in done.stderr and "nodeSelecter" in done.stderr
    api.invalid.clear()
    api.down = True
    done = template("--api", api.url, "--pod-template", file)
    assert done.returncode == 0 and "not checked yet" in done.stderr


# ---- a run that is killed ----------------------------------------------------------------------

def test_a_killed_run_takes_its_pod_up_and_makes_no_second_one(start, api, tmp_path):
    options = ("--image", "i", "--name", "carve-job-1", "--state-file", tmp_path / "state")
    one = start(*options)
    one.pod()
    one.status("Running")
    one.print("first\n")
    assert one.process.stdout.readline() == "first\n"
    one.process.kill()
    one.process.wait()
    again = start(*options)
    again.path = one.path
    assert again.process.stdout.readline() == "first\n"
    again.print("second\n")
    again.status("Succeeded", code=0)
    assert again.end()[:2] == (0, "second\n")
    assert [method for method, _ in api.calls].count("POST") == 1 and again.pods() == []


def test_a_run_killed_before_it_noted_its_pod_takes_it_up_by_name(start, api, tmp_path):
    options = ("--image", "i", "--name", "carve-job-1", "--state-file", tmp_path / "state")
    one = start(*options)
    one.pod()
    one.process.kill()
    one.process.wait()
    (tmp_path / "state").unlink(missing_ok=True)
    again = start(*options)
    again.path = one.path
    again.status("Failed", code=5)
    assert again.end()[0] == 5 and again.pods() == []


def test_a_pod_of_another_with_that_name_is_left_alone(start, api):
    api.put(PODS + "/carve-job-1", {"metadata": {"name": "carve-job-1", "namespace": "default"}, "spec": {}})
    code, _, err = start("--image", "i", "--name", "carve-job-1").end()
    assert code == 1 and "is not this job's" in err and PODS + "/carve-job-1" in api.objects


def test_a_pod_that_ended_or_went_before_the_kill_is_not_run_again(start, api, tmp_path):
    options = ("--image", "i", "--name", "carve-job-1", "--state-file", tmp_path / "state")
    (tmp_path / "state").write_text(json.dumps({"phase": "ended", "code": 7, "why": ""}))
    assert start(*options).end()[0] == 7
    (tmp_path / "state").write_text(json.dumps({"phase": "created", "code": 0, "why": ""}))
    code, _, err = start(*options).end()
    assert code == 1 and "was deleted by another" in err
    assert json.loads((tmp_path / "state").read_text())["phase"] == "lost"
    assert "POST" not in [method for method, _ in api.calls]


def test_a_pod_is_deleted_once_the_api_server_is_back(start, api, tmp_path):
    one = start("--image", "i", "--grace", "7")
    one.pod()
    api.down = True
    api.cut_watches()
    assert "does not answer" in one.process.stderr.readline()
    one.process.send_signal(signal.SIGTERM)
    api.down = False
    assert one.end()[0] == 128 + signal.SIGTERM and one.pods() == []
    assert ("DELETE", one.path + "?gracePeriodSeconds=7") in api.calls


class Deaf:
    """A server that takes connections and answers nothing; or, with `refuses`, a port at which nobody listens."""

    def __init__(self, refuses=False):
        self.socket = socket.socket()
        self.socket.bind(("127.0.0.1", 0))
        self.url = "http://127.0.0.1:%d" % self.socket.getsockname()[1]
        if not refuses:
            self.socket.listen(64)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("refuses", [True, False])
def test_a_signal_ends_a_run_whose_api_server_cannot_be_reached(number, refuses):
    """Where the server may have got the call, the pod may run, which is told."""
    one = Run(Deaf(refuses), "--image", "i", "--name", "p-1", "--namespace", "n-1")
    if refuses:
        assert "pod p-1: the API server at http://127.0.0.1" in one.process.stderr.readline()
    else:
        connection, _ = one.api.socket.accept()
        assert connection.recv(1)
    began = time.monotonic()
    one.process.send_signal(number)
    code, _, err = one.end()
    assert code == 128 + number and time.monotonic() - began < (8 if refuses else 30), err
    assert ("kubectl delete pod p-1 --namespace n-1" in err) == (not refuses), err


def test_a_second_ctrl_c_ends_the_wait_for_the_deletion(start, api):
    """A second SIGTERM does not: the shim of a job sends it more than once."""
    one = start("--image", "i", "--name", "p-1")
    one.pod()
    api.down = True
    api.cut_watches()
    assert "does not answer" in one.process.stderr.readline()
    one.process.send_signal(signal.SIGTERM)
    assert "pod p-1 is not deleted yet: the API server at" in one.process.stderr.readline()
    one.process.send_signal(signal.SIGTERM)
    with pytest.raises(subprocess.TimeoutExpired):
        one.process.wait(1)
    began = time.monotonic()
    one.process.send_signal(signal.SIGINT)
    code, _, err = one.end()
    assert code == 128 + signal.SIGTERM and "kubectl delete pod p-1 --namespace default" in err and time.monotonic() - began < 8


def test_why_a_pod_waits_is_told_in_its_state(start, tmp_path):
    state = tmp_path / "state"
    one = start("--image", "i", "--name", "carve-job-1", "--state-file", state)
    pod = one.pod()
    one.api.put(one.path, {**pod, "status": {"phase": "Pending", "containerStatuses": [
        {"name": "main", "state": {"waiting": {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "i"'}}}]}})
    wait_until(lambda: state.exists() and "Back-off" in json.loads(state.read_text())["why"])
    one.status("Running")
    wait_until(lambda: json.loads(state.read_text())["why"] == "")


def test_why_a_pod_did_not_start_is_told(start, tmp_path):
    """Its container has an exit code of the runtime's, and no log."""
    one = start("--image", "i")
    pod = one.pod()
    one.api.put(one.path, {**pod, "status": {"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": {
        "reason": "StartError", "exitCode": 128, "message": "error running hook: carve-hook: no daemon answers"}}}]}})
    code, _, errors = one.end()
    assert code == 128 and errors.endswith("did not start: error running hook: carve-hook: no daemon answers\n")


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


def test_a_pod_is_marked_as_followed_while_its_log_is_read_and_after_a_kill(api, start, tmp_path):
    words = ["--image", "i", "--name", "job-1", "--state-file", tmp_path / "state", "--follow-every", "1"]
    one = start(*words)
    one.pod()

    def mark():
        return api.objects[one.path]["metadata"]["annotations"].get("carve.dev/followed")

    first = wait_until(mark)
    assert re.fullmatch(r"[0-9]+/1", first)
    one.status("Running")
    one.print("step 1\n")
    assert one.process.stdout.readline() == "step 1\n"
    for _ in range(2):
        last = mark()
        wait_until(lambda: mark() != last)
    one.process.kill()
    one.process.wait()
    last = mark()
    again = start(*words)
    again.path = one.path
    wait_until(lambda: mark() != last)
    again.status("Succeeded", code=0)
    assert again.end()[0] == 0


def test_a_server_that_takes_no_mark_is_no_reason_to_end(api, start):
    serve = api.serve
    api.serve = lambda method, *more: api.status(403, "pods is forbidden") if method == "PATCH" else serve(method, *more)
    one = start("--image", "i", "--follow-every", "1")
    one.pod()
    one.status("Succeeded", code=3)
    assert one.end()[0] == 3
