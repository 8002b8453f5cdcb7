"""Records that outlive a reboot: quotas, time-slicing and history, in the state directory; sessions never do."""
import contextlib
import os
import pathlib
import shutil
import sqlite3
import subprocess
import tempfile
import time

import pytest

from child import make_child, observe  # noqa: F401: fixtures
from conftest import BUILD, administrator, clean_env, run, wait_until
from daemon_client import *
from own_daemon import daemon, make_daemon, set_quota  # noqa: F401: fixtures
from disk import fill, tiny_disk  # noqa: F401: fixtures
from takeover import takeover, upgrade


@pytest.fixture
def state(tmp_path):
    return tmp_path / "state" / "carve"


@pytest.fixture
def durable(make_daemon, state):
    """With a state directory, which it makes."""
    return make_daemon(args=["--state-dir", state])


def database(place):
    return contextlib.closing(sqlite3.connect(place / "carve.db"))


def another_boot(place):
    """As if the host had been started anew since."""
    with database(place) as db, db:
        assert db.execute("SELECT boot FROM host").fetchone()[0] == \
            pathlib.Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        db.execute("UPDATE host SET boot='5f0ae3c2-0000-4000-8000-000000000000'")


def settings(daemon):
    slicing = daemon.call("GET", "/v1/timeslicing").json
    quotas = daemon.call("GET", "/v1/quotas").json
    return ([{k: v for k, v in quota.items() if k != "used"} for quota in quotas],
            [(gpu["gpu"], gpu["mode"], gpu["lease_ns"], gpu["granularity"]) for gpu in slicing])


def living(daemon):
    return {s["id"]: s["vram_bytes"] for s in daemon.call("GET", "/v1/sessions").json}


def history(daemon):
    return {s["id"]: s for s in daemon.all_sessions() if s["state"] == "ended"}


def use(daemon):
    """Something of everything. The living sessions and one that ended."""
    if administrator():
        set_quota(daemon, str(os.geteuid()), vram="70", sessions=100)
    assert daemon.call("PUT", "/v1/timeslicing", {"mode": "fair", "lease": "100ms"}).status == 200
    ended = daemon.grant(vram="3", name="done")["id"]
    assert daemon.release(ended).status == 200
    daemon.request(vram="2", ephemeral=False, name="mine")
    daemon.grant(vram="4", name="one-off")
    return living(daemon), ended


def test_a_reboot_ends_sessions_and_nothing_else(durable, state, make_child):
    before = time.time()
    sessions, ended = use(durable)
    child = make_child(durable, next(iter(sessions)))
    child.say(f"charge {GIB}")
    was = settings(durable)
    assert bool(was[0]) == administrator() and was[1][0][1] == "fair"
    durable.kill()
    child.kill()
    shutil.rmtree(durable.runtime)
    another_boot(state)
    durable.start()
    assert settings(durable) == was
    assert living(durable) == {} and durable.gpu()["available_bytes"] == 80 * GIB
    told = history(durable)
    assert set(told) == {*sessions, ended} and told[ended]["reason"] == "released"
    for id, bytes in sessions.items():
        assert told[id]["reason"] == "host restarted" and told[id]["vram_bytes"] == bytes
        assert told[id]["created"] <= told[id]["ended"]
        assert told[id]["gpus"][0]["peak_bytes"] is None  # nobody saw it
    assert f"host.restarted sessions_ended={len(sessions)}" in durable.log()
    # It is said once, and who comes now is of this life of the host.
    id = durable.request(vram="5", ephemeral=False).json["id"]
    durable.restart()
    assert list(living(durable)) == [id] and history(durable) == told
    listed = run([BUILD / "carve", "session", "list", "--all"], env=clean_env({"CARVE_RUNTIME_DIR": str(durable.runtime)}))
    assert listed.stdout.count("host restarted") == len(sessions), listed.stdout + listed.stderr
    assert time.time() - before < 3600  # or the clock was set, and times above mean little


