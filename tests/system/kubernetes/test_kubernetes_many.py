"""Many claims at once on one node: each is granted or refused with a reason, within the time that a kubelet gives a call."""
import os
import signal
import threading

import pytest

grpc = pytest.importorskip("grpc", reason="needs python3-grpcio")

from cluster import DRIVER, Cluster, field, parse, text
from conftest import wait_until

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root, as a kubelet's plugin does")

KUBELET_SECONDS = 45
PODS = 200
# Answers of a plugin that had no time for a claim, as on a machine that has other work: a kubelet asks again.
LATE = ("other claims took all of the time", "it takes longer than the kubelet waits")


@pytest.fixture
def cluster(make_host):
    c = Cluster(make_host("h200-141gb")).started()
    yield c
    c.close()


class Calls:
    """One call a claim, all at once, on one connection as a kubelet has it. `answers` {uid: error}; a call without an answer has its status."""

    def __init__(self, cluster, method, claims):
        self.answers = {}
        self.channel = grpc.insecure_channel(f"unix:{cluster.kubelet.socket}", options=[("grpc.use_local_subchannel_pool", 1)])
        call = self.channel.unary_unary(f"/k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin/{method}")
        number = 2 if method == "NodePrepareResources" else 1
        self.threads = [threading.Thread(target=self.one, args=[call, claim, number]) for claim in claims]
        for thread in self.threads:
            thread.start()

    def one(self, call, claim, number):
        message = field(1, field(1, claim["namespace"]) + field(2, claim["uid"]) + field(3, claim["name"]))
        try:
            entry = parse(parse(call(message, timeout=KUBELET_SECONDS))[1][0])
            self.answers[claim["uid"]] = text(parse(entry.get(2, [b""])[0]), number)
        except grpc.RpcError as error:
            self.answers[claim["uid"]] = error.code()

    def ended(self):
        for thread in self.threads:
            thread.join()
        self.channel.close()
        return self.answers


def claims_of(cluster, count, memory, prefix="c"):
    device = cluster.api.devices()[0]["name"]
    return [cluster.api.claim(f"{prefix}{i}", [("gpu", device, memory, "0")]) for i in range(count)]


def settled(cluster, method, claims):
    """Asks until the plugin had time for each of the claims. Each call is answered in time."""
    answers, left = {}, claims
    while left:
        answers.update(Calls(cluster, method, left).ended())
        assert all(isinstance(answer, str) for answer in answers.values()), answers
        left = [claim for claim in left if answers[claim["uid"]].startswith(LATE)]
    return answers


def prepared(cluster, claims):
    return settled(cluster, "NodePrepareResources", claims)


def released(cluster, claims):
    return settled(cluster, "NodeUnprepareResources", claims)


def kept(cluster):
    """Checkpoints, files of slices, CDI specs, and sessions."""
    own = cluster.kubelet_dir / "plugins" / DRIVER
    return [len(list((own / "claims").glob("*.json"))), len(list((own / "slices").iterdir())), len(cluster.specs()), len(cluster.sessions())]


@pytest.mark.timed
def test_a_kubelet_has_all_pods_of_a_full_node_with_one_call_each(cluster):
    claims = claims_of(cluster, PODS, "600Mi")
    for method in ("NodePrepareResources", "NodeUnprepareResources"):
        assert set(Calls(cluster, method, claims).ended().values()) == {""}


def test_pods_of_a_full_node_that_come_and_go_at_once_all_have_their_slices(cluster):
    claims = claims_of(cluster, PODS, "600Mi")
    for _ in range(2):
        assert set(prepared(cluster, claims).values()) == {""}
        assert kept(cluster) == [PODS] * 4
        assert set(released(cluster, claims).values()) == {""}
        assert kept(cluster) == [0] * 4


