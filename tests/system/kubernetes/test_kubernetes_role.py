"""carve node set-role NODE for a node of a cluster: kubectl labels it, and the plugin there follows the label."""
import os

import pytest

from conftest import BUILD, clean_env, run

LABEL = "node-role.kubernetes.io/runai-mig-enabled"


@pytest.fixture
def kubectl(tmp_path):
    """carve's environment, with a kubectl that notes its words and fails with code 7."""
    (tmp_path / "kubectl").write_text(f'#!/bin/sh\necho "$@" >> {tmp_path}/words\nexit 7\n')
    (tmp_path / "kubectl").chmod(0o755)
    return clean_env({"PATH": f"{tmp_path}:{os.environ['PATH']}", "KUBECONFIG": str(tmp_path / "config"), "HOME": str(tmp_path)})


def node(env, *words):
    return run([BUILD / "carve", "node", *words], env=env)


def test_a_node_of_the_cluster_is_labelled(kubectl, tmp_path):
    assert node(kubectl, "set-role", "--dynamic-mig-enabled", "worker-1.example").returncode == 7
    assert node(kubectl, "set-role", "--mig-enabled", "worker-2").returncode == 7
    assert node(kubectl, "remove-role", "worker-1.example").returncode == 7
    assert (tmp_path / "words").read_text().splitlines() == [
        f"label --overwrite node worker-1.example {LABEL}=true", f"label --overwrite node worker-2 {LABEL}=true",
        f"label --overwrite node worker-1.example {LABEL}-"]


@pytest.mark.parametrize("words", [["set-role", "--dynamic-mig-enabled", "worker-1", "--gpu-ids", "0"],
                                   ["set-role", "--dynamic-mig-enabled", "Worker/1"]])
def test_roles_that_a_label_cannot_express_are_set_on_the_node_itself(kubectl, tmp_path, words):
    done = node(kubectl, *words)
    assert done.returncode == 2 and "is not this host" in done.stderr and not (tmp_path / "words").exists()


def test_without_a_cluster_nothing_is_asked(kubectl, tmp_path):
    env = {k: v for k, v in kubectl.items() if k != "KUBECONFIG"}
    done = node(env, "set-role", "--dynamic-mig-enabled", "worker-1")
    assert done.returncode == 2 and f"kubectl label node worker-1 {LABEL}=true" in done.stderr and not (tmp_path / "words").exists()


def test_a_kubectl_that_is_missing_is_told(kubectl, tmp_path):
    done = node(kubectl | {"PATH": "/nonexistent"}, "set-role", "--dynamic-mig-enabled", "worker-1")
    assert done.returncode == 1 and "kubectl cannot be executed" in done.stderr and done.stderr.count("\n") <= 2
