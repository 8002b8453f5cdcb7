"""The calls by which a kubelet has a CRI runtime make pods (runtime.v1), and a containerd of a test's own that answers them."""
import json
import os
import pathlib
import shutil
import subprocess

import grpc

from cluster import field, parse, text
from conftest import clean_env, run, wait_until
from kubelet_node import image_make
from podman_host import root_file_system

IMAGE, PAUSE = "docker.io/carve/labelled:1", "docker.io/carve/pause:1"
HAS_CONTAINERD = all(map(shutil.which, ("containerd", "containerd-shim-runc-v2", "ctr", "runc")))
STATE = {0: "created", 1: "running", 2: "exited"}
OF_THE_NODE = 2


def pairs(number, values):
    return b"".join(field(number, field(1, key) + field(2, value)) for key, value in values.items())


class Containerd:
    """containerd with its files in `directory`, whose name is short. Each container has the OCI hook `hook`; None: none."""

    def __init__(self, directory, hook, labels, programs="", cdi=None):
        """`labels`: of the image. `programs`: a directory of a containerd, "": the one of PATH. `cdi`: where it reads CDI specs, from 1.7."""
        self.dir, self.cdi = pathlib.Path(directory), cdi
        self.env = clean_env({"PATH": f"{programs}:{os.environ['PATH']}" if programs else os.environ["PATH"]})
        self.state, self.socket = self.dir / "s", self.dir / "s/containerd.sock"
        self.configure(hook)
        with open(self.dir / "log", "w") as log:
            self.process = subprocess.Popen(["containerd", "-c", self.dir / "config.toml"], env=self.env, stdin=subprocess.DEVNULL,
                                            stdout=log, stderr=log)
        wait_until(lambda: self.socket.exists() or self.process.poll() is not None)
        root_file_system(self.dir / "root")
        for name, command, its in ((PAUSE, ["sleep", "inf"], {}), (IMAGE, ["hog"], labels)):
            image_make(self.dir / "image.tar", name, self.dir / "root", command, its)
            done = run(["ctr", "-a", self.socket, "-n", "k8s.io", "images", "import", *(["--local"] if programs else []),
                        "--snapshotter", "native", self.dir / "image.tar"], env=self.env)
            assert done.returncode == 0, done.stderr
        self.channel = grpc.insecure_channel(f"unix:{self.socket}")
        self.pods = []

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
        config = (field(1, field(1, "main")) + field(2, field(1, IMAGE)) + b"".join(field(3, word) for word in command) +
                  pairs(6, env or {}) + pairs(9, {"io.kubernetes.container.name": "main"}) + pairs(10, annotations or {}) + field(11, f"{pod['name']}.log") +
                  field(15, field(2, b"")))
        made = text(self.call("CreateContainer", field(1, pod["id"]) + field(2, config) + field(3, pod["config"])), 1)
        self.call("StartContainer", field(1, made))
        wait_until(lambda: STATE[parse(self.call("ContainerStatus", field(1, made))[1][0]).get(3, [0])[0]] == "exited")
        lines = (self.dir / f"{pod['name']}.log").read_text().splitlines()
        return "\n".join(line.split(" ", 3)[3] for line in lines)

    def close(self):
        if self.process.poll() is None:
            for pod in self.pods:
                self.call("StopPodSandbox", field(1, pod["id"]))
                self.call("RemovePodSandbox", field(1, pod["id"]))
            self.channel.close()
            self.process.terminate()
            self.process.wait(60)
