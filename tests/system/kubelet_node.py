"""A real kubelet and containerd as a node of a real control plane (control_plane.py), for tests.

Beside its programs, CARVE_TEST_CONTROL_PLANE has kubelet, containerd (2.0 or newer), containerd-shim-runc-v2 and ctr; runc is taken from PATH."""
import hashlib
import io
import json
import os
import pathlib
import subprocess
import tarfile

from conftest import clean_env, run, wait_until
from control_plane import PROGRAMS, free_port
from podman_host import root_file_system

HAS_KUBELET = bool(PROGRAMS) and all(pathlib.Path(PROGRAMS, p).exists() for p in ("kubelet", "containerd", "containerd-shim-runc-v2", "ctr"))
IMAGE, PAUSE = "docker.io/carve/test:1", "docker.io/carve/pause:1"
# That a kubelet wants of the kernel.
PARAMETERS = {"vm/overcommit_memory": 1, "kernel/panic": 10, "kernel/panic_on_oops": 1}


def image_make(path, name, root, command, labels=None):
    """An archive as `docker save` makes it, of one layer: a directory."""
    def add(tar, file, data):
        entry = tarfile.TarInfo(file)
        entry.size = len(data)
        tar.addfile(entry, io.BytesIO(data))

    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w") as tar:
        tar.add(root, ".")
    layer = hashlib.sha256(raw.getvalue()).hexdigest()
    config = json.dumps({"architecture": "amd64", "os": "linux", "rootfs": {"type": "layers", "diff_ids": [f"sha256:{layer}"]},
                         "config": {"Cmd": command, "Env": ["PATH=/bin"], "Labels": labels or {}}}).encode()
    named = hashlib.sha256(config).hexdigest() + ".json"
    with tarfile.open(path, "w") as tar:
        add(tar, named, config)
        add(tar, f"{layer}/layer.tar", raw.getvalue())
        add(tar, "manifest.json", json.dumps([{"Config": named, "RepoTags": [name], "Layers": [f"{layer}/layer.tar"]}]).encode())


