"""`carve run` beside a daemon that answers as the test says."""
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from conftest import BUILD, clean_env, wait_until
from fake_daemon import CARVE, GIB, GPU, carve, fails, fake, session, terminal  # noqa: F401: fixtures


def one_off(fake, *command, **kw):
    return carve(fake, "run", "--vram", "4", *command, **kw)


def test_run_passes_everything_through(fake):
    done = one_off(fake, "sh", "-c", "cat; echo err >&2; exit 7", stdin=None, input="in")
    assert (done.returncode, done.stdout, done.stderr) == (7, "in", "err\n")
    assert fake.sent("POST") == [("/v1/sessions", {"vram_bytes": 4 * GIB, "ephemeral": True})]
    # Root's first try, to isolate by mounting, ends for want of a driver; the second is the command.
    assert [name for name, _ in fake.commands] == ["s-abc123"] * (2 if os.geteuid() == 0 else 1)
    assert fake.sent("DELETE") == [("/v1/sessions/s-abc123", None)]


def test_run_stops_reading_options_at_the_command(fake):
    done = one_off(fake, "echo", "--vram", "5", "--help", "--", "-x")
    assert done.stdout == "--vram 5 --help -- -x\n"
    assert one_off(fake, "--", "echo", "-n").stdout == ""


@pytest.mark.parametrize("name", ["TERM", "KILL", "SEGV", "USR1"])
def test_run_death_by_signal(fake, name):
    number = getattr(signal, "SIG" + name)
    assert one_off(fake, "sh", "-c", f"kill -{name} $$").returncode == 128 + number


def test_run_command_errors(fake, tmp_path):
    plain = tmp_path / "plain"
    plain.write_text("x")
    fails(one_off(fake, "no-such-command-here"), 127, "not found")
    fails(one_off(fake, str(tmp_path / "none")), 127, "there is no such file")
    fails(one_off(fake, str(plain)), 126, "is not executable")
    fails(one_off(fake, str(tmp_path)), 126, "is a directory")
    # A path that has no program costs no slice.
    assert len(fake.sent("POST")) >= len(fake.sent("DELETE")) == 2
    done = one_off(fake, "--json", "no-such-command-here")
    assert done.returncode == 127 and json.loads(done.stderr)["error"]["code"] == 127


def test_run_sets_the_slices_environment(fake):
    done = one_off(fake, sys.executable, "-c",
                   "import json, os; print(json.dumps(dict(os.environ)))",
                   env={"LD_PRELOAD": "libc.so.6"})
    got = json.loads(done.stdout)
    front = f"{BUILD}/src/front"
    assert got["LD_PRELOAD"] == f"{front}/libcuda.so.1:{front}/libnvidia-ml.so.1:libc.so.6"
    assert got["CARVE_SESSION"] == "s-abc123" and got["CARVE_ATTACH"] == fake.dir + "/attach.sock"


@pytest.mark.parametrize("given, inside", [("", "verify_asan_link_order=0"),
                                           ("detect_leaks=0", "detect_leaks=0:verify_asan_link_order=0"),
                                           ("verify_asan_link_order=1:a=b", "verify_asan_link_order=1:a=b")])
def test_run_keeps_what_sanitizers_are_told(fake, given, inside):
    done = one_off(fake, "sh", "-c", "echo $ASAN_OPTIONS", env={"ASAN_OPTIONS": given})
    assert done.stdout == inside + "\n"


def test_run_joins_the_current_session(fake):
    fails(carve(fake, "run", "true"), 125, "no current session", "--vram")
    fake.answers["GET", "/v1/sessions/current"] = (200, session())
    assert carve(fake, "run", "sh", "-c", "exit 3").returncode == 3
    fails(carve(fake, "run", "--gpus", "2", "true"), 125, "--gpus")
    fails(carve(fake, "run", "--session", "s-abc123", "--ephemeral", "true"), 125, "--ephemeral")
    assert carve(fake, "run", "--session", "s-abc123", "true").returncode == 0
    assert not fake.sent("POST") and not fake.sent("DELETE")
    assert {name for name, _ in fake.commands} == {"s-abc123"}
    assert carve(fake, "run", "--ephemeral", "--vram", "2", "true").returncode == 0
    assert fake.sent("POST")[0][1] == {"vram_bytes": 2 * GIB, "ephemeral": True}


