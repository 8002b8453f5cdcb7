"""`carve cdi`: podman gives a container the slice of a session by its CDI device."""
import json
import os
import stat

import pytest

from conftest import BUILD, open_to_others, wait_until
from podman_host import storage as podman  # noqa: F401: fixtures


@pytest.fixture
def specs(podman, make_host, tmp_path):
    podman.host = make_host("h100-80gb")
    directory = tmp_path / "cdi"
    directory.mkdir()
    return directory


def cdi(podman, specs, verb, *argv):
    done = podman.host.carve("cdi", verb, "--cdi-dir", specs, *argv)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_a_device_of_a_session_is_its_slice_in_every_container(podman, specs):
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    assert f"carve.dev/slice={session}" in cdi(podman, specs, "generate")
    for options in ((), ("--user", "0", "--env", "LD_LIBRARY_PATH=/nowhere")):
        done = podman.with_cdi(specs, "run", "--rm", *options, "--device", f"carve.dev/slice={session}", podman.IMAGE,
                               "hog")
        assert done.returncode == 0 and "this GPU has 3072 MiB" in done.stdout, done.stderr
        assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout
    # Nothing of the daemon's but where programs attach, and the slice also without the environment.
    done = podman.with_cdi(specs, "run", "--rm", "--device", f"carve.dev/slice={session}", podman.IMAGE, "sh", "-c",
                           "ls /run/carve-slice/attach; /bin/env -i SIMGPU_HOST=$SIMGPU_HOST /bin/hog")
    assert done.stdout.splitlines()[0] == "attach.sock" and "this GPU has 3072 MiB" in done.stdout, done.stderr
    # The session is not the container's: it goes on, and ends by its release alone.
    assert [s["id"] for s in podman.sessions()] == [session]
    assert podman.host.carve("session", "release").returncode == 0
    assert f"{session}  ended" in cdi(podman, specs, "list")
    done = podman.with_cdi(specs, "run", "--rm", "--device", f"carve.dev/slice={session}", podman.IMAGE, "hog")
    assert done.returncode != 0 and f"session {session} ended" in done.stdout + done.stderr


def test_specs_are_listed_replaced_and_removed(podman, specs):
    first = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    done = podman.host.carve("cdi", "remove", "--cdi-dir", specs, first)
    assert done.returncode == 1 and f"no spec of a device '{first}'" in done.stderr
    (specs / "nvidia.json").write_text("{}")
    cdi(podman, specs, "generate", first)
    cdi(podman, specs, "generate", "--all")
    file = specs / f"carve.dev-slice_{first}.json"
    spec = json.loads(file.read_text())
    assert spec["kind"] == "carve.dev/slice" and [d["name"] for d in spec["devices"]] == [first]
    assert stat.S_IMODE(file.stat().st_mode) == 0o644
    listed = podman.host.carve_json("cdi", "list", "--cdi-dir", specs)
    assert listed == [{"device": f"carve.dev/slice={first}", "session": first, "state": "active", "file": str(file)}]
    # Without a name only those of ended sessions go.
    cdi(podman, specs, "remove")
    assert file.exists()
    podman.host.carve("session", "release")
    cdi(podman, specs, "remove")
    assert [p.name for p in specs.iterdir()] == ["nvidia.json"]


def test_the_files_of_other_sessions_stay_when_a_spec_is_removed(podman, specs):
    podman.host.carve_json("session", "request", "--vram", "1")
    other = podman.host.popen([BUILD / "carve", "run", "--ephemeral", "--vram", "1", "sleep", "600"])
    wait_until(lambda: len(podman.sessions()) == 2)
    ids = [s["id"] for s in podman.sessions()]
    cdi(podman, specs, "generate", *ids)
    cdi(podman, specs, "remove", ids[0])
    assert [p.name for p in (specs / "carve").iterdir()] == [ids[1]]
    cdi(podman, specs, "remove", "--all")
    assert not any(specs.iterdir())
    other.terminate()


def test_a_device_of_a_size_makes_a_slice_for_each_container(podman, specs):
    assert "carve.dev/slice=2gib" in cdi(podman, specs, "generate", "--vram", "2GiB")
    assert "carve.dev/slice=gpu-0.25" in cdi(podman, specs, "generate", "--gpu", "0.25")
    assert "carve.dev/slice=image" in cdi(podman, specs, "generate", "--image")
    for options, size in (("--device", "carve.dev/slice=2gib"), 2048), (("--device", "carve.dev/slice=gpu-0.25"), 20252), \
            (("--device", "carve.dev/slice=image", "--annotation", "carve.vram=3GiB"), 3072):
        done = podman.with_cdi(specs, "run", "--rm", *options, podman.IMAGE, "hog")
        assert f"this GPU has {size} MiB" in done.stdout, done.stderr + done.stdout
    podman.nothing_is_left()
    listed = podman.host.carve_json("cdi", "list", "--cdi-dir", specs)
    assert [(s["device"], s["state"]) for s in listed] == [(f"carve.dev/slice={name}", "on demand") for name in ("2gib", "gpu-0.25", "image")]
    cdi(podman, specs, "remove")
    cdi(podman, specs, "remove", "2gib")
    assert sorted(p.name for p in specs.iterdir()) == ["carve.dev-slice-gpu-0.25.json", "carve.dev-slice-image.json"]


