"""The work of Debian's package on the services of a host, by its own scripts and a systemctl that only remembers."""
import os
import shutil

import pytest

from conftest import ROOT, run

SCRIPTS = ROOT / "packaging" / "debian"
SERVICE, SOCKETS = "carved.service", ["carved-attach.socket", "carved.socket"]
UNITS = sorted([*SOCKETS, SERVICE])
pytestmark = pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("unshare"), reason="needs root, for mounts of its own")

SYSTEMCTL = """#!/bin/sh
verb=$1
shift
[ "$verb" != try-restart ] || echo "$verb $*" >>"$STATE/restarts"
for unit; do
	case "$verb $unit" in
	*\\ -*) ;;
	is-enabled*) [ -e "$STATE/enabled/$unit" ] || exit 1 ;;
	is-active*) [ -e "$STATE/active/$unit" ] || exit 3 ;;
	enable*) [ ! -e "$STATE/masked/$unit" ] || exit 1; touch "$STATE/enabled/$unit" ;;
	start*) [ ! -e "$STATE/masked/$unit" ] || exit 1; touch "$STATE/active/$unit" ;;
	stop*) rm -f "$STATE/active/$unit" ;;
	disable*) rm -f "$STATE/enabled/$unit" "$STATE/active/$unit" ;;
	esac
done
"""
# The directories of the host that the scripts write to are empty, and of this process alone.
PRIVATE = """for directory in /run /etc /var/lib; do mount -t tmpfs none $directory; done
[ -n "$IMAGE" ] || mkdir -p /run/systemd/system
mkdir -p /run/carve-claims /var/lib/carve /etc/systemd/system/multi-user.target.wants
touch /etc/systemd/system/multi-user.target.wants/carved.service
sh "$@"
ls -d /run/carve-claims /var/lib/carve /etc/systemd/system/*.wants/* 2>/dev/null || true"""


class Host:
    def __init__(self, directory):
        self.directory = directory
        for name in ("bin", "enabled", "active", "masked"):
            (directory / name).mkdir()
        for name, text in {"systemctl": SYSTEMCTL, "carved": '#!/bin/sh\necho "$*" >>"$STATE/carved"\n',
                           **dict.fromkeys(("getent", "groupadd", "useradd", "systemd-tmpfiles"), "#!/bin/sh\n")}.items():
            (directory / "bin" / name).write_text(text)
            (directory / "bin" / name).chmod(0o755)

    def script(self, name, *words, image=False):
        """The directories and links that are left. In an image no systemd runs."""
        env = {**os.environ, "IMAGE": "1" if image else "", "PATH": f"{self.directory}/bin:{os.environ['PATH']}", "STATE": str(self.directory)}
        done = run(["unshare", "--mount", "--propagation", "private", "sh", "-ec", PRIVATE, "sh", SCRIPTS / f"carve.{name}", *words], env=env)
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    def units(self, state):
        return sorted(path.name for path in (self.directory / state).iterdir())

    def lines(self, name):
        file = self.directory / name
        return file.read_text().splitlines() if file.exists() else []

    def calls(self):
        return self.lines("carved")

    def restarts(self):
        return self.lines("restarts")


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


@pytest.fixture
def installed(host):
    host.script("postinst", "configure", "")
    return host


def test_a_first_installation_enables_and_starts_the_services(installed):
    assert installed.units("enabled") == installed.units("active") == UNITS


def test_an_installation_into_an_image_enables_the_services_for_its_first_boot(host):
    host.script("postinst", "configure", "", image=True)
    assert host.units("enabled") == UNITS and host.units("active") == []


def test_an_upgrade_leaves_the_daemon_to_its_sessions(installed):
    installed.script("prerm", "upgrade", "2.0")
    assert installed.units("active") == UNITS and installed.calls() == []
    installed.script("postrm", "upgrade", "2.0")
    installed.script("postinst", "configure", "1.0")
    assert installed.units("active") == UNITS and installed.calls() == []
    # Both at once: a daemon of the new units finds the warden of the new program.
    assert installed.restarts() == ["try-restart carve-metrics.service carve-web.service", "try-restart carve-warden.service carved.service"]


def test_a_service_that_was_disabled_stays_so_over_an_upgrade(installed):
    for unit in UNITS:
        (installed.directory / "enabled" / unit).unlink()
        (installed.directory / "active" / unit).unlink()
    installed.script("postinst", "configure", "1.0")
    assert installed.units("enabled") == installed.units("active") == []


def test_a_masked_service_does_not_fail_the_installation(host):
    (host.directory / "masked" / SERVICE).touch()
    host.script("postinst", "configure", "")
    assert SERVICE not in host.units("active")


def test_a_removal_that_is_broken_off_starts_the_services_again(installed):
    installed.script("prerm", "remove", "in-favour", "other", "1.0")
    assert installed.units("active") == []
    installed.script("postinst", "abort-remove", "in-favour", "other", "1.0")
    assert installed.units("active") == UNITS


def test_an_installation_after_a_removal_is_as_before(installed):
    for word in ("prerm", "postrm"):
        installed.script(word, "remove")
    installed.script("postinst", "configure", "1.0")
    assert installed.units("enabled") == installed.units("active") == UNITS


def test_a_removal_keeps_the_data_and_a_purge_forgets_all(installed):
    """The program itself, which prerm still has, removes what is in /run: it knows whose that is."""
    link = "/etc/systemd/system/multi-user.target.wants/carved.service"
    installed.script("prerm", "remove")
    assert installed.calls() == ["--system --clear"]
    assert installed.script("postrm", "remove") == [link, "/run/carve-claims", "/var/lib/carve"]
    assert installed.script("postrm", "purge") == ["/run/carve-claims"]


@pytest.mark.parametrize("image", [True, False])
def test_a_removal_leaves_the_gpus_to_users_daemons_where_no_systemd_runs(host, image):
    host.script("prerm", "remove", image=image)
    assert host.calls() == ["--system --clear"]


@pytest.mark.parametrize("words", [("abort-upgrade", "1.0"), ("abort-deconfigure", "in-favour", "other", "1.0")])
def test_an_upgrade_that_is_broken_off_changes_nothing(installed, words):
    installed.script("postinst", *words)
    assert installed.units("active") == UNITS and installed.calls() == []
