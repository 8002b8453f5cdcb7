"""scripts/demo tells its story, and ends with a picture of the page, which scripts/page-picture makes with a Chromium that is there."""
import json
import os
import shutil
import struct
import subprocess
import sys

import pytest

from conftest import BUILD, ROOT, clean_env, run, sim_run

PICTURE = ROOT / "build/demo-page.png"
own_network = pytest.mark.skipif(
    subprocess.run(["unshare", *([] if os.geteuid() == 0 else ["--user", "--map-root-user"]), "--net", "true"], capture_output=True).returncode != 0,
    reason="needs to make a network of its own")
pytestmark = [pytest.mark.skipif(BUILD != ROOT / "build", reason="the demo runs from build/"), pytest.mark.xdist_group("demo")]

# It writes what it was given to see, in place of a picture.
BROWSER = f"""#!{sys.executable}
import json, os, sys, urllib.request
options = dict(word.partition("=")[::2] for word in sys.argv[1:])
def get(path):
    with urllib.request.urlopen(sys.argv[-1] + path) as answer:
        return answer.read().decode()
json.dump({{"page": get(""), "sessions": json.loads(get("v1/sessions")), "network": os.readlink("/proc/self/ns/net")}},
          open(options["--screenshot"], "w"))
"""


def env_with_browser(directory, text):
    (directory / "chromium").write_text(text)
    (directory / "chromium").chmod(0o755)
    return clean_env({"PATH": f"{directory}:{os.environ['PATH']}"})


def demo(env):
    done = sim_run("h100-80gb", [ROOT / "scripts/demo", "--story", "1"], env=env, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "CUDA_ERROR_OUT_OF_MEMORY" in done.stdout and "http://localhost:8080/" in done.stdout
    return done.stdout


@own_network
def test_the_demo_ends_with_a_picture_of_the_page_while_both_programs_ran(tmp_path):
    assert "    build/demo-page.png: " in demo(env_with_browser(tmp_path, BROWSER))
    seen = json.loads(PICTURE.read_text())
    assert "<title>" in seen["page"] and sorted(one["vram_bytes"] >> 30 for one in seen["sessions"]) == [2, 4]
    # Nobody else of this machine could reach the port.
    assert seen["network"] != os.readlink("/proc/self/ns/net")


def test_a_browser_that_fails_does_not_fail_the_demo(tmp_path):
    PICTURE.write_text("an old one")
    said = demo(env_with_browser(tmp_path, "#!/bin/sh\nexit 7\n"))
    assert "    No picture of it was made: " in said and "build/demo-page.png" not in said
    assert not PICTURE.exists()


def test_without_a_browser_nothing_is_installed(tmp_path):
    done = run([sys.executable, ROOT / "scripts/page-picture", tmp_path / "socket", tmp_path / "picture"], env=clean_env({"PATH": str(tmp_path)}))
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "no Chromium is here\n")


@pytest.mark.long
@own_network
@pytest.mark.skipif(not shutil.which("chromium"), reason="needs chromium")
def test_chromium_makes_a_picture_of_the_whole_page(host, tmp_path):
    assert host.carve("session", "request", "--vram", "4").returncode == 0
    done = run([ROOT / "scripts/page-picture", host.env["CARVE_RUNTIME_DIR"] + "/carved.sock", tmp_path / "picture.png"])
    assert done.returncode == 0, done.stderr
    data = (tmp_path / "picture.png").read_bytes()
    assert data.startswith(b"\x89PNG") and struct.unpack(">II", data[16:24]) == (1280, 1000)
