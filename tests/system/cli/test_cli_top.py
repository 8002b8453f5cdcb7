"""carve top on a real terminal (tmux plays it), and without one, over a driver of this file's own."""
import json
import os
import re
import shutil
import signal
import subprocess
import tempfile
import time

import pytest

from conftest import BUILD, PATIENCE, clean_env, needs_admin, run, wait_until
from daemon_client import GIB
from own_daemon import Asker, daemon, make_daemon, waiting  # noqa: F401: fixtures
from queueing import Queues

CARVE = BUILD / "carve"
NOBODY = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
BLOCK = "\u2588"


class Screen:
    """A terminal with a shell in it, in which `carve top` runs."""

    def __init__(self, socket, *options, columns=120, lines=30, env=None, start=True):
        self.dir = tempfile.mkdtemp(prefix="carve-top-")
        with open(self.dir + "/rc", "w") as file:
            file.write("PS1='$ '\n")
        self.tmux("-u", "new-session", "-d", "-x", columns, "-y", lines,
                  f"exec bash --rcfile {self.dir}/rc -i",
                  env=clean_env({"LC_ALL": "C.UTF-8", "NO_COLOR": "", **(env or {})}))
        self.tmux("set-option", "-g", "remain-on-exit", "off")
        self.command = " ".join(map(str, [CARVE, "top", "--host", socket, *options]))
        self.wait_for(r"^\$")
        if start:
            self.start()

    def tmux(self, *argv, env=None, check=True):
        done = subprocess.run(["tmux", "-S", self.dir + "/socket", "-f", "/dev/null", *map(str, argv)],
                              env=env or clean_env(), stdout=subprocess.PIPE, text=True, timeout=PATIENCE,
                              check=check, stdin=subprocess.DEVNULL)
        return done.stdout

    def start(self, prefix=""):
        self.type(f"{prefix}{self.command}; echo exit=$?")
        self.wait_for(r"every .* s")

    def type(self, line):
        self.tmux("send-keys", "-l", line)
        self.keys("Enter")

    def keys(self, *keys):
        self.tmux("send-keys", *keys)

    def text(self):
        return self.tmux("capture-pane", "-p")

    def lines(self):
        return self.text().splitlines()

    def wait_for(self, pattern, gone=False):
        """Waits until the pattern stands on the screen (or no longer does) and returns the screen."""
        end = time.monotonic() + PATIENCE
        while True:
            text = self.text()
            if bool(re.search(pattern, text, re.M)) != gone:
                return text
            assert time.monotonic() < end, f"{pattern!r} ({'still' if gone else 'not'} there):\n{text}"
            time.sleep(0.05)

    def resize(self, columns, lines):
        self.tmux("resize-window", "-x", columns, "-y", lines)

    def pid(self):
        """Of the carve top in it."""
        shell = self.tmux("display-message", "-p", "#{pane_pid}").strip()
        return wait_until(lambda: [int(p) for p in run(["pgrep", "-P", shell]).stdout.split()])[0]

    def settings(self):
        """The terminal's own, as the shell's programs find them."""
        self.type("stty -a > %s/stty.new; mv %s/stty.new %s/stty" % ((self.dir,) * 3))
        wait_until(lambda: os.path.exists(self.dir + "/stty"), PATIENCE)
        with open(self.dir + "/stty") as file:
            text = file.read()
        os.unlink(self.dir + "/stty")
        return text

    def close(self):
        self.tmux("kill-server", check=False)
        shutil.rmtree(self.dir, ignore_errors=True)


@pytest.fixture
def make_screen():
    screens = []

    def make(daemon, *options, **kw):
        socket = daemon if isinstance(daemon, str) else daemon.runtime / "carved.sock"
        screens.append(Screen(socket, "--interval", "0.2", *options, **kw))
        return screens[-1]

    yield make
    for s in screens:
        s.close()


def top(daemon, *argv, prefix=(), **kw):
    return run([*prefix, CARVE, "top", "--host", daemon.runtime / "carved.sock", *argv], **kw)


