"""MIG instances on demand, on simulated GPUs: made for requests, kept, reused, removed for room, and put right."""
import json
import pathlib
import re
import subprocess

import pytest

from conftest import BUILD, rest_long, wait_until
from mig_hands import CARVE, by_hand, carve, instances, kill_daemon, look, with_role
from programs import python


def test_a_request_gets_the_smallest_instance_that_holds_it(make_host):
    host = with_role(make_host)
    asked = carve(host, "session", "request", "--vram", "10")
    assert "1g.20gb" in asked.stdout and "--mig-profile 1g.10gb" in asked.stdout
    session = look(host, "session", "show")
    [instance] = instances(host, "busy")
    assert [session["backend"], session["mig_profile"]] == ["mig", "1g.20gb"]
    assert session["gpus"][0]["instance"] == instance["uuid"] and instance["session"] == session["id"]
    assert session["vram_bytes"] == instance["memory_bytes"] > session["requested_bytes"]


def test_a_fraction_counts_memory_units(make_host):
    host = with_role(make_host)
    for fraction, profile in (("0.5", "3g.40gb"), ("0.125", "1g.10gb"), ("1", "7g.80gb")):
        carve(host, "run", "--gpu", fraction, "--", "true")
        assert profile in [i["profile"] for i in instances(host, "idle")]


