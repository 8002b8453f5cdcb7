"""A node of a cluster whose pod of carve's runs in containerd as the manifests say it: the test plays the kubelet, and asks containerd
by CRI for the containers with the rights, mounts and cgroups that a kubelet would give them.

The node's own files are below a directory of the test's. Programs of the node (carve-hook, a pod with a slice) see them at their places."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import uuid

import yaml

from cgroups import MOUNT
from cluster import Cluster, Kubelet, field, parse, text
from conftest import BUILD, ROOT, clean_env, run, wait_until
from cri import OF_THE_NODE, PAUSE, STATE, USER_SPECIFIED_IMAGE, Containerd, pairs
from kubelet_node import image_make
from podman_host import root_file_system

IMAGE = "docker.io/carve/carve:1"
MANIFEST = ROOT / "packaging" / "kubernetes" / "base" / "node.yaml"
WORKER = 60706
# As a kubelet has them for a container without `procMount`.
MASKED = ("/proc/asound", "/proc/acpi", "/proc/kcore", "/proc/keys", "/proc/latency_stats", "/proc/timer_list", "/proc/timer_stats", "/proc/sched_debug",
          "/proc/scsi", "/sys/firmware")
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
UNCONFINED, HOST_TO_CONTAINER = 1, 1
DRIVER = "run/nvidia/driver/usr/lib/x86_64-linux-gnu"


def hierarchies():
    """The directories in which cgroups are made: one, or in version 1 one for each controller."""
    top = pathlib.Path("/sys/fs/cgroup")
    return [top] if (top / "cgroup.controllers").exists() else [p for p in top.iterdir() if (p / "cgroup.procs").exists()]


def skeleton(root):
    """The image's files but for those of /usr: user carve is there, as packaging/Containerfile makes it."""
    for name in ("etc", "proc", "sys", "dev", "run", "tmp", "var/lib", "usr"):
        (root / name).mkdir(parents=True)
    for name in ("bin", "sbin", "lib", "lib64"):
        (root / name).symlink_to(f"usr/{name}")
    (root / "var/run").symlink_to("/run")
    (root / "etc/passwd").write_text(f"root:x:0:0::/root:/bin/sh\ncarve:x:{WORKER}:{WORKER}::/var/lib/carve:/usr/sbin/nologin\n")
    (root / "etc/group").write_text(f"root:x:0:\ncarve:x:{WORKER}:\n")
    shutil.copy("/etc/ld.so.cache", root / "etc/ld.so.cache")


class NodeContainerd(Containerd):
    def images(self, labels):
        root_file_system(self.dir / "pause")
        image_make(self.dir / "image.tar", PAUSE, self.dir / "pause", ["sleep", "inf"])
        yield self.dir / "image.tar"
        skeleton(self.dir / "root")
        image_make(self.dir / "image.tar", IMAGE, self.dir / "root", ["true"])
        yield self.dir / "image.tar"


class MappedKubelet(Kubelet):
    """Its directory is below the node's."""

    def __init__(self, node):
        super().__init__(node / "var/lib/kubelet")
        self.node = node

    def register(self):
        info = super().register()
        self.socket = f"{self.node}{self.socket}"
        return info


