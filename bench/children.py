"""What this process started, and what that started in turn: nothing of it may outlive the bench, however that ends."""
import contextlib
import ctypes
import os
import pathlib
import signal
import time

PR_SET_CHILD_SUBREAPER = 36
PATIENCE_S = 5
# These go by themselves when the command has gone that they were started for, or when they are told to, and take their
# files with them.
HOSTS = {"carve", "carved", "simhost"}


def adopt():
    """From now on the orphans among the descendants are this process's children."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap():
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def descendants(under):
    """{pid: the program's name} of those of a process that live."""
    found, left = {}, [under]
    while left:
        proc = pathlib.Path(f"/proc/{left.pop()}")
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            for task in proc.glob("task/*/children"):
                left += map(int, task.read_text().split())
            state, name = (proc / "stat").read_text().rpartition(")")[2].split()[0], (proc / "comm").read_text().strip()
            if int(proc.name) != under and state != "Z":
                found[int(proc.name)] = name
    return found


def end_all(under=None, patience_s=PATIENCE_S):
    """Ends them: programs at once, what has files of its own in good order or, after some seconds, at once, too. `under`:
    of that process alone, which goes itself then."""
    end = time.monotonic() + patience_s
    own = under in (None, os.getpid())
    while (left := descendants(under or os.getpid())):
        late = time.monotonic() > end
        for pid, name in left.items():
            if late or name not in HOSTS or name == "carved":
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM if name == "carved" and not late else signal.SIGKILL)
        if own:
            reap()
        time.sleep(0.02)
