"""What each container of carve's pods may do: a table. Whoever widens a right changes it here and in docs/dev/security.md."""
import copy
import re

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

from conftest import ROOT
from helm import Chart
from pod_security import restricted_faults

PACKAGING = ROOT / "packaging" / "kubernetes"
NO_RIGHTS = {"runAsUser": 0, "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
             "seccompProfile": {"type": "RuntimeDefault"}, "seLinuxOptions": {"type": "spc_t"}}
# The one privileged container. Its command gives up what it has beside these capabilities.
PRIVILEGED = {"privileged": True, "runAsUser": 0, "readOnlyRootFilesystem": True}
BOUNDS = {"chown", "dac_override", "dac_read_search", "setgid", "setpcap", "setuid", "sys_admin", "sys_ptrace", "sys_resource"}
WORKER = 60706
NODE = {
    "front": (NO_RIGHTS, {"/var/lib/carve-node/front"}, set()),
    "hook": (NO_RIGHTS, {"/var/lib/carve-node/hook"}, set()),
    "carved": (PRIVILEGED, {"/run/carve", "/run/carve-claims", "/var/lib/carve", "/tmp"}, {"/run/nvidia/driver", "/dev"}),
    "plugin": (NO_RIGHTS, {"/var/lib/kubelet/plugins/gpu.carve.dev", "/var/lib/kubelet/plugins_registry", "/var/run/cdi"},
               {"/run/carve", "/var/lib/carve-node/front", "/var/lib/carve-node/hook", "/run/nvidia/driver", "/dev", "/var/lib/kubelet/pod-resources",
                "/var/run/secrets/kubernetes.io/serviceaccount"}),
}
POD = {"hostPID": True, "automountServiceAccountToken": False, "serviceAccountName": "carve-node"}
# Fields of a pod and of a container that say nothing of rights.
PLAIN_POD = {"priorityClassName", "nodeSelector", "tolerations", "initContainers", "containers", "volumes", "imagePullSecrets"}
PLAIN_CONTAINER = {"name", "image", "imagePullPolicy", "command", "args", "env", "volumeMounts", "securityContext"}

EVERYTHING = {"global": {"core": {"timeSlicing": {"mode": "fair"}}}, "reservation": {"enabled": True}, "migLimits": {"enabled": True},
              "sharing": {"timeSlicing": {"replicas": 2}}, "imagePullSecrets": [{"name": "key"}]}


def base():
    names = yaml.safe_load((PACKAGING / "base" / "kustomization.yaml").read_text())["resources"]
    return [o for name in names for o in yaml.safe_load_all((PACKAGING / "base" / name).read_text())]


def chart(**values):
    return Chart(PACKAGING / "chart", **values).objects()


SOURCES = {"base": base, "chart": chart, "chart with all that it can": lambda: chart(**EVERYTHING)}


@pytest.fixture(params=SOURCES)
def specs(request):
    return {o["metadata"]["name"]: o["spec"]["template"]["spec"] for o in SOURCES[request.param]()
            if o["kind"] in ("DaemonSet", "Deployment")}


def containers(spec):
    return {c["name"]: c for c in spec.get("initContainers", []) + spec["containers"]}


def mounts(container, read_only):
    return {m["mountPath"] for m in container["volumeMounts"] if m.get("readOnly", False) == read_only} - {"/etc/carve"}


def node_faults(spec):
    """Where a node's pod has other rights than the table says."""
    faults = [f"pod {key}" for key in set(spec) | set(POD) if key not in PLAIN_POD and spec.get(key) != POD.get(key)]
    found = containers(spec)
    faults += [f"container {name}" for name in set(found) ^ set(NODE)]
    for name, (context, written, read) in NODE.items():
        container = found.get(name, {"volumeMounts": []})
        faults += [f"{name} {key}" for key in set(container) - PLAIN_CONTAINER]
        faults += [name for is_other in (container.get("securityContext") != context, mounts(container, False) != written,
                                         mounts(container, True) != read) if is_other]
        # What one container mounts reaches no other.
        faults += [f"{name} {m['name']}" for m in container["volumeMounts"] if m.get("mountPropagation", "None") not in ("None", "HostToContainer")]
    return faults


def test_each_container_of_a_node_has_the_rights_of_the_table(specs):
    assert node_faults(specs["carve-node"]) == []


def test_a_host_path_is_mounted_where_the_host_has_it(specs):
    volumes = {v["name"]: v for v in specs["carve-node"]["volumes"]}
    for container in containers(specs["carve-node"]).values():
        for mount in container["volumeMounts"]:
            volume = volumes[mount["name"]]
            assert "hostPath" not in volume or volume["hostPath"]["path"] == mount["mountPath"]
            assert not {"subPath", "subPathExpr"} & set(mount)
    assert {name for name, v in volumes.items() if "hostPath" not in v} <= {"tmp", "token", "configuration"}


