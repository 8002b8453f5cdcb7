"""The service: what systemd itself says of the units, and the daemon under what the unit takes away from it."""
import contextlib
import json
import os
import pathlib
import pwd
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys

import pytest

from child import make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, ROOT, Host, clean_env, listens, open_to_others, run, wait_until
from daemon_client import *
from unit import directive, limit_of_niceness, rights_of_the_unit, user_of_the_unit

pytestmark = pytest.mark.once("the units stand beside the ordinary build, and give the rights that its daemon needs")
UNITS = BUILD / "systemd"
GENERATOR = ROOT / "systemd" / "carve-generator"
SYSTEM = pathlib.Path(__file__).resolve().parents[1]
analyze = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")


@pytest.fixture
def units(tmp_path):
    """As installed, but that the programs they name are there."""
    for unit in UNITS.glob("carve*.s*"):
        text = re.sub(r"^(Exec(?:Start|Reload)=)/\S+/carved ", rf"\1{BUILD}/carved ", unit.read_text(), flags=re.M)
        text = re.sub(r"^(Exec(?:Start|Reload)=)/\S+/(carve-metrics|carve-web) ", rf"\1{BUILD}/\2 ", text, flags=re.M)
        text = re.sub(r"^ExecStart=/\S+/carve ", f"ExecStart={BUILD}/carve ", text, flags=re.M)
        text = re.sub(r"^Documentation=.*\n", "", text, flags=re.M)  # looked up with man, which knows no build tree
        (tmp_path / unit.name).write_text(text)
    return tmp_path


@analyze
def test_systemd_finds_nothing_wrong_with_the_units(units):
    done = run(["systemd-analyze", "verify", *sorted(units.glob("carve*"))],
               env=clean_env({"SYSTEMD_UNIT_PATH": f"{units}:"}))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    service = units / "carved.service"
    service.write_text(service.read_text().replace("[Service]\n", "[Service]\nNoSuchDirective=1\n"))
    done = run(["systemd-analyze", "verify", service], env=clean_env({"SYSTEMD_UNIT_PATH": f"{units}:"}))
    assert "NoSuchDirective" in done.stdout + done.stderr  # it does look


def generated(tmp_path, version):
    """What the generator adds with a systemd of that version: {path: text}."""
    programs, out = tmp_path / "bin", tmp_path / "out"
    programs.mkdir()
    (programs / "systemctl").write_text(f"#!/bin/sh\n[ \"$*\" = --version ] && printf 'systemd {version} ({version}.1-1)\\n+PAM\\n'\n")
    (programs / "systemctl").chmod(0o755)
    done = run([GENERATOR, out, out, out], env=clean_env({"PATH": f"{programs}:{os.environ['PATH']}"}))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    return {str(path.relative_to(out)): path.read_text() for path in out.rglob("*.conf")}


def test_settings_that_a_new_systemd_knows_are_left_out_for_an_old_one(tmp_path):
    """Debian 12 has 252, and would warn of each of them at each start."""
    assert generated(tmp_path, 252) == {}


def test_a_new_systemd_gets_the_settings_that_it_knows(tmp_path):
    found = generated(tmp_path, 254)
    service, warden = found["carved.service.d/50-carve-254.conf"], found["carve-warden.service.d/50-carve-254.conf"]
    assert "FileDescriptorStorePreserve=yes\n" in service and "RestartSteps=6\nRestartMaxDelaySec=5\n" in service
    # The warden looks for this name when it makes jobs' cgroups with a limit of processes.
    assert warden == "[Service]\nDelegateSubgroup=carve-warden\n" and service.startswith("[Service]\n")


@analyze
def test_the_service_is_exposed_to_little(units):
    done = run(["systemd-analyze", "security", "--offline=yes", "--threshold=12", units / "carved.service"])
    assert done.returncode == 0, done.stdout[-2000:]


def test_the_service_is_bounded_and_never_roots():
    """Its limits of the host's memory and processes; and no command of it has a right of root's, nor is a directory of root's given to it."""
    assert directive("MemoryMax") and directive("TasksMax")
    assert directive("User") == ["carve"] and directive("CapabilityBoundingSet") == [""] and not directive("AmbientCapabilities")
    assert not [line for line in (UNITS / "carved.service").read_text().splitlines() if re.match("Exec[A-Za-z]*=.*[+!]/", line)]
    assert directive("StateDirectory") == ["carve"] and not directive("RuntimeDirectory")
    assert directive("RuntimeDirectory", "carve-warden.service") == ["carve carve-claims"]
    assert directive("RuntimeDirectoryPreserve", "carve-warden.service") == ["yes"]


