"""Wrong input of every verb gets one line that says what was wrong, the documented exit code, and changes nothing."""
import shlex

import pytest

from conftest import BUILD

# The exit code, the words, and a part of what is said. {} is a directory with file, empty, sub and the traces of mig simulate.
WRONG = r"""
2|gpu list extra|unexpected argument 'extra'
2|gpu list --gpu-ids 9|unknown option --gpu-ids
2|gpu lst|did you mean `carve gpu list`?
2|gpu|no command given
2|session request|no size given
2|session request --vram|--vram needs a value
2|session request --vram ''|--vram: no value given
2|session request --vram 1e400|'1e400' ends in 'e400', which is no unit
2|session request --vram NaN|'NaN' is not a finite number
2|session request --vram 1,5|write 1.5
2|session request --gpu 2.5|neither a fraction of one GPU nor whole GPUs
2|session request --gpu half|'half' is not a number
2|session request --gpus 1.5 --vram 1|'1.5' is not a whole number
2|session request --gpu-ids 0,0 --vram 1|GPU 0 is named twice
2|session request --gpu-ids 7 --vram 1|there is no GPU 7
2|session request --gpu-compute 101% --vram 1|more than the whole GPU
2|session request --priority 1000 --vram 1|no whole number from -100 to 100
2|session request --wait-for soon --vram 1|'soon' is not a number
2|session request --session-timeout 0 --vram 1|more than 0 seconds
2|session request --name s-abc123 --vram 1|no name for a session
2|session request --reserve 100GiB --vram 1|leaves less than
2|session request --backend foo --vram 1|mig and fraction
3|session request --vram 500|500 GiB is more than there is
3|session request --vram 500|a size without a unit is GiB: did you mean 500MiB?
3|session request --vram 2TiB|2 TiB is more than there is: GPU 0 (NVIDIA H100 80GB HBM3): 79.1 GiB of 79.1 GiB free; GPU 1 (NVIDIA H100 80GB HBM3): 79.1 GiB of 79.1 GiB free\n
3|session request --gpu 3|3 GPUs asked, there are 2
3|session request --mig-profile 9g.999gb|no GPU here gives out MIG instances
1|session show|you have no current session
1|session show s-x|there is no session s-x
2|session resize s-x --gpu 2|is whole GPUs
1|session resize --vram 5|you have no current session
2|session release --user root --all|--user and --all are both given
125|run|the command is missing
125|run true|no size given, and you have no current session
125|run --vram 500 true|500 GiB is more than there is
125|run --isolation foo --vram 1 true|'foo' is no way to isolate
127|run --vram 1 -- -x|-x: command not found
126|run --vram 1 {}|is a directory
126|run --vram 1 {}/file|is not executable
2|top --interval 0|not from 0.1 to 3600
2|explain|no ID and no size given
2|explain s-x --vram 1|an ID and a size are both given
2|check extra|unexpected argument
2|completion tcsh|no shell that carve knows
2|help nosuch|unknown command 'nosuch'
2|agent|no queue is named
2|agent stop|did you mean carve agent --stop?
2|agent --queue half=0|'0' is no GPU at all
2|agent --queue half=0.5,max=0|'0' is not a number of jobs
2|agent --queue half=0.5,foo=1|neither max=K nor docker=IMAGE
2|agent --queue half=0.5 half=0.25|named twice
2|agent --queue many=4-1|not a range of whole GPUs
2|agent --gpus 9 --queue half=0.5|there is no GPU 9
2|agent --docker-allow foo --queue half=0.5|have no option 'foo'
2|agent --on foo --queue half=0.5|'foo' is no place for jobs
2|agent --on kubernetes --queue half=0.5|the pods have no image; name one with --docker IMAGE
2|agent --now|--now only goes with --stop
1|agent --stop a-1|there is no agent a-1
1|agent --drain nosuch|no agent serves queue nosuch
3|agent --queue big=5 --detached|a job needs 5 GPUs, and the agent has 2
2|enqueue true|no queue is named
2|enqueue --queue q ''|the command is an empty word
2|enqueue --queue 'a b' true|'a b' is not the name of a queue
2|enqueue --queue q --time 5 true|it has no unit
2|enqueue --queue q --begin 2026-02-31 true|is not understood
2|enqueue --queue q --begin 2020-01-01 true|is in the past
2|enqueue --queue q --begin 9999-01-01 true|it is after the year 2262
2|enqueue --queue q --retries 5000 true|a whole number from 0 to 1000
2|enqueue --queue q --retry-on FOO --retries 1 true|'FOO' is not understood
2|enqueue --queue q --after nope true|--after: there is no job 'nope'
2|enqueue --queue q --array 5-1 true|'5-1' is not a list of indexes
2|enqueue --queue q --array 0-3 --param lr=1,2 true {lr}|index 3 is none of the sweep's: the values of --param make jobs 0 to 1; leave out --array
2|enqueue --queue q --param lr=1,2 true|the command never uses lr
2|enqueue --queue q --export '' true|--export: '' is not understood
2|enqueue --queue q --chdir /nosuch true|/nosuch is not a directory
2|enqueue --queue q --chdir '' true|--chdir: the path is empty
2|enqueue --queue q --output '' true|--output: the path is empty
2|enqueue --queue q --output {}/%A.log true|has %A in it; %j is the job, %a its index, %x its name, and %% a %
2|enqueue --queue q --output {}/sub true|Is a directory
2|enqueue --queue q --input {}/none true|No such file or directory; if another job makes it, name that one
2|enqueue --queue q --input {}/sub true|/sub: Is a directory\n
2|enqueue --queue q --name 17 true|looks like the ID of a job
2|enqueue --queue q --docker '' true|'' is not the name of an image
2|queue create x|a queue is made by its agent
1|queue explain 77|there is no job 77
2|job list --queue nosuch|there is no queue 'nosuch'
2|job list --last x|'x' is not a number
2|job logs --attempt 0 1|'0' is outside 1 to 1001
1|job wait 77 78|there is no job 77
2|job move 1|no queue is named
2|job edit 1|nothing is to be changed
2|job show a/b|'a/b' is neither the ID nor the name of a job
2|job events --exec ''|--exec: there is no command in it
2|job events --webhook ''|--webhook takes an http:// or https:// URL
2|agent --hook true --queue half=0.5|unknown option --hook
125|podman run --vram 1 --gpu-ids 9 alpine|--gpu-ids: there is no GPU 9
125|podman run --vram 500 alpine|a size without a unit is GiB: did you mean 500MiB?
125|podman run|the image is missing
2|cdi generate --vram 1 --gpu-ids 9|there is no GPU 9
3|cdi generate --gpu 64|64 GPUs asked, there are 2
1|cdi remove ''|has no spec of a device ''
2|image build --vram 4|--from is missing
2|hook install --docker-dir ''|--docker-dir: the path is empty
2|hook install --docker-dir {} --hooks-dir {}|--hooks-dir and --docker-dir are both given
2|hook remove --hooks-dir ''|--hooks-dir: the path is empty
2|timeslicing --mode foo|'foo' is none of off, fair, strict
2|timeslicing --granularity 7|a number without % is a part of 1: did you mean 7%?
2|timeslicing --granularity 60%|outside 1% to 50%; for example
2|timeslicing --lease 250|has no unit of time
2|timeslicing simulate --fractions 0.5,0.6|comes to 1.1, more than the whole GPU
1|timeslicing trace {}/none/x|No such file or directory
2|node set-role|no role given
2|node remove-role --gpu-ids 9|there is no GPU 9
1|node set-role --dynamic-mig-enabled --gpu-ids 0|GPU 0 is not in MIG mode
2|mig gc extra|unexpected argument
1|mig simulate {}/none|No such file or directory
2|mig simulate {}/file|fewer than three fields
2|mig simulate {}/empty|the trace has no request
2|quota set root --gpus x|'x' is not a number
2|quota set nosuchuser --vram 4|there is no user nosuchuser
2|quota show --group nosuch|there is no group nosuch
2|quota set root|no limit is given
2|sim --gpus foo -- true|no such GPU model
2|sim --driver '' -- true|'': no such driver is simulated
4|sim --join {} -- true|there is no simulated host at
127|sim --gpus t4-16gb -- /nosuch|carve sim: /nosuch: there is no such file
2|sim list --watch|unknown option '--watch'
2|sim trace ''|FILE is missing
2|sim fault|KIND is missing
2|sim fault alloc --gpu 9|there is no GPU 9 on this host
2|sim fault alloc --call nosuchcall|no simulated driver has a function 'nosuchcall'
2|sim fault reset --for 3|reset takes no option but --gpu
2|sim fault reboot --clear|reboot takes no option but --gpu
2|kubernetes check --api foo|'foo' is no URL
4|kubernetes check --api http://127.0.0.1:1|does not answer
2|--version extra|--version: unexpected argument 'extra'
2|--nosuch|unknown option --nosuch
2|nosuch|unknown command 'nosuch'
4|gpu list --host /nosuch|no daemon answers at /nosuch
"""


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "file").write_text("x\n")
    (tmp_path / "empty").write_text("")
    (tmp_path / "sub").mkdir()
    return tmp_path