def test_without_a_reboot_sessions_live_on(durable, state, make_child):
    sessions, _ = use(durable)
    child = make_child(durable, next(iter(sessions)))
    child.say(f"charge {GIB}")
    ledger = observe(durable, next(iter(sessions)))
    durable.kill()
    shutil.rmtree(durable.runtime)  # who cleans up /run does not end sessions
    durable.start()
    assert living(durable) == sessions
    wait_until(lambda: durable.show(next(iter(sessions)))["pids"] == [child.pid])
    assert ledger.committed() == GIB
    assert os.readlink(durable.runtime / "carve.db") == str(state / "carve.db")
    assert state.stat().st_mode & 0o777 == 0o700 and (state / "carve.db").stat().st_mode & 0o777 == 0o600


def backup(place, copies):
    """As `sqlite3 DATABASE ".backup COPY"` does, while the daemon runs (docs/admin/backup.md)."""
    copies.mkdir()
    for name in ("carve.db", "queue.db"):
        with contextlib.closing(sqlite3.connect(place / name)) as live, contextlib.closing(sqlite3.connect(copies / name)) as copy:
            live.backup(copy)


def lose_and_restore(daemon, place, copies):
    """The daemon ends with its state directory, and a new one has the copies alone."""
    daemon.kill()
    shutil.rmtree(place)
    place.mkdir(mode=0o700)
    for copy in copies.iterdir():
        shutil.copy(copy, place)


@pytest.mark.parametrize("booted", [False, True], ids=["same-boot", "another-boot"])
def test_a_backup_of_a_running_daemon_brings_back_its_settings_and_sessions(durable, state, tmp_path, booted):
    sessions, ended = use(durable)
    was = settings(durable)
    backup(state, tmp_path / "copies")
    later = durable.request(vram="5", ephemeral=False, name="later").json["id"]
    lose_and_restore(durable, state, tmp_path / "copies")
    if booted:
        another_boot(state)
    durable.start()
    assert settings(durable) == was and later not in living(durable)
    assert living(durable) == ({} if booted else sessions)
    assert set(history(durable)) == ({*sessions, ended} if booted else {ended})
    # A session that comes now is kept, as in any database of the daemon's.
    id = durable.request(vram="5", ephemeral=False, name="after").json["id"]
    durable.restart()
    assert id in living(durable) and settings(durable) == was


def test_an_unwritable_boot_id_is_written_later(tiny_disk, make_daemon, tmp_path):
    """A disk that is full when the host starts: nothing is resurrected, and nothing granted on top of it."""
    daemon = make_daemon(args=["--state-dir", tiny_disk / "state"])
    place, filler = tiny_disk / "state", tiny_disk / "filler"
    old = daemon.grant(vram="10")["id"]
    another_boot(place)
    daemon.kill()
    fill(filler)
    daemon.start()
    full = daemon.request(vram="1")
    assert living(daemon) == ({} if full.status != 201 else {full.json["id"]: GIB})
    daemon.restart()  # in the middle of it
    assert old not in living(daemon)
    filler.unlink()
    new = daemon.grant(vram="2")["id"]
    daemon.restart()
    assert new in living(daemon) and old not in living(daemon)
    assert history(daemon)[old]["reason"] == "host restarted"


# ---- from one place to another ----

def refused(daemon, text):
    daemon.start(wait=False)
    assert daemon.process.wait(60) == 1
    assert text in daemon.log(), daemon.log()


def moved(daemon):
    """Does what the log's last hint says."""
    wait_until(lambda: "stop carved, and type: " in daemon.log())
    daemon.process.terminate()  # a supervisor that has ledgers goes on trying
    daemon.process.wait(60)
    command = daemon.log().rpartition("stop carved, and type: ")[2].splitlines()[0].rstrip('"')
    (daemon.dir / "log").unlink()
    assert run(["sh", "-c", command]).returncode == 0, command


@pytest.fixture
def short():
    """A directory whose paths fit into a hint."""
    with tempfile.TemporaryDirectory() as path:
        yield pathlib.Path(path)


