"""The system calls of a process, by strace."""
import pathlib
import re
import subprocess

import pytest

from conftest import wait_until


class Trace:
    """Follows a process and all that it starts, or (`alone`) its first thread alone; `calls` are the names of system calls, with commas
    between."""

    def __init__(self, pid, log, calls, alone=False):
        self.log, self.calls = log, calls.split(",")
        self.process = subprocess.Popen(["strace", *([] if alone else ["-f"]), "-qq", "-e", f"trace={calls}", "-o", log, "-p", str(pid)],
                                        stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        wait_until(lambda: self.process.poll() is not None
                   or f"TracerPid:\t{self.process.pid}\n" in pathlib.Path(f"/proc/{pid}/status").read_text())
        if self.process.poll() is not None:
            pytest.skip("strace is not permitted here")

    def text(self):
        """All lines; ends it."""
        self.process.terminate()
        self.process.wait()
        return self.log.read_text()

    def counts(self):
        """How often each call was made so far; ends it."""
        text = self.text()
        return {call: len(re.findall(rf"^(?:\d+ +)?{call}\(", text, re.M)) for call in self.calls}
