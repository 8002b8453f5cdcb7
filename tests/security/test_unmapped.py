"""Servers in a daemon's place for clients in a user namespace, as in rootless containers: root and every other user look alike there."""
import os
import pathlib
import shutil
import tempfile

import pytest

from conftest import rest_long, run
from .lab import ALICE, BUILD, CARVE, MALLORY, ROOT, as_user
from .test_clients import FRONT, REACH, VERBS, client, listen, own_directory, refused, victim  # noqa: F401: a fixture
from .test_namespaces import namespaces  # noqa: F401: a fixture

POINT = "5"
UNKNOWN = "nobody can tell in this user namespace whose daemon is at"
WAYS = {
    "root inside": ["unshare", "--user", "--map-root-user"],
    "nobody is mapped": ["unshare", "--user"],
    "nobody inside": ["unshare", "--user", "--map-user=65534"],
    "the same number": ["unshare", "--user", "--map-current-user"],
    "nested": ["unshare", "--user", "--map-root-user", "unshare", "--user", "--map-user=1000"],
}


@pytest.fixture
def open_place():
    """A directory of root's for homes, which nobody else writes to and all may enter, as /home. /tmp is no such place."""
    place = pathlib.Path(tempfile.mkdtemp(prefix="carve-homes-", dir="/var/lib"))
    place.chmod(0o755)
    yield place
    shutil.rmtree(place)


@pytest.fixture
def evil(lab, open_place):
    """A server of Mallory's, in a directory that Mallory alone writes to: (directory, heard)."""
    directory = own_directory(open_place / "mallory")
    return directory, listen(lab, directory)


@pytest.mark.parametrize("way", rest_long(WAYS, 3))
@pytest.mark.parametrize("how", rest_long(["CARVE_HOST", "CARVE_RUNTIME_DIR", "--host"], 2))
@pytest.mark.attack(POINT, "a variable leads a client in a user namespace to another user's server")
def test_a_client_in_a_user_namespace_believes_no_server_that_is_named(lab, namespaces, victim, evil, way, how):  # noqa: F811
    directory, heard = evil
    env = {"CARVE_HOST": directory / "carved.sock", "CARVE_RUNTIME_DIR": directory, "--host": None}[how]
    option = [] if env else ["--host", directory / "carved.sock"]
    for verb in VERBS[:4]:
        done = client(lab, victim, *WAYS[way], CARVE, verb[0], *option, *verb[1:], **({how: env} if env else {}))
        refused(done, UNKNOWN if verb[0] != "run" else "")
        assert len(done.stderr.splitlines()) == 1, done
    assert heard() == ""


# A /tmp of its own, but for some directories: a daemon of the user's own would be in there by the number that the user has inside. All
# processes end with the command.
OWN_TMP = ["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-ec", """
mount --rbind /tmp /mnt; mount -t tmpfs -o mode=1777 none /tmp
for i in $(seq $1); do shift; mkdir $1; mount --rbind /mnt/${1#/tmp/} $1; done
shift; "$@" """, "sh"]


@pytest.mark.parametrize("way", rest_long(WAYS, 2))
@pytest.mark.attack(POINT, "an inherited XDG_RUNTIME_DIR of another user's, in a user namespace")
def test_an_inherited_runtime_directory_is_no_ones_in_a_user_namespace(lab, namespaces, victim, open_place, way):  # noqa: F811
    xdg = own_directory(open_place / "xdg")
    heard = listen(lab, own_directory(xdg / "carve"))
    kept = [lab.dir, lab.host.env["SIMGPU_HOST"]]
    env = {**{k: v for k, v in lab.env(MALLORY).items() if not k.startswith("CARVE_")}, "HOME": str(lab.dir / "victim"), "XDG_RUNTIME_DIR": str(xdg)}
    done = run([*OWN_TMP, str(len(kept)), *kept, *as_user(victim), *WAYS[way], CARVE, "gpu", "list", "--json"], env=env, cwd="/")
    assert "Evil" not in done.stdout and heard() == "", done


@pytest.mark.parametrize("way", rest_long(WAYS, 2))
@pytest.mark.attack(POINT, "a program on libcarve in a user namespace is led to another user's server")
def test_libcarve_in_a_user_namespace_believes_no_server_that_is_named(lab, namespaces, victim, evil, way):  # noqa: F811
    directory, heard = evil
    done = client(lab, victim, *WAYS[way], BUILD / "examples/session", CARVE_HOST=directory / "carved.sock")
    assert done.returncode != 0 and UNKNOWN in done.stdout + done.stderr, done
    assert heard() == ""


@pytest.mark.parametrize("way", rest_long(WAYS, 2))
@pytest.mark.attack(POINT, "an image's CARVE_ATTACH leads a program's front to another user's server")
def test_the_front_in_a_user_namespace_attaches_to_no_server_that_is_named(lab, namespaces, victim, evil, way):  # noqa: F811
    directory, heard = evil
    driver = BUILD / "sim"
    done = client(lab, victim, *WAYS[way], REACH, "path", "libcuda.so.1", str(1 << 30), LD_PRELOAD=FRONT, CARVE_SESSION="s-1",
                  CARVE_ATTACH=directory / "attach.sock", CARVE_DRIVER_CUDA=driver / "libcuda.so.1", CARVE_DRIVER_NVML=driver / "libnvidia-ml.so.1")
    assert done.returncode != 0 and UNKNOWN in done.stderr, done
    assert heard() == ""


