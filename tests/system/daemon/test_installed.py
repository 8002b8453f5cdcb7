"""Where a system daemon is installed, no user's own daemon serves its GPUs, whatever is wrong with the service."""
import os
import re
import subprocess

import pytest

from command import CARVE
from conftest import BUILD, clean_env
from daemon_client import GIB

CARVED = BUILD / "carved"
FAKE_NVML = BUILD / "tests/programs/fake_nvml"

# How a host can tell that a system daemon is installed; each makes only the place for it.
MARKS = {
    "runtime directory": "mkdir /run/carve",
    "socket that nobody listens at": "mkdir /run/carve; /usr/bin/python3 -c 'import socket; "
                                     "socket.socket(socket.AF_UNIX).bind(\"/run/carve/carved.sock\")'",
    "unit": "mkdir -p /run/systemd/system; echo >/run/systemd/system/carved.service",
}
SERVE = f"""
# serve NAME ARGUMENTS...: carved, when it listens; its process is $pid.
serve() {{
    name=$1; shift
    {CARVED} "$@" --foreground --ready-fd 5 5>/mnt/ready 2>>/mnt/$name.log &
    pid=$!
    until [ -s /mnt/ready ]; do kill -0 $pid 2>/dev/null || {{ cat /mnt/$name.log; exit 1; }}; sleep 0.05; done
    rm /mnt/ready
}}
# until_says WORDS COMMAND...: for 30 s at most.
until_says() {{
    words=$1; shift
    for i in $(seq 300); do "$@" 2>&1 | grep -q "$words" && return; sleep 0.1; done
    echo "never said: $words"; "$@"; exit 1
}}
"""


@pytest.fixture
def inside(tmp_path):
    """inside(SCRIPT): runs it as root with a /run, /var/lib, /mnt and a runtime directory of its own, over a fake driver that
    is like a real one."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    (tmp_path / "gpus").write_text(f"gpu {80 * GIB} 0 0 Fake H100\n")
    (tmp_path / "xdg").mkdir(mode=0o700)
    env = clean_env({"FAKE_NVML": str(tmp_path / "gpus"), "LD_LIBRARY_PATH": str(FAKE_NVML),
                     "XDG_RUNTIME_DIR": str(tmp_path / "xdg")})
    mounts = " && ".join(f"mount -t tmpfs -o mode=755 none {place}" for place in ("/run", "/var/lib", "/mnt"))

    def run_inside(script):
        # With the namespace of processes all that the script started ends.
        done = subprocess.run(["unshare", "--mount", "--propagation", "private", "--pid", "--fork", "--kill-child",
                               "--mount-proc", "/bin/sh", "-c", f"{mounts} || exit 99\n{SERVE}{script}"],
                              stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, env=env)
        if done.returncode == 99 or "unshare:" in done.stderr:
            pytest.skip("cannot mount here")
        return done

    return run_inside


@pytest.mark.parametrize("mark", MARKS)
def test_no_daemon_is_started_in_the_services_place(inside, mark, tmp_path):
    done = inside(f"""
        {MARKS[mark]}
        for verb in "gpu list" "run --vram 2 true" "session request --vram 2" "quota list" check; do
            {CARVE} $verb; echo "code $?"
        done
        pgrep -x carved && echo "a daemon runs"
        ls $XDG_RUNTIME_DIR
        CARVE_HOST=/run/carve/carved.sock {CARVE} gpu list; echo "code $?"
    """)
    assert done.stdout.split("code ")[1:][0][0] == "4" and "code 125" in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("code 4") == 5
    assert "a daemon runs" not in done.stdout and not list((tmp_path / "xdg").iterdir())
    told = done.stderr.splitlines()
    assert "carve: the system daemon, which has this host's GPUs, does not answer at /run/carve/carved.sock" in told[0]
    assert "systemctl start carved.service" in told[0] and "journalctl -u carved" in told[0]
    assert "problem:" in done.stdout and "journalctl -u carved" in done.stdout  # carve check


def test_a_service_manager_that_listens_for_a_service_that_does_not_run(inside):
    """As systemd does while the service fails behind its sockets: users learn where to look, and not of a daemon that hangs."""
    listen = "import signal, socket; s = socket.socket(socket.AF_UNIX); s.bind('/run/carve/carved.sock'); s.listen(); signal.pause()"
    done = inside(f"""
        mkdir /run/carve
        /usr/bin/python3 -c "{listen}" &
        until [ -S /run/carve/carved.sock ]; do sleep 0.01; done
        {CARVE} gpu list; echo "code $?"
    """)
    assert done.stdout.strip() == "code 4", done.stdout + done.stderr
    assert re.search(r"carved does not answer; python3\S* \(process \d+\) listens at /run/carve/carved.sock for it", done.stderr)
    assert "systemctl status carved.service" in done.stderr and "journalctl -u carved" in done.stderr


def test_a_unit_where_systemd_does_not_run_is_no_service(inside):
    """A container of an image that has carve installed: users' daemons serve as ever."""
    done = inside(f"""
        mkdir -p /mnt/lib/systemd/system && echo >/mnt/lib/systemd/system/carved.service
        mount --bind /mnt/lib /usr/local/lib || exit 99
        {CARVE} gpu list --json; echo "code $?"
    """)
    assert "code 0" in done.stdout and '"held_by": null' in done.stdout, done.stdout + done.stderr


