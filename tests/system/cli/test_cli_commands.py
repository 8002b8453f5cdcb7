"""The command with the real daemon on a simulated host: sessions, run, faults."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time

import pytest

from command import CARVE, GIB, NOBODY, active, fails
from conftest import BUILD, another_user_can_read, clean_env, open_to_others, run, sim_run, wait_until


# ---- sessions -------------------------------------------------------------------------------

def test_a_session_that_has_ended_says_when_and_why(host):
    """Whatever is asked of it; another user's says no more than before."""
    session = host.carve_json("session", "request", "--vram", "1", "--name", "mine")["id"]
    assert host.carve("session", "release", "mine").returncode == 0
    ended = host.carve_json("session", "show", "mine")["ended"]
    for argv in (["session", "release", session], ["session", "release", "mine"], ["session", "resize", "mine", "2"]):
        done = host.carve(*argv)
        assert (done.returncode, done.stderr) == (1, f"carve: session {session} ended at {ended}: released; "
                                                     "`carve session list` shows those that have not ended\n"), argv
    done = host.carve("run", "--session", "mine", "true")
    assert done.returncode == 125 and f"session {session} ended at {ended}: released" in done.stderr
    assert "there is no session s-nosuch" in host.carve("session", "release", "s-nosuch").stderr


def test_a_session_from_request_to_release(host):
    granted = host.carve_json("session", "request", "--vram", "2.5")
    assert set(granted) >= {"id", "state", "owner", "created", "vram_bytes", "requested_bytes",
                            "tolerance_applied", "compute_request", "compute_limit", "backend",
                            "mig_profile", "pids", "gpus"}
    assert granted["vram_bytes"] == granted["requested_bytes"] == 2684354560
    assert granted["state"] == "active" and granted["backend"] == "front"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", granted["created"])
    fails(host.carve("session", "request", "--vram", "1"), 1, granted["id"], "carve run --vram 4 CMD")
    assert [s["id"] for s in active(host)] == [granted["id"]]
    assert host.carve_json("session", "show")["id"] == granted["id"]
    assert host.carve_json("session", "resize", granted["id"], "4GB")["vram_bytes"] == 4 * 10**9
    assert host.carve("session", "release").stdout == f"{granted['id']}: released\n"
    assert active(host) == []
    assert [s["state"] for s in host.carve_json("session", "list", "--all")] == ["ended"]
    fails(host.carve("session", "release"), 1, "no current session")
    fails(host.carve("session", "release", "s-none"), 1, "s-none")
    fails(host.carve("session", "show", "s-none"), 1, "s-none")


@pytest.mark.parametrize("options,words", [
    (["--gpu-ids", "0,0"], ["--gpu-ids: GPU 0 is named twice", "0-2"]),
    (["--gpu-ids", "x"], ["--gpu-ids: 'x' is not a list of GPUs"]),
    (["--gpu-ids", "9"], ["--gpu-ids: there is no GPU 9"]),
    (["--session-timeout", "0"], ["--session-timeout: it must be more than 0 seconds"]),
    (["--name", "s-x"], ["--name: 's-x' is no name"]),
    (["--name", ""], ["--name: '' is no name", "1 to 63 letters"]),
    (["--name", ".."], ["--name: '..' is no name", "not beginning with s-, . or -"]),
    (["--name", "--"], ["--name: '--' is no name"]),
    (["--gpus", ""], ["--gpus: no value given"]), (["--wait-for", ""], ["--wait-for: no value given"]),
])
def test_errors_name_the_option_that_was_typed(module_host, options, words):
    fails(module_host.carve("session", "request", "--vram", "1", *options), 2, *words)
    fails(module_host.carve("session", "request", "--mig-profile", "1g.10gb"), 3, "no GPU here gives out MIG instances",
          "carve node set-role --dynamic-mig-enabled")


@pytest.mark.parametrize("option,text,size", [
    ("--vram", "4", 4 * GIB), ("--vram", "2560MiB", 2684354560),
    ("--vram", "2684.35456MB", 2684354560), ("--vram", "2684354560B", 2684354560),
    ("--gpu-memory", "4G", 4 * 10**9), ("--gpu-memory", "4Gi", 4 * GIB),
])
def test_grants_are_exact_to_the_byte(host, option, text, size):
    done = host.carve("session", "request", option, text, "--json")
    assert json.loads(done.stdout)["vram_bytes"] == size


