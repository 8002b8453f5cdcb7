"""Files for dcgm-exporter: which sessions are on which GPU."""
import json
import os
import pathlib
import shutil
import tempfile

import pytest

from conftest import needs_admin, wait_until
from daemon_client import GIB
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from test_metrics import scrape

GPUS = ((80 * GIB, 0, 0, "Fake H100"),) * 3


@pytest.fixture
def place():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="carve-test-"))
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


def started(make_daemon, place, *args, **metrics):
    config = place / "carved.json"
    config.write_text(json.dumps({"metrics": metrics}))
    return make_daemon(gpus=GPUS, args=["--config", config, *args]), config


def files(directory):
    # A file has a name with a dot in front while it is being written, and may go meanwhile.
    return {path.name: path.read_text().split() for path in directory.iterdir() if not path.name.startswith(".")}


def test_each_gpu_with_sessions_has_a_file_of_their_ids(make_daemon, place):
    jobs = place / "jobs"
    jobs.mkdir(mode=0o755)
    (jobs / "README").write_text("of others")
    (jobs / "2").write_text("left by another life\n")
    daemon, _ = started(make_daemon, place, job_mapping_dir=str(jobs))
    wait_until(lambda: set(files(jobs)) == {"README"})
    one = daemon.grant(vram="1", gpu_ids="0")["id"]
    both = daemon.grant(vram="1", gpu_ids="0,1", gpus=2)["id"]
    wait_until(lambda: "1" in files(jobs))
    found = files(jobs)
    assert set(found) == {"README", "0", "1"} and set(found["0"]) == {one, both} and found["1"] == [both]
    assert (jobs / "0").stat().st_mode & 0o777 == 0o644
    assert scrape(daemon).value("carve_job_mapping_failed") == 0
    daemon.restart()
    daemon.release(both)
    wait_until(lambda: set(files(jobs)) == {"README", "0"})
    assert files(jobs)["0"] == [one]
    daemon.release(one)
    wait_until(lambda: set(files(jobs)) == {"README"})


def test_another_directory_is_taken_on_a_reload_and_the_old_one_is_left_empty(make_daemon, place):
    first, second = place / "first", place / "second"
    first.mkdir(mode=0o755)
    second.mkdir(mode=0o755)
    daemon, config = started(make_daemon, place, job_mapping_dir=str(first))
    id = daemon.grant(vram="1", gpu_ids="1")["id"]
    wait_until(lambda: files(first) == {"1": [id]})
    config.write_text(json.dumps({"metrics": {"job_mapping_dir": str(second)}}))
    daemon.reload()
    wait_until(lambda: files(first) == {} and files(second) == {"1": [id]})
    config.write_text("{}")
    daemon.reload()
    wait_until(lambda: files(second) == {})


def test_a_directory_that_others_may_write_in_is_refused(make_daemon, place):
    """Another user could put a link in place of a file."""
    jobs = place / "jobs"
    jobs.mkdir()
    jobs.chmod(0o777)
    target = place / "target"
    target.write_text("precious")
    (jobs / "0").symlink_to(target)
    daemon, _ = started(make_daemon, place, job_mapping_dir=str(jobs))
    daemon.grant(vram="1", gpu_ids="0")
    wait_until(lambda: "metrics.job_mapping_failed" in daemon.log())
    assert "others than root and this user may write there" in daemon.log()
    assert (jobs / "0").is_symlink() and target.read_text() == "precious"
    assert scrape(daemon).value("carve_job_mapping_failed") == 1


def test_a_directory_that_is_not_there_is_told_once_and_tried_again(make_daemon, place):
    daemon, _ = started(make_daemon, place, job_mapping_dir=str(place / "nowhere"))
    wait_until(lambda: "metrics.job_mapping_failed" in daemon.log())
    assert "No such file or directory" in daemon.log()
    for i in range(3):
        daemon.grant(vram="1", gpu_ids="0")
    assert daemon.log().count("metrics.job_mapping_failed") == 1
    assert scrape(daemon).value("carve_job_mapping_failed") == 1


@needs_admin
def test_a_system_daemon_writes_where_its_user_may(make_daemon, place, another_user):
    jobs = place / "jobs"
    jobs.mkdir(mode=0o755)
    daemon, _ = started(make_daemon, place, "--system", job_mapping_dir=str(jobs))
    os.chown(jobs, pathlib.Path(f"/proc/{daemon.pid}").stat().st_uid, -1)
    id = daemon.grant(vram="1", gpu_ids="0")["id"]
    wait_until(lambda: files(jobs) == {"0": [id]}, timeout=90)