def test_a_service_with_a_mistake_in_its_configuration(inside):
    """It does not start; users are told, and nobody else takes its GPUs. Once it is mended it has them all."""
    done = inside(f"""
        echo '{{"over_policy": "kil"}}' >/mnt/carved.json
        mkdir /run/carve
        {CARVED} --system --foreground --config /mnt/carved.json; echo "code $?"
        {CARVE} gpu list; echo "code $?"
        CARVE_RUNTIME_DIR=/mnt/own {CARVE} run --vram 2 true; echo "code $?"
        echo '{{}}' >/mnt/carved.json
        serve system --system --config /mnt/carved.json
        {CARVE} gpu list; {CARVE} session request --vram 70; echo "code $?"
    """)
    codes = [part.split()[0] for part in done.stdout.split("code ")[1:]]
    assert codes == ["2", "4", "125", "0"], done.stdout + done.stderr
    assert "over_policy" in done.stderr
    assert "it is the system daemon's, which does not run" in done.stderr
    assert "held by" not in done.stdout


def test_a_daemon_that_is_named_leaves_the_services_gpus(inside):
    """CARVE_RUNTIME_DIR starts one all the same: it grants nothing, and says why; without a service it does."""
    done = inside(f"""
        export CARVE_RUNTIME_DIR=/mnt/own
        mkdir /run/carve
        {CARVE} gpu list
        {CARVE} run --vram 2 true; echo "code $?"
        {CARVE} check
        rmdir /run/carve
        {CARVE} run --ephemeral --vram 2 true; echo "code $?"
        {CARVE} gpu list --json
    """)
    assert "GPU 0 is the system daemon's, which does not run: as root: systemctl start carved.service" in done.stdout
    assert "code 125" in done.stdout and "code 0" in done.stdout, done.stderr
    assert "no GPU can be had: GPU 0 (Fake H100): it is the system daemon's, which does not run; as root: " in done.stderr
    assert "journalctl -u carved" in done.stderr
    assert '"held_by": null' in done.stdout


def test_a_system_daemon_takes_gpus_over_from_a_users(inside):
    """The user's daemon came first, as the service was not there; then it starts, and has them all."""
    done = inside(f"""
        export CARVE_RUNTIME_DIR=/mnt/own
        {CARVE} session request --vram 40 || exit 1
        {CARVE} run --ephemeral --vram 8 sh -c 'echo >/mnt/runs; until [ -e /mnt/enough ]; do sleep 0.1; done; echo >/mnt/end' &
        command=$!
        until [ -e /mnt/runs ]; do sleep 0.1; done
        unset CARVE_RUNTIME_DIR
        serve system --system
        {CARVE} session request --vram 70; echo "code $?"
        own="{CARVE} --host /mnt/own/carved.sock"
        until_says "GPU 0 is the system daemon's (process $(cat /proc/$pid/task/$pid/children | tr -d " ") of root)" $own gpu list
        $own run --ephemeral --vram 1 true; echo "code $?"
        until_says "its GPU is the system daemon's" $own session list --all
        until_says "8 GiB" $own session list
        touch /mnt/enough; wait $command; echo "code $?"; ls /mnt/end
        cat /mnt/own/carved.log
    """)
    codes = [part.split()[0] for part in done.stdout.split("code ")[1:]]
    assert codes == ["0", "125", "0"], done.stdout + done.stderr
    assert "the system daemon has it" in done.stderr and "use the system daemon" in done.stderr
    assert "gpu.left" in done.stdout and "/mnt/end" in done.stdout


def test_a_simulated_host_has_its_own_daemon_all_the_same(inside):
    done = inside(f"""
        mkdir /run/carve
        {CARVE} sim --gpus t4-16gb -- {CARVE} run --vram 2 {BUILD}/examples/matmul; echo "code $?"
    """)
    assert "code 0" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("how", ["-TERM", "-KILL"])
def test_simulated_gpus_that_the_service_had_stay_its_own(inside, how):
    """A server with simulated GPUs, on which the service ended: in order, or not."""
    script = f"""
        serve system --system
        kill {how} $pid; wait $pid
        for dir in own other; do CARVE_RUNTIME_DIR=/mnt/$dir {CARVE} run --ephemeral --vram 2 true; echo code $?; done
        serve system --system; {CARVE} run --ephemeral --vram 2 true; echo code $?; cat /mnt/system.log
    """
    done = inside(f"{CARVE} sim --gpus t4-16gb -- env -u CARVE_RUNTIME_DIR bash -c '{SERVE}{script}'")
    assert [part.split()[0] for part in done.stdout.split("code ")[1:]] == ["125", "125", "0"], done.stdout + done.stderr
    # The simulated host's files are root's alone, so the daemon cannot serve as another user, and says so.
    assert "carved.not_separated reason=\"the driver does not start for the user" in done.stdout
    assert done.stderr.count("it is the system daemon's, which does not run") == 2


def test_another_daemon_that_ended_is_named_no_longer(inside):
    """Within a second, without anybody's asking for a slice."""
    done = inside(f"""
        serve first --runtime-dir /mnt/first; first=$pid
        serve second --runtime-dir /mnt/second
        {CARVE} gpu list --host /mnt/second/carved.sock
        kill -9 $first; wait $first
        until_says '"held_by": null' {CARVE} gpu list --json --host /mnt/second/carved.sock
        echo well
    """)
    assert "held by another daemon (process " in done.stdout and done.stdout.endswith("well\n"), done.stdout + done.stderr
