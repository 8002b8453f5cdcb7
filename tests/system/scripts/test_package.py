"""scripts/package makes packages of Debian's, and packaging/Containerfile makes the image of Kubernetes' manifests from them."""
import gzip
import json
import os
import pathlib
import re
import shutil

import pytest

yaml = pytest.importorskip("yaml", reason="needs python3-yaml")

from conftest import BUILD, ROOT, VERSION, clean_env, run
from debian_base import archive_make
from podman_host import podman, storage  # noqa: F401

NAMES = ["carve", "carve-kubernetes", "carve-sim", "libcarve-dev", "libcarve0"]
pytestmark = [pytest.mark.skipif(BUILD != ROOT / "build" or os.environ.get("CARVE_TEST_GPU") == "1", reason="packs the ordinary build"),
              pytest.mark.skipif(not shutil.which("dpkg-shlibdeps"), reason="needs dpkg-dev"),
              pytest.mark.xdist_group("install")]


def private(argv, directory):
    """The command, as if the checkout had been made under an umask of 077. Needs root."""
    files = ROOT / "packaging/kubernetes"
    return ["unshare", "--mount", "--propagation", "private", "sh", "-c",
            f'cp -r {files} {directory}/private && chmod -R go-rwx {directory}/private && '
            f'mount --bind {directory}/private {files} && exec "$@"', "sh", *argv]


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """{name: file}"""
    directory = tmp_path_factory.mktemp("packages")
    argv = [ROOT / "scripts/package", "--output", directory]
    done = run(private(argv, tmp_path_factory.mktemp("checkout")) if os.geteuid() == 0 else argv, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    files = {file.name.partition("_")[0]: file for file in directory.iterdir()}
    assert sorted(files) == NAMES
    assert done.stdout.split() == sorted(map(str, files.values()))
    return files


def field(file, name):
    return run(["dpkg-deb", "-f", file, name]).stdout.strip()


def listing(file):
    return {line.split()[5][1:]: line for line in run(["dpkg-deb", "-c", file]).stdout.splitlines() if not line.endswith("/")}


@pytest.mark.long
def test_the_packages_hold_together_what_install_places(packages, tmp_path):
    done = run([ROOT / "scripts/install", "--prefix", "/usr", "--destdir", tmp_path], timeout=300)
    assert done.returncode == 0, done.stderr
    placed = {"/" + str(p.relative_to(tmp_path)) for p in tmp_path.rglob("*") if p.is_symlink() or p.is_file()}
    placed.remove("/usr/lib/carve/manifest")
    held = [path for file in packages.values() for path in listing(file)]
    assert len(held) == len(set(held)), "two packages have a file of one name"
    own = re.compile(r"/usr/share/(carve/kubernetes|lintian/overrides|doc/[^/]+/(copyright|changelog.gz))")
    # Debian's zsh does not look into site-functions below /usr.
    placed = {path.replace("zsh/site-functions", "zsh/vendor-completions") for path in placed}
    assert {re.sub(r"(/man/.*)\.gz$", r"\1", path) for path in held if not own.match(path)} == placed
    assert "/usr/share/zsh/vendor-completions/_carve" in placed
    assert "/usr/bin/carve" in listing(packages["carve"]) and "/usr/bin/carve-kubernetes" in listing(packages["carve-kubernetes"])


def test_everybody_can_read_what_the_packages_hold(packages):
    for file in packages.values():
        for line in run(["dpkg-deb", "-c", file]).stdout.splitlines():
            assert line[7] == "r" and (line[0] != "d" or line[9] == "x"), line


FILES = re.compile(r"/usr/(?:share|lib)/(?:doc/)?carve[\w./-]*\w")


def held_with(packages, name):
    """The files and directories of a package, and of the packages of carve's that it needs."""
    needed = [other for other in NAMES if re.search(rf"(^|, ){other} \(= ", field(packages[name], "Depends"))]
    files = {path for one in [name, *needed] for path in listing(packages[one])}
    return files | {str(above) for path in files for above in pathlib.PurePath(path).parents}


def test_the_packages_hold_the_files_that_pages_and_messages_name(packages, tmp_path):
    named, held = set(), {name: held_with(packages, name) for name in NAMES}
    for name in NAMES:
        assert run(["dpkg-deb", "-x", packages[name], tmp_path / name]).returncode == 0
        for page in [path for path in listing(packages[name]) if "/man/" in path]:
            with gzip.open(f"{tmp_path}/{name}{page}", "rt") as text:
                found = set(FILES.findall(text.read().replace("\\-", "-")))
            assert found <= held[name], (page, found - held[name])
            named |= found
    texts = {"carve": ["cli", "daemon", "slice", "integrations/oci"], "carve-kubernetes": ["integrations/kubernetes"]}
    for name, folders in texts.items():
        for path in [path for folder in folders for path in (ROOT / "src" / folder).rglob("*.c")]:
            found = set(FILES.findall(path.read_text()))
            assert found <= held[name], (path, found - held[name])
            named |= found
    guides = {f"/usr/share/doc/carve/{guide}.md" for guide in ("index", "user/containers", "user/mig")}
    assert guides | {"/usr/share/doc/carve/examples/session.c"} <= named


def test_the_packages_have_the_notices_of_libraries_that_are_linked_in(packages, tmp_path):
    for name in NAMES:
        assert run(["dpkg-deb", "-x", packages[name], tmp_path]).returncode == 0
        text = (tmp_path / f"usr/share/doc/{name}/copyright").read_text()
        assert "Apache License, Version 2.0" in text and "/usr/share/common-licenses/Apache-2.0" in text
        assert all(re.search(owner, text) for owner in ("Igor Sysoev", "Petri Lehtinen", "Yann Collet", "Facebook")), name


def test_the_packages_say_what_they_need(packages):
    version = run([BUILD / "carve", "--version"]).stdout.split()[1]
    assert all(field(file, "Version") == version for file in packages.values())
    assert re.search(r"\blibuv1\b", field(packages["carve"], "Depends"))
    assert f"carve (= {version})" in field(packages["carve-kubernetes"], "Depends")
    assert f"libcarve0 (= {version})" in field(packages["libcarve-dev"], "Depends")
    # An administrator's configuration stays over an upgrade.
    assert run(["dpkg-deb", "-I", packages["carve"], "conffiles"]).stdout == "/etc/carve/carved.json\n"
    for script in ("postinst", "prerm", "postrm"):
        assert run(["sh", "-n"], stdin=None, input=run(["dpkg-deb", "-I", packages["carve"], script]).stdout).returncode == 0
    assert all(line.split()[1] == "root/root" for file in packages.values() for line in listing(file).values())


@pytest.mark.long
def test_the_image_of_the_manifests_is_built_from_the_packages(packages, podman, tmp_path):  # noqa: F811
    needed = [re.match(r"[^\s(]+", word.strip())[0] for name in ("carve", "carve-kubernetes")
              for word in field(packages[name], "Depends").split(",")]
    base = tmp_path / "base.tar"
    archive_make(base, ["apt", *needed], tmp_path / "made")
    assert podman("podman", "import", base, "localhost/base:1").returncode == 0
    done = podman("podman", "build", "-q", "--network", "none", "--build-arg", "BASE=localhost/base:1", "-t", "localhost/carve:1",
                  "-f", ROOT / "packaging/Containerfile", packages["carve"].parent, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    for argv, said in ((["carve", "--version"], "carve "), (["carve-kubernetes", "--help"], "carve-kubernetes node"),
                       (["carved", "--config", "/etc/carve/carved.json", "--check-config"], ""),
                       (["getent", "passwd", "carve"], "carve:")):
        done = podman("podman", "run", "--rm", "--network", "none", "localhost/carve:1", *argv)
        assert done.returncode == 0 and said in done.stdout, done.stderr
    # The files that a package removes, and those that it leaves; carve-sim is not there.
    done = podman("podman", "run", "--rm", "--network", "none", "localhost/carve:1", "sh", "-ec",
                  "carve sim true 2>&1 | grep -q 'package carve-sim'; echo '{\"over_policy\": \"kill\"}' >/etc/carve/carved.json;"
                  "dpkg --remove carve-kubernetes carve; grep -q kill /etc/carve/carved.json; getent passwd carve; test ! -e /usr/bin/carve;"
                  "dpkg --purge carve-kubernetes carve; ! ls -d /etc/carve /usr/lib/*/carve /usr/share/carve")
    assert done.returncode == 0, done.stdout + done.stderr
    node = next(o for o in yaml.safe_load_all((ROOT / "packaging/kubernetes/base/node.yaml").read_text()) if o["kind"] == "DaemonSet")
    for container in node["spec"]["template"]["spec"]["initContainers"]:
        place = container["volumeMounts"][0]["mountPath"]
        here = tmp_path / pathlib.Path(place).name
        here.mkdir()
        done = podman("podman", "run", "--rm", "--network", "none", "--volume", f"{here}:{place}", "localhost/carve:1",
                      *container["command"])
        assert done.returncode == 0, done.stderr
    assert sorted(p.name for p in (tmp_path / "front").iterdir()) == ["libcuda.so.1", "libnvidia-ml.so.1"]
    assert run([tmp_path / "hook/carve-hook", "--version"]).stdout.startswith("carve-hook ")


def older(packages, directory):
    """The packages once more, with a lower version of as many letters, which their programs say, too."""
    old = re.sub(r"\d", "0", VERSION)
    (directory / "older").mkdir()
    for name, file in packages.items():
        root = directory / name
        assert run(["dpkg-deb", "-R", file, root]).returncode == 0
        for path in [path for path in root.rglob("*") if path.is_file() and not path.is_symlink()]:
            data = path.read_bytes()
            if VERSION.encode() in data:
                path.write_bytes(data.replace(VERSION.encode(), old.encode()))
        done = run(["dpkg-deb", "--root-owner-group", "-Znone", "-b", root, directory / "older"])
        assert done.returncode == 0, done.stderr
    return old, sorted((directory / "older").iterdir())


# The host's own files with what the packages write over them: all of it is gone with the namespace of mounts.
PRIVATE = """
mount -t tmpfs none "$PLACE"
for one in usr etc var; do
    mkdir -p "$PLACE/$one.new" "$PLACE/$one.work"
    mount -t overlay -o "lowerdir=/$one,upperdir=$PLACE/$one.new,workdir=$PLACE/$one.work" none "/$one" || exit 99
done
mount -t tmpfs none /run || exit 99
set -e
list() { find /usr /etc /var/lib /run -path /var/lib/dpkg -prune -o -print | sort; }
list >"$PLACE/before"
dpkg --no-triggers -i $OLD >"$PLACE/log" 2>&1 || { cat "$PLACE/log"; exit 1; }
carve sim --gpus h100-80gb -- sh -ec "$SIMULATED"
dpkg --no-triggers --remove $NAMES >"$PLACE/log" 2>&1 || { cat "$PLACE/log"; exit 1; }
test -e /etc/carve/carved.json
dpkg --no-triggers --purge $NAMES >"$PLACE/log" 2>&1 || { cat "$PLACE/log"; exit 1; }
list >"$PLACE/after"
echo "left:"
comm -13 "$PLACE/before" "$PLACE/after"
"""
SIMULATED = """
look() { carve check | grep ^daemon:; carve session list --json | tr -d ' \\n'; echo; }
carve session request --vram 4
carve run "$HOG" 600 >"$PLACE/hog" & hog=$!
until grep -q 'cuMemGetInfo now' "$PLACE/hog"; do kill -0 $hog; sleep 0.1; done
look
dpkg --no-triggers -i $NEW >"$PLACE/log" 2>&1 || { cat "$PLACE/log"; exit 1; }
carved --takeover
look
carve run --ephemeral --vram 2 "$HOG"
kill -0 $hog
kill $hog
carve session release
"""


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, for mounts of its own")
@pytest.mark.skipif(os.path.exists("/usr/bin/carve"), reason="carve is installed here")
def test_packages_are_installed_upgraded_under_a_held_session_and_purged(packages, tmp_path):
    old, files = older(packages, tmp_path)
    place = tmp_path / "place"
    place.mkdir()
    env = clean_env({"PLACE": str(place), "OLD": " ".join(map(str, files)), "NEW": " ".join(map(str, packages.values())), "NAMES": " ".join(NAMES),
                     "SIMULATED": SIMULATED, "HOG": str(BUILD / "examples/hog"), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
    done = run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", PRIVATE],
               env=env, timeout=300)
    if done.returncode == 99:
        pytest.skip("cannot lay mounts over the host's files")
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert re.findall(r"^daemon: .*carved ([\d.]+),", done.stdout, re.M) == [old, VERSION]
    before, after = ([{key: one[key] for key in ("id", "pids", "created", "vram_bytes")} for one in json.loads(line)]
                     for line in lines if line.startswith("[{"))
    assert before == after and before[0]["pids"] and before[0]["vram_bytes"] == 4 << 30
    assert "hog: this GPU has 2048 MiB" in done.stdout
    # Users and groups stay, as files may be theirs; and a directory of this boot, which slices that still run may use.
    left = lines[lines.index("left:") + 1:]
    assert [path for path in left if not re.match(r"/etc/(passwd|group|shadow|gshadow|subuid|subgid)-?$|/run/carve-slice$", path)] == []


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("lintian"), reason="needs lintian")
def test_lintian_finds_no_fault_in_the_packages(packages):
    done = run(["lintian", "--allow-root", "--fail-on", "warning,error", *packages.values()], timeout=800)
    assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr


def test_each_exception_from_lintians_rules_has_its_reason(packages, tmp_path):
    assert run(["dpkg-deb", "-x", packages["carve"], tmp_path]).returncode == 0
    lines = (tmp_path / "usr/share/lintian/overrides/carve").read_text().splitlines()
    for before, line in zip(["", *lines], lines):
        assert line.startswith("# ") or before.startswith("# "), line


def test_a_package_has_the_list_of_changes(packages, tmp_path):
    for name in NAMES:
        assert run(["dpkg-deb", "-x", packages[name], tmp_path]).returncode == 0
        with gzip.open(tmp_path / "usr/share/doc" / name / "changelog.gz", "rt") as text:
            assert text.read().startswith(f"carve ({VERSION}) ")
    assert (tmp_path / "usr/share/doc/carve/CHANGELOG.md").read_text() == (ROOT / "CHANGELOG.md").read_text()
