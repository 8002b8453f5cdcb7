"""Words and numbers as people type them: short verbs, sizes and times with units, and what they are told."""
import contextlib
import fcntl
import os
import pty
import re
import shutil
import struct
import subprocess
import termios

import pytest

from conftest import BUILD, clean_env, wait_until

CARVE = str(BUILD / "carve")


def test_short_words_stand_for_the_verbs_that_they_mean(host):
    granted = host.carve_json("session", "request", "--vram", "2G")
    assert granted["vram_bytes"] == 2 * 10**9
    for short in ("ls", "ps"):
        assert [s["id"] for s in host.carve_json(short)] == [granted["id"]]
    assert granted["id"] in host.carve("status").stdout
    assert host.carve("version").stdout == host.carve("--version").stdout
    assert "session list" in host.carve("ls", "--help").stdout
    assert host.carve("list").stdout == host.carve("session", "list").stdout
    assert host.carve_json("resize", "3G")["vram_bytes"] == 3 * 10**9 and granted["id"] in host.carve("show").stdout
    assert host.carve("release", granted["id"]).stdout == f"{granted['id']}: released\n"
    assert host.carve_json("request", "--vram", "1")["vram_bytes"] == 1 << 30 and host.carve("release").returncode == 0
    assert host.carve_json("--json", "ls") == []


def test_ls_and_ps_list_what_a_group_has(host):
    granted = host.carve_json("session", "request", "--vram", "1")["id"]
    for group in ("session", "gpu", "job", "queue", "mig", "quota"):
        listed = host.carve(group, "list", "--json")
        for short in ("ls", "ps"):
            done = host.carve(group, short, "--json")
            assert (done.returncode, done.stdout) == (0, listed.stdout), (group, short, done.stderr)
    assert granted in host.carve("session", "ls").stdout


def test_status_shows_or_lists_what_a_group_has(host):
    host.carve_json("session", "request", "--vram", "1")
    for group, verb in (("session", "show"), ("quota", "show"), ("gpu", "list"), ("queue", "list"), ("mig", "list")):
        want, done = host.carve(group, verb), host.carve(group, "status")
        # The session adds to its hours meanwhile.
        shown = [re.sub(r" +(<0\.01|[\d.]+), no limit$", "", answer.stdout, flags=re.M) for answer in (want, done)]
        assert done.returncode == 0 and shown[0] == shown[1] and want.stdout, (group, done.stderr)
    assert "sim stat" in host.carve("sim", "status", "--help").stdout


@pytest.mark.parametrize("typed, verb", [
    ("session info", "session show"), ("session rm", "session release"), ("session remove", "session release"),
    ("session delete", "session release"), ("session stop", "session release"), ("session kill", "session release"),
    ("session cancel", "session release"), ("session create", "session request"), ("session start", "session request"),
    ("session update", "session resize"), ("job info", "job show"), ("job rm", "job cancel"), ("job remove", "job cancel"),
    ("job stop", "job cancel"), ("job kill", "job cancel"), ("job delete", "job cancel"), ("job log", "job logs"),
    ("job retry", "job rerun"), ("queue show", "queue list"), ("gpu show", "gpu list"), ("gpu info", "gpu list"),
    ("mig show", "mig list"), ("cdi ls", "cdi list"), ("cdi rm", "cdi remove"), ("cdi show", "cdi list"), ("cdi create", "cdi generate"),
    ("image create", "image build"), ("hook rm", "hook remove"), ("hook uninstall", "hook remove"), ("hook add", "hook install"),
    ("quota rm", "quota remove"), ("quota unset", "quota remove"), ("quota delete", "quota remove"), ("quota add", "quota set"), ("quota info", "quota show"),
    ("session list", "session list"), ("job release", "job release"), ("sim status", "sim stat")])
def test_words_of_other_commands_stand_for_the_verbs_of_a_group(typed, verb):
    done = [subprocess.run([CARVE, *words.split(), "--help"], capture_output=True, text=True, env=clean_env()) for words in (typed, verb)]
    assert done[0].returncode == done[1].returncode == 0 and done[0].stdout == done[1].stdout, done[0].stderr


