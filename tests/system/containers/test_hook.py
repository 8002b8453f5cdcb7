"""carve-hook, the OCI hook: containers with an annotation, or of an image with a label, are in a slice."""
import base64
import json
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess

import pytest

from conftest import BUILD, open_to_others, rest_long, wait_until
from podman_host import BUSYBOX, root_file_system, storage  # noqa: F401: fixtures


DOCUMENTED = pathlib.Path(__file__).parents[3].joinpath("docs/user/containers.md").read_text()


@pytest.fixture
def podman(storage, make_host, tmp_path):
    storage.host = make_host("h100-80gb")
    storage.hooks = tmp_path / "hooks"
    assert storage.host.carve("hook", "install", "--hooks-dir", storage.hooks).returncode == 0
    yield storage
    storage.clean()


def slice_mounts(host, session, directory):
    """The mounts by which a container of a session is in its slice, as a runtime has them in its configuration."""
    done = host.carve("cdi", "generate", session, "--cdi-dir", directory)
    assert done.returncode == 0, done.stderr
    edits = json.loads((directory / f"carve.dev-slice_{session}.json").read_text())["devices"][0]["containerEdits"]
    return [{"destination": m["containerPath"], "source": m["hostPath"]} for m in edits["mounts"]]


def in_mounts(mounts, root):
    """The words that start a process which has them in its root."""
    script = "\n".join(f"mkdir -p {to.parent}; if [ -d {m['source']} ]; then mkdir -p {to}; else touch {to}; fi; mount --bind {m['source']} {to}"
                       for m in mounts for to in [pathlib.Path(f"{root}{m['destination']}")])
    return ["unshare", "--mount", "sh", "-ec", f"{script}\necho; exec sleep 1000"]


def hooked(podman, verb, *argv, **kw):
    return podman("podman", "--hooks-dir", podman.hooks, verb, *argv, **kw)


def open_daemon(podman):
    """As a system daemon's: programs of every user may ask to attach."""
    podman.host.carve("gpu", "list")
    open_to_others(podman.host)
    os.chmod(podman.host.env["CARVE_RUNTIME_DIR"] + "/attach.sock", 0o666)


def build(podman, name, lines):
    file = podman.directory / "Containerfile"
    file.write_text("\n".join((f"FROM {podman.IMAGE}", *lines)) + "\n")
    done = podman("podman", "build", "-q", "-t", name, "-f", file, podman.directory / "root/tmp")
    assert done.returncode == 0, done.stderr
    return name


def test_an_annotation_limits_a_container(podman):
    """One with a network of its own."""
    done = hooked(podman, "run", "--rm", "--network=bridge", "--annotation", "carve.vram=2GiB", podman.IMAGE, "hog")
    assert done.returncode == 0 and "this GPU has 2048 MiB" in done.stdout, done.stderr
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    podman.nothing_is_left()


@pytest.mark.long
def test_a_container_that_asks_for_nothing_starts_as_ever(podman):
    done = hooked(podman, "run", "--rm", podman.IMAGE, "sh", "-c", "ls /run /etc/ld.so.preload")
    assert "carve" not in done.stdout + done.stderr and not podman.sessions()
    done = podman.carve("--vram", "3", "--rm", podman.IMAGE, "hog")
    assert "this GPU has 3072 MiB" in done.stdout, done.stderr


def test_podman_does_not_compare_texts_for_a_container_that_asks_for_nothing(podman):
    """It does where a hook seems to have changed the configuration, which costs as much as several processes."""
    done = podman("podman", "--log-level=debug", "--hooks-dir", podman.hooks, "run", "--rm", podman.IMAGE, "true")
    assert done.returncode == 0 and podman.hooks.name in done.stderr and "made configuration changes" not in done.stderr, done.stderr


def test_one_hook_gives_a_container_its_slice(podman):
    """Each is a process. The one that joins the session is there in place of the installed one."""
    done = hooked(podman, "run", "--detach", "--name", "one", "--annotation", "carve.vram=2", podman.IMAGE, "sleep", "600")
    assert done.returncode == 0, done.stderr
    container, = json.loads(podman("podman", "inspect", "one").stdout)
    hook, = json.loads(pathlib.Path(container["OCIConfigPath"]).read_text())["hooks"]["createRuntime"]
    session, = podman.sessions()
    assert hook["args"] == ["carve-hook", "--label", f"carve.session={session['id']}", "--stamp", session["stamp"]]


