"""carve against a daemon of this file's own: what it sends, and what it makes of every answer."""
import json
import os
import re
import subprocess
import tempfile
import threading
import time

import pytest

from conftest import BUILD, ROOT, clean_env
from fake_daemon import CARVE, GIB, GPU, carve, fails, fake, session, terminal  # noqa: F401: fixtures


# ---- sizes ----------------------------------------------------------------------------------

SPELLINGS = [
    ("--vram", "4", 4294967296), ("--vram", "2.5", 2684354560), ("--vram", "2.5GiB", 2684354560),
    ("--vram", "2560MiB", 2684354560), ("--vram", "2684.35456MB", 2684354560),
    ("--vram", "2684354560B", 2684354560), ("--vram", "100MB", 100000000),
    ("--vram", "1TB", 1000000000000), ("--vram", "4000000KB", 4000000000),
    ("--vram", "4G", 4000000000), ("--vram", "4gb", 4000000000), ("--vram", "4gib", 4294967296),
    ("--vram", "4Gi", 4294967296), ("--gpu-memory", "4GB", 4000000000),
    ("--gpu-memory", "4GiB", 4294967296), ("--vram", "1048576KiB", 1073741824), ("--vram", "1TiB", 1099511627776),
    ("--gpu-memory", "4G", 4000000000), ("--gpu-memory", "4Gi", 4294967296),
    ("--gpu-memory", "4000M", 4000000000), ("--gpu-memory", "512Mi", 536870912),
]


@pytest.mark.parametrize("option,text,size", SPELLINGS)
def test_size_is_sent_in_bytes(fake, option, text, size):
    done = carve(fake, "session", "request", option, text)
    assert done.returncode == 0, done.stderr
    assert fake.sent("POST") == [("/v1/sessions", {"vram_bytes": size})]


@pytest.mark.parametrize("text", ["0.25", "1", "2"])
def test_fraction_is_sent_as_written(fake, text):
    assert carve(fake, "session", "request", f"--gpu={text}").returncode == 0
    assert fake.sent("POST") == [("/v1/sessions", {"gpu": text})]


MALFORMED = [("--vram", t) for t in
             ["", " ", "0", "-1", "nan", "inf", "4x", "4 GiB", "1e3", "0x10", ".", "5.",
              "99MB", "129TiB", "9" * 40, "1,5", "4gibb", "--", "\xff"]]
MALFORMED += [("--gpu-memory", t) for t in ["4", "4000m", "4GX", "", "-4G", "0G", "G", "50M"]]
MALFORMED += [("--gpu", t) for t in ["0", "1.25", "-0.5", "nan", "0.0001", "0.5x", "", "5000"]]
MALFORMED += [("--gpu-compute", t) for t in ["0", "101%", "x"]]
MALFORMED += [("--gpus", t) for t in ["0", "-1", "1.5", "65", "two"]]
MALFORMED += [("--wait-for", t) for t in ["-1", "x", "nan", "10y", "5 m", "40000d"]]
MALFORMED += [("--priority", t) for t in ["", "x", "-", "101", "--5", "1.5"]]


@pytest.mark.parametrize("option,text", MALFORMED)
def test_malformed_is_refused_before_any_daemon(option, text):
    with tempfile.TemporaryDirectory() as directory:
        env = clean_env({"CARVE_RUNTIME_DIR": directory + "/none"})
        size = [] if option in ("--vram", "--gpu-memory", "--gpu") else ["--vram", "4"]
        argv = [CARVE, "session", "request", *size, f"{option}={text}"]
        done = subprocess.run(argv, capture_output=True, env=env, timeout=60)
        lines = done.stderr.decode(errors="replace").splitlines()
        assert done.returncode == 2
        assert len(lines) == 1 and lines[0].startswith("carve: ") and option in lines[0]
        assert "; " in lines[0]
        assert not os.path.exists(directory + "/none")
        done = subprocess.run([*argv, "--json"], capture_output=True, env=env, timeout=60)
        assert done.returncode == 2
        error = json.loads(done.stderr)["error"]
        assert error["code"] == 2 and error["message"]