@pytest.mark.parametrize("typed, hint", [
    ("node ls", "carve gpu list"), ("node show", "carve gpu list"), ("image ls", "docker image ls"), ("image list", "docker image ls"),
    ("hook ls", "carve hook install --help"), ("hook status", "carve hook install --help"), ("timeslicing show", "carve timeslicing shows"),
    ("job submit", "carve enqueue"), ("queue create", "carve agent"), ("kill", "carve session release"), ("rm", "carve job cancel"),
    ("gpus", "carve gpu list"), ("jobs", "carve job list"), ("exec", "carve run"),
    ("doctor", "carve check"), ("nvidia-smi", "carve gpu list"), ("restart", "systemctl restart carved.service"), ("info", "carve status"),
    ("timeslicing fair", "carve timeslicing --mode fair"), ("timeslicing off", "carve timeslicing --mode off"), ("docker ps", "docker ps lists"), ("submit", "carve enqueue"), ("session exec", "carve run"),
    ("session shrink 2", "carve session resize"), ("session grow 8", "carve session resize")])
def test_words_whose_command_is_another_are_told_which(typed, hint):
    done = subprocess.run([CARVE, *typed.split()], capture_output=True, text=True, env=clean_env())
    assert done.returncode == 2 and "unknown command" in done.stderr and hint in done.stderr, done.stderr


@pytest.mark.parametrize("typed, meant", [
    ("run --memory 4G true", "--vram"), ("run --mem=4G true", "--vram"), ("run -m 4G true", "--vram"), ("run --device 0 true", "--gpu-ids"),
    ("run --timeout 5m true", "--session-timeout"), ("enqueue --timeout 5m true", "--time"), ("enqueue -q some true", "--queue"),
    ("enqueue --partition some true", "--queue"), ("session request --profile 1g.10gb", "--mig-profile"), ("agent -d half=0.5", "--detached"),
    ("session release -f", "--force"), ("session list -a", "--all"), ("top -d 5", "--interval"), ("gpu list --format csv", "--json"),
    ("-v", "--version")])
def test_options_of_other_programs_are_told_which_of_carves_does_that(typed, meant):
    done = subprocess.run([CARVE, *typed.split()], capture_output=True, text=True, env=clean_env())
    assert done.returncode in (2, 125) and done.stderr.count("\n") == 1, done.stderr
    assert "unknown option" in done.stderr and f"did you mean {meant}?" in done.stderr, done.stderr


@pytest.mark.parametrize("typed", ["session request 4G", "session request --name a 2.5GiB", "explain s-000000 4G"])
def test_a_size_without_its_option_is_told_the_option(typed):
    done = subprocess.run([CARVE, *typed.split()], capture_output=True, text=True, env=clean_env())
    assert done.returncode == 2 and f"did you mean --vram {typed.split()[-1]}?" in done.stderr, done.stderr


@pytest.mark.parametrize("program", ["carved", "carve-hook", "carve-kubernetes"])
@pytest.mark.parametrize("option, wrong", [("--nothing", "unknown option --nothing"), ("--host", "--host needs a value"),
                                           ("--help=yes", "--help=yes: this option takes no value")])
def test_the_other_programs_say_in_one_line_which_option_is_wrong(program, option, wrong):
    if option == "--host" and program != "carve-hook":
        option, wrong = {"carved": ("--config", "--config needs a value"), "carve-kubernetes": ("--node-name", "--node-name needs a value")}[program]
    done = subprocess.run([BUILD / program, option], capture_output=True, text=True, env=clean_env(), stdin=subprocess.DEVNULL)
    assert (done.returncode, done.stderr) == (2, f"{program}: {wrong}; see {program} --help\n")


@pytest.mark.parametrize("runtime, verb", [("podman", "run"), ("docker", "run"), ("apptainer", "exec")])
def test_a_container_without_an_image_is_shown_an_example_of_its_own_runtime(runtime, verb):
    done = subprocess.run([CARVE, runtime, verb, "--vram", "1"], capture_output=True, text=True, env=clean_env())
    assert done.returncode == 125 and f"the image is missing; for example: carve {runtime} {verb} --vram 8" in done.stderr


def test_a_word_after_sim_can_be_a_program(host):
    assert "rm: missing operand" in host.carve("sim", "rm").stderr


@pytest.mark.parametrize("word", ["ls", "ps", "list", "status", "show", "info"])
def test_agent_ls_starts_no_agent(host, word):
    status = host.carve("agent", "--status")
    done = host.carve("agent", word)
    assert (done.returncode, done.stdout, done.stderr) == (status.returncode, status.stdout, status.stderr)
    assert host.carve_json("queue", "list") == []