def test_the_service_keeps_descriptors_and_says_so():
    """As the daemon is told by FDSTORE, which systemd before 254 does not set."""
    assert directive("FileDescriptorStoreMax") == [directive("Environment")[0].removeprefix("FDSTORE=")]


def test_one_users_job_does_not_end_the_warden_of_all():
    """Nor the jobs of others, where the kernel ended a process of it, or the warden is started anew."""
    assert directive("OOMPolicy", "carve-warden.service") == ["continue"]
    assert directive("KillMode", "carve-warden.service") == ["process"]
    assert directive("TasksMax", "carve-warden.service") == ["infinity"]


@analyze
@pytest.mark.parametrize("name", ["carve-metrics", "carve-web"])
def test_a_program_that_the_network_reaches_is_exposed_to_little(units, name):
    unit = f"{name}.service"
    done = run(["systemd-analyze", "security", "--offline=yes", "--threshold=25", units / unit])
    assert done.returncode == 0, done.stdout[-2000:]
    assert directive("User", unit) == [name]
    assert directive("CapabilityBoundingSet", unit) == [""]
    assert directive("MemoryMax", unit) and directive("CPUQuota", unit)


@pytest.mark.parametrize("unit", ["carved.service", "carve-warden.service", "carve-metrics.service", "carve-web.service"])
def test_a_service_that_was_mended_starts_without_an_administrators_word(unit):
    """systemd gives up after five failures in 10 s, and closes the sockets, where no directive says otherwise."""
    assert directive("StartLimitIntervalSec", unit) == ["0"] and directive("Restart", unit) == ["on-failure"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
@pytest.mark.parametrize("manager", ["--system", "--user"])
def test_ends_of_jobs_are_told_by_a_unit_of_each_manager(units, tmp_path, manager):
    """Its cursor is in a directory that outlives a restart of the host, and a service that fails is tried again for ever."""
    unit = "carve-events@.service"
    done = run(["systemd-analyze", manager, "verify", units / "carve-events@slack.service"], env=clean_env({"SYSTEMD_UNIT_PATH": f"{units}:", "XDG_RUNTIME_DIR": str(tmp_path)}))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert directive("ExecStart", unit)[0].endswith("/carve job events --cursor-file ${STATE_DIRECTORY}/%i.json")
    assert directive("StateDirectory", unit) == ["carve-events"] and directive("EnvironmentFile", unit) == ["%E/carve/events/%i.env"]
    assert directive("Restart", unit) == ["always"] and directive("StartLimitIntervalSec", unit) == ["0"]


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_events_of_the_node_are_told_by_a_unit(units):
    unit = "carve-node-events@.service"
    done = run(["systemd-analyze", "--system", "verify", units / "carve-node-events@slack.service"], env=clean_env({"SYSTEMD_UNIT_PATH": f"{units}:"}))
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    assert directive("ExecStart", unit)[0].endswith("/carve events --cursor-file ${STATE_DIRECTORY}/%i.json")
    assert directive("StateDirectory", unit) == ["carve-node-events"] and directive("EnvironmentFile", unit) == ["%E/carve/node-events/%i.env"]
    assert directive("Restart", unit) == ["always"] and directive("StartLimitIntervalSec", unit) == ["0"]


def children(pid):
    """Folders of /proc."""
    for line in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        yield pathlib.Path("/proc", line)


wardens = {}  # {place: process}


def serve_confined(host, place, *options, env=(), before=(), between=()):
    """As the units do: the warden has all rights, and the daemon is its unit's user, without any. unit.py is systemd."""
    user = options[options.index("--user") + 1] if "--user" in options else None
    place.mkdir(exist_ok=True)
    place.chmod(0o755)
    warden_end(place)  # of a daemon that has ended by itself
    (place / "warden.sock").unlink(missing_ok=True)
    with open(place.parent / "warden.log", "w") as log:
        warden = subprocess.Popen([BUILD / "carved", "--system", "--runtime-dir", place, "--warden", *options], env=host.env,
                                  stdin=subprocess.DEVNULL, stderr=log)
    wait_until((place / "warden.sock").exists)
    read, write = os.pipe()
    with open(place.parent / "service.log", "w") as log:
        daemon = subprocess.Popen([*before, sys.executable, SYSTEM / "unit.py", place, *between, *rights_of_the_unit(user), BUILD / "carved", "--system",
                                   "--runtime-dir", place, "--foreground", *options, "--ready-fd", str(write)],
                                  env={**host.env, **dict(env)}, stdin=subprocess.DEVNULL, stderr=log, pass_fds=[write])
    os.close(write)
    wardens[place] = warden
    assert os.read(read, 1) == b"R", (place.parent / "service.log").read_text()
    os.close(read)
    return daemon


def warden_end(place):
    warden = wardens.pop(place, None)
    if warden:
        warden.terminate()
        warden.wait(60)


def stop(daemon):
    daemon.terminate()
    daemon.wait(60)


@pytest.fixture
def unserved():
    """A simulated host that a system daemon may serve; and the place for that."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    host = Host("h100-80gb")
    open_to_others(host)
    place = pathlib.Path(host.env["CARVE_RUNTIME_DIR"])
    yield host, place
    warden_end(place)
    host.close()


@pytest.fixture
def confined(unserved):
    """A system daemon of a simulated host, with the unit's capabilities."""
    host, place = unserved
    daemon = serve_confined(host, place)
    yield host, daemon, place
    stop(daemon)


@pytest.mark.parametrize("state", ["usual", "named in the file"])
def test_with_the_units_rights_a_wrong_file_does_not_take_the_service_down(unserved, state):
    """The settings that were right last lie with the daemon's user, whose files root may not read without rights."""
    host, place = unserved
    config = place.parent / "carved.json"
    settings = {"history_sessions": 123} | ({"state_dir": str(place.parent / "state")} if state != "usual" else {})
    config.write_text(json.dumps(settings))
    config.chmod(0o644)
    stop(serve_confined(host, place, "--config", config))
    assert "not_kept" not in (place.parent / "service.log").read_text()
    config.write_text("{bad")
    daemon = serve_confined(host, place, "--config", config)
    try:
        log = (place.parent / "service.log").read_text()
        assert "config.refused" in log and "settings=last" in log
        assert host.carve("session", "request", "--vram", "1").returncode == 0
        assert "carved.json" in host.carve("check").stdout
    finally:
        stop(daemon)


@pytest.mark.parametrize("wrong", ["a directory under a file", "a directory that is another's"])
def test_with_the_units_rights_an_unusable_state_directory_does_not_take_the_service_down(unserved, wrong):
    """The file is right in itself: a reload takes it, and a restart goes on where the sessions are."""
    host, place = unserved
    config, elsewhere = place.parent / "carved.json", place.parent / "elsewhere"
    config.write_text('{"history_sessions": 123}')
    daemon = serve_confined(host, place, "--config", config)
    session = host.carve_json("session", "request", "--vram", "1")["id"]
    stop(daemon)
    if wrong == "a directory under a file":
        (place.parent / "file").write_text("")
        elsewhere = place.parent / "file" / "none"
    else:
        elsewhere.mkdir()
        os.chown(elsewhere, 61234, 61234)
    config.write_text(json.dumps({"state_dir": str(elsewhere)}))
    daemon = serve_confined(host, place, "--config", config)
    try:
        assert "state.stays" in (place.parent / "warden.log").read_text()
        assert host.carve_json("session", "show", session)["state"] == "active"
        said = host.carve("check").stdout
        assert f"not in {elsewhere}; stop carved, and type: " in said
        last = next(p for p in (place / "state" / "carved.json.last", place / "carved.json.last") if p.exists())
        assert json.loads(last.read_text()) == {"history_sessions": 123}  # the copy that was good
    finally:
        stop(daemon)


def test_with_the_units_rights_a_file_that_is_gone_does_not_take_the_service_down(unserved):
    host, place = unserved
    config = place.parent / "carved.json"
    config.write_text('{"history_sessions": 123}')
    stop(serve_confined(host, place, "--config", config))
    config.unlink()
    daemon = serve_confined(host, place, "--config", config)
    try:
        log = (place.parent / "service.log").read_text()
        assert "config.refused" in log and "settings=last" in log
        assert str(config) in host.carve("check").stdout
        config.write_text("{}")
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: "config.read" in (place.parent / "service.log").read_text())
    finally:
        stop(daemon)


