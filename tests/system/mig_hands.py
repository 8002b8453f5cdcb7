"""Hosts with the MIG role, and what an administrator does there: by carve, and by hand."""
import json
import os
import signal

from conftest import BUILD
from daemon_client import UnixConnection
from programs import python

CARVE = BUILD / "carve"


def carve(host, *words, status=0):
    done = host.run([CARVE, *words], timeout=300)
    assert done.returncode == status, (words, done.stdout, done.stderr)
    return done


def look(host, *words):
    return json.loads(carve(host, *words, "--json").stdout)


def instances(host, *states):
    return [i for i in look(host, "mig", "list") if not states or i["state"] in states]


def with_role(make_host, spec="h100-80gb+mig", **kw):
    host = make_host(spec, **kw)
    carve(host, "node", "set-role", "--dynamic-mig-enabled")
    return host


def kill_daemon(host):
    os.kill(host.daemon_pid(), signal.SIGKILL)


def by_hand(host, *words):
    """mig_hand.py: what NVML lists on a GPU after that."""
    done = host.run(python("mig_hand", *words))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def call(host, method, url, body=None):
    connection = UnixConnection(f"{host.env['CARVE_RUNTIME_DIR']}/carved.sock", timeout=None)
    connection.request(method, url, json.dumps(body) if body else None, {"Content-Type": "application/json"})
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if text else None


def books_are_nvmls(host, foreign):
    """None but what was made by hand is foreign, and all the rest is whole and listed."""
    listed = instances(host)
    if [i for i in listed if i["state"] in ("creating", "removing", "debt")]:
        return False
    real = sorted((i["start"], i["size"], i["profile"]) for i in by_hand(host, 0, "list"))
    told = sorted((i["start"], i["size"]) for i in listed)
    return told == [r[:2] for r in real] and {(i["start"], i["size"]) for i in listed if i["state"] == "foreign"} == foreign
