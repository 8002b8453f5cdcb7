"""The lab itself: its users are separate, and its daemon serves them."""
from .lab import ALICE, BOB, MALLORY, ROOT, peer_of


def test_users_are_separate(lab):
    for uid in (ALICE, BOB, MALLORY):
        assert lab.run(uid, "id", "-u").stdout.strip() == str(uid)
        assert lab.run(uid, "ls", lab.home(uid)).returncode == 0
    assert lab.run(MALLORY, "ls", lab.home(ALICE)).returncode != 0
    assert lab.run(MALLORY, "kill", "-0", str(lab.worker())).returncode != 0


def test_the_system_daemon_serves_each_user(lab):
    assert peer_of(lab.runtime / "carved.sock")[1] == ROOT
    for uid in (ROOT, ALICE, BOB):
        granted = lab.carve_json(uid, "session", "request", "--vram", "2")
        assert granted["vram_bytes"] == 2 << 30
        done = lab.carve(uid, "run", lab.paths(uid)["build"] + "/examples/matmul")
        assert done.returncode == 0, done.stderr
    assert len(lab.carve_json(MALLORY, "session", "list")) == 3


def test_sessions_survive_kill_9_of_the_daemon(lab):
    granted = lab.carve_json(ALICE, "session", "request", "--vram", "2")
    lab.restart()
    assert lab.carve_json(ALICE, "session", "show", granted["id"])["state"] == "active"


def test_an_attack_in_python_runs_as_its_user(lab):
    done = lab.python(MALLORY, "print(os.getuid(), sys.argv[1], os.path.exists(LAB['http']))", "x")
    assert done.stdout.split() == [str(MALLORY), "x", "True"], done.stderr
