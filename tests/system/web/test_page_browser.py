"""The page in Debian's Chromium, on a simulated host with slices, a request that waits, jobs, and leases."""
import os
import pathlib

import pytest

from browser import Browser
from daemon_client import GIB
from own_daemon import Asker, make_daemon  # noqa: F401: a fixture
from queueing import queues  # noqa: F401: a fixture
from unix_port import Port

# Chromium takes more processor time than all else in the gate.
pytestmark = pytest.mark.long
EVIL = "<img src=x onerror=alert(1)>\"'&amp;"


@pytest.fixture
def browser(tmp_path):
    one = Browser(tmp_path / "chromium")
    yield one
    one.close()


@pytest.fixture
def page(make_daemon, browser):
    """A daemon with two GPUs, a slice, and a request that waits; the browser shows its page."""
    daemon = make_daemon(gpus=((80 * GIB, 0, 3 * GIB, "Fake H100"), (40 * GIB, 0, 0, "Fake A100")))
    port = Port(daemon.runtime / "carved.sock")
    daemon.busy = [(0, 40)]
    daemon.write_state()
    daemon.address = f"http://localhost:{port.number}/"
    yield daemon
    port.close()


def show(browser, page, width=1440, height=1200, dark=False):
    browser.size(width, height, dark)
    browser.go(page.address)
    browser.wait("return document.querySelector('#status').dataset.state === 'live'")


def test_a_slice_shows_what_it_asked_for_and_goes_when_it_is_released(browser, page):
    session = page.grant(vram="4", name="train")
    show(browser, page)
    slices = browser.text("#slices")
    assert "train" in slices and session["id"] in slices and "0 of 4 Gi" in slices
    assert "GPU 0" in browser.text("#gpus") and "train" in browser.text("#gpus") and "outside" in browser.text("#gpus")
    assert "Nobody waits" in browser.text("#waiting")
    browser.wait("return document.querySelector('#gpus').innerText.includes('busy 40%')")
    assert "20%" in browser.text("#summary")
    assert page.call("PUT", "/v1/drains", {"drain": True, "gpu_ids": "1", "reason": "a new fan"}).status == 200
    browser.wait("return document.querySelector('#gpus').innerText.includes('a new fan')")
    # Nobody loads the page again: news come by themselves.
    page.release(session["id"])
    browser.wait("return document.querySelector('#slices').innerText.includes('No slice is held')")
    assert browser.complaints() == []


def test_a_request_that_waits_shows_its_reason(browser, page):
    first = page.grant(vram="70", gpu_ids="0")
    page.grant(vram="35", gpu_ids="1")
    waiter = Asker(page, vram="30", wait_for=600, name="later")
    show(browser, page)
    browser.wait("return document.querySelector('#waiting').innerText.includes('later')")
    assert "not enough GPU memory" in browser.text("#waiting")
    page.release(first["id"])
    waiter.join()
    assert waiter.answer.status == 201
    browser.wait("return document.querySelector('#slices').innerText.includes('later')")


def test_names_are_text_and_never_html(browser, page):
    """The daemon refuses most of such names; the page does not rely on it."""
    page.grant(vram="4", name="plain")
    show(browser, page)
    browser.run(f"""return import('/web/slices.js').then(({{slices}}) => {{
        document.querySelector('#slices .body').replaceChildren(...slices([{{id: {EVIL!r}, name: {EVIL!r}, owner: {EVIL!r}, state: {EVIL!r},
            reason: {EVIL!r}, created: '2026-01-01T00:00:00Z', gpus: [], pids: [], vram_bytes: 1}}], Date.now()));
        return true; }})""")
    assert browser.run("return document.querySelectorAll('#slices img').length") == 0
    assert browser.text("#slices").count("<img src=x") >= 3


@pytest.mark.parametrize("width, height", [(360, 800), (768, 1024), (1280, 720), (1920, 1080)])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_the_window(browser, page, width, height, dark):
    page.grant(vram="4", name="n" * 60)
    page.call("PUT", "/v1/timeslicing", {"mode": "fair"})
    show(browser, page, width, height, dark)
    assert browser.run("return document.documentElement.scrollWidth") <= width
    back = browser.run("return getComputedStyle(document.body).backgroundColor")
    assert (back == "rgb(15, 20, 25)") == dark, back
    pictures = os.environ.get("CARVE_TEST_PICTURES")
    if pictures:
        pathlib.Path(pictures, f"page-{width}-{'dark' if dark else 'light'}.png").write_bytes(browser.picture())