def test_with_the_units_rights_the_settings_of_the_last_good_reload_hold_after_a_crash(unserved):
    """The warden has read the file at its start, and does not know what a reload read later."""
    host, place = unserved
    config, log = place.parent / "carved.json", place.parent / "service.log"
    config.write_text("{}")
    config.chmod(0o644)
    daemon = serve_confined(host, place, "--config", config)
    try:
        config.write_text('{"defaults": {"vram": "10GiB", "sessions": 10}, "session_timeout_max": "1h"}')
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: "config.read" in log.read_text())
        limits = host.carve("limits").stdout
        assert "10 GiB" in limits
        config.write_text("{bad")
        daemon.send_signal(signal.SIGHUP)
        wait_until(lambda: "config.refused" in log.read_text())
        os.kill(host.daemon_pid(), signal.SIGKILL)
        wait_until(lambda: "settings=last" in log.read_text())
        assert host.carve("limits").stdout == limits
    finally:
        stop(daemon)


@pytest.mark.parametrize("file", ["attach.sock", "carved.sock", "lock", "containers", "carve.db", "."])
def test_with_the_units_rights_a_file_that_vanishes_is_made_anew(confined, file):
    """By the warden, as the directory is root's and the worker is not."""
    host, daemon, place = confined
    before = (place / "attach.sock").stat().st_ino
    shutil.rmtree(place / file) if file in ("containers", ".") else (place / file).unlink()
    if file == ".":
        wait_until((place / "warden.sock").exists)
        assert place.stat().st_mode & 0o777 == 0o755
        file = "lock"  # it is noticed first
    wait_until((place / file).exists)
    wait_until(lambda: f"file={file} made=anew" in (place.parent / "service.log").read_text())
    assert host.carve("run", "--ephemeral", "--vram", "1", "true").returncode == 0
    assert daemon.poll() is None and (place / file).lstat().st_uid == 0
    if file == "containers":
        assert (place / file).stat().st_mode & 0o777 == 0o755
        assert (place / file / "attach.sock").samefile(place / "attach.sock")
    if file == "attach.sock":
        assert (place / file).stat().st_ino != before
        assert (place / "containers" / file).stat().st_ino == (place / file).stat().st_ino
    if file == "lock":
        second = host.run([BUILD / "carved", "--system", "--runtime-dir", place, "--foreground"], timeout=30)
        assert second.returncode != 0 and "already" in second.stderr


