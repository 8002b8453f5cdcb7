"""MIG instances when something goes wrong: the daemon is killed between every two steps, the driver says no, others are at
work, GPUs are reset. Afterwards the books are what NVML lists."""
import contextlib
import os
import signal

import pytest

from conftest import rest_long, wait_until
from mig_hands import CARVE, by_hand, carve, instances, look, with_role

MAKING = ["mig.half_made", "mig.granted", "mig.intent", "mig.made", "mig.learned"]
REMOVING = ["mig.taken_apart", "mig.destroyed"]


def books_are_nvmls(host):
    """Nothing is under way, and what carve lists is what NVML lists, and is whole."""
    listed = instances(host)
    real = by_hand(host, 0, "list")
    return not [i for i in listed if i["state"] in ("creating", "removing", "debt")] and \
        sorted([i["start"], i["size"], i["uuid"]] for i in listed) == \
        sorted([i["start"], i["size"], i["uuids"][0]] for i in real if len(i["uuids"]) == 1) and \
        all(len(i["uuids"]) == 1 for i in real)


@contextlib.contextmanager
def stopped(pid):
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@pytest.fixture
def armed(make_host, tmp_path):
    """armed(NAME) -> a host with the role whose daemon is killed when it comes to that point, and the token of that."""
    def arm(name, *before):
        host = make_host("h100-80gb+mig")
        token = tmp_path / "token"
        host.env["CARVE_KILL_POINT"] = f"{name}:{token}"
        carve(host, "node", "set-role", "--dynamic-mig-enabled")
        for words in before:
            carve(host, *words)
        token.touch()
        return host, token
    return arm


def is_right(host, token):
    assert not token.exists(), "nobody came to that point"
    wait_until(lambda: books_are_nvmls(host))
    sessions = look(host, "session", "list")
    assert sorted(g["instance"] for s in sessions for g in s["gpus"]) == sorted(i["uuid"] for i in instances(host, "busy"))
    for session in sessions:
        carve(host, "session", "release", session["id"])
    carve(host, "run", "--ephemeral", "--mig-profile", "7g.80gb", "--", "true")
    carve(host, "mig", "gc")
    wait_until(lambda: not by_hand(host, 0, "list"))


@pytest.mark.parametrize("point", rest_long(MAKING, 3))
def test_a_daemon_killed_while_it_makes_one_puts_it_right(armed, point):
    host, token = armed(point)
    host.carve("session", "request", "--mig-profile", "2g.20gb")
    is_right(host, token)


@pytest.mark.parametrize("point", rest_long(MAKING, 2))
def test_a_daemon_killed_while_it_makes_several_puts_it_right(armed, point):
    host, token = armed(point)
    host.carve("session", "request", "--vram", "5", "--gpus", "3")
    is_right(host, token)


@pytest.mark.parametrize("point", rest_long(["mig.probed", "mig.made", "mig.granted"]))
def test_a_daemon_killed_while_it_makes_one_to_share_puts_it_right(armed, point):
    host, token = armed(point)
    host.carve("session", "request", "--vram", "4", "--mig-share")
    is_right(host, token)


@pytest.mark.parametrize("point", REMOVING)
def test_a_daemon_killed_while_it_removes_one_puts_it_right(armed, point):
    host, token = armed(point, ["run", "--vram", "5", "--", "true"])
    host.carve("run", "--ephemeral", "--gpu", "1", "--", "true")
    is_right(host, token)


@pytest.mark.long
@pytest.mark.parametrize("point", ["mig.intent", *REMOVING, "mig.half_made", "mig.made", "mig.learned"])
def test_a_daemon_killed_while_a_session_moves_puts_it_right(armed, point):
    host, token = armed(point, ["session", "request", "--vram", "5"])
    host.carve("session", "resize", "70")
    is_right(host, token)


def test_a_daemon_killed_at_the_end_of_a_session_has_its_instance_back(armed):
    host, token = armed("mig.ended", ["session", "request", "--vram", "5"])
    host.carve("session", "release")
    is_right(host, token)


@pytest.mark.long
def test_an_instance_in_use_is_told_with_its_holder(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "5", "--", "true")
    [idle] = instances(host)
    carve(host, "sim", "fault", "mig-hold", "--gpu", "0", "--instance", str(by_hand(host, 0, "list")[0]["id"]))
    refused = carve(host, "run", "--gpu", "1", "--", "true", status=125).stderr
    assert f"the driver says that the idle instance at {idle['start']}:1 is in use, and lists no process" in refused
    assert "restart monitoring tools" in refused and refused.count("\n") == 1
    carve(host, "sim", "fault", "mig-hold", "--clear")
    carve(host, "run", "--gpu", "1", "--wait-for", "30", "--", "true")