@pytest.fixture
def busy(make_daemon):
    """Two GPUs, three sessions, one request that waits, a quota, a program outside."""
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "Big"), (24 * GIB, 0, 0, "Small")])
    daemon.processes, daemon.busy = [(1, os.getpid(), 2 * GIB)], [(0, 37)]
    daemon.write_state()
    daemon.ids = [daemon.grant(vram=size, name=name, gpu_ids=gpu)["id"] for size, name, gpu in
                  (("30", "alpha", "0"), ("40", "beta", "0"), ("5", "gamma", "1"))]
    asker = Asker(daemon, vram="60", wait_for=100)
    daemon.waits = wait_until(lambda: waiting(daemon))[0]["id"]
    daemon.call("PUT", f"/v1/quotas/user/{os.geteuid()}", {"vram": "100"})
    yield daemon
    if daemon.process.poll() is None:
        daemon.release(daemon.waits)
        asker.join(PATIENCE)


HELD, ASKED = "a-notebook-of-alice-with-a-long-name", "a-request-for-most-of-a-gpu-that-has-to-wait"
QUEUE, JOB = "jobs-of-the-night-shift", "train-a-large-language-model-on-half-a-gpu"


@pytest.fixture
def crowded(make_host, tmp_path):
    """Long names, a request that waits, and a queue with jobs that run and jobs that wait."""
    host = make_host("h100-80gb:2")
    crowd = Queues(host, tmp_path)
    crowd.socket = host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    crowd.held = host.carve_json("session", "request", "--vram", "70", "--gpu-ids", "0", "--name", HELD)["id"]
    crowd.agent(f"{QUEUE}=0.5", gpus="1")
    crowd.ids = [crowd.enqueue("sh", "-c", crowd.gate(), queue=QUEUE, options=("--name", f"{JOB}-{i}")) for i in range(4)]
    for id in crowd.ids[:2]:
        crowd.wait_state(id, "running")
    asker = host.popen([CARVE, "session", "request", "--vram", "60", "--wait-for", "600", "--name", ASKED],
                       stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    crowd.waits, = wait_until(lambda: [s for s in host.carve_json("session", "list") if s["state"] == "waiting" and s["reason"]])
    yield crowd
    asker.kill()
    asker.wait()
    crowd.open_gate()


def reason_of(crowd, i):
    """As lists have it: of one job the daemon says more. A job has none until the daemon has looked for room."""
    return wait_until(lambda: next(job["reason"] for job in crowd.host.carve_json("job", "list") if job["id"] == crowd.ids[i]))


HEADINGS = ("^ GPU ", "^SESSION ", "^ LINE ", "^QUEUE ", "^JOB ", "^USER ")


def whole(text):
    """With wrapped texts in one line."""
    return re.sub(r"\s+", " ", text)


def rows(text, daemon):
    """Positions of the sessions, by the order of their lines."""
    return [daemon.ids.index(i) for i in re.findall(r"^(s-\w+)", text, re.M) if i in daemon.ids]


# ---- without a screen -----------------------------------------------------------------------

@needs_admin
def test_once_prints_everything_as_text(busy):
    done = top(busy, "--once")
    assert done.returncode == 0 and done.stderr == "" and "\x1b" not in done.stdout
    plain = top(busy)  # without a terminal it is the same
    assert plain.returncode == 0 and plain.stdout.splitlines()[1:5] == done.stdout.splitlines()[1:5]
    lines = done.stdout.splitlines()
    gpu = next(l.split() for l in lines if "Big" in l)
    assert gpu[:7] == ["0", "Big", "0/80Gi", "70Gi", "0", "10Gi", "37%"]
    assert next(l.split() for l in lines if "Small" in l)[2:6] == ["2Gi/24Gi", "5Gi", "2Gi", "17Gi"]
    session = next(l.split() for l in lines if l.startswith(busy.ids[1]))
    assert session[2:5] == ["active", "0", "40Gi"] and session[-1] == "beta"
    wait = next(l for l in lines if l.startswith("1 ") and busy.waits in l)
    assert "60 GiB" in wait and "not enough GPU memory" in wait
    assert any("75Gi/100Gi" in l for l in lines)


@needs_admin
def test_once_as_json(busy):
    for argv in (["--once", "--json"], ["--json"]):
        shown = json.loads(top(busy, *argv).stdout)
        assert [s["id"] for s in shown["sessions"]] == busy.ids
        assert [w["id"] for w in shown["waiting"]] == [busy.waits]
        assert shown["gpus"][1]["outside_processes"][0]["memory_bytes"] == 2 * GIB
        user, = shown["users"]
        assert user["vram_bytes"] == 75 * GIB and user["quota"]["vram_bytes"] == 100 * GIB
        assert user["sessions"] == 3 and user["waiting"] == 1 and user["gpus"] == 2
        assert shown["daemon"]["pid"] == busy.pid


def test_once_has_queues_and_jobs_and_no_blanks_at_the_ends(crowded):
    done = crowded.host.carve("top", "--once")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line for line in lines if line != line.rstrip()] == []
    queue = next(line for line in lines if line.startswith(QUEUE)).split()
    assert queue[1:4] == ["0.5", "2", "2"]
    jobs = [line for line in lines if re.match(r"\d+ +train-", line)]
    assert [line.split()[:2] for line in jobs] == [[id, f"{JOB}-{i}"] for i, id in enumerate(crowded.ids)]
    assert [line.split()[4] for line in jobs] == ["running"] * 2 + ["queued"] * 2
    assert "Gi" in jobs[0].split()[5] and reason_of(crowded, 2) in jobs[2]
    shown = crowded.host.carve_json("top")
    assert [job["id"] for job in shown["jobs"]] == crowded.ids and shown["queues"][0]["name"] == QUEUE


