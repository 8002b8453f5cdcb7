"""scripts/bench as a program."""
import subprocess

from conftest import BUILD, ROOT, clean_env


def bench(*args, timeout=600):
    return subprocess.run([ROOT / "scripts" / "bench", "--build", BUILD, *args], stdin=subprocess.DEVNULL,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=timeout, env=clean_env())
