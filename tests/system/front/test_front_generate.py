"""The generator of the front refuses what nobody has thought about."""
import pathlib
import subprocess
import sys

import pytest

pytestmark = pytest.mark.once("a script of the build")

FRONT = pathlib.Path(__file__).resolve().parents[3] / "src" / "front"
CLASSES = (FRONT / "cuda/symbol-classes.tsv").read_text()
DECISIONS = (FRONT / "cuda/decisions.tsv").read_text()
HOOKS = (FRONT / "cuda/hooks.h").read_text()


def generate(tmp_path, classes=CLASSES, decisions=DECISIONS, hooks=HOOKS):
    for name, text in ("classes", classes), ("decisions", decisions), ("hooks", hooks):
        (tmp_path / name).write_text(text)
    return subprocess.run(
        [sys.executable, FRONT / "generate.py", "cuda", "--classes", tmp_path / "classes", "--decisions",
         tmp_path / "decisions", "--hooks", tmp_path / "hooks", "--assembly", tmp_path / "out.S", "--map",
         tmp_path / "out.map"], capture_output=True, text=True)


def test_all_730_functions_are_exported_and_no_data(tmp_path):
    assert generate(tmp_path).returncode == 0
    exported = (tmp_path / "out.map").read_text()
    assert exported.count("\tcu") == 730
    assert "cudbgGetAPI;" in exported and "cudbgIpcFlag" not in exported


@pytest.mark.parametrize("change, said", [
    ({"classes": CLASSES + "cuNewThing\tunclassified\n"}, "cuNewThing is of class 'unclassified'"),
    ({"classes": CLASSES + "cuNewThing\tmemroy.charge\n"}, "cuNewThing is of class 'memroy.charge'"),
    ({"classes": CLASSES + "cuMemAllocNew\tmemory.charge\n"}, "cuMemAllocNew (memory.charge) is neither"),
    ({"decisions": DECISIONS + "cuGone\tother\tno reason\n"}, "in no driver: cuGone"),
    ({"decisions": DECISIONS + "cuMemAlloc_v2\tforward\t\n"}, "'cuMemAlloc_v2' needs"),
    ({"decisions": DECISIONS + "cuMemAlloc_v2\tforward\twhy not\n"}, "cuMemAlloc_v2 is hooked"),
    ({"classes": CLASSES + "cuMulticastBindMem_v3\tmemory.keep (the driver may hold it on)\n"}, "cuMulticastBindMem_v3 (memory.keep (the"),
    ({"classes": CLASSES + "cuLaunchHostFunc_v3\twork.host-callback\n"}, "cuLaunchHostFunc_v3 (work.host-callback) is neither"),
    ({"classes": CLASSES + "cuStreamBeginCaptureToNew\tcapture.edge\n"}, "cuStreamBeginCaptureToNew (capture.edge) is neither"),
    ({"hooks": HOOKS + "\tX(cuMemAllocNew)\n"}, "in no driver: cuMemAllocNew"),
    ({"hooks": HOOKS + "\tX(cuInit)\n"}, "cuInit is hooked twice"),
    ({"hooks": HOOKS.replace("X(cuMemAlloc_v2)", "")}, "cuMemAlloc_v2 (memory.charge) is neither"),
])
def test_refuses(tmp_path, change, said):
    done = generate(tmp_path, **change)
    assert done.returncode == 1 and said in done.stderr


NVML_CLASSES = (FRONT / "nvml/symbol-classes.tsv").read_text()
NVML_DECISIONS = (FRONT / "nvml/decisions.tsv").read_text()


def generate_nvml(tmp_path, **change):
    files = {"names": "", "classes": NVML_CLASSES, "decisions": NVML_DECISIONS, **change}
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return subprocess.run(
        [sys.executable, FRONT / "generate.py", "nvml", "--names", FRONT / "nvml/exported-by-550.txt", "--names",
         FRONT / "nvml/newer.txt", "--names", tmp_path / "names", "--classes", tmp_path / "classes", "--decisions",
         tmp_path / "decisions", "--hooks", FRONT / "nvml/hooks.h", "--assembly", tmp_path / "out.S", "--map",
         tmp_path / "out.map"], capture_output=True, text=True)


@pytest.mark.parametrize("change, said", [
    ({"names": "nvmlDeviceGetNew\n"}, "nvmlDeviceGetNew is in no row"),
    ({"classes": NVML_CLASSES + "nvmlGone\tplain\n"}, "nvmlGone is in no driver"),
    ({"names": "nvmlNew\n", "classes": NVML_CLASSES + "nvmlNew\tdevices\n"}, "nvmlNew (devices) is neither hooked"),
    ({"names": "nvmlNew\n", "classes": NVML_CLASSES + "nvmlNew\tprocesses\n"}, "nvmlNew (processes) is neither hooked"),
    ({"names": "nvmlNew\n", "classes": NVML_CLASSES + "nvmlNew\tnothing\n"}, "nvmlNew is of class 'nothing'"),
    ({"decisions": NVML_DECISIONS + "nvmlDeviceGetCount_v2\tforward\twhy not\n"}, "nvmlDeviceGetCount_v2 is hooked"),
    ({}, ""),
])
def test_nvml_functions_that_nobody_has_thought_about_are_refused(tmp_path, change, said):
    done = generate_nvml(tmp_path, **change)
    assert said in done.stderr and done.returncode == (1 if said else 0)


@pytest.mark.parametrize("decision, kind", [("", "REFUSED"), ("nvmlDeviceSetNew\tforward\tchanges the caller alone\n", "TRAMPOLINE")])
def test_a_function_that_changes_a_gpu_is_refused_unless_decided_otherwise(tmp_path, decision, kind):
    done = generate_nvml(tmp_path, names="nvmlDeviceSetNew\n", classes=NVML_CLASSES + "nvmlDeviceSetNew\tchange\n",
                         decisions=NVML_DECISIONS + decision)
    assert done.returncode == 0, done.stderr
    assert f"{kind}(nvmlDeviceSetNew, " in (tmp_path / "out.S").read_text()