def test_fractions_and_whole_gpus(make_host):
    host = make_host("a100-40gb:2")
    gpu = host.carve_json("gpu", "list")[0]
    half = host.carve_json("session", "request", "--gpu", "0.5")
    assert abs(half["vram_bytes"] - gpu["available_bytes"] / 2) < gpu["available_bytes"] * 0.02
    assert host.carve("run", "--gpu", "0.5", "true").returncode == 0  # on the other GPU
    fails(host.carve("run", "--name", "x", "true"), 125, "--name only goes with a slice of its own")
    host.carve("session", "release")
    both = host.carve_json("session", "request", "--vram", "2", "--gpus", "2")
    assert [g["vram_bytes"] for g in both["gpus"]] == [2 * GIB, 2 * GIB]
    host.carve("session", "release")
    second = host.carve_json("session", "request", "--vram", "2", "--gpu-ids", "1")
    assert second["gpus"][0]["index"] == 1


def test_more_than_there_is(host):
    fails(host.carve("session", "request", "--vram", "100TiB"), 3, "GPU 0")
    done = host.carve("session", "request", "--vram", "100TiB", "--json")
    assert done.returncode == 3 and json.loads(done.stderr)["error"]["code"] == 3
    fails(host.carve("run", "--vram", "100TiB", "true"), 125, "GPU 0")


def test_sizes_that_differ_between_gpus_are_printed_for_each(make_host):
    host = make_host("h100-80gb,a100-40gb,t4-16gb")
    models = [g["name"] for g in host.carve_json("gpu", "list")]
    done = host.carve("session", "request", "--gpu", "0.25", "--gpus", "3")
    shown = host.carve_json("session", "show")
    sizes = [g["vram_bytes"] for g in shown["gpus"]]
    assert shown["vram_bytes"] == min(sizes) == sizes[2] and len(set(sizes)) == 3
    assert [g["requested_bytes"] for g in shown["gpus"]] == sizes

    def told(lines, prefix=""):
        assert [line.startswith(f"{prefix}  GPU {i}: ") for i, line in enumerate(lines)] == [True] * 3
        for line, gpu in zip(lines, shown["gpus"], strict=True):
            assert f"({gpu['vram_bytes']} bytes)" in line and line.endswith(", " + gpu["name"])
    first, *each = done.stdout.splitlines()
    assert first.startswith(f"{shown['id']}: ") and first.endswith(f" ({sum(sizes)} bytes) in all on GPUs 0-2:")
    told(each)
    assert " 3.69 GiB-19.78 GiB " in host.carve("session", "list").stdout
    assert ": 3.69 GiB-19.78 GiB on GPUs 0-2" in host.carve("explain", shown["id"]).stdout
    done = host.carve("run", "-v", "true")
    told(done.stderr.splitlines()[1:-1], "carve: ")
    # As much of each is another model's still.
    done = host.carve("session", "resize", "6")
    shown = host.carve_json("session", "show")
    first, *each = done.stdout.splitlines()
    assert first == f"{shown['id']}: 6 GiB ({6 * GIB} bytes) on each of GPUs 0-2:"
    told(each)
    assert [g["name"] for g in shown["gpus"]] == models
    fails(host.carve("run", "--gpu", "3", "true"), 125)
    host.carve("session", "release")
    assert host.carve("run", "--gpu", "3", "true").returncode == 0


def test_a_refusal_names_what_is_short(make_host):
    host = make_host("h100-80gb")
    session = host.carve_json("session", "request", "--vram", "3", "--gpu-compute", "50%")["id"]
    done = host.carve("explain", "--ephemeral", "--gpu", "1", "--gpu-ids", "0")
    assert "1 whole GPU asked, and GPU 0 is not empty" in done.stdout and "ask for a part of a GPU" in done.stdout
    room = host.carve_json("gpu", "list")[0]["available_bytes"] + (3 << 30)
    fails(host.carve("session", "resize", "400"), 3, "cannot grow to 400 GiB", "this session can have", "at most")
    assert host.carve_json("session", "resize", f"{room}B")["vram_bytes"] == room
    assert host.carve("session", "resize", session, "--vram", "3").returncode == 0
    assert host.carve("timeslicing", "--mode", "strict").returncode == 0
    done = host.carve("run", "--ephemeral", "--vram", "4", "--gpu-compute", "60%", "true")
    fails(done, 125, "not enough GPU time for 60%:", "50% of its time is promised")


def test_shrinking_below_what_is_in_use_names_both(make_host):
    host = make_host("h100-80gb")
    host.carve("session", "request", "--vram", "6")
    holder = host.popen([CARVE, "run", BUILD / "tests/programs/reach", "path", "libcuda.so.1", 2 * GIB],
                        stdin=subprocess.PIPE)
    assert holder.stdout.readline() and holder.stdout.readline() == "holds\n"
    used = host.carve_json("session", "show")["gpus"][0]["used_bytes"]
    assert 2.5 * GIB < used < 2.6 * GIB
    fails(host.carve("session", "resize", "2.4"), 1, "cannot shrink to 2.4 GiB: 2.51 GiB are in use on GPU 0")
    fails(host.carve("session", "resize", f"{used - 1}B"), 1, f"cannot shrink to {used - 1} bytes: {used} are in use on GPU 0")
    holder.communicate("", timeout=60)
    assert holder.returncode == 0