def test_an_instance_made_by_half_is_removed_later(make_host):
    host = with_role(make_host)
    carve(host, "sim", "fault", "mig-create", "--call", "nvmlGpuInstanceCreateComputeInstance", "--count", "1")
    carve(host, "sim", "fault", "mig-destroy")
    refused = carve(host, "run", "--vram", "5", "--", "true", status=125).stderr
    assert "made by half" in refused
    wait_until(lambda: [i["state"] for i in instances(host)] == ["debt"])  # "removing" during each new try
    carve(host, "run", "--vram", "5", "--wait-for", "60", "--", "true")  # beside it
    carve(host, "sim", "fault", "mig-destroy", "--clear")
    wait_until(lambda: not instances(host, "debt"))
    assert books_are_nvmls(host)


def test_one_of_several_that_cannot_be_made_takes_the_others_with_it(make_host):
    host = with_role(make_host)
    carve(host, "sim", "fault", "mig-create", "--call", "nvmlDeviceCreateGpuInstance", "--skip", "2", "--error", "999")
    carve(host, "session", "request", "--vram", "5", "--gpus", "3", status=3)
    carve(host, "sim", "fault", "all", "--clear")
    assert not by_hand(host, 0, "list") and books_are_nvmls(host)


def test_a_place_that_the_driver_refuses_is_not_tried_again(make_host):
    host = with_role(make_host)
    carve(host, "sim", "fault", "mig-create", "--call", "nvmlDeviceCreateGpuInstance", "--count", "1")
    carve(host, "session", "request", "--vram", "5")
    assert books_are_nvmls(host)


def test_a_driver_that_refuses_every_place_is_told_as_that(make_host):
    host = with_role(make_host)
    carve(host, "sim", "fault", "mig-create")
    refused = carve(host, "session", "request", "--mig-profile", "7g.80gb", status=3).stderr
    assert "no room for 1 MIG instance 7g.80gb" in refused
    assert "GPU 0: the driver refuses an instance, though there is a place for it" in refused


def test_a_driver_that_loses_the_gpu_is_told_in_words(make_host):
    host = with_role(make_host)
    carve(host, "sim", "fault", "mig-create", "--count", "1", "--error", "15")
    refused = carve(host, "session", "request", "--vram", "5", status=3).stderr
    assert "GPU 0: the driver has lost the GPU" in refused


@pytest.mark.parametrize("after", rest_long([[], ["--after"]]))
def test_a_driver_that_times_out_is_told_and_tried_again(make_host, after):
    """NVML's calls give up after ten seconds without the driver's lock; some have done their work all the same."""
    host = with_role(make_host)
    carve(host, "run", "--vram", "5", "--", "true")
    timeout = ["--error", "10", "--count", "1", *after]
    carve(host, "sim", "fault", "mig-destroy", *timeout)
    carve(host, "run", "--gpu", "1", "--wait-for", "60", "--", "true")
    carve(host, "mig", "gc")
    wait_until(lambda: not by_hand(host, 0, "list"))
    carve(host, "sim", "fault", "mig-create", *timeout)
    refused = carve(host, "run", "--vram", "5", "--", "true", status=125).stderr
    assert "GPU 0: the driver did not come to making a MIG instance in time" in refused and refused.count("\n") == 1
    carve(host, "run", "--gpu", "1", "--wait-for", "60", "--", "true")
    wait_until(lambda: books_are_nvmls(host))
    assert [i["profile"] for i in instances(host)] == ["7g.80gb"]


# nvmlReturn_t: the driver's reasons not to make an instance.
IN_USE, UNKNOWN, RESET_REQUIRED, GPU_IS_LOST, NOT_SUPPORTED, TIMEOUT, INVALID_ARGUMENT = 19, 999, 16, 15, 3, 10, 2


@pytest.mark.parametrize("error, says", rest_long([
    (IN_USE, "while something uses the GPU itself"), (UNKNOWN, "the driver reports an error of its own"),
    (RESET_REQUIRED, "nvidia-smi --gpu-reset"), (GPU_IS_LOST, "the driver has lost the GPU"),
    (NOT_SUPPORTED, "does not let its instances be managed"), (TIMEOUT, "did not come to making"),
    (INVALID_ARGUMENT, "the driver reports an error of its own")], 3))
