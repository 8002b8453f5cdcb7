"""Daemons with a configuration of their own, on a simulated host."""
import contextlib
import json
import os
import pathlib
import shutil
import signal
import tempfile

import pytest

from conftest import BUILD, listens, wait_until


class Daemon:
    """A daemon on a simulated host, with a configuration."""

    def __init__(self, host, config):
        self.host, self.closed = host, False
        self.dir = tempfile.mkdtemp(prefix="carve-test-")
        self.config = pathlib.Path(self.dir, "config.json")
        self.config.write_text(json.dumps(config))
        host.env["CARVE_RUNTIME_DIR"] = self.dir + "/run"
        self.start()

    def start(self):
        self.process = self.host.popen([BUILD / "carved", "--runtime-dir", self.dir + "/run", "--config", self.config,
                                        "--foreground"])
        wait_until(lambda: listens(self.dir + "/run/carved.sock"))

    def kill(self):
        self.process.kill()
        self.process.communicate(timeout=60)

    def renew(self, how):
        """Another daemon from here on."""
        if how == "killed":
            self.kill()
            self.start()
        elif how == "taken over":
            done = self.host.run([BUILD / "carved", "--takeover"])
            assert done.returncode == 0, done.stderr

    def close(self):
        self.closed = True
        self.process.terminate()
        self.log = self.process.communicate(timeout=60)[1]
        # A program in a slice starts a daemon by itself where one was killed, and may have been faster than this test.
        for path in pathlib.Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if (self.dir + "/run").encode() in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGTERM)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def policed(make_host):
    host = make_host("h100-80gb")
    daemons = []

    def make(**config):
        daemons.append(Daemon(host, config))
        return daemons[-1]

    make.host = host
    yield make
    for d in daemons:
        if not d.closed:
            d.close()
