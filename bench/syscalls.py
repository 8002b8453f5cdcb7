"""System calls within each series of build/bench/calls, as strace sees them."""
import re
import shutil

MARK = re.compile(r'write\(-1, "(begin|end) (\w+) live=(\d+) calls=(\d+)"')


def prefix(log, env):
    """What runs a command under strace, but the command with its own environment; empty: there is no strace."""
    strace = shutil.which("strace")
    if not strace:
        return ()
    # The tracer itself must not be preloaded: only the command gets the environment.
    given = [f"{k}={env[k]}" for k in ("LD_PRELOAD", "LD_LIBRARY_PATH") if k in env]
    return (strace, "-f", "-qq", "-s", "200", "-e", "signal=none", "-o", log, "env", *given)


def tracer_env(env):
    return {k: v for k, v in env.items() if k not in ("LD_PRELOAD", "LD_LIBRARY_PATH")}


def rates(lines):
    """{(loop, live): system calls per call, of the thread that makes them} of a log's lines."""
    found, begun, count = {}, None, 0
    for line in lines:
        thread = line.partition(" ")[0]
        mark = MARK.search(line)
        if not mark:
            # A call that another thread's line cut in two has a second line: "<... NAME resumed>".
            count += begun is not None and thread == begun[0] and "resumed>" not in line
        elif mark[1] == "begin":
            begun, count = (thread, mark[2]), 0
        elif begun == (thread, mark[2]):
            found[mark[2], int(mark[3])] = count / int(mark[4])
            begun = None
    return found
