"""Plain sentences in the pages that a newcomer reads first, and in the texts of --help."""
import json
import re
import subprocess

import pytest

from conftest import BUILD, ROOT, clean_env

# Pages that keep to it. The others have longer sentences still: add a page when it has none.
PAGES = ("README.md", "CONTRIBUTING.md", "docs/ARCHITECTURE.md", "docs/GLOSSARY.md", "docs/ledger.md", "docs/front.md", "docs/gate.md",
         "docs/timeslicing.md", "docs/queues.md", "docs/containers.md", "docs/mig.md", "docs/kubernetes.md", "docs/security.md",
         "docs/limits.md", "docs/lessons.md")
WORDS_MOST = 30
README_LINES_MOST = 150
# A clause in place of a noun, and amounts that the line does not name.
OPENS = re.compile(r"^\W*(who|whose|whom|whoever|whatever|what|of)\b", re.I)
VAGUE = re.compile(r"^(such|so (many|long|often|much)|that much)\b", re.I)


def sentences(text):
    """Without headings, tables, examples and the inside of code, each of which counts as a word."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = "\n".join("" if line.lstrip().startswith(("|", "#")) or line.startswith("    ") else line
                     for line in text.splitlines())
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        words = re.sub(r"`[^`]*`", "CODE", " ".join(block.split()))
        yield from re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z(*\[])", re.sub(r"^([-*]|\d+\.) ", "", words))


@pytest.mark.parametrize("page", PAGES)
def test_sentences_of_a_page_are_short_and_begin_with_their_subject(page):
    found = list(sentences((ROOT / page).read_text()))
    assert len(found) > 5
    assert [s for s in found if len(s.split()) > WORDS_MOST] == []
    assert [s for s in found if OPENS.search(s) and not s.endswith("?")] == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MOST


def carve(*words):
    return subprocess.run([str(BUILD / "carve"), *words], capture_output=True, text=True, env=clean_env(), check=True).stdout


def test_help_names_things_and_amounts():
    wrong = []
    for verb in json.loads(carve("help", "--json")):
        text = carve("help", *verb["name"].split())
        what = [line for line in text.splitlines()[1:] if line[:1].isalpha() and not line.startswith("usage:")][:1]
        options = re.findall(r"^  --\S+(?: [A-Z][A-Z=,|]*)?\s\s+(?:\(-\w\) )?(.*)", text, re.M)
        wrong += [f"{verb['name']}: {line}" for line in what + options if OPENS.search(line) or VAGUE.search(line)]
    assert wrong == []
