"""A cluster for tests: an API server and a kubelet that this file plays, over a real carved on a simulated host.

Messages of the kubelet are written here byte by byte, and sent by gRPC's own library, so that no code is shared with the plugin."""
import concurrent.futures
import http.server
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import threading
import urllib.parse
import uuid

import grpc

from cluster_schema import refused
from conftest import BUILD, wait_until

DRIVER = "gpu.carve.dev"
GIB = 1 << 30


# ---- protobuf ---------------------------------------------------------------------------------

def varint(value):
    out = b""
    while value > 127:
        out += bytes([value & 127 | 128])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def parse(data):
    """{number: [values]}; lengths as bytes, varints as numbers."""
    fields, at = {}, 0

    def number():
        nonlocal at
        value = shift = 0
        while True:
            byte = data[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(data):
        key = number()
        if key & 7 == 2:
            length = number()
            value = data[at:at + length]
            assert len(value) == length
            at += length
        else:
            assert key & 7 == 0, key
            value = number()
        fields.setdefault(key >> 3, []).append(value)
    return fields


def text(fields, number):
    return fields.get(number, [b""])[0].decode()


def merged(object, patch):
    """RFC 7396."""
    if not isinstance(patch, dict):
        return patch
    whole = {**(object if isinstance(object, dict) else {}), **{k: merged(object.get(k) if isinstance(object, dict) else None, v)
                                                               for k, v in patch.items()}}
    return {k: v for k, v in whole.items() if v is not None}


def without_mark(pod):
    """The annotations of a job's pod, but for the one that says that it is followed."""
    return {k: v for k, v in pod["metadata"]["annotations"].items() if k != "carve.dev/followed"}


# ---- the API server ---------------------------------------------------------------------------

class ApiServer:
    """Objects by path. `calls` has (method, path) of all calls; `drop` fields of slices that a closed gate would.
    `stuck`: each page of a list names the same next one. `stalled`: calls with that in their path get no answer; `stalls` are those.
    `nonsense` {part of a path: answer, an object or a text}: with status 200. `forbidden`: calls with that in their path get 403."""

    def __init__(self):
        self.objects, self.calls, self.drop, self.version, self.down, self.stuck = {}, [], [], 0, False, False
        self.stalled, self.stalls, self.nonsense, self.forbidden = None, [], {}, None
        self.invalid = []  # what was refused, as it fits no schema
        self.logs = {}  # texts by path of the pod
        self.events, self.oldest, self.watches = [], 0, 0  # (version, type, path, object); versions that are forgotten
        self.lock = threading.RLock()
        self.changed = threading.Condition(self.lock)
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def answer(self, status, body):
                data = (body if isinstance(body, str) else json.dumps(body)).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def do(self):
                length = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(length)) if length else None
                if outer.down:
                    self.close_connection = True
                    return
                with outer.lock:
                    if outer.stalled and outer.stalled in self.path:
                        outer.stalls.append((self.command, self.path))
                        outer.changed.wait_for(lambda: not outer.stalled)
                if "watch=1" in self.path:
                    self.watch()
                    return
                if self.path.partition("?")[0].endswith("/log"):
                    self.log()
                    return
                with outer.lock:
                    outer.calls.append((self.command, self.path))
                    nonsense = next((answer for part, answer in outer.nonsense.items() if part in self.path), None)
                    status, answer = (200, nonsense) if nonsense is not None else outer.serve(self.command, self.path, body)
                self.answer(status, answer)

            def send_event(self, type, object):
                data = json.dumps({"type": type, "object": object}).encode() + b"\n"
                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))

            def log(self):
                """A pod's log until the pod has ended, or a test cuts it."""
                pod = self.path.partition("?")[0].removesuffix("/log")
                named = "container=" in self.path
                with outer.lock:
                    if len(outer.objects.get(pod, {}).get("spec", {}).get("containers", [])) > 1 and not named:
                        outer.calls.append(("GET", self.path))
                        self.answer(*outer.status(400, "a container name must be specified"))
                        return
                    outer.calls.append(("GET", self.path))
                    generation, at = outer.watches, 0
                    self.send_response(200)
                    self.send_header("Transfer-Encoding", "chunked")
                    self.end_headers()
                    try:
                        while True:
                            lines = outer.logs.get(pod, [])
                            ended = outer.ended(outer.objects.get(pod, {}))
                            for line in lines[at:]:
                                data = line.encode()
                                self.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
                            at = len(lines)
                            self.wfile.flush()
                            if outer.down or outer.watches != generation:
                                break
                            if ended:
                                self.wfile.write(b"0\r\n\r\n")
                                break
                            outer.changed.wait(0.5)
                    except OSError:
                        pass
                self.close_connection = True

            def watch(self):
                """Events, one a line, until the server goes down or a test cuts the watches."""
                path, _, query = self.path.partition("?")
                query = dict(urllib.parse.parse_qsl(query))
                self.send_response(200)
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                at = int(query["resourceVersion"])
                with outer.lock:
                    outer.calls.append(("WATCH", self.path))
                    generation = outer.watches
                    try:
                        while not outer.down and outer.watches == generation:
                            if at < outer.oldest:
                                self.send_event("ERROR", outer.status(410, "too old resource version")[1])
                                break
                            for version, type, its, object in outer.events:
                                if version > at and outer.listed(path, its) and outer.selected(query, object):
                                    self.send_event(type, object)
                            at = outer.version
                            self.send_event("BOOKMARK", {"metadata": {"resourceVersion": str(at)}})
                            self.wfile.flush()
                            outer.changed.wait(0.5)
                    except OSError:
                        pass
                self.close_connection = True

            do_GET = do_POST = do_PUT = do_DELETE = do_PATCH = do

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def resume(self):
        with self.lock:
            self.stalled = None
            self.changed.notify_all()

    def close(self):
        self.resume()
        self.server.shutdown()
        self.server.server_close()
        assert self.invalid == []

    @staticmethod
    def status(code, message):
        return code, {"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "message": message}

    @staticmethod
    def drop_from(object, field):
        object.get("spec", {}).pop(field, None)
        for device in object.get("spec", {}).get("devices", []):
            device.pop(field, None)

    def put(self, path, object):
        with self.lock:
            self.version += 1
            object.setdefault("metadata", {})
            object["metadata"].setdefault("uid", str(uuid.uuid4()))
            object["metadata"]["resourceVersion"] = str(self.version)
            for drop in self.drop:
                self.drop_from(object, drop)
            self.events.append((self.version, "MODIFIED" if path in self.objects else "ADDED", path, object))
            self.objects[path] = object
            self.changed.notify_all()
            return object

    def delete(self, path):
        with self.lock:
            self.version += 1
            object = self.objects.pop(path)
            object["metadata"]["resourceVersion"] = str(self.version)
            self.events.append((self.version, "DELETED", path, object))
            self.changed.notify_all()
            return object

    @staticmethod
    def ended(pod):
        """Whether its first container has no more to log."""
        status, main = pod.get("status", {}), pod.get("spec", {}).get("containers", [{}])[0].get("name")
        return status.get("phase") in (None, "Succeeded", "Failed") or any(
            s["name"] == main and "terminated" in s["state"] for s in status.get("containerStatuses", []))

    @staticmethod
    def listed(collection, path):
        """Whether the object at `path` is in a collection, which may be that of all namespaces."""
        parent = path.rpartition("/")[0]
        return parent == collection or re.sub("/namespaces/[^/]+(?=/)", "", parent) == collection

    @staticmethod
    def selected(query, object):
        for selector in filter(None, query.get("fieldSelector", "").split(",")):
            key, _, value = selector.partition("=")
            if object["spec"].get(key.rpartition(".")[2]) != value:
                return False
        label = query.get("labelSelector")
        key, _, value = (label or "").partition("=")
        return not label or (key in object["metadata"].get("labels", {}) and value in ("", object["metadata"]["labels"][key]))

    def serve(self, method, path, body):
        if self.forbidden and self.forbidden in path:
            return self.status(403, "it is forbidden")
        path, _, query = path.partition("?")
        query = dict(urllib.parse.parse_qsl(query))
        if method == "GET" and path in self.objects:
            return 200, self.objects[path]
        if method == "GET" and re.search("/(nodes|pods|deviceclasses|resourceclaims|resourceclaimtemplates|resourceslices|deployments|daemonsets)$", path):
            items = [o for p, o in sorted(self.objects.items()) if self.listed(path, p) and self.selected(query, o)]
            first, limit = int(query.get("continue", 0)), int(query.get("limit", 1 << 30))
            more = {"continue": str(first + limit)} if first + limit < len(items) else {}
            more = {"continue": "0"} if self.stuck else more
            return 200, {"kind": "List", "metadata": {"resourceVersion": str(self.version), **more},
                         "items": items[first:first + limit]}
        if method in ("POST", "PUT") and (why := refused(path, body)):
            self.invalid.append(why)
            return self.status(422, why)
        if method == "POST" and query.get("dryRun") == "All":
            for drop in self.drop:
                self.drop_from(body, drop)
            return 201, body
        if method == "POST":
            name = path + "/" + body["metadata"]["name"]
            return self.status(409, "it exists") if name in self.objects else (201, self.put(name, body))
        if path not in self.objects:
            return self.status(404, f"{path} not found")
        if method == "PUT":
            if body["metadata"].get("resourceVersion") != self.objects[path]["metadata"]["resourceVersion"]:
                return self.status(409, "the object has been modified")
            return 200, self.put(path, body)
        if method == "DELETE":
            if (body or {}).get("preconditions", {}).get("uid", self.objects[path]["metadata"]["uid"]) != self.objects[path]["metadata"]["uid"]:
                return self.status(409, "the UID in the precondition does not match")
            return 200, self.delete(path)
        if method == "PATCH":
            return 200, self.put(path, merged(self.objects[path], body))
        return self.status(405, "no such method")

    # Questions that tests ask of it.
    def slices(self):
        with self.lock:
            return [o for p, o in self.objects.items() if "/resourceslices/" in p]

    def devices(self):
        return [d for s in self.slices() for d in s["spec"].get("devices", [])]

    def claim(self, name, results, namespace="default", node="n1", uid=None):
        """A claim that the scheduler allocated: [(request, device, memory, cores)], or [(request, MIG device)]."""
        results = [{"request": request, "driver": DRIVER, "pool": node, "device": device} |
                   ({"shareID": str(uuid.uuid4()), "consumedCapacity": dict(zip(("memory", "cores"), amounts))} if amounts else {})
                   for request, device, *amounts in results]
        object = {"kind": "ResourceClaim", "apiVersion": "resource.k8s.io/v1",
                  "metadata": {"name": name, "namespace": namespace, "uid": uid or str(uuid.uuid4())},
                  "spec": {}, "status": {"allocation": {"devices": {"results": results}}}}
        self.put(f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}", object)
        return {"namespace": namespace, "name": name, "uid": object["metadata"]["uid"]}

    def forget(self, claim):
        self.delete(f"/apis/resource.k8s.io/v1/namespaces/{claim['namespace']}/resourceclaims/{claim['name']}")

    def pod(self, name, template, namespace="default"):
        self.put(f"/api/v1/namespaces/{namespace}/pods/{name}",
                 {"metadata": {"name": name, "namespace": namespace, "labels": {"carve.dev/template": template}}, "spec": {}})

    def templates(self):
        """{namespace/name: devices of the claims}"""
        with self.lock:
            return {f"{o['metadata']['namespace']}/{o['metadata']['name']}": o["spec"]["spec"]["devices"]
                    for p, o in self.objects.items() if "/resourceclaimtemplates/" in p}

    def warnings(self, kind="Node", namespace="default"):
        """[(reason, message)] of the events, in their order."""
        with self.lock:
            return [(o["reason"], o["message"]) for p, o in self.objects.items() if p.startswith(f"/api/v1/namespaces/{namespace}/events/")
                    and o["type"] == "Warning" and o["involvedObject"]["kind"] == kind]

    def gpus(self, node, *sizes):
        """A node's slice with GPUs of so many MiB."""
        path = f"/apis/resource.k8s.io/v1/resourceslices/{node}"
        self.put(path, {"metadata": {"name": node}, "spec": {"driver": DRIVER, "nodeName": node, "devices": [
            {"name": f"gpu-{i}", "attributes": {"memoryMiB": {"int": mib}}} for i, mib in enumerate(sizes)]}})
        return path

    def cut_watches(self, forget=False):
        """Ends all watches; with forget, what they would go on from is too old."""
        with self.lock:
            self.watches += 1
            if forget:
                self.events, self.oldest = [], self.version
            self.changed.notify_all()


# ---- the kubelet ------------------------------------------------------------------------------

class Kubelet:
    """Speaks to the sockets below `directory`."""

    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.registry = self.directory / "plugins_registry" / f"{DRIVER}-reg.sock"
        self.channels = []

    def close(self):
        for channel in self.channels:
            channel.close()

    def call(self, socket, path, message, timeout=50):
        with grpc.insecure_channel(f"unix:{socket}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
            return parse(channel.unary_unary(path)(message, timeout=timeout, wait_for_ready=True))

    def stream(self, socket, path, message=b""):
        channel = grpc.insecure_channel(f"unix:{socket}")
        self.channels.append(channel)
        return channel.unary_stream(path)(message, timeout=60)

    def info(self):
        return self.call(self.registry, "/pluginregistration.Registration/GetInfo", b"")

    def register(self):
        wait_until(self.registry.exists)
        info = self.info()
        self.socket = text(info, 3)
        self.call(self.registry, "/pluginregistration.Registration/NotifyRegistrationStatus", field(1, 1))
        return info

    def claims(self, method, claims, version="v1"):
        message = b"".join(field(1, field(1, c["namespace"]) + field(2, c["uid"]) + field(3, c["name"])) for c in claims)
        answer = self.call(self.socket, f"/k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin/{method}", message)
        entries = [parse(entry) for entry in answer.get(1, [])]
        return {text(entry, 1): parse(entry.get(2, [b""])[0]) for entry in entries}

    def prepare(self, *claims, version="v1"):
        """{uid: ([devices], error)}"""
        return {uid: ([{"requests": [r.decode() for r in d.get(1, [])], "pool": text(d, 2), "device": text(d, 3),
                        "cdi": [i.decode() for i in d.get(4, [])], "share": text(d, 5)}
                       for d in map(parse, prepared.get(1, []))], text(prepared, 2))
                for uid, prepared in self.claims("NodePrepareResources", claims, version).items()}

    def unprepare(self, *claims, version="v1"):
        """{uid: error}"""
        return {uid: text(done, 1) for uid, done in self.claims("NodeUnprepareResources", claims, version).items()}


class PodResources(grpc.GenericRpcHandler):
    """The kubelet's own service: `pods` {(namespace, name): {resource: [device IDs]}} have what a device plugin gave them. `status`: it fails so."""

    def __init__(self, kubelet_dir):
        self.pods, self.status = {}, None
        directory = pathlib.Path(kubelet_dir) / "pod-resources"
        directory.mkdir(exist_ok=True)
        self.server = grpc.server(concurrent.futures.ThreadPoolExecutor(2), handlers=[self])
        self.server.add_insecure_port(f"unix:{directory}/kubelet.sock")
        self.server.start()

    def service(self, details):
        return grpc.unary_unary_rpc_method_handler(self.list) if details.method == "/v1.PodResourcesLister/List" else None

    def list(self, message, context):
        assert message == b""
        if self.status:
            context.abort(self.status, "it fails")
        return b"".join(field(1, field(1, name) + field(2, namespace) + field(3, field(1, "main") + b"".join(
            field(2, field(1, resource) + b"".join(field(2, id) for id in ids)) for resource, ids in devices.items())))
            for (namespace, name), devices in self.pods.items())

    def close(self):
        self.server.stop(None)


# ---- a node -----------------------------------------------------------------------------------

class Cluster:
    """A node named n1: a simulated host with its carved, the plugin, a kubelet, and an API server."""

    def __init__(self, host):
        self.host = host
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kube-"))
        self.kubelet_dir, self.cdi = self.dir / "kubelet", self.dir / "cdi"
        self.kubelet_dir.mkdir()
        self.api = ApiServer()
        self.api.put("/api/v1/nodes/n1", {"kind": "Node", "metadata": {"name": "n1"}})
        self.kubelet = Kubelet(self.kubelet_dir)
        self.plugin = None

    def start(self, *options, wrap=()):
        log = open(self.dir / "log", "a")
        self.plugin = self.host.popen([*wrap, BUILD / "carve-kubernetes", "node", "--node-name", "n1", "--kubelet-dir",
                                       self.kubelet_dir, "--cdi-dir", self.cdi, "--api", self.api.url, *options],
                                      stdout=log, stderr=log)
        log.close()

    def started(self, *options):
        self.start(*options)
        self.kubelet.register()
        wait_until(self.api.slices)
        return self

    def log(self):
        return (self.dir / "log").read_text()

    def kill(self):
        self.plugin.kill()
        self.plugin.wait()

    def sessions(self):
        return [s for s in self.host.carve_json("session", "list") if s["state"] == "active"]

    def specs(self):
        return [json.loads(p.read_text()) for p in sorted(self.cdi.glob("*.json"))]

    def device(self, id):
        """(edits of all devices of its spec, edits of its own) of a CDI device."""
        kind, _, name = id.partition("=")
        spec = next(s for s in self.specs() if s["kind"] == kind and any(d["name"] == name for d in s["devices"]))
        return spec.get("containerEdits", {}), next(d for d in spec["devices"] if d["name"] == name)["containerEdits"]

    def container(self, ids, argv, user=None, wrap=()):
        """Runs a program as a container runtime would, with what the CDI devices say. `wrap`: words before, of a program that enters a cgroup."""
        edits = [e for id in ids for e in self.device(id)]
        env = [e for edit in edits for e in edit.get("env", [])]
        mounts = [m for edit in edits for m in edit.get("mounts", [])]
        stage = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        script = ["set -e", f"cp -a /etc {stage}/etc", f"touch {stage}/etc/ld.so.preload"]
        # Mounts come from the host, whatever lies over it in the container.
        for n, mount in enumerate(mounts):
            directory = os.path.isdir(mount["hostPath"])
            script += [f"{'mkdir' if directory else 'touch'} {stage}/{n}", f"mount --bind {mount['hostPath']} {stage}/{n}"]
        script += ["mount -t tmpfs none /run", f"mount --bind {stage}/etc /etc"]
        # Every program that starts after it is preloaded.
        for n, mount in sorted(enumerate(mounts), key=lambda m: m[1]["containerPath"] == "/etc/ld.so.preload"):
            target = pathlib.Path(mount["containerPath"])
            if str(target).startswith("/run/"):
                script += [f"mkdir -p {target if os.path.isdir(mount['hostPath']) else target.parent}"]
                script += [] if os.path.isdir(mount["hostPath"]) else [f"touch {target}"]
            if str(target).startswith("/run/") or target.exists() or target == pathlib.Path("/etc/ld.so.preload"):
                script += [f"mount --bind {stage}/{n} {target}"]
        # Hooks are of the host: they look at a process that waits to become the container's program.
        script += ["echo made", "read go", "exec </dev/null", "exec " + (f"setpriv --reuid {user} --clear-groups " if user else "") +
                   "env -u CARVE_RUNTIME_DIR -u CARVE_HOST \"$@\""]
        made = subprocess.Popen([*wrap, "unshare", "-m", "--propagation", "private", "/bin/sh", "-c", "\n".join(script), "sh", *env,
                                 *map(str, argv)], env=self.host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
        word = made.stdout.readline()
        state = json.dumps({"ociVersion": "1.0.2", "id": "c", "status": "created", "pid": made.pid, "bundle": str(self.dir)})
        for hook in [h for edit in edits for h in edit.get("hooks", []) if word]:
            done = subprocess.run([hook["path"], *hook["args"][1:]], env={}, input=state, capture_output=True, text=True, timeout=60)
            if done.returncode:
                made.kill()
                made.communicate()
                return done
        out, err = made.communicate("go\n" if word else None, timeout=120)
        return subprocess.CompletedProcess(argv, made.returncode, out, err)

    def close(self):
        if self.plugin and self.plugin.poll() is None:
            self.plugin.terminate()
            try:
                code = self.plugin.wait(60)
            except subprocess.TimeoutExpired:
                self.kill()
                raise AssertionError("the plugin does not end: " + self.log())
            assert code == 0, self.log()
        self.kubelet.close()
        self.api.close()
        shutil.rmtree(self.dir, ignore_errors=True)