@pytest.mark.parametrize("argv, code, words", [
    (["--interval", "0"], 2, "--interval"), (["--interval", "x"], 2, "--interval"),
    (["--interval", "-1"], 2, "--interval"), (["--interval", "3601"], 2, "3601"),
    (["--interval", "nan"], 2, "--interval"), (["extra"], 2, "extra"),
])
def test_senseless_options_are_refused_in_words(daemon, argv, code, words):
    done = top(daemon, *argv)
    assert done.returncode == code and words in done.stderr and done.stdout == ""
    assert len(done.stderr.splitlines()) == 1


def test_without_a_daemon_it_says_so():
    done = run([CARVE, "top", "--once", "--host", "/nonexistent/carved.sock"])
    assert done.returncode == 4 and "no daemon answers" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="needs two users")
def test_others_see_the_size_only(make_daemon):
    daemon = make_daemon(args=["--system"])
    os.chmod(daemon.dir, 0o755)
    mine = daemon.grant(vram="7", name="secret")["id"]
    shown = top(daemon, "--once", prefix=NOBODY)
    assert shown.returncode == 0, shown.stderr
    assert " 7Gi " in shown.stdout and "(others)" in shown.stdout
    assert "secret" not in shown.stdout and mine not in shown.stdout
    whole = json.loads(top(daemon, "--json", prefix=NOBODY).stdout)
    assert whole["sessions"][0]["vram_bytes"] == 7 * GIB and whole["sessions"][0]["id"] is None


def test_a_dumb_terminal_gets_text(busy, make_screen):
    screen = make_screen(busy, start=False, lines=50)
    screen.type(f"TERM=dumb {screen.command}; echo exit=$?")
    text = screen.wait_for("^exit=0")
    assert "Sessions" in text and busy.ids[0] in text
    screen.type(f"TERM=no-such-terminal {screen.command} > /dev/null; echo again=$?")
    screen.wait_for("^again=0")


# ---- the screen -----------------------------------------------------------------------------

@needs_admin
def test_it_draws_gpus_sessions_waits_and_users(busy, make_screen):
    screen = make_screen(busy)
    text = screen.wait_for("75Gi/100Gi")
    assert "2 GPUs, 3 sessions, 1 waiting" in text
    big = next(l for l in text.splitlines() if " Big " in l)
    assert "\u2592" in big and "0/80Gi" in big and "37%" in big and BLOCK in big
    assert rows(text, busy) == [0, 1, 2]
    assert re.search(rf"^ +1 {busy.waits} .*60 GiB ", text, re.M) and "not enough GPU memory" in whole(text)
    busy.release(busy.ids[2])
    screen.wait_for(busy.ids[2], gone=True)
    screen.wait_for("70Gi/100Gi")
    screen.keys("h")
    text = screen.wait_for("any other key goes back")
    for column in ("PROMISED", "OUTSIDE", "FREE", "REQ LIM GOT"):
        assert re.search(rf"^{column}: ", text, re.M), text
    screen.keys("Escape")
    screen.wait_for("70Gi/100Gi")


