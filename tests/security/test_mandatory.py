"""Closed device files: only users who have a slice on a GPU can open it, and nobody else gets in by carve."""
import contextlib
import errno
import json
import os
import pathlib
import struct

import pytest

from conftest import wait_until
from .broken_worker import DEVICE_ACCESS, BrokenWorker
from .lab import ALICE, BOB, CARVE, MALLORY, ROOT
from .test_jobs import Jobs
from .test_outside import begun, outside

GROUP = 64001
CONTROL, UVM = 256, 257
NAMES = ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm")
ATTRIBUTE = "system.posix_acl_access"
# What a program that brings the driver's library along gets: the result of cuInit, and the number of GPUs.
INIT = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); n = ctypes.c_int(-1); print(cuda.cuInit(0), cuda.cuDeviceGetCount(ctypes.byref(n)), n.value)"
OPENS = """
for name in sys.argv[1:]:
    try: os.close(os.open(name, os.O_RDWR)); print("open")
    except OSError as e: print(e.errno)
"""


@pytest.fixture
def closed(make_lab):
    """A lab with two GPUs whose device files an administrator closed, as docs/admin/mandatory.md says."""
    def make(**kw):
        lab = make_lab("h100-80gb:2", **kw)
        lab.devices = pathlib.Path(lab.host.env["SIMGPU_HOST"]) / "dev"
        lab.devices.mkdir(mode=0o755)
        for name in NAMES:
            file = lab.devices / name
            file.touch()
            os.chown(file, 0, GROUP)
            file.chmod(0o660)
        lab.restart()
        return lab
    return make


def users(file):
    """{user: permissions} of the access list."""
    try:
        value = os.getxattr(file, ATTRIBUTE)
    except OSError as error:
        assert error.errno == errno.ENODATA
        return {}
    return {id: bits for tag, bits, id in struct.iter_unpack("<HHI", value[4:]) if tag == 2}


def opens(lab, uid, *names, **kw):
    return lab.python(uid, OPENS, *[lab.devices / name for name in names], **kw).stdout.split()


def in_slice(lab, uid, *argv, options=("--vram", "2", "--ephemeral")):
    return lab.carve(uid, "run", *options, "--", "/usr/bin/python3", "-c", *argv)


@pytest.mark.attack("13", "a program that opens the GPUs without a slice")
def test_only_users_of_slices_reach_the_gpu_that_they_have(closed):
    lab = closed()
    assert lab.python(ALICE, INIT).stdout.split()[0] == "100" and opens(lab, ALICE, *NAMES) == [str(errno.EACCES)] * 4
    # The first program of a slice has its permission already.
    for _ in range(3):
        done = in_slice(lab, ALICE, INIT, options=("--vram", "2", "--ephemeral", "--gpu-ids", "1"))
        assert done.stdout.split() == ["0", "0", "1"], done
    wait_until(lambda: not any(users(lab.devices / name) for name in NAMES))
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2", "--gpu-ids", "1")["id"]
    wait_until(lambda: users(lab.devices / "nvidia1"))
    assert opens(lab, ALICE, *NAMES) == [str(errno.EACCES), "open", "open", "open"]
    assert opens(lab, BOB, *NAMES) == [str(errno.EACCES)] * 4
    lab.carve(ALICE, "session", "release", session)
    wait_until(lambda: opens(lab, ALICE, *NAMES) == [str(errno.EACCES)] * 4)


def test_the_modes_and_groups_of_the_files_stay(closed):
    """So nvidia-modprobe, which compares them with the module's parameters, finds nothing to mend."""
    lab = closed()
    for uid in (ALICE, BOB):
        lab.carve_json(uid, "session", "request", "--vram", "2", "--gpu-ids", "0")
    wait_until(lambda: users(lab.devices / "nvidia0") == {ALICE: 7, BOB: 7})
    for name in NAMES:
        st = os.stat(lab.devices / name)
        assert (oct(st.st_mode & 0o777), st.st_uid, st.st_gid) == ("0o660", 0, GROUP)
    assert opens(lab, MALLORY, "nvidia0", groups=[GROUP]) == ["open"] and opens(lab, MALLORY, "nvidia0") == [str(errno.EACCES)]


def test_jobs_reach_their_gpu(closed):
    lab = closed()
    jobs = Jobs(lab)
    said = lab.home(ALICE) / "said"
    id = jobs.enqueue(ALICE, "sh", "-c", f'/usr/bin/python3 -c "{INIT}" > {said}')
    jobs.ended(ALICE, id)
    assert said.read_text().split() == ["0", "0", "1"]


