"""scripts/install and scripts/uninstall: what they place, that it works from there, upgrades, and what stays."""
import os
import pathlib
import shutil
import signal
import tempfile

import pytest

import conftest
from conftest import BUILD, ROOT, clean_env, run, wait_until

HOG = BUILD / "examples" / "hog"
pytestmark = [pytest.mark.skipif(BUILD != ROOT / "build" or os.environ.get("CARVE_TEST_GPU") == "1",
                                reason="installs the ordinary build"),
              pytest.mark.xdist_group("install")]


def script(name, *argv, code=0):
    done = run([ROOT / "scripts" / name, *argv], timeout=300)
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def tree(root):
    return sorted(str(p.relative_to(root)) for p in pathlib.Path(root).rglob("*"))


@pytest.fixture
def prefix(tmp_path):
    """A place with something of somebody else in it."""
    p = tmp_path / "opt"
    (p / "bin").mkdir(parents=True)
    (p / "bin" / "other").write_text("not carve's")
    script("install", "--prefix", p)
    return p


@pytest.fixture
def host(prefix, monkeypatch):
    """A simulated host of the installed programs."""
    monkeypatch.setattr(conftest, "BUILD", prefix / "bin")
    h = conftest.Host("h100-80gb")
    yield h
    h.close()


def upgrade_disturbs_no_workload(host, prefix):
    carved = prefix / "bin/carved"
    with open(carved.with_suffix(".older"), "wb") as older:  # another file, of the same program
        older.write(carved.read_bytes() + b"older")
    carved.with_suffix(".older").chmod(0o755)
    carved.with_suffix(".older").rename(carved)
    hog = host.popen([prefix / "bin/carve", "run", "--vram", "2", HOG, "600"])
    session = wait_until(lambda: [s for s in host.carve_json("session", "list") if s["pids"]])[0]
    supervisor, worker = int(pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "lock").read_text()), host.daemon_pid()
    told = script("install", "--prefix", prefix)
    assert [line for line in told.splitlines() if "is the new one now" in line] == [f"carved (process {supervisor}) is the new one now"]
    assert "1 files changed" in told and host.daemon_pid() != worker
    for pid in supervisor, host.daemon_pid():
        assert os.readlink(f"/proc/{pid}/exe") == str(carved)
    assert not carved.read_bytes().endswith(b"older")
    after, = host.carve_json("session", "list")
    for key in ("id", "pids", "created", "vram_bytes"):
        assert after[key] == session[key]
    assert hog.poll() is None
    assert "1 session or request is held" in script("uninstall", "--prefix", prefix, code=1)
    assert carved.exists()
    hog.terminate()
    hog.wait(60)
    wait_until(lambda: host.carve_json("session", "list") == [])
    script("uninstall", "--prefix", prefix)
    assert not carved.exists()
    (prefix / "bin/carve").symlink_to(BUILD / "carve")  # for the fixture's end