def test_a_gpu_that_refuses_is_left_out_for_a_while_and_another_one_is_used(make_host, error, says):
    host = with_role(make_host, "h100-80gb:2+mig")
    carve(host, "run", "--ephemeral", "--gpu-ids", "0", "--mig-profile", "2g.20gb", "--", "true")
    carve(host, "sim", "fault", "mig-create", "--gpu", "0", "--error", str(error))
    carve(host, "session", "request", "--vram", "5")
    assert [(i["gpu"], i["state"]) for i in instances(host) if i["profile"] == "1g.10gb"] == [(1, "busy")]
    carve(host, "session", "release")
    first, second = look(host, "gpu", "list")
    assert says in first["mig_refusal"] and second["mig_refusal"] is None
    assert f"GPU 0 makes no MIG instances now: {first['mig_refusal']}" in host.carve("gpu", "list").stdout
    assert f"GPU 0 makes no MIG instances now: {first['mig_refusal']}" in host.carve("check").stdout
    # An instance of GPU 1 may still be on its way out.
    explained = wait_until(lambda: (answer := look(host, "explain", "--vram", "5")) and says in answer["gpus"][0]["message"] and answer)
    assert [on["index"] for on in explained["on"]] == [1]
    # What is there already can be given, and what there is not can be waited for.
    carve(host, "run", "--ephemeral", "--gpu-ids", "0", "--mig-profile", "2g.20gb", "--", "true")
    refused = carve(host, "run", "--ephemeral", "--gpu-ids", "0", "--gpu", "1", "--", "true", status=125).stderr
    assert refused.count("\n") == 1 and says in refused, refused
    with host.popen([CARVE, "run", "--ephemeral", "--gpu-ids", "0", "--gpu", "1", "--wait-for", "300", "--", "true"]) as waits:
        wait_until(lambda: [s for s in look(host, "session", "list") if s["state"] == "waiting"])
        carve(host, "sim", "fault", "mig-create", "--clear")
        assert waits.wait(300) == 0
    assert look(host, "gpu", "list")[0]["mig_refusal"] is None


def test_a_gpu_that_refuses_a_place_is_left_out_for_a_while_where_another_gpu_has_one(make_host):
    """The driver says that it has no room, and no list shows why."""
    host = with_role(make_host, "h100-80gb:2+mig")
    says = "the driver refuses an instance, though there is a place for it"
    # The next one is put beside this one.
    carve(host, "run", "--ephemeral", "--gpu-ids", "0", "--mig-profile", "2g.20gb", "--", "true")
    carve(host, "sim", "fault", "mig-create", "--gpu", "0")
    session = look(host, "session", "request", "--mig-profile", "1g.10gb")
    assert [g["index"] for g in session["gpus"]] == [1]
    carve(host, "session", "release", session["id"])
    assert [gpu["mig_refusal"] for gpu in look(host, "gpu", "list")] == [says, None]
    for words in (["gpu", "list"], ["check"]):
        assert f"GPU 0 makes no MIG instances now: {says}" in host.carve(*words).stdout
    explained = look(host, "explain", "--mig-profile", "1g.10gb")
    assert explained["gpus"][0]["message"] == says and [on["index"] for on in explained["on"]] == [1]
    with host.popen([CARVE, "run", "--ephemeral", "--gpu-ids", "0", "--mig-profile", "1g.10gb", "--wait-for", "300", "--", "true"]) as waits:
        wait_until(lambda: [s for s in look(host, "session", "list") if s["state"] == "waiting"])
        carve(host, "sim", "fault", "mig-create", "--clear")
        assert waits.wait(300) == 0
    assert look(host, "gpu", "list")[0]["mig_refusal"] is None


def test_a_gpu_whose_driver_does_not_answer_is_waited_for(make_host):
    host = with_role(make_host)
    carve(host, "sim", "fault", "nvml", "--call", "nvmlDeviceGetGpuInstances", "--error", str(RESET_REQUIRED))
    wait_until(lambda: look(host, "gpu", "list")[0]["mig_problem"])
    refused = carve(host, "run", "--vram", "5", "--", "true", status=125).stderr
    assert "GPU 0: the driver does not say what instances it has" in refused and "instances here are" not in refused
    with host.popen([CARVE, "run", "--vram", "5", "--wait-for", "300", "--", "true"]) as waits:
        wait_until(lambda: [s for s in look(host, "session", "list") if s["state"] == "waiting"])
        carve(host, "sim", "fault", "nvml", "--clear")
        assert waits.wait(300) == 0