def test_entries_of_an_administrator_stay(closed):
    """Those of carve have all three permissions, which means nothing more for a device."""
    lab = closed()
    entries = [(1, 6, 0xffffffff), (2, 6, BOB), (4, 6, 0xffffffff), (0x10, 6, 0xffffffff), (0x20, 0, 0xffffffff)]
    os.setxattr(lab.devices / "nvidia0", ATTRIBUTE, struct.pack("<I", 2) + b"".join(struct.pack("<HHI", *e) for e in entries))
    for uid in (ALICE, BOB):
        lab.carve_json(uid, "session", "request", "--vram", "2", "--gpu-ids", "0")
    wait_until(lambda: users(lab.devices / "nvidia0") == {ALICE: 7, BOB: 6})
    for uid in (ALICE, BOB):
        lab.carve(uid, "session", "release")
    wait_until(lambda: users(lab.devices / "nvidia0") == {BOB: 6})
    assert opens(lab, BOB, "nvidia0") == ["open"]


def test_files_that_were_made_anew_and_entries_of_before_a_crash_are_mended(closed):
    lab = closed()
    session = lab.carve_json(ALICE, "session", "request", "--vram", "2", "--gpu-ids", "0")["id"]
    wait_until(lambda: users(lab.devices / "nvidia0"))
    file = lab.devices / "nvidia0"
    file.unlink()
    file.touch()
    os.chown(file, 0, GROUP)
    file.chmod(0o660)
    wait_until(lambda: users(file) == {ALICE: 7})
    lab.restart()
    assert users(file) == {ALICE: 7}
    lab.carve(ALICE, "session", "release", session)
    wait_until(lambda: not users(file))


def test_open_files_are_left_alone(closed):
    lab = closed()
    for name in NAMES:
        (lab.devices / name).chmod(0o666)
    lab.carve_json(ALICE, "session", "request", "--vram", "2", "--gpu-ids", "0")
    assert in_slice(lab, BOB, INIT).stdout.split()[:2] == ["0", "0"]
    assert not any(users(lab.devices / name) for name in NAMES) and lab.python(MALLORY, INIT).stdout.split() == ["0", "0", "2"]


@pytest.mark.attack("7", "a program outside, by a user who holds a slice to be let in")
def test_a_slice_opens_no_way_around_carve(make_lab, closed, tmp_path):
    """Its user can open the GPU as long as the slice is there. What runs outside is ended by outside_policy."""
    config = tmp_path / "carved.json"
    config.write_text(json.dumps({"outside_policy": "kill", "outside_seconds": 2}))
    lab = closed(args=["--config", str(config)])
    lab.carve_json(MALLORY, "session", "request", "--vram", "2", "--gpu-ids", "0")
    wait_until(lambda: users(lab.devices / "nvidia0"))
    program = outside(lab, MALLORY)
    wait_until(lambda: program.poll() is not None)


def test_check_tells_whether_carve_is_mandatory(closed):
    lab = closed()

    def told(uid=ROOT):
        found = {c["name"]: c for c in json.loads(lab.carve(uid, "check", "--json").stdout)["conditions"]}
        return found["mandatory"], found["permissions"]
    mandatory, _ = told()
    assert mandatory["state"] == "ok" and "carve is mandatory" in mandatory["message"]
    mandatory, permissions = told(ALICE)
    assert mandatory["state"] == permissions["state"] == "ok" and "while you have a slice" in permissions["message"]
    (lab.devices / "nvidia1").chmod(0o666)
    mandatory, _ = told()
    assert mandatory["state"] == "note" and "nvidia1" in mandatory["message"] and "man carve-outside" in mandatory["advice"]


@pytest.mark.attack("13", "the permissions of other files, and those of root, by a worker that was broken into")
def test_a_broken_worker_opens_device_files_alone(closed):
    lab = closed()
    broken = BrokenWorker(lab, lab.supervisor())

    def ask(device, uid=ALICE, opens=1, rest=0):
        return broken.ask(DEVICE_ACCESS, struct.pack("<IIII", device, uid, opens, rest), owner=uid)[0]
    with contextlib.closing(contextlib.ExitStack()) as stack:
        stack.callback(broken.end)
        for wrong in ((0, ROOT), (0, 0xffffffff), (259, ALICE), (0xffffffff, ALICE), (0, ALICE, 2), (0, ALICE, 1, 1)):
            assert ask(*wrong) == errno.EINVAL, wrong
        assert ask(255) == errno.ENOENT
        (lab.devices / "nvidia7").symlink_to("/etc/shadow")
        assert ask(7) == errno.EPERM
        (lab.devices / "nvidia8").mkdir()
        assert ask(8) == errno.EPERM
        for mode, uid in ((0o666, 0), (0o660, ALICE)):
            (lab.devices / "nvidia9").touch()
            (lab.devices / "nvidia9").chmod(mode)
            os.chown(lab.devices / "nvidia9", uid, uid)
            assert ask(9) == errno.EPERM
        assert not users("/etc/shadow")
        assert ask(0) == ask(CONTROL) == ask(UVM) == 0 and users(lab.devices / "nvidia0") == {ALICE: 7}
        assert ask(0, opens=0) == ask(0, opens=0) == 0 and not users(lab.devices / "nvidia0")