def test_the_workload_sees_its_instance_alone(make_host):
    host = with_role(make_host)
    seen = carve(host, "run", "--mig-profile", "2g.20gb", "--", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES").stdout
    assert seen.strip() == instances(host, "idle")[0]["uuid"]


def test_a_program_in_an_instance_neither_sees_nor_changes_those_of_others(make_host):
    """Also root's by NVML's calls for administrators, as `nvidia-smi mig` makes them."""
    host = with_role(make_host)
    others = request_kept(host, ("mig_profile", "2g.20gb"), vram=None)
    mine = request_kept(host, ("mig_profile", "1g.10gb"), vram=None)
    run = [CARVE, "run", "--session", mine["id"], "--"]
    [seen] = json.loads(host.run([*run, *python("mig_hand", 0, "list")]).stdout)
    assert seen["uuids"] == [mine["gpus"][0]["instance"]]
    [other] = [i["id"] for i in by_hand(host, 0, "list") if i["uuids"] == [others["gpus"][0]["instance"]]]
    for words, why in ((["make", 19, 0, 1], "make: 4"), (["destroy", seen["id"]], "destroy compute: 4"),
                       (["take-apart", seen["id"]], "destroy compute: 4"), (["destroy", other], "find: 6")):
        assert why in host.run([*run, *python("mig_hand", 0, *words)]).stderr, words
    assert len(by_hand(host, 0, "list")) == 2 and len(instances(host, "busy")) == 2


@pytest.mark.parametrize("driver, count", [("550", 1), ("580", 2)])
def test_a_program_is_told_where_it_can_use_one_instance_only(make_host, driver, count):
    host = with_role(make_host, driver=driver)
    carve(host, "session", "request", "--vram", "5", "--gpus", "2")
    uuids = {i["uuid"] for i in instances(host, "busy")}
    seen = carve(host, "run", "--", *python("devices_look"))
    assert ("can use one MIG instance: the first of these 2" in seen.stderr) == (count == 1)
    assert len(json.loads(seen.stdout)["devices"]) == count
    # The beginning of a UUID names one, too.
    for uuid in uuids:
        one = carve(host, "run", "--", "env", f"CUDA_VISIBLE_DEVICES={uuid[:14]}", *python("devices_look")).stdout
        assert [d["uuid"][4:] for d in json.loads(one)["devices"]] == [uuid[4:]]
    assert " mig " in carve(host, "top", "--once").stdout


def test_an_instance_is_kept_reused_and_removed_for_room(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "15", "--", "true")
    [first] = instances(host, "idle")
    carve(host, "session", "request", "--vram", "16")
    [again] = instances(host)
    assert again["uuid"] == first["uuid"] and again["state"] == "busy"
    carve(host, "session", "release")
    carve(host, "session", "request", "--mig-profile", "7g.80gb")
    assert [i["profile"] for i in instances(host)] == ["7g.80gb"]
    full = carve(host, "run", "--ephemeral", "--vram", "5", "--", "true", status=125)
    assert "sessions' instances are in the way" in full.stderr


def test_idle_instances_are_removed_by_gc_alone_or_for_room(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "5", "--", "true")
    carve(host, "mig", "gc", "--older-than", "3600")
    assert instances(host, "idle")
    carve(host, "mig", "gc")
    wait_until(lambda: not instances(host))


def test_a_profile_that_no_gpu_has_is_refused_with_the_list(make_host):
    host = with_role(make_host)
    refused = carve(host, "run", "--mig-profile", "9g.90gb", "--", "true", status=125)
    assert "9g.90gb" in refused.stderr and "1g.10gb" in refused.stderr


def test_several_instances_are_all_there_or_none(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--mig-profile", "1g.10gb", "--gpus", "7")
    assert len(instances(host, "busy")) == 7
    carve(host, "session", "release")
    carve(host, "mig", "gc")
    wait_until(lambda: not instances(host))
    carve(host, "session", "request", "--mig-profile", "3g.40gb", "--gpus", "3", status=3)
    assert not instances(host)


def test_a_role_wants_mig_mode_and_this_host(make_host):
    host = make_host("h100-80gb,rtx4090-24gb")
    refused = carve(host, "node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "0", status=1)
    assert "not in MIG mode" in refused.stderr and "--enable-mode" in refused.stderr
    incapable = carve(host, "node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "1", status=1)
    assert "GPU 1 (NVIDIA GeForce RTX 4090) is not capable of MIG" in incapable.stderr
    # Without a number the hint names the one that can, and where none can there is no hint.
    for spec, says in (("t4,a30-24gb", "no GPU here is in MIG mode; carve node set-role --dynamic-mig-enabled --gpu-ids 1 --enable-mode "),
                       ("t4", "no GPU here is capable of MIG\n")):
        assert says in carve(make_host(spec), "node", "set-role", "--dynamic-mig-enabled", status=1).stderr
    elsewhere = carve(host, "node", "set-role", "--dynamic-mig-enabled", "another.example", status=2)
    assert "another.example" in elsewhere.stderr
    no_role = carve(host, "run", "--mig-profile", "1g.10gb", "--", "true", status=125)
    assert "set-role" in no_role.stderr


def test_a_gpu_whose_role_was_removed_has_no_idle_instances(make_host):
    host = with_role(make_host, "h100-80gb:2+mig")
    for ids in ("0", "1"):
        carve(host, "run", "--vram", "5", "--gpu-ids", ids, "--", "true")
    carve(host, "session", "request", "--vram", "5", "--gpu-ids", "1")
    assert "has sessions in MIG instances" in carve(host, "node", "remove-role", "--gpu-ids", "1", status=1).stderr
    carve(host, "node", "remove-role", "--gpu-ids", "0")
    wait_until(lambda: not by_hand(host, 0, "list"))
    assert len(by_hand(host, 1, "list")) == 1
    by_hand(host, 0, "make", 19, 6, 1)
    carve(host, "node", "set-role", "--dynamic-mig-enabled")
    wait_until(lambda: [i["state"] for i in instances(host) if i["gpu"] == 0] == ["foreign"])


def test_check_tells_how_mig_is(make_host, tmp_path):
    host = with_role(make_host)

    def found(name):
        done = host.run([CARVE, "check", "--json"], env={"CARVE_CHECK_ROOT": str(tmp_path)})
        return next(c for c in json.loads(done.stdout)["conditions"] if c["name"] == name)

    carve(host, "session", "request", "--vram", "5")
    shown = host.run([CARVE, "check"]).stdout
    assert "memory:   a MIG instance: binds every program" in shown and "compute:  a MIG instance" in shown
    assert "went into MIG mode" not in shown and "no slices of it" not in shown
    for name in ("mig_mode", "mig_role", "mig_foreign", "mig_nodes"):
        assert found(name)["state"] == "ok"
    by_hand(host, 0, "make", 9, 0, 4)
    wait_until(lambda: found("mig_foreign")["state"] == "note")
    (tmp_path / "proc/driver/nvidia/capabilities").mkdir(parents=True)
    assert found("mig_nodes")["state"] == "problem"
    carve(host, "session", "release")
    carve(host, "mig", "gc")
    for instance in by_hand(host, 0, "list"):
        by_hand(host, 0, "destroy", instance["id"])
    done = host.run(python("mig_switch", 0))
    assert done.returncode == 0, done.stderr
    wait_until(lambda: found("mig_role")["state"] == "problem")
    assert "its MIG mode is off" in found("mig_role")["message"]


def test_roles_sessions_and_idle_instances_outlive_the_daemon(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "15", "--", "true")
    carve(host, "session", "request", "--mig-profile", "3g.40gb")
    before = {i["uuid"]: (i["state"], i["session"]) for i in instances(host)}
    kill_daemon(host)
    wait_until(lambda: {i["uuid"]: (i["state"], i["session"]) for i in instances(host)} == before)
    assert look(host, "session", "show")["mig_profile"] == "3g.40gb"


def test_a_pool_of_both_gives_each_what_wastes_less(make_host):
    host = with_role(make_host, "h100-80gb+mig,h100-80gb")
    for words, backend in ((["--backend", "mig"], "mig"), (["--backend", "fraction"], "front"), ([], "front")):
        carve(host, "session", "request", "--vram", "10", *words)
        assert look(host, "session", "show")["backend"] == backend
        carve(host, "session", "release")


def test_profiles_are_read_once(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "5", "--", "true")
    carve(host, "sim", "fault", "nvml", "--call", "nvmlDeviceGetGpuInstancePossiblePlacements_v2")
    assert len(by_hand(host, 0, "make", 9, 0, 4)) == 2
    wait_until(lambda: instances(host, "foreign"))  # a look was there, and needed no profiles
    carve(host, "run", "--vram", "15", "--", "true")


# The profile that a request of so many GiB, and of so large a part of the GPU, gets on each model that can be simulated.
MODELS = {
    "a30-24gb": ("1g.6gb 2g.12gb", "1g.6gb 2g.12gb 4g.24gb"),
    "a100-40gb": ("1g.5gb 3g.20gb", "1g.10gb 3g.20gb 7g.40gb"),
    "a100-80gb": ("1g.10gb 1g.20gb", "1g.20gb 3g.40gb 7g.80gb"),
    "a100-pcie-80gb-mirrored": ("1g.10gb 1g.20gb", "1g.20gb 3g.40gb 7g.80gb"),
    "h100-80gb": ("1g.10gb 1g.20gb", "1g.20gb 3g.40gb 7g.80gb"),
    "h100-96gb": ("1g.12gb 1g.12gb", "1g.24gb 3g.48gb 7g.96gb"),
    "h200-141gb": ("1g.18gb 1g.18gb", "1g.35gb 3g.71gb 7g.141gb"),
    "b200-180gb": ("1g.23gb 1g.23gb", "1g.45gb 3g.90gb 7g.180gb"),
    "rtx-pro-6000-96gb": ("1g.24gb 1g.24gb", "1g.24gb 2g.48gb 4g.96gb"),
}


def granted(host, *words):
    carve(host, "session", "request", *words)
    session = look(host, "session", "show")
    carve(host, "session", "release")
    return session["mig_profile"]


@pytest.mark.parametrize("model", rest_long(["a30-24gb", "a100-pcie-80gb-mirrored", "h100-80gb", *(m for m in MODELS if m not in ("a30-24gb", "a100-pcie-80gb-mirrored", "h100-80gb"))], 3))
def test_each_model_gives_what_it_has(make_host, model):
    host = with_role(make_host, model + "+mig")
    by_size, by_share = (text.split() for text in MODELS[model])
    assert [granted(host, "--vram", vram) for vram in ("4", "11")] == by_size
    assert [granted(host, "--gpu", part) for part in ("0.25", "0.5", "1")] == by_share
    [gpu] = look(host, "gpu", "list")
    assert [gpu["role"], gpu["mig"], gpu["sessions"]] == ["dynamic-mig", True, 0]
    # An instance that was just given back is free once the driver has told that nobody is in it.
    wait_until(lambda: look(host, "gpu", "list")[0]["available_bytes"] == max(i["memory_bytes"] for i in instances(host)))
    carve(host, "session", "request", "--mig-profile", by_size[0], "--gpus", "2")
    shown = carve(host, "session", "show").stdout
    assert shown.count(f"MIG:     {by_size[0]}, MIG-") == 2
    assert look(host, "gpu", "list")[0]["sessions"] == 1
    large = carve(host, "run", "--ephemeral", "--vram", "500", "--", "true", status=125)
    assert large.stderr.count("\n") == 1 and "no instance of it is that large" in large.stderr
    assert f"; instances here are {by_size[0]}, " in large.stderr


def test_a_fraction_of_a_pool_of_instances_is_refused_with_the_reason(make_host):
    host = with_role(make_host)
    refused = carve(host, "session", "request", "--vram", "5", "--backend", "fraction", status=3).stderr
    assert "GPU 0 (NVIDIA H100 80GB HBM3): it gives out MIG instances" in refused
    assert "leave out --backend fraction" in refused
    both = carve(host, "session", "request", "--vram", "5", "--backend", "fraction", "--mig-share", status=2).stderr
    assert "--mig-share: a fraction is no MIG instance" in both


def test_a_node_without_a_name_is_refused_without_a_command_for_it(make_host):
    host = make_host("h100-80gb+mig")
    refused = carve(host, "node", "set-role", "--dynamic-mig-enabled", "", status=2).stderr
    assert "'' is not this host" in refused and "leave NODE out, or name a host" in refused and "kubectl" not in refused


def test_a_pool_of_both_says_why_neither_has_room(make_host):
    host = with_role(make_host, "h100-80gb+mig,a100-40gb")
    refused = carve(host, "run", "--vram", "500", "--", "true", status=125).stderr
    assert "GPU 1 (NVIDIA A100-SXM4-40GB): 39.44 GiB of 39.44 GiB free; no room for 500 GiB in MIG instances: " in refused
    assert "in MIG mode" not in refused
    fraction = carve(host, "run", "--vram", "60", "--backend", "fraction", "--", "true", status=125).stderr
    assert "more than there is" in fraction
    listed = carve(host, "gpu", "list").stdout
    assert "no slices of it are granted" not in listed and "79.25 GiB" in listed


def request_kept(host, *words, status=201, vram="4"):
    """A session beside the user's others, as API clients make them; its JSON."""
    body = {"kept": True, **({"vram": vram} if vram else {}), **dict(words)}
    done = host.run(["curl", "-s", "-X", "POST", "--unix-socket", f"{host.env['CARVE_RUNTIME_DIR']}/carved.sock", "-H",
                     "Content-Type: application/json", "-d", json.dumps(body), "-w", "\n%{http_code}",
                     "http://localhost/v1/sessions"])
    text, code = done.stdout.rsplit("\n", 1)
    assert int(code) == status, done.stdout
    return json.loads(text)


@pytest.mark.parametrize("share, count", [(True, 14), (False, 7)])
def test_small_sessions_share_instances_where_they_say_so(make_host, share, count):
    host = with_role(make_host)
    sessions = [request_kept(host, ("mig_share", share)) for _ in range(count)]
    request_kept(host, ("mig_share", share), status=409)
    assert len(instances(host, "busy")) == 7
    assert {i["shared"] for i in instances(host)} == {share}
    assert {s["vram_bytes"] for s in sessions} == ({4 << 30} if share else {10468982784})
    kill_daemon(host)
    wait_until(lambda: len(instances(host, "busy")) == 7)
    request_kept(host, ("mig_share", share), status=409)
    # One leaves: its part is the next one's, and nothing is made or removed for it.
    before = {i["uuid"] for i in instances(host)}
    carve(host, "session", "release", sessions[0]["id"])
    request_kept(host, ("mig_share", share))
    assert {i["uuid"] for i in instances(host)} == before
    carve(host, "session", "release", "--all")
    assert {i["state"] for i in instances(host)} == {"idle"}


def test_a_gpu_tells_what_sessions_have_in_its_instances(make_host):
    host = with_role(make_host)
    request_kept(host, ("mig_share", True))
    request_kept(host, ("mig_share", True), vram="3")
    own = request_kept(host, vram="11")
    assert look(host, "gpu", "list")[0]["promised_bytes"] == (7 << 30) + own["vram_bytes"]
    carve(host, "session", "release", "--all")
    assert look(host, "gpu", "list")[0]["promised_bytes"] == 0


def test_each_that_shares_an_instance_is_bounded(make_host):
    host = with_role(make_host)
    sessions = [request_kept(host, ("mig_share", True), ("vram", vram)) for vram in ("4", "3")]
    assert len({s["gpus"][0]["instance"] for s in sessions}) == 1
    for session, gib in zip(sessions, (4, 3)):
        seen = json.loads(carve(host, "run", "--session", session["id"], "--", *python("mem_info")).stdout)
        assert seen["total"] == gib << 30
    # One takes all that it has, and the other one still finds all that is its own.
    for session, mib, status in ((sessions[0], 4096, 2), (sessions[0], 3500, 0), (sessions[1], 3072, 2), (sessions[1], 2500, 0)):
        taken = carve(host, "run", "--session", session["id"], "--", *python("take", mib)).stdout
        assert taken.strip() == str(status), (mib, taken)
    other = request_kept(host)
    assert other["gpus"][0]["instance"] != sessions[0]["gpus"][0]["instance"]


def test_a_neighbour_in_another_instance_is_not_touched_by_those_who_share(make_host):
    host = with_role(make_host)
    alone = request_kept(host)
    sessions = [request_kept(host, ("mig_share", True)) for _ in range(2)]
    watch = [CARVE, "run", "--session", alone["id"], "--", *python("mem_info")]
    before = json.loads(host.run(watch).stdout)
    crowd = [host.popen([CARVE, "run", "--session", s["id"], "--", str(BUILD / "examples/hog"), "600"], stdin=subprocess.PIPE) for s in sessions]
    for session in sessions:
        wait_until(lambda s=session: look(host, "session", "show", s["id"])["gpus"][0]["used_bytes"] > 3 << 30)
    assert json.loads(host.run(watch).stdout) == before
    assert carve(host, "run", "--session", alone["id"], "--", *python("take", 9000)).stdout.strip() == "0"
    carve(host, "session", "release", "--all", "--force")
    for one in crowd:
        one.kill()
        one.wait()


def test_a_part_of_a_shared_instance_grows_and_shrinks_with_processes_in_it(make_host):
    host = with_role(make_host)
    first, second = [request_kept(host, ("mig_share", True))["id"] for _ in range(2)]
    seen = lambda id: json.loads(carve(host, "run", "--session", id, "--", *python("mem_info")).stdout)["total"]  # noqa: E731
    with host.popen([CARVE, "run", "--session", first, "--", "sh", "-c", "echo in; exec cat"], stdin=subprocess.PIPE) as running:
        assert running.stdout.readline() == "in\n"
        carve(host, "session", "resize", first, "5")
        assert [seen(first), seen(second)] == [5 << 30, 4 << 30]
        # The part that one has got, the other cannot have, and the refusal says how much there is.
        refused = carve(host, "session", "resize", first, "6", status=1).stderr
        assert "at most in the MIG instance that it shares" in refused and refused.count("\n") == 1
        kill_daemon(host)
        assert [look(host, "session", "show", id)["vram_bytes"] for id in (first, second)] == [5 << 30, 4 << 30]
        carve(host, "session", "resize", first, "2")
        assert seen(first) == 2 << 30
        carve(host, "session", "resize", second, "7")
        assert seen(second) == 7 << 30
        [instance] = instances(host, "busy")
        running.stdin.close()
    # Nobody is in it: another instance may take its place.
    carve(host, "session", "resize", first, "12")
    moved = look(host, "session", "show", first)
    assert [moved["mig_profile"], moved["mig_shared"], moved["vram_bytes"]] == ["1g.20gb", True, 12 << 30]
    assert moved["gpus"][0]["instance"] != instance["uuid"]
    with host.popen([CARVE, "run", "--session", second, "--", str(BUILD / "examples/hog"), "600"]):
        wait_until(lambda: look(host, "session", "show", second)["gpus"][0]["used_bytes"] > 6 << 30)
        refused = carve(host, "session", "resize", second, "2", status=1).stderr
        assert "cannot shrink to 2 GiB" in refused and "in use" in refused
        carve(host, "session", "release", "--all", "--force")


@pytest.mark.parametrize("restarted", [False, True], ids=["seen", "found-by-the-next-daemon"])
def test_memory_of_a_program_outside_carve_in_a_shared_instance_is_not_promised(make_host, restarted):
    host = with_role(make_host)
    first = request_kept(host, ("mig_share", True))
    [instance] = instances(host, "busy")
    inside = {"CUDA_VISIBLE_DEVICES": instance["uuid"]}
    # With a command in it the session keeps its instance.
    command = [CARVE, "run", "--session", first["id"], "--", "sh", "-c", "echo in; exec cat"]
    with host.popen(command, stdin=subprocess.PIPE) as running:
        assert running.stdout.readline() == "in\n"
        with host.popen(python("hold", 1024), env=inside, stdin=subprocess.PIPE) as program:
            assert program.stdout.readline() == "0\n"
            if restarted:
                kill_daemon(host)
            # 9.75 GiB less 4 GiB, the context and 1 GiB: room for 4 GiB more, not for 5 GiB.
            def told():
                refused = carve(host, "session", "resize", first["id"], "9", status=1).stderr
                return "can have 8." in refused and "at most in the MIG instance that it shares" in refused

            assert told()
            assert request_kept(host, ("mig_share", True), vram="5")["gpus"][0]["instance"] != instance["uuid"]
            wait_until(told)  # nobody joins while the driver's list of instances changes
            joined = request_kept(host, ("mig_share", True))
            assert joined["gpus"][0]["instance"] == instance["uuid"]
        carve(host, "session", "release", joined["id"])
        carve(host, "session", "resize", first["id"], "9")


def test_only_an_amount_of_memory_shares(make_host):
    host = with_role(make_host)
    for words, why in ((["--gpu", "0.25"], "sizes in memory alone"), (["--vram", "4", "--gpus", "2"], "one instance"),
                       (["--vram", "4", "--gpu-compute", "10%"], "nobody's alone")):
        refused = carve(host, "run", *words, "--mig-share", "--", "true", status=125).stderr
        assert why in refused and refused.count("\n") == 1
    asked = carve(host, "session", "request", "--vram", "4", "--mig-share").stdout
    assert "4 GiB (4294967296 bytes)" in asked and "in a MIG instance 1g.10gb that others may share" in asked


def test_a_part_of_an_instance_is_no_smaller_than_a_context(make_host):
    """As a fraction of a GPU is not. The cost was learned before the GPU went into MIG mode, and holds for its instances."""
    host = make_host("h100-80gb")
    [cost] = wait_until(lambda: [g["context_bytes"] for g in look(host, "gpu", "list") if g["context_bytes"]])
    carve(host, "node", "set-role", "--dynamic-mig-enabled", "--enable-mode")
    takes = f"one CUDA context alone takes {cost >> 20} MiB"
    for _ in range(2):
        refused = carve(host, "session", "request", "--vram", "0.1", "--mig-share", status=2).stderr
        assert refused == f"carve: a slice of 102.4 MiB is too small: GPU 0: {takes}\n"
        assert takes in carve(host, "explain", "--vram", "0.1", "--mig-share").stdout
        kill_daemon(host)
    # An instance of its own is larger than that.
    carve(host, "run", "--vram", "0.1", "--", *python("take", 1024))
    carve(host, "session", "request", "--vram", "1", "--mig-share")
    refused = carve(host, "session", "resize", "--vram", "0.1", status=2).stderr
    assert refused == f"carve: 102.4 MiB is too small for one CUDA context ({cost >> 20} MiB)\n"


def test_the_first_that_shares_learns_in_an_instance_what_a_context_takes(make_host):
    """No GPU of this model was ever out of MIG mode here. The store keeps the figure that was learned."""
    host = with_role(make_host)
    assert {g["context_bytes"] for g in look(host, "gpu", "list")} == {0}
    for _ in range(2):
        refused = carve(host, "session", "request", "--vram", "0.1", "--mig-share", status=2).stderr
        assert re.fullmatch(r"carve: a slice of 102\.4 MiB is too small: GPU 0: one CUDA context alone takes \d+ MiB\n", refused)
        # The instance is kept for the next, and nobody's.
        assert [(i["profile"], i["state"]) for i in instances(host)] == [("1g.10gb", "idle")]
        kill_daemon(host)
    assert pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text().count("context.learned") == 1
    carve(host, "session", "request", "--vram", "1", "--mig-share")
    least = re.search(r"takes (\d+) MiB", refused)[1]
    refused = carve(host, "session", "resize", "--vram", "0.1", status=2).stderr
    assert refused == f"carve: 102.4 MiB is too small for one CUDA context ({least} MiB)\n"
    carve(host, "session", "resize", "--gpu-memory", f"{least}Mi")
    assert carve(host, "run", "--", *python("take", 0)).stdout.strip() == "1"  # CUDA_ERROR_INVALID_VALUE: the context is there


def test_an_idle_instance_is_looked_into_before_somebody_shares_it(make_host):
    host = with_role(make_host)
    carve(host, "run", "--vram", "4", "--", "true")
    [made] = instances(host, "idle")
    assert "one CUDA context alone takes" in carve(host, "session", "request", "--vram", "0.1", "--mig-share", status=2).stderr
    carve(host, "session", "request", "--vram", "1", "--mig-share")
    [busy] = instances(host)
    assert (busy["uuid"], busy["state"]) == (made["uuid"], "busy")


@pytest.mark.parametrize("spec", ["h100-80gb+mig", "h100-80gb"], ids=["never-seen", "seen-without-mig"])
def test_a_context_counts_in_each_of_several_instances_of_a_gpu(make_host, spec):
    """The driver's figures are the GPU's, so none of them tells what is in which instance."""
    host = make_host(spec, driver="580")
    wait_until(lambda: "+mig" in spec or look(host, "gpu", "list")[0]["context_bytes"])
    carve(host, "node", "set-role", "--dynamic-mig-enabled", "--enable-mode")
    used = {count: json.loads(carve(host, "run", "--vram", "5", "--gpus", count, "--", *python("mig_used")).stdout)
            for count in ("1", "2")}
    [alone] = used["1"].values()
    assert alone[0] == alone[1] > 0
    assert list(used["2"].values()) == [alone, alone]


def test_code_counts_in_the_one_of_several_instances_where_it_is(make_host):
    """The driver lists what a process holds in each: beyond what is declared, as code, the daemon posts that."""
    host, code = with_role(make_host, driver="580"), 64 << 20
    with host.popen([CARVE, "run", "--vram", "5", "--gpus", "2", "--", *python("mig_used", "0", code)],
                    stdin=subprocess.PIPE) as program:
        before = json.loads(program.stdout.readline())

        def now():
            program.stdin.write("\n")
            program.stdin.flush()
            return json.loads(program.stdout.readline())

        def driver_has():
            """In each instance, as the simulated host has it."""
            stat = json.loads(carve(host, "sim", "stat", "--json").stdout)["gpus"][0]
            return sorted(sum(device["kinds"].values()) for p in stat["processes"] for device in p["memory"])
        wait_until(lambda: sorted(used for used, _ in now().values()) == driver_has())
        seen = now()
        assert all(used == listed for used, listed in seen.values())
        assert all(seen[uuid][0] - before[uuid][0] >= code for uuid in seen)
        [session] = look(host, "session", "list")
        shown = [g["used_bytes"] for g in look(host, "session", "show", session["id"])["gpus"]]
        assert sorted(shown) == sorted(used for used, _ in seen.values())
        program.stdin.close()


def test_a_part_is_granted_where_no_context_can_be_made(make_host):
    """And the next ones do not wait for another try."""
    host = with_role(make_host)
    carve(host, "sim", "fault", "hang", "--call", "cuCtxCreate_v2", "--error", "2", "--count", "1")
    for _ in range(2):
        carve(host, "run", "--vram", "0.1", "--mig-share", "--", "true")
    log = pathlib.Path(host.env["CARVE_RUNTIME_DIR"], "carved.log").read_text()
    assert log.count("context.unknown") == 1 and "context.learned" not in log


def test_a_session_that_nobody_is_in_moves_to_another_instance(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "5")
    id = look(host, "session", "show")["id"]
    seen = lambda: json.loads(carve(host, "run", "--", *python("mem_info")).stdout)["total"]  # noqa: E731
    assert seen() < 10 << 30  # it has a ledger from now on
    carve(host, "session", "resize", "--gpu", "0.25")
    assert look(host, "session", "show")["mig_profile"] == "1g.20gb"
    assert 15 << 30 < seen() < 20 << 30
    carve(host, "session", "resize", "70")  # its own instance has to go for it
    session = look(host, "session", "show")
    assert [session["id"], session["mig_profile"]] == [id, "7g.80gb"]
    assert [i["session"] for i in instances(host, "busy")] == [id] and seen() > 70 << 30
    kill_daemon(host)
    assert look(host, "session", "show")["mig_profile"] == "7g.80gb" and seen() > 70 << 30
    too_large = carve(host, "session", "resize", "100", status=3).stderr
    assert "no instance of it is that large" in too_large
    carve(host, "session", "resize", "5")
    assert look(host, "session", "show")["mig_profile"] == "1g.10gb" and seen() < 10 << 30
    with host.popen([CARVE, "run", "--", "sh", "-c", "echo in; exec cat"], stdin=subprocess.PIPE) as running:
        assert running.stdout.readline() == "in\n"
        refused = carve(host, "session", "resize", "30", status=1).stderr
        assert "processes in it" in refused
        running.stdin.close()
    carve(host, "session", "resize", "30")
    carve(host, "session", "release")
    assert not instances(host, "busy")


def test_a_session_that_cannot_be_moved_is_as_it_was_or_ends_with_the_reason(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "5")
    before = look(host, "session", "show")
    carve(host, "sim", "fault", "mig-destroy")
    refused = carve(host, "session", "resize", "70", status=1).stderr
    [own] = instances(host)
    assert f"the driver refused to remove the MIG instance at {own['start']}:{own['size']} on GPU 0: a process holds it open" in refused
    assert "`carve mig list` shows the instances" in refused and refused.count("\n") == 1
    carve(host, "sim", "fault", "mig-destroy", "--clear")
    assert look(host, "session", "show")["gpus"][0]["instance"] == before["gpus"][0]["instance"]
    carve(host, "run", "--", *python("mem_info"))
    carve(host, "sim", "fault", "mig-create", "--error", "999")
    carve(host, "session", "resize", "70", status=1)
    wait_until(lambda: look(host, "session", "show", before["id"])["state"] == "ended")
    assert "its MIG instance is gone" in look(host, "session", "show", before["id"])["reason"]


def test_a_new_size_that_its_instance_holds_keeps_the_instance(make_host):
    """Also where nothing else could be made, and with processes in it."""
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "70")
    [before] = instances(host)
    with host.popen([CARVE, "run", "--", "sh", "-c", "echo in; exec cat"], stdin=subprocess.PIPE) as running:
        assert running.stdout.readline() == "in\n"
        carve(host, "session", "resize", "75")
        session = look(host, "session", "show")
        assert session["requested_bytes"] == 75 << 30 and session["vram_bytes"] == before["memory_bytes"]
        running.stdin.close()
    carve(host, "sim", "fault", "mig-create", "--error", "999")
    for size in (["76"], ["--gpu", "0.9"], ["70"]):
        carve(host, "session", "resize", *size)
        [now] = instances(host)
        assert (now["uuid"], now["since"], now["session"]) == (before["uuid"], before["since"], before["session"])
    kill_daemon(host)
    assert look(host, "session", "show")["requested_bytes"] == 70 << 30


def test_a_new_size_keeps_the_compute_that_was_asked_for(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "5", "--gpu-compute", "40%")
    asked = look(host, "session", "show")["mig_profile"]
    carve(host, "session", "resize", "12")
    assert look(host, "session", "show")["mig_profile"] == asked == "3g.40gb"
    moved = carve(host, "session", "resize", "70")
    assert moved.stdout.splitlines()[1] == "MIG instance 7g.80gb for the 70 GiB that were asked for"
    carve(host, "session", "resize", "5")
    assert look(host, "session", "show")["mig_profile"] == asked


@pytest.mark.parametrize("spec, words, lines", [
    ("h100-80gb+mig", ["--gpu", "0.125"], ["MIG instance 1g.10gb for --gpu 0.125"]),
    ("thor-128gb+mig", ["--mig-profile", "1g.0gb"], ["MIG instance 1g.0gb, as asked for"]),
    ("h100-80gb+mig", ["--vram", "10"], ["MIG instance 1g.20gb for the 10 GiB that were asked for",
                                         "1g.10gb holds 9.75 GiB: --mig-profile 1g.10gb is enough where that is"]),
    # The smaller instance in memory has a seventh of the compute.
    ("a100-40gb+mig", ["--vram", "5", "--gpu-compute", "50%"],
     ["MIG instance 4g.20gb for the 5 GiB and 50% of the compute that were asked for"]),
    ("b200-180gb+mig", ["--vram", "5", "--gpu-compute", "50%"],
     ["MIG instance 7g.180gb for the 5 GiB and 50% of the compute that were asked for",
      "3g.90gb has 47.3% of the compute: --mig-profile 3g.90gb is enough where that is"]),
])
def test_a_grant_says_what_was_asked_and_what_nearly_fits(make_host, spec, words, lines):
    host = with_role(make_host, spec)
    assert carve(host, "session", "request", *words).stdout.splitlines()[1:] == lines


def test_instances_are_listed_by_place(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "5", "--gpus", "7")
    starts = [i["start"] for i in instances(host)]
    assert len(starts) == 7 and starts == sorted(starts)


def test_a_profile_has_its_own_compute(make_host):
    host = with_role(make_host)
    for words, status in ((["session", "request"], 2), (["run"], 125)):
        command = ["--", "true"] if words == ["run"] else []
        refused = carve(host, *words, "--mig-profile", "1g.10gb", "--gpu-compute", "50%", *command, status=status).stderr
        assert refused.startswith("carve: --gpu-compute: a MIG profile has the compute that it has") and refused.count("\n") == 1
    assert not instances(host)


def test_a_refused_resize_says_why_once(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--vram", "10")
    assert carve(host, "session", "resize", "90", status=3).stderr.count("no room for") == 1


@pytest.mark.parametrize("spec, words, says", [
    ("rtx4090-24gb", [], "no GPU here is capable of MIG: carve run --vram 4"),
    ("h100-80gb", [], "no GPU is in MIG mode: carve node set-role --dynamic-mig-enabled --enable-mode"),
    ("rtx4090-24gb,h100-80gb+mig", [], "no GPU gives out MIG instances: carve node set-role --dynamic-mig-enabled lets"),
    ("h100-80gb+mig", ["node", "set-role", "--dynamic-mig-enabled"], "there is no MIG instance yet")])
def test_a_list_without_an_instance_says_the_next_step(make_host, spec, words, says):
    host = make_host(spec)
    if words:
        carve(host, *words)
    listed = carve(host, "mig", "list").stdout
    assert listed.startswith(says) and listed.count("\n") == 1, listed
    assert look(host, "mig", "list") == []


def test_more_whole_gpus_than_there_are_is_refused_with_the_plain_reason(make_host):
    host = with_role(make_host)
    refused = carve(host, "run", "--gpu", "2", "--", "true", status=125).stderr
    assert refused == "carve: 2 GPUs asked, there is 1\n"
    refused = carve(host, "run", "--gpus", "2", "--vram", "60", "--", "true", status=125).stderr
    assert "GPU 0: it has room for one, not for all of them" in refused
    host = make_host("rtx4090-24gb,h100-80gb+mig")
    carve(host, "node", "set-role", "--dynamic-mig-enabled", "--gpu-ids", "1")
    refused = carve(host, "run", "--backend", "mig", "--gpu", "2", "--", "true", status=125).stderr
    assert "2 GPUs asked, 1 that may be used gives out MIG instances" in refused


def test_explain_names_the_instance_that_a_request_would_get(make_host):
    host = with_role(make_host, "h100-80gb+mig,a100-40gb")
    assert look(host, "explain", "--vram", "10")["gpus"][0]["message"] == "a MIG instance 1g.20gb"
    text = carve(host, "explain", "--mig-profile", "9g.90gb").stdout
    assert "would be refused: --mig-profile: no GPU here has '9g.90gb'" in text and "CUDA context" not in text
    assert text.count("it gives out no MIG instances") == 1


def test_explain_says_what_a_gpu_with_the_role_says(make_host):
    host = with_role(make_host)
    # It is offered once it was looked at with its role.
    wait_until(lambda: look(host, "explain", "--gpu", "0.5")["gpus"][0]["reason"] != "not_offered")
    [gpu] = look(host, "explain", "--gpu", "0.5")["gpus"]
    assert [gpu["reason"], gpu["capacity_bytes"], gpu["requested_bytes"]] == ["fits", 81152 << 20, 81152 << 19]
    assert "1g.20gb" not in carve(host, "explain", "--vram", "10").stderr
    [gpu] = look(host, "explain", "--vram", "500")["gpus"]
    assert [gpu["reason"], gpu["message"]] == ["no_memory", "no instance of it is that large"]
    carve(host, "session", "request", "--mig-profile", "4g.40gb")
    [gpu] = [e["gpus"][0] for e in [look(host, "explain", "--mig-profile", "7g.80gb")]]
    assert [gpu["reason"], gpu["message"]] == ["no_memory", "sessions' instances are in the way"]


def utilization(host):
    """Of each instance, by its profile."""
    return {i["profile"]: i["utilization"] for i in instances(host)}


@pytest.mark.timed
def test_utilization_of_an_instance_is_told_where_the_gpu_counts_it(make_host):
    host = with_role(make_host)
    carve(host, "session", "request", "--mig-profile", "1g.10gb", "--name", "quiet")
    busy = host.popen([CARVE, "run", "--ephemeral", "--mig-profile", "3g.40gb", "--", *python("busy")])
    wait_until(lambda: (utilization(host).get("3g.40gb") or 0) > 80)
    assert utilization(host)["1g.10gb"] == 0
    # Of the GPU it is the part of the multiprocessors that the instance has: 60 of 132.
    assert 30 < wait_until(lambda: look(host, "gpu", "list")[0]["utilization"]) < 50
    assert " 0% " in carve(host, "mig", "list").stdout and "% " in carve(host, "top", "--once").stdout
    # Within a slice NVML tells of its own instance alone, however it is asked.
    numbers = {i["profile"]: i["gpu_instance"] for i in instances(host)}
    gpm = python("nvml_gpm", numbers["1g.10gb"], numbers["3g.40gb"])
    seen = json.loads(carve(host, "run", "--session", "quiet", "--", *gpm).stdout)
    not_supported, not_found = 3, "error 2"
    assert seen == {"support": 1, "rates": not_supported, "busy": [0, 0, not_found], "sm": "error 3"}
    busy.terminate()  # carve run passes that on
    busy.wait()
    wait_until(lambda: utilization(host)["3g.40gb"] == 0)


def test_a_gpu_that_does_not_count_tells_no_utilization(make_host):
    host = with_role(make_host, "a100-80gb+mig")
    busy = host.popen([CARVE, "run", "--vram", "10", "--", *python("busy")])
    wait_until(lambda: instances(host, "busy") and host.stat()["gpus"][0]["busy_ns"])
    assert {i["utilization"] for i in instances(host)} == {None} == {look(host, "gpu", "list")[0]["utilization"]}
    assert " N/A " in carve(host, "mig", "list").stdout
    seen = json.loads(carve(host, "run", "--vram", "4", "--", *python("nvml_gpm")).stdout)
    assert seen == {"support": 0, "rates": 3, "busy": ["error 3"], "sm": "error 3"}
    busy.terminate()  # carve run passes that on
    busy.wait()