@pytest.mark.parametrize("visible, gpus, warned", [
    ("2", 1, True), ("1,0", 1, True), ("1", 2, False), ("0", 1, False), ("", 1, False), ("-1", 1, False),
    ("GPU-7", 1, True), ("GPU-0", 1, False), ("99999999999999999999999", 1, True), (None, 1, False),
])
def test_visible_devices_count_within_the_slice(fake, visible, gpus, warned):
    gpu = session()["gpus"][0]
    made = session(gpus=[dict(gpu, index=i, uuid=f"GPU-{i}") for i in range(gpus)])
    fake.answers["POST", "/v1/sessions"] = (201, made)
    env = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    done = carve(fake, "run", "--vram", "4", "true", env=env)
    words = f"carve: warning: CUDA_VISIBLE_DEVICES={visible} counts within the slice and names none of its {gpus} GPU"
    assert done.returncode == 0 and (words in done.stderr) == warned, done.stderr
    assert done.stderr.count("\n") == warned


def test_run_in_a_current_session_that_is_ending(fake):
    fake.answers["GET", "/v1/sessions/current"] = (200, session(state="ending"))
    fails(carve(fake, "run", "true"), 125, "session s-abc123 is not active, but ending")


def test_run_in_a_session_that_ended(fake):
    fake.answers["GET", "/v1/sessions/s-abc123"] = (200, session(state="ended"))
    fails(carve(fake, "run", "--session", "s-abc123", "true"), 125, "ended")


def test_run_inside_a_slice_shares_it_or_refuses(fake):
    inside = {"CARVE_SESSION": "s-in", "CARVE_ATTACH": "/somewhere/attach.sock",
              "CARVE_DRIVER_CUDA": "/real/libcuda.so.1", "CARVE_DRIVER_NVML": "/real/nvml"}
    done = carve(fake, "run", "sh", "-c", "echo $CARVE_SESSION $CARVE_ATTACH $CARVE_DRIVER_CUDA",
                 env=inside)
    assert done.stdout == "s-in /somewhere/attach.sock /real/libcuda.so.1\n"
    fails(carve(fake, "run", "--vram", "2", "true", env=inside), 125, "inside slice s-in")
    fails(carve(fake, "run", "--ephemeral", "--vram", "2", "true", env=inside), 125)
    fails(carve(fake, "run", "--session", "s-abc123", "true", env=inside), 125)
    assert carve(fake, "run", "--session", "s-in", "true", env=inside).returncode == 0
    assert not fake.requests


def test_run_says_when_the_daemon_does_not_take_the_command(fake):
    fake.attach_status = 1
    fails(one_off(fake, "true"), 125, "it is not known")


def test_run_is_stopped_and_continued_while_it_waits_for_the_daemon(fake):
    def state(pid):
        with open(f"/proc/{pid}/stat", encoding="ascii") as file:
            return file.read().rpartition(")")[2].split()[0]

    def stop(pid):
        time.sleep(0.2)  # until it waits
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: state(pid) == "T")
        os.kill(pid, signal.SIGCONT)
        time.sleep(0.2)

    fake.before_attach = stop
    done = one_off(fake, "true")
    assert (done.returncode, done.stderr) == (0, ""), done.stderr


def test_run_warns_of_commands_that_leave_the_slice(fake, tmp_path):
    tool = tmp_path / "docker"
    tool.write_text("#!/bin/sh\nexit 0\n")
    tool.chmod(0o755)
    done = one_off(fake, str(tool), "run", "image")
    assert done.returncode == 0 and "does NOT apply" in done.stderr


def test_run_reports_refusals_on_a_terminal_only(fake):
    gpus = session()["gpus"]
    fake.answers["GET", "/v1/sessions/s-abc123"] = (
        200, session(gpus=[dict(gpus[0], refused=3, peak_bytes=3 * GIB)]))
    assert one_off(fake, "true").stderr == ""
    assert "refused memory 3 times: peak use 3 GiB of 4 GiB" in one_off(fake, "-v", "true").stderr
    with terminal([CARVE, "run", "--vram", "4", "true"], fake) as (process, read):
        text = read(b"peak use")
        assert "4294967296 bytes" in text and "3 GiB of 4 GiB" in text