@pytest.mark.parametrize("named", [True, False], ids=["--host", "CARVE_HOST"])
@pytest.mark.attack(POINT, "the environment of an engine in a user namespace leads its hook to another user's server")
def test_the_hook_in_a_user_namespace_asks_no_server_of_the_environment(lab, namespaces, victim, evil, named):  # noqa: F811
    """An argument is of the hook's file, which `carve podman run` wrote after it had looked from outside."""
    directory, heard = evil
    home = lab.dir / "victim"
    script = f"""mkdir -p {home}/bundle/root/run {home}/bundle/root/etc {home}/bundle/root/tmp {home}/bundle/root/var/lib
echo '{{"root": {{"path": "root"}}, "annotations": {{"carve.vram": "2GiB"}}}}' > {home}/bundle/config.json
unshare --mount sleep 600 & pid=$!
while [ "$(readlink /proc/$pid/ns/mnt)" = "$(readlink /proc/self/ns/mnt)" ]; do :; done
echo '{{"id": "x", "pid": '$pid', "bundle": "{home}/bundle"}}' | {BUILD}/carve-hook {f'--host {directory}/carved.sock' if named else ''}
kill $pid"""
    done = client(lab, victim, *WAYS["root inside"], "sh", "-c", script, **({} if named else {"CARVE_HOST": directory / "carved.sock"}))
    assert (UNKNOWN in done.stderr) != named and (heard() != "") == named, done


# Root's own mounts, then a command as a user.
IN_RUN = ["unshare", "--mount", "--propagation", "private", "sh", "-ec",
          'mount -t tmpfs -o mode=$1 none /run; mkdir /run/carve; mount --bind "$2" /run/carve; shift 2; exec "$@"', "sh"]


@pytest.mark.parametrize("way", rest_long(WAYS, 3))
def test_the_system_daemon_is_believed_where_only_root_can_have_put_it(lab, namespaces, victim, way):  # noqa: F811
    env = {k: v for k, v in lab.env(ALICE).items() if not k.startswith("CARVE_")}
    done = run([*IN_RUN, "0755", lab.runtime, *as_user(ALICE), *WAYS[way], CARVE, "gpu", "list", "--json"], env=env, cwd="/")
    assert done.returncode == 0 and "H100" in done.stdout, done
    # Named, it is believed by its path, too.
    done = run([*IN_RUN, "0755", lab.runtime, *as_user(ALICE), *WAYS[way], BUILD / "examples/session"],
               env={**env, "CARVE_HOST": "/run/carve/carved.sock"}, cwd="/")
    assert done.returncode == 0, done


@pytest.mark.parametrize("way", rest_long(WAYS, 2))
@pytest.mark.parametrize("how", rest_long(["/run is open", "a link", "a path through it"]))
@pytest.mark.attack(POINT, "another user's server at a path that begins as the system daemon's")
def test_a_fixed_path_is_believed_only_as_it_stands(lab, namespaces, victim, evil, way, how):  # noqa: F811
    directory, heard = evil
    runtime = directory
    host = "/run/carve/carved.sock"
    if how == "a link":
        runtime = lab.dir / "linked"
        runtime.mkdir()
        (runtime / "other").symlink_to(directory)
        host = "/run/carve/other/carved.sock"
    elif how == "a path through it":
        host = f"/run/carve/../..{directory}/carved.sock"
    env = {**{k: v for k, v in lab.env(MALLORY).items() if not k.startswith("CARVE_")}, "HOME": str(lab.dir / "victim"), "CARVE_HOST": host}
    mode = "0777" if how == "/run is open" else "0755"
    done = run([*IN_RUN, mode, runtime, *as_user(victim), *WAYS[way], CARVE, "gpu", "list"], env=env, cwd="/")
    refused(done, UNKNOWN)
    assert heard() == ""


@pytest.mark.attack(POINT, "a slice's file and directories of another user's, for a program in a user namespace")
@pytest.mark.parametrize("place", rest_long(["/usr/local/src", "/srv"]))
def test_a_slices_file_in_a_place_that_others_write_to_is_not_believed(lab, namespaces, victim, evil, place):  # noqa: F811
    """Debian has directories of a group (staff) below /usr/local. The file would name the server and vouch for it."""
    directory, heard = evil
    made = own_directory(lab.dir / "place", ROOT)
    own_directory(made / "carve-slice")
    driver = BUILD / "sim"
    (made / "carve-slice/environment").write_text(
        f"CARVE_SESSION=s-1\nCARVE_ATTACH={directory}/attach.sock\nCARVE_DRIVER_CUDA={driver}/libcuda.so.1\nCARVE_DRIVER_NVML={driver}/libnvidia-ml.so.1\n")
    os.chown(made / "carve-slice/environment", MALLORY, MALLORY)
    made.chmod(0o775)
    env = {**{k: v for k, v in lab.env(MALLORY).items() if not k.startswith("CARVE_")}, "HOME": str(lab.dir / "victim"), "LD_PRELOAD": str(FRONT)}
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-ec", 'mount --bind "$1" "$2"; shift 2; exec "$@"', "sh", made, place]
    done = run([*words, *as_user(victim), *WAYS["root inside"], "env", *(f"{k}={v}" for k, v in env.items()), REACH, "path", "libcuda.so.1", str(1 << 30)],
               env={k: v for k, v in env.items() if k != "LD_PRELOAD"}, cwd="/")
    assert done.returncode != 0 and heard() == "", done
