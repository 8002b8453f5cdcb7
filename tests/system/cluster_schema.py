"""The fields of Kubernetes' objects that carve writes, by the OpenAPI schemas of 1.36: a real API server drops a field that it does
not know without a word, and refuses what has another type. A name that ends with "!" is required."""
import re

TEXT, FLAG = str, bool
QUANTITY = re.compile(r"[0-9]+(\.[0-9]+)?(m|[kMGTPE]|[KMGTPE]i)?")
MICRO_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z")
SECOND = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
ANY = object()


class MapOf(dict):
    """{any key: of one type}"""


def one_of(*values):
    return frozenset(values)


METADATA = {"name!": NAME, "namespace": LABEL, "uid": TEXT, "resourceVersion": TEXT, "labels": MapOf(of=TEXT),
            "annotations": MapOf(of=TEXT), "ownerReferences": [{"apiVersion!": TEXT, "kind!": TEXT, "name!": NAME, "uid!": TEXT}],
            "generation": int, "creationTimestamp": TEXT, "managedFields": ANY}
SELECTORS = [{"cel": {"expression!": TEXT}}]
REQUEST = {"deviceClassName!": NAME, "selectors": SELECTORS, "allocationMode": one_of("ExactCount", "All"), "count": int,
           "tolerations": ANY, "capacity": {"requests": MapOf(of=QUANTITY)}}
CAPACITY = {"value!": QUANTITY, "requestPolicy": {
    "default": QUANTITY, "validValues": [QUANTITY], "validRange": {"min!": QUANTITY, "max": QUANTITY, "step": QUANTITY}}}
COUNTERS = MapOf(of={"value!": QUANTITY})
DEVICE = {"name!": LABEL, "attributes": MapOf(of={"int": int, "bool": FLAG, "string": TEXT, "version": TEXT}),
          "capacity": MapOf(of=CAPACITY), "consumesCounters": [{"counterSet!": LABEL, "counters!": COUNTERS}], "allowMultipleAllocations": FLAG,
          "taints": [{"key!": TEXT, "value": TEXT, "effect!": one_of("None", "NoSchedule", "NoExecute"), "timeAdded": TEXT}]}


def of_kind(version, kind, **more):
    return {"apiVersion!": one_of(version), "kind!": one_of(kind), "metadata!": METADATA, **more}


SCHEMAS = {
    "resourceslices": of_kind("resource.k8s.io/v1", "ResourceSlice", **{"spec!": {
        "driver!": NAME, "pool!": {"name!": NAME, "generation!": int, "resourceSliceCount!": int}, "nodeName": NAME,
        "devices": [DEVICE], "sharedCounters": [{"name!": LABEL, "counters!": COUNTERS}]}}),
    "resourceclaimtemplates": of_kind("resource.k8s.io/v1", "ResourceClaimTemplate", **{"spec!": {
        "metadata": {"labels": MapOf(of=TEXT), "annotations": MapOf(of=TEXT)}, "spec!": {"devices": {
            "requests": [{"name!": TEXT, "exactly": REQUEST, "firstAvailable": [{"name!": LABEL, **REQUEST}]}],
            "constraints": [{"requests": [TEXT], "matchAttribute": TEXT, "distinctAttribute": TEXT}]}}}}),
    "deviceclasses": of_kind("resource.k8s.io/v1", "DeviceClass", **{"spec!": {"selectors": SELECTORS, "extendedResourceName": TEXT}}),
    "leases": of_kind("coordination.k8s.io/v1", "Lease", spec={
        "holderIdentity": TEXT, "leaseDurationSeconds": int, "acquireTime": MICRO_TIME, "renewTime": MICRO_TIME,
        "leaseTransitions": int}),
    "events": of_kind("v1", "Event", **{
        "involvedObject!": {"apiVersion": TEXT, "kind": TEXT, "name": TEXT, "uid": TEXT, "namespace": TEXT}, "type": one_of("Normal", "Warning"),
        "reason": TEXT, "message": TEXT, "source": {"component": TEXT, "host": TEXT}, "firstTimestamp": SECOND, "lastTimestamp": SECOND,
        "count": int}),
    "pods": of_kind("v1", "Pod", **{"spec!": {
        "nodeName": TEXT, "priorityClassName": TEXT, "terminationGracePeriodSeconds": int, "automountServiceAccountToken": bool,
        "tolerations": [{"operator": one_of("Exists", "Equal")}],
        "restartPolicy": one_of("Never", "Always", "OnFailure"), "nodeSelector": MapOf(of=TEXT),
        "containers!": [{"name!": LABEL, "image": TEXT, "command": [TEXT], "args": [TEXT], "env": [{"name!": TEXT, "value": TEXT}],
                         "resources": {"limits": MapOf(of=ANY), "requests": MapOf(of=ANY)},
                         "securityContext": {"runAsNonRoot": FLAG, "runAsUser": int, "allowPrivilegeEscalation": FLAG,
                                             "readOnlyRootFilesystem": FLAG, "capabilities": {"add": [TEXT], "drop": [TEXT]},
                                             "seccompProfile": {"type!": one_of("RuntimeDefault", "Unconfined", "Localhost")}}}]}}),
}


