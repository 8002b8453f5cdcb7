"""The manual pages: one for each verb, every option in it, and none that the formatter complains of."""
import json
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, clean_env

PAGES = ROOT / "docs" / "man"


def verbs():
    done = subprocess.run([str(BUILD / "carve"), "help", "--json"], capture_output=True,
                          env=clean_env(), check=True)
    return json.loads(done.stdout)


def page_of(verb):
    own = PAGES / f"carve-{verb.split()[0]}.1"
    return own if own.exists() else PAGES / "carve.1"


def plain(page):
    """A page's words, as its source has them: mdoc writes --x as Fl -x."""
    return page.read_text().replace("\\-", "-")


def options_in(page):
    return {"--" + name for name in re.findall(r"\bFl -([a-z][a-z-]*)", plain(page))}


def test_every_verb_and_option_stands_in_its_page():
    for verb in verbs():
        page = page_of(verb["name"])
        for word in verb["name"].split():
            assert re.search(rf"\b{word}\b", plain(page)), (verb["name"], page.name)
        missing = set(verb["options"]) - options_in(page)
        assert not missing, f"{page.name} lacks {missing} of {verb['name']}"


def test_no_page_has_an_option_that_no_verb_takes():
    known = {"--version"}
    for verb in verbs():
        known |= set(verb["options"])
        known |= set(re.findall(r"--[a-z-]+", verb["usage"]))
    for page in PAGES.glob("carve*.1"):
        assert options_in(page) <= known, page.name


def test_every_page_is_named_in_carve_1():
    text = plain(PAGES / "carve.1")
    for page in PAGES.glob("*.[138]"):
        if page.name != "carve.1":
            assert f".Xr {page.stem} {page.suffix[1]}" in text


def test_carve_1_has_the_sections_and_the_order_of_help():
    """A line of the page may name several commands (podman, docker, apptainer), and a command may have its second word there."""
    sections, found = {}, None
    for line in plain(PAGES / "carve.1").splitlines():
        if line.startswith(".S"):
            found = line.removeprefix(".Ss ").removeprefix(".Sh ")
        elif line.startswith(".It Cm "):
            words = re.split(r" (?:Ar|Op) ", line.removeprefix(".It Cm "))[0]
            sections.setdefault(found, []).extend(word.split()[0] for word in words.split(" , "))
    wanted = {}
    for verb in verbs():
        names = wanted.setdefault(verb["section"], [])
        if verb["name"].split()[0] not in names:
            names.append(verb["name"].split()[0])
    assert len(wanted) > 5
    assert {title: sections.get(title) for title in wanted} == wanted


def test_the_daemons_page_has_its_options():
    done = subprocess.run([str(BUILD / "carved"), "--help"], capture_output=True, text=True,
                          env=clean_env(), check=True)
    assert set(re.findall(r"--[a-z-]+", done.stdout)) - {"--unix-socket"} == \
        options_in(PAGES / "carved.8")


@pytest.mark.parametrize("page", sorted(p.name for p in PAGES.glob("*.[138]")))
def test_pages_format_without_warnings(page):
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    done = subprocess.run(["groff", "-mandoc", "-Tutf8", "-ww", "-z", str(PAGES / page)],
                          capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""


JSON_BEGINS = re.compile(r'\{\s*"')


def printed(page):
    """A page as a reader sees it, without bold type."""
    return subprocess.run(["groff", "-mandoc", "-Tascii", "-P-cbou", str(page)], capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("page", sorted(p.name for p in PAGES.glob("*.[138]")))
def test_json_in_a_page_is_json_when_it_is_printed(page):
    """mdoc takes quotes in the arguments of a macro such as .Dl as its own."""
    if not shutil.which("groff"):
        pytest.skip("groff is not installed")
    shown = printed(PAGES / page)
    objects = len(JSON_BEGINS.findall(plain(PAGES / page).replace("\\(dq", '"')))
    assert len(JSON_BEGINS.findall(shown)) == objects
    at = 0
    while found := JSON_BEGINS.search(shown, at):
        at = json.JSONDecoder().raw_decode(shown, found.start())[1]


def test_sizes_in_examples_are_granted_on_the_default_host(host):
    examples = [line for page in PAGES.glob("*.[138]") for line in re.findall(r"^\.Dl (carve .*)", plain(page), re.M)]
    examples += [verb["example"] for verb in verbs()]
    sizes = {found for line in examples if "quota" not in line for found in re.findall(r"--(?:vram|gpu-memory) \S+", line)}
    assert len(sizes) > 3
    for size in sizes:
        explained = host.carve_json("explain", *size.split())
        assert explained["granted"], (size, explained["message"])


SOURCE_TREE = re.compile(r"(?<![\w/.-])(?:docs|packaging|scripts|examples|bench|src|tests|build|systemd)/[\w./-]+")


def messages():
    """{file: its literal texts}; neighbours are one text, as the compiler has them."""
    for path in sorted((ROOT / "src").rglob("*.c")):
        text = re.sub(r"/\*.*?\*/|//[^\n]*|#include[^\n]*", "", path.read_text(), flags=re.S)
        yield path, re.findall(r'"((?:[^"\\\n]|\\.)*)"', re.sub(r'"\s*"', "", text))


def test_pages_and_messages_name_no_file_of_the_source_tree():
    """Who installed carve has none."""
    wrong = {page.name: SOURCE_TREE.findall(plain(page)) for page in PAGES.glob("*.[138]")}
    for path, texts in messages():
        # It looks for the parts of a build that is not installed.
        if path.name != "places.c":
            wrong[path.name] = SOURCE_TREE.findall("\n".join(texts))
    assert {name: found for name, found in wrong.items() if found} == {}


def test_each_setting_of_the_daemon_stands_in_its_page_and_in_its_document():
    text = (ROOT / "src/daemon/config.c").read_text()
    names = re.findall(r'\bFIELD\(\w+, "(\w+)"', text)
    assert "slicing_policy" in names and len(names) > 5
    for name in names:
        assert name in plain(PAGES / "carved.8"), name
        assert f"`{name}`" in (ROOT / "docs/dev/daemon.md").read_text() or name in ("timeSlicing", "global"), name  # ClearML's names
