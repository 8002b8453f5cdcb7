"""The command line tool as its users have it."""

from conftest import BUILD

CARVE = BUILD / "carve"
GIB = 1 << 30


def fails(done, code, *words):
    assert done.returncode == code, (done.returncode, done.stderr)
    lines = done.stderr.splitlines()
    assert lines[0].startswith("carve: ") and len(lines) == 1
    for word in words:
        assert word in done.stderr
    assert done.stdout == ""


def active(host):
    return [s for s in host.carve_json("session", "list") if s["state"] == "active"]


NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
