"""Attacks on the system daemon, as a hostile user of the machine would make them (docs/dev/security.md). lab.py has the users.

At the end of a run a report says which attacks were tried and how many were held."""
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "system"))

# The system tests' fixtures: a simulated host, programs, the build.
from conftest import build, examples, host, make_host, programs  # noqa: E402,F401
from conftest import ON_GPU, another_user_can_read  # noqa: E402

from .lab import Lab  # noqa: E402


def pytest_configure(config):
    config.addinivalue_line("markers", "attack(point, what): an attack, and the point of docs/dev/security.md that forbids it")


def users_can_be_played():
    return os.geteuid() == 0 and another_user_can_read() and subprocess.run(
        ["setpriv", "--reuid=60101", "--regid=60101", "--clear-groups", "true"], capture_output=True).returncode == 0


@pytest.fixture
def make_lab(make_host):
    """make_lab(gpus="h100-80gb", args=(), before=(), daemon_env=None) -> Lab; closed after the test."""
    if ON_GPU:
        pytest.skip("needs a simulated host")
    if not users_can_be_played():
        pytest.skip("needs root, user IDs of its own, and a build that other users can read")
    labs = []

    def make(gpus="h100-80gb", args=(), before=(), daemon_env=None):
        labs.append(Lab(make_host(gpus), args, before, daemon_env))
        return labs[-1]

    yield make
    for made in labs:
        made.close()


@pytest.fixture
def lab(make_lab):
    """A lab with one simulated H100 80GB."""
    return make_lab()


# ---- the report ------------------------------------------------------------------------------

def pytest_runtest_makereport(item, call):
    marker = item.get_closest_marker("attack")
    if marker and call.when == "call":
        point, what = marker.args
        item.user_properties.append(("attack", f"{point}: {what}"))


def pytest_terminal_summary(terminalreporter):
    held, broken = [], []
    for outcome, rows in (("passed", held), ("failed", broken)):
        for report in terminalreporter.getreports(outcome):
            rows += [value for name, value in report.user_properties if name == "attack" and report.when == "call"]
    if not held and not broken:
        return
    terminalreporter.section("attacks")
    for what in sorted(broken):
        terminalreporter.write_line(f"NOT HELD  {what}")
    terminalreporter.write_line(f"attacks tried: {len(held) + len(broken)}, held: {len(held)}")
