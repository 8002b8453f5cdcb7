"""docs/index.md links every guide, and links in Markdown lead to files and to headings that are there."""
import re

import pytest

from conftest import ROOT

READERS = ("user", "admin", "dev")
LINK = re.compile(r"(?<!\\)\[[^\]\n]*(?:\n[^\]\n]*)?\]\(<?([^)\s>]+)>?\)")
PAGES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "src/daemon/README.md", ROOT / "bench/README.md",
                                                  ROOT / "sim/host/README.md", *(ROOT / "docs").rglob("*.md")))


def links(page):
    """The targets of a page's links and pictures, but for those that leave the project, and for examples."""
    text = re.sub(r"^```.*?^```|^    .*?$|`[^`\n]*`", "", (ROOT / page).read_text(), flags=re.S | re.M)
    return [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]


def anchors(text):
    """The names that a page's headings have in links, as GitHub makes them."""
    titles = re.findall(r"^#+ +(.+?) *$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def broken(page):
    for target in links(page):
        name, _, anchor = target.partition("#")
        file = ((ROOT / page).parent / name).resolve() if name else ROOT / page
        if not file.exists() or anchor and anchor not in anchors(file.read_text()):
            yield target


@pytest.mark.parametrize("page", PAGES)
def test_links_of_a_page_lead_to_what_is_there(page):
    assert list(broken(page)) == []


def test_a_link_that_leads_nowhere_is_found(tmp_path):
    (tmp_path / "page.md").write_text("# One two\n[a](page.md#one-two) [b](none.md) ![c](none.png) [d](#three)\n`[e](code)`\n[f](https://example.org)\n")
    assert list(broken(tmp_path / "page.md")) == ["none.md", "none.png", "#three"]


def test_the_readme_links_a_page_for_each_reader_and_its_picture():
    found = links("README.md")
    assert {target.split("/")[1] for target in found if target.startswith("docs/") and target.count("/") > 1} == set(READERS)
    assert {"docs/index.md", "docs/page.png"} <= set(found)


def test_the_index_links_each_guide_once():
    found = [target for target in links("docs/index.md") if target.split("/")[0] in READERS and target.endswith(".md")]
    pages = [f"{reader}/{page.name}" for reader in READERS for page in (ROOT / "docs" / reader).glob("*.md")]
    assert len(pages) > 15 and sorted(found) == sorted(pages)


def test_the_index_has_a_section_for_each_reader():
    sections = dict(re.findall(r"^## (.+?)\n(.*?)(?=^## |\Z)", (ROOT / "docs/index.md").read_text(), re.S | re.M))
    for title, reader in (("For users", "user"), ("For administrators", "admin"), ("For developers", "dev")):
        found = [target.split("/")[0] for target in LINK.findall(sections[title])]
        assert len(found) > 5 and set(found) == {reader}, title