@pytest.mark.parametrize("columns", [80, 120, 200])
def test_names_and_reasons_are_whole_at_any_width(crowded, make_screen, columns):
    screen = make_screen(crowded.socket, columns=columns, lines=50)
    for heading in HEADINGS:
        screen.wait_for(heading)
    reasons = crowded.waits["reason"], reason_of(crowded, 2), reason_of(crowded, 3)
    wait_until(lambda: all(whole(reason) in whole(screen.text()) for reason in reasons), PATIENCE)
    text = screen.wait_for(crowded.waits["id"])
    for word in (HELD, ASKED, QUEUE, *(f"{JOB}-{i}" for i in range(4)), "NVIDIA H100 80GB HBM3"):
        assert word in text, f"{word}:\n{text}"
    for reason in reasons:
        assert reason and whole(reason) in whole(text), f"{reason}:\n{text}"
    line = next(line for line in text.splitlines() if line.startswith(crowded.held))
    assert "70Gi" in line and (HELD in line) == (columns >= 120)
    assert all(len(line) <= columns for line in text.splitlines())
    if columns == 200:  # each has a line, but for reasons that are longer than that
        assert re.search(rf"^{crowded.ids[1]} +{JOB}-1 +{QUEUE} .* running .*Gi ", text, re.M), text


def test_all_lists_are_there_on_a_small_terminal_and_scroll(crowded, make_screen):
    screen = make_screen(crowded.socket, columns=80, lines=24)
    for heading in HEADINGS:
        screen.wait_for(heading)
    assert "q quit" in screen.lines()[-1] and "~" not in screen.lines()[0] + screen.lines()[-1]
    screen.keys("5", "End")
    screen.wait_for(f"{JOB}-3")
    screen.wait_for(r"-4 of 4 $|^ *NAME .*-3")
    reason = reason_of(crowded, 3)
    wait_until(lambda: whole(reason) in whole(screen.text()), PATIENCE)
    screen.keys("Home")
    screen.wait_for(f"{JOB}-0")
    screen.keys("/")
    screen.keys("-l", f"{JOB}-2")
    screen.wait_for(f"{JOB}-1", gone=True)
    screen.wait_for(f"{JOB}-2")


def test_sorting_by_another_column(busy, make_screen):
    screen = make_screen(busy)
    assert rows(screen.wait_for("gamma"), busy) == [0, 1, 2]
    for key in (">", "F6", ">", "Right", "F6"):  # F6 as in htop and nvtop
        screen.keys(key)
    wait_until(lambda: rows(screen.wait_for("SIZEv"), busy) == [1, 0, 2], PATIENCE)
    screen.keys("r")
    wait_until(lambda: rows(screen.wait_for(r"SIZE\^"), busy) == [2, 0, 1], PATIENCE)


def test_filtering(busy, make_screen):
    screen = make_screen(busy)
    screen.keys("/")
    screen.wait_for("^Filter: _")
    screen.keys("-l", "BETA")
    wait_until(lambda: rows(screen.wait_for("^Filter: BETA_"), busy) == [1], PATIENCE)
    screen.keys("Enter")
    assert rows(screen.wait_for("Esc shows all again"), busy) == [1]
    screen.keys("Escape")
    wait_until(lambda: rows(screen.text(), busy) == [0, 1, 2], PATIENCE)
    for key in ("F3", "F4"):
        screen.keys(key)
        screen.wait_for("^Filter: _")
        screen.keys("Escape")
        screen.wait_for("^h help")
    screen.keys("F1")
    assert "q quits; any other key goes back" in screen.wait_for("F10")
    screen.keys("x")  # no release
    assert rows(screen.wait_for("gamma"), busy) == [0, 1, 2]