def test_every_option_is_sent(fake):
    done = carve(fake, "session", "request", "--vram", "4", "--vram-strict", "--gpu-compute", "25%",
                 "--gpus", "2", "--gpu-ids", "0-2", "--wait-for", "1.5", "--session-timeout", "60",
                 "--name", "train.1", "--priority", "-7")
    assert done.returncode == 0, done.stderr
    assert fake.sent("POST")[0][1] == {
        "vram_bytes": 4 * GIB, "vram_strict": True, "gpu_compute": "25%", "gpus": 2,
        "gpu_ids": "0-2", "wait_for": 1.5, "session_timeout": 60, "name": "train.1",
        "priority": -7}
    carve(fake, "session", "request", "--mig", "2g.10gb")
    assert fake.sent("POST")[1][1] == {"mig_profile": "2g.10gb"}


def test_the_least_size_is_said_at_once(fake):
    """What a context takes, where the daemon knows it."""
    for verb in (["session", "request"], ["explain"]):
        fails(carve(fake, *verb, "--vram", "50MiB"), 2, "--vram: '50MiB' is", "smallest slice of 100 MB")
    fake.answers["GET", "/v1/gpus"] = (200, [dict(GPU, context_bytes=(520 + n) << 20) for n in (7, 0, 9)])
    for verb in (["session", "request"], ["explain"]):
        fails(carve(fake, *verb, "--vram", "50MiB"), 2, "--vram: '50MiB' is too small", "takes 520 MiB")
    fails(carve(fake, "session", "request", "--vram", "0"), 2, "zero")
    assert fake.sent("POST") == []


def test_resize(fake):
    fake.answers["PATCH", "/v1/sessions/s-abc123"] = (200, session(vram_bytes=6 * GIB))
    done = carve(fake, "session", "resize", "s-abc123", "6")
    assert done.returncode == 0 and str(6 * GIB) in done.stdout
    assert fake.sent("PATCH") == [("/v1/sessions/s-abc123", {"vram_bytes": 6 * GIB})]
    fails(carve(fake, "session", "resize", "s-abc123", "6x"), 2, "6x")
    fails(carve(fake, "session", "resize", "s-abc123"), 2, "no size given")
    fails(carve(fake, "session", "resize", "s-abc123", "6", "--gpu", "0.5"), 2, "both given")
    fails(carve(fake, "session", "resize", "s-abc123", "6", "--vram", "6"), 2, "SIZE and --vram are both given")
    fails(carve(fake, "session", "resize", "--vram", "2", "3"), 2, "SIZE and --vram are both given")
    fails(carve(fake, "session", "resize", "--gpu-memory", "2Gi", "3"), 2, "SIZE and --gpu-memory are both given")
    fails(carve(fake, "session", "resize", "--gpu-memory", "2Gi", "--vram", "3"), 2,
          "--vram and --gpu-memory are both given")
    fails(carve(fake, "session", "resize", "--gpu-memory", "2"), 2, "--gpu-memory: '2'")
    fails(carve(fake, "session", "resize", "--gpu", "0.5", "3GiB"), 2, "an amount of memory and --gpu are both given")
    fails(carve(fake, "session", "resize", "--gpu", "2"), 2, "--gpu: '2'", "--gpu 0.5")
    fails(carve(fake, "session", "resize", "--vram", "6x"), 2, "--vram: '6x'")
    for size, words in (("0", "SIZE: '0' is zero"), ("-3", "SIZE: a size cannot be negative"), ("-3GiB", "negative")):
        done = carve(fake, "session", "resize", "s-abc123", size)
        fails(done, 2, words)
        assert "--vram" not in done.stderr


