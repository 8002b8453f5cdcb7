"""The front over the null driver (bench/null_driver), with a stand-in for the daemon (tests/programs/front_host)."""
import json

from conftest import BUILD, clean_env, run

FRONTS = [BUILD / "src/front/libcuda.so.1", BUILD / "src/front/libnvidia-ml.so.1"]
NULL_DRIVER = BUILD / "bench/null_driver/libcuda.so.1"


def in_slice(check, *options, program="front_memory", more=()):
    """(exit status, the program's own stderr, what the ledger said)"""
    done = run([BUILD / "tests/programs/front_host", *options, "--preload", ":".join(map(str, FRONTS)), "--",
                BUILD / "tests/programs" / program, check, *more],
               env=clean_env({"CARVE_DRIVER_CUDA": str(NULL_DRIVER)}))
    *lines, books = done.stderr.splitlines()
    return done.returncode, lines, json.loads(books)