def test_pods_beyond_the_room_are_refused_with_the_reason(cluster):
    claims = claims_of(cluster, 45, "4Gi")
    whole = int(cluster.api.devices()[0]["capacity"]["memory"]["value"][:-2]) // 4096
    assert whole < len(claims)
    answers = prepared(cluster, claims)
    granted = [uid for uid, answer in answers.items() if answer == ""]
    assert len(granted) == whole and kept(cluster) == [whole] * 4
    assert all(answer.startswith("not enough GPU memory for 4 GiB: GPU 0") and answer.endswith("; the kubelet asks again")
               for answer in answers.values() if answer), answers
    assert set(released(cluster, claims).values()) == {""} and kept(cluster) == [0] * 4


def test_an_api_server_that_does_not_answer_is_asked_once_which_claims_are_gone(cluster):
    """The thread that asks tells the GPUs' health, too."""
    claims = claims_of(cluster, 8, "600Mi")
    assert set(prepared(cluster, claims).values()) == {""}
    cluster.kill()
    cluster.api.stalled = "/resourceclaims/"
    cluster.start()
    wait_until(lambda: cluster.api.stalls)
    lists = len(cluster.api.calls)
    cluster.kubelet.register()  # it looks at its slices next
    wait_until(lambda: any("/resourceslices?" in path for _, path in cluster.api.calls[lists:]))
    assert len(cluster.api.stalls) == 1
    cluster.api.resume()
    assert set(released(cluster, claims).values()) == {""}


@pytest.mark.long
def test_claims_that_wait_for_room_do_not_hold_up_the_ones_that_give_it_back(cluster):
    [first] = claims_of(cluster, 1, "100Gi", "first")
    assert prepared(cluster, [first]) == {first["uid"]: ""}
    claims = claims_of(cluster, PODS, "100Gi")
    calls = Calls(cluster, "NodePrepareResources", claims)
    wait_until(lambda: kept(cluster)[0] > 40)
    assert released(cluster, [first]) == {first["uid"]: ""}
    answers = list(calls.ended().values())
    assert all(isinstance(answer, str) for answer in answers) and answers.count("") == len(cluster.sessions()) <= 1, answers
    assert set(released(cluster, claims).values()) == {""} and kept(cluster) == [0] * 4


@pytest.mark.long
def test_a_carved_that_hangs_is_told_to_each_pod_in_time(cluster):
    claims, old = claims_of(cluster, PODS, "600Mi"), claims_of(cluster, 20, "600Mi", "old")
    assert set(prepared(cluster, old).values()) == {""}
    daemon = cluster.host.daemon_pid()
    os.kill(daemon, signal.SIGSTOP)
    try:
        calls = Calls(cluster, "NodePrepareResources", claims), Calls(cluster, "NodeUnprepareResources", old)
        reasons = {answer for call in calls for answer in call.ended().values()}
    finally:
        os.kill(daemon, signal.SIGCONT)
    assert all(isinstance(reason, str) and ("does not answer" in reason or reason.startswith(LATE)) for reason in reasons), reasons
    assert set(released(cluster, old).values()) == {""}
    assert set(prepared(cluster, claims).values()) == {""} and kept(cluster) == [PODS] * 4
    assert set(released(cluster, claims).values()) == {""} and kept(cluster) == [0] * 4


@pytest.mark.long
@pytest.mark.parametrize("how", ["down", "stalled"])
def test_pods_come_and_go_while_the_api_server_is_away(cluster, how):
    old, new = claims_of(cluster, 40, "600Mi", "old"), claims_of(cluster, PODS, "600Mi", "new")
    assert set(prepared(cluster, old).values()) == {""}
    if how == "down":
        cluster.api.down = True
    else:
        cluster.api.stalled = "/"
    # Those that are known need no API server.
    assert set(prepared(cluster, old[:20]).values()) == {""}
    calls = Calls(cluster, "NodePrepareResources", new)
    assert set(released(cluster, old[20:]).values()) == {""}
    reasons = set(calls.ended().values())
    assert all(isinstance(reason, str) and ("does not answer" in reason or reason.startswith(LATE)) for reason in reasons), reasons
    assert kept(cluster) == [20] * 4
    cluster.api.down = False
    cluster.api.resume()
    assert set(prepared(cluster, new).values()) == {""} and kept(cluster) == [PODS + 20] * 4
    assert set(released(cluster, old + new).values()) == {""} and kept(cluster) == [0] * 4
