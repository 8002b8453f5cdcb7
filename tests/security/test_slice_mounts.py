"""Attacks by volumes: an image or a pod mounts something where carve has a slice's files, so that carve-hook takes the container for
one that is in a slice already (docs/user/containers.md)."""
import json
import os
import shlex
import shutil

import pytest

from conftest import rest_long

from .lab import BUILD, MALLORY, ROOT

SLICE = "/run/carve-slice"
PODS = {"io.kubernetes.cri.container-type": "container"}


def hook(lab, config, words=(), script="", bundle=None, id="x"):
    """carve-hook for a container of root's that has made its mounts (`script`, with ROOT for its root) and not started. `sessions` are
    those while the container is there."""
    bundle = bundle or lab.dir / "bundle"
    root = bundle / config.get("root", {"path": "root"})["path"]
    for directory in (bundle, *(root / name for name in ("run", "etc", "tmp", "usr", "dev"))):
        directory.mkdir(parents=True, exist_ok=True)
    container = lab.popen(ROOT, "unshare", "--mount", "sh", "-ec", f"{script.replace('ROOT', str(root))}\necho up; exec sleep 600")
    assert container.stdout.readline() == "up\n", container.communicate()
    (bundle / "config.json").write_text(json.dumps({"root": {"path": "root"}, **config}))
    (bundle / "state").write_text(json.dumps({"id": id, "pid": container.pid, "bundle": str(bundle)}))
    with open(bundle / "state") as state:
        done = lab.run(ROOT, BUILD / "carve-hook", *words, stdin=state)
    done.sessions = lab.carve_json(ROOT, "session", "list")
    container.kill()
    container.wait()
    return done


def refused(lab, done, *said):
    assert done.returncode == 5 and len(done.stderr.splitlines()) == 1, done
    assert all(word in done.stderr for word in said), done.stderr


VOLUMES = {
    "whole": SLICE,
    "part": f"{SLICE}/front",
    "unknown": f"{SLICE}/other/below",
    "attach": f"{SLICE}/attach",
    "file": f"{SLICE}/environment",
    "spelt": "/run/x/..//carve-slice/.",
}
WISHES = {
    "none": ({}, ()),
    "annotation": ({"annotations": {"carve.vram": "1280MiB"}}, ()),
    "label": ({}, ("--label", "carve.vram=1280MiB")),
    "required": ({}, ("--required",)),
    "variables": ({"process": {"env": ["CUDA_DEVICE_MEMORY_LIMIT=1280m"]}}, ()),
    "pod": ({"annotations": {**PODS, "carve.vram": "1280MiB"}}, ()),
}


@pytest.mark.parametrize("wish", rest_long(WISHES, 2))
@pytest.mark.parametrize("volume", rest_long(VOLUMES, 2))
@pytest.mark.attack("5", "an image's volume where carve mounts a slice, which would switch the hook off")
def test_a_volume_of_an_image_is_no_slice(lab, volume, wish):
    """Neither of VOLUME, which is an engine's directory, nor of a tmpfs, as an emptyDir in memory is."""
    config, words = WISHES[wish]
    data = lab.dir / "volumes" / ("0" * 64) / "_data"
    data.mkdir(parents=True)
    for source in (str(data), "tmpfs"):
        mounts = [{"destination": "/proc", "type": "proc", "source": "proc"}, {"destination": VOLUMES[volume], "source": source}]
        refused(lab, hook(lab, {**config, "mounts": mounts}, words), "is not carve's", "VOLUME", source)
    assert lab.carve_json(ROOT, "session", "list") == []


@pytest.fixture
def spec(lab):
    """The mounts that carve gives a container of a session, as a runtime has them in its configuration."""
    id = lab.carve_json(ROOT, "session", "request", "--vram", "2")["id"]
    done = lab.carve(ROOT, "cdi", "generate", id, "--cdi-dir", lab.dir / "cdi")
    assert done.returncode == 0, done.stderr
    edits = json.loads((lab.dir / "cdi" / f"carve.dev-slice_{id}.json").read_text())["devices"][0]["containerEdits"]
    return [{"destination": m["containerPath"], "source": m["hostPath"]} for m in edits["mounts"]
            if m["containerPath"].startswith(SLICE) or m["containerPath"] == "/etc/ld.so.preload"]