def test_releasing_a_session_and_a_request(busy, make_screen):
    screen = make_screen(busy)
    screen.wait_for("gamma")
    screen.keys("Down", "Down", "x")
    screen.wait_for(f"^Release {busy.ids[2]}\\?")
    screen.keys("n")
    screen.wait_for("^not released")
    assert len(busy.call("GET", "/v1/sessions").json) == 4
    screen.keys("x", "y")
    screen.wait_for(f"^{busy.ids[2]}: released")
    assert busy.call("GET", f"/v1/sessions/{busy.ids[2]}").json["state"] == "ended"
    screen.keys("3", "x", "y")
    screen.wait_for(f"^{busy.waits}: released")
    screen.wait_for("0 waiting")


def test_any_size_of_window(busy, make_screen):
    screen = make_screen(busy, columns=200, lines=50)
    screen.wait_for("gamma")
    for columns, lines in ((60, 16), (40, 8), (20, 4), (5, 2), (1, 1), (1, 40), (200, 1)):
        screen.resize(columns, lines)
        time.sleep(0.1)
        assert all(len(l) <= columns for l in screen.lines())
    screen.resize(40, 8)  # the list in focus alone
    text = screen.wait_for("^SESSION")
    assert "GPU  " not in text.splitlines()[1] and busy.ids[0] in text
    screen.keys("Tab", "Tab", "Tab")
    screen.wait_for("^ GPU")
    screen.resize(120, 30)
    screen.wait_for("gamma")
    screen.keys("q")
    screen.wait_for("^exit=0")


@pytest.mark.long
def test_many_gpus_and_sessions_scroll(make_daemon, make_screen):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, f"Model {i}") for i in range(64)])
    ids = [daemon.grant(vram="1")["id"] for _ in range(500)]
    screen = make_screen(daemon, columns=100, lines=40)
    assert "64 GPUs, 500 sessions" in screen.wait_for("of 500")
    screen.keys("End")
    screen.wait_for(ids[-1])
    screen.wait_for("-500 of 500")
    screen.keys("Home")
    screen.wait_for(ids[0])
    screen.keys("NPage", "NPage", "1", "End")
    screen.wait_for("Model 63")
    screen.wait_for(r"-64 of 64")


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # who waits loses its call
def test_the_daemons_death_and_return(busy, make_screen):
    screen = make_screen(busy)
    screen.wait_for("gamma")
    busy.kill()
    text = screen.wait_for(r"^No answer for \d+s, trying again: no daemon answers at")
    assert rows(text, busy) == [0, 1, 2]  # what was known stays
    screen.keys("Down")
    busy.start()
    screen.wait_for("^No answer", gone=True)
    screen.wait_for(f"daemon {busy.pid}")
    os.kill(busy.pid, signal.SIGSTOP)
    try:
        screen.wait_for(r"^No answer for .*does not answer")
        screen.keys("q")  # and keys work all the while
        screen.wait_for("^exit=0")
    finally:
        os.kill(busy.worker, signal.SIGCONT)