def test_resize_of_the_current_session(fake):
    fake.answers["PATCH", "/v1/sessions/s-abc123"] = (200, session(vram_bytes=6 * GIB))
    fails(carve(fake, "session", "resize", "6GiB"), 1, "no current session")
    fake.answers["GET", "/v1/sessions/current"] = (200, session())
    # A name may begin as a size does.
    fake.answers["PATCH", "/v1/sessions/3d-lab"] = (200, session(vram_bytes=6 * GIB))
    assert carve(fake, "session", "resize", "3d-lab", "--vram", "6").returncode == 0
    assert fake.sent("PATCH") == [("/v1/sessions/3d-lab", {"vram_bytes": 6 * GIB})]
    fake.requests.clear()
    for argv in (["6GiB"], ["6"], ["--vram", "6"], ["s-abc123", "--vram", "6"], ["--gpu-memory", "6Gi"],
                 ["--gpu", "0.5"]):
        assert carve(fake, "session", "resize", *argv).returncode == 0
    memory = ("/v1/sessions/s-abc123", {"vram_bytes": 6 * GIB})
    assert fake.sent("PATCH") == [memory] * 5 + [("/v1/sessions/s-abc123", {"gpu": "0.5"})]
    for argv, words in ((["6x"], "SIZE: '6x'"), (["-3"], "negative"), ([], "no size given")):
        fails(carve(fake, "session", "resize", *argv), 2, words)


