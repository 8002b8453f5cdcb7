"""The calls by which a kubelet has a CRI runtime make pods (runtime.v1), and a containerd or CRI-O of a test's own that answers them."""
import json
import os
import pathlib
import shutil
import subprocess

import grpc

from cluster import field, parse, text
from conftest import clean_env, run, wait_until
from control_plane import PROGRAMS
from kubelet_node import image_make
from podman_host import root_file_system

IMAGE, PAUSE = "docker.io/carve/labelled:1", "docker.io/carve/pause:1"
HAS_CONTAINERD = all(map(shutil.which, ("containerd", "containerd-shim-runc-v2", "ctr", "runc")))
# CRI-O is in no Debian 12: it is looked for beside the programs of a control plane. podman puts images into its storage.
HAS_CRIO = (bool(PROGRAMS) and all(pathlib.Path(PROGRAMS, p).exists() for p in ("crio", "pinns")) and
            all(map(shutil.which, ("conmon", "runc", "podman"))))
STATE = {0: "created", 1: "running", 2: "exited"}
OF_THE_NODE = 2
USER_SPECIFIED_IMAGE = 18


def pairs(number, values):
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in values.items())


class Cri:
    """A runtime whose socket a kubelet would have, and its pods. `dir`, `socket` and `env` are set by the kinds below."""

    def start(self, argv):
        with open(self.dir / "log", "w") as log:
            self.process = subprocess.Popen(argv, env=self.env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        wait_until(lambda: self.socket.exists() or self.process.poll() is not None)
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.pods = []

    def images(self, labels):
        """An archive of each image that pods are made of; its name."""
        root_file_system(self.dir / "root")
        for name, command, its in ((PAUSE, ["sleep", "inf"], {}), (IMAGE, ["hog"], labels)):
            image_make(self.dir / "image.tar", name, self.dir / "root", command, its)
            yield self.dir / "image.tar"

    def call(self, method, message):
        return parse(self.channel.unary_unary(f"/runtime.v1.RuntimeService/{method}")(message, timeout=60, wait_for_ready=True))

    def pod(self, name, labels=None, annotations=None):
        """A pod on the host's network: {id, config}."""
        network = field(2, field(1, field(1, OF_THE_NODE)))
        config = (field(1, field(1, name) + field(2, name) + field(3, "default")) + field(3, str(self.dir)) + pairs(6, labels or {}) +
                  pairs(7, annotations or {}) + field(8, network))
        made = {"id": text(self.call("RunPodSandbox", field(1, config)), 1), "config": config, "name": name}
        self.pods.append(made)
        return made

    def container(self, pod, command=(), env=None, annotations=None):
        """Runs one container; its output once it has ended. `annotations`: the container's own."""
        config = (field(1, field(1, "main")) + field(2, field(1, IMAGE) + field(USER_SPECIFIED_IMAGE, IMAGE)) + b"".join(field(3, word) for word in command) +
                  pairs(6, env or {}) + pairs(9, {"io.kubernetes.container.name": "main"}) + pairs(10, annotations or {}) + field(11, f"{pod['name']}.log") +
                  field(15, field(2, b"")))
        made = text(self.call("CreateContainer", field(1, pod["id"]) + field(2, config) + field(3, pod["config"])), 1)
        self.call("StartContainer", field(1, made))
        wait_until(lambda: STATE[parse(self.call("ContainerStatus", field(1, made))[1][0]).get(3, [0])[0]] == "exited")
        lines = (self.dir / f"{pod['name']}.log").read_text().splitlines()
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def end(self, sandbox):
        """Where the runtime itself would wait for a pod's first container, which takes no signal."""

    def close(self):
        if self.process.poll() is None:
            for pod in self.pods:
                self.end(pod["id"])
                self.call("StopPodSandbox", field(1, pod["id"]))
                self.call("RemovePodSandbox", field(1, pod["id"]))
            self.channel.close()
            self.process.terminate()
            self.process.wait(60)


class Containerd(Cri):
    """containerd with its files in `directory`, whose name is short. Each container has the OCI hook `hook`; None: none."""

    def __init__(self, directory, hook, labels, programs="", cdi=None):
        """`labels`: of the image. `programs`: a directory of a containerd, "": the one of PATH. `cdi`: where it reads CDI specs, from 1.7."""
        self.dir, self.cdi = pathlib.Path(directory), cdi
        self.env = clean_env({"PATH": f"{programs}:{os.environ['PATH']}" if programs else os.environ["PATH"]})
        self.state, self.socket = self.dir / "s", self.dir / "s/containerd.sock"
        self.configure(hook)
        self.start(["containerd", "-c", self.dir / "config.toml"])
        for archive in self.images(labels):
            done = run(["ctr", "-a", self.socket, "-n", "k8s.io", "images", "import", *(["--local"] if programs else []),
                        "--snapshotter", "native", archive], env=self.env)
            assert done.returncode == 0, done.stderr

    def configure(self, hook):
        spec = json.loads(run(["ctr", "oci", "spec"], env=self.env).stdout)
        spec["process"].pop("rlimits", None)
        spec["hooks"] = {"createRuntime": [hook]} if hook else {}
        (self.dir / "base.json").write_text(json.dumps(spec))
        (self.dir / "cni").mkdir()
        cri = 'plugins."io.containerd.grpc.v1.cri"'
        (self.dir / "config.toml").write_text(f"""
version = 2
root = "{self.dir}/r"
state = "{self.state}"
[grpc]
  address = "{self.socket}"
[ttrpc]
  address = "{self.socket}.ttrpc"
[plugins."io.containerd.internal.v1.opt"]
  path = "{self.dir}/opt"
[{cri}]
  sandbox_image = "{PAUSE}"
  restrict_oom_score_adj = true
  {f'enable_cdi = true; cdi_spec_dirs = ["{self.cdi}"]'.replace("; ", chr(10)) if self.cdi else ""}
[{cri}.cni]
  conf_dir = "{self.dir}/cni"
[{cri}.containerd]
  snapshotter = "native"
[{cri}.containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{self.dir}/base.json"
  pod_annotations = ["carve.*"]
""")


class Crio(Cri):
    """CRI-O with its files in `directory`, whose name is short. `hooks`: a directory of OCI hooks. `runtime`: a program in place of runc.

    In a mount namespace of its own the bundles of its containers are where those of an installed CRI-O are."""
    STATE = pathlib.Path("/run/containers/storage")

    def __init__(self, directory, hooks, labels, runtime=None):
        """`labels`: of the image."""
        self.dir = pathlib.Path(directory)
        self.socket = self.dir / "crio.sock"
        self.STATE.mkdir(parents=True, exist_ok=True)
        self.wrap = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$1" && shift && exec "$@"', self.dir / "s", self.STATE]
        self.env = clean_env({"PATH": f"{self.dir}/bin:{PROGRAMS}:{os.environ['PATH']}"})
        for name in ("bin", "s", "cni", "cdi", "conf"):
            (self.dir / name).mkdir(exist_ok=True)
        # A test's machine may not let a process say that it is less often killed for memory than others: containers ask for nothing.
        (self.dir / "bin/runc").write_text(f"""#!/bin/sh
before=
for word; do
	[ "$before" != --bundle ] || sed -i 's/"oomScoreAdj": *-[0-9]*/"oomScoreAdj": 0/' "$word/config.json"
	before=$word
done
exec {shutil.which('runc')} "$@"
""")
        (self.dir / "bin/runc").chmod(0o755)
        (self.dir / "policy.json").write_text('{"default": [{"type": "insecureAcceptAnything"}]}')
        for archive in self.images(labels):
            done = run([*self.wrap, "podman", "--root", self.dir / "r", "--runroot", self.STATE, "--storage-driver", "vfs", "load", "-i", archive], env=self.env)
            assert done.returncode == 0, done.stderr
        (self.dir / "crio.conf").write_text(f"""
[crio]
root = "{self.dir}/r"
runroot = "{self.STATE}"
storage_driver = "vfs"
log_dir = "{self.dir}/logs"
version_file = "{self.dir}/version"
version_file_persist = "{self.dir}/version-kept"
clean_shutdown_file = "{self.dir}/clean"
[crio.api]
listen = "{self.socket}"
[crio.image]
pause_image = "{PAUSE}"
pause_command = ""
signature_policy = "{self.dir}/policy.json"
[crio.runtime]
hooks_dir = ["{hooks}"]
cdi_spec_dirs = ["{self.dir}/cdi"]
default_runtime = "slices"
cgroup_manager = "cgroupfs"
drop_infra_ctr = false
namespaces_dir = "{self.dir}/ns"
container_exits_dir = "{self.dir}/exits"
container_attach_socket_dir = "{self.dir}/a"
apparmor_profile = "unconfined"
pinns_path = "{PROGRAMS}/pinns"
[crio.runtime.runtimes.slices]
runtime_path = "{runtime or self.dir / 'bin/runc'}"
runtime_root = "{self.dir}/runtime"
monitor_path = "{shutil.which('conmon')}"
monitor_cgroup = "pod"
[crio.network]
network_dir = "{self.dir}/cni"
plugin_dirs = ["{self.dir}/cni"]
""")
        self.start([*self.wrap, "crio", "--config", self.dir / "crio.conf", "--config-dir", self.dir / "conf"])

    def end(self, sandbox):
        run(["runc", "--root", self.dir / "runtime", "kill", sandbox, "KILL"], env=self.env)