@pytest.mark.long
def test_a_device_and_an_installed_hook_make_one_slice(podman, specs, tmp_path):
    """The device counts before the container's own labels, and each hook alone would make one."""
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path / "hooks").returncode == 0
    cdi(podman, specs, "generate", "--vram", "2GiB")
    podman.with_cdi(specs, "--hooks-dir", tmp_path / "hooks", "run", "--detach", "--name", "both", "--device", "carve.dev/slice=2gib", "--annotation",
                    "carve.vram=3GiB", podman.IMAGE, "sleep", "600")
    assert [s["gpus"][0]["vram_bytes"] for s in podman.sessions()] == [2 << 30]
    assert "this GPU has 2048 MiB" in podman("podman", "exec", "both", "hog").stdout
    podman("podman", "rm", "--force", "--time", "0", "both")
    podman.nothing_is_left()


def test_the_device_of_the_images_size_starts_nothing_without_one(podman, specs):
    cdi(podman, specs, "generate", "--image")
    done = podman.with_cdi(specs, "run", "--rm", "--device", "carve.dev/slice=image", podman.IMAGE, "true")
    assert done.returncode != 0 and "names no slice" in done.stderr, done.stderr
    assert not podman.sessions()


def test_every_user_of_a_container_is_in_the_devices_slice(podman, specs):
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    open_to_others(podman.host)
    os.chmod(podman.host.env["CARVE_RUNTIME_DIR"] + "/attach.sock", 0o666)
    cdi(podman, specs, "generate")
    done = podman.with_cdi(specs, "run", "--rm", "--user", "1000", "--device", f"carve.dev/slice={session}", podman.IMAGE,
                           "hog")
    assert "this GPU has 3072 MiB" in done.stdout, done.stderr + done.stdout


@pytest.mark.parametrize("argv, code, said", [
    (["generate"], 1, "you have no current session"),
    (["generate", "s-nosuch"], 1, "s-nosuch"),
    (["generate", "../../x"], 1, "../../x"),
    (["generate", "--vram", "8", "s-7k2m9q"], 2, "a session has its size"),
    (["generate", "--vram", "8", "--all"], 2, "a session has its size"),
    (["generate", "--image", "--vram", "8"], 2, "--image and --vram are both given"),
    (["generate", "--image", "--reserve", "64MiB"], 2, "--image and --reserve are both given"),
    (["generate", "--mig-profile", "../../x"], 2, "--mig-profile: '../../x' is no MIG profile"),
    (["generate", "--vram", "8", "--gpu-ids", "9"], 2, "there is no GPU 9"),
    (["generate", "--mig-profile", "foo"], 3, "no container could start with this device: no GPU here gives out MIG instances"),
    (["generate", "--gpu", "64"], 3, "64 GPUs asked, there is 1"),
    (["generate", "--vram", "500"], 3, "500 GiB is more than there is"),
    (["generate", "--vram", "500GiB", "--gpu-ids", "0"], 3, "500 GiB is more than there is"),
    (["generate", "--all", "s-7k2m9q"], 2, "--all and s-7k2m9q"),
    (["remove", "--all", "s-7k2m9q"], 2, "--all and s-7k2m9q"),
    (["list", "--cdi-dir", ""], 2, "the path is empty"),
    (["list", "--cdi-dir", "x" * 4096], 2, "too long"),
])
def test_refusals_have_one_line(make_host, tmp_path, argv, code, said):
    directory = () if "--cdi-dir" in argv else ("--cdi-dir", tmp_path)
    done = make_host("h100-80gb").carve("cdi", *argv, *directory)
    assert (done.returncode, said in done.stderr, "Traceback" in done.stderr) == (code, True, False), done.stderr
    assert not any(tmp_path.glob("*.json"))


def test_a_size_that_others_have_taken_now_is_a_device(make_host, tmp_path):
    host = make_host("h100-80gb:2")
    host.carve_json("session", "request", "--vram", "60", "--gpus", "2")
    for size, device in ((("--vram", "40"), "40gib"), (("--gpu", "1"), "gpu-1"), (("--gpu", "2"), "gpu-2")):
        done = host.carve("cdi", "generate", *size, "--cdi-dir", tmp_path)
        assert done.returncode == 0 and f"carve.dev/slice={device} in {tmp_path}" in done.stdout and not done.stderr, done.stderr
    done = host.carve("cdi", "generate", "--gpu", "3", "--cdi-dir", tmp_path)
    assert done.returncode == 3 and "3 GPUs asked, there are 2" in done.stderr, done.stderr