def started(fake, script):
    """`carve run` of a shell script that writes "ready"; its parts as bytes."""
    process = subprocess.Popen([CARVE, "run", "--vram", "4", "sh", "-c", script],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               env=clean_env({"CARVE_RUNTIME_DIR": fake.dir}))
    line = process.stdout.readline()
    assert line == b"ready\n", (line, process.communicate(timeout=60))
    return process


@pytest.mark.parametrize("name", ["TERM", "HUP", "USR1", "USR2", "INT", "QUIT", "ALRM", "PIPE",
                                  "PROF", "VTALRM", "POLL", "PWR", "ABRT", "XCPU", "URG", "WINCH",
                                  "CONT", "RTMIN", "RTMAX"])
def test_run_forwards_signals(fake, name):
    number = int(getattr(signal, "SIG" + name))
    process = started(fake, f"trap 'echo got {name}; exit 9' {number}; echo ready; "
                            "while :; do sleep 0.02; done")
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    assert (process.returncode, out) == (9, f"got {name}\n".encode())


def test_run_killed_leaves_its_command_registered(fake):
    process = started(fake, "echo ready; echo $$; exec sleep 30")
    pid = int(process.stdout.readline())
    assert fake.commands[-1] == ("s-abc123", pid)
    process.kill()
    process.wait(60)
    os.kill(pid, 0)
    os.kill(pid, signal.SIGKILL)
    process.stdout.close()
    process.stderr.close()


def test_ctrl_c_reaches_the_command_once(fake, tmp_path):
    script = ("import signal, time\nn = []\nsignal.signal(signal.SIGINT, lambda *a: n.append(1))\n"
              "print('ready', flush=True)\nend = time.monotonic() + 1\n"
              "while time.monotonic() < end: time.sleep(0.05)\nprint('count', len(n), flush=True)\n")
    with terminal([CARVE, "run", "--vram", "4", sys.executable, "-c", script], fake) as (
            process, read):
        read(b"ready")
        os.write(process.terminal, b"\x03")
        assert "count 1" in read(b"count 1")
        assert process.wait() == 0


def test_stopping_and_going_on(fake):
    process = subprocess.Popen([CARVE, "run", "--vram", "4", "sh", "-c",
                                "echo $$; while [ ! -e $0/go ]; do sleep 0.05; done; exit 5",
                                fake.dir], stdout=subprocess.PIPE, start_new_session=True,
                               env=clean_env({"CARVE_RUNTIME_DIR": fake.dir}))
    command = int(process.stdout.readline())

    def stopped():
        states = []
        for pid in (process.pid, command):
            with open(f"/proc/{pid}/stat") as file:
                states.append(file.read().rsplit(")", 1)[1].split()[0])
        # A shell whose child was stopped between vfork and exec waits for it in D.
        return states[0] == "T" and states[1] in "TD"

    os.killpg(process.pid, signal.SIGSTOP)  # as Ctrl-Z does, to the whole job
    wait_until(stopped)
    os.killpg(process.pid, signal.SIGCONT)
    wait_until(lambda: not stopped())
    open(fake.dir + "/go", "w").close()
    process.communicate(timeout=60)
    assert process.returncode == 5


def states_are(wanted, *pids):
    def state(pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0]
    return lambda: all((state(pid) == "T") == wanted for pid in pids)


def test_stopping_carve_alone_stops_the_command(fake):
    # A job of its own in this session: the last signal to stop counts for nothing elsewhere.
    process = subprocess.Popen([CARVE, "run", "--vram", "4", "sh", "-c",
                                "echo $$; while [ ! -e $0/go ]; do sleep 0.05; done; exit 5",
                                fake.dir], stdout=subprocess.PIPE, preexec_fn=os.setpgrp,
                               env=clean_env({"CARVE_RUNTIME_DIR": fake.dir}))
    command = int(process.stdout.readline())
    for _ in range(2):
        process.send_signal(signal.SIGTSTP)
        wait_until(states_are(True, process.pid, command))
        process.send_signal(signal.SIGCONT)
        wait_until(states_are(False, process.pid, command))
    os.kill(command, signal.SIGSTOP)  # somebody else's business
    wait_until(states_are(True, command))
    assert states_are(False, process.pid)()
    os.kill(command, signal.SIGCONT)
    open(fake.dir + "/go", "w").close()
    process.communicate(timeout=60)
    assert process.returncode == 5