def test_the_93_percent_rule_is_said(host):
    left = host.carve_json("gpu", "list")[0]["available_bytes"]
    wanted = f"{left + left // 50}B"
    fails(host.carve("session", "request", "--vram", wanted, "--vram-strict"), 3)
    done = host.carve("session", "request", "--vram", wanted)
    assert done.returncode == 0 and "93% rule was applied" in done.stdout
    size = re.search(rf": (\S+ \S+) \({left} bytes\)", done.stdout)[1]
    assert f" asked for, {size} left and granted" in done.stdout
    assert host.carve_json("session", "show")["tolerance_applied"] is True
    host.carve("session", "release")
    # Where both are the same in words.
    done = host.carve("session", "request", "--vram", f"{left + 1}B")
    assert f"{left + 1} bytes asked for, {left} left and granted" in done.stdout


def test_waiting_for_room(host):
    left = host.carve_json("gpu", "list")[0]["available_bytes"]
    host.carve("session", "request", "--gpu-ids", "0", "--vram", f"{left // 2}B")
    argv = ["run", "--ephemeral", "--gpu-ids", "0", "--vram", f"{left * 3 // 4}B", "--wait-for"]
    fails(host.carve(*argv, "0.2", "true"), 125)
    waiting = host.popen([CARVE, *argv, "20", "echo", "served"])
    wait_until(lambda: any(s["state"] == "waiting" for s in host.carve_json("session", "list")))
    assert waiting.poll() is None
    waits = next(s for s in host.carve_json("session", "list") if s["state"] == "waiting")
    id = waits["id"]
    fails(host.carve("session", "resize", id, "2"), 1, f"request {id} waits for room: it has no size to change yet",
          f"carve session release {id}")
    host.carve("session", "release")
    out, err = waiting.communicate(timeout=60)
    assert (waiting.returncode, out, err) == (0, "served\n", "")
    ended = next(s for s in host.carve_json("session", "list", "--all") if s["id"] == id)
    assert ended["requested"] == waits["requested"] == waits["created"] < ended["created"]


def test_names_and_history(host):
    done = host.carve("session", "request", "--vram", "2", "--name", "lab-1")
    assert done.returncode == 0, done.stderr
    assert host.carve("run", "--session", "lab-1", "true").returncode == 0
    shown = host.carve_json("session", "show", "lab-1")
    assert shown["name"] == "lab-1" and "lab-1" in host.carve("session", "list").stdout
    assert host.carve("session", "resize", "lab-1", "3").returncode == 0
    fails(host.carve("run", "--ephemeral", "--vram", "1", "--name", "lab-1", "true"), 125,
          f"{shown['id']} is called lab-1 already")
    assert host.carve("session", "release", "lab-1").stdout == f"{shown['id']}: released\n"
    fails(host.carve("session", "release", "lab-1"), 1, f"session {shown['id']} ended at ", ": released", "`carve session list`")
    heading, line = host.carve("session", "list", "--all").stdout.splitlines()[:2]
    assert "PEAK" in heading and "REASON" in heading
    assert shown["id"] in line and "lab-1" in line and line.endswith("released")
    shown = host.carve("session", "show", "lab-1").stdout
    assert "ended:" in shown and "because:   released" in shown


def test_interrupting_a_wait_gives_the_place_up(host):
    left = host.carve_json("gpu", "list")[0]["available_bytes"]
    host.carve("session", "request", "--gpu-ids", "0", "--vram", f"{left // 2}B")
    waiting = host.popen([CARVE, "run", "--ephemeral", "--gpu-ids", "0", "--vram", f"{left * 3 // 4}B",
                          "--wait-for", "60", "true"])
    wait_until(lambda: any(s["state"] == "waiting" for s in host.carve_json("session", "list")))
    waiting.send_signal(signal.SIGINT)
    assert waiting.wait(60) == -signal.SIGINT
    wait_until(lambda: all(s["state"] == "active" for s in host.carve_json("session", "list")))


# ---- run ------------------------------------------------------------------------------------

def test_a_one_off_ends_with_its_command(host):
    done = host.carve("run", "--vram", "2", "sh", "-c", "cat; echo $CARVE_SESSION; exit 42",
                      stdin=subprocess.DEVNULL)
    assert done.returncode == 42 and done.stderr == ""
    assert active(host) == []
    ended = host.carve_json("session", "show", done.stdout.strip())
    assert ended["state"] == "ended" and ended["vram_bytes"] == 2 * GIB


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_death_by_signal(host, number):
    done = host.carve("run", "--vram", "2", "sh", "-c", f"kill -{int(number)} $$")
    assert done.returncode == 128 + number
    assert active(host) == []


