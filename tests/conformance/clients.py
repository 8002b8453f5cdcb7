"""Real clients, from Debian: downloaded with an apt of its own, unpacked into a directory, never installed."""
import fcntl
import functools
import os
import pathlib
import platform
import subprocess
import tempfile

KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
# Packages that are unpacked together: the suite it is from (None: this machine's own) and the packages.
GROUPS = {
    "tools": (None, ["nvtop", "gpustat", "python3-pynvml", "python3-psutil", "python3-blessed", "python3-wcwidth",
                     "python3-six"]),
    "pycuda": (None, ["python3-pycuda", "libboost-python1.74.0", "libboost-thread1.74.0", "libcurand10",
                      "python3-numpy", "libblas3", "liblapack3", "libgfortran5", "libquadmath0", "python3-pytools",
                      "python3-appdirs", "python3-decorator", "python3-platformdirs",
                      "python3-typing-extensions"]),
    "nvidia-smi-535": ("bookworm", ["nvidia-smi"]),
    "nvidia-smi-550": ("trixie", ["nvidia-smi"]),
    "libcuda-535": ("bookworm", ["libcuda1"]),
    "libcuda-550": ("trixie", ["libcuda1"]),
    "old-glibc": ("bullseye", ["libc6", "libc-bin"]),
}


class Unavailable(Exception):
    """apt does not offer them here; the text says why."""


def apt(*argv, cwd):
    try:
        done = subprocess.run(["apt-get", "-q", "-o", "APT::Sandbox::User=root", *argv], cwd=cwd, text=True,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              timeout=120)
    except (FileNotFoundError, subprocess.TimeoutExpired) as error:
        raise Unavailable(f"apt-get {argv[0]}: {error}") from error
    if done.returncode != 0:
        last = (done.stdout.strip().splitlines() or ["no output"])[-1]
        raise Unavailable(f"apt-get {argv[-1]}: {last}")
    return done.stdout


def own_suite():
    return platform.freedesktop_os_release().get("VERSION_CODENAME", "")


def debian_mirror(directory):
    """The mirror from which this machine has Debian's main."""
    listing = apt("indextargets", "--format", "$(CREATED_BY) $(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)",
                  cwd=directory)
    for line in listing.splitlines():
        words = line.split()
        if words[:4] == ["Packages", "Debian", own_suite(), "main"]:
            return words[4]
    raise Unavailable("this machine's apt has no Debian main")


@functools.cache
def archive(directory, suite):
    """Options of an apt that knows that suite only, and keeps what it knows under the directory."""
    place = directory / "apt" / suite
    for folder in "lists/partial", "cache/archives/partial":
        (place / folder).mkdir(parents=True, exist_ok=True)
    (place / "sources.list").write_text(
        f"deb [signed-by={KEYRING}] {debian_mirror(directory)} {suite} main contrib non-free\n")
    options = ["-o", f"Dir::Etc::SourceList={place}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
               "-o", f"Dir::State::Lists={place}/lists", "-o", f"Dir::Cache={place}/cache",
               "-o", "Dir::State::Status=/dev/null", "-o", "Acquire::Languages=none"]
    apt("update", *options, cwd=directory)
    return options


@functools.cache
def unpacked(directory, group):
    """The directory in which the group's packages lie unpacked; made when first asked for."""
    root = directory / group
    # Tests that run side by side may share the directory.
    with open(directory / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if root.is_dir():
            return root
        suite, packages = GROUPS[group]
        options = archive(directory, suite or own_suite())
        with tempfile.TemporaryDirectory(dir=directory) as scratch:
            apt("download", *options, *packages, cwd=scratch)
            for package in pathlib.Path(scratch).glob("*.deb"):
                subprocess.run(["dpkg", "-x", package, f"{scratch}/root"], check=True)
            os.rename(f"{scratch}/root", root)
    return root


class Tools:
    """Command lines of what watches GPUs from Python or on a terminal."""

    def __init__(self, root):
        self.nvtop = root / "usr/bin/nvtop"
        self.python = ["/usr/bin/env", f"PYTHONPATH={root}/usr/lib/python3/dist-packages", "/usr/bin/python3"]
        self.gpustat = [*self.python, "-m", "gpustat"]
