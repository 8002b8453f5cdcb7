"""scripts/bench as a program, and its refusals without one."""
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, clean_env

sys.path.insert(0, str(ROOT))
from bench import main  # noqa: E402: found by the line above


def bench(*args, timeout=600):
    return subprocess.run([ROOT / "scripts" / "bench", "--build", BUILD, *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, env=clean_env())


def refused(capsys, *args, by=main, build=BUILD):
    """The lines that a command line is refused with, before anything is started: a program takes 0.4 s to import what
    measures."""
    with pytest.raises(SystemExit) as end:
        by.parse(["--build", str(build), *map(str, args)])
    said = capsys.readouterr()
    assert end.value.code == 2 and said.out == ""
    return said.err.splitlines()
