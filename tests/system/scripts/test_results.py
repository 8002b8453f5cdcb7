"""scripts/test-results: what counts of a run in which failed tests ran once more."""
import json
import subprocess

import pytest

from conftest import ROOT, clean_env

INI = "[pytest]\naddopts = -p no:cacheprovider -n 1 --dist loadgroup\n"
# One test fails once, one always, one in its teardown, and one is skipped.
TESTS = """
import pathlib, pytest
@pytest.fixture
def broken():
    yield
    raise OSError
def test_good(): pass
@pytest.mark.xdist_group("one at a time")
def test_once():
    seen = pathlib.Path(__file__).with_name("seen")
    if not seen.exists():
        seen.touch()
        raise AssertionError
@pytest.mark.parametrize("what", ["a b", "c::d@e"])
def test_never(what): assert what == "a b"
def test_torn_down(broken): raise AssertionError
def test_skipped(): pytest.skip("no")
"""


def results(*argv):
    done = subprocess.run([ROOT / "scripts/test-results", *argv], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.split("\n")[:-1]


@pytest.fixture
def run_tests(tmp_path):
    (tmp_path / "pytest.ini").write_text(INI)
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub/test_some.py").write_text(TESTS)

    def run(name, *tests):
        path = tmp_path / f"{name}.xml"
        subprocess.run(["/usr/bin/python3", "-m", "pytest", "-q", "-c", "pytest.ini", "-o", "junit_family=xunit1",
                        f"--junit-xml={path}", *(tests or ("sub",))], cwd=tmp_path, env=clean_env(), capture_output=True,
                       timeout=60)
        return path
    return run


def test_the_second_run_of_a_failed_test_counts(run_tests, tmp_path):
    failed = results("failed", run_tests("system"))
    assert failed == [f"sub/test_some.py::test_{name}" for name in ("once", "never[c::d@e]", "torn_down")]
    assert results("count", tmp_path) == ["2 3 1"]
    again = run_tests("system-again", *failed)
    assert results("failed", again) == failed[1:]
    assert results("count", tmp_path) == ["3 2 1"]


def test_a_file_that_cannot_be_read_in_has_no_test_to_run_again(run_tests, tmp_path):
    (tmp_path / "sub/test_other.py").write_text("import nothing_of_that_name\n")
    assert results("failed", run_tests("system")) == []
    assert results("count", tmp_path)[0].split()[1] != "0"


def meson(folder, name, **cases):
    """A program's tests with their outcomes, as meson writes them."""
    rows = "".join(f'<testcase name="{test}" classname="unit / p">{"<failure/>" * (not good)}</testcase>'
                   for test, good in cases.items())
    (folder / f"{name}.xml").write_text(f'<testsuites><testsuite name="unit / p">{rows}</testsuite></testsuites>')


def test_a_program_that_crashed_has_the_tests_of_its_second_run(tmp_path):
    meson(tmp_path, "unit-build", one=True, two=False)
    assert results("count", tmp_path) == ["1 1 0"]
    meson(tmp_path, "unit-build-again", one=True, three=True, four=True)
    assert results("count", tmp_path) == ["3 0 0"]


def test_mesons_failed_programs_are_named_as_it_takes_them(tmp_path):
    rows = [("carve:unit / core", "OK"), ("carve:unit+tsan / gate", "FAIL"), ("carve:unit / slow", "TIMEOUT"),
            ("carve:unit / other", "SKIP"), ("carve:unit / broken", "ERROR")]
    (tmp_path / "testlog.json").write_text("".join(json.dumps({"name": n, "result": r}) + "\n" for n, r in rows))
    assert results("failed", tmp_path / "testlog.json") == ["gate", "slow", "broken"]


def test_a_result_that_cannot_be_read_is_a_failure(tmp_path):
    (tmp_path / "system.xml").write_text("<testsuites><test")
    assert results("count", tmp_path) == ["0 1 0"]
