"""docs/openapi.json against the running daemon: every path and method, every key of every answer."""
import json
import pathlib
import subprocess

import pytest

from conftest import ROOT, wait_until
from daemon_client import *
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures

API = json.loads((ROOT / "docs" / "openapi.json").read_text())
METHODS = ("get", "put", "post", "patch", "delete")
TYPES = {"string": str, "integer": int, "boolean": bool, "number": (int, float), "array": list,
         "object": dict}


def mismatches(value, schema, where="answer"):
    """The parts of a value that its schema does not allow; OpenAPI's few words that the file uses."""
    if "$ref" in schema:
        schema = API["components"]["schemas"][schema["$ref"].rsplit("/", 1)[1]]
    if "oneOf" in schema:
        found = [mismatches(value, s, where) for s in schema["oneOf"]]
        return [] if [] in found else min(found, key=len)
    if value is None and schema.get("nullable"):
        return []
    if not isinstance(value, TYPES[schema["type"]]) or \
            (isinstance(value, bool) and schema["type"] != "boolean"):
        return [f"{where}: {value!r} is no {schema['type']}"]
    if value not in schema.get("enum", [value]):
        return [f"{where}: {value!r} is none of {schema['enum']}"]
    if schema["type"] == "array":
        return [m for i, v in enumerate(value) for m in mismatches(v, schema["items"], f"{where}[{i}]")]
    if schema["type"] != "object":
        return []
    wrong = [f"{where}: {k} is missing" for k in schema["required"] if k not in value]
    for key, v in value.items():
        wrong += mismatches(v, schema["properties"][key], f"{where}.{key}") \
            if key in schema["properties"] else [f"{where}: {key} is not in the file"]
    return wrong


def check(answer, path, method):
    responses = API["paths"][path][method]["responses"]
    assert str(answer.status) in responses, (path, method, answer.status, answer.json)
    content = responses[str(answer.status)]["content"]
    if content.keys() & {"text/plain", "text/event-stream"}:
        return answer.text
    schema = content["application/json"]["schema"]
    assert mismatches(answer.json, schema) == []
    return answer.json


def test_paths_and_methods_are_those_of_the_file(daemon):
    for path, methods in API["paths"].items():
        url = path.replace("{id}", "s-nobody").replace("{name}", "no-such-name")
        for method in METHODS:
            answer = daemon.call(method.upper(), url, {} if method != "get" else None)
            if method in methods:
                check(answer, path, method)
            else:
                assert answer.status == 405, (method, path)


def test_answers_are_those_of_the_file(daemon):
    check(daemon.call("GET", "/v1/version"), "/v1/version", "get")
    check(daemon.call("GET", "/v1/gpus"), "/v1/gpus", "get")
    one = check(daemon.request(vram="60", name="x"), "/v1/sessions", "post")
    asker = Asker(daemon, vram="60", wait_for=600)
    wait_until(lambda: waiting(daemon))
    check(daemon.request(vram="60"), "/v1/sessions", "post")
    check(daemon.request(vram="x"), "/v1/sessions", "post")
    listed = check(daemon.call("GET", "/v1/sessions"), "/v1/sessions", "get")
    assert [s["state"] for s in listed] == ["active", "waiting"]
    for s in listed:
        check(daemon.call("GET", f"/v1/sessions/{s['id']}"), "/v1/sessions/{id}", "get")
    check(daemon.call("PATCH", f"/v1/sessions/{one['id']}", {"vram": "61"}), "/v1/sessions/{id}", "patch")
    check(daemon.call("POST", "/v1/explain", {"vram": "1"}), "/v1/explain", "post")
    check(daemon.call("POST", "/v1/explain", {"vram": "99"}), "/v1/explain", "post")
    check(daemon.release(one["id"]), "/v1/sessions/{id}", "delete")
    asker.join(60)
    check(daemon.call("GET", "/v1/sessions?all=1"), "/v1/sessions", "get")
    check(daemon.call("GET", f"/v1/sessions/{one['id']}"), "/v1/sessions/{id}", "get")
    check(daemon.call("PUT", "/v1/quotas/user/12345", {"vram": "1"}), "/v1/quotas/user/{name}", "put")
    check(daemon.call("GET", "/v1/quotas"), "/v1/quotas", "get")
    check(daemon.call("DELETE", "/v1/quotas/user/12345"), "/v1/quotas/user/{name}", "delete")