def test_it_works_from_where_it_was_installed(host, prefix):
    carve = prefix / "bin" / "carve"
    done = host.carve("run", "--vram", "2", HOG)
    assert done.returncode == 0 and "this GPU has 2048 MiB" in done.stdout, done.stderr
    assert os.readlink(f"/proc/{host.daemon_pid()}/exe") == str(prefix / "bin" / "carved")
    shown = host.carve("run", "--isolation", "preload", "--vram", "1", "sh", "-c",
                       "echo $LD_PRELOAD").stdout
    assert str(prefix) in shown and str(BUILD) not in shown
    # Other programs find the library, and this installation's units and configuration name it.
    flags = run(["pkg-config", "--cflags", "--libs", "carve"], env=clean_env(
        {"PKG_CONFIG_PATH": str(next(prefix.glob("lib*/**/pkgconfig")))}))
    program = prefix / "elsewhere" / "program"
    program.parent.mkdir()
    built = run(["cc", "-o", program, "-x", "c", "-", *flags.stdout.split()], stdin=None,
                input="#include <carve/carve.h>\nint main(void) { carve_t *c; return carve_connect(0, &c); }")
    assert built.returncode == 0, built.stderr
    # It finds the daemon to start beside the library, not beside the program.
    runtime = tempfile.mkdtemp(prefix="carve-test-")
    done = host.run([program], env={"CARVE_RUNTIME_DIR": runtime, "LD_LIBRARY_PATH": ":".join(
        [str(next(prefix.glob("lib*/**/libcarve.so")).parent), host.env.get("LD_LIBRARY_PATH", "")])})
    assert done.returncode == 0
    started = int(pathlib.Path(runtime, "lock").read_text())
    assert os.readlink(f"/proc/{started}/exe") == str(prefix / "bin" / "carved")
    os.kill(started, signal.SIGTERM)
    wait_until(lambda: not os.path.exists(runtime + "/carved.sock"))
    shutil.rmtree(runtime, ignore_errors=True)
    (prefix / "elsewhere" / "program").unlink()
    (prefix / "elsewhere").rmdir()
    unit = (prefix / "lib/systemd/system/carved.service").read_text()
    config = prefix / "etc/carve/carved.json"
    assert f"ExecStart={prefix}/bin/carved --system --foreground --config {config}\n" in unit
    assert run([prefix / "bin/carved", "--config", config, "--check-config"]).returncode == 0
    assert (prefix / "share/man/man1/carve-top.1").exists()
    completion = prefix / "share/bash-completion/completions/carve.bash"
    words = run(["bash", "-c", f"source {completion}; COMP_WORDS=({carve} session re); COMP_CWORD=2; _carve; "
                 "echo ${COMPREPLY[*]}"]).stdout.split()
    assert words == ["request", "resize", "release"]
    assert carve.stat().st_mode & 0o777 == 0o755
    upgrade_disturbs_no_workload(host, prefix)


@pytest.mark.long
def test_again_it_changes_nothing_and_uninstall_removes_what_it_placed(prefix):
    before = tree(prefix)
    manifest = prefix / "lib/carve/manifest"
    text = manifest.read_text()
    manifest.write_text(text + f"file {prefix}/bin/of-an-older-version\n")
    (prefix / "bin/of-an-older-version").write_text("")
    assert "0 files changed" in script("install", "--prefix", prefix)
    assert tree(prefix) == before and manifest.read_text() == text
    # A configuration that was changed stays, unless it is purged.
    config = prefix / "etc/carve/carved.json"
    config.write_text('{"over_policy": "kill"}\n')
    assert f"kept: {config}" in script("uninstall", "--prefix", prefix)
    assert tree(prefix) == ["bin", "bin/other", "etc", "etc/carve", "etc/carve/carved.json"]
    script("install", "--prefix", prefix)
    assert "kill" in config.read_text()
    script("uninstall", "--prefix", prefix, "--purge")
    assert not config.exists() and (prefix / "bin/other").exists()
    assert not [p for p in tree(prefix) if not (prefix / p).is_dir() and p != "bin/other"]
    assert "nothing that scripts/install placed" in script("uninstall", "--prefix", prefix, code=1)


@pytest.mark.long
def test_uninstall_leaves_what_others_changed(prefix):
    header, page = prefix / "include/carve/carve.h", prefix / "share/man/man1/carve.1"
    header.write_text("mine now\n")
    page.unlink()
    assert f"kept: {header}, which is not as it was installed" in script("uninstall", "--prefix", prefix)
    assert [p for p in tree(prefix) if not (prefix / p).is_dir()] == ["bin/other", "include/carve/carve.h"]


def test_a_checkout_is_no_prefix(tmp_path):
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/install").write_text("")
    for place in (ROOT, tmp_path):
        assert "is a checkout of carve" in script("install", "--prefix", place, code=2)
    assert not (ROOT / "bin").exists() and not (ROOT / "lib/carve").exists()


@pytest.mark.parametrize("start, path, place", [("docs", "../scripts/install", ".."), (".", "scripts/install", "opt"),
                                                ("docs/man", "../../scripts/install", "../../opt/x")])
def test_a_place_in_the_checkout_is_refused_in_one_line_from_anywhere(start, path, place):
    done = run([path, "--prefix", place], cwd=ROOT / start)
    line, = done.stderr.splitlines()
    assert done.returncode == 2 and line.startswith("install: --prefix: ") and "a checkout of carve" in line
    assert "usage: scripts/install" in line and not (ROOT / "opt").exists()