@pytest.fixture
def claims_of(unserved, request):
    """A system daemon that serves as a user whom no other test's does, and that user's directory of claims."""
    host, place = unserved
    claims = pathlib.Path("/run/carve-claims", str(pwd.getpwnam(request.param).pw_uid))

    def serve(**env):
        daemon = serve_confined(host, place, "--user", request.param, env=env)
        wait_until(lambda: any(not p.name.startswith(".") for p in claims.iterdir()))
        return daemon

    yield host, place, claims, serve
    shutil.rmtree(claims, ignore_errors=True)


@pytest.mark.parametrize("claims_of", ["games"], indirect=True)
def test_a_daemon_whose_directory_of_claims_vanished_is_started_anew(claims_of):
    """Only root can make it, as ExecStartPre= does. Without it users' daemons would have the same GPUs."""
    host, place, claims, serve = claims_of
    daemon = serve()
    try:
        before = host.daemon_pid()
        shutil.rmtree(claims)
        wait_until(lambda: host.daemon_pid() != before)
        assert "runtime.vanished file=/run/carve-claims" in (place.parent / "service.log").read_text()
        told = host.carve("check").stdout
        assert "removed" in told and "/run/carve-claims" in told
    finally:
        stop(daemon)


def serve_without(host, place, module):
    """A service on a host without a module of the driver, which the function loads."""
    devices = place.parent / "devices"
    lines = ["Character devices:", "  1 mem", "195 nvidia", "510 nvidia-uvm", "", "Block devices:", "  7 loop"]
    devices.write_text("\n".join(line for line in lines if not line.endswith(f" {module}")))
    devices.chmod(0o644)
    before = ["unshare", "-m", "--propagation", "private", "sh", "-c", f'mount --bind {devices} /proc/devices && exec "$@"', "sh"]

    def serve():
        return serve_confined(host, place, before=before)

    return serve, lambda: devices.write_text("\n".join(lines))


