"""GPUs that nobody has built: IDs, names, counts, sizes and legal places of profiles are drawn at random (SIMGPU_MIG_SEED). The
daemon goes by what NVML says, so all that it promises holds there, too."""
import random
import re

import pytest

from conftest import ROOT, rest_long, wait_until
from mig_hands import books_are_nvmls, by_hand, call, instances, look, with_role
from programs import python

MODELS = ["a30-24gb", "a100-40gb", "a100-80gb", "a100-pcie-80gb-mirrored", "h100-80gb", "h100-96gb", "h200-141gb", "b200-180gb",
          "rtx-pro-6000-96gb"]
FEW = [("a30-24gb", 3), ("a100-40gb", 100), ("a100-pcie-80gb-mirrored", 4), ("h100-80gb", 5), ("rtx-pro-6000-96gb", 6)]
MANY = [(model, seed) for model in MODELS for seed in range(100, 106)]
MIB = 1 << 20


def profiles_are_nvmls(host, kinds):
    """All that the daemon tells of a GPU's profiles NVML told it."""
    told = {p["profile"]: p for p in look(host, "gpu", "list")[0]["mig_profiles"]}
    if not told:
        return False
    assert {name: [p["memory_bytes"] // MIB, p["sms"], p["slices"], p["limit"], p["size"], p["starts"]] for name, p in told.items()} == {
        k["profile"]: [k["mib"], k["sms"], k["slices"], k["limit"], k["size"], k["starts"]] for k in kinds}
    return True


def nobody_could_make(host, kind):
    """Idle instances gone, NVML makes no instance of the kind anywhere: a refusal was right."""
    call(host, "POST", "/v1/mig/gc", {"older_than": 0})
    wait_until(lambda: not instances(host, "idle") and books_are_nvmls(host, set()))
    for start in kind["starts"]:
        done = host.run(python("mig_hand", 0, "make", kind["id"], start, kind["size"]))
        assert done.returncode != 0 and "make: 23" in done.stderr, (kind, start, instances(host))


def is_right(host, kinds, asked, session):
    """What was granted is legal, and as large as was asked for, or as spec'd a little less."""
    got, = [i for i in instances(host) if i["uuid"] == session["gpus"][0]["instance"]]
    kind = kinds[got["profile"]]
    assert got["start"] in kind["starts"] and got["size"] == kind["size"]
    if "mig_profile" in asked:
        assert got["profile"] == asked["mig_profile"]
    else:
        assert got["memory_bytes"] >= 0.93 * float(asked["vram"]) * (1 << 30)
        assert "+" not in got["profile"]


def wish(rng, kinds):
    if rng.random() < 0.6:
        return {"mig_profile": rng.choice(sorted(kinds)), "kept": True}
    most = max(k["mib"] for k in kinds.values()) / 1024
    return {"vram": f"{rng.uniform(1, most * 0.6):.2f}", "kept": True, "mig_share": rng.random() < 0.3}


def play(make_host, model, seed, steps):
    host = with_role(make_host, model + "+mig", env={"SIMGPU_MIG_SEED": str(seed)})
    kinds = {k["profile"]: k for k in by_hand(host, 0, "kinds")}
    wait_until(lambda: profiles_are_nvmls(host, kinds.values()))
    rng, held, checked = random.Random(seed), [], 0
    for _ in range(steps):
        if held and (len(held) > 6 or rng.random() < 0.4):
            assert call(host, "DELETE", f"/v1/sessions/{held.pop(rng.randrange(len(held)))}")[0] == 200
            continue
        asked = wish(rng, kinds)
        status, answer = call(host, "POST", "/v1/sessions", asked)
        assert status in (201, 409), answer
        if status == 201:
            held.append(answer["id"])
            is_right(host, kinds, asked, answer)
        elif "mig_profile" in asked and checked < 5:
            checked += 1
            nobody_could_make(host, kinds[asked["mig_profile"]])
    wait_until(lambda: books_are_nvmls(host, set()))
    assert len(instances(host, "busy")) <= len(held)


@pytest.mark.parametrize("model, seed", rest_long(FEW))
def test_on_gpus_that_nobody_has_built_all_holds(make_host, model, seed):
    play(make_host, model, seed, 60)


@pytest.mark.long
@pytest.mark.parametrize("model, seed", MANY)
def test_on_many_gpus_that_nobody_has_built_all_holds(make_host, model, seed):
    play(make_host, model, seed, 120)


def test_no_figure_of_a_real_gpu_is_in_the_programs():
    """Profile names and tables of placements: neither in the daemon nor in what decides for it. `carve mig simulate` alone has
    models of GPUs, for traces (src/cli/mig/mig_models.c)."""
    sources = [p for folder in ("daemon", "backend", "core", "front", "slice", "guard", "warden", "proto") for p in (ROOT / "src" / folder).rglob("*.[ch]")]
    assert len(sources) > 100
    found = []
    for path in sources:
        code = re.sub(r"/\*.*?\*/|//[^\n]*", "", path.read_text(), flags=re.S)
        found += [(path.name, name) for name in re.findall(r"\b\d+g\.\d+gb\b|\b\d+c\.\d+g\b", code)]
    assert not found