def test_sessions_are_moved_by_the_command_that_the_refusal_names(daemon, short, make_child):
    sessions, ended = use(daemon)
    child = make_child(daemon, next(iter(sessions)))
    child.say(f"charge {GIB}")
    was = settings(daemon)
    places = [daemon.runtime, short / "a", short / "b", daemon.runtime]
    for old, new in zip(places, places[1:]):
        daemon.kill()
        daemon.args = ["--state-dir", new]
        daemon.start(wait=False)
        wait_until(lambda: f"the sessions are kept in {old}, not in {new}" in daemon.log())  # noqa: B023
        moved(daemon)
        daemon.start()
        assert living(daemon) == sessions and settings(daemon) == was and set(history(daemon)) == {ended}
        wait_until(lambda: daemon.show(next(iter(sessions)))["pids"] == [child.pid])
        assert (daemon.runtime / "carve.db").is_symlink() == (new != daemon.runtime)
        # From then on they are there, and a daemon that is told no place finds them.
        daemon.args = []
        daemon.restart()
        assert living(daemon) == sessions


def test_a_command_that_is_too_long_is_not_shown(daemon, tmp_path):
    daemon.kill()
    daemon.args = ["--state-dir", tmp_path / ("long" * 50)]
    refused(daemon, "the sessions are kept in")
    assert "stop carved, and move the files there" in daemon.log() and "mv " not in daemon.log()
    daemon.args = []
    daemon.start()


def test_a_database_in_the_new_place_is_not_moved_over(durable, make_daemon, state):
    sessions, _ = use(durable)
    durable.kill()
    other = make_daemon()
    session = other.grant(vram="1")["id"]
    other.kill()
    other.args = ["--state-dir", state]
    refused(other, f"{state}/carve.db is another database: move it away")
    durable.start()
    assert living(durable) == sessions
    other.args = []
    other.start()
    assert list(living(other)) == [session]


def test_a_link_that_cannot_be_made_is_told(daemon, state):
    daemon.kill()
    for file in daemon.runtime.glob("carve.db*"):
        file.unlink()
    (daemon.runtime / "carve.db.new").mkdir()
    daemon.args = ["--state-dir", state]
    refused(daemon, "cannot make the link")
    (daemon.runtime / "carve.db.new").rmdir()
    daemon.start()


# ---- who may not ----

def test_a_place_that_cannot_be_used(daemon, tmp_path):
    daemon.kill()
    shutil.rmtree(daemon.runtime)
    (tmp_path / "file").write_text("")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for place, text in ((tmp_path / "file", "cannot write the state directory"),
                        (tmp_path / "file/below", "cannot write the state directory"),
                        (tmp_path / "open", "not one of yours that only you can write")):
        daemon.args = ["--state-dir", place]
        refused(daemon, text)
        assert "name another with --state-dir DIR" in daemon.log()
        (daemon.dir / "log").unlink()
    daemon.args = []
    daemon.start()
    done = run([BUILD / "carved", "--runtime-dir", daemon.runtime, "--state-dir", "relative"])
    assert done.returncode == 2 and "absolute path" in done.stderr


def test_one_daemon_keeps_its_sessions_in_one_place(durable, make_daemon, state):
    other = make_daemon()
    other.kill()
    shutil.rmtree(other.runtime)
    other.args = ["--state-dir", state]
    refused(other, f"a carved (pid {durable.pid}) keeps its sessions in {state} already")
    upgrade(durable)  # which keeps the lock
    (other.dir / "log").unlink()
    refused(other, "keeps its sessions in")
    other.args = []
    other.start()


def test_the_database_in_the_state_directory_is_damaged(durable, state):
    durable.kill()
    (state / "carve.db").write_bytes(b"not a database, whatever else" * 200)
    for left in state.glob("carve.db-[ws]*"):
        left.unlink()
    refused(durable, f"{state}/carve.db: it is damaged")
    (state / "carve.db").rename(state / "away")
    durable.start()
    assert living(durable) == {}


def test_pages_of_the_database_are_damaged(durable, state):
    """Its first page is whole, so it opens."""
    durable.kill()
    file = state / "carve.db"
    with database(state) as db:
        db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    whole = file.read_bytes()
    file.write_bytes(whole[:4096] + b"\xa5" * (len(whole) - 4096))
    refused(durable, f"{file}: it is damaged")
    file.rename(state / "away")
    durable.start()
    assert living(durable) == {}


# ---- a configuration that is wrong ----

