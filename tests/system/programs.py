"""Programs in Python that tests run in slices and on simulated hosts: tests/programs/*.py."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
SOURCES = HERE.parent / "programs"


def python(name, *arguments):
    """The words of a command that runs tests/programs/NAME.py, which may import cuda.py and its neighbours."""
    # -S: no program needs a package, and to look for those takes a quarter of a program's start.
    return [sys.executable, "-S", HERE / "cuda.py", SOURCES / f"{name}.py", *map(str, arguments)]