def test_resize_of_a_share(fake):
    path = "/v1/sessions/s-abc123"
    fake.answers["PATCH", path] = (200, session())
    fake.answers["GET", path] = (200, session(compute_request=0.5))
    fails(carve(fake, "session", "resize", "s-abc123", "0.75"), 2, "--gpu 0.75", "0.75GiB")
    assert fake.sent("PATCH") == []
    fake.answers["GET", path] = (200, session(compute_request=0))
    for argv in (["0.75"], ["0.75GiB"], ["--gpu", "0.75"]):
        assert carve(fake, "session", "resize", "s-abc123", *argv).returncode == 0
    memory = {"vram_bytes": 3 * GIB // 4}
    assert [body for _, body in fake.sent("PATCH")] == [memory, memory, {"gpu": "0.75"}]


# ---- usage ----------------------------------------------------------------------------------

@pytest.mark.parametrize("argv,word", [
    ([], "--help"), (["sesion"], "carve session"), (["session", "lst"], "session list"),
    (["session"], "no command given"), (["gpu", "list", "more"], "more"), (["gpu", "list", "--al"], "--al"),
    (["session", "list", "--alll"], "--all"), (["session", "request"], "--vram 4"),
    (["session", "request", "--vram"], "value"), (["gpu", "list", "--json=1"], "no value"),
    (["session", "request", "--vram", "4", "--gpu", "0.5"], "--gpu"), (["-x"], "-x"),
    (["session", "show", "a", "b"], "'b'"), (["help", "nothing"], "nothing"),
])
def test_usage_errors(fake, argv, word):
    fails(carve(fake, *argv), 2, word)
    assert not fake.requests


def test_run_usage_errors_are_its_own_failures(fake):
    fails(carve(fake, "run"), 125, "CMD")
    fails(carve(fake, "run", "--vram", "4x", "true"), 125, "4x")
    fails(carve(fake, "run", "--vrm", "4", "true"), 125, "--vram")
    fails(carve(fake, "run", "--ephemeral", "true"), 125, "no size")
    fails(carve(fake, "run", "--session", "s-abc123", "--vram", "4", "true"), 125)


def verbs():
    done = subprocess.run([CARVE, "help", "--json"], capture_output=True, env=clean_env())
    return json.loads(done.stdout)


def test_every_verb_has_help_with_an_example(fake):
    for verb in verbs():
        for argv in ([*verb["name"].split(), "--help"], ["help", *verb["name"].split()]):
            done = carve(fake, *argv)
            assert done.returncode == 0 and done.stderr == ""
            assert verb["example"] in done.stdout and verb["summary"] in done.stdout
            assert all(option in done.stdout for option in verb["options"] if option not in ("--mig", "--mig-enabled"))  # aliases
    for group in {verb["name"].split()[0] for verb in verbs()}:
        assert "Example:" in carve(fake, group, "--help").stdout
    assert not fake.requests
    listed, width = carve(fake, "--help").stdout, max(len(verb["name"]) for verb in verbs())
    assert all(f"  {verb['name']:{width}}  {verb['summary']}\n" in listed for verb in verbs())


def test_help_lists_the_commands_in_groups(fake):
    listed = carve(fake, "--help").stdout
    assert listed == carve(fake, "help").stdout
    sections, found = {}, None
    for line in listed.splitlines():
        if re.fullmatch(r"[A-Z][A-Za-z ]*:", line):
            found = line[:-1]
        elif line.startswith("  ") and found != "Example":
            sections.setdefault(found, []).append(re.split(r"\s{2,}", line.strip())[0])
    assert list(sections) == ["Everyday", "Queues", "Containers", "Cluster", "Administrator", "Simulated GPUs"]
    for title, names in sections.items():
        assert names == [verb["name"] for verb in verbs() if verb["section"] == title]
    # Each command stands in one group, and help --json has the same order.
    assert sum(sections.values(), []) == [verb["name"] for verb in verbs()]
    assert len(set(sum(sections.values(), []))) == len(verbs())


def test_help_begins_each_group_with_its_most_used_command(fake):
    first = {}
    for verb in verbs():
        first.setdefault(verb["section"], verb["name"])
    assert first == {"Everyday": "run", "Queues": "enqueue", "Containers": "podman run", "Cluster": "kubernetes check",
                     "Administrator": "quota set", "Simulated GPUs": "sim"}
    assert carve(fake, "help").stdout.split("Example:\n")[1].strip().startswith("carve run --vram")


def test_help_names_the_list_of_guides(fake):
    assert "/usr/share/doc/carve/index.md" in carve(fake, "help").stdout
    assert "/usr/share/doc" not in carve(fake, "session", "--help").stdout


def test_version(fake):
    assert carve(fake, "--version").stdout.startswith("carve ")
    assert json.loads(carve(fake, "--version", "--json").stdout)["version"]


# ---- answers --------------------------------------------------------------------------------

@pytest.mark.parametrize("status,code",
                         [(400, 2), (403, 5), (404, 1), (409, 3), (409, 1), (500, 1)])
def test_the_daemons_error_is_shown(fake, status, code):
    error = {"code": code, "message": "what was wrong", "hint": "what would be right"}
    fake.answers["POST", "/v1/sessions"] = (status, {"error": error})
    done = carve(fake, "session", "request", "--vram", "4")
    fails(done, code)
    assert done.stderr == "carve: what was wrong; what would be right\n"
    done = carve(fake, "session", "request", "--vram", "4", "--json")
    assert done.returncode == code and json.loads(done.stderr) == {"error": error}
    done = carve(fake, "run", "--vram", "4", "--json", "true")
    assert done.returncode == 125 and json.loads(done.stderr) == {"error": error}


def test_a_lost_request_is_repeated_with_its_id(fake):
    """The daemon may have granted it before the connection broke: the ID makes the two one."""
    answers = [(0, b""), (201, session())]
    fake.answers["POST", "/v1/sessions"] = lambda body: answers.pop(0)
    assert carve(fake, "session", "request", "--vram", "4").returncode == 0
    assert len(fake.ids) == 2 and fake.ids[0] == fake.ids[1]
    assert re.fullmatch("s-[a-z2-9]{6}", fake.ids[0])


@pytest.mark.parametrize("answer,code", [
    ((500, b"<html>"), 1), ((200, b""), 1), ((200, b"\xff\x00{"), 1), ((418, {}), 1),
    ((400, {"error": "text"}), 1), ((400, {"error": {"code": -7, "message": 3}}), 1),
    ((400, {"error": {"code": 99999, "message": "m"}}), 1), ((0, b""), 4),
])
def test_answers_that_make_no_sense(fake, answer, code):
    fake.answers["GET", "/v1/gpus"] = answer
    fails(carve(fake, "gpu", "list"), code)


@pytest.mark.parametrize("answer", [[], {}, "x", 7, [7], [{}], [{"index": "x", "name": 3}]])
def test_json_of_another_shape_is_survived(fake, answer):
    for path in ("/v1/gpus", "/v1/sessions", "/v1/sessions/s-abc123", "/v1/version"):
        fake.answers["GET", path] = (200, answer)
    fake.answers["POST", "/v1/sessions"] = (201, answer)
    for argv in (["gpu", "list"], ["session", "list"], ["session", "show"], ["check"],
                 ["session", "show", "s-abc123"], ["session", "request", "--vram", "4"],
                 ["session", "release"]):
        assert carve(fake, *argv).returncode in (0, 1)


def test_gpu_list(fake):
    done = carve(fake, "gpu", "list")
    assert done.returncode == 0
    assert done.stdout.splitlines()[1].split("  ")[0] == "0"
    assert "Test GPU" in done.stdout and "76 GiB" in done.stdout
    assert json.loads(carve(fake, "gpu", "list", "--json").stdout) == [GPU]


def test_no_gpu(fake):
    fake.answers["GET", "/v1/gpus"] = (200, [])
    fails(carve(fake, "gpu", "list"), 1, "no GPU found", "carve sim")
    fake.answers["GET", "/v1/version"] = (200, {"no_gpu_reason": "the reason"})
    fails(carve(fake, "gpu", "list"), 1, "no GPU found: the reason", "carve sim")
    done = carve(fake, "gpu", "list", "--json")
    assert done.returncode == 1 and json.loads(done.stdout) == []
    assert "no GPU found" in json.loads(done.stderr)["error"]["message"]


def test_grants_say_bytes_and_the_93_rule(fake):
    done = carve(fake, "session", "request", "--vram", "4")
    assert "s-abc123" in done.stdout and "4294967296 bytes" in done.stdout
    assert "93%" not in done.stdout
    fake.answers["POST", "/v1/sessions"] = (201, session(
        tolerance_applied=True, vram_bytes=4000000000))
    assert "93%" in carve(fake, "session", "request", "--vram", "4").stdout
    lines = carve(fake, "run", "--vram", "4", "true").stderr.splitlines()
    assert "4000000000 bytes" in lines[0] and "93%" in lines[1]
    assert all(line.startswith("carve: ") for line in lines)


def test_session_show_list_release(fake):
    fails(carve(fake, "session", "show"), 1, "no current session")
    fails(carve(fake, "session", "release"), 1, "no current session")
    fails(carve(fake, "session", "show", "../x"), 1, "no session")
    fake.answers["GET", "/v1/sessions"] = (200, [
        session(id="s-other", owner="someone-else"), session(id="s-once", ephemeral=True),
        session(pids=[11, 12])])
    done = carve(fake, "session", "list")
    assert [line.split()[0] for line in done.stdout.splitlines()] == \
        ["ID", "s-other", "s-once", "s-abc123"]
    fake.answers["GET", "/v1/sessions/s-abc123"] = fake.answers["GET", "/v1/sessions/current"] = (200, session(pids=[11, 12]))
    assert "11 12" in carve(fake, "session", "show").stdout
    assert "11 12" in carve(fake, "session", "show", "s-abc123").stdout
    assert carve(fake, "session", "release").returncode == 0
    assert carve(fake, "session", "release", "--force").returncode == 0
    assert [path for path, _ in fake.sent("DELETE")] == [
        "/v1/sessions/s-abc123", "/v1/sessions/s-abc123?force=1"]


def test_hidden_or_missing_values_are_a_dash(fake):
    fake.answers["GET", "/v1/sessions"] = (200, [
        {"id": None, "state": "active", "owner": None, "vram_bytes": GIB, "gpus": []}])
    assert carve(fake, "session", "list").stdout.splitlines()[1].split()[:4] == \
        ["-", "-", "active", "-"]


def test_gpus_of_another_daemon_are_named(fake):
    held = dict(GPU, held_by={"pid": 77, "user": "ann"}, available_bytes=0)
    fake.answers["GET", "/v1/gpus"] = (200, [held])
    assert "held by another daemon (process 77 of ann)" in carve(fake, "gpu", "list").stdout


def test_escapes_of_foreign_names_do_not_reach_the_terminal(fake):
    fake.answers["GET", "/v1/gpus"] = (200, [dict(GPU, name="a\x1b[31mb")])
    assert "\x1b" not in carve(fake, "gpu", "list").stdout


def test_errors_stay_one_line_whatever_is_quoted(fake):
    argv = [CARVE.encode(), b"session", b"request", b"--vram", b"1\x1b[31m\n2\xff\xc2\x9b\xc3\xa4"]
    env = clean_env({"CARVE_RUNTIME_DIR": fake.dir})
    done = subprocess.run(argv, stderr=subprocess.PIPE, env=env, timeout=60)
    assert done.returncode == 2 and done.stderr.count(b"\n") == 1
    assert rb"1\x1b[31m\n2\xff\xc2\x9b" + b"\xc3\xa4" in done.stderr
    done = subprocess.run([*argv, b"--json"], stderr=subprocess.PIPE, env=env, timeout=60)
    message = json.loads(done.stderr)["error"]["message"]
    assert "--vram" in message and "1\x1b[31m\n2\\xff\u009b\u00e4" in message


def test_an_empty_command_is_quoted(fake):
    fails(carve(fake, "run", "--vram", "4", ""), 127, "'': command not found")


def test_a_daemon_that_ends_when_asked(fake):
    fake.answers["GET", "/v1/gpus"] = (0, {})
    done = carve(fake, "gpu", "list")
    fails(done, 4, "ended while it was asked")


def test_full_output_is_an_error(fake):
    with open("/dev/full", "w") as full:
        for argv in (["gpu", "list"], ["gpu", "list", "--json"], ["--version"]):
            done = subprocess.run([CARVE, *argv], stdout=full, stderr=subprocess.PIPE, text=True,
                                  env=clean_env({"CARVE_RUNTIME_DIR": fake.dir}))
            assert done.returncode == 1 and "standard output" in done.stderr


# ---- which daemon ---------------------------------------------------------------------------

def test_host_names_a_socket(fake):
    env = {"CARVE_RUNTIME_DIR": "/nonexistent"}
    path = fake.dir + "/carved.sock"
    assert carve(fake, "gpu", "list", "--host", path, env=env).returncode == 0
    assert carve(fake, "--host", path, "gpu", "list", env=env).returncode == 0
    assert carve(fake, "gpu", "list", env=dict(env, CARVE_HOST=path)).returncode == 0
    done = carve(fake, "run", "--host", "carved.sock", "--vram", "4", "sh", "-c",
                 "echo $CARVE_ATTACH", env=env, cwd=fake.dir)
    assert done.stdout.strip() == os.path.realpath(fake.dir) + "/attach.sock"


def test_unreachable_host(fake):
    missing = fake.dir + "/none.sock"
    fails(carve(fake, "gpu", "list", "--host", missing), 4, missing)
    fails(carve(fake, "gpu", "list", "--host", "/" + "x" * 200), 2, "too long")
    for argv in (["gpu", "list", "--host", ""], ["--host=", "timeslicing", "--mode", "fair"]):
        fails(carve(fake, *argv), 2, "--host: no socket is named")
    done = carve(fake, "gpu", "list", "--json", env={"CARVE_HOST": missing})
    assert done.returncode == 4 and json.loads(done.stderr)["error"]["code"] == 4
    fails(carve(fake, "run", "--host", missing, "--vram", "4", "true"), 125, missing)
    assert not os.path.exists(missing)


def test_waiting_is_quiet_in_a_pipe_and_told_on_a_terminal(fake):
    def slowly(body):
        time.sleep(1.8)
        return 201, session()

    fake.answers["POST", "/v1/sessions"] = slowly
    argv = ["session", "request", "--vram", "4", "--wait-for", "30"]
    done = carve(fake, *argv)
    assert done.returncode == 0 and done.stderr == ""
    with terminal([CARVE, *argv], fake) as (process, read):
        assert "waiting up to 30 s for 4 GiB (Ctrl-C gives up)" in read(b"gives up")
        assert process.wait() == 0


def test_a_waiting_request_is_told_each_change_of_place_or_reason(fake):
    left = threading.Event()
    fake.answers["POST", "/v1/sessions"] = lambda body: (left.wait(60), (201, session()))[1]

    def sessions(place, why):
        return 200, [dict(session(), state="waiting", position=1, requester_pid=1, reason="other"),
                     dict(session(), state="waiting", position=place, requester_pid=process.number, reason=why)]

    argv = [CARVE, "session", "request", "--vram", "4", "--wait-for", "30"]
    with terminal(argv, fake) as (process, read):
        fake.answers["GET", "/v1/sessions"] = sessions(3, "GPU 0: 1 GiB free")
        assert "for 4 GiB, at place 3: GPU 0: 1 GiB free (Ctrl-C" in read(b"place 3")
        fake.answers["GET", "/v1/sessions"] = sessions(2, "GPU 0: 3 GiB free")
        shown = read(b"3 GiB free (Ctrl-C gives up)")
        assert "at place 2: GPU 0: 3 GiB free" in shown and shown.count("place 3") == 1
        left.set()
        assert process.wait() == 0


# ---- check ----------------------------------------------------------------------------------

def test_check_says_what_enforces(fake):
    fake.answers["GET", "/v1/version"] = (200, {"version": "0.1.0", "pid": 77,
                                                "driver_version": "550.54"})
    found = json.loads(carve(fake, "check", "--json").stdout)
    assert found["gpus"][0]["memory"]["enforced_by"].startswith("carve's library")
    assert found["gpus"][0]["compute"]["enforced_by"] == "nothing"
    assert found["daemon"]["pid"] == 77 and found["daemon"]["socket"].startswith(fake.dir)
    text = carve(fake, "check").stdout
    assert "550.54" in text and "GPU 0" in text and "isolation:" in text


def test_check_without_a_daemon(fake):
    missing = fake.dir + "/none.sock"
    done = carve(fake, "check", "--host", missing, "--json")
    found = json.loads(done.stdout)
    assert done.returncode == 4 and found["daemon"] is None
    assert any(missing in line for line in found["missing"])
    done = carve(fake, "check", "--host", missing)
    assert done.returncode == 4 and "daemon:   not reachable" in done.stdout and done.stderr == ""


# ---- the C API ------------------------------------------------------------------------------

def api_client(*argv):
    return subprocess.run([str(BUILD / "tests/programs/api_client"), *argv], env=clean_env(),
                          capture_output=True, text=True, timeout=60)


def test_c_api(fake):
    done = api_client(fake.dir + "/carved.sock", "2560MiB")
    assert done.returncode == 0, done.stderr
    gpus, granted = map(json.loads, done.stdout.splitlines())
    assert gpus == [GPU] and granted["id"] == "s-abc123"
    assert fake.sent("POST") == [("/v1/sessions", {"vram_bytes": 2684354560})]
    assert fake.sent("DELETE") == [("/v1/sessions/s-abc123", None)]


def test_c_api_errors(fake):
    missing = api_client(fake.dir + "/none.sock", "4")
    assert missing.returncode == 4 and "no daemon answers" in missing.stderr
    malformed = api_client(fake.dir + "/carved.sock", "4x")
    assert malformed.returncode == 2 and "4x" in malformed.stderr


def test_c_api_exports_only_itself():
    done = subprocess.run(["nm", "-D", "--defined-only", str(BUILD / "src/client/libcarve.so")],
                          capture_output=True, text=True, check=True)
    names = [line.split()[-1] for line in done.stdout.splitlines()]
    header = (ROOT / "include/carve/carve.h").read_text()
    assert sorted(names) == sorted(re.findall(r"CARVE_API [^(]*?(carve_\w+)\(", header)) and len(names) > 9


@pytest.mark.parametrize("words", [
    ["run", "--vram", "1", "--name", b"\xff", "true"], ["quota", "set", b"\xff", "--vram", "1"], ["session", "show", b"\xff"],
    ["agent", "--detached", "--queue", b"\xff=1"], ["agent", "--detached", "--queue", "a=1", "--docker-deny", b"\xff"]])
def test_words_that_a_request_cannot_carry_are_refused(host, words):
    done = subprocess.run([CARVE, *words], env=host.env, capture_output=True)
    assert done.returncode == (125 if words[0] == "run" else 2) and b"not UTF-8" in done.stderr, done
    assert done.stderr.count(b"\n") == 1


def test_more_options_than_are_kept_are_refused(host):
    done = host.carve("enqueue", "--queue", "q", *(word for i in range(300) for word in ("--docker-arg", f"--env=A={i}")), "--", "true")
    assert done.returncode == 2 and "options" in done.stderr, done.stderr