@pytest.mark.parametrize("module", ["nvidia", "nvidia-uvm"])
def test_a_daemon_is_started_anew_where_a_module_of_the_driver_comes_later(unserved, module):
    """systemd looks up which device nodes a service may open when it starts that."""
    host, place = unserved
    serve, load = serve_without(host, place, module)
    daemon = serve()
    try:
        granted, before = host.carve_json("session", "request", "--vram", "1")["id"], host.daemon_pid()
        load()
        wait_until(lambda: host.daemon_pid() != before)
        assert "module was loaded after the service had started" in (place.parent / "service.log").read_text()
        assert [s["id"] for s in host.carve_json("session", "list")] == [granted]
    finally:
        stop(daemon)


@pytest.mark.parametrize("gone", ["attach.sock", "carved.sock", "both"])
def test_a_socket_of_systemd_whose_file_vanished_is_replaced_at_the_next_start(unserved, gone):
    """systemd hands the same ones over at each start, which nobody can reach: all starts failed."""
    host, place = unserved
    files = [name for name in ("attach.sock", "carved.sock") if gone in (name, "both")]
    # While no daemon looks: unit.py has made them, and its daemon begins later.
    remove = " && ".join(f'rm "$0/{name}"' for name in files)
    daemon = serve_confined(host, place, between=["sh", "-c", f'if [ ! -e "$0/removed" ]; then {remove}; touch "$0/removed"; fi; exec "$@"', place])
    try:
        assert host.carve("run", "--ephemeral", "--vram", "1", "true").returncode == 0
        log = (place.parent / "service.log").read_text()
        assert log.count("made=anew") == len(files), log
        told = host.carve("check").stdout
        assert "removed" in told and files[-1] in told
        # The warden has them while the daemon is away: clients wait, and systemd's are not needed.
        before = host.daemon_pid()
        os.kill(before, signal.SIGKILL)
        connection = UnixConnection(place / "carved.sock")  # not refused
        connection.request("GET", "/v1/version")
        told = json.loads(connection.getresponse().read())
        assert told["pid"] != before and told["vanished"]["file"] == files[-1]
        assert (place.parent / "service.log").read_text().count("made=anew") == len(files)
        # systemd's are bound anew: the warden's are of no use any more.
        daemon.send_signal(signal.SIGUSR1)
        wait_until(lambda: host.daemon_pid() not in (before, told["pid"]))
        assert host.carve("run", "--ephemeral", "--vram", "1", "true").returncode == 0
        assert peer_of(place / "carved.sock") == daemon.pid
        assert (place.parent / "service.log").read_text().count("made=anew") == len(files)
    finally:
        stop(daemon)


def test_the_units_reload_reaches_the_daemon(unserved):
    """Each of its commands with the rights that systemd gives it."""
    host, place = unserved
    config = place.parent / "carved.json"
    config.write_text("{}")
    daemon = serve_confined(host, place, "--config", config)
    try:
        config.write_text('{"history_sessions": 7}')
        for line in directive("ExecReload"):
            argv = [{"$MAINPID": str(host.daemon_pid())}.get(word, word) for word in line.split()]
            if argv[0].endswith("/carved"):
                argv = [str(BUILD / "carved"), "--config", str(config), "--check-config"]
            done = run([*rights_of_the_unit(), *argv])
            assert done.returncode == 0, done.stderr
        wait_until(lambda: "config.read" in (place.parent / "service.log").read_text())
    finally:
        stop(daemon)


@pytest.mark.skipif(not shutil.which("systemd-sysusers"), reason="needs systemd-sysusers")
def test_systemd_makes_the_user_of_the_daemon(tmp_path):
    (tmp_path / "etc").mkdir()
    conf = tmp_path / "carve.conf"
    shutil.copy(ROOT / "systemd/carve-sysusers.conf", conf)
    done = run(["systemd-sysusers", f"--root={tmp_path}", conf])
    assert (done.returncode, done.stderr.count("not a valid")) == (0, 0), done.stderr
    user, = [l for l in (tmp_path / "etc/passwd").read_text().splitlines() if l.startswith("carve:")]
    assert user.split(":")[5] == "/var/lib/carve"
    assert "carve:" in (tmp_path / "etc/group").read_text()