class KubeletNode:
    """Kubelet and containerd in a directory: `kubelet_dir` and `cdi` are where they look for plugins and CDI specs."""

    def __init__(self, plane, name, directory, cdi, hook=None):
        """`hook`: an OCI hook that containerd gives every container (docs/admin/cluster.md)."""
        self.plane, self.name, self.dir, self.cdi = plane, name, pathlib.Path(directory), cdi
        self.kubelet_dir = self.dir / "kubelet"
        self.socket = self.dir / "containerd.sock"
        self.processes, self.words, self.hook = {}, {}, hook
        for directory in (self.kubelet_dir, self.dir / "cni", self.cdi):
            directory.mkdir(exist_ok=True)
        try:
            self.containerd_start()
            self.kubelet_configure()
            self.kubelet_start()
            wait_until(self.is_ready, step=0.5)
        except BaseException:
            self.close()
            raise

    def start(self, name, words, wrap=()):
        self.words[name] = (words, wrap)
        log = open(self.dir / f"{name}.log", "a")
        env = clean_env({"PATH": f"{PROGRAMS}:{os.environ['PATH']}"})
        self.processes[name] = subprocess.Popen([*wrap, pathlib.Path(PROGRAMS, name), *words], env=env, stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log)
        log.close()

    def base_spec_make(self):
        spec = json.loads(run([pathlib.Path(PROGRAMS, "ctr"), "oci", "spec"]).stdout)
        del spec["process"]["rlimits"]
        spec["hooks"] = {"createRuntime": [self.hook]}
        (self.dir / "base.json").write_text(json.dumps(spec))
        with open(self.dir / "containerd.toml", "a") as file:
            file.write(f"""
[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"
  base_runtime_spec = "{self.dir}/base.json"
  pod_annotations = ["carve.*"]
""")

    def containerd_start(self):
        (self.dir / "cni" / "10-lo.conflist").write_text(json.dumps(
            {"cniVersion": "1.0.0", "name": "lo", "plugins": [{"type": "loopback"}]}))
        (self.dir / "containerd.toml").write_text(f"""
version = 3
root = "{self.dir}/containerd"
state = "{self.dir}/containerd-state"
[grpc]
  address = "{self.socket}"
[ttrpc]
  address = "{self.socket}.ttrpc"
[plugins."io.containerd.nri.v1.nri"]
  disable = true
[plugins."io.containerd.cri.v1.images".pinned_images]
  sandbox = "{PAUSE}"
[plugins."io.containerd.cri.v1.runtime"]
  enable_cdi = true
  restrict_oom_score_adj = true
  cdi_spec_dirs = ["{self.cdi}"]
[plugins."io.containerd.cri.v1.runtime".cni]
  conf_dir = "{self.dir}/cni"
""")
        if self.hook:
            self.base_spec_make()
        self.start("containerd", ["-c", self.dir / "containerd.toml"])
        wait_until(self.socket.exists)
        root_file_system(self.dir / "root")
        for name, command in ((PAUSE, ["sleep", "inf"]), (IMAGE, ["hog"])):
            image_make(self.dir / "image.tar", name, self.dir / "root", command)
            done = run([pathlib.Path(PROGRAMS, "ctr"), "-a", self.socket, "-n", "k8s.io", "images", "import", self.dir / "image.tar"])
            assert done.returncode == 0, done.stderr

    def kubelet_configure(self):
        (self.dir / "kubelet.yaml").write_text(json.dumps({
            "kind": "KubeletConfiguration", "apiVersion": "kubelet.config.k8s.io/v1beta1", "failCgroupV1": False, "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False, "enforceNodeAllocatable": [], "failSwapOn": False, "containerRuntimeEndpoint": f"unix://{self.socket}",
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}}, "authorization": {"mode": "AlwaysAllow"},
            "port": free_port(), "healthzPort": 0, "makeIPTablesUtilChains": False, "localStorageCapacityIsolation": False,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
            "featureGates": {"KubeletInUserNamespace": True}, "resolvConf": "", "podLogsDir": f"{self.dir}/logs",
            "nodeStatusUpdateFrequency": "4s", "imageGCHighThresholdPercent": 100}))

    def kubelet_start(self):
        # It sets parameters of the kernel. This host's are left alone.
        script = [f"echo {value} > {self.dir}/{n} && mount --bind {self.dir}/{n} /proc/sys/{parameter}"
                  for n, (parameter, value) in enumerate(PARAMETERS.items())]
        wrap = ["unshare", "-m", "--propagation", "unchanged", "sh", "-ec", "\n".join([*script, 'exec "$@"']), "sh"]
        self.start("kubelet", [f"--kubeconfig={self.plane.kubeconfig}", f"--config={self.dir}/kubelet.yaml", f"--root-dir={self.kubelet_dir}",
                               f"--cert-dir={self.dir}/certificates", f"--hostname-override={self.name}",
                               "--node-labels=nvidia.com/gpu.present=true", "--v=2"], wrap=wrap)

    def is_ready(self):
        assert all(p.poll() is None for p in self.processes.values()), self.log()
        node = self.plane.get("node", self.name)
        return node and any(c["type"] == "Ready" and c["status"] == "True" for c in node["status"].get("conditions", []))

    def log(self):
        return "\n".join(p.read_text()[-6000:] for p in sorted(self.dir.glob("*.log")))

    def start_again(self, name):
        self.start(name, *self.words[name])
        if name == "containerd":
            wait_until(lambda: run([pathlib.Path(PROGRAMS, "ctr"), "-a", self.socket, "version"]).returncode == 0, step=0.2)

    def kill(self, name):
        self.processes[name].kill()
        self.processes[name].wait()

    def close(self):
        """Pods are deleted before: what still runs outlives containerd."""
        for name in reversed(list(self.processes)):
            self.kill(name)