def mounted(mounts):
    """The script that makes them in the container's root."""
    lines = []
    for mount in mounts:
        to, source = f"ROOT{mount['destination']}", shlex.quote(mount["source"])
        lines.append(f"mkdir -p {os.path.dirname(to)}; if [ -d {source} ]; then mkdir -p {to}; else touch {to}; fi; "
                     f"mount --bind {source} {to}")
    return "\n".join(lines)


def test_the_whole_set_of_carves_own_mounts_is_a_slice(lab, spec):
    """So that the others are refused for what they are."""
    done = hook(lab, {"mounts": spec, "annotations": {"carve.vram": "1280MiB"}}, script=mounted(spec))
    assert (done.returncode, done.stderr) == (0, ""), done
    assert len(lab.carve_json(ROOT, "session", "list")) == 1


def replaced(spec, to, source):
    return [{**m, "source": str(source)} if m["destination"] == to else m for m in spec]


@pytest.mark.attack("5", "a user's own files in the places of those that make a slice")
@pytest.mark.parametrize("which", rest_long(["front/libcuda.so.1", "attach", "environment", "front/libnvidia-ml.so.1", "preload"], 3))
def test_a_copy_of_carves_files_is_no_slice(lab, spec, which):
    """Each alone is enough to leave the container without its limit."""
    to = "/etc/ld.so.preload" if which == "preload" else f"{SLICE}/{which}"
    [source] = [m["source"] for m in spec if m["destination"] == to]
    home = lab.home(MALLORY)
    if which == "attach":
        copy = home / "containers"
        made = lab.python(MALLORY, "import socket; os.mkdir(sys.argv[1]); socket.socket(1).bind(sys.argv[1] + '/attach.sock')", copy)
        assert made.returncode == 0, made
    else:
        copy = home / os.path.basename(source)
        shutil.copy(source, copy)
        if which in ("environment", "preload"):
            copy.write_text(copy.read_text() + "X=1\n")
        os.chown(copy, MALLORY, MALLORY)
    mounts = replaced(spec, to, copy)
    done = hook(lab, {"mounts": mounts}, script=mounted(mounts))
    refused(lab, done, "/etc/ld.so.preload" if which == "preload" else to)


@pytest.mark.parametrize("which", rest_long(["environment", "preload"]))
@pytest.mark.attack("5", "a pod that names files of its author's as those of a slice")
def test_a_pods_author_writes_no_file_of_a_slice(lab, spec, which):
    """The text is right while the hook reads it. A user of the host, who started the container, may own such files; a pod's author not."""
    to = "/etc/ld.so.preload" if which == "preload" else f"{SLICE}/environment"
    [source] = [m["source"] for m in spec if m["destination"] == to]
    copy = lab.home(MALLORY) / "text"
    shutil.copy(source, copy)
    os.chown(copy, MALLORY, MALLORY)
    mounts = replaced(spec, to, copy)
    assert hook(lab, {"mounts": mounts}, script=mounted(mounts)).returncode == 0
    refused(lab, hook(lab, {"mounts": mounts, "annotations": PODS}, script=mounted(mounts)), to)


@pytest.mark.parametrize("missing", rest_long([f"{SLICE}/environment", "/etc/ld.so.preload", f"{SLICE}/front/libcuda.so.1", f"{SLICE}/attach"], 2))
@pytest.mark.attack("5", "some of carve's own mounts, without those that limit")
def test_a_part_of_carves_mounts_is_no_slice(lab, spec, missing):
    mounts = [m for m in spec if m["destination"] != missing]
    refused(lab, hook(lab, {"mounts": mounts, "annotations": {"carve.vram": "1280MiB"}}, script=mounted(mounts)), f"none at {missing}")