def wrong(schema, value, path=""):
    """None, or the first thing that an API server would refuse or drop."""
    if schema is ANY:
        return None
    if isinstance(schema, MapOf):
        return None if isinstance(value, dict) and not any(wrong(schema["of"], v) for v in value.values()) else \
            next(filter(None, (wrong(schema["of"], v, f"{path}[{k}]") for k, v in value.items())), path)
    if isinstance(schema, list):
        if not isinstance(value, list):
            return f"{path} is no list"
        return next(filter(None, (wrong(schema[0], v, f"{path}[{i}]") for i, v in enumerate(value))), None)
    if isinstance(schema, dict):
        if not isinstance(value, dict):
            return f"{path} is no object"
        known = {k.rstrip("!"): v for k, v in schema.items()}
        for key in schema:
            if key.endswith("!") and key[:-1] not in value:
                return f"{path}.{key[:-1]} is missing"
        return next(filter(None, (wrong(known[k], v, f"{path}.{k}") if k in known else f"{path}.{k} is unknown"
                                  for k, v in value.items())), None)
    if isinstance(schema, frozenset):
        return None if value in schema else f"{path} is {value!r}"
    if isinstance(schema, re.Pattern):
        return None if isinstance(value, str) and schema.fullmatch(value) else f"{path} is {value!r}"
    return None if type(value) is schema else f"{path} is {value!r}"


def too_much(spec):
    """The bound of the API that a ResourceSlice breaks; None: it keeps them (resource/v1/types.go of 1.36)."""
    devices, sets = spec.get("devices"), spec.get("sharedCounters")
    if (devices is None) == (sets is None):
        return "spec has devices or sharedCounters, one of them"
    advanced = any("taints" in d or "consumesCounters" in d for d in devices or [])
    bounds = [(len(devices or []), 64 if advanced else 128, "devices"), (len(sets or []), 8, "sharedCounters")]
    bounds += [(len(s["counters"]), 32, f"counters of {s['name']}") for s in sets or []]
    for d in devices or []:
        bounds += [(len(d.get("attributes", {})) + len(d.get("capacity", {})), 32, f"attributes of {d['name']}"),
                   (len(d.get("consumesCounters", [])), 2, f"counter sets of {d['name']}")]
        bounds += [(len(c["counters"]), 32, f"counters of {d['name']}") for c in d.get("consumesCounters", [])]
        bounds += [(len(a["string"]), 64, f"a text of {d['name']}") for a in d.get("attributes", {}).values() if "string" in a]
    names = [x["name"] for x in (devices or []) + (sets or [])]
    bounds += [(names.count(n), 1, f"devices or sets named {n}") for n in names]
    return next((f"spec has {n} {what}, at most {most}" for n, most, what in bounds if n > most), None)


def refused(path, body):
    """The fault of an object that is written to a path of the API; None: it has none."""
    kind = re.search(r"/(\w+)(/[^/]+)?$", path.partition("?")[0])
    resource = next((r for r in SCHEMAS if f"/{r}" in path), kind[1])
    if resource not in SCHEMAS:
        return f"nothing is known of {resource}"
    return wrong(SCHEMAS[resource], body) or (too_much(body["spec"]) if resource == "resourceslices" else None)
