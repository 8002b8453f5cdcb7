"""docs/dev/glossary.md: one word for one concept, in all that a person reads."""
import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]
GLOSSARY = (ROOT / "docs/dev/glossary.md").read_text()
TERMS = re.findall(r"^- \*\*(.+?)\*\*: ", GLOSSARY, re.M)
REFUSED = [word for row in re.findall(r"^\| (.+?) \| .+? \|$", GLOSSARY.split("## Words that are not used")[1], re.M)
           for word in row.split(", ") if word != "not"]


def texts():
    """{page: text}. docs/dev/adr/ tells of former times, and docs/measurements/ has what was printed then."""
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "docs/openapi.json", ROOT / "docs/index.md",
             *(page for reader in ("user", "admin", "dev") for page in (ROOT / "docs" / reader).glob("*.md")), *(ROOT / "docs/man").iterdir(),
             *(p for top in ("src", "include", "bench", "packaging") for p in (ROOT / top).rglob("*")
               if p.suffix in (".c", ".h", ".py", ".yaml", ".md", ".toml"))]
    return {p.relative_to(ROOT): p.read_text() for p in pages if p.name != "glossary.md"}


def pattern(words):
    """Also where a line of text or of a comment ends between the words."""
    return re.compile(r"\b" + r"\s+(?:\* )?".join(map(re.escape, words.split())) + r"s?\b", re.I)


def test_terms_are_in_alphabetical_order_and_one_line_each():
    assert len(TERMS) > 50
    assert TERMS == sorted(TERMS, key=str.lower)
    assert len(TERMS) == len(set(TERMS))
    listed = GLOSSARY.split("## Words")[0].split("\n\n", 2)[2].splitlines()
    assert [line for line in listed if line and not line.startswith("- **")] == []


def test_each_term_is_used_outside_of_the_glossary():
    everything = "\n".join(texts().values())
    assert [t for t in TERMS if not pattern(re.sub(r" \(.*", "", t)).search(everything)] == []


@pytest.mark.parametrize("words", REFUSED)
def test_a_second_word_for_a_concept_is_used_nowhere(words):
    wrong = [f"{page}:{text[:m.start()].count(chr(10)) + 1}: {m[0]}" for page, text in texts().items()
             for m in pattern(words).finditer(text)]
    assert wrong == []


def test_pages_for_newcomers_name_the_glossary():
    for page in ("README.md", "CONTRIBUTING.md", "docs/dev/architecture.md"):
        assert "docs/dev/glossary.md" in (ROOT / page).read_text(), page
