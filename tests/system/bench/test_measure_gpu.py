"""scripts/measure-gpu, on a simulated host: a page whatever fails, and programs that find their libraries elsewhere."""
import os
import pathlib
import subprocess
import sys

import pytest

from conftest import BUILD, ON_GPU, ROOT, clean_env
from build_options import sanitized

sys.path.insert(0, str(ROOT))
from bench import measure as measure_gpu, measure_libraries  # noqa: E402: found by the line above
from benchmark import refused  # noqa: E402

pytestmark = [pytest.mark.skipif(ON_GPU or sanitized(), reason="stands in for a GPU by a simulated host"),
              pytest.mark.once("a benchmark")]
PROGRAM = ROOT / "scripts/measure-gpu"


def measure(*args, sim=("--gpus", "h100-80gb", "--driver", "580"), env=None):
    host = (BUILD / "carve", "sim", *sim, "--") if sim else ()
    return subprocess.run([str(a) for a in (*host, PROGRAM, *args)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, text=True, timeout=240, env=clean_env(env), check=False)


@pytest.mark.long
def test_a_page_of_what_could_be_measured(tmp_path):
    page = tmp_path / "page.md"
    done = measure("--build", BUILD, "--out", page, "--python", sys.executable, *(w for s in (
        "machine", "driver", "inside", "torch", "tests") for w in ("--only", s)))
    assert done.returncode == 0 and done.stdout == f"{page}\n", done.stderr
    text = page.read_text()
    assert "H100" in text.splitlines()[0] and "driver 580." in text and "on a simulated host" in text
    # As the simulated driver has it: in the GPU's figure, and in this process's; managed memory in the first alone.
    assert "| cuMemAlloc of 256 MiB | +256.0 | +256.0 |" in text
    assert "| cuMemAllocManaged of 64 MiB | +64.0 | +0.0 |" in text
    assert "takes a lock, which /proc/locks shows" in text and "its figure: +0 MiB by the import" in text
    assert "given up" not in text and "nvmlDeviceGetComputeRunningProcesses_v3" in text
    assert "carve's ledger 522.0 MiB, NVML's used memory +522.0 MiB" in text
    # A missing part is said, and stops nothing.
    assert "has no torch" in text or "finds no GPU" in text or "status" in text
    assert "## System tests\n\nNot measured: ./scripts/test runs them" in text


@pytest.mark.long
def test_trainings_side_by_side(tmp_path):
    """With a module that stands in for torch: the way of the measurement, no figure."""
    page = tmp_path / "page.md"
    fake = {"PYTHONPATH": str(pathlib.Path(__file__).with_name("fake_torch"))}
    done = measure("--build", BUILD, "--out", page, "--python", sys.executable, "--torch-seconds", "1", "--only", "together", env=fake)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "| fair, 0.5 and 0.5 | transformer, training |" in text and "| strict, 0.25 and 0.75 |" in text, text


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be several users")
def test_an_administrators_policies_hold(tmp_path):
    """The simulated host's sockets are opened to the users whom the measurement plays. It has no device files that could be closed."""
    page = tmp_path / "page.md"
    opened = 'chmod 755 "$SIMGPU_HOST" && find "$SIMGPU_HOST" -type s -exec chmod 666 {} + && exec "$0" "$@"'
    done = subprocess.run([str(a) for a in (BUILD / "carve", "sim", "--gpus", "h100-80gb", "--", "sh", "-c", opened, PROGRAM, "--build", BUILD,
                                            "--out", page, "--only", "policies")],
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=400,
                          env=clean_env(), check=False)
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "FAILED" not in text and text.count("\nok ") == 4, text


@pytest.mark.long
def test_a_step_that_takes_too_long_is_ended(tmp_path):
    page = tmp_path / "page.md"
    done = measure("--build", BUILD, "--out", page, "--only", "shares", "--only", "limits", "--seconds", "8")
    assert done.returncode == 0, done.stderr
    text = page.read_text()
    assert "## Shares of time\n\nNot measured: did not end in 8 s" in text or "Not all of it: did not end in 8 s" in text
    assert "did not run" not in text and "## Limits\n\nNot measured: no time was left" in text


@pytest.mark.parametrize("args, said", [
    (("--only", "nothing"), "invalid choice"), (("--seconds", "0"), "0: not a number of seconds from 1 to 86400"),
    (("--build", "/nonexistent"), "no carve is there"), (("--out", "/nonexistent/page.md"), "--out /nonexistent/page.md"),
    (("--pack", "/usr"), "is there already")])
def test_wrong_usage(capsys, args, said):
    assert said in refused(capsys, *args, by=measure_gpu)[-1]


def test_wrong_usage_of_the_program():
    done = measure("--build", BUILD, "--pack", "/usr", sim=None)
    assert done.returncode == 2 and "is there already" in done.stderr.splitlines()[-1]


@pytest.mark.long
def test_a_packed_build_is_whole(tmp_path):
    done = measure("--build", BUILD, "--pack", tmp_path / "packed", sim=None)
    assert done.returncode == 0, done.stderr
    assert any(name.name.startswith("libuv.so") for name in (tmp_path / "packed/libraries").iterdir())
    assert not any(name.name.startswith("libc.so") for name in (tmp_path / "packed/libraries").iterdir())
    carve = tmp_path / "packed/carve"
    said = subprocess.run([carve, "sim", "--gpus", "h100-80gb", "--", carve, "run", "--vram", "2", tmp_path / "packed/examples/hog"],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60, env=clean_env(), check=False)
    assert said.returncode == 0 and "2048 MiB" in said.stdout, said.stderr


def test_libraries_that_a_machine_lacks_are_lent(tmp_path, monkeypatch):
    """Also those that only a lent one needs; none that it has."""
    (tmp_path / "libraries").mkdir()
    for name, needs in (("inner", ""), ("outer", "inner")):
        (tmp_path / f"{name}.c").write_text(f"int {name}(void) {{ return {needs + '() + ' if needs else ''}21; }}\n")
        link = [f"-L{tmp_path}/libraries", f"-l{needs}"] if needs else []
        subprocess.run(["cc", "-w", "-shared", "-fPIC", "-o", tmp_path / f"libraries/lib{name}.so", tmp_path / f"{name}.c", *link],
                       check=True)
    (tmp_path / "carve.c").write_text("int outer(void); int main(void) { return outer(); }\n")
    subprocess.run(["cc", "-o", tmp_path / "carve", tmp_path / "carve.c", f"-L{tmp_path}/libraries", "-louter",
                    "-Wl,--allow-shlib-undefined"], check=True)
    (tmp_path / "libraries/libc.so.6").write_text("not for use: every machine has one")
    monkeypatch.setattr(measure_libraries, "LINKED", ("carve",))
    monkeypatch.setenv("LD_LIBRARY_PATH", "")  # it is as before afterwards
    assert subprocess.run([tmp_path / "carve"], stderr=subprocess.DEVNULL, check=False).returncode == 127
    measure_libraries.use(tmp_path)
    assert sorted(os.listdir(os.environ["LD_LIBRARY_PATH"].rstrip(":"))) == ["libinner.so", "libouter.so"]
    assert subprocess.run([tmp_path / "carve"], check=False).returncode == 42