@pytest.mark.parametrize("over", rest_long([SLICE, "/etc", f"{SLICE}/front"], 2))
@pytest.mark.attack("5", "a link in the image that leads a volume over carve's mounts")
def test_a_volume_by_a_link_over_carves_mounts_is_noticed(lab, spec, over):
    """In the configuration its destination is /a/b/c/link: a runtime mounts it last, where the link leads."""
    volume = lab.dir / "volume"
    volume.mkdir()
    script = f"{mounted(spec)}\nmount --bind {volume} ROOT{over}"
    mounts = [*spec, {"destination": "/a/b/c/link", "source": str(volume)}]
    refused(lab, hook(lab, {"mounts": mounts}, script=script), "something else over carve's mount")


@pytest.mark.attack("5", "variables of an image that say that its container is in a slice, or has no GPU")
@pytest.mark.parametrize("variable", ["CARVE_SESSION={session}", "NVIDIA_VISIBLE_DEVICES=void"])
def test_a_variable_of_an_image_takes_no_wish_away(lab, variable):
    """The limit is of who starts the container, and so is the GPU's node."""
    session = lab.carve_json(MALLORY, "session", "request", "--vram", "2")["id"]
    done = hook(lab, {"process": {"env": ["CUDA_DEVICE_MEMORY_LIMIT=1280m", variable.format(session=session)]},
                      "linux": {"devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}]}})
    [made] = [s for s in done.sessions if s["id"] != session]
    assert done.returncode == 0 and made["vram_bytes"] == 1280 << 20, done


@pytest.mark.attack("5", "an image or a user of docker that says what only Kubernetes may say: that a container is a pod's first")
@pytest.mark.parametrize("namespace", ["moby", "default"])
def test_a_container_of_another_engine_is_no_pods_first(lab, namespace):
    """That container needs no slice, as its pod's others have it."""
    id = "a" * 64
    bundle = lab.dir / "io.containerd.runtime.v2.task" / namespace / id
    record = lab.dir / "docker/containers" / id
    record.mkdir(parents=True)
    (record / "config.v2.json").write_text(json.dumps({"Config": {"Labels": {"carve.vram": "1280MiB"}}}))
    done = hook(lab, {"root": {"path": str(lab.dir / "docker/vfs/dir/layer")},
                      "annotations": {"io.kubernetes.cri.container-type": "sandbox", "carve.vram": "1280MiB"}},
                bundle=bundle, id=id)
    [made] = done.sessions
    assert done.returncode == 0 and made["vram_bytes"] == 1280 << 20, done


@pytest.mark.attack("5", "an image of docker's that has volumes over the files beside which its labels were looked for")
@pytest.mark.parametrize("mounts", [["/etc/hostname"], ["/etc/hostname", "/etc/hosts", "/etc/resolv.conf"], []])
def test_the_labels_of_docker_run_count_whatever_an_image_mounts(lab, mounts):
    id = "a" * 64
    record = lab.dir / "docker/containers" / id
    record.mkdir(parents=True)
    (record / "config.v2.json").write_text(json.dumps({"Config": {"Labels": {"carve.vram": "1280MiB"}}}))
    volume = lab.dir / "docker/volumes" / ("0" * 64) / "_data"
    volume.mkdir(parents=True)
    done = hook(lab, {"root": {"path": str(lab.dir / "docker/vfs/dir/layer")},
                      "mounts": [{"destination": to, "source": str(volume)} for to in mounts]},
                bundle=lab.dir / "io.containerd.runtime.v2.task/moby" / id, id=id)
    [made] = done.sessions
    assert done.returncode == 0 and made["vram_bytes"] == 1280 << 20, done
    (record / "config.v2.json").unlink()
    done = hook(lab, {"root": {"path": str(lab.dir / "docker/vfs/dir/layer")}},
                bundle=lab.dir / "io.containerd.runtime.v2.task/moby" / id, id=id)
    assert done.returncode == 1 and "docker's record of container" in done.stderr and done.sessions == [], done