class NodePod(Cluster):
    def __init__(self, host, installed):
        super().__init__(host)
        self.dir.chmod(0o755)
        self.node, self.uid, self.installed = self.dir / "node", str(uuid.uuid4()), installed
        self.cri, self.containers, self.sandbox = None, {}, None
        self.kubelet_dir, self.cdi = self.node / "var/lib/kubelet", self.node / "run/cdi"
        self.kubelet = MappedKubelet(self.node)
        self.spec = yaml.safe_load(MANIFEST.read_text())["spec"]["template"]["spec"]
        self.carved = next(c for c in self.spec["containers"] if c["name"] == "carved")
        driver = self.node / DRIVER
        driver.mkdir(parents=True)
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            shutil.copy(BUILD / "sim" / name, driver)
        (self.node / "var/lib").mkdir(parents=True)
        (self.dir / "usr").mkdir()
        # A driver that comes later is seen by containers only if the node's mounts are shared, as systemd has them.
        for words in (["-t", "overlay", "overlay", "-o", f"ro,lowerdir={installed}:/usr", self.dir / "usr"], ["--bind", self.node, self.node],
                      ["--make-shared", self.node]):
            done = run(["mount", *words])
            assert done.returncode == 0, done.stderr

    # ---- what a kubelet does

    def host_path(self, volume):
        """Where a volume of the pod is on this machine; None: it is left out."""
        if "hostPath" in volume:
            path = pathlib.Path(volume["hostPath"]["path"])
            if path == pathlib.Path("/dev"):
                return path
            own = self.node / ("run" + str(path)[8:] if str(path).startswith("/var/run/") else str(path)[1:])
        elif volume["name"] in ("tmp", "token"):
            own = self.dir / volume["name"]
        else:
            raise AssertionError(f"a volume that no test knows: {volume}")
        own.mkdir(mode=0o755, parents=True, exist_ok=True)
        if volume["name"] == "tmp":
            own.chmod(0o777)
        return own

    def place(self, name):
        """The path of a volume below the node's directory."""
        return next(v["hostPath"]["path"] for v in self.spec["volumes"] if v["name"] == name).lstrip("/")

    def mounts(self, container):
        volumes = {v["name"]: v for v in self.spec["volumes"]}
        given = [(m["mountPath"], self.host_path(volumes[m["name"]]), m.get("readOnly", False), m.get("mountPropagation") == "HostToContainer")
                 for m in container["volumeMounts"]]
        # Beside cgroups of version 1, containerd mounts no version 2.
        if container["name"] == "carved" and MOUNT and MOUNT.name == "unified":
            given += [(MOUNT, MOUNT, False, False)]
        # The simulated GPU, and the image's /usr.
        given += [("/usr", self.dir / "usr", True, False), (self.host.env["SIMGPU_HOST"], self.host.env["SIMGPU_HOST"], False, False)]
        return b"".join(field(7, field(1, str(place)) + field(2, str(path)) + (field(3, 1) if read_only else b"") +
                                 (field(5, HOST_TO_CONTAINER) if follows else b"")) for place, path, read_only, follows in given)

    def rights(self, context):
        capabilities = b"".join(field(2, name) for name in context.get("capabilities", {}).get("drop", []))
        capabilities += b"".join(field(1, name) for name in context.get("capabilities", {}).get("add", []))
        privileged, seccomp = context.get("privileged", False), context.get("seccompProfile", {}).get("type")
        out = field(1, capabilities) + field(3, self.namespaces()) + field(5, field(1, context["runAsUser"]))
        out += field(2, 1) if privileged else b"".join(field(13, p) for p in MASKED) + b"".join(field(14, p) for p in READ_ONLY)
        out += field(7, 1) if context.get("readOnlyRootFilesystem") else b""
        out += field(11, 1) if context.get("allowPrivilegeEscalation") is False else b""
        return out + field(15, b"" if seccomp == "RuntimeDefault" else field(1, UNCONFINED))

    def namespaces(self):
        return field(1, OF_THE_NODE) + (field(2, OF_THE_NODE) if self.spec["hostPID"] else b"")

    def make(self, container):
        more = ("--api", self.api.url) if container["name"] == "plugin" else ()
        env = {e["name"]: e.get("value", "n1") for e in container.get("env", [])} | {"SIMGPU_HOST": self.host.env["SIMGPU_HOST"]}
        config = (field(1, field(1, container["name"])) + field(2, field(1, IMAGE) + field(USER_SPECIFIED_IMAGE, IMAGE)) +
                  b"".join(field(3, word) for word in [*container["command"], *more]) + pairs(6, env) + self.mounts(container) +
                  pairs(9, {"io.kubernetes.container.name": container["name"]}) + field(11, f"{container['name']}.log") +
                  field(15, field(2, self.rights(container.get("securityContext", {"runAsUser": 0})))))
        made = text(self.cri.call("CreateContainer", field(1, self.sandbox["id"]) + field(2, config) + field(3, self.sandbox["config"])), 1)
        self.cri.call("StartContainer", field(1, made))
        self.containers[container["name"]] = made

    def status(self, name):
        return parse(self.cri.call("ContainerStatus", field(1, self.containers[name]))[1][0])

    def ended(self, name):
        status = self.status(name)
        return STATE[status.get(3, [0])[0]] == "exited" and status.get(7, [0])[0] + 1

    def start(self):
        directory = tempfile.mkdtemp(prefix="np-", dir="/tmp")
        self.cri = NodeContainerd(directory, None, {})
        config = (field(1, field(1, "carve-node") + field(2, self.uid) + field(3, "carve")) + field(3, str(self.cri.dir)) +
                  field(8, field(1, f"/kubepods/besteffort/pod{self.uid}") + field(2, field(1, self.namespaces()) + field(6, 1))))
        made = {"id": text(self.cri.call("RunPodSandbox", field(1, config)), 1), "config": config, "name": "carve-node"}
        self.cri.pods.append(made)
        self.sandbox = made
        for container in self.spec["initContainers"]:
            self.make(container)
            wait_until(lambda: self.ended(container["name"]))  # noqa: B023
            assert self.ended(container["name"]) == 1, self.log()
        for container in self.spec["containers"]:
            self.make(container)

    def start_again(self, name):
        """As a kubelet does with a container that has ended."""
        self.cri.call("StopContainer", field(1, self.containers[name]) + field(2, 20))
        self.cri.call("RemoveContainer", field(1, self.containers[name]))
        self.make(next(c for c in self.spec["containers"] if c["name"] == name))

    def log(self):
        return "\n".join(f"{p.name}: {line}" for p in sorted(self.cri.dir.glob("*.log")) for line in p.read_text().splitlines()[-40:])

    # ---- what is asked of it

    def cgroups(self, name):
        """The files by which a process enters a container's cgroups: one, or in version 1 one for each controller."""
        places = [top / f"kubepods/besteffort/pod{self.uid}/{self.containers[name]}/cgroup.procs" for top in hierarchies()]
        return [place for place in places if place.exists()]

    def pids(self, name):
        return [int(p) for p in self.cgroups(name)[0].read_text().split()]

    def pid(self, name):
        """The first process of a container."""
        return self.pids(name)[0]

    def on_node(self, *argv):
        """Words that run a program among the node's files."""
        script = f"mount --bind {self.node}/run /run && mount --bind {self.node}/var/lib /var/lib && exec \"$@\""
        return ["unshare", "-m", "--propagation", "private", "sh", "-ec", script, "sh", *map(str, argv)]

    def mapped(self, path):
        """Where a path of the node is on this machine."""
        path = "/run" + path[8:] if path.startswith("/var/run/") else path
        return f"{self.node}{path}" if path.startswith(("/run/", "/var/lib/")) else path

    def device(self, id):
        """As a container runtime among the node's files finds it."""
        edits = super().device(id)
        for edit in edits:
            for mount in edit.get("mounts", []):
                mount["hostPath"] = self.mapped(mount["hostPath"])
            for hook in edit.get("hooks", []):
                words = self.on_node(hook["path"], *hook["args"][1:])
                hook.update(path=shutil.which(words[0]), args=words)
        return edits

    def sessions(self):
        done = run(self.on_node(BUILD / "carve", "session", "list", "--json"), env=clean_env({}))
        assert done.returncode == 0, done.stderr
        return [s for s in json.loads(done.stdout) if s["state"] == "active"]

    def close(self):
        with contextlib.suppress(AttributeError):
            self.cri.close()
            shutil.rmtree(self.cri.dir, ignore_errors=True)
        run(["umount", self.dir / "usr"])
        run(["umount", self.node])
        self.plugin = None
        super().close()
        for top in (hierarchy / "kubepods" for hierarchy in hierarchies()):
            for path in [*sorted(top.rglob(f"pod{self.uid}/**"), reverse=True), top / "besteffort", top]:
                with contextlib.suppress(OSError):
                    path.rmdir()
