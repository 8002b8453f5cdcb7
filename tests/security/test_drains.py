"""Drained GPUs: only administrators drain and resume, and whoever waits for a drained GPU keeps nobody from the others."""
import json
import subprocess

import pytest

from conftest import wait_until

from .lab import ALICE, BOB, CARVE, MALLORY, ROOT


def drain(lab, gpu="0", reason="fan"):
    done = lab.carve(ROOT, "node", "drain", "--gpu-ids", gpu, "--reason", reason)
    assert done.returncode == 0, done.stderr


@pytest.mark.attack("4", "a user drains GPUs, and resumes those that are drained")
def test_a_user_neither_drains_nor_resumes(lab):
    for words in (["drain", "--reason", "mine"], ["drain", "--gpu-ids", "0", "--reason", "mine", "--wait"], ["resume"]):
        done = lab.carve(MALLORY, "node", *words)
        assert done.returncode == 5 and "only root and members of group carve" in done.stderr, done
    drain(lab)
    assert lab.carve(MALLORY, "node", "resume", "--gpu-ids", "0").returncode == 5
    assert lab.carve(MALLORY, "run", "--ephemeral", "--vram", "1", "true").returncode == 125
    assert lab.carve_json(ALICE, "gpu", "list")[0]["drain"]["reason"] == "fan"


@pytest.mark.attack("9", "requests that wait for a drained GPU close the other GPUs to everybody")
def test_requests_for_a_drained_gpu_keep_nobody_from_the_others(make_lab):
    lab = make_lab("h100-80gb,t4")
    drain(lab)
    words = [CARVE, "run", "--ephemeral", "--vram", "40", "--wait-for", "10m", "--priority", "0", "true"]
    waits = [lab.popen(MALLORY, *words, stderr=subprocess.DEVNULL) for _ in range(5)]
    wait_until(lambda: len([s for s in lab.carve_json(ALICE, "session", "list") if s["state"] == "waiting"]) == len(waits))
    for uid in (ALICE, BOB) * 10:
        done = lab.carve(uid, "run", "--ephemeral", "--vram", "1", "true")
        assert done.returncode == 0, done.stderr
    assert lab.carve(ROOT, "node", "resume").returncode == 0
    assert [w.wait(60) for w in waits] == [0] * len(waits)


@pytest.mark.attack("4", "the reason of a drain moves the terminal's cursor, or forges lines of the log")
def test_a_reason_forges_nothing(lab):
    for reason in ("a\x1b[2Jb", "a\nb", "a\rb", "a\x9bb", "a\u202eb", "a\u2028b", "a\ufeffb"):
        assert lab.carve(ROOT, "node", "drain", "--reason", reason).returncode == 2, ascii(reason)
    drain(lab, reason='x" kind=forged y')
    assert json.loads(lab.carve(ROOT, "audit", "--json").stdout)[-1]["text"] == 'x" kind=forged y'
    [line] = [line for line in lab.log().splitlines() if "gpu.drained" in line]
    assert r'text="x\" kind=forged y"' in line