def test_command_errors_leave_no_session(host, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    fails(host.carve("run", "--vram", "2", "no-such-command-here"), 127)
    fails(host.carve("run", "--vram", "2", str(plain)), 126)
    assert active(host) == []


def test_a_one_off_outlives_a_killed_carve(host):
    process = host.popen([CARVE, "run", "--vram", "2", "sh", "-c", "echo $$; exec sleep 60"])
    pid = int(process.stdout.readline())
    process.kill()
    process.wait(60)
    time.sleep(0.3)
    assert len(active(host)) == 1
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: active(host) == [])


def test_run_joins_a_session_and_leaves_it(host):
    fails(host.carve("run", "true"), 125, "no current session")
    own = host.carve_json("session", "request", "--vram", "4")["id"]
    for argv in (["run"], ["run", "--session", own]):
        done = host.carve(*argv, "sh", "-c", "echo $CARVE_SESSION")
        assert done.stdout.strip() == own
    other = host.carve("run", "--vram", "4", "sh", "-c", "echo $CARVE_SESSION")
    assert other.stdout.strip() != own
    assert [s["id"] for s in active(host)] == [own]
    fails(host.carve("run", "--session", other.stdout.strip(), "true"), 125, "ended")


def test_a_command_that_has_not_used_the_gpu_yet_is_inside(host):
    """A release would take the GPU away that it is about to use. A caller from within knows."""
    own = host.carve_json("session", "request", "--vram", "2")["id"]
    with host.popen([CARVE, "run", "sh", "-c", "echo $$; exec sleep 60"], stdout=subprocess.PIPE) as command:
        pid = command.stdout.readline().strip()
        shown = host.carve_json("session", "show")
        assert (shown["pids"], shown["command_pids"]) == ([], [int(pid)])
        assert f"\ncommands:  {pid}\n" in host.carve("session", "show").stdout
        fails(host.carve("session", "release"), 1, f"has processes inside: {pid};", "--force")
        fails(host.carve("run", CARVE, "session", "release"), 1, f"inside: {pid};")
        assert [s["id"] for s in active(host)] == [own]
        assert host.carve("session", "release", "--force").returncode == 0
        assert command.wait(60) == 128 + signal.SIGTERM
    host.carve("session", "request", "--vram", "2")
    done = host.carve("run", "sh", "-c", f"{CARVE} session release && sleep 0.3 && echo alive")
    assert done.returncode == 0 and done.stdout.endswith("released\nalive\n") and active(host) == []


def test_time_that_is_up_ends_a_command_that_has_not_used_the_gpu(host):
    done = host.carve("run", "--ephemeral", "--vram", "2", "--session-timeout", "5", "sleep", "60", timeout=100)
    assert done.returncode == 128 + signal.SIGTERM and "its time of 5s was up" in done.stderr


def test_run_inside_a_slice(host):
    nested = f"echo $CARVE_SESSION; {CARVE} run sh -c 'echo $CARVE_SESSION'"
    first, second = host.carve("run", "--vram", "2", "sh", "-c", nested).stdout.split()
    assert first == second
    done = host.carve("run", "--vram", "2", CARVE, "run", "--vram", "1", "true")
    fails(done, 125, "inside slice")
    listed = host.carve("run", "--vram", "2", CARVE, "session", "list", "--json")
    assert len(json.loads(listed.stdout)) == 1


def test_verbs_inside_a_slice_mean_its_session(host):
    own = host.carve_json("session", "request", "--vram", "1")["id"]
    inside = f"echo $CARVE_SESSION; {CARVE} session show --json; {CARVE} session release >&2; echo $?"
    done = host.carve("run", "--ephemeral", "--vram", "2", "sh", "-c", inside)
    one_off, rest = done.stdout.split("\n", 1)
    shown, end = json.JSONDecoder().raw_decode(rest)
    assert shown["id"] == one_off != own
    assert rest[end:].split() == ["2"] and own in done.stderr and f"inside slice {one_off}" in done.stderr
    assert [s["id"] for s in active(host)] == [own]
    resized = host.carve("run", "--ephemeral", "--vram", "2", CARVE, "session", "resize", "--vram", "3", "--json")
    assert json.loads(resized.stdout)["id"] != own
    assert host.carve("run", CARVE, "session", "show", "--json").stdout.count(own)
    # Another daemon's sessions are not those of this slice.
    assert host.carve_json("session", "show", env={"CARVE_SESSION": "s-x", "CARVE_ATTACH": "/none"})["id"] == own


def test_a_session_that_ends_under_its_command_says_why(host, programs):
    """By force; one whose time is up ends in the same way, but may do so before its command has begun."""
    with host.popen([CARVE, "run", "--ephemeral", "--vram", "2", "--name", "x", programs / "slice_greedy", "linear",
                     64 << 20, "race"], stdin=subprocess.PIPE) as command:
        assert command.stdout.readline() == "ready\n"
        session, = active(host)
        assert host.carve("session", "release", "x", "--force").returncode == 0
        _, said = command.communicate(timeout=60)
    assert command.returncode == 128 + signal.SIGTERM
    assert said == f"carve: session {session['id']} ended: released by force\n"
    assert host.carve("run", "--ephemeral", "--vram", "2", "true").stderr == ""


