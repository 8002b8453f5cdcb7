"""Plain sentences in the pages that a newcomer reads first, and in the texts of --help."""
import json
import pathlib
import re
import subprocess

import pytest

from conftest import BUILD, ROOT, clean_env

READERS = ("user", "admin", "dev")
# ADRs tell of their own time, and are left as they were written.
PAGES = sorted(str(p.relative_to(ROOT)) for p in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", ROOT / "src/daemon/README.md", ROOT / "bench/README.md",
                                                  ROOT / "sim/host/README.md", ROOT / "docs/index.md",
                                                  *(p for reader in READERS for p in (ROOT / "docs" / reader).glob("*.md"))))
MANUALS = sorted(p.name for p in (ROOT / "docs/man").iterdir())
WORDS_MOST = 30
README_LINES_MOST = 120
# A clause in place of a noun, and amounts that the line does not name.
OPENS = re.compile(r"^\W*(who|whose|whom|whoever|whatever|what|of)\b", re.I)
# A user, an owner or a program is "it" or "they".
PERSON = re.compile(r"\b(he|his|him|himself|she|hers?|herself)\b", re.I)
VAGUE = re.compile(r"^(such|so (many|long|often|much)|that much)\b", re.I)


def sentences(text):
    """Without headings, tables, examples and the inside of code, each of which counts as a word."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    text = "\n".join("" if line.lstrip().startswith(("|", "#")) or line.startswith("    ") else line
                     for line in text.splitlines())
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        words = re.sub(r"`[^`]*`", "CODE", " ".join(block.split()))
        yield from re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z(*\[])", re.sub(r"^([-*]|\d+\.) ", "", words))


def manual_sentences(text):
    """Of a page's mdoc source: each item and paragraph is read for itself, and its macros are dropped. Not the names of options."""
    text = re.sub(r"^\.Sh (SYNOPSIS|NAME|EXAMPLES|SEE ALSO)\n.*?(?=^\.Sh |\Z)|^\.Bd.*?^\.Ed$", "", text, flags=re.S | re.M)
    for block in re.split(r"^\.(?:Sh|Ss|It|Pp|Bl|El|Dd|Dt|Os|Dl)\b.*$", text, flags=re.M):
        words = re.sub(r"^\.", "", block, flags=re.M)
        words = re.sub(r"\b(Fl|Ar|Pa|Xr|Ql|Dq|Qq|Em|Sy|Pq|Cm|Li|Va|Ev|Ic|Pf|Ns|No|Nm|Op|Po|Pc|Dv)\b", "", words)
        yield from re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z(\"'])", re.sub(r"\s+([.,;:)])", r"\1", " ".join(words.split())))


def wrong_in(found):
    return [s for s in found if len(s.split()) > WORDS_MOST or OPENS.search(s) and not s.endswith("?")]


@pytest.mark.parametrize("page", PAGES)
def test_sentences_of_a_page_are_short_and_begin_with_their_subject(page):
    found = list(sentences((ROOT / page).read_text()))
    assert len(found) > 5
    assert wrong_in(found) == []


@pytest.mark.parametrize("page", MANUALS)
def test_sentences_of_a_manual_page_are_short_and_begin_with_their_subject(page):
    found = list(manual_sentences((ROOT / "docs/man" / page).read_text()))
    assert len(found) > 5
    assert wrong_in(found) == []


def titles(text):
    """A page's headings, and the bold or italic words that open its paragraphs and items."""
    return {title.strip("*_ .:").lower() for pair in re.findall(r"^#+ (.+)$|^(?:[-*] |\d+\. )?\*+([^*\n]+)\*+", text, re.M)
            for title in pair if title}


def test_sections_that_are_named_elsewhere_are_there():
    """As in: docs/dev/daemon.md, "Budgets"."""
    reference = re.compile(r'([\w./-]*\b[\w-]+\.md)`?,\s+(?:[*#/]+\s+)*"([^"\n]+(?:\n[^"\n]+)?)"')
    wrong, found = [], 0
    for name in subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.split():
        file = ROOT / name
        if not file.is_file() or file.suffix in (".svg", ".json", ".png") or file == pathlib.Path(__file__).resolve():
            continue
        for page, title in reference.findall(file.read_text(errors="replace")):
            title = " ".join(re.sub(r"\n\s*[*#/]*", " ", title).split()).lower()
            pages = [p for p in (ROOT / page, file.parent / page) if p.is_file()]
            found += 1
            if not pages or title not in titles(pages[0].read_text()):
                wrong.append((name, page, title))
    assert found > 20
    assert wrong == []


def test_files_that_pages_name_are_there():
    """Below the project's folder, or shortened as pages do; DATE-GPU.md and the like stand for any name."""
    path = re.compile(r"(?<![\w/.<>$}-])([a-z_][\w-]*(?:/[\w*.-]+)+\.(?:c|h|py|md|svg|service))\b(?![/*])")
    folders = [ROOT, BUILD, *(ROOT / f for f in ("src", "src/front", "src/daemon", "include", "tests", "sim", "docs"))]
    wrong, found = [], 0
    for page in [*(ROOT / "docs/dev/adr").glob("*.md"), *(ROOT / page for page in PAGES), *(ROOT / "docs/man").iterdir()]:
        for name in path.findall(page.read_text()):
            if re.search(r"[A-Z]{4}", re.sub("README|CONTRIBUTING", "", name)):
                continue
            found += 1
            if not any(any(folder.glob(name)) for folder in (*folders, page.parent)):
                wrong.append((page.name, name))
    assert found > 100
    assert wrong == []


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= README_LINES_MOST