def state(host):
    return [host.carve_json(*words) for words in (["session", "list"], ["job", "list"], ["agent", "--status"], ["cdi", "list"], ["quota", "list"])]


def test_wrong_input_of_every_verb_gets_one_line_and_the_documented_code(make_host, directory):
    host = make_host("h100-80gb:2")
    before, faults = state(host), []
    for line in WRONG.strip().split("\n"):
        code, words, said = line.split("|")
        done = host.carve(*shlex.split(words.replace("{}", str(directory))))
        if (done.returncode, done.stderr.count("\n"), done.stdout) != (int(code), 1, "") or said.replace("\\n", "\n") not in done.stderr:
            faults.append((line, done.returncode, done.stdout, done.stderr))
    assert faults == []
    assert state(host) == before


def test_several_jobs_are_looked_for_before_anything_is_done_to_one(host):
    held = [host.carve("enqueue", "--queue", "later", "--hold", "--", "true").stdout.strip() for _ in range(2)]
    for verb, *more in (["wait"], ["cancel"], ["hold"], ["release"], ["move", "--queue", "other"]):
        for absent in ("77", "nosuch", "1_5"):
            done = host.carve("job", verb, held[0], absent, *more, timeout=60)
            assert done.returncode == 1 and "there is no job" in done.stderr and done.stdout == "", done
    assert [(job["state"], job["queue"]) for job in host.carve_json("job", "list")] == [("held", "later")] * 2
    assert host.carve("job", "cancel", *held).stdout == f"job {held[0]}: cancelled\njob {held[1]}: cancelled\n"


