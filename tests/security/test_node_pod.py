"""The pod of a node as its manifest says, in containerd: its plugin serves a kubelet with the rights that it has there, and a worker that was
broken into (a process of user carve in carved's container) comes to nothing that root or the container runtime executes or loads."""
import contextlib
import json
import os
import pathlib
import shutil
import signal

import pytest

pytest.importorskip("yaml", reason="needs python3-yaml")
pytest.importorskip("grpc", reason="needs python3-grpcio")

from cgroup_makers import cgroups, within  # noqa: F401: fixture
from cluster import GIB
from conftest import BUILD, clean_env, run, wait_until
from cri import HAS_CONTAINERD
from node_pod import DRIVER, WORKER, NodePod, hierarchies
from programs import python

pytestmark = [
    pytest.mark.once("runs what the build installs, in containers"),
    pytest.mark.skipif(not HAS_CONTAINERD or not shutil.which("busybox"), reason="needs containerd, its shim, ctr, runc and busybox"),
    pytest.mark.skipif(os.geteuid() != 0 or not all(os.access(h, os.W_OK) for h in hierarchies()), reason="needs root, and cgroups that can be made"),
]
NOTHING = "0000000000000000"
# Root without capabilities is their owner. The container's cgroup keeps it from them.
DISKS = [str(p) for p in pathlib.Path("/dev").iterdir() if p.is_block_device()][:1]
SETPRIV = ["setpriv", f"--reuid={WORKER}", f"--regid={WORKER}", "--clear-groups", "--inh-caps=-all", "--bounding-set=-all"]


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """The files that the build installs, as it is below /usr of an image."""
    root = tmp_path_factory.mktemp("installed")
    done = run(["/usr/bin/meson", "install", "-C", BUILD, "--no-rebuild", "--quiet"], env=clean_env({"DESTDIR": str(root)}))
    assert done.returncode == 0, done.stderr
    return next(root.rglob("carve-hook")).parents[1]


@pytest.fixture
def make_pod(make_host, installed):
    made = []

    def make(gpus="h100-80gb", labels=None, driver=None, options=()):
        """`options`: more of carved's."""
        host = make_host(gpus, driver)
        pathlib.Path(host.env["SIMGPU_HOST"]).chmod(0o755)
        for entry in pathlib.Path(host.env["SIMGPU_HOST"]).iterdir():
            if entry.is_socket():
                entry.chmod(0o666)
        made.append(NodePod(host, installed))
        made[-1].api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1", "labels": labels or {}}})
        made[-1].carved["command"] += options
        made[-1].start()
        try:
            made[-1].kubelet.register()
            wait_until(made[-1].api.slices)
        except BaseException:
            print(made[-1].log())
            raise
        return made[-1]

    yield make
    for pod in made:
        pod.close()


def status_of(pid):
    return dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines() if ":\t" in line)


def capabilities(names):
    numbers = {"chown": 0, "dac_override": 1, "dac_read_search": 2, "setgid": 6, "setuid": 7, "setpcap": 8, "sys_ptrace": 19,
               "sys_admin": 21, "sys_resource": 24}
    return sum(1 << numbers[name] for name in names)


BOUNDS = capabilities(["chown", "dac_override", "dac_read_search", "setgid", "setpcap", "setuid", "sys_admin", "sys_ptrace", "sys_resource"])


