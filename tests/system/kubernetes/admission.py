"""What an API server makes of an object by admission policies: mutated, refused, or warned of."""
import copy
import re

import yaml

from cel import CelError, Quantity, Variables, compile

NAMES = ("object", "oldObject", "request")
LONGEST = 5 * 1024  # of a message, in bytes
LABEL_VALUE = re.compile("(|[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?)")


class Policy:
    def __init__(self, object, bindings):
        self.name, self.kind, self.spec = object["metadata"]["name"], object["kind"], object["spec"]
        self.rules = self.spec["matchConstraints"]["resourceRules"]
        self.actions = {action for b in bindings for action in b["spec"].get("validationActions", ["Deny"])}
        self.variables = {}
        for variable in self.spec.get("variables", []):
            self.variables[variable["name"]] = self.compile(variable["expression"])
        self.conditions = [compile(c["expression"], NAMES) for c in self.spec.get("matchConditions", [])]
        self.validations = [(self.compile(v["expression"]), v.get("messageExpression") and self.compile(v["messageExpression"]), v)
                            for v in self.spec.get("validations", [])]
        self.patches = [self.compile(m["jsonPatch"]["expression"]) for m in self.spec.get("mutations", [])]

    def compile(self, text):
        return compile(text, (*NAMES, "variables"), self.variables)

    def env(self, object, request):
        """What its expressions see; None where it does not look at such an object."""
        if not any(request["operation"] in r["operations"] and request["resource"] in r["resources"] for r in self.rules):
            return None
        env = {"object": object, "oldObject": request.get("oldObject"), "request": request}
        if not all(condition(env) for condition in self.conditions):
            return None
        return Variables(self.variables, env).env

    def mutate(self, object, request):
        for patch in self.patches:
            env = self.env(object, request)
            object = patched(object, patch(env)) if env else object
        return object

    def refusals(self, object, request):
        env = self.env(object, request)
        return [message(said, env, v) for holds, said, v in self.validations if not holds(env)] if env else []


def message(said, env, validation):
    """A text that is empty, long or has several lines is not used."""
    try:
        text = said(env).strip() if said else ""
    except CelError:
        text = ""
    usable = text and "\n" not in text and len(text.encode()) <= LONGEST
    return text if usable else validation.get("message", "failed expression: " + validation["expression"].strip())


def patched(object, patches):
    """JSON Patch (RFC 6902). The member that a patch names must be there."""
    object = copy.deepcopy(object)
    for patch in patches:
        if patch["op"] == "move":
            held, key = place(object, patch["from"])
            value = held.pop(key)
        elif patch["op"] == "remove":
            held, key = place(object, patch["path"])
            held.pop(key)
            continue
        else:
            assert patch["op"] in ("add", "replace")
            value = copy.deepcopy(patch["value"])
        held, key = place(object, patch["path"])
        if isinstance(held, list):
            held.insert(len(held) if key == "-" else int(key), value)
        else:
            assert patch["op"] != "replace" or key in held
            held[key] = value
    return object


def place(object, path):
    *way, key = [part.replace("~1", "/").replace("~0", "~") for part in path.split("/")[1:]]
    for part in way:
        object = object[int(part) if isinstance(object, list) else part]
    return object, key


def decoded(pod):
    """As the API server has it once it was read: quantities in their own form."""
    pod = copy.deepcopy(pod)
    for container in pod["spec"].get("initContainers", []) + pod["spec"]["containers"]:
        resources = container.setdefault("resources", {})
        for sizes in ("limits", "requests"):
            if sizes in resources:
                resources[sizes] = {name: str(Quantity(str(value))) for name, value in resources[sizes].items()}
    return pod


class Admission:
    def __init__(self, *files):
        objects = [o for file in files for o in yaml.safe_load_all(file.read_text())]
        self.policies = sorted((Policy(o, [b for b in objects if b["kind"] == o["kind"] + "Binding" and
                                           b["spec"]["policyName"] == o["metadata"]["name"]])
                                for o in objects if o["kind"].endswith("AdmissionPolicy")), key=lambda p: p.name)

    def admit(self, object, operation="CREATE", resource="pods", user="someone", extra=None, old=None, namespace="default"):
        """(object as mutated, None where it is refused; [refusals]; [warnings])"""
        assert all(LABEL_VALUE.fullmatch(value) for value in ((object or {}).get("metadata", {}).get("labels") or {}).values())
        request = {"operation": operation, "resource": resource, "oldObject": old, "namespace": namespace, "userInfo": {"username": user, "extra": extra or {}}}
        if resource == "pods":
            object = decoded(object)
        for policy in self.policies * 2:  # reinvocationPolicy: IfNeeded
            object = policy.mutate(object, request)
        refused = [(p, r) for p in self.policies for r in p.refusals(object, request)]
        denied, warned = ([r for p, r in refused if action in p.actions] for action in ("Deny", "Warn"))
        return None if denied else object, denied, warned