def test_waiting_for_a_job_that_is_held_says_so(host):
    host.carve_json("agent", "--detached", "--queue", "half=0.5")
    waits = host.popen([BUILD / "carve", "enqueue", "--queue", "half", "--hold", "--wait", "--", "true"], stderr=-1)
    line = waits.stderr.readline()
    assert line == "carve: note: job 1 is held, and this waits for its end; start it: carve job release 1\n"
    assert host.carve("job", "release", "1").returncode == 0
    waits.stderr.read()
    assert waits.wait(60) == 0


def test_hooks_of_a_simulated_host_are_in_its_own_directory(host):
    place = host.env["SIMGPU_HOST"] + "/hooks.d"
    done = host.carve("hook", "install")
    assert done.returncode == 0 and done.stdout.startswith(f"{place}/50-carve.json: "), done
    assert done.stderr == f"carve: note: this is a simulated host, so its hooks are in its own directory: podman --hooks-dir {place} run ...\n"
    assert host.carve("hook", "remove").stdout == f"{place}/50-carve.json: removed\n"


def full(host, *argv):
    return host.run(["sh", "-c", 'exec "$@" >/dev/full', "sh", BUILD / "carve", *argv])


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_a_session_whose_id_cannot_be_printed_is_named(host, options):
    done = full(host, "session", "request", "--vram", "1", *options)
    session, = host.carve_json("session", "list")
    said = f"session {session['id']} is granted, but its ID cannot be printed: No space left on device"
    assert done.returncode == 1 and said in done.stderr and done.stderr.count("\n") == 1, done.stderr


@pytest.mark.parametrize("words", [["sim", "list"], ["sim", "list", "--json"], ["sim", "stat"], ["sim", "stat", "--json"], ["gpu", "list"],
                                   ["help"], ["--version"], ["job", "list", "--json"]])
def test_output_that_is_lost_is_a_failure(host, words):
    done = full(host, *words)
    assert done.returncode == 1 and "No space left on device" in done.stderr and done.stderr.count("\n") == 1, done


def test_a_runtime_directory_that_depends_on_the_working_directory_is_refused(host, tmp_path):
    done = host.run([BUILD / "carve", "gpu", "list"], env={"CARVE_RUNTIME_DIR": "relative"}, cwd=tmp_path)
    assert done.returncode == 2 and "CARVE_RUNTIME_DIR: relative is no absolute path; for example" in done.stderr, done.stderr
    assert not any(tmp_path.iterdir())


def test_a_job_of_a_directory_that_is_gone_is_refused(host, tmp_path):
    done = host.run(["sh", "-c", 'mkdir gone && cd gone && rmdir ../gone && exec "$@"', "sh", BUILD / "carve", "enqueue", "--queue", "q", "--", "true"],
                    cwd=tmp_path)
    assert done.returncode == 1 and done.stderr == "carve: the current directory is gone\n"