def test_with_the_units_rights_it_does_all_that_it_must(confined, examples):
    """Grants, learns, watches, takes ledgers back after its death, ends processes of others; its lease thread is first."""
    host, _, place = confined
    daemon = host.daemon_pid()
    status = pathlib.Path(f"/proc/{daemon}/status").read_text()
    assert "NoNewPrivs:\t1" in status
    assert {int(c, 16) for c in re.findall(r"Cap\w+:\s*(\S+)", status)} == {0}
    assert re.search(r"Uid:\s*(\S+)", status)[1] != "0" and "Seccomp:\t2" in status
    assert not [p for p in children(daemon) if (p / "comm").read_text() == "carve-warden\n"]  # it is another service
    threads = {(t / "comm").read_text().strip(): int((t / "stat").read_text().rsplit(") ", 1)[1].split()[16])
               for t in pathlib.Path(f"/proc/{daemon}/task").iterdir()}
    assert threads["leases"] == (-10 if limit_of_niceness() else 0)
    hog = host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "2", examples / "hog", "600"])
    session = wait_until(lambda: [s for s in host.carve_json("session", "list") if s["pids"]])[0]
    # Its program is replaced, with the same rights.
    done = host.run([BUILD / "carved", "--runtime-dir", place, "--takeover"])
    assert done.returncode == 0, done.stderr
    rights = pathlib.Path(f"/proc/{host.daemon_pid()}/status").read_text()
    assert {int(c, 16) for c in re.findall(r"Cap\w+:\s*(\S+)", rights)} == {0}
    assert host.carve_json("session", "show", session["id"])["pids"] == session["pids"]
    done = host.carve("session", "release", "--force", session["id"])
    assert done.returncode == 0, done.stderr
    hog.wait(60)
    log = (place.parent / "service.log").read_text()
    assert "context.learned" in log and " error " not in log, log


def test_no_system_call_that_the_unit_takes_away_is_made(tmp_path, examples):
    """The system calls of the daemon while it serves, against systemd's own lists."""
    if not shutil.which("strace") or not shutil.which("systemd-analyze"):
        pytest.skip("needs strace and systemd-analyze")
    taken, names = set(), [s for s in directive("SystemCallFilter")[0].lstrip("~").split()]
    while names:
        lines = run(["systemd-analyze", "syscall-filter", names.pop()]).stdout.splitlines()
        for line in (line.strip() for line in lines[1:]):
            if line.startswith("@"):
                names.append(line)
            elif line and not line.startswith("#"):
                taken.add(line)
    assert {"ptrace", "mount", "reboot"} <= taken
    host = Host("h100-80gb")
    place = pathlib.Path(host.env["CARVE_RUNTIME_DIR"])
    read, write = os.pipe()
    trace = subprocess.Popen(["strace", "-f", "-c", "-o", tmp_path / "calls", BUILD / "carved", "--runtime-dir", place,
                              "--foreground", "--ready-fd", str(write)], env=host.env, stdin=subprocess.DEVNULL,
                             stderr=subprocess.DEVNULL, pass_fds=[write])
    os.close(write)
    try:
        if os.read(read, 1) != b"R":
            pytest.skip("strace is not permitted here")
        host.carve_json("timeslicing", "--mode", "fair")
        assert host.carve("run", "--ephemeral", "--gpu", "0.25", examples / "matmul", timeout=120).returncode == 0
        assert host.carve("session", "request", "--vram", "2", timeout=60).returncode == 0
        os.kill(host.daemon_pid(), signal.SIGTERM)
        trace.wait(60)  # with the supervisor, which ends with it
    finally:
        trace.kill()
        trace.wait()
        os.close(read)
        host.close()
    called = {line.split()[-1] for line in (tmp_path / "calls").read_text().splitlines()[2:-2]}
    assert "epoll_wait" in called or "epoll_pwait" in called
    assert not called & taken