WIDER = {
    "a privileged plugin": lambda s: containers(s)["plugin"]["securityContext"].update(privileged=True),
    "an added capability": lambda s: containers(s)["plugin"]["securityContext"]["capabilities"].update(add=["SYS_ADMIN"]),
    "new privileges": lambda s: containers(s)["hook"]["securityContext"].pop("allowPrivilegeEscalation"),
    "no seccomp": lambda s: containers(s)["front"]["securityContext"].pop("seccompProfile"),
    "a root file system that can be written": lambda s: containers(s)["carved"]["securityContext"].pop("readOnlyRootFilesystem"),
    "a mount that can be written": lambda s: containers(s)["plugin"]["volumeMounts"][0].pop("readOnly"),
    "the whole host": lambda s: containers(s)["plugin"]["volumeMounts"].append({"name": "root", "mountPath": "/host", "readOnly": True}),
    "a mount that reaches others": lambda s: containers(s)["carved"]["volumeMounts"][0].update(mountPropagation="Bidirectional"),
    "the host's network": lambda s: s.update(hostNetwork=True),
    "a token for all": lambda s: s.update(automountServiceAccountToken=True),
    "a container more": lambda s: s["containers"].append({"name": "debug", "volumeMounts": []}),
    "a device": lambda s: containers(s)["plugin"].update(volumeDevices=[{"name": "disk", "devicePath": "/dev/sda"}]),
}


@pytest.mark.parametrize("how", WIDER)
def test_a_wider_right_is_seen(how):
    spec = copy.deepcopy(next(o["spec"]["template"]["spec"] for o in base() if o["kind"] == "DaemonSet"))
    WIDER[how](spec)
    assert node_faults(spec) != []


def test_carved_gives_up_what_it_does_not_need_and_serves_as_a_user_without_rights(specs):
    command = containers(specs["carve-node"])["carved"]["command"]
    words = command[:command.index("carved")]
    assert words[:3] == ["setpriv", "--no-new-privs", "--bounding-set"] and len(words) == 4
    assert words[3] == "-all," + ",".join("+" + name for name in sorted(BOUNDS))
    options = command[len(words) + 1:]
    assert "--user" not in options and "--pod" in options
    image = (ROOT / "packaging" / "Containerfile").read_text()
    assert f"groupadd --gid {WORKER} carve" in image and f"useradd --uid {WORKER} --gid carve" in image


def test_nothing_that_root_executes_lies_in_a_directory_of_the_worker(specs):
    """The owner of a directory can rename what lies in it."""
    volumes = {v["name"]: v.get("hostPath", {}).get("path", "") for v in specs["carve-node"]["volumes"]}
    for name in ("front", "hook", "cdi", "kubelet-plugin", "kubelet-registry", "driver"):
        assert not any(f"{volumes[name]}/".startswith(f"{volumes[own]}/") for own in ("state", "run", "claims"))
        assert not any(m["name"] == name and not m.get("readOnly") for m in containers(specs["carve-node"])["carved"]["volumeMounts"])


def test_the_controller_would_pass_the_standard_restricted(specs):
    spec = specs["carve-controller"]
    assert restricted_faults(spec) == []
    assert all(c["securityContext"]["readOnlyRootFilesystem"] for c in spec["containers"])
    assert specs["carve-node"] and restricted_faults(specs["carve-node"]) != []


def test_namespaces_say_what_their_pods_need():
    of_base = next(o for o in base() if o["kind"] == "Namespace")
    assert of_base["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "privileged"}
    reservation = list(yaml.safe_load_all((PACKAGING / "reservation" / "reservation.yaml").read_text()))
    for objects in (reservation, chart(reservation={"enabled": True})):
        made = next(o for o in objects if o["kind"] == "Namespace")
        assert made["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}


def paths(cell):
    return set(re.findall(r"`(/[^`]*)`", cell))


def test_the_documentation_has_the_table():
    text = (ROOT / "docs/dev/security.md").read_text().partition("### The node's pod\n")[2]
    table, reasons = ([[cell.strip() for cell in line.strip("|").split("|")] for line in part.splitlines()[2:]]
                      for part in re.findall(r"^\| (?:.+\n)+", text, re.M)[:2])
    told = {re.match("`(.*?)`", row[0])[1]: row for row in table}
    assert set(told) == set(NODE)
    for name, (context, written, read) in NODE.items():
        _, user, capabilities, writes, reads, why = told[name]
        assert user.startswith("0") and (paths(writes), paths(reads)) == (written, read) and why
        assert capabilities.startswith("privileged") if context is PRIVILEGED else capabilities == "none"
    assert set(re.findall(r"\b[A-Z]+(?:_[A-Z]+)*\b", told["carved"][2])) == {name.upper() for name in BOUNDS}
    assert f"({WORKER})" in told["carved"][1]
    assert sorted(name for names, why in reasons for name in names.split(", ") if why) == sorted(name.upper() for name in BOUNDS)