def test_answers_of_queues_are_those_of_the_file(daemon):
    check(daemon.call("POST", "/v1/agents", {"gpus": "all", "queues": ["half=0.5,max=1,docker=busybox", "any"], "detached": True}), "/v1/agents", "post")
    check(daemon.call("GET", "/v1/agents"), "/v1/agents", "get")
    check(daemon.call("PATCH", "/v1/agents/a-1", {"drain": True, "queue": "half"}), "/v1/agents/{id}", "patch")
    job = {"argv": ["true"], "cwd": "/", "queue": "half"}
    one = check(daemon.call("POST", "/v1/jobs", {**job, "array": "0-1"}), "/v1/jobs", "post")["id"]
    check(daemon.call("POST", "/v1/jobs", {**job, "queue": "any", "vram": "1"}), "/v1/jobs", "post")
    check(daemon.call("PATCH", f"/v1/jobs/{one}", {"hold": True}), "/v1/jobs/{id}", "patch")
    check(daemon.call("POST", f"/v1/jobs/{one}", {"queue": "half"}), "/v1/jobs/{id}", "post")
    check(daemon.call("GET", f"/v1/jobs/{one}"), "/v1/jobs/{id}", "get")
    check(daemon.call("DELETE", f"/v1/jobs/{one}"), "/v1/jobs/{id}", "delete")
    listed = check(daemon.call("GET", "/v1/jobs"), "/v1/jobs", "get")
    assert {"cancelled", "queued"} <= {j["state"] for j in listed}
    for path in ("/v1/jobs?part=", "/v1/jobs?ended=1&before="):
        assert len(check(daemon.call("GET", path), "/v1/jobs", "get")["jobs"]) >= 1
    assert check(daemon.call("GET", f"/v1/jobs/log/{one}_0"), "/v1/jobs/log/{id}", "get")["text"] == ""
    assert check(daemon.call("GET", f"/v1/jobs/{one}?part="), "/v1/jobs/{id}", "get")["next"] is None
    check(daemon.call("GET", "/v1/jobs/events?from=0"), "/v1/jobs/events", "get")
    check(daemon.call("GET", "/v1/queues"), "/v1/queues", "get")
    check(daemon.call("DELETE", "/v1/agents/a-1"), "/v1/agents/{id}", "delete")
    for name in API["components"]["schemas"]["JobRequest"]["properties"]:
        answer = daemon.call("POST", "/v1/jobs", {**job, name: {}})
        assert answer.status in (400, 201) and (answer.status == 201 or "unknown field" not in answer.error["message"]), name


def test_request_fields_are_those_of_the_file(daemon):
    """Each is known to the daemon; one that is not is refused by name."""
    for name in API["components"]["schemas"]["Request"]["properties"]:
        answer = daemon.call("POST", "/v1/sessions", {name: {}})
        assert answer.status == 400 and "unknown field" not in answer.error["message"], name
    assert "unknown field" in daemon.call("POST", "/v1/sessions", {"vram": "1", "x": 1}).error["message"]


def test_fields_of_requests_are_those_of_the_tables():
    done = subprocess.run([ROOT / "scripts" / "openapi", "--check"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_check_itself_can_fail():
    error = API["components"]["schemas"]["Error"]
    good = {"error": {"code": 1, "message": "", "hint": ""}}
    assert mismatches(good, error) == []
    for bad in ({}, {"error": {"code": "1", "message": "", "hint": ""}}, {**good, "more": 1},
                {"error": {"code": True, "message": "", "hint": ""}}):
        assert mismatches(bad, error)


def test_reports_have_the_fields_of_the_file(daemon):
    daemon.grant(vram="20", name="train")
    for by in ("user", "group", "gpu", "name"):
        assert check(daemon.call("GET", f"/v1/report?by={by}"), "/v1/report", "get")["rows"]
    check(daemon.call("GET", "/v1/report?by=colour"), "/v1/report", "get")
