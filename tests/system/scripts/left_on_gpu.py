"""A test that fails leaves programs on a GPU, and its daemon stopped: nothing of that is there for the next one. Run by
test_real_gpu.py on a GPU that is simulated, though the tests take it for a real one."""
import os
import pathlib
import signal
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import conftest  # noqa: E402: found by the line above
from real_gpu import processes_of  # noqa: E402

conftest.FOREIGN = [name for name in conftest.FOREIGN if name != "SIMGPU_HOST"]
HOG = conftest.BUILD / "examples/hog"


def used(host):
    return host.stat()["gpus"][0]["memory_used_bytes"]


first = conftest.RealHost()
assert used(first) == 0
# In a slice each: two in one would race for its memory, and the loser ends.
for command in [HOG, "600"], ["sh", "-c", f"setsid {HOG} 600 & wait"]:
    first.popen([conftest.BUILD / "carve", "run", "--vram", "2", *command])
conftest.wait_until(lambda: used(first) > 3 << 30)
daemon = first.daemon_pid()
assert daemon in processes_of(first.dir)
assert len(processes_of(first.dir)) == 7, "two carve, sh, two hogs, the daemon and its supervisor"
os.kill(daemon, signal.SIGSTOP)
first.close()
assert processes_of(first.dir) == []
assert not os.path.exists(first.dir)

second = conftest.RealHost()
assert used(second) == 0
done = second.carve("run", "--vram", "2", HOG)
assert done.returncode == 0, done.stderr
second.close()