@pytest.mark.parametrize("variables, mib", rest_long([
    (["CUDA_DEVICE_MEMORY_LIMIT=2027m"], 2027),
    (["CUDA_DEVICE_MEMORY_LIMIT_0=1g", "CUDA_DEVICE_MEMORY_LIMIT=4g", "CUDA_DEVICE_SM_LIMIT=25"], 1024),
    (["CUDA_DEVICE_MEMORY_LIMIT=2027m", "NVIDIA_VISIBLE_DEVICES=UUID"], 2027),
    # KAI without HAMi, as its binder writes them.
    (["NVIDIA_VISIBLE_DEVICES=UUID", "RUNAI_NUM_OF_GPUS=0.25", "GPU_PORTION=0.25"], 0.25),
]))
def test_the_variables_of_kai_and_hami_are_a_size(podman, variables, mib):
    [gpu] = podman.host.carve_json("gpu", "list")
    env = [word for v in variables for word in ("--env", v.replace("UUID", gpu["uuid"]))]
    done = hooked(podman, "run", "--rm", *env, podman.IMAGE, "hog")
    if mib < 1:
        mib = int(((gpu["memory_bytes"] - gpu["reserved_bytes"]) >> 20) * mib)
    assert f"this GPU has {mib} MiB" in done.stdout, done.stderr
    podman.nothing_is_left()


@pytest.mark.long
def test_the_variables_of_kai_and_hami_only_lower_what_a_label_grants(podman):
    for limit, mib in (("1g", 1024), ("8g", 3072)):
        done = hooked(podman, "run", "--rm", "--annotation", "carve.vram=3GiB", "--env", f"CUDA_DEVICE_MEMORY_LIMIT={limit}",
                      podman.IMAGE, "hog")
        assert f"this GPU has {mib} MiB" in done.stdout, done.stderr
    podman.nothing_is_left()


@pytest.mark.parametrize("variables, said", rest_long([
    (["CUDA_DEVICE_MEMORY_LIMIT=much"], "CUDA_DEVICE_MEMORY_LIMIT: 'much' is no limit"),
    (["CUDA_DEVICE_SM_LIMIT=30"], "limit no memory"),
    (["GPU_PORTION=0.00", "RUNAI_NUM_OF_GPUS=0.00"], "GPU_PORTION: '0.00' is no part of a GPU"),
    (["CUDA_DEVICE_MEMORY_LIMIT=1g", "NVIDIA_VISIBLE_DEVICES=GPU-other"], "names no GPU of this host"),
]))
def test_variables_that_make_no_sense_stop_a_container(podman, variables, said):
    env = [word for v in variables for word in ("--env", v)]
    done = hooked(podman, "run", "--rm", *env, podman.IMAGE, "true")
    assert done.returncode != 0 and said in done.stderr, done.stderr
    podman.nothing_is_left()


def test_a_container_without_gpus_needs_no_slice_for_its_variables(podman):
    done = hooked(podman, "run", "--rm", "--env", "CUDA_DEVICE_MEMORY_LIMIT=1g", "--env", "NVIDIA_VISIBLE_DEVICES=void",
                  podman.IMAGE, "sh", "-c", "ls /run")
    assert done.returncode == 0 and "carve" not in done.stdout, done.stderr


