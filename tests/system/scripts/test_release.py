"""The version of meson.build, wherever else it has to be named."""
import re

import pytest

from conftest import BUILD, ROOT, VERSION, run

IMAGE = r"\bcarve:(\d[\d.]*\d)"
PLACES = {
    "packaging/Containerfile": r"carve:([\d.]+) ",
    "packaging/kubernetes/base/kustomization.yaml": r'newTag: "([^"]+)"',
    "packaging/kubernetes/chart/Chart.yaml": r'(?:^version: |^appVersion: ")([\d.]+)',
    "packaging/kubernetes/reservation/kustomization.yaml": r"carve:([\d.]+)\"",
    **{str(page.relative_to(ROOT)): IMAGE for page in sorted((ROOT / "docs").rglob("*.md")) if re.search(IMAGE, page.read_text())},
    **{f"docs/man/{page.name}": r"^\.Os carve (.+)" for page in sorted((ROOT / "docs/man").iterdir())},
}


@pytest.mark.parametrize("place", PLACES)
def test_a_place_that_names_the_version_names_this_one(place):
    assert set(re.findall(PLACES[place], (ROOT / place).read_text(), re.M)) == {VERSION}


@pytest.mark.parametrize("program", ["carve", "carved", "carve-hook", "carve-kubernetes", "carve-metrics", "carve-web"])
def test_a_program_says_this_version(program):
    assert run([BUILD / program, "--version"]).stdout == f"{program} {VERSION}\n"


def test_the_list_of_changes_begins_with_this_version_and_each_has_a_date():
    headings = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert headings[0].startswith(f"{VERSION} ")
    numbers = [re.fullmatch(r"([\d.]+) \(20\d\d-\d\d-\d\d\)", heading)[1] for heading in headings]
    assert numbers == sorted(set(numbers), key=lambda number: [int(part) for part in number.split(".")], reverse=True)
