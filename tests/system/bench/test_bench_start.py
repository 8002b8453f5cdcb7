"""bench/start.py: a smoke test. Its figures are not judged here."""
import re
import subprocess
import sys

import pytest

from conftest import BUILD, ON_GPU, ROOT

pytestmark = [pytest.mark.skipif(ON_GPU, reason="starts a simulated host"),
              pytest.mark.once("a benchmark; the commands that it runs are tested elsewhere")]


def test_each_command_has_a_row_with_its_times():
    done = subprocess.run([sys.executable, "-m", "bench.start", "--build", BUILD, "--rounds", "2"], cwd=ROOT, capture_output=True,
                          text=True, timeout=90)
    assert done.returncode == 0, done.stderr
    rows = dict(re.findall(r"^\| (/bin/true|carve .+?) \| ([\d.]+) ms \| [\d.]+ ms \|$", done.stdout, re.M))
    assert list(rows) == ["/bin/true", "carve --version", "carve gpu list"], done.stdout
    assert all(float(ms) > 0 for ms in rows.values())


def test_a_command_that_fails_gives_no_figures(tmp_path):
    (tmp_path / "carve").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "carve").chmod(0o755)
    done = subprocess.run([sys.executable, "-m", "bench.start", "--build", tmp_path, "--inside"], cwd=ROOT, capture_output=True,
                          text=True, timeout=90)
    assert done.returncode != 0 and "gpu list failed" in done.stderr and "|" not in done.stdout
