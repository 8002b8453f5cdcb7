"""A simulated host with its carved and the node plugin, as a node of a real control plane (control_plane.py)."""
from cluster import Cluster
from conftest import BUILD


class PlaneNode(Cluster):
    """Its API server is no longer the one that is played."""

    def __init__(self, host, plane, name):
        super().__init__(host)
        self.plane, self.name = plane, name

    def bind(self):
        """The plugin's token, once the node is there."""
        self.token = self.plane.token("carve-node", "--bound-object-kind=Node", f"--bound-object-name={self.name}")

    def start(self, *options):
        log = open(self.dir / "log", "a")
        self.plugin = self.host.popen([BUILD / "carve-kubernetes", "node", "--node-name", self.name, "--kubelet-dir", self.kubelet_dir,
                                       "--cdi-dir", self.cdi, "--api", self.plane.url, "--token-file", self.token, "--ca-file", self.plane.ca,
                                       *options], stdout=log, stderr=log)
        log.close()

    def slices(self):
        return [s for s in self.plane.get("resourceslices") if s["spec"].get("nodeName") == self.name]

    def remove(self):
        self.plane.kubectl("delete", "node", self.name)
        self.plane.kubectl("delete", "resourceslices", "--all")