def carve(*words):
    return subprocess.run([str(BUILD / "carve"), *words], capture_output=True, text=True, env=clean_env(), check=True).stdout


def unclear(text):
    """Lines of a --help that tell what an option does, or its first line: those that do not name the thing or the amount."""
    first = [line for line in text.splitlines()[1:] if line[:1].isalpha() and not line.startswith("usage:")][:1]
    options = re.findall(r"^  --\S+(?: [A-Z][A-Z=,|]*)?\s\s+(?:\(-\w\) )?(.*)", text, re.M)
    return [line for line in first + options if OPENS.search(line) or VAGUE.search(line)]


def test_help_names_things_and_amounts():
    verbs = [verb["name"] for verb in json.loads(carve("help", "--json"))]
    wrong = {verb: unclear(carve("help", *verb.split())) for verb in verbs}
    assert {verb: lines for verb, lines in wrong.items() if lines} == {}


@pytest.mark.parametrize("program", ["carved", "carve-hook", "carve-kubernetes", "carve-metrics", "carve-web"])
def test_help_of_other_programs_names_things_and_amounts(program):
    text = subprocess.run([str(BUILD / program), "--help"], capture_output=True, text=True, env=clean_env(), check=True).stdout
    assert re.search(r"^  --\S+", text, re.M)
    assert unclear(text) == []


def described(node, path=""):
    """[(path, text)]: the texts of docs/openapi.json."""
    if isinstance(node, list):
        return [found for i, part in enumerate(node) for found in described(part, f"{path}/{i}")]
    if not isinstance(node, dict):
        return []
    own = [(path, node[key]) for key in ("description", "summary") if isinstance(node.get(key), str)]
    return own + [found for key, part in node.items() for found in described(part, f"{path}/{key}")]


def test_texts_of_the_api_name_the_thing():
    found = described(json.loads((ROOT / "docs/openapi.json").read_text()))
    assert len(found) > 200
    assert [(path, part) for path, text in found for part in re.split(r"(?<=[.!?;]) +", text)
            if OPENS.search(part) or len(part.split()) > WORDS_MOST] == []


def test_messages_begin_with_their_subject():
    """Texts of the programs; those that begin with a blank go on with another one."""
    wrong, found = [], 0
    for file in sorted((ROOT / "src").rglob("*.[ch]")):
        code = re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m[0]), file.read_text().replace("'\"'", "'q'"), flags=re.S)
        for text in re.finditer(r'"((?:[^"\\\n]|\\.)*)"', code):
            before = code[:text.start()].rstrip()[-1:]
            if before == '"' or " " not in text[1] or len(text[1]) < 20:
                continue
            found += 1
            if OPENS.search(text[1]) and not text[1].startswith(" "):
                wrong.append(f"{file.relative_to(ROOT)}:{code[:text.start()].count(chr(10)) + 1}: {text[1]}")
    assert found > 1000
    assert wrong == []


def comments(text):
    """Comments of C, each as one text. Tables and drawings in them, which are aligned by blanks, are left out."""
    text = re.sub(r'"(?:[^"\\\n]|\\.)*"', lambda m: '"' + "q" * (len(m[0]) - 2) + '"', text.replace("'\"'", "'q'"))
    for comment in re.findall(r"/\*(.*?)\*/", text, re.S):
        lines = [re.sub(r"^\s*\*? ?", "", line, count=1) if i else line for i, line in enumerate(comment.splitlines())]
        yield "\n".join("" if re.search(r"\S {2,}\S|^   ", line) else line for line in lines)


def comment_sentences(text):
    for comment in comments(text):
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) |\w+: )", comment):
            yield from re.split(r"(?<=[.!?])[\"')]*\s+(?=[A-Z(*`\"-])", " ".join(block.split()))


@pytest.mark.parametrize("folder", ["src", "sim", "include"])
def test_comments_are_short_and_begin_with_their_subject(folder):
    wrong, found = [], 0
    for file in sorted((ROOT / folder).rglob("*.[ch]")):
        parts = list(comment_sentences(file.read_text()))
        found += len(parts)
        wrong += [f"{file.relative_to(ROOT)}: {part}" for part in [*wrong_in(parts), *filter(PERSON.search, parts)]]
    assert found > 50
    assert wrong == []


def test_names_of_tests_begin_with_their_subject():
    names = [name for file in (ROOT / "tests").rglob("test_*.[cp]*") if file.suffix in (".c", ".py")
             for name in re.findall(r"^def test_(\w+)\(|^static void (\w+)\(void \*\*", file.read_text(), re.M)]
    found = [python or unit for python, unit in names]
    assert len(found) > 2000
    assert [name for name in found if OPENS.match(name.replace("_", " "))] == []
