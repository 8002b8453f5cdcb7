"""carved in a pod of Kubernetes (`carved --pod`). The kubelet's plugin is root of another container of that pod, without any capability.
Pods are cgroups here, as a kubelet makes them."""
import json
import os
import pathlib
import uuid

import pytest

from cgroups import MOUNT
from cgroup_makers import cgroups  # noqa: F401

from .lab import ALICE, CARVED, ROOT
from .test_bounded_root import ASKS, BOUNDED
from .test_namespaces import within

NO_CAPABILITY = BOUNDED["no capability"]
# As `sh -c ENTER CGROUP COMMAND...`.
ENTER = 'echo $$ > "$0/cgroup.procs" && exec "$@"'
# Each driver of a kubelet names a pod's cgroup in its own way.
DRIVERS = {"cgroupfs": "pod{}", "systemd": "kubepods-besteffort-pod{}.slice"}
KEPT = json.dumps({"vram": "1", "kept": True})
PLUGIN = [("GET", "/v1/version", ""), ("GET", "/v1/gpus", ""), ("GET", "/v1/sessions", ""), ("GET", "/v1/mig", ""),
          ("POST", "/v1/sessions", KEPT), ("PUT", "/v1/mig/roles", json.dumps({"role": None}))]


def entering(path, *argv):
    return ["sh", "-c", ENTER, path, *argv]


class Pods:
    """Two pods, each with two containers; carved is the first one's first."""

    def __init__(self, top, driver):
        self.names = [top / DRIVERS[driver].format(uuid.uuid4()) for _ in range(2)]
        for pod in self.names:
            for container in ("carved", "plugin"):
                (pod / container).mkdir(parents=True)
        self.carved, self.plugin, self.stranger = (self.names[0] / "carved", self.names[0] / "plugin", self.names[1] / "plugin")


@pytest.fixture(params=DRIVERS)
def pods(request, cgroups):  # noqa: F811
    return Pods(cgroups.make(), request.param)


@pytest.fixture
def pod_lab(pods, make_lab):  # in this order, as no cgroup is removed under a daemon
    return make_lab(args=["--pod"], before=entering(pods.carved))


def asked(lab, cgroup, requests, words=NO_CAPABILITY):
    """The status of each request, by a process that was put into a cgroup before."""
    done = within(lab, ROOT, [*entering(cgroup), *words], ASKS, json.dumps(requests))
    assert done.returncode == 0, done.stderr
    return [int(line.split()[2]) for line in done.stdout.splitlines()]


@pytest.mark.attack("4", "root of a container in another pod is taken for the kubelet's plugin")
def test_root_of_the_pod_makes_kept_sessions_and_root_of_another_does_not(pod_lab, pods):
    assert asked(pod_lab, pods.plugin, PLUGIN) == [200, 200, 200, 200, 201, 200]
    [session] = pod_lab.carve_json(ROOT, "session", "list")
    # The warden signals the session's processes as its user: they are pods', so that has to be root.
    assert session["kept"] and session["uid"] == 0
    for stranger in (pods.stranger, pods.names[1], pods.names[0], MOUNT):
        statuses = asked(pod_lab, stranger, [*PLUGIN, ("DELETE", f"/v1/sessions/{session['id']}?force=1", "")])
        assert statuses == [200] * 4 + [403] * 3, stranger
    assert asked(pod_lab, pods.plugin, [("DELETE", f"/v1/sessions/{session['id']}", "")]) == [200]


@pytest.mark.attack("4", "root of a container makes itself a cgroup that is called as carved's pod")
def test_a_cgroup_of_ones_own_is_no_pod_whatever_its_name(pod_lab, pods):
    copy = pods.stranger / pods.names[0].parent.name / pods.names[0].name / "plugin"
    copy.mkdir(parents=True)
    assert asked(pod_lab, copy, PLUGIN[-2:]) == [403, 403]
    # Names that only begin as the pod's does.
    for name in (f"{pods.names[0].name}x", f"x{pods.names[0].name}"):
        (pods.names[0].parent / name / "plugin").mkdir(parents=True)
        assert asked(pod_lab, pods.names[0].parent / name / "plugin", PLUGIN[-2:]) == [403, 403], name


@pytest.mark.attack("4", "the kubelet's plugin, which was broken into, asks carved for root's rights")
def test_root_of_the_pod_has_no_other_of_roots_rights(pod_lab, pods):
    session = pod_lab.carve_json(ALICE, "session", "request", "--vram", "2")["id"]
    refused = [("POST", "/v1/commands", json.dumps({"pid": 1, "session": session})), ("POST", "/v1/upgrade", "{}"),
               ("PATCH", f"/v1/sessions/{session}", json.dumps({"vram": "1"})), ("GET", f"/v1/sessions/{session}", ""),
               ("POST", "/v1/explain", json.dumps({"vram": "1"})), ("PUT", f"/v1/quotas/user/{ALICE}", json.dumps({"max_sessions": 0})),
               ("GET", "/v1/quotas", ""), ("POST", "/v1/mig/gc", "{}"), ("PUT", "/v1/timeslicing", json.dumps({"mode": "fair"})),
               ("POST", "/v1/agents", json.dumps({"gpu_ids": "all", "queues": {"whole": 1}})), ("GET", "/v1/jobs", ""),
               ("POST", "/v1/jobs", json.dumps({"queue": "half", "argv": ["true"], "cwd": "/"}))]
    assert asked(pod_lab, pods.plugin, refused) == [403] * len(refused)


USER = ["setpriv", f"--reuid={ALICE}", f"--regid={ALICE}", "--clear-groups", *NO_CAPABILITY[1:]]
USERS = {"a user": USER, "root of a user's namespace": [*USER, *BOUNDED["a user namespace"]]}


@pytest.mark.parametrize("who", USERS)
@pytest.mark.attack("4", "a user in the pod, as the broken worker is one, is taken for the plugin")
def test_other_users_of_the_pod_are_themselves(pod_lab, pods, who):
    for cgroup in (pods.plugin, pods.carved):
        assert asked(pod_lab, cgroup, PLUGIN[-2:], words=USERS[who]) == [403, 403]


def test_without_the_option_root_of_the_pod_is_any_containers_root(pods, make_lab):
    lab = make_lab(before=entering(pods.carved))
    assert asked(lab, pods.plugin, PLUGIN[-2:]) == [403, 403]


def test_carved_does_not_start_where_it_sees_no_pod(cgroups, make_lab):  # noqa: F811
    lab = make_lab()
    done = lab.run(ROOT, *entering(cgroups.make()), CARVED, "--system", "--pod", "--foreground", "--runtime-dir", lab.dir / "other")
    assert done.returncode == 1 and "names a pod's cgroup" in done.stderr, done
    assert not pathlib.Path(lab.dir / "other" / "carved.sock").exists() and os.path.exists(lab.runtime)
