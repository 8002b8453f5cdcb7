"""A running daemon is followed by the program that is installed by then."""
import subprocess

from conftest import BUILD


def takeover(daemon, program=BUILD / "carved", **kw):
    return subprocess.run([program, "--runtime-dir", daemon.runtime, "--takeover"], env=daemon.env(),
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, **kw)


def upgrade(daemon):
    before = daemon.call("GET", "/v1/version").json
    done = takeover(daemon)
    assert done.returncode == 0, done.stderr + daemon.log()
    after = daemon.call("GET", "/v1/version").json
    assert done.stdout == f"carved {after['version']} runs now, as process {after['pid']}\n"
    assert after["pid"] != before["pid"] and after["started"] > before["started"]
    assert daemon.process.poll() is None
    daemon.worker = after["pid"]
