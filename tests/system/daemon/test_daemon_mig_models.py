"""A walk over each GPU model that MIG is promised for, one host each: whatever a user can ask for, against the profiles that
NVML lists there (programs/mig_hand.py asks it, and knows nothing of carve)."""
import json
import re

import pytest

from conftest import rest_long
from mig_hands import CARVE, by_hand, call, carve, instances, look, with_role
from programs import python

# The gate takes one with few instances, one that lays them out from the other end, and a common one.
MODELS = ["a30-24gb", "a100-pcie-80gb-mirrored", "h100-80gb", "a100-40gb", "a100-80gb", "h100-pcie-80gb-mirrored", "h100-96gb",
          "h200-141gb", "b200-180gb", "rtx-pro-6000-96gb"]


@pytest.fixture(params=rest_long(MODELS, 3))
def gpu(request, make_host):
    """A host with one such GPU in the role, and its profiles: those that are given by size first, the smallest before."""
    host = with_role(make_host, request.param + "+mig")
    kinds = by_hand(host, 0, "kinds")
    for kind in kinds:
        kind["bytes"] = kind["mib"] << 20
        kind["special"] = bool(re.search("[+-]", kind["profile"]))
    return host, sorted(kinds, key=lambda k: (k["special"], k["bytes"], k["slices"], k["size"]))


def asked(host, status=201, **body):
    """The answer to a request for a session beside the user's others."""
    got, answer = call(host, "POST", "/v1/sessions", {"kept": True, **body})
    assert got == status, (body, answer)
    return answer


def given(host, **body):
    """The session; it ends at once, and its instance stays idle."""
    session = asked(host, **body)
    assert call(host, "DELETE", f"/v1/sessions/{session['id']}")[0] == 200
    return session


def test_each_profile_is_given_by_its_name(gpu):
    host, kinds = gpu
    for kind in kinds:
        session = given(host, mig_profile=kind["profile"])
        assert session["mig_profile"] == kind["profile"]
        assert abs(session["vram_bytes"] - kind["bytes"]) <= kind["bytes"] // 100
        [made] = [i for i in instances(host) if i["uuid"] == session["gpus"][0]["instance"]]
        assert made["profile"] == kind["profile"] and made["start"] in kind["starts"] and made["size"] == kind["size"]
        assert made["memory_bytes"] == session["vram_bytes"]
    refused = carve(host, "run", "--mig-profile", "9g.99gb", "--", "true", status=125).stderr
    assert refused.count("\n") == 1 and set(re.findall(r"\d+g\.[\w+.-]+", refused.split("there are")[1])) == {k["profile"] for k in kinds}
    carve(host, "mig", "gc")
    assert by_hand(host, 0, "list") == [] == instances(host)


def test_each_size_gets_the_smallest_profile_that_holds_it(gpu):
    host, kinds = gpu
    ordinary = [k for k in kinds if not k["special"]]
    sizes = sorted({k["bytes"] for k in ordinary})
    for size, larger in zip(sizes, sizes[1:] + [None]):
        first = next(k for k in ordinary if k["bytes"] == size)
        assert given(host, vram=f"{size}B")["mig_profile"] == first["profile"]
        assert given(host, vram=f"{size}B", vram_strict=True)["mig_profile"] == first["profile"]
        # One byte more: the next larger one, which says which nearly holds it; or, of the largest, the 93% rule.
        if larger:
            above = next(k for k in ordinary if k["bytes"] == larger)
            session = given(host, vram=f"{size + 1}B")
            assert session["mig_profile"] == above["profile"] and session["mig_near"]["memory_bytes"] == size
            assert not session["tolerance_applied"]
        else:
            session = given(host, vram=f"{size + 1}B")
            assert session["mig_profile"] == first["profile"] and session["tolerance_applied"]
            assert "is that large" in asked(host, status=409, vram=f"{size + 1}B", vram_strict=True)["error"]["message"]
            assert "is that large" in asked(host, status=409, vram=f"{size * 100 // 93 + (1 << 20)}B")["error"]["message"]