def test_keys_filter_and_go_to_sections(browser, page):
    page.grant(vram="4", name="alpha")
    page.grant(vram="4", name="beta")
    show(browser, page)
    browser.press("/")
    assert browser.run("return document.activeElement.id") == "filter"
    browser.press("beta")
    browser.wait("return !document.querySelector('#slices').innerText.includes('alpha')")
    assert "beta" in browser.text("#slices")
    browser.press(["Escape"])
    browser.wait("return document.querySelector('#slices').innerText.includes('alpha')")
    browser.press("2")
    assert browser.run("return document.activeElement.id") == "gpus"
    browser.press("t")
    assert browser.run("return document.documentElement.dataset.theme") == "dark"


def test_a_daemon_that_goes_is_told_and_one_that_comes_back_is_shown(browser, page):
    page.grant(vram="4", name="train")
    show(browser, page)
    page.stop()
    browser.wait("return document.querySelector('#status').dataset.state === 'lost'")
    page.start()
    browser.wait("return document.querySelector('#status').dataset.state === 'live'")
    assert "train" in browser.text("#slices")


@pytest.fixture
def queue_page(queues):  # noqa: F811: the fixture
    """A host with an agent, whose daemon's page has an address."""
    queues.agent("half=0.5")
    port = Port(queues.host.env["CARVE_RUNTIME_DIR"] + "/carved.sock")
    queues.address = f"http://localhost:{port.number}/"
    yield queues
    port.close()


def test_enter_on_a_job_shows_its_log_and_follows_it(browser, queue_page):
    odd = "printf '%s \\033[31mred\\007\\n' \"$EVIL\"; " + queue_page.gate() + "; echo later"
    queue_page.host.env["EVIL"] = EVIL
    id = queue_page.enqueue("sh", "-c", odd)
    queue_page.wait_state(id, "running")
    show(browser, queue_page)
    browser.wait(f"document.querySelector('[data-job=\"{id}\"]')?.focus(); return document.activeElement.dataset.job === '{id}'")
    browser.press(["Enter"])
    browser.wait("return document.querySelector('#log-text').textContent.includes('red')")
    text = browser.run("return document.querySelector('#log-text').textContent")
    assert f"{EVIL} \\x1b[31mred\\x07\n" in text
    assert browser.run("return document.querySelectorAll('#log img').length") == 0
    assert f"Log of job {id}" in browser.text("#log") and "follows" in browser.text("#log-state")
    queue_page.open_gate()
    browser.wait("return document.querySelector('#log-text').textContent.endsWith('later\\n')")
    browser.wait("return document.querySelector('#log-state').textContent === 'the job has ended'")
    browser.press(["Escape"])
    assert browser.run("return document.querySelector('#log').hidden && document.activeElement.dataset.job") == id
    assert browser.complaints() == []


def test_a_click_shows_the_last_part_of_a_long_log(browser, queue_page):
    id = queue_page.enqueue("seq", "1", "200000")
    queue_page.ended(id)
    show(browser, queue_page, 360, 800)
    browser.wait(f"document.querySelector('[data-job=\"{id}\"]')?.click(); return !document.querySelector('#log').hidden")
    browser.wait("return document.querySelector('#log-text').textContent.endsWith('200000\\n')")
    text = browser.run("return document.querySelector('#log-text').textContent")
    assert "left out" in text and len(text) <= 33 * 1024
    assert browser.run("return document.documentElement.scrollWidth") <= 360
    browser.run("document.querySelector('#log-close').click()")
    assert browser.run("return document.querySelector('#log').hidden && !document.querySelector('#log-text').textContent")


def test_output_in_a_file_of_the_jobs_own_is_not_shown(browser, queue_page, tmp_path):
    id = queue_page.enqueue("echo", "secret", options=("--output", tmp_path / "own"))
    queue_page.ended(id)
    show(browser, queue_page)
    browser.wait(f"document.querySelector('[data-job=\"{id}\"]')?.click(); return !document.querySelector('#log').hidden")
    browser.wait(f"return document.querySelector('#log-state').textContent.includes('carve job logs {id}')")
    assert browser.text("#log-text") == ""


def test_the_page_keeps_the_last_part_of_a_log_that_grows(browser, queue_page):
    """Parts of a daemon's that is made up: a job that prints 4 MiB while it is followed."""
    show(browser, queue_page)
    kept = browser.run("""return import('/web/log.js').then(async ({open, follow}) => {
        let at = 0;
        const get = async () => { const from = at; at += 32768; return {attempt: 1, from, next: at, size: at < 4 << 20 ? at + 1 : at, ended: at >= 4 << 20,
            text: `${String(from).padStart(32767, 'x')}\\n`}; };
        open('9');
        await follow(get);
        return document.querySelector('#log-text').textContent; })""")
    assert len(kept) <= 256 * 1024 and kept.endswith(f"{(4 << 20) - 32768}\n")
    assert kept.count("\n") == 8