def workers_of(pod):
    found = []
    for pid in pod.pids("carved"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            status = status_of(pid)
            if (status["Name"], status["Uid"].split()[0]) == ("carved", str(WORKER)):
                found.append(pid)
    return found


def worker_of(pod):
    """The process that talks to pods is user carve's."""
    [found] = workers_of(pod)
    return found


def test_a_claim_lives_from_its_checkpoint_to_the_containers_end(make_pod):
    pod = make_pod()
    [device] = pod.api.devices()
    claim = pod.api.claim("c", [("gpu", device["name"], str(4 * GIB), "0")])
    [(devices, error)] = pod.kubelet.prepare(claim).values()
    assert not error, error
    [session] = pod.sessions()
    assert session["uid"] == 0
    own = pod.kubelet_dir / "plugins/gpu.carve.dev"
    assert [p.stem for p in (own / "claims").iterdir()] == [claim["uid"]]
    # What the slice of a container is believed by is root's, and the container runtime's specs are, too.
    for path in [*own.rglob("slices/*/*"), *pod.cdi.iterdir(), *(pod.node / "var/lib/carve-node").rglob("*")]:
        assert path.stat().st_uid == 0 and not path.stat().st_mode & 0o022, path
    # Root and another user of the container: carve-hook has carved look at its mount namespace.
    pod.dir.joinpath("config.json").write_text('{"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": []}}')
    for user in (None, 65534):
        done = pod.container(devices[0]["cdi"], python("mem_info"), user=user)
        assert done.returncode == 0 and json.loads(done.stdout)["total"] == 4 * GIB, done
    assert pod.kubelet.unprepare(claim) == {claim["uid"]: ""}
    assert pod.sessions() == [] and list(pod.cdi.iterdir()) == [] and list((own / "claims").iterdir()) == []


def test_containers_that_start_again_find_their_claims(make_pod):
    pod = make_pod()
    [device] = pod.api.devices()
    claim = pod.api.claim("c", [("gpu", device["name"], str(4 * GIB), "0")])
    [(devices, error)] = pod.kubelet.prepare(claim).values()
    assert devices and not error, error
    [session] = pod.sessions()
    for name in ("plugin", "carved", "plugin"):
        pod.start_again(name)
        pod.kubelet.register()
        # The plugin waits for a carved that is just starting.
        assert pod.kubelet.prepare(claim)[claim["uid"]] == (devices, "")
        assert [s["id"] for s in pod.sessions()] == [session["id"]]
    # The supervisor is in the container, and starts the worker again there.
    killed, container = worker_of(pod), pod.pid("carved")
    os.kill(killed, signal.SIGKILL)
    wait_until(lambda: workers_of(pod) not in ([], [killed]))
    assert pod.pid("carved") == container and [s["id"] for s in pod.sessions()] == [session["id"]]
    assert pod.kubelet.unprepare(claim) == {claim["uid"]: ""} and pod.sessions() == []


def test_files_of_a_daemon_that_was_root_are_taken_over(make_pod):
    """As versions before had it: the database, the claims and the log are root's."""
    pod = make_pod(options=["--user", "root"])
    [device] = pod.api.devices()
    claim = pod.api.claim("c", [("gpu", device["name"], str(4 * GIB), "0")])
    [(devices, error)] = pod.kubelet.prepare(claim).values()
    assert devices and not error, error
    [session] = pod.sessions()
    assert workers_of(pod) == [] and (pod.node / "var/lib/carve/carve.db").stat().st_uid == 0
    del pod.carved["command"][-2:]
    pod.start_again("carved")
    wait_until(lambda: workers_of(pod))
    assert [s["id"] for s in pod.sessions()] == [session["id"]]
    assert (pod.node / "var/lib/carve/carve.db").stat().st_uid == WORKER
    assert pod.kubelet.prepare(claim)[claim["uid"]] == (devices, "")
    assert pod.kubelet.unprepare(claim) == {claim["uid"]: ""} and pod.sessions() == []


def test_a_label_gives_the_mig_role_and_a_claim_gets_its_instance(make_pod):
    pod = make_pod("h100-80gb+mig", {"node-role.kubernetes.io/runai-mig-enabled": "true"})
    wait_until(lambda: any(d["attributes"]["type"]["string"] == "mig" for d in pod.api.devices()))
    device = next(d for d in pod.api.devices() if d["attributes"].get("profile", {}).get("string") == "1g.10gb")
    claim = pod.api.claim("c", [("gpu", device["name"])])
    [(devices, error)] = pod.kubelet.prepare(claim).values()
    assert devices and not error, error
    [session] = pod.sessions()
    assert session["mig_profile"] == "1g.10gb", session
    assert pod.kubelet.unprepare(claim) == {claim["uid"]: ""} and pod.sessions() == []


def gpu_of(pod):
    done = run(pod.on_node(BUILD / "carve", "gpu", "list", "--json"), env=clean_env({}))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)[0]


