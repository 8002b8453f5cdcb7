"""Where carve may be: in no directory whose name the dynamic linker would split, or expand."""
import shutil

import pytest

from command import fails
from conftest import BUILD, clean_env, run

PARTS = ["carve", "carved", "src/front/libcuda.so.1", "src/front/libnvidia-ml.so.1", "sim/simhost", "sim/libcuda.so.1",
         "sim/libnvidia-ml.so.1"]


@pytest.mark.parametrize("name, words", [("a;b", "a ';'"), ("a b", "a space"), ("a:b", "a ':'"), ("$ORIGIN", "a '$'"),
                                         ("a\nb", "a line's end")])
def test_a_directory_that_the_dynamic_linker_cannot_take(host, tmp_path, name, words):
    """LD_LIBRARY_PATH splits at ';', and LD_PRELOAD does not: a program with an LD_PRELOAD of its own saw the whole GPU."""
    place = tmp_path / name
    for part in PARTS:
        (place / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUILD / part, place / part)
    carve = place / "carve"
    fails(host.run([carve, "run", "--vram", "2", "true"]), 125, f"the path has {words} in it", "move carve to a directory")
    fails(run([carve, "sim", "--", "true"], env=clean_env()), 1, f"the path has {words} in it", "move carve to a directory")
    # Also where there is no GPU, and no daemon that could say so.
    env = clean_env({"CARVE_RUNTIME_DIR": str(tmp_path / "run")})
    fails(run([carve, "run", "--vram", "2", "true"], env=env), 125, f"the path has {words} in it", "move carve to a directory")
    for options in ([], ["--json"]):
        done = run([carve, "session", "request", "--vram", "2", *options], env=env)
        assert done.returncode == 1 and f"the path has {words} in it" in done.stderr
    assert not (tmp_path / "run").exists()
    done = host.run([carve, "check"])
    assert done.returncode == 1 and f"the path has {words} in it" in done.stdout


def test_any_other_directory_will_do(host, tmp_path):
    place = tmp_path / "größer, (2) & #1 %s ~ 'x'".replace(" ", "_")
    for part in PARTS:
        (place / part).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(BUILD / part, place / part)
    done = run([place / "carve", "sim", "--gpus", "t4-16gb", "--", place / "carve", "run", "--isolation", "preload", "--vram", "2",
                BUILD / "tests/programs/reach", "path", "libcuda.so.1"], env=clean_env())
    assert done.stdout.split() == [str(2 << 30)], done.stderr
