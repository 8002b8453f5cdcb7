"""The files that results go to: known to be writable before anything is measured, and whole or as they were afterwards."""
import contextlib
import os
import shutil


def target(path):
    """The file that a link leads to. /dev/stdout leads to something without a path where that is a pipe."""
    real = os.path.realpath(path)
    return real if os.path.exists(real) or not os.path.exists(path) else path


def replaced(path):
    """Whether the file is made anew beside that one and renamed; devices, pipes and the like are written into."""
    path = target(path)
    return os.path.isfile(path) or not os.path.lexists(path)


def beside(path):
    return f"{path}.{os.getpid()}.tmp"


def check(path):
    """Raises OSError where nothing could be written there. A file that is there stays as it is."""
    path = target(path)
    with open(path, "ab") if os.path.lexists(path) else contextlib.nullcontext():
        pass
    if replaced(path):
        with open(beside(path), "xb"):
            os.unlink(beside(path))


def write(path, text):
    """A file that was there keeps its mode, and all of its contents until the new ones are on the disk."""
    path = target(path)
    if not replaced(path):
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return
    try:
        with open(beside(path), "x", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        if os.path.exists(path):
            shutil.copymode(path, beside(path))
        os.replace(beside(path), path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(beside(path))
        raise


def why(error):
    return error.strerror or str(error)