def test_a_label_of_the_image_limits_every_container_of_it(podman):
    open_daemon(podman)
    image = build(podman, "localhost/labelled:1", ["LABEL carve.vram=3GiB"])
    done = hooked(podman, "run", "--rm", image, "hog")
    assert "this GPU has 3072 MiB" in done.stdout, done.stderr
    done = hooked(podman, "run", "--rm", "--annotation", "carve.vram=2GiB", "--user", "1000", "--read-only",
                  "--ipc=host", "--pid=host", image, "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr + done.stdout
    podman.nothing_is_left()


@pytest.mark.parametrize("option", rest_long(["--uidmap=0:100000:5000", "--privileged"]))
def test_a_container_of_other_users_or_with_all_rights_has_its_slice(podman, option):
    open_daemon(podman)
    for done in (hooked(podman, "run", "--rm", option, "--annotation", "carve.vram=2GiB", podman.IMAGE, "hog"),
                 podman.carve("--vram", "2", "--rm", option, podman.IMAGE, "hog")):
        assert "this GPU has 2048 MiB" in done.stdout, done.stderr
        podman.nothing_is_left()


def test_a_slice_ends_with_its_container_and_holds_what_exec_starts(podman):
    open_daemon(podman)
    started = hooked(podman, "run", "--detach", "--name", "one", "--annotation", "carve.vram=2GiB", podman.IMAGE, "sleep",
                     "600")
    assert started.returncode == 0, started.stderr
    session, = podman.sessions()
    # Without the slice's variables, as any user; what is mounted cannot be changed.
    done = podman("podman", "exec", "--user", "1000", "one", "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr + done.stdout
    done = podman("podman", "exec", "one", "sh", "-c", "echo x > /run/carve-slice/environment; echo x > /etc/ld.so.preload")
    # podman may warn of the host's own cgroups in the same words.
    refused = [line for line in done.stderr.splitlines() if line.startswith("sh: ")]
    assert len(refused) == 2 and all("ead-only file system" in line for line in refused), done.stderr
    pid = json.loads(podman("podman", "inspect", "one").stdout)[0]["State"]["Pid"]
    os.kill(pid, 9)
    podman.nothing_is_left()


@pytest.mark.long
def test_a_container_that_its_policy_starts_again_has_a_slice_each_time(podman, tmp_path):
    """Which hooks podman's own start runs is in its settings: it forgets --hooks-dir."""
    settings = pathlib.Path(podman.env["CONTAINERS_CONF"]).read_text()
    (tmp_path / "containers.conf").write_text(settings.replace("[engine]\n", f'[engine]\nhooks_dir = ["{podman.hooks}"]\n'))
    simulated = "SIMGPU_HOST=" + podman.host.env["SIMGPU_HOST"]
    done = podman.host.run(["podman", "run", "--detach", "--name", "policy", "--restart", "on-failure:2", "--env", simulated, "--annotation",
                            "carve.vram=2GiB", podman.IMAGE, "sh", "-c", "hog; exit 3"],
                           env={**podman.env, "CONTAINERS_CONF": str(tmp_path / "containers.conf")})
    assert done.returncode == 0, done.stderr
    wait_until(lambda: podman("podman", "logs", "policy").stdout.count("this GPU has 2048 MiB") == 3)
    podman.nothing_is_left()


@pytest.mark.long
def test_a_label_of_a_container_is_not_shown_by_podman(podman):
    """As docs/user/containers.md says: the container has no slice and no GPU, and the variable of a recipe gives it both."""
    variable = re.search(r"`(CUDA_DEVICE_MEMORY_LIMIT): (\S+)`", DOCUMENTED)
    for options, in_slice in (["--label", "carve.vram=3GiB"], False), (["--env", "=".join(variable.groups())], True):
        done = hooked(podman, "run", "--rm", *options, podman.IMAGE, "hog")
        assert ("this GPU has 3072 MiB" in done.stdout) == in_slice, done.stderr


@pytest.mark.long
def test_a_containers_links_lead_nowhere_else(podman, tmp_path):
    """The slice's directory and the list of libraries are where the image has links out of it."""
    victim = tmp_path / "victim"
    victim.mkdir()
    up = "/.." * 30
    image = build(podman, "localhost/links:1", [
        f"RUN /bin/busybox rm -rf /run/carve-slice && /bin/busybox ln -s {up}{victim} /run/carve-slice",
        f"RUN /bin/busybox rm -f /etc/ld.so.preload && /bin/busybox ln -s {up}{victim}/preload /etc/ld.so.preload"])
    done = hooked(podman, "run", "--rm", "--annotation", "carve.vram=2GiB", image, "/bin/busybox", "true")
    assert not list(victim.iterdir()), done.stderr
    podman.nothing_is_left()


@pytest.mark.long
def test_only_dockers_own_record_of_a_container_has_labels(podman, tmp_path):
    """A file of anybody's over the host name, with a record beside it that docker did not write."""
    directory = tmp_path / ("a" * 64)
    directory.mkdir()
    (directory / "hostname").write_text("x\n")
    (directory / "config.v2.json").write_text('{"Config": {"Labels": {"carve.vram": "2GiB"}}}')
    done = hooked(podman, "run", "--rm", "--volume", f"{directory}/hostname:/etc/hostname", podman.IMAGE, "sh", "-c",
                  "cat /etc/hostname; ls /run/carve-slice")
    assert done.stdout == "x\n" and "carve-slice" in done.stderr and not podman.sessions(), done.stderr


def test_the_image_that_cri_o_names_has_labels(tmp_path):
    """Its bundle is not in its storage, unlike podman's."""
    image, bundle = "ab" * 32, tmp_path / "run/overlay-containers/c1/userdata"
    bundle.mkdir(parents=True)
    (bundle / "config.json").write_text(json.dumps({"root": {"path": f"{tmp_path}/storage/overlay/l1/merged"},
                                                    "annotations": {"io.kubernetes.cri-o.ImageRef": image}}))
    state = json.dumps({"id": "c1", "pid": os.getpid(), "bundle": str(bundle)})

    def hook():
        return subprocess.run([BUILD / "carve-hook"], input=state, capture_output=True, text=True, timeout=60)
    assert hook().returncode == 0
    directory = tmp_path / "storage/overlay-images" / image
    directory.mkdir(parents=True)
    record = directory / ("=" + base64.b64encode(f"sha256:{image}".encode()).decode())
    record.write_text('{"config": {"Labels": {"carve.size": "2GiB"}}}')
    done = hook()
    assert done.returncode == 2 and "carve.size: there is no such label" in done.stderr, done.stderr


class StandIn:
    """A process with mounts of its own, in place of a container that a runtime has made but not started."""

    def __init__(self, host, directory):
        self.host, self.bundle = host, directory
        self.root = directory / "root"
        host.carve("gpu", "list")

    def hook(self, config=None, before=(), container=("unshare", "--mount", "sh", "-c", "echo; exec sleep 1000"), words=()):
        """The hook's end, and the sessions while the container is there."""
        self.configure(config)
        made = self.host.popen(container)
        made.stdout.readline()
        done = self.hook_on(made.pid, before, words)
        sessions = self.host.carve_json("session", "list")
        made.kill()
        made.wait()
        return done, sessions

    def configure(self, config=None):
        config = config or {"root": {"path": "root"}, "annotations": {"carve.vram": "2GiB"}}
        (self.bundle / "config.json").write_text(json.dumps(config))

    def hook_on(self, pid, before=(), words=()):
        (self.bundle / "state").write_text(json.dumps({"id": "x", "pid": pid, "bundle": str(self.bundle)}))
        with open(self.bundle / "state") as state:
            return self.host.run([*before, BUILD / "carve-hook", *words], stdin=state)


@pytest.fixture
def stand_in(make_host, tmp_path):
    if os.geteuid() != 0 or not BUSYBOX:
        pytest.skip("needs root and busybox")
    made = StandIn(make_host("h100-80gb"), tmp_path)
    root_file_system(made.root)
    return made


@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
def test_a_hook_has_one_helper_and_reads_little_of_the_image(stand_in, tmp_path):
    """Fresh memory for a whole C library, and more processes, cost more than all else that the hook does."""
    done, sessions = stand_in.hook(before=["strace", "-f", "-qq", "-o", tmp_path / "trace", "-e",
                                           "trace=clone,clone3,fork,vfork,connect,read"])
    if done.returncode != 0 and "ptrace" in done.stderr:
        pytest.skip("processes may not be traced here")
    assert done.returncode == 0 and len(sessions) == 1, done.stderr
    lines = (tmp_path / "trace").read_text().splitlines()
    calls = [(line.split(None, 1)[1].partition("(")[0], line.rsplit("= ", 1)[-1].split()[0]) for line in lines]
    names = [name for name, _ in calls]
    assert "read" in names and sum(name in ("clone", "clone3", "fork", "vfork") for name in names) == 1, names
    assert names.count("connect") == 2, names  # a session, and its container's process
    assert sum(int(result) for name, result in calls if name == "read") < 512 << 10, calls


NOT_THE_CONTAINERS = {
    "of the host's mount namespace": ["sh", "-c", "echo; exec sleep 1000"],
    "of another root": ["unshare", "--mount", "sh", "-c",
                        "mount -t tmpfs x /mnt && mkdir -p /mnt/bin && cp \"$1\" /mnt/bin/busybox && exec chroot /mnt "
                        "/bin/busybox sh -c 'echo; exec busybox sleep 1000'", "sh", BUSYBOX],
}


@pytest.mark.parametrize("way", rest_long(["session", "started again", "size", "registered"], 2))
def test_a_process_that_is_not_the_containers_is_refused(stand_in, tmp_path, way):
    """Whoever writes the state could put other processes, or the whole host, into a slice."""
    config, words, before = {"root": {"path": "root"}}, [], []
    if way == "size":
        config["annotations"] = {"carve.vram": "2GiB"}
    else:
        before = [stand_in.host.carve_json("session", "request", "--vram", "3")]
    if way == "session":
        config["annotations"] = {"carve.session": before[0]["id"]}
    elif way == "registered":
        words = ["--register", before[0]["id"]]
    elif way == "started again":
        config["mounts"] = slice_mounts(stand_in.host, before[0]["id"], tmp_path / "cdi")
    stand_in.configure(config)
    for pid in (1, os.getpid()):
        done = stand_in.hook_on(pid, words=words)
        assert done.returncode == 1 and f"process {pid} is not the container's: this hook descends from it" in done.stderr, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
    done = stand_in.hook_on(1 << 22, words=words)
    assert done.returncode == 1 and "is not the container's: No such file or directory" in done.stderr, done.stderr
    for kind, container in NOT_THE_CONTAINERS.items():
        done, sessions = stand_in.hook(config, words=words, container=container)
        assert done.returncode == 1 and re.search("is not the container's: (its mount namespace does not have /|it has no mount "
                                                  "namespace of its own)", done.stderr), (kind, done.stderr)
        assert [(s["id"], s["pids"]) for s in sessions] == [(s["id"], []) for s in before], kind


@pytest.mark.parametrize("kind", ["cri.container-type", "cri-o.ContainerType"])
def test_a_pod_joins_no_session_by_what_its_author_writes(stand_in, tmp_path, kind):
    """By an annotation, or as a container that is started again: all sessions of a node's hook are root's."""
    host, kubernetes = stand_in.host, {f"io.kubernetes.{kind}": "container"}
    theirs = host.popen(["unshare", "--mount", "sh", "-c", "echo; exec sleep 1000"])
    theirs.stdout.readline()
    stand_in.configure({"root": {"path": "root"}, "annotations": {"carve.vram": "2GiB", **kubernetes}})
    assert stand_in.hook_on(theirs.pid).returncode == 0
    session, = host.carve_json("session", "list")
    mounts = slice_mounts(host, session["id"], tmp_path / "cdi")
    mine = host.popen(in_mounts(mounts, stand_in.root))
    mine.stdout.readline()

    def joined(words=(), annotations=(), **config):
        stand_in.configure({"root": {"path": "root"}, "annotations": dict(annotations), **config})
        done = stand_in.hook_on(mine.pid, words=words)
        return done, mine.pid in host.carve_json("session", "show", session["id"])["command_pids"]

    names_it = {"carve.session": session["id"]}
    done, is_in = joined(annotations={**kubernetes, **names_it})
    assert done.returncode == 5 and "a pod joins no session by an annotation" in done.stderr and not is_in, done.stderr
    done, is_in = joined(annotations=kubernetes, mounts=mounts)
    assert done.returncode == 0 and not is_in, done.stderr
    # The node's own settings may name a session.
    done, is_in = joined(["--label", f"carve.session={session['id']}"], kubernetes)
    assert done.returncode == 0 and is_in, done.stderr


@pytest.mark.parametrize("volume", rest_long(["/run/carve-slice", "/run/carve-slice/front"]))
def test_an_image_with_a_volume_at_carves_place_does_not_start(podman, volume):
    """Nor by carve's command, whose own mounts are beside it. Another place is the image's own."""
    image = build(podman, "localhost/volume:1", [f"VOLUME {volume}", "LABEL carve.vram=3GiB"])
    for done in (hooked(podman, "run", "--rm", image, "hog"), hooked(podman, "run", "--rm", "--annotation", "carve.vram=2GiB", image, "hog"),
                 podman.carve("--vram", "2", "--rm", image, "hog")):
        assert done.returncode != 0 and f"the mount at {volume}, of /" in done.stderr and "this GPU" not in done.stdout, done
    image = build(podman, "localhost/volume:2", ["VOLUME /run", "LABEL carve.vram=3GiB"])
    for done, mib in ((hooked(podman, "run", "--rm", image, "hog"), 3072), (podman.carve("--vram", "2", "--rm", image, "hog"), 2048)):
        assert f"this GPU has {mib} MiB" in done.stdout, done
    podman.nothing_is_left()


PLANTED = {
    "file": lambda path, victim: path.write_text("x"),
    "directory": lambda path, victim: (path / "inside").mkdir(parents=True),
    "FIFO": lambda path, victim: os.mkfifo(path),
    "terminal": lambda path, victim: os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(5, 0)),
    "link to a host's directory": lambda path, victim: path.symlink_to("/.." * 30 + str(victim)),
    "link to a host's file": lambda path, victim: path.symlink_to(victim / "file"),
    "link through /proc": lambda path, victim: path.symlink_to(f"/proc/self/root{victim}"),
    "link to itself": lambda path, victim: path.symlink_to(path.name),
    "large file": lambda path, victim: path.write_text("/x.so\n" * 1000),
}


@pytest.mark.parametrize("place", rest_long(["run/carve-slice", "etc/ld.so.preload", "run", "etc", "lib64/libc.so.6"], 2))
def test_files_that_an_image_plants_lead_nowhere_else(stand_in, tmp_path, place):
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "file").write_text("theirs")
    path = stand_in.root / place
    for kind, plant in PLANTED.items():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
        path.parent.mkdir(exist_ok=True)
        plant(path, victim)
        done, sessions = stand_in.hook()
        said = done.stderr.splitlines()
        assert [p.name for p in victim.iterdir()] == ["file"] and (victim / "file").read_text() == "theirs", kind
        if done.returncode == 0:
            assert not said and len(sessions) == 1, (kind, said)
        else:
            # Started is what can have its slice; nothing else starts.
            assert done.returncode == 1 and len(said) == 1 and ("from the image" in said[0] or "C library" in said[0]), (kind, said)
        wait_until(lambda: stand_in.host.carve_json("session", "list") == [])