def test_a_refusal_is_said_at_the_end(host, examples):
    done = host.carve("run", "--vram", "2", "--verbose", examples / "hog")
    assert done.returncode == 0
    granted, refused = done.stderr.splitlines()
    assert "(2147483648 bytes)" in granted
    assert re.fullmatch(r"carve: the slice refused memory 1 time: peak use .* of 2 GiB", refused)
    assert host.carve("run", "--vram", "2", examples / "hog").stderr == ""


def test_a_slice_too_small_for_a_context_is_refused(make_host):
    done = make_host("h100-80gb").carve("session", "request", "--vram", "100MB")
    fails(done, 2, "context")


def test_programs_without_cuda_run_unharmed(host):
    for argv in (["true"], ["sh", "-c", ":"], ["ls", "/"], ["/usr/bin/python3", "-c", "print(1)"]):
        done = host.carve("run", "--vram", "2", *argv)
        assert done.returncode == 0 and done.stderr == ""


@pytest.mark.parametrize("sanitizer", ["address", "thread", "undefined"])
def test_programs_with_sanitizers_run_unharmed(host, tmp_path, sanitizer):
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text('#include <stdio.h>\nint main(void) { puts("fine"); return 3; }\n')
    built = subprocess.run(["cc", f"-fsanitize={sanitizer}", "-o", program, source],
                           capture_output=True)
    if built.returncode != 0:
        pytest.skip(f"this compiler has no -fsanitize={sanitizer}")
    # ASan refuses by itself to be anything but the first library, whatever stands before it.
    done = host.carve("run", "--vram", "2", program,
                      env={"ASAN_OPTIONS": "verify_asan_link_order=0"})
    assert (done.returncode, done.stdout) == (3, "fine\n"), done.stderr


# ---- isolation ------------------------------------------------------------------------------

@pytest.fixture
def mounting(host):
    """A host on which carve may mount."""
    if subprocess.run(["unshare", "-m", "true"], capture_output=True).returncode != 0:
        pytest.skip("needs the right to mount")
    return host


def bare_environment(host):
    """What keeps a program on its host, and nothing of a slice."""
    kept = [f"{name}={host.env[name]}" for name in ("SIMGPU_HOST", "LD_LIBRARY_PATH")
            if name in host.env]
    return ["env", "-i", *kept]


def test_mount_binds_programs_without_environment(mounting, examples):
    done = mounting.carve("run", "--isolation", "mount", "--vram", "2",
                          *bare_environment(mounting), examples / "hog")
    assert done.returncode == 0, done.stderr
    assert "this GPU has 2048 MiB" in done.stdout


OPEN_BY_PATH = """
import ctypes, os, sys
how = {"path": 0, "deepbind": os.RTLD_DEEPBIND}[sys.argv[2]]
cuda = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | how)
device, context, total = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_size_t()
assert cuda.cuInit(0) == 0 and cuda.cuDeviceGet(ctypes.byref(device), 0) == 0
assert cuda.cuDeviceTotalMem_v2(ctypes.byref(total), device) == 0
print(total.value)
"""


@pytest.mark.parametrize("how", ["path", "deepbind"])
def test_mount_binds_programs_that_open_the_driver_by_path(mounting, how):
    driver = mounting.carve_json("check")["driver"]["cuda"]
    done = mounting.carve("run", "--isolation", "mount", "--vram", "2",
                          *bare_environment(mounting), "/usr/bin/python3", "-c", OPEN_BY_PATH,
                          driver, how)
    assert done.stdout == f"{2 * GIB}\n", done.stderr


def test_mount_leaves_nothing_outside(mounting, examples):
    own = os.path.dirname(mounting.env["CARVE_RUNTIME_DIR"])

    def mounts():
        """But for those of other tests, whose containers come and go below /tmp."""
        with open("/proc/self/mountinfo") as file:
            return [line for line in file if not line.split()[4].startswith("/tmp/") or own in line]

    before = mounts()
    done = mounting.carve("run", "--isolation", "mount", "--vram", "2", "sh", "-c",
                          "cat /run/carve-slice/environment; touch /run/carve-slice/x; exit 7")
    assert done.returncode == 7 and "Read-only" in done.stderr
    assert done.stdout.startswith("CARVE_SESSION=s-")
    assert mounts() == before and os.listdir("/run/carve-slice") == []
    assert mounting.carve("run", "--vram", "2", examples / "matmul").returncode == 0