def test_a_job_goes_to_another_gpu_where_the_driver_refuses(make_host):
    host = with_role(make_host, "h100-80gb:2+mig")
    carve(host, "sim", "fault", "mig-create", "--gpu", "0", "--error", str(UNKNOWN))
    carve(host, "agent", "--detached", "--gpus", "all", "--queue", "eighth=0.125")
    carve(host, "enqueue", "--queue", "eighth", "--wait", "true")
    assert [i["gpu"] for i in instances(host)] == [1]


def test_an_instance_that_cannot_be_removed_does_not_hold_up_other_gpus(make_host):
    """Its place is needed on GPU 0; GPU 1 becomes free while the request waits."""
    host = with_role(make_host, "h100-80gb:2+mig")
    carve(host, "run", "--ephemeral", "--gpu-ids", "0", "--vram", "5", "--", "true")
    held = look(host, "session", "request", "--gpu-ids", "1", "--gpu", "1")["id"]
    carve(host, "sim", "fault", "mig-destroy", "--gpu", "0", "--error", str(RESET_REQUIRED))
    with host.popen([CARVE, "run", "--ephemeral", "--gpu", "1", "--wait-for", "300", "--", "true"]) as waits:
        wait_until(lambda: look(host, "gpu", "list")[0]["mig_refusal"])
        carve(host, "session", "release", held)
        assert waits.wait(300) == 0