def test_times_of_several_units(host):
    for argv in (["session", "request", "--vram", "1", "--session-timeout", "1h30m"], ["mig", "gc", "--older-than", "1d2h"],
                 ["run", "--ephemeral", "--vram", "1", "--wait-for", "1m30s", "true"], ["enqueue", "--queue", "none", "--time", "1h30m", "true"],
                 ["timeslicing", "--mode", "fair", "--lease", "0.1s50ms"], ["top", "--once", "--interval", "1m30s"]):
        done = host.carve(*argv)
        assert "unit" not in done.stderr and "--time" not in done.stderr and done.returncode in (0, 1), done.stderr
    assert host.carve_json("timeslicing")[0]["lease_ns"] == 150_000_000
    done = host.carve("run", "--ephemeral", "--vram", "1", "--wait-for", "1h30", "true")
    assert done.returncode == 125 and "(us, ms, s, m, h, d)" in done.stderr and "1h30m" in done.stderr
    assert "(us, ms, s, m, h, d" in host.carve("run", "--ephemeral", "--vram", "1", "--wait-for", "1y", "true").stderr


def test_release_all_ends_all_of_the_users_sessions(host):
    first = host.carve_json("session", "request", "--vram", "1")["id"]
    sleeper = host.popen([CARVE, "run", "--ephemeral", "--vram", "1", "sh", "-c", "echo up; read line"],
                         stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert sleeper.stdout.readline()
    done = host.carve("session", "release", first, "--all")
    assert done.returncode == 2 and "--all" in done.stderr
    assert "processes inside" in host.carve("release", "--all").stderr
    released = host.carve_json("release", "--all", "--force")
    assert len(released) == 1 and host.carve_json("ls") == []
    sleeper.communicate(timeout=60)
    assert host.carve_json("ls") == []
    done = host.carve("release", "--all")
    assert (done.returncode, done.stdout) == (0, "you have no sessions\n")


def test_gibibytes_that_were_meant_as_mebibytes(host):
    done = host.carve("session", "request", "--vram", "40960")
    assert done.returncode == 3 and "did you mean 40960MiB?" in done.stderr
    assert "did you mean 500MiB?" in host.carve("run", "--vram", "500", "true").stderr
    granted = host.carve_json("session", "request", "--vram", "1")["id"]
    for argv in ([granted, "4096"], ["--vram", "4096"]):
        assert "did you mean 4096MiB?" in host.carve("session", "resize", *argv).stderr, argv
    assert "did you mean" not in host.carve("session", "resize", granted, "100").stderr
    host.carve("session", "release", granted)
    assert "did you mean" not in host.carve("session", "request", "--vram", "100").stderr


def test_a_size_as_carve_itself_prints_it_is_told_how_to_write_it(host):
    for size, right in (("3.73 GiB", "3.73GiB"), ("2,5", "2.5")):
        done = host.carve("run", "--vram", size, "true")
        assert done.returncode == 125 and f"write {right}" in done.stderr and "no unit" not in done.stderr, done.stderr


def test_a_unit_apart_from_its_number_is_no_command_image_or_session(host, tmp_path):
    for argv, code, meant in ((["run", "--vram", "4", "GB", "true"], 125, "--vram 4GB"),
                              (["run", "--wait-for", "1", "m", "--vram", "4", "true"], 125, "--wait-for 1m"),
                              (["podman", "run", "--vram", "4", "GB", "image"], 125, "--vram 4GB"),
                              (["session", "resize", "4", "GB"], 2, "4GB"), (["explain", "--vram", "4", "GB"], 2, "--vram 4GB")):
        done = host.carve(*argv)
        assert done.returncode == code and f"did you mean {meant}?" in done.stderr, (argv, done.stderr)
    program = tmp_path / "GB"
    program.write_text("#!/bin/sh\necho ran\n")
    program.chmod(0o755)
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    assert host.run([CARVE, "run", "--vram", "4", "GB"], env=env).stdout == "ran\n"


@pytest.mark.needs_sim("MIG mode is its")
def test_gibibytes_are_asked_about_beside_a_gpu_in_mig_mode(make_host):
    assert "did you mean 4096MiB?" in make_host("h100-80gb,a100-40gb+mig").carve("run", "--vram", "4096", "true").stderr


def terminal_lines(host, columns, *argv):
    """Output of the command on a terminal of that width."""
    main, other = pty.openpty()
    fcntl.ioctl(other, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    done = host.popen([CARVE, *argv], stdout=other, stdin=other)
    os.close(other)
    said = b""
    with contextlib.suppress(OSError):  # EIO: nobody has the terminal's other side
        while read := os.read(main, 4096):
            said += read
    os.close(main)
    assert done.wait(60) == 0
    return said.decode().replace("\r\n", "\n").splitlines()


@pytest.mark.needs_sim("MIG mode is its")
def test_a_table_that_is_wider_than_the_terminal_has_rows_of_several_lines(make_host):
    host = make_host("h100-80gb+mig")
    host.carve_json("node", "set-role", "--dynamic-mig-enabled")
    granted = host.carve_json("session", "request", "--mig-profile", "1g.10gb", "--name", "a-name-of-some-length")["id"]
    instance, = host.carve_json("mig", "list")
    # How busy it is comes with the second sample.
    wait_until(lambda: " 0% " in host.carve("mig", "list").stdout)
    whole = host.carve("mig", "list").stdout.splitlines()
    assert len(whole) == 2 and max(map(len, whole)) > 120
    lines = terminal_lines(host, 80, "mig", "list")
    assert max(map(len, lines)) <= 80 and " ".join(lines).split() == " ".join(whole).split()
    heading, more, first, second = lines
    assert heading.startswith("GPU") and more.startswith("     ") and "UUID" in more
    assert granted in first and second.startswith("     ") and second[more.index("UUID"):] == instance["uuid"]
    assert max(map(len, terminal_lines(host, 80, "session", "list"))) <= 80
    assert terminal_lines(host, 200, "mig", "list") == whole


def test_a_session_is_a_line_of_80_columns(host):
    room = host.carve_json("gpu", "list")[0]["available_bytes"]
    granted = host.carve_json("session", "request", "--vram", f"{room}B", "--name", "train")["id"]
    heading, *rows = terminal_lines(host, 80, "session", "list")
    assert heading.split()[-1] == "CREATED" and [row.split()[0] for row in rows] == [granted]
    assert re.search(r" \d\d:\d\d$", rows[0])
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+Z", host.carve_json("session", "list")[0]["created"])


@pytest.mark.parametrize("agent", [["half=0.5"], ["--docker", "any", "image_says"]], ids=" ".join)
def test_jobs_are_asked_whether_mebibytes_were_meant(host, agent):
    queue = agent[-1].partition("=")[0]
    host.carve_json("agent", "--gpus", "0", *agent, "--detached")
    assert "did you mean 4096MiB?" in host.carve("enqueue", "--queue", queue, "--vram", "4096", "true").stderr
    assert "did you mean" not in host.carve("enqueue", "--queue", queue, "--vram", "100", "true").stderr


def test_a_run_that_joins_says_which_session_and_who_shares_it(host):
    granted = host.carve_json("session", "request", "--vram", "1")["id"]
    done = host.carve("run", "--verbose", "--", CARVE, "run", "--vram", "1", "true")
    assert f"using your session {granted} (1 GiB)\n" in done.stderr
    assert f"inside slice {granted} already, and a slice cannot be cut again" in done.stderr
    assert not host.carve("run", "true").stderr
    sleeper = host.popen([CARVE, "run", "--", "sh", "-c", "echo up; read line"], stdin=subprocess.PIPE,
                         stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert sleeper.stdout.readline()
    done = host.carve("run", "--verbose", "true")
    assert f"using your session {granted} (1 GiB, shared with 1 process)\n" in done.stderr
    sleeper.communicate("\n" if sleeper.text_mode else b"\n", timeout=60)


def test_a_missing_argument_is_named_by_one_word():
    for argv, word in ((["run"], "the command is missing"), (["job", "wait"], "JOB is missing"),
                       (["completion"], "SHELL is missing"), (["job", "move"], "JOB is missing")):
        done = subprocess.run([CARVE, *argv], capture_output=True, text=True, env=clean_env())
        assert done.returncode in (2, 125) and word in done.stderr, done.stderr
        assert "usage: carve " + " ".join(argv) in done.stderr


@pytest.mark.parametrize("options", [[], ["--shared"]], ids=str)
def test_a_terminal_is_told_of_the_simulated_host_and_how_to_join_it(options):
    main, other = pty.openpty()
    done = subprocess.Popen([CARVE, "sim", *options], stdin=other, stdout=other, stderr=other,
                            env=clean_env({"SHELL": "/bin/sh"}), start_new_session=True)
    os.close(other)
    said = b""
    while b"leave it: exit" not in said:
        said += os.read(main, 4096)
    assert b"no real GPU" in said and b"join it from another terminal: carve sim --join /" in said
    assert (b"other users join with: carve sim --join /" in said) == bool(options)
    # Another one in it would look like a host of its own.
    os.write(main, f"{CARVE} sim\n".encode())
    said = b""
    while b"starts another host; leave it: exit" not in said:
        said += os.read(main, 4096)
    assert b"this is on the simulated host /" in said
    os.write(main, b"exit\nexit\n")
    while True:
        try:
            if not os.read(main, 4096):
                break
        except OSError:
            break
    assert done.wait(60) == 0
    os.close(main)


def completed(host, *words):
    done = host.carve("completion", "words", "--", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def test_completion_knows_what_can_stand_at_each_place(host):
    granted = host.carve_json("session", "request", "--vram", "1", "--name", "mine")["id"]
    for words, want in (
            (("session", "show", ""), [granted, "mine"]), (("release", ""), [granted, "mine"]),
            (("run", "--session", "m"), ["mine"]), (("timeslicing", "--mode", ""), ["off", "fair", "strict"]),
            (("timeslicing", "simulate", "--fr"), ["--fractions"]), (("timeslicing", ""), ["simulate", "trace"]),
            (("run", "--gpu-ids", ""), ["0"]), (("run", ""), [":commands"]), (("run", "python3", ""), [":files"]),
            (("run", "--vram", "4", "--", ""), [":commands"]), (("completion", ""), ["bash", "zsh", "fish"]),
            (("quota", "show", "roo"), ["root"]), (("mig", "simulate", ""), [":files"]), (("gpu", "list", ""), [])):
        assert completed(host, *words) == want, words
    assert "h100-80gb" in completed(host, "sim", "--gpus", "h100")
    assert completed(host, "help", "sess") == ["session"] and "resize" in completed(host, "help", "session", "")
    assert completed(host, "help", "session", "resize", "") == []


SIZES = {"--vram", "--gpu-memory", "--gpu", "--mig-profile", "--gpu-compute", "--session", "--ephemeral", "--wait-for"}


@pytest.mark.parametrize("verb", ["docker run", "podman run", "apptainer exec", "apptainer run", "apptainer shell"])
def test_container_commands_show_and_complete_the_options_of_a_slice(host, verb):
    words = verb.split()
    shown = host.carve(*words, "--help").stdout
    assert SIZES <= set(re.findall(r"^  (--[a-z-]+) ", shown, re.M)) and "--name" not in re.findall(r"^  (--[a-z-]+) ", shown, re.M)
    assert set(completed(host, *words, "--se")) == {"--session", "--session-timeout"}
    assert SIZES <= set(completed(host, *words, "")) and SIZES <= set(completed(host, *words, "--rm", "--"))
    granted = host.carve_json("session", "request", "--vram", "1")["id"]
    assert completed(host, *words, "--session", "s-") == [granted]
    assert completed(host, *words, "IMAGE", "") == []


def test_values_after_an_equals_sign_are_completed(host):
    granted = host.carve_json("session", "request", "--vram", "1", "--name", "mine")["id"]
    for words, want in (
            (("run", "--session="), [granted, "mine"]), (("run", "--session=m"), ["mine"]), (("timeslicing", "--mode=f"), ["fair"]),
            # as bash takes them apart
            (("run", "--session", "="), [granted, "mine"]), (("run", "--session", "=", "m"), ["mine"]),
            (("run", "--session", "=", "mine", ""), [":commands"]), (("run", "--session", "=", "mine", "python3", ""), [":files"]),
            (("sim", "--gpus", "h100-80gb", ":", "2"), [])):
        assert completed(host, *words) == want, words
    assert completed(host, "sim", "--gpus", "h100-80gb", ":", "2", "")[-1] == ":commands"


@pytest.mark.parametrize("verb", ["docker run", "podman run"])
def test_values_of_a_runtimes_options_are_neither_images_nor_options_of_carve(host, verb):
    for words in (["-v"], ["--rm", "-itv"], ["--volume"], ["--vram", "2", "-v"], ["-e", "A=b", "-v"], ["-e", "A", "=", "b", "-v"]):
        assert completed(host, *verb.split(), *words, "") == [":files"], words
        assert completed(host, *verb.split(), *words, "/x", ":", "/") == [], words
        for value in (["/x:/y"], ["/x", ":", "/y"]):
            assert SIZES <= set(completed(host, *verb.split(), *words, *value, "")), words
            assert completed(host, *verb.split(), *words, *value, "IMAGE", "") == [], words


@pytest.mark.parametrize("runtime, option", [("docker", "-H"), ("podman", "--root"), ("apptainer", "-c")])
def test_options_before_run_are_completed_as_those_behind_it(host, runtime, option):
    verbs = {"exec", "run", "shell"} if runtime == "apptainer" else {"run"}
    granted = host.carve_json("session", "request", "--vram", "1")["id"]
    assert completed(host, runtime, option, "") == [":files"]
    assert set(completed(host, runtime, option, "run", "")) == verbs
    assert set(completed(host, runtime, "--se")) == {"--session", "--session-timeout"}
    assert completed(host, runtime, "--session", "") == [granted]
    assert set(completed(host, "--json", runtime, "--vram", "2", "")) == verbs
    assert SIZES <= set(completed(host, runtime, option, "x", "--vram", "2", "run", "--"))


def test_completion_knows_all_faults_and_their_options(host):
    help_text = host.carve("sim", "fault", "--help").stdout
    kinds = set(re.findall(r"^  ([a-z]\S*)  ", help_text, re.M)) | {"all", "reset", "reboot"}
    assert len(kinds) > 15 and set(completed(host, "sim", "fault", "")) == kinds
    options = set(re.findall(r"^  (--[a-z]+) ", help_text, re.M))
    assert len(options) > 5 and set(completed(host, "sim", "fault", "lost", "--")) == options
    assert completed(host, "sim", "fault", "lost", "") == []


def test_completion_knows_the_first_words(host):
    assert {"session", "run", "ls", "status"} <= set(completed(host, ""))


def test_completion_offers_commands_in_the_order_of_help(host):
    names = [verb["name"].split() for verb in host.carve_json("help")]
    firsts = list(dict.fromkeys(name[0] for name in names))
    assert len(firsts) > 20 and completed(host, "")[:len(firsts)] == firsts
    for first in firsts:
        seconds = [name[1] for name in names if name[0] == first and len(name) > 1]
        assert completed(host, "help", first, "") == seconds, first


def test_completion_starts_no_daemon(tmp_path):
    env = clean_env({"CARVE_RUNTIME_DIR": str(tmp_path / "none")})
    done = subprocess.run([CARVE, "completion", "words", "--", "session", "show", ""], capture_output=True, env=env)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert not (tmp_path / "none").exists()


SHELLS = {
    "bash": "source <({carve} completion bash); COMP_WORDS=({carve} {bash}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1)); _carve; "
            "printf '%s\\n' ${{COMPREPLY[@]}}",
    "zsh": "autoload -U compinit; compinit -D; source <({carve} completion zsh); compadd() {{ print -l $plain }}; "
           "words=({carve} {line}); CURRENT=$#words; _carve",
    "fish": "source ({carve} completion fish | psub); set PATH {folder} $PATH; complete -C 'carve {line}'",
}
LINES = {"session re": ["release", "request", "resize"], "timeslicing --mode=f": ["fair"], "timeslicing --mode f": ["fair"]}


@pytest.mark.parametrize("shell, keeps", [("bash", "complete -o nosort "), ("zsh", "compadd -V "), ("fish", "complete -c carve -k ")])
def test_shells_are_told_to_keep_the_order_of_words(host, shell, keeps):
    assert keeps in host.carve("completion", shell).stdout


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("shell", SHELLS)
def test_shells_complete(shell, line):
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    script = SHELLS[shell].format(carve=CARVE, folder=BUILD, line=line, bash=line.replace("=", " = "))
    done = subprocess.run([shell, "-c", script], capture_output=True, text=True, env=clean_env(), timeout=60)
    # fish replaces the whole word, the others what follows the "=".
    before = "--mode=" if shell == "fish" and "=" in line else ""
    assert sorted(done.stdout.split()) == [before + word for word in LINES[line]], done.stderr