def test_mount_inside_and_without_a_daemon(mounting):
    lost = ["run", "--isolation", "mount", "--vram", "2", *bare_environment(mounting), CARVE]
    fails(mounting.carve(*lost, "run", "--vram", "1", "true"), 125, "inside slice")
    done = mounting.carve(*lost, "run", "sh", "-c", "echo $CARVE_SESSION")
    assert done.stdout.startswith("s-")
    done = mounting.carve(*lost, "gpu", "list", "--host", mounting.env["CARVE_RUNTIME_DIR"] + "/no")
    fails(done, 4)
    assert mounting.carve_json("check")["isolation"]["mount"] is True


def test_isolation_has_two_ways(host):
    fails(host.carve("run", "--isolation", "jail", "--vram", "2", "true"), 125, "jail")
    assert host.carve("run", "--isolation", "preload", "--vram", "2", "true").returncode == 0
    fails(host.carve("run", "--vram", "2", CARVE, "run", "--isolation", "mount", "true"),
          125, "inside slice")


# ---- users ----------------------------------------------------------------------------------

@pytest.fixture
def shared(make_host):
    """A daemon for all users; shared(user, ...) runs carve as that user."""
    if not another_user_can_read():
        pytest.skip("needs to be root, in a checkout that other users can read")
    host = make_host("h100-80gb")
    open_to_others(host)
    with tempfile.TemporaryDirectory(prefix="carve-test-") as directory:
        os.chmod(directory, 0o755)
        daemon = host.popen([BUILD / "carved", "--system", "--runtime-dir", directory + "/run",
                             "--foreground"])
        path = directory + "/run/carved.sock"
        wait_until(lambda: os.path.exists(path))

        def as_user(user, *argv):
            return host.run([*(NOBODY if user == "nobody" else []), CARVE, *argv],
                            env={"CARVE_HOST": path})

        yield as_user
        daemon.terminate()
        daemon.communicate(timeout=60)


def test_another_users_session_is_out_of_reach(shared):
    theirs = json.loads(shared("root", "session", "request", "--vram", "3", "--json").stdout)["id"]
    for argv in (["session", "show", theirs], ["session", "resize", theirs, "2"],
                 ["session", "release", theirs], ["session", "release", theirs, "--force"]):
        fails(shared("nobody", *argv), 5, "another user's")
    fails(shared("nobody", "run", "--session", theirs, "true"), 125, "another user's")
    fails(shared("nobody", "run", "true"), 125, "no current session")
    assert theirs not in shared("nobody", "session", "list", "--all", "--json").stdout
    own = json.loads(shared("nobody", "session", "request", "--vram", "2", "--name", "theirs", "--json").stdout)["id"]
    # Root sees the names of all in its list, and may use them.
    assert json.loads(shared("root", "session", "show", "theirs", "--json").stdout)["id"] == own
    done = shared("nobody", "run", "--session", "theirs", "sh", "-c", "id -u; echo $CARVE_SESSION")
    assert done.stdout.split() == ["65534", own]
    assert shared("nobody", "run", "--ephemeral", "--vram", "1", "true").returncode == 0
    assert shared("root", "session", "release", own).returncode == 0
    assert shared("root", "session", "release").stdout == f"{theirs}: released\n"


# ---- installed ------------------------------------------------------------------------------

def test_an_installed_carve_finds_its_parts(tmp_path):
    if not (BUILD / "build.ninja").exists():
        pytest.skip("not a build directory of its own")
    done = run(["/usr/bin/meson", "install", "-C", BUILD, "--no-rebuild", "--destdir", tmp_path])
    assert done.returncode == 0, done.stderr
    installed = next(tmp_path.glob("**/bin/carve"))
    assert next(tmp_path.glob("**/man1/carve-run.1*")) and next(tmp_path.glob("**/carve/carve.h"))
    done = run([installed, "sim", "--", installed, "check", "--json"])
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    for path in (found["driver"]["cuda"], found["front"]["cuda"]):
        assert os.path.realpath(path).startswith(str(tmp_path))
    done = run([installed, "sim", "--", installed, "run", "--vram", "2", "sh", "-c", "exit 8"])
    assert done.returncode == 8, done.stderr


# ---- sim ------------------------------------------------------------------------------------

def test_sim_passes_status_and_input():
    done = sim_run("h100-80gb", ["sh", "-c", "cat; exit 9"])
    assert done.returncode == 9
    assert sim_run("h100-80gb", ["sh", "-c", "kill -TERM $$"]).returncode == 128 + signal.SIGTERM


def test_sim_has_the_gpus_asked_for_and_a_daemon_of_its_own():
    foreign = {"CARVE_HOST": "/none", "CARVE_SESSION": "s-x", "CARVE_ATTACH": "/none"}
    done = sim_run("h100-80gb:2,a100-40gb", [CARVE, "gpu", "list", "--json"],
                   env=clean_env(foreign))
    assert done.returncode == 0, done.stderr
    names = [gpu["name"] for gpu in json.loads(done.stdout)]
    assert len(names) == 3 and "H100" in names[0] and "A100" in names[2]