def test_a_parent_that_ignores_children_gets_the_status(fake):
    done = subprocess.run([CARVE, "run", "--vram", "4", "sh", "-c", "exit 5"], timeout=60,
                          env=clean_env({"CARVE_RUNTIME_DIR": fake.dir}),
                          preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))
    assert done.returncode == 5


@pytest.fixture
def odd_programs(tmp_path):
    (tmp_path / "plain").write_text("no program\n")
    (tmp_path / "script").write_text("#! /no/such/interpreter -x\n")
    (tmp_path / "script").chmod(0o755)
    (tmp_path / "link").symlink_to("/no/such/target")
    (tmp_path / "data").write_text("no interpreter\n")
    for name, line in (("dos", "#!/bin/sh\r"), ("short", "#!perl9"), ("nested", f"#!{tmp_path}/script"), ("deep", f"#! {tmp_path}/nested"),
                       ("data-script", f"#!{tmp_path}/data"), ("dir-script", f"#!{tmp_path}"), ("loop", f"#!{tmp_path}/loop")):
        (tmp_path / name).write_text(f"{line}\necho hello\n", newline="")
        (tmp_path / name).chmod(0o755)
    return tmp_path


ODD = [("", 126, "is a directory"), ("plain", 126, "is not executable (chmod +x makes it so)"),
       ("script", 126, "its interpreter /no/such/interpreter is not there"), ("link", 127, "is a link to /no/such/target, which is not there"),
       ("absent", 127, "there is no such file"), ("plain/x", 126, "cannot be executed: Not a directory"),
       ("dos", 126, 'its first line ends in CR LF, so that its interpreter would be "/bin/sh" with a CR (sed -i \'s/\\r$//\' '),
       ("short", 126, "its interpreter perl9 is not there: the first line of "),
       ("nested", 126, "its interpreter /no/such/interpreter is not there"), ("deep", 126, "its interpreter /no/such/interpreter is not there"),
       ("data-script", 126, "its interpreter "), ("dir-script", 126, "its interpreter "),
       ("loop", 126, "its interpreter is a script whose interpreter is a script")]


@pytest.mark.parametrize("name, code, why", ODD)
def test_a_command_that_cannot_be_executed_is_told_why(host, odd_programs, name, code, why):
    path = f"{odd_programs}/{name}"
    for argv in (["run", "--vram", "1", "--", path], ["sim", "--", path]):
        done = host.carve(*argv)
        assert done.returncode == code and done.stderr.count("\n") == 1, done.stderr
        assert f"{path}: {why}" in done.stderr, done.stderr
    outside = subprocess.run([BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", path], capture_output=True, text=True, env=clean_env())
    assert outside.returncode == code and f"{path}: {why}" in outside.stderr, outside.stderr


@pytest.mark.parametrize("name, code, why", [
    ("plain", 126, "{0}/plain: is not executable (chmod +x makes it so)"), ("data-script", 126, "{0}/data-script: its interpreter {0}/data is not executable"),
    ("nested", 126, "{0}/nested: its interpreter /no/such/interpreter is not there"), (".", 126, "is a directory"), ("..", 126, "is a directory"),
    ("absent", 127, "command not found"), ("", 127, "command not found")])
def test_a_command_of_the_path_that_cannot_be_executed_is_told_why(host, odd_programs, name, code, why):
    done = host.carve("run", "--vram", "1", "--", name, env={"PATH": f"{odd_programs}:/usr/bin:/bin"})
    assert done.returncode == code and f"{name or repr('')}: {why.format(odd_programs)}" in done.stderr, done.stderr


def test_a_path_without_a_program_is_told_before_a_size_is_missed(host, odd_programs):
    for name, code, why in [("", 126, "is a directory"), ("absent", 127, "there is no such file")]:
        done = host.carve("run", f"{odd_programs}/{name}")
        assert done.returncode == code and f"{odd_programs}/{name}: {why}" in done.stderr and "size" not in done.stderr, done.stderr


def test_a_job_whose_command_cannot_be_executed_is_told_why(host, odd_programs):
    host.carve_json("agent", "--detached", "--queue", "half=0.5")
    for name, code, why in ODD:
        path = f"{odd_programs}/{name}"
        done = host.carve("enqueue", "--queue", "half", "--wait", "--", path)
        assert done.returncode == code and f"{path}: {why}" in done.stderr, done.stderr