def test_a_path_with_control_characters_is_one_line_of_a_message(stand_in):
    done, _ = stand_in.hook({"root": {"path": "no\x1b[31m\nthing\x9b"}, "annotations": {"carve.vram": "2GiB"}})
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "no?[31m?thing??" in done.stderr, done.stderr


@pytest.mark.long
def test_a_hook_gives_a_daemon_up_that_does_not_answer(stand_in, tmp_path):
    """Its runtime has more patience, so that the hook's own words are shown."""
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(tmp_path / "carved.sock"))
        listening.listen()
        done, _ = stand_in.hook(words=["--host", tmp_path / "carved.sock"])
    assert done.returncode == 1 and done.stderr == "carve-hook: gave up after 20 s\n"


def test_image_build_limits_an_image_for_every_way_to_run_it(podman):
    """The hook, or carve podman run without a size; what a tool's sizes include of the driver's is left out."""
    done = podman(BUILD / "carve", "image", "build", "--from", podman.IMAGE, "--vram", "3", "--reserve", "64MiB", "-t",
                  "localhost/limited:3gb")
    assert done.returncode == 0, done.stderr
    image = podman.host.run(["podman", "image", "inspect", "localhost/limited:3gb"], env=podman.env)
    assert json.loads(image.stdout)[0]["Labels"]["carve.vram"] == "3008MiB"
    done = hooked(podman, "run", "--rm", "localhost/limited:3gb", "hog")
    assert "this GPU has 3008 MiB" in done.stdout, done.stderr
    podman.host.carve("session", "request", "--vram", "5")
    done = podman.carve("--rm", "localhost/limited:3gb", "hog")
    assert "this GPU has 3008 MiB" in done.stdout, done.stderr
    # The command line counts before the image.
    done = podman.carve("--vram", "2", "--ephemeral", "--rm", "localhost/limited:3gb", "hog")
    assert "this GPU has 2048 MiB" in done.stdout, done.stderr
    podman.host.carve("session", "release")
    podman.nothing_is_left()