def test_nested_sim_shares_the_host(make_host):
    host = make_host("h100-80gb:3")
    script = f"{CARVE} gpu list --json"
    done = host.carve("sim", "--", "sh", "-c", script)
    assert len(json.loads(done.stdout)) == 3
    assert host.carve("sim", "sh", "-c", "exit 4").returncode == 4
    assert host.carve("sim", "--", "no-such-command-here").returncode == 127
    done = host.carve("sim", "--gpus", "a100-40gb", "--", "sh", "-c", script)
    assert len(json.loads(done.stdout)) == 1


def test_sim_names_a_command_that_is_not_there():
    done = sim_run("h100-80gb", ["nosuch"])
    assert done.returncode == 127 and "nosuch: command not found" in done.stderr


def test_sim_lists_models_and_refuses_others():
    listed = run([CARVE, "sim", "--list"])
    assert listed.returncode == 0 and "h100-80gb" in listed.stdout
    assert json.loads(run([CARVE, "sim", "list", "--json"]).stdout)
    done = sim_run("no-such-gpu", ["true"])
    assert done.returncode == 2 and "no-such-gpu" in done.stderr
    done = sim_run("h100-80gb", ["true"], driver="999")
    assert done.returncode == 2 and "999" in done.stderr


def test_sim_tools_get_their_arguments(make_host):
    host = make_host("h100-80gb")
    assert host.carve_json("sim", "stat")["gpus"][0]["memory_used_bytes"] == 0
    path = host.dir + "/trace.json"
    assert host.carve("sim", "trace", path).returncode == 0
    with open(path) as file:
        json.load(file)
    assert host.carve("sim", "fault", "nvml", "--count", "1").returncode == 0
    assert host.carve("sim", "fault", "no-such-fault").returncode == 2
    # --json, wherever it stands: what was done, and errors too.
    fault = json.loads(host.carve("--json", "sim", "fault", "alloc", "--gpu", "0", "--count", "2", "--delay", "0.5").stdout)
    assert fault == {"fault": "alloc", "cleared": False, "gpu": 0, "pid": None, "call": None, "skip": 0, "count": 2,
                     "delay_ns": 500000000, "for_ns": 0, "error": None}
    assert json.loads(host.carve("sim", "fault", "--json", "all", "--clear").stdout)["cleared"] is True
    assert json.loads(host.carve("sim", "trace", path, "--json").stdout) == {"file": path}
    assert "traceEvents" in json.loads(host.carve("sim", "trace", "-", cwd=host.dir).stdout)
    assert not os.path.exists(host.dir + "/-")
    assert json.loads(host.carve("--json", "sim", "list").stdout) and json.loads(host.carve("--json", "sim", "stat").stdout)
    for argv, words in ((("fault",), "KIND is missing"), (("fault", "--colour"), "--colour"), (("fault", "alloc", "x"), "'x'"),
                        (("fault", "alloc", "--gpu", "63"), "fault"), (("trace",), "FILE is missing"),
                        (("trace", path, "more"), "'more'"), (("stat", "--jsn"), "unknown option '--jsn'"),
                        (("list", "more"), "'more'")):
        for where in (("--json", "sim", *argv), ("sim", *argv, "--json")):
            done = host.carve(*where)
            error = json.loads(done.stderr)["error"]
            assert done.returncode == error["code"] and words in error["message"] and done.stdout == "", done.stderr
        done = host.carve("sim", *argv)
        assert words in done.stderr and done.stderr.startswith("carve sim: ") and done.stderr.count("\n") == 1
    done = host.carve("completion", "bash", "--json")
    assert done.returncode == 2 and "never JSON" in json.loads(done.stderr)["error"]["message"] and done.stdout == ""