def test_a_virtual_machines_gpu_is_shown_as_one_without_mig(make_host):
    host = make_host("h100-80gb")
    carve(host, "sim", "fault", "vgpu")
    assert "is not capable of MIG" in carve(host, "node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "0", status=1).stderr
    assert carve(host, "mig", "list", "--json").stdout.strip() == "[]"


@pytest.mark.parametrize("count", rest_long([3, 1]))
def test_one_made_by_hand_just_before_is_not_taken_for_carves(make_host, count):
    """At the place that carve decides on, and of the same profile: carve looks once a second, and mostly has not seen it yet."""
    host = with_role(make_host)
    carve(host, "run", "--vram", "5", "--gpus", str(count), "--", "true")
    places = sorted(i["start"] for i in by_hand(host, 0, "list"))
    carve(host, "mig", "gc")
    wait_until(lambda: not by_hand(host, 0, "list"))
    for _ in range(3):
        by_hand(host, 0, "make", 19, places[0], 1)
        [foreign] = by_hand(host, 0, "list")
        carve(host, "session", "request", "--vram", "5", "--gpus", str(count))
        carve(host, "mig", "gc")
        wait_until(lambda: books_are_nvmls(host))
        assert [i["start"] for i in instances(host, "foreign")] == [places[0]]
        assert foreign["uuids"][0] not in {i["uuid"] for i in instances(host, "busy")}
        carve(host, "session", "release")
        carve(host, "mig", "gc")
        wait_until(lambda: len(by_hand(host, 0, "list")) == 1)
        by_hand(host, 0, "destroy", foreign["id"])
        wait_until(lambda: not instances(host))


@pytest.mark.parametrize("halves", [[["no-compute"], []], [[], ["no-compute"]]], ids=["made", "taken apart"])
def test_one_made_by_hand_is_shown_as_it_is_now(make_host, halves):
    """It was seen while somebody was making it, or has been taken apart since."""
    host = with_role(make_host)
    first, second = halves

    def is_shown():
        [real], listed = by_hand(host, 0, "list"), instances(host, "foreign")
        return [i["uuid"] for i in listed] == (real["uuids"] or [""])

    by_hand(host, 0, "make", 19, 0, 1, *first)
    wait_until(is_shown)
    with stopped(host.daemon_pid()):  # between two of its looks
        by_hand(host, 0, "destroy", by_hand(host, 0, "list")[0]["id"])
        by_hand(host, 0, "make", 19, 0, 1, *second)
    wait_until(is_shown)


@pytest.mark.parametrize("model", ["h100-80gb", "a100-80gb"])
def test_a_reset_ends_sessions_with_the_reason(make_host, model):
    host = with_role(make_host, model + "+mig")
    carve(host, "session", "request", "--vram", "5")
    id = look(host, "session", "show")["id"]
    carve(host, "run", "--ephemeral", "--mig-profile", "2g.20gb", "--", "true")
    carve(host, "sim", "fault", "reset", "--gpu", "0")
    wait_until(lambda: look(host, "session", "show", id)["state"] == "ended")
    assert "its MIG instance is gone" in look(host, "session", "show", id)["reason"]
    assert not instances(host)
    carve(host, "session", "request", "--vram", "5")
    assert books_are_nvmls(host)


@pytest.mark.long
def test_foreign_hands_are_learned_and_not_fought(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "5")
    id = look(host, "session", "show")["id"]
    carve(host, "run", "--ephemeral", "--mig-profile", "2g.20gb", "--", "true")
    mine, idle = (instances(host, state)[0] for state in ("busy", "idle"))
    ids = {i["uuids"][0]: i["id"] for i in by_hand(host, 0, "list")}
    start = 0 if mine["start"] > 3 and idle["start"] > 3 else None
    if start is not None:
        by_hand(host, 0, "make", 9, start, 4, "no-compute")
        wait_until(lambda: instances(host, "foreign"))
        carve(host, "run", "--ephemeral", "--gpu", "1", "--", "true", status=125)
        assert [i["start"] for i in by_hand(host, 0, "list")][0] == 0
    by_hand(host, 0, "destroy", ids[idle["uuid"]])
    wait_until(lambda: not [i for i in instances(host) if i["uuid"] == idle["uuid"]])
    by_hand(host, 0, "take-apart", ids[mine["uuid"]])
    wait_until(lambda: look(host, "session", "show", id)["state"] == "ended")
    assert "taken apart" in look(host, "session", "show", id)["reason"]
    wait_until(lambda: [i["state"] for i in instances(host)] in ([], ["foreign"]))


ROLE = ["node", "set-role", "--dynamic-mig-enabled"]


def test_mode_is_switched_on_while_nobody_uses_the_gpu(make_host):
    host = make_host("h100-80gb:2,rtx4090-24gb")
    assert "GPU 2 (NVIDIA GeForce RTX 4090) is not capable" in \
        carve(host, *ROLE, "--enable-mode", "--gpu-ids", "2", status=1).stderr
    carve(host, "session", "request", "--vram", "4", "--gpu-ids", "0")
    assert "GPU 0 has 1 session" in carve(host, *ROLE, "--enable-mode", "--gpu-ids", "0", status=1).stderr
    carve(host, *ROLE, "--enable-mode", "--gpu-ids", "1")
    carve(host, "session", "release")
    carve(host, "run", "--mig-profile", "1g.10gb", "--", "true")
    carve(host, "sim", "fault", "mig-hold", "--gpu", "0")
    assert "monitoring tools" in carve(host, *ROLE, "--enable-mode", "--gpu-ids", "0", status=1).stderr
    assert not look(host, "gpu", "list")[0]["mig_pending"]
    carve(host, "sim", "fault", "mig-hold", "--clear")
    roles = look(host, *ROLE, "--enable-mode")
    assert [r["role"] for r in roles] == ["dynamic-mig", "dynamic-mig", None]
    carve(host, "session", "request", "--mig-profile", "7g.80gb", "--gpus", "2")


def test_a_mode_that_takes_a_reset_says_so(make_host):
    host = make_host("a100-80gb")
    carve(host, "sim", "fault", "mig-mode")
    assert "nvidia-smi --gpu-reset -i 0" in carve(host, *ROLE, "--enable-mode", status=1).stderr
    assert "is pending" in carve(host, *ROLE, "--gpu-ids", "0", status=1).stderr
    carve(host, "sim", "fault", "mig-mode", "--clear")
    carve(host, "sim", "fault", "reset", "--gpu", "0")
    carve(host, *ROLE)
    carve(host, "run", "--vram", "5", "--", "true")


def test_a_reboot_that_takes_the_mode_ends_sessions_and_the_role_waits(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "5")
    id = look(host, "session", "show")["id"]
    carve(host, "sim", "fault", "reboot")
    wait_until(lambda: look(host, "session", "show", id)["state"] == "ended")
    assert "its MIG instance is gone" in look(host, "session", "show", id)["reason"] and not instances(host)
    shown = host.run([CARVE, "check"]).stdout
    assert "its MIG mode is off" in shown and "compute:  nothing" in shown and "a MIG instance: binds" not in shown
    carve(host, *ROLE, "--enable-mode")
    carve(host, "run", "--vram", "5", "--", "true")
    assert books_are_nvmls(host)


@pytest.mark.parametrize("fault", ["mig-ids", "mig-capacity"])
def test_neither_numbers_nor_capacities_are_believed(make_host, fault):
    host = make_host("h100-80gb+mig")
    carve(host, "sim", "fault", fault)
    carve(host, *ROLE)
    carve(host, "session", "request", "--mig-profile", "1g.10gb", "--gpus", "7")
    assert books_are_nvmls(host) and len(instances(host, "busy")) == 7
    carve(host, "session", "release")
    carve(host, "run", "--gpu", "1", "--", "true")
    assert books_are_nvmls(host)
