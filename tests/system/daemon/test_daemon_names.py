"""Names of users: a user is removed, or renamed, while the daemon runs."""
import os

import pytest

from conftest import BUILD, clean_env, run

CARVE = BUILD / "carve"
OWN_PASSWD = 'cp /etc/passwd "$0" && mount --bind "$0" /etc/passwd || exit 99; exec "$@"'


def with_own_users(tmp_path, script):
    """Runs a script on a simulated host with an /etc/passwd of its own, in which `called NUMBER NAME` gives a number a name."""
    if os.geteuid() != 0:
        pytest.skip("needs root")
    steps = f"""
        called() {{
            grep -v "^[^:]*:[^:]*:$1:" /etc/passwd >$PASSWD.new
            [ -z "$2" ] || echo "$2:x:$1:0::/:/bin/sh" >>$PASSWD.new
            cat $PASSWD.new >/etc/passwd
        }}
        limited() {{ {CARVE} quota list | grep "^user  $1 "; }}
        holding() {{ {CARVE} session list | grep " $1 " && {CARVE} top --once | grep "^$1 "; }}
        until_true() {{ for i in $(seq 100); do "$@" >/dev/null && return; sleep 0.1; done; {CARVE} top --once; exit 1; }}
        {script}"""
    done = run(["unshare", "-m", "--propagation", "private", "sh", "-c", OWN_PASSWD, tmp_path / "passwd",
                CARVE, "sim", "--gpus", "h100-80gb", "--", "sh", "-c", steps], env=clean_env({"PASSWD": str(tmp_path / "passwd")}))
    if done.returncode == 99 or "unshare:" in done.stderr:
        pytest.skip("cannot mount here")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_number_that_goes_to_another_user_has_that_users_name(tmp_path):
    with_own_users(tmp_path, f"""
        called 0 lab1
        {CARVE} session request --vram 1 && {CARVE} quota set lab1 --vram 10 && limited lab1 && holding lab1 || exit 1
        called 0 lab2
        until_true limited lab2; until_true holding lab2
        ! limited lab1 && ! holding lab1 && {CARVE} quota remove lab2""")


def test_a_deleted_users_quota_is_listed_and_removed_by_number(tmp_path):
    out = with_own_users(tmp_path, f"""
        called 54321 lab1
        {CARVE} quota set lab1 --vram 10 && limited lab1 || exit 1
        called 54321
        until_true limited 54321
        {CARVE} quota remove 54321 && {CARVE} quota list""")
    assert out.splitlines()[-1].startswith("KIND")