@pytest.mark.skipif(not shutil.which("systemd-socket-activate"), reason="needs systemd-socket-activate")
def test_sockets_that_systemd_makes(tmp_path):
    """The first client starts it, through systemd's own activator; names and kinds are the units'."""
    names = {(UNITS / f"{n}.socket").read_text().split("FileDescriptorName=")[1].split()[0]
             for n in ("carved", "carved-attach")}
    assert names == {"http", "attach"}
    dir = tmp_path / "run"
    dir.mkdir(mode=0o700)
    # It makes sockets of one kind only: attach.sock is stream here, and nobody attaches.
    daemon = subprocess.Popen(
        ["systemd-socket-activate", "-l", dir / "carved.sock", "-l", dir / "attach.sock", "--fdname=http:attach",
         "-E", "FAKE_NVML", "-E", "LD_LIBRARY_PATH", BUILD / "carved", "--runtime-dir", dir, "--foreground"],
        env=clean_env({"FAKE_NVML": str(tmp_path / "state"), "LD_LIBRARY_PATH": str(BUILD / "tests/programs/fake_nvml")}),
        stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    (tmp_path / "state").write_text(f"gpu {80 * GIB} 0 0 Fake H100\n")
    try:
        wait_until((dir / "attach.sock").exists)
        inode = os.stat(dir / "carved.sock").st_ino
        connection = UnixConnection(dir / "carved.sock")
        connection.request("GET", "/v1/gpus")
        assert connection.getresponse().status == 200
        assert os.stat(dir / "carved.sock").st_ino == inode
        assert run([BUILD / "carve", "gpu", "list"], env=clean_env({"CARVE_RUNTIME_DIR": str(dir)})).returncode == 0
    finally:
        daemon.terminate()
        daemon.wait(60)
    assert (dir / "carved.sock").exists()


def peer_of(path):
    """The process that listens there."""
    with socket.socket(socket.AF_UNIX) as s:
        s.connect(str(path))
        return struct.unpack("3i", s.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[0]


def version(dir):
    connection = UnixConnection(dir / "carved.sock")
    connection.request("GET", "/v1/version")
    answer = json.loads(connection.getresponse().read())
    connection.close()
    return answer


def test_the_journal_is_told_levels_and_a_file_times(tmp_path):
    """JOURNAL_STREAM names the standard error that is the journal's; any other standard error has lines with times."""
    (tmp_path / "state").write_text(f"gpu {80 * GIB} 0 0 Fake H100\n")
    env = clean_env({"FAKE_NVML": str(tmp_path / "state"), "LD_LIBRARY_PATH": str(BUILD / "tests/programs/fake_nvml")})
    read, write = os.pipe()
    stat = os.fstat(write)
    for stream, head in ((f"{stat.st_dev}:{stat.st_ino}", "<6>carved.listening"), (f"{stat.st_dev}:1", "20"), ("x", "20")):
        daemon = subprocess.Popen([BUILD / "carved", "--runtime-dir", tmp_path / "run", "--foreground"],
                                  env=dict(env, JOURNAL_STREAM=stream), stdin=subprocess.DEVNULL, stderr=write)
        wait_until(lambda: listens(tmp_path / "run" / "carved.sock") and version(tmp_path / "run")["ready"])
        daemon.terminate()
        assert daemon.wait(60) == 0
        lines = os.read(read, 65536).decode().splitlines()
        assert all(line.startswith("<" if head[0] == "<" else "20") for line in lines), lines
        assert any(line.startswith(head) for line in lines) and any("carved.stopping" in line for line in lines)
        assert "<4>context.unknown" in "".join(lines) or head == "20"
    os.close(read)
    os.close(write)


def test_a_log_that_nobody_reads_stops_no_daemon(tmp_path):
    """As a journal whose disk hangs, and a terminal that was stopped."""
    (tmp_path / "state").write_text(f"gpu {80 * GIB} 0 0 Fake H100\n")
    env = clean_env({"FAKE_NVML": str(tmp_path / "state"), "LD_LIBRARY_PATH": str(BUILD / "tests/programs/fake_nvml")})
    read, write = os.pipe()
    daemon = subprocess.Popen([BUILD / "carved", "--runtime-dir", tmp_path / "run", "--foreground"], env=env,
                              stdin=subprocess.DEVNULL, stderr=write)
    carve = [BUILD / "carve", "--host", tmp_path / "run" / "carved.sock"]
    try:
        wait_until(lambda: listens(tmp_path / "run" / "carved.sock") and version(tmp_path / "run")["ready"])
        # Another description of the pipe: that of the daemon goes on waiting.
        filler = os.open(f"/proc/self/fd/{write}", os.O_WRONLY | os.O_NONBLOCK)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(filler, b"x" * 4095 + b"\n")
        assert run([*carve, "session", "request", "--vram", "1"], timeout=60).returncode == 0
        os.read(read, 1 << 20)
        assert run([*carve, "session", "release"], timeout=60).returncode == 0
        log = os.read(read, 1 << 20).decode()
        assert "log.dropped lines=" in log and "session.ended" in log
    finally:
        daemon.kill()
        daemon.wait(60)
        os.close(read)
        os.close(write)