def test_it_starts_no_daemon_to_look_again(make_host, make_screen):
    host = make_host("h100-80gb")
    host.carve("gpu", "list")
    pid = host.daemon_pid()
    screen = make_screen(host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", env=host.env, start=False)
    screen.command = f"{CARVE} top --interval 0.2"
    screen.start()
    screen.wait_for(f"daemon {pid}")
    os.kill(pid, signal.SIGTERM)
    screen.wait_for("^No answer for [2-9]s")
    assert not os.path.exists(host.env["CARVE_RUNTIME_DIR"] + "/carved.sock")


def test_a_lost_gpu_shows_since_when_in_80_columns(make_host, make_screen):
    host = make_host("h100-80gb:2")
    host.carve("gpu", "list")
    screen = make_screen(host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", columns=80, lines=24)
    screen.wait_for(r"(?m)^ +0 .* ok *$")
    host.carve("sim", "fault", "lost", "--gpu", "1")
    screen.wait_for(r"(?m)^ +1 .* lost since \d\d:\d\d *$")


def test_processes_are_shown_and_ended(make_host, make_screen, examples):
    host = make_host("h100-80gb")
    socket = host.env["CARVE_RUNTIME_DIR"] + "/carved.sock"
    hog = host.popen([CARVE, "run", "--vram", "2", examples / "hog", "600"])
    wait_until(lambda: [s for s in host.carve_json("session", "list") if s["pids"]], PATIENCE)
    id = host.carve_json("session", "list")[0]["id"]
    screen = make_screen(socket)
    screen.wait_for(f"^{id}")
    screen.keys("t")
    screen.wait_for(r"`- \d+ +hog")
    screen.keys("x")
    screen.wait_for("with 1 process inside")
    screen.keys("y")
    screen.wait_for("has processes inside")
    screen.keys("x", "f")
    screen.wait_for(f"^{id}: released|session {id} ended at")
    assert hog.wait(PATIENCE) != 0


# ---- the terminal is given back -------------------------------------------------------------

@pytest.mark.parametrize("how, code", [
    ("q", 0), ("C-c", 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (signal.SIGABRT, 134)])
def test_the_terminal_is_as_it_was(busy, make_screen, how, code):
    screen = make_screen(busy, start=False)
    before = screen.settings()
    screen.start()
    if isinstance(how, str):
        screen.keys(how)
    else:
        os.kill(screen.pid(), how)
    if code == 130:  # an interactive shell leaves the rest of the line out, too
        screen.wait_for(r"^\$\s*\Z")
    else:
        screen.wait_for(f"^exit={code}")
    assert "SESSION" not in screen.wait_for("carve top|stty")  # the shell's own screen is back
    assert screen.settings() == before
    assert screen.tmux("display-message", "-p", "#{alternate_on} #{cursor_flag}").split() == ["0", "1"]


def test_suspending_and_going_on(busy, make_screen):
    screen = make_screen(busy)
    screen.wait_for("gamma")
    screen.keys("C-z")
    screen.wait_for("Stopped")
    assert "SESSION " not in screen.text()
    screen.resize(90, 25)
    screen.type("fg")
    text = screen.wait_for("gamma|every")
    wait_until(lambda: len(screen.lines()) <= 25 and "SESSION" in screen.text(), PATIENCE)
    busy.release(busy.ids[0])
    screen.wait_for(busy.ids[0], gone=True)
    screen.keys("q")
    screen.wait_for("^exit=|^\\$ *$")


def test_it_ends_with_its_terminal(busy, make_screen):
    screen = make_screen(busy)
    pid = screen.pid()
    screen.tmux("kill-server")
    wait_until(lambda: not os.path.exists(f"/proc/{pid}"), PATIENCE)


# ---- colours and characters -----------------------------------------------------------------

def test_colours_only_where_they_are_wanted(busy, make_screen):
    screen = make_screen(busy)
    screen.wait_for("gamma")
    colour = re.compile(r"\x1b\[[\d;]*[34][0-7][;m]")
    assert colour.search(screen.tmux("capture-pane", "-e", "-p"))
    screen.keys("q")
    screen.wait_for("^exit=0")
    for prefix in ("NO_COLOR=1 ", "TERM=vt100 "):
        screen.type("clear")
        screen.start(prefix)
        screen.wait_for("gamma")
        assert not colour.search(screen.tmux("capture-pane", "-e", "-p")), prefix
        screen.keys("q")
        screen.wait_for("^exit=0")


def test_ascii_where_the_locale_has_nothing_else(busy, make_screen):
    screen = make_screen(busy, start=False)
    screen.start("LC_ALL=C ")
    text = screen.wait_for("gamma")
    assert text.isascii() and re.search(r"Big +\[:+ *\] +0/80Gi", text)


def test_names_cannot_reach_the_terminal(make_daemon, make_screen):
    daemon = make_daemon(gpus=[(80 * GIB, 0, 0, "G\x07\x1b[31mPU\u009b2J\u6f22\u5b57\u202e")])
    daemon.grant(vram="1")
    screen = make_screen(daemon, columns=200)
    text = screen.wait_for("\u6f22\u5b57")
    assert "1 session" in text and "G??[31mPU?2J\u6f22\u5b57" in text
