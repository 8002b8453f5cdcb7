"""Real NVML clients, from Debian: downloaded with apt, unpacked into a directory, never installed."""
import os
import pathlib
import platform
import shutil
import subprocess

# From contrib and non-free, which a machine's apt need not know, and what they need from main.
NON_FREE = ["nvidia-smi", "nvtop", "gpustat", "python3-pynvml"]
MAIN = ["python3-psutil", "python3-blessed", "python3-wcwidth", "python3-six"]


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


def debian_mirror(directory):
    """The mirror and the suite from which this machine has Debian's main."""
    suite = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
    listing = apt("indextargets", "--format", "$(CREATED_BY) $(ORIGIN) $(CODENAME) $(COMPONENT) $(REPO_URI)",
                  cwd=directory)
    for line in listing.splitlines():
        words = line.split()
        if words[:4] == ["Packages", "Debian", suite, "main"]:
            return words[4], suite
    raise Unavailable("this machine's apt has no Debian main")


def download(directory):
    """All packages, unpacked under directory/root."""
    packages = directory / "packages"
    packages.mkdir()
    mirror, suite = debian_mirror(directory)
    (directory / "lists" / "partial").mkdir(parents=True)
    (directory / "sources.list").write_text(
        f"deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] {mirror} {suite} contrib non-free\n")
    own = ["-o", f"Dir::Etc::SourceList={directory}/sources.list", "-o", "Dir::Etc::SourceParts=/dev/null",
           "-o", f"Dir::State::Lists={directory}/lists", "-o", f"Dir::Cache={directory}/cache"]
    (directory / "cache" / "archives" / "partial").mkdir(parents=True)
    apt("update", *own, cwd=directory)
    apt("download", *own, *NON_FREE, cwd=packages)
    apt("download", *MAIN, cwd=packages)
    for package in packages.glob("*.deb"):
        subprocess.run(["dpkg", "-x", package, directory / "root"], check=True)


class Clients:
    """Command lines for the unpacked programs."""

    def __init__(self, directory):
        self.root = pathlib.Path(directory) / "root"
        self.nvidia_smi = self.root / "usr/lib/nvidia/current/nvidia-smi"
        self.nvtop = self.root / "usr/bin/nvtop"
        self.python = ["/usr/bin/env", f"PYTHONPATH={self.root}/usr/lib/python3/dist-packages",
                       "/usr/bin/python3"]
        self.gpustat = [*self.python, "-m", "gpustat"]

    @classmethod
    def get(cls, directory):
        """CARVE_CLIENTS names a directory that keeps them from one run to the next."""
        kept = os.environ.get("CARVE_CLIENTS")
        if kept and pathlib.Path(kept, "root").is_dir():
            return cls(kept)
        download(pathlib.Path(directory))
        if kept:
            shutil.copytree(directory, kept, dirs_exist_ok=True)
        return cls(directory)
