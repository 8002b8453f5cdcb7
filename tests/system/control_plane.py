"""A real control plane of Kubernetes for tests: API server, scheduler and controller manager, over an etcd of its own.

CARVE_TEST_CONTROL_PLANE names a directory with the programs etcd, kube-apiserver, kube-scheduler, kube-controller-manager and kubectl. Nodes are
objects alone: tests play the kubelet (cluster.Kubelet)."""
import http.client
import json
import os
import pathlib
import shutil
import socket
import ssl
import subprocess
import tempfile
import urllib.parse

from conftest import BUILD, ROOT, clean_env, run, wait_until

PROGRAMS = os.environ.get("CARVE_TEST_CONTROL_PLANE")
MANIFESTS = ROOT / "packaging" / "kubernetes"
TOKEN = "administrator"
# It is refused by carve's policies, once the API server holds them in force: a moment after it takes them.
REFUSED = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "probe", "annotations": {"gpu-fraction": "2"}},
           "spec": {"containers": [{"name": "main", "image": "x"}]}}
# Without those that would take a node without a kubelet for dead.
CONTROLLERS = ["serviceaccount-controller", "serviceaccount-token-controller", "resourceclaim-controller", "device-taint-eviction-controller",
               "garbage-collector-controller", "pod-garbage-collector-controller", "namespace-controller", "clusterrole-aggregation-controller"]


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class ControlPlane:
    def __init__(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="plane-"))
        self.running, self.processes, self.options = [], {}, {}
        self.url = f"https://127.0.0.1:{free_port()}"
        try:
            self.keys()
            self.start()
        except BaseException:
            self.close()
            raise

    def keys(self):
        def openssl(*words):
            done = run(["openssl", *words], cwd=self.dir)
            assert done.returncode == 0, done.stderr

        openssl("genrsa", "-out", "accounts.key", "2048")
        openssl("rsa", "-in", "accounts.key", "-pubout", "-out", "accounts.pub")
        openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", "server.key", "-out", "server.crt", "-subj", "/CN=localhost",
                "-days", "2", "-addext", "subjectAltName=IP:127.0.0.1")
        self.ca = self.dir / "server.crt"
        (self.dir / "tokens").write_text(f'{TOKEN},admin,admin,"system:masters"\n')
        self.kubeconfig = self.dir / "kubeconfig"
        self.kubeconfig.write_text(json.dumps({
            "apiVersion": "v1", "kind": "Config", "current-context": "c", "users": [{"name": "u", "user": {"token": TOKEN}}],
            "clusters": [{"name": "c", "cluster": {"server": self.url, "certificate-authority": str(self.ca)}}],
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]}))

    def program(self, name, **options):
        self.options[name] = options
        words = [f"--{option.replace('_', '-')}={value}" for option, value in options.items()]
        program = [BUILD / "carve-kubernetes", "controller"] if name == "carve-controller" else [pathlib.Path(PROGRAMS, name)]
        log = open(self.dir / f"{name}.log", "a")
        self.processes[name] = subprocess.Popen([*program, *words], cwd=self.dir, env=clean_env({}), stdin=subprocess.DEVNULL, stdout=log,
                                                stderr=log)
        self.running.append(self.processes[name])
        log.close()

    def ready(self):
        # An API server that starts beside other work takes more than a minute.
        wait_until(lambda: self.kubectl("get", "--raw", "/readyz", status=None).returncode == 0, timeout=300, step=0.5)

    def restart(self, name, **more):
        """Kills it, and starts it again, with other options for this once."""
        options = self.options[name]
        self.processes[name].kill()
        self.processes[name].wait()
        self.program(name, **options, **more)
        self.options[name] = options
        self.ready()

    def start(self):
        etcd, port = (f"http://127.0.0.1:{free_port()}" for _ in range(2)), self.url.rpartition(":")[2]
        clients, peers = etcd
        self.program("etcd", data_dir=self.dir / "etcd", listen_client_urls=clients, advertise_client_urls=clients, listen_peer_urls=peers,
                     initial_advertise_peer_urls=peers, initial_cluster=f"default={peers}")
        self.program("kube-apiserver", etcd_servers=clients, secure_port=port, bind_address="127.0.0.1", tls_cert_file="server.crt",
                     tls_private_key_file="server.key", service_account_key_file="accounts.pub", service_account_signing_key_file="accounts.key",
                     service_account_issuer="https://localhost", token_auth_file="tokens", authorization_mode="Node,RBAC",
                     service_cluster_ip_range="10.0.0.0/24", endpoint_reconciler_type="none", allow_privileged="true",
                     kubelet_preferred_address_types="InternalIP")
        self.ready()
        common = dict(kubeconfig=self.kubeconfig, leader_elect="false", secure_port="0")
        self.program("kube-scheduler", **common)
        self.program("kube-controller-manager", controllers=",".join(CONTROLLERS), service_account_private_key_file="accounts.key",
                     root_ca_file="server.crt", use_service_account_credentials="true", **common)

    def kubectl(self, *words, status=0):
        done = run([pathlib.Path(PROGRAMS, "kubectl"), "--kubeconfig", self.kubeconfig, *words])
        assert status is None or done.returncode == status, done.stdout + done.stderr
        return done

    def get(self, *words):
        """An object, or the items of a list."""
        done = self.kubectl("get", *words, "-o", "json", status=None)
        object = json.loads(done.stdout) if done.returncode == 0 else None
        return object and object.get("items", object)

    def apply(self, *objects, status=0, verb="apply", dry=False):
        (self.dir / "objects.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": objects}))
        return self.kubectl(verb, "-f", self.dir / "objects.json", *(["--dry-run=server"] if dry else []), status=status)

    def refusal(self, object):
        """The answer of the API server to an object that it does not take; "": it would take it."""
        done = self.apply(object, status=None, verb="create", dry=True)
        return done.stderr if done.returncode else ""

    def create_dry(self, resource, object):
        """(status, answer, [warnings]) of the API server that was asked whether it would take an object of its first group."""
        path = f"/api/v1/{'nodes' if resource == 'nodes' else f'namespaces/default/{resource}'}?dryRun=All"
        connection = http.client.HTTPSConnection(urllib.parse.urlsplit(self.url).netloc, timeout=60,
                                                 context=ssl.create_default_context(cafile=self.ca))
        try:
            connection.request("POST", path, json.dumps(object), {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"})
            answer = connection.getresponse()
            # 299 - "text", one a header.
            warnings = [json.loads(w.partition(" - ")[2]) for w in answer.headers.get_all("Warning", [])]
            return answer.status, json.loads(answer.read()), warnings
        finally:
            connection.close()

    def node(self, name, **labels):
        """A node that is ready, as a kubelet would say."""
        self.apply({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": {"nvidia.com/gpu.present": "true", **labels}}})
        room = {"cpu": "64", "memory": "256Gi", "pods": "110"}
        self.kubectl("patch", "node", name, "--subresource=status", "--type=merge", "-p", json.dumps({"status": {
            "capacity": room, "allocatable": room, "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady", "message": ""}]}}))
        # Admission holds new nodes back until a controller has seen them.
        self.kubectl("taint", "node", name, "node.kubernetes.io/not-ready-", status=None)

    def token(self, account, *bound):
        """The path of a token of one of carve's service accounts."""
        wait_until(lambda: self.get("serviceaccount", account, "-n", "carve"), step=0.2)
        path = self.dir / f"{account}.token"
        path.write_text(self.kubectl("create", "token", account, "-n", "carve", *bound).stdout.strip())
        return path

    def controller(self, **options):
        """carve's, whose manifests are applied."""
        self.program("carve-controller", api=self.url, ca_file=self.ca, namespace="carve", token_file=self.token("carve-controller"), **options)
        wait_until(lambda: "is no fraction" in self.refusal(REFUSED), step=0.2)

    def logs(self):
        return "\n".join(f"{p.name}: {line}" for p in sorted(self.dir.glob("*.log")) for line in p.read_text().splitlines()[-5:])

    def close(self):
        for process in reversed(self.running):
            process.kill()
            process.wait()
        shutil.rmtree(self.dir, ignore_errors=True)
