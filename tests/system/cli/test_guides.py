"""The README, and guides in docs/user/ and docs/admin/: the verbs and options of their commands are there, configurations are right, and the first steps
come out as the pages say."""
import json
import re
import shutil
import subprocess

import pytest

from conftest import BUILD, ROOT, clean_env

ADMIN = sorted((ROOT / "docs/admin").glob("*.md"))
GUIDES = [*sorted((ROOT / "docs/user").glob("*.md")), *ADMIN]
# Pages that may have no command of carve's.
WITHOUT = ("web", "metrics")
# Their options are those of another program, too, or of the command that they start.
MIXED = ("podman", "docker", "apptainer")


def page(name):
    return (ROOT / "docs/user" / name).read_text()


def section(text, title):
    return re.search(rf"^## {title}\n(.*?)(?=^## |\Z)", text, re.S | re.M).group(1)


@pytest.fixture(scope="module")
def verbs():
    done = subprocess.run([str(BUILD / "carve"), "help", "--json"], capture_output=True, text=True, env=clean_env(), check=True)
    return {verb["name"]: set(verb["options"]) | set(re.findall(r"--[a-z-]+", verb["usage"])) for verb in json.loads(done.stdout)}


def commands(text):
    """The words of each command of carve in a page's examples and in code within sentences."""
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.S | re.M)
    plain = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
    lines = [line for block in blocks for line in block.splitlines()] + re.findall(r"^    .*", plain, re.M) + re.findall(r"`([^`\n]+)`", plain)
    for line in lines:
        for part in re.split(r"&&|\|\||[|;]", re.sub(r"\s#\s.*", "", line)):
            found = re.match(r"\s*(?:\$ )?carve ((?:[a-z]|--).*)", part)
            if found:
                yield found[1].split()


def named(words, verbs):
    """The verb of a command: the most of its first words that are a verb."""
    return next((name for count in (2, 1) if (name := " ".join(words[:count])) in verbs), None)


def is_group(words, verbs):
    """`carve job` in a sentence means all verbs that begin so."""
    return len(words) == 1 and any(name.startswith(words[0] + " ") for name in verbs)


def own_options(words):
    """The words before the command that is to run: a word that no option stands before ends them."""
    for before, word in zip(["", *words], words):
        if word == "--" or not word.startswith("-") and not before.startswith("--"):
            return
        if word.startswith("--"):
            yield word.split("=")[0].rstrip(",")


@pytest.mark.parametrize("guide", GUIDES, ids=lambda guide: guide.stem)
def test_commands_of_a_guide_have_verbs_and_options_that_there_are(guide, verbs):
    wrong, found = [], 0
    for words in commands(guide.read_text()):
        name = named(words, verbs)
        if words[0] in (*MIXED, "help", "completion") or words[0].startswith("--") or is_group(words, verbs):
            continue
        rest = words[len(name.split()):] if name else []
        found += 1
        if not name or not {"--help", *verbs[name]} >= set(own_options(rest)):
            wrong.append(" ".join(words))
    assert found or guide.stem in WITHOUT
    assert wrong == []


def configurations(text):
    """The examples of carved.json in a page: objects that begin a line of an example."""
    for found in re.finditer(r'^(?: {4}|```json\n)(?=\{")', text, re.M):
        yield json.JSONDecoder().raw_decode(text, found.end())[0]


def test_configurations_of_the_guides_are_right(tmp_path):
    found = [(guide.stem, config) for guide in ADMIN for config in configurations(guide.read_text())]
    assert {"install", "policies", "mandatory", "metrics"} <= {stem for stem, _ in found}
    wrong = []
    for stem, config in found:
        (tmp_path / "carved.json").write_text(json.dumps(config))
        done = subprocess.run([BUILD / "carved", "--config", tmp_path / "carved.json", "--check-config"], capture_output=True, text=True,
                              env=clean_env())
        if done.returncode:
            wrong.append((stem, config, done.stderr))
    assert wrong == []


def steps(text):
    """[(command, the lines that the page shows below it)] of a section's example."""
    block = re.search(r"^```\n(\$ .*?)^```", text, re.S | re.M).group(1)
    return [(lines[0], lines[1:]) for part in re.split(r"^\$ ", block, flags=re.M)[1:] if (lines := part.splitlines())]


def without_ids(text):
    return re.sub(r"\bs-\w+", "ID", text)


@pytest.mark.parametrize("title", ["Keep a slice for several commands", "When memory runs out"])
def test_the_first_steps_come_out_as_the_guide_shows(make_host, tmp_path, title):
    """On the GPU that the page names."""
    host = make_host("h100-80gb")
    for name in ("prepare.py", "train.py"):
        (tmp_path / name).write_text("")
    shutil.copy(BUILD / "examples/hog", tmp_path / "hog")
    found = steps(section(page("first-slice.md"), title))
    assert found
    for command, shown in found:
        done = host.run(["bash", "-c", command], cwd=tmp_path, env={"PATH": f"{BUILD}:/usr/bin:/bin"})
        assert done.returncode == 0, (command, done.stderr)
        # On a terminal alone carve adds lines of its own.
        assert without_ids(done.stdout).splitlines() == [without_ids(line) for line in shown if not line.startswith("carve: ")]


def test_the_tour_of_the_readme_comes_out_as_it_shows(make_host, tmp_path):
    """But for the shares of time that were received, which take 30 s and differ each time."""
    host = make_host("h100-80gb")
    (tmp_path / "build").symlink_to(BUILD)
    blocks = re.findall(r"^```\n\$ .*?^```", section((ROOT / "README.md").read_text(), "A tour in five commands"), re.S | re.M)
    first, shares = map(steps, blocks)
    assert first[0][0].startswith("build/carve sim --gpus h100-80gb ") and len(first) > 4 and len(shares) > 2
    for command, shown in [*first[1:], *shares[:2]]:
        done = host.run(["bash", "-c", command], cwd=tmp_path)
        assert done.returncode == 0, (command, done.stderr)
        assert without_ids(done.stdout).splitlines() == [without_ids(line) for line in shown]


def test_the_kernel_of_the_guide_starts_in_a_slice(host):
    kernel = json.loads(re.search(r"^```json\n(.*?)^```", page("notebooks.md"), re.S | re.M).group(1))
    start = kernel["argv"][:kernel["argv"].index("python3")]
    done = host.run([BUILD / start[0], *start[1:], BUILD / "examples/hog"])
    assert done.returncode == 0 and "this GPU has 8192 MiB" in done.stdout, done.stderr


@pytest.mark.parametrize("guide, gpus, titles", [
    ("mig.md", "h100-80gb+mig", ["Set a GPU up", "Ask for an instance by its size", "Use several instances", "Several sessions in one instance",
                                 "See the instances"]),
    ("time-slicing.md", "h100-80gb", ["Switch it on", "Draw the leases"]),
])
def test_commands_of_a_guide_work_in_the_order_in_which_one_needs_them(make_host, tmp_path, guide, gpus, titles):
    host = make_host(gpus)
    (tmp_path / "train.py").write_text("")
    lines = [line for title in titles for line in re.findall(r"^(?:    )?(carve .*)", section(page(guide), title), re.M)]
    assert len(lines) >= 4
    for line in lines:
        command = line.replace("CMD", "true").replace("--seconds 10", "--seconds 1")
        done = host.run(["bash", "-c", command], cwd=tmp_path, env={"PATH": f"{BUILD}:/usr/bin:/bin"})
        assert done.returncode == 0, (line, done.stderr)