def test_hosts_that_start_at_once_leave_each_other_alone():
    for _ in range(8):
        hosts = [subprocess.Popen([str(CARVE), "sim", "--", "true"], env=clean_env(),
                                  stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
                 for _ in range(12)]
        for host in hosts:
            _, err = host.communicate(timeout=60)
            assert host.returncode == 0, err


def as_user(uid, env=()):
    return ["setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "env", "-i", f"PATH={os.environ['PATH']}", *env]


@pytest.mark.parametrize("owner", [0, 65534])
@pytest.mark.usefixtures("another_user")
def test_users_share_a_simulated_host(owner, examples):
    """Each has sessions of its own on it, and sees of the others' the size only."""
    host = subprocess.Popen([*as_user(owner), str(CARVE), "sim", "--shared", "--", "cat"], stdin=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    try:
        told = host.stderr.readline()
        place = re.fullmatch(r"carve: other users join with: carve sim --join (/tmp/simgpu-\w+) -- CMD\n", told)[1]

        def joined(uid, *argv):
            return run([*as_user(uid), CARVE, "sim", "--join", place, "--", *argv])

        for uid in (65533, 65534):
            done = joined(uid, CARVE, "session", "request", "--vram", str(uid - 65530))
            assert done.returncode == 0, done.stderr
            done = joined(uid, CARVE, "run", examples / "matmul")
            assert done.returncode == 0, done.stderr
        seen = json.loads(joined(65533, CARVE, "session", "list", "--json").stdout)
        assert [s["vram_bytes"] >> 30 for s in seen] == [3, 4] and [s["id"] is None for s in seen] == [False, True]
        rows = [row.split() for row in joined(65533, CARVE, "session", "list").stdout.splitlines()]
        assert rows[2] == ["-", "-", "active", "-", "4", "GiB", "-", "GPU", "0", "-", "-", "-"]  # what is not told is no 0
        gpu, = json.loads(joined(65533, CARVE, "sim", "stat", "--json").stdout)["gpus"]
        assert gpu["memory_used_bytes"] == 0 and gpu["memory_peak_bytes"] > 0
        for act in (["alloc", "--count", "1"], ["alloc", "--clear"], ["--clear"], ["reset"], ["reboot"]):
            done = joined(65533, CARVE, "sim", "fault", *act)
            assert done.returncode == 5 and "only its owner and root make its driver fail" in done.stderr, done.stderr
        for uid in {0, owner}:
            for act in (["alloc", "--count", "1"], ["--clear"]):
                done = joined(uid, CARVE, "sim", "fault", *act)
                assert done.returncode == 0, done.stderr
        for argv, code in ((("--gpus", "t4-16gb"), 2), (("--shared",), 2)):
            fails(run([CARVE, "sim", "--join", place, *argv, "--", "true"]), code, "--join")
    finally:
        host.stdin.close()
        assert host.wait(60) == 0
        host.stderr.close()
    fails(run([CARVE, "sim", "--join", place, "--", "true"]), 4, "no simulated host")
    fails(run([CARVE, "sim", "--join", "x", "--", "true"]), 2, "directory")


@pytest.mark.usefixtures("another_user")
def test_a_simulated_host_that_is_not_shared(make_host):
    host = make_host("h100-80gb")
    place = host.env["SIMGPU_HOST"]
    fails(run([*as_user(65534), CARVE, "sim", "--join", place, "--", "true"]), 5, "is of user 0 alone", "--shared")
    env = [f"{name}={host.env[name]}" for name in ("SIMGPU_HOST", "CARVE_RUNTIME_DIR")]
    fails(run([*as_user(65534, env), CARVE, "gpu", "list"]), 5, "belongs to user", "carve sim --shared")


def test_gpus_of_a_session_are_told_as_they_are_named(make_host):
    host = make_host("t4-16gb:64")

    def told(ids, count):
        done = host.carve("session", "request", "--vram", "1", "--gpu-ids", ids, "--gpus", str(count))
        assert done.returncode == 0, done.stderr
        listed = host.carve("session", "list").stdout
        assert host.carve("session", "release").returncode == 0
        on = re.search(r" on (?:each of )?(GPUs? [-,0-9]+),", done.stdout)[1]
        assert on + " " in listed
        return on

    assert told("0-63", 64) == "GPUs 0-63"
    assert told("7", 1) == "GPU 7"
    assert told("0,2-3,5-7,63", 7) == "GPUs 0,2,3,5-7,63"
    for ids, named in (("99999999999999999999", "GPU 99999999999999999999"), ("0-70", "GPU 70"), ("1,64", "GPU 64")):
        fails(host.carve("session", "request", "--vram", "1", "--gpu-ids", ids), 2, f"there is no {named}; ")
    # A request is asked about as it would be made.
    done = host.carve("explain", "--vram", "1", "--wait-for", "3", "--priority", "-5", "--name", "x", "--session-timeout", "9")
    assert done.stdout.startswith("1 GiB: would be granted: 1 GiB on GPU "), done.stderr


def test_the_daemon_that_is_started_after_a_crash_has_the_settings_of_the_one_before(host, tmp_path):
    """Its configuration; not where that one ended in order."""
    config = tmp_path / "my config.json"
    config.write_text('{"timeSlicing": {"mode": "strict", "lease": "100ms"}}')
    runtime = host.env["CARVE_RUNTIME_DIR"]

    def mode():
        return host.carve_json("timeslicing")[0]["mode"]

    assert host.run([BUILD / "carved", "--runtime-dir", runtime, "--config", config]).returncode == 0
    assert mode() == "strict"
    os.kill(host.daemon_pid(), signal.SIGKILL)
    assert mode() == "strict"
    pid = host.daemon_pid()
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(f"{runtime}/carved.sock"))
    assert mode() == "off"
