"""carve on a machine that has a GPU, and neither Debian's packages nor a way to get them: `pack` lays out what it needs there,
and `use` has the programs find those libraries that such a machine lacks, and no others."""
import atexit
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

LINKED = ("carve", "carved", "sim/simhost", "sim/libcuda.so.1")
FOLDER = "libraries"
# These are the machine's own, always: they go with its kernel and its driver.
OWN = re.compile(r"(ld-linux.*|lib(c|m|dl|rt|pthread|resolv)\.so.*)$")
LEFT_OUT = {"meson-logs", "meson-private", "meson-uninstalled", "test-results", "fuzz", "unit", "build.ninja", "compile_commands.json"}


def linked(program):
    """{name: path, or None where the machine has none} of the libraries that it is linked to."""
    said = subprocess.run(["ldd", str(program)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False).stdout
    found = re.findall(r"^\s*(\S+) => (not found|\S+)", said, re.MULTILINE)
    return {name: None if path == "not found" else path for name, path in found}


def pack(build, target):
    """What runs of a build, without the symbols for debuggers, and every library of Debian's that it is linked to."""
    def left_out(_, names):
        return [name for name in names if name in LEFT_OUT or name.startswith(".ninja") or name.endswith((".p", ".a"))]

    shutil.copytree(build, target, symlinks=True, ignore=left_out, dirs_exist_ok=True)
    for file in target.rglob("*"):
        if file.is_file() and not file.is_symlink() and os.access(file, os.X_OK):
            subprocess.run(["strip", "--strip-debug", str(file)], stderr=subprocess.DEVNULL, check=False)
    (target / FOLDER).mkdir()
    for program in LINKED:
        for name, path in linked(build / program).items():
            if path and not OWN.match(name):
                shutil.copy(path, target / FOLDER / name)


def use(build):
    """Of a packed build: nothing where the machine has all. The environment of what is started from now on has the rest."""
    packed, folder = pathlib.Path(build, FOLDER), None
    while packed.is_dir():
        missing = {name for program in LINKED for name, path in linked(build / program).items() if not path}
        missing = {name for name in missing if (packed / name).exists() and not (folder and (folder / name).exists())}
        if not missing:
            return
        if not folder:
            folder = pathlib.Path(tempfile.mkdtemp(prefix="carve-libraries-"))
            folder.chmod(0o755)  # the daemon's user and other users' programs read it, too
            atexit.register(shutil.rmtree, folder, ignore_errors=True)
            os.environ["LD_LIBRARY_PATH"] = f"{folder}:{os.environ.get('LD_LIBRARY_PATH', '')}".rstrip(":")
        for name in missing:
            (folder / name).symlink_to(packed / name)