def test_a_wrong_configuration_leaves_the_last_good_settings(make_daemon, tmp_path, state):
    config = tmp_path / "config.json"
    config.write_text(f'{{"state_dir": "{state}", "timeSlicing": {{"mode": "fair"}}}}')
    daemon = make_daemon(args=["--config", config])
    session = daemon.grant(vram="2")["id"]

    def told():
        return daemon.call("GET", "/v1/version").json["config_error"]
    config.write_text('{"timeSlicing": {"mode": "fare"}}')
    daemon.reload()
    wait_until(told)
    for _ in range(2):
        daemon.restart()
        assert session in living(daemon) and "fare" in told()
        assert daemon.call("GET", "/v1/timeslicing").json[0]["mode"] == "fair"
    assert "config.refused" in daemon.log() and "settings=last" in daemon.log()
    config.write_text('{"timeSlicing": {"mode": "strict"}}')
    daemon.reload()
    wait_until(lambda: not told())
    wait_until(lambda: daemon.call("GET", "/v1/timeslicing").json[0]["mode"] == "strict", timeout=10)


def test_a_wrong_configuration_from_the_start_is_refused(tmp_path):
    config = tmp_path / "config.json"
    config.write_text("{")
    done = subprocess.run([BUILD / "carved", "--runtime-dir", tmp_path / "run", "--foreground", "--config", config],
                          capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and str(config) in done.stderr
    done = subprocess.run([BUILD / "carved", "--config", config, "--check-config"], capture_output=True, text=True)
    assert done.returncode == 2 and str(config) in done.stderr


# ---- upgrades ----

def test_a_place_in_the_file_that_has_no_sessions_stops_no_daemon(make_daemon, tmp_path, short, make_child):
    config = tmp_path / "config.json"
    state = short / "state"
    config.write_text("{}")
    daemon = make_daemon(args=["--config", config])
    sessions, _ = use(daemon)
    child = make_child(daemon, next(iter(sessions)))
    child.say(f"charge {GIB}")
    was = settings(daemon)
    config.write_text(f'{{"state_dir": "{state}"}}')
    daemon.reload()
    wait_until(lambda: "config.later key=state_dir" in daemon.log())
    upgrade(daemon)
    assert living(daemon) == sessions and settings(daemon) == was
    assert f"the sessions are kept in {daemon.runtime}, not in {state}" in daemon.call("GET", "/v1/version").json["config_error"]
    assert "state.stays" in daemon.log()
    daemon.kill()
    moved(daemon)
    daemon.start()
    upgrade(daemon)
    assert (state / "carve.db").exists() and daemon.call("GET", "/v1/version").json["config_error"] is None
    assert living(daemon) == sessions and settings(daemon) == was
    assert daemon.show(next(iter(sessions)))["pids"] == [child.pid]
    added = daemon.grant(vram="1")["id"]
    daemon.restart()
    assert living(daemon) == {**sessions, added: GIB}
    # A file that the new program would not understand is looked at where it is.
    with database(state) as db, db:
        version, = db.execute("PRAGMA user_version").fetchone()
        db.execute("PRAGMA user_version=99")
    done = takeover(daemon)
    assert done.returncode == 1 and "another version of carve wrote it" in done.stderr
    with database(state) as db, db:
        db.execute(f"PRAGMA user_version={version}")


# ---- where it is without being told ----

def inside(script, **env):
    """Runs a script as root with a /run, a /var/lib and a /tmp of its own."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    mounts = "".join(f"mount -t tmpfs -o mode={mode} none {place} && "
                     for place, mode in (("/run", 755), ("/var/lib", 755), ("/mnt", 755)))
    done = run(["unshare", "--mount", "--propagation", "private", "/bin/sh", "-c", mounts + "true || exit 99\n" + script],
               env=clean_env({"LD_LIBRARY_PATH": str(BUILD / "tests/programs/fake_nvml"), **env}))
    if done.returncode == 99 or "unshare" in done.stderr:
        pytest.skip("cannot mount here")
    return done


SERVE = f"""
serve() {{
    {BUILD}/carved "$@" --foreground --ready-fd 5 5>/mnt/ready 2>>/mnt/log &
    pid=$!
    until [ -s /mnt/ready ]; do kill -0 $pid 2>/dev/null || {{ cat /mnt/log; exit 1; }}; sleep 0.05; done
    rm /mnt/ready
}}
"""


def test_the_systems_is_var_lib_carve(tmp_path):
    (tmp_path / "gpus").write_text(f"gpu {80 * GIB} 0 0 Fake H100\n")
    done = inside(SERVE + f"""
        serve --system
        {BUILD}/carve quota set root --vram 16 || exit 1
        ls -l /run/carve/carve.db
        stat -c %a /var/lib/carve
        worker=$(cat /proc/$pid/task/$pid/children); kill -9 $pid; wait $pid; while kill -0 $worker 2>&-; do sleep 0.05; done
        rm -r /run/carve
        serve
        {BUILD}/carve quota list
        kill $pid; wait $pid
    """, FAKE_NVML=str(tmp_path / "gpus"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "/run/carve/carve.db -> /var/lib/carve/carve.db" in done.stdout and "\n700\n" in done.stdout  # jobs' directories are beside it
    assert "16 GiB" in done.stdout


def test_a_system_that_cannot_be_written_is_told(tmp_path):
    (tmp_path / "gpus").write_text(f"gpu {80 * GIB} 0 0 Fake H100\n")
    done = inside(f"""
        mount -o remount,ro /var/lib || exit 99
        {BUILD}/carved --system --foreground
    """, FAKE_NVML=str(tmp_path / "gpus"))
    assert done.returncode == 1
    assert done.stderr.endswith("cannot write the state directory /var/lib/carve: Read-only file system; sessions, quotas "
                                "and history are kept there; name another with --state-dir DIR\n"), done.stderr


def answers(runtime):
    """Whether a worker serves there: the supervisor listens before."""
    try:
        connection = UnixConnection(runtime / "carved.sock")
        connection.request("GET", "/v1/version")
        return connection.getresponse().status == 200
    except OSError:
        return False


def test_a_users_is_where_xdg_says(tmp_path, daemon):
    """Of each host, as homes may be shared; where nothing is said, in the runtime directory."""
    env = dict(daemon.env(), XDG_RUNTIME_DIR=str(tmp_path), XDG_STATE_HOME=str(tmp_path / "state"))
    usual = tmp_path / "carve"

    def served(**more):
        daemon.kill()
        process = subprocess.Popen([BUILD / "carved", "--runtime-dir", usual, "--foreground"], env=dict(env, **more),
                                   stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        wait_until(lambda: answers(usual))
        process.terminate()
        process.communicate(timeout=60)
        assert process.returncode == 0
    served()
    assert os.readlink(usual / "carve.db") == f"{tmp_path}/state/carve/{os.uname().nodename}/carve.db"
    served(XDG_STATE_HOME="")
    assert (usual / "carve.db").is_symlink()
    shutil.rmtree(usual)
    served(XDG_STATE_HOME="")
    assert (usual / "carve.db").is_file() and not (usual / "carve.db").is_symlink()
    served()  # the sessions stay where they are
    assert (usual / "carve.db").is_file() and not (usual / "carve.db").is_symlink()
    daemon.start()


@pytest.mark.parametrize("how", ["another user's", "open to all", "not there yet, where all may make it"])
def test_a_users_is_not_where_another_user_can_change_it(tmp_path, daemon, how):
    """As where root was given a user's environment: the database has jobs, which root's daemon would run."""
    theirs, usual = tmp_path / "theirs", tmp_path / "carve"
    theirs.mkdir()
    if how.startswith("not there"):
        theirs.chmod(0o1777)
    else:
        (theirs / "state").mkdir()
        if how == "open to all":
            theirs.chmod(0o777)
        elif os.geteuid() == 0:
            os.chown(theirs, 60103, 60103)
        else:
            pytest.skip("needs root")
    env = dict(daemon.env(), XDG_RUNTIME_DIR=str(tmp_path), XDG_STATE_HOME=str(theirs / "state"))
    daemon.kill()
    process = subprocess.Popen([BUILD / "carved", "--runtime-dir", usual, "--foreground"], env=env, stdin=subprocess.DEVNULL,
                               stderr=subprocess.PIPE, text=True)
    wait_until(lambda: answers(usual))
    process.terminate()
    process.communicate(timeout=60)
    assert (usual / "carve.db").is_file() and not (usual / "carve.db").is_symlink() and not any(theirs.glob("state/*"))
    daemon.start()