def test_specs_of_a_simulated_host_are_in_its_own_directory(make_host):
    host = make_host("h100-80gb")
    specs = host.env["SIMGPU_HOST"] + "/cdi"
    id = host.carve_json("session", "request", "--vram", "2")["id"]
    for argv in (["--vram", "2"], [id], ["--all"]):
        done = host.carve("cdi", "generate", *argv)
        assert done.returncode == 0 and f" in {specs}/carve.dev-slice" in done.stdout, done.stderr
        assert done.stderr.startswith(f"carve: note: this is a simulated host, so the specs are its own, in {specs};") and done.stderr.count("\n") == 1
    assert {spec["device"] for spec in host.carve_json("cdi", "list")} == {f"carve.dev/slice={id}", "carve.dev/slice=2gib"}
    assert host.carve("cdi", "remove", "--all").returncode == 0 and host.carve_json("cdi", "list") == []


def test_a_slice_composes_with_nvidias_own_device(podman, specs):
    """NVIDIA's spec, which a stand-in plays, mounts the driver at its own paths and names it to the dynamic linker. Carve's device comes after it."""
    session = podman.host.carve_json("session", "request", "--vram", "3")["id"]
    cdi(podman, specs, "generate")
    libraries = [os.path.realpath(BUILD / "sim" / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    names = [str(BUILD / "sim" / name) for name in ("libcuda.so.1", "libnvidia-ml.so.1")]
    (specs / "nvidia.json").write_text(json.dumps({"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [{"name": "0", "containerEdits": {
        "env": ["NVIDIA_VISIBLE_DEVICES=void", f"LD_LIBRARY_PATH={BUILD}/sim"],
        "mounts": [{"hostPath": real, "containerPath": to, "options": ["ro", "nosuid", "nodev", "bind"]}
                   for real, to in zip(libraries, names)]}}]}))
    devices = ["--device", "nvidia.com/gpu=0", "--device", f"carve.dev/slice={session}"]
    done = podman.with_cdi(specs, "run", "--rm", *devices, podman.IMAGE, "hog")
    assert done.returncode == 0 and "this GPU has 3072 MiB" in done.stdout and "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout, done
    # The stand-in's driver is what a program would find that knows of no slice.
    host = "SIMGPU_HOST=" + podman.host.env["SIMGPU_HOST"]
    done = podman.with_cdi(specs, "run", "--rm", "--env", host, "--volume", podman.host.env["SIMGPU_HOST"] + ":" + podman.host.env["SIMGPU_HOST"],
                           "--device", "nvidia.com/gpu=0", podman.IMAGE, "hog")
    assert "this GPU has 3072 MiB" not in done.stdout and "this GPU has" in done.stdout, done


@pytest.mark.parametrize("size", [["--vram", "2GiB"], ["--image"]], ids=["size", "image"])
def test_a_device_with_the_nodes_of_a_gpu_starts_nothing_on_another(podman, specs, size):
    """The spec has them from the time when it was written: here the GPU has MIG instances since."""
    cdi(podman, specs, "generate", *size)
    device = "carve.dev/slice=" + ("image" if size == ["--image"] else "2gib")
    run = ["run", "--rm", "--device", device, "--annotation", "carve.vram=2GiB", podman.IMAGE, "hog"]
    done = podman.with_cdi(specs, *run)
    assert "this GPU has 2048 MiB" in done.stdout, done
    podman.nothing_is_left()
    done = podman.host.carve("node", "set-role", "--dynamic-mig-enabled", "--enable-mode")
    assert done.returncode == 0, done.stderr
    done = podman.with_cdi(specs, *run)
    assert done.returncode != 0 and "this GPU" not in done.stdout and "has changed since" in done.stderr, done
    podman.nothing_is_left()
    cdi(podman, specs, "generate", *size)
    assert "this GPU has" in podman.with_cdi(specs, *run).stdout


def test_a_spec_that_its_session_has_left_is_told(podman, make_host, tmp_path):
    podman.host = make_host("h100-80gb+mig")
    assert podman.host.carve("node", "set-role", "--dynamic-mig-enabled").returncode == 0
    id = podman.host.carve_json("session", "request", "--mig-profile", "1g.10gb")["id"]
    for state in ("active", "changed", "active"):
        if state == "changed":
            assert podman.host.carve("session", "resize", id, "--vram", "20").returncode == 0
        else:
            cdi(podman, tmp_path, "generate", id)
        spec, = podman.host.carve_json("cdi", "list", "--cdi-dir", tmp_path)
        assert spec["state"] == state, spec