def test_each_fraction_counts_memory_units(gpu):
    host, kinds = gpu
    ordinary = [k for k in kinds if not k["special"]]
    units = max(k["size"] for k in ordinary)
    for parts in range(1, units + 1):
        session = given(host, gpu=str(parts / units))
        assert session["mig_profile"] == next(k for k in ordinary if k["size"] >= parts)["profile"], parts


def test_a_share_of_the_compute_is_one_of_the_multiprocessors(gpu):
    host, kinds = gpu
    ordinary = [k for k in kinds if not k["special"]]
    sms = max(k["sms"] for k in ordinary)
    for percent in (1, 10, 25, 40, 50, 57, 80, 100):
        session = given(host, vram="1", gpu_compute=f"{percent}%")
        first = next(k for k in ordinary if k["sms"] * 100 >= sms * percent)
        assert session["mig_profile"] == first["profile"], percent
    assert carve(host, "run", "--vram", "1", "--gpu-compute", "101%", "--", "true", status=125).stderr.count("\n") == 1


def test_several_instances_are_as_many_as_nvml_lets_be(gpu):
    """All at once, or none."""
    host, kinds = gpu
    smallest = kinds[0]
    for count in (2, smallest["limit"]):
        session = given(host, mig_profile=smallest["profile"], gpus=count)
        assert len({g["instance"] for g in session["gpus"]}) == count
    carve(host, "mig", "gc")
    asked(host, status=409, mig_profile=smallest["profile"], gpus=smallest["limit"] + 1)
    assert instances(host) == []


def test_a_session_moves_to_a_larger_and_a_smaller_instance(gpu):
    host, kinds = gpu
    small, large = kinds[0], max((k for k in kinds if not k["special"]), key=lambda k: k["bytes"])
    carve(host, "session", "request", "--vram", "1")
    id = look(host, "session", "show")["id"]
    for kind in (large, small):
        carve(host, "session", "resize", f"{kind['bytes']}B")
        shown = look(host, "session", "show")
        assert (shown["id"], shown["mig_profile"]) == (id, kind["profile"])
        told = json.loads(carve(host, "run", "--", *python("mem_info")).stdout)
        assert abs(told["total"] - kind["bytes"]) <= kind["bytes"] // 50
    carve(host, "session", "release")
    assert [i for i in instances(host) if i["state"] != "idle"] == []


def test_a_command_within_a_slice_has_the_same_instance_and_no_other(gpu):
    host, kinds = gpu
    within = [CARVE, "run", "--", *python("mem_info")]
    outer = ["run", "--mig-profile", kinds[0]["profile"], "--"]
    told = json.loads(carve(host, *outer, *within).stdout)
    assert abs(told["total"] - kinds[0]["bytes"]) <= kinds[0]["bytes"] // 50
    within[2:2] = ["--mig-profile", kinds[0]["profile"]]
    assert "a slice cannot be cut again" in carve(host, *outer, *within, status=125).stderr
    assert len(instances(host)) == 1


def test_small_sessions_share_the_smallest_instances(gpu):
    host, kinds = gpu
    fit = kinds[0]["bytes"] // (2 << 30)
    sessions = [asked(host, vram="2", mig_share=True) for _ in range(fit)]
    assert {s["mig_profile"] for s in sessions} == {kinds[0]["profile"]} and {s["vram_bytes"] for s in sessions} == {2 << 30}
    assert len({s["gpus"][0]["instance"] for s in sessions}) <= 2
    # One that does not share has its own.
    alone = asked(host, vram="2")
    assert alone["gpus"][0]["instance"] not in {s["gpus"][0]["instance"] for s in sessions}
    carve(host, "session", "release", "--all")
    assert {i["state"] for i in instances(host)} == {"idle"}