def test_the_driver_has_a_containers_limit_before_that_begins(make_pod, cgroups):  # noqa: F811
    pod = make_pod(driver="615")
    wait_until(lambda: gpu_of(pod)["backend"] == "cgroup")
    [device] = pod.api.devices()
    claim = pod.api.claim("c", [("gpu", device["name"], str(4 * GIB), "0")])
    [(devices, error)] = pod.kubelet.prepare(claim).values()
    assert devices and not error, error
    pod.dir.joinpath("config.json").write_text('{"ociVersion": "1.0.2", "root": {"path": "/"}, "process": {"env": []}}')
    place = cgroups.make()
    # It loads the driver itself, round the front.
    done = pod.container(devices[0]["cdi"], ["env", "-u", "LD_PRELOAD", f"LD_LIBRARY_PATH={pod.node / DRIVER}", *python("take_all")],
                         wrap=within(place))
    assert done.returncode == 0, done
    assert max(json.loads(done.stdout)[1]) <= 4096, done
    assert [(limit["path"], limit["hard_bytes"]) for limit in pod.host.stat()["gpus"][0]["cgroup_limits"]] == [(str(place), 4 * GIB)]


def test_processes_of_the_pod_have_what_the_table_says(make_pod):
    pod = make_pod()
    plugin = status_of(pod.pid("plugin"))
    assert plugin["Uid"].split() == ["0"] * 4
    assert [plugin[name].strip() for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb")] == [NOTHING] * 5
    assert plugin["NoNewPrivs"].strip() == "1" and plugin["Seccomp"].strip() == "2"
    worker = status_of(worker_of(pod))
    assert worker["Uid"].split() == worker["Gid"].split() == [str(WORKER)] * 4 and worker["Groups"].split() == []
    assert [worker[name].strip() for name in ("CapPrm", "CapEff", "CapInh", "CapBnd", "CapAmb")] == [NOTHING] * 5
    assert worker["NoNewPrivs"].strip() == "1" and worker["Seccomp"].strip() == "2"
    # It has all that it serves for, but for jobs. A busy API server is asked for the node's labels again.
    warnings = [line.split("warning ")[1].split()[0] for line in pod.log().splitlines() if " warning " in line]
    assert [warning for warning in warnings if warning != "labels.failed"] == ["launcher.none"]
    assert [p.name for p in (pod.node / "run/carve-claims" / str(WORKER)).iterdir()] == [gpu_of(pod)["uuid"]]
    # All that is root in that container has no more than setpriv left it.
    for pid in pod.pids("carved"):
        assert not int(status_of(pid)["CapBnd"], 16) & ~BOUNDS and status_of(pid)["NoNewPrivs"].strip() == "1", status_of(pid)["Name"]


# Prints what it may write, of the roots that are named; then the outcome of each attempt.
BROKEN = """
import json, os, sys
roots, attempts = json.loads(sys.argv[1])
found = []
for root in roots:
    for directory, names, files in os.walk(root):
        found += [os.path.join(directory, n) for n in files + ['.']
                  if os.access(os.path.join(directory, n), os.W_OK) and not os.path.islink(os.path.join(directory, n))]
print(json.dumps(sorted(set(os.path.normpath(f) for f in found))))
def attempt(words):
    try:
        if words[0] == 'write': os.close(os.open(words[1], os.O_WRONLY | os.O_CREAT, 0o755))
        elif words[0] == 'rename': os.rename(words[1], words[1] + '.mine')
        elif words[0] == 'remove': os.unlink(words[1])
        elif words[0] == 'read': open(words[1], 'rb').read(1)
        elif words[0] == 'list': os.listdir(words[1])
        elif words[0] == 'kill': os.kill(words[1], 9)
    except (OSError, PermissionError) as error:
        return type(error).__name__
    return 'done'
print(json.dumps([attempt(words) for words in attempts]))
"""


def broken(pod, name, roots, attempts, words=SETPRIV):
    """A process among a container's files, in its cgroups."""
    first = pod.pid(name)
    script = "for tasks in $0; do echo $$ > $tasks; done; exec \"$@\""
    done = run(["sh", "-ec", script, " ".join(map(str, pod.cgroups(name))), "nsenter", "-t", str(first), "-m", *words, "/usr/bin/python3", "-c", BROKEN,
                json.dumps([roots, attempts])], env=clean_env({}))
    assert done.returncode == 0, done.stderr
    return map(json.loads, done.stdout.splitlines())


def attack_paths(pod):
    """What root of the node, the kubelet or the container runtime executes, loads or believes."""
    places = {v["name"]: v["hostPath"]["path"] for v in pod.spec["volumes"] if "hostPath" in v}
    return [f"{places['front']}/libcuda.so.1", f"{places['front']}/libnvidia-ml.so.1", f"{places['hook']}/carve-hook", f"{places['cdi']}/x.json",
            f"{places['kubelet-plugin']}/dra.sock", f"{places['kubelet-plugin']}/claims/x.json", f"{places['kubelet-plugin']}/slices/x",
            f"{places['kubelet-registry']}/gpu.carve.dev-reg.sock", f"{places['driver']}/usr/lib/x86_64-linux-gnu/libcuda.so.1", f"{places['run']}/carved.sock",
            f"{places['run']}/attach.sock", "/usr/bin/carved", "/etc/passwd", "/etc/ld.so.preload"]


def with_directories(paths):
    return sorted({str(p) for path in paths for p in [pathlib.Path(path), *pathlib.Path(path).parents][:-1]})


@pytest.mark.attack("1", "a worker in a pod that was broken into replaces what the node executes")
def test_the_broken_worker_writes_nothing_that_root_executes_or_loads(make_pod):
    pod = make_pod()
    before = {p: p.stat().st_ino for name in ("front", "hook") for p in (pod.node / pod.place(name)).iterdir()}
    assert len(before) == 3
    # By its own mounts, and by those of the plugin's container.
    places = ["", f"/proc/{pod.pid('plugin')}/root", "/proc/self/root"]
    attempts = [[how, place + path] for place in places for path in with_directories(attack_paths(pod)) for how in ("write", "rename", "remove")]
    attempts += [["list", "/proc/1/root"], ["list", "/proc/1/cwd"]] + [["write", f"{directory}/x"] for directory in ("/run", "/run/carve", "/var/lib", "/dev", "/usr", "")]
    found, outcomes = broken(pod, "carved", ["/run", "/var", "/usr", "/etc", "/opt"], attempts)
    assert [a for a, outcome in zip(attempts, outcomes) if outcome == "done"] == []
    # All that it may write is its own: the database, and what it keeps of claims and ledgers. Sockets are everybody's to connect to.
    mine = ("/var/lib/carve", "/run/carve-claims/", "/run/carve/")
    assert [f for f in found if not f.startswith(mine)] == []
    for path in [f for f in found if f.startswith("/run/carve/")]:
        its = pod.node / path[1:]
        assert its.is_socket() or its.stat().st_uid == WORKER, path
    assert all(p.exists() and p.stat().st_ino == number for p, number in before.items())


@pytest.mark.attack("1", "a worker in a pod that was broken into takes the plugin's token, or its process")
def test_the_broken_worker_has_neither_the_token_nor_the_plugin(make_pod):
    pod = make_pod()
    (pod.dir / "token/token").write_text("secret")
    plugin, token = pod.pid("plugin"), "/var/run/secrets/kubernetes.io/serviceaccount/token"
    attempts = [["read", token], ["read", f"/proc/{plugin}/root{token}"], ["read", f"/proc/{plugin}/environ"], ["write", f"/proc/{plugin}/mem"],
                ["list", f"/proc/{plugin}/fd"], ["kill", plugin], ["kill", 1], *[["kill", pid] for pid in pod.pids("carved") if pid != worker_of(pod)]]
    _, outcomes = broken(pod, "carved", [], attempts)
    assert [a for a, outcome in zip(attempts, outcomes) if outcome == "done"] == []


@pytest.mark.attack("1", "a plugin that was broken into uses its user ID, which is root's")
def test_the_broken_plugin_writes_what_its_mounts_leave_it_and_opens_no_device(make_pod):
    pod = make_pod()
    (pod.dir / "token/token").write_text("secret")
    worker = worker_of(pod)
    refused = [[how, path] for path in ("/var/lib/carve-node/front/libcuda.so.1", "/var/lib/carve-node/hook/carve-hook", "/run/carve/x", "/usr/x", "/x", "/dev/x",
                                        "/run/nvidia/driver/x") for how in ("write", "remove", "rename")]
    refused += [["remove", "/run/carve/carved.sock"], ["read", "/proc/1/environ"], ["list", "/proc/1/root"], ["read", f"/proc/{worker}/environ"],
                ["write", f"/proc/{worker}/mem"], ["list", f"/proc/{worker}/root"], ["kill", worker], *[["read", disk] for disk in DISKS]]
    given = [["read", "/var/run/secrets/kubernetes.io/serviceaccount/token"], ["write", "/var/run/cdi/x.json"],
             ["write", "/var/lib/kubelet/plugins/gpu.carve.dev/x"]]
    _, outcomes = broken(pod, "plugin", [], refused + given, words=["setpriv", "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"])
    assert [a for a, outcome in zip(refused + given, outcomes) if outcome == "done"] == given