@pytest.mark.parametrize("name, option", [("install", "--prefix"), ("uninstall", "--prefix"), ("package", "--output")])
def test_places_and_the_scripts_own_path_are_relative_to_where_it_is_called(name, option, tmp_path):
    (tmp_path / "link").symlink_to(ROOT)
    for argv in (["--help"], [option, ".", "--nonsense"]):
        done = run([f"link/scripts/{name}", *argv], cwd=tmp_path)
        assert f"sage: scripts/{name}" in done.stdout + done.stderr and "sed:" not in done.stderr


def test_for_packages(tmp_path):
    script("install", "--destdir", tmp_path / "root", "--prefix", "/usr")
    root = tmp_path / "root"
    assert {p.name for p in root.iterdir()} == {"usr", "etc"}
    assert (root / "etc/carve/carved.json").exists() and (root / "usr/bin/carved").exists()
    unit = (root / "usr/lib/systemd/system/carved.service").read_text()
    assert "ExecStart=/usr/bin/carved --system --foreground --config /etc/carve/carved.json" in unit
    assert str(root) not in (root / "usr/lib/carve/manifest").read_text()
    script("uninstall", "--destdir", root, "--prefix", "/usr")
    assert [p for p in tree(root) if not (root / p).is_dir()] == []


@pytest.mark.parametrize("name, argv, words", [
    ("install", ["--colour"], "unknown option --colour"), ("install", ["--prefix"], "--prefix needs"),
    ("install", ["--prefix", "/"], "/ itself"), ("install", ["--prefix", "/tmp/a b"], "no space"),
    ("install", ["--prefix", "/tmp/a;b"], "no space"), ("uninstall", ["x"], "unknown option x"),
    ("uninstall", ["--destdir", ""], "--destdir needs"), ("package", ["--output"], "--output needs"),
    ("package", ["x"], "unknown option x")])
def test_senseless_options_are_refused_in_words(name, argv, words):
    told = script(name, *argv, code=2)
    assert words in told and f"usage: scripts/{name}" in told


@pytest.mark.parametrize("name, word, option", [("install", "--help", "--destdir"), ("install", "-h", "--destdir"),
                                                ("uninstall", "--help", "--destdir"), ("package", "--help", "--output")])
def test_scripts_say_what_they_do(name, word, option):
    told = script(name, word)
    assert f"Usage: scripts/{name}" in told and f"{option} DIR" in told and "#" not in told


SYSTEMCTL = """#!/bin/sh
echo "$*" >>/mnt/systemctl
[ "$1" != is-active ]
"""


@pytest.mark.long
def test_the_service_is_enabled_and_not_its_sockets_alone(tmp_path):
    """Where systemd runs, played by a program that notes what it is told; and uninstalling leaves the GPUs to users' daemons."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    for name, text in (("systemctl", SYSTEMCTL), *((name, "#!/bin/sh\n") for name in ("groupadd", "useradd", "ldconfig"))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = run(["unshare", "--mount", "--propagation", "private", "/bin/bash", "-c", f"""
        for place in /run /mnt /usr/local; do mount -t tmpfs -o mode=755 none $place || exit 99; done
        mkdir -p /run/systemd/system
        {ROOT}/scripts/install || exit 1
        grep . /mnt/systemctl; rm /mnt/systemctl
        mkdir -p /run/carve/containers /run/carve-claims/0
        touch /run/carve/{{carved.sock,warden.sock,carved.log,containers/{{attach.sock,fresh}}}}
        {ROOT}/scripts/uninstall || exit 1
        grep . /mnt/systemctl; ls /run
    """], timeout=300, env=clean_env({"PATH": f"{tmp_path}:{os.environ['PATH']}"}))
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip("cannot mount here")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "enable --quiet carved.socket carved-attach.socket carved.service" in lines
    assert "start carved.service" in lines and "disable --quiet --now carved.socket carved-attach.socket carved.service" in lines
    assert "stop --quiet carve-warden.service" in lines
    # The warden comes last: the daemon is started anew with it.
    assert lines.index("try-restart carve-warden.service carved.service") > lines.index("start carved.service")
    assert lines[-1] == "systemd", lines  # nothing else is left in /run