@pytest.mark.parametrize("argv, said", [
    (["--from", "x", "--vram", "2"], "--tag is missing"),
    (["--vram", "2", "-t", "x"], "--from is missing"),
    (["--from", "x\nRUN y", "--vram", "2", "-t", "x"], "is no image's name"),
    (["--from", "x", "-t", "y"], "no size given"),
    (["--from", "x", "-t", "y", "--gpu", "0.5", "--reserve", "64MiB"], "--reserve only goes with"),
    (["--from", "x", "-t", "y", "--vram", "1", "--reserve", "1"], "leaves less than 100 MB"),
    (["--from", "x", "-t", "y", "--vram", "1", "--runtime", "rkt"], "is not podman or docker"),
])
def test_image_build_says_what_is_missing(argv, said):
    done = subprocess.run([BUILD / "carve", "image", "build", *argv], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2 and said in done.stderr, done.stderr


def test_image_build_takes_the_runtime_that_has_the_image(make_host, tmp_path):
    """podman and docker are both there; where neither has the image, podman fetches it."""
    for name, its in ("podman", "one"), ("docker", "two"):
        (tmp_path / name).write_text(f'''#!/bin/sh
if [ "$1 $2" = "image inspect" ]; then for last; do :; done; [ "$last" = {its} ]; exit; fi
echo {name} "$@"; cat
''')
        (tmp_path / name).chmod(0o755)
    host = make_host("h100-80gb")
    for image, runtime in ("one", "podman"), ("two", "docker"), ("three", "podman"):
        done = host.run([BUILD / "carve", "image", "build", "--from", image, "--vram", "3", "-t", "x"], env={"PATH": f"{tmp_path}:{os.environ['PATH']}"})
        assert done.stdout == f'{runtime} build -t x -\nFROM {image}\nLABEL carve.vram="3GiB"\n', done.stderr


def test_removing_says_whether_there_was_a_hook(make_host, tmp_path):
    host = make_host("h100-80gb")
    for option, removed, nothing in ("--hooks-dir", "removed", "is not there"), ("--docker-dir", "carve's runtime is removed", "has no runtime of carve's"):
        assert nothing in host.carve("hook", "remove", option, tmp_path).stdout
        assert host.carve("hook", "install", option, tmp_path).returncode == 0
        assert removed in host.carve("hook", "remove", option, tmp_path).stdout
        done = host.carve("hook", "remove", option, tmp_path)
        assert done.returncode == 0 and nothing in done.stdout, done.stderr


@pytest.mark.parametrize("annotation, said", rest_long([
    ("carve.vram=900GiB", "more than there is"),
    ("carve.vram=much", "carve-hook: carve.vram: 'much' is not a number; for example carve.vram=8GiB"),
    ("carve.vrma=2", "there is no such label"),
    ("carve.gpu-compute=10%", "carve.gpu-compute: the slice has no size"),
    ("carve.session=s-nosuch", "there is no session s-nosuch"),
    ("carve.session=../gpus", "there is no session ../gpus"),
], 2))
def test_refusals_name_what_is_wrong(podman, annotation, said):
    done = hooked(podman, "run", "--rm", "--annotation", annotation, podman.IMAGE, "true")
    assert done.returncode != 0 and said in done.stderr, done.stderr
    podman.nothing_is_left()


def test_a_wrong_label_is_named_where_no_option_was_given(podman):
    wrong = build(podman, "localhost/wrong:1", ["LABEL carve.vram=much"])
    done = podman.carve("--rm", wrong, "true")
    assert done.returncode == 125 and done.stderr == "carve: carve.vram: 'much' is not a number; for example carve.vram=8GiB\n", done.stderr


@pytest.mark.long
def test_a_container_of_carves_command_that_is_started_again_has_its_slice_again(podman):
    done = podman.carve("--vram", "3", "--name", "again", podman.IMAGE, "hog")
    assert "this GPU has 3072 MiB" in done.stdout, done.stderr
    podman.nothing_is_left()
    for _ in range(2):
        done = hooked(podman, "start", "--attach", "again")
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr
        podman.nothing_is_left()
    assert len(json.loads(podman.host.carve("session", "list", "--all", "--json").stdout)) == 3


@pytest.mark.long
def test_containers_join_a_session_by_its_id(podman):
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    for _ in range(2):
        done = hooked(podman, "run", "--rm", "--annotation", f"carve.session={session}", podman.IMAGE, "hog")
        assert "this GPU has 3072 MiB" in done.stdout, done.stderr
    assert [s["id"] for s in podman.sessions()] == [session]


def test_an_image_names_sizes_and_no_session(podman):
    """Its author is a stranger to whoever starts it, and the hook may join any session: by a label, and by an annotation of its manifest."""
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    joins, said = f"carve.session={session}", "an image names sizes, and no session"
    labelled = build(podman, "localhost/joins:1", [f"LABEL {joins}"])
    file = podman.directory / "Containerfile"
    file.write_text(f"FROM {podman.IMAGE}\n")
    done = podman("podman", "build", "-q", "--annotation", joins, "-t", "localhost/joins:2", "-f", file, podman.directory / "root/tmp")
    assert done.returncode == 0, done.stderr
    for image in (labelled, "localhost/joins:2"):
        done = hooked(podman, "run", "--rm", image, "true")
        assert done.returncode != 0 and said in done.stderr, (image, done)
        # The one who starts it chooses a size, or a session.
        done = hooked(podman, "run", "--rm", "--annotation", "carve.vram=2GiB", image, "hog")
        assert image != labelled or "this GPU has 2048 MiB" in done.stdout, (image, done)
    done = hooked(podman, "run", "--rm", "--annotation", joins, labelled, "hog")
    assert "this GPU has 3072 MiB" in done.stdout, done
    done = podman.carve("--rm", labelled, "true")
    assert done.returncode == 125 and said in done.stderr, done
    done = podman.carve("--session", session, "--rm", labelled, "hog")
    assert "this GPU has 3072 MiB" in done.stdout, done


@pytest.mark.parametrize("carves", [True, False])
def test_a_container_of_carves_that_is_started_again_joins_its_session(stand_in, tmp_path, carves):
    """By the file of its slice, and by no variable of the image."""
    host = stand_in.host
    first = host.popen(["unshare", "--mount", "sh", "-c", "echo; exec sleep 1000"])
    first.stdout.readline()
    stand_in.configure()
    assert stand_in.hook_on(first.pid).returncode == 0
    session, = host.carve_json("session", "list")
    mounts = slice_mounts(host, session["id"], tmp_path / "cdi") if carves else []
    second = host.popen(in_mounts(mounts, stand_in.root))
    second.stdout.readline()
    stand_in.configure({"root": {"path": "root"}, "process": {"env": [f"CARVE_SESSION={session['id']}"]}, "mounts": mounts})
    done = stand_in.hook_on(second.pid)
    assert done.returncode == 0, done.stderr
    is_in = second.pid in host.carve_json("session", "show", session["id"])["command_pids"]
    assert is_in == carves


DOCKERS_ID = "a" * 64
IMAGES_ID = "b" * 64


@pytest.mark.parametrize("image, joins", [({}, True), ({"carve.session": "s-other"}, True), ({"carve.session": "s-mine"}, False), (None, False)],
                         ids=["none", "another", "same", "unknown"])
def test_a_label_of_docker_run_names_a_session_and_one_of_its_image_does_not(tmp_path, image, joins):
    """docker has both in one object. The image's own labels are in its record, or, with containerd's store of images, nowhere."""
    record = tmp_path / "containers" / DOCKERS_ID
    record.mkdir(parents=True)
    (record / "config.v2.json").write_text(json.dumps({
        "Image": f"sha256:{IMAGES_ID}", "Driver": "overlay2", "Config": {"Labels": {"carve.session": "s-mine"}}}))
    content = tmp_path / "image/overlay2/imagedb/content/sha256"
    content.mkdir(parents=True)
    if image is not None:
        (content / IMAGES_ID).write_text(json.dumps({"config": {"Labels": image or None}}))
    (tmp_path / "config.json").write_text(json.dumps({
        "root": {"path": str(tmp_path / "overlay2/layer/merged")}}))
    state = json.dumps({"id": DOCKERS_ID, "pid": os.getpid(), "bundle": str(tmp_path)})
    done = subprocess.run([BUILD / "carve-hook"], input=state, capture_output=True, text=True, timeout=60)
    # A process that is not the container's is noticed after that.
    assert ("is not the container's" in done.stderr) == joins and ("names sizes, and no session" in done.stderr) != joins, done


@pytest.mark.parametrize("state", ["", "{", "{}", '{"id": "x", "pid": 1, "bundle": "relative"}',
                                   '{"id": "x", "pid": -1, "bundle": "/"}', '{"id": "x", "pid": 1, "bundle": "/nowhere"}'])
def test_input_that_is_not_a_container_state_is_refused(state):
    done = subprocess.run([BUILD / "carve-hook"], input=state, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1


def test_a_directory_that_the_image_has_not_is_made(stand_in):
    """As in an image of one program: no /run, no /etc, no /usr. docker makes none of them for the hook."""
    for name in ("run", "etc", "usr", "tmp"):
        shutil.rmtree(stand_in.root / name, ignore_errors=True)
    done, sessions = stand_in.hook()
    assert (done.returncode, done.stderr, len(sessions)) == (0, "", 1)
    assert (stand_in.root / "run/carve-slice").is_dir() and (stand_in.root / "etc/ld.so.preload").is_file()


@pytest.mark.parametrize("what", ["file", "link"])
def test_a_directory_that_the_image_has_otherwise_is_named(stand_in, what):
    shutil.rmtree(stand_in.root / "run")
    if what == "file":
        (stand_in.root / "run").write_text("")
    else:
        (stand_in.root / "run").symlink_to("nowhere/at/all")
    done, _ = stand_in.hook()
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1, done
    assert "/run/carve-slice" in done.stderr and "the image has something else at that path" in done.stderr, done.stderr
