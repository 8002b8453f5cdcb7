"""Commands of docs/user/queues.md, as they stand there."""
import re

from conftest import BUILD, ROOT, wait_until
from queueing import queues, queues_of  # noqa: F401: fixtures

PAGE = (ROOT / "docs/user/queues.md").read_text()


def section(title):
    return re.search(rf"^## {title}\n(.*?)(?=^## )", PAGE + "\n## ", re.S | re.M).group(1)


def shell(queues, line, cwd):
    return queues.host.run(["bash", "-c", line], cwd=cwd, env={"PATH": f"{BUILD}:/usr/bin:/bin"})


def test_five_minutes_lead_to_a_sweep_that_ran(queues, tmp_path):
    (tmp_path / "train.py").write_text("import sys; print(*sys.argv[1:])")
    (tmp_path / "evaluate.sh").write_text("#!/bin/sh\necho fine\n")
    (tmp_path / "evaluate.sh").chmod(0o755)
    lines = re.findall(r"^    (carve .*)$", section("Five minutes to a running sweep"), re.M)
    said = []
    assert len(lines) == 5
    for line in lines:
        done = shell(queues, line, tmp_path)
        assert done.returncode == 0, (line, done.stderr)
        said.append(done.stdout)
    assert said[1] == "1\n" and said[3] == "--lr 0.1 --bs 32\n"
    swept = [shell(queues, f"carve job logs 1_{i}", tmp_path).stdout for i in range(4)]
    assert sorted(swept) == sorted(f"--lr {lr} --bs {bs}\n" for lr in ("0.1", "0.01") for bs in (32, 64))
    assert said[4] == "fine\n"


def test_commands_of_a_sweep_are_true(queues, tmp_path):
    """One of its jobs fails, and is the only one that runs again; a job that waits for the sweep's success never starts."""
    (tmp_path / "train.py").write_text("import sys; print(*sys.argv[1:]); sys.exit(sys.argv[1:] == ['--lr', '0.01', '--bs', '64'])")
    for name, text in ("part.sh", 'echo "part $CARVE_JOB_INDEX"'), ("evaluate.sh", "echo fine"):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    assert shell(queues, "carve agent --gpus all --queue half_gpu=0.5 quarter_gpu=0.25 --detached", tmp_path).returncode == 0
    sweep, array, show, one, logs, after, cancel, rerun = re.findall(r"^    (carve .*)$", section("Run a sweep"), re.M)
    assert [shell(queues, line, tmp_path).stdout for line in (sweep, array)] == ["1\n", "2\n"]
    printed = shell(queues, logs, tmp_path).stdout
    assert sorted(printed.splitlines()) == sorted(f"{i}: --lr {lr} --bs {bs}" for i, (bs, lr) in enumerate(
        (bs, lr) for bs in (32, 64) for lr in ("0.1", "0.01")))
    assert queues.ended("2_99")["state"] == "done" and shell(queues, "carve job logs 2_99", tmp_path).stdout == "part 99\n"
    wait_until(lambda: queues.state("1_3") == "failed")
    shown = shell(queues, show, tmp_path).stdout
    assert shown.count("done") == 3 and shown.count("failed") == 1
    assert "GPU time" in shell(queues, one, tmp_path).stdout
    waits = shell(queues, after, tmp_path)
    assert waits.returncode == 0 and waits.stdout == "3\n", waits.stderr
    again = shell(queues, rerun, tmp_path)
    assert again.returncode == 0 and queues.ended(f"{again.stdout.strip()}_3")["state"] == "failed", again.stderr
    held = shell(queues, "carve enqueue --queue half_gpu --name held --hold true", tmp_path)
    assert held.returncode == 0 and shell(queues, cancel.split("#")[0].replace("sweep", "held"), tmp_path).returncode == 0
    wait_until(lambda: queues.state(held.stdout.strip()) == "cancelled")


def test_commands_for_people_who_come_from_clearml_are_true(queues_of, tmp_path):
    """Each with its own words and a job that there is; the agents in the background."""
    queues = queues_of("h100-80gb:3")
    page = section("For people who come from ClearML")
    agents = re.findall(r"\| `(carve agent [^`]*--queue[^`]*)`", page.split("ClearML's examples")[1])
    assert len(agents) == 3
    for agent, fits in zip(agents, (True, False, True)):
        done = shell(queues, agent + " --detached", tmp_path)
        assert (done.returncode == 0) == fits, (agent, done.stderr)
        if fits and agent != agents[-1]:
            assert shell(queues, "carve agent --stop --now", tmp_path).returncode == 0
    id = shell(queues, "carve enqueue --queue half_gpu false", tmp_path).stdout.strip()
    assert queues.ended(id)["state"] == "failed"
    for command in ("carve job clone 17 --queue single_gpu", "carve job rerun 17"):
        assert f"`{command}`" in page
        again = shell(queues, command.replace("17", id), tmp_path)
        assert again.returncode == 0, again.stderr
        assert queues.ended(again.stdout.strip())["state"] == "failed"
    held = shell(queues, "carve enqueue --queue half_gpu --hold true", tmp_path).stdout.strip()
    assert "`carve job cancel 17`" in page and shell(queues, f"carve job cancel {held}", tmp_path).returncode == 0
    wait_until(lambda: queues.state(held) == "cancelled")
