"""scripts/build: a checkout that was copied with its build directory, a build of a few targets, what a build says."""
import json
import re
import shutil

import pytest

from conftest import BUILD, ROOT, clean_env, run


def small_project(place, programs, source):
    (place / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/build", place / "scripts")
    (place / "scripts/install-packages").write_text("#!/bin/sh\n")
    (place / "scripts/install-packages").chmod(0o755)
    (place / "meson.build").write_text("project('small', 'c')\n" + "".join(f"executable('{name}', '{name}.c')\n" for name in programs))
    for name in programs:
        (place / f"{name}.c").write_text(source)


def test_a_copied_checkout_builds_anew(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    small_project(first, ["small"], "int main(void) { return 0; }\n")

    def build(place):
        done = run([place / "scripts/build"], env=clean_env())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    assert "anew" not in build(first)
    shutil.copytree(first, second)
    assert f"build/ was made for {first}: building anew" in build(second)
    assert (second / "build/small").exists() and "anew" not in build(second)


def test_only_the_targets_that_are_named_are_built(tmp_path):
    small_project(tmp_path / "x", ["one", "two"], "int main(void) { return 0; }\n")
    done = run([tmp_path / "x/scripts/build", "two"], env=clean_env())
    assert done.returncode == 0, done
    assert (tmp_path / "x/build/two").exists() and not (tmp_path / "x/build/one").exists()
    done = run([tmp_path / "x/scripts/build", "--fast"], env=clean_env())
    assert done.returncode == 2 and done.stderr.startswith("usage: scripts/build"), done


built_by_meson = pytest.mark.skipif(not (BUILD / "build.ninja").exists(), reason="the programs under test are no build directory of meson")


def commands_of(target):
    return run(["ninja", "-C", BUILD, "-t", "commands", target], env=clean_env()).stdout


def built_by(commands):
    """The files that commands write: those of the compiler, and those of generators."""
    return set(re.findall(r" -o (\S+)", commands)) | set(re.findall(r" --output (\S+)", commands))


def run_uninstalled(text):
    """The programs of build/ that a text runs, and the kernels that those load."""
    programs = set(re.findall(r"\bbuild/(carve|examples/\w+)\b", text))
    sources = [ROOT / f"{name}.c" for name in programs if name.startswith("examples/")]
    return programs | {name for source in sources for name in re.findall(r"/\.\./(tests/[\w/]+\.ptx)", source.read_text())}


@built_by_meson
def test_the_target_demo_builds_what_the_demo_and_the_readme_run_and_little_else():
    built = built_by(commands_of("demo"))
    needed = {"carved", "sim/simhost", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1", "src/front/libcuda.so.1", "src/front/libnvidia-ml.so.1"}
    needed |= run_uninstalled((ROOT / "README.md").read_text())
    needed |= run_uninstalled((ROOT / "scripts/demo").read_text().replace("$examples", "build/examples"))
    assert {"carve", "examples/matmul", "examples/hog", "tests/kernels/matmul.ptx"} <= needed <= built
    assert [name for name in built if re.match("bench/|tests/(?!kernels/)|src/integrations/|carve-", name)] == []


@built_by_meson
def test_the_target_programs_builds_what_is_installed():
    targets = json.loads((BUILD / "meson-info/intro-targets.json").read_text())
    wanted = {name for target in targets if target["installed"] and target["type"] in ("executable", "shared library")
              for name in target["filename"]}
    wanted = {name.removeprefix(f"{BUILD}/") for name in wanted}
    commands = commands_of("programs")
    assert "carve-metrics" in wanted
    assert {name for name in wanted if not re.search(rf" -o {re.escape(name)}(?: |$)", commands, re.M)} == set()
    assert {"completion zsh", "completion bash", "completion fish"} <= set(re.findall(r"completion \w+", commands))


def test_a_build_that_fails_shows_what_the_compiler_said(tmp_path):
    small_project(tmp_path / "x", ["one"], "int main(void) { return nothing; }\n")
    done = run([tmp_path / "x/scripts/build"], env=clean_env())
    assert done.returncode != 0 and "one.c:1" in done.stderr and "nothing" in done.stderr, done


def test_a_long_build_says_in_a_pipe_how_far_it_is(tmp_path):
    """The build is a stand-in for ninja, which takes its time for its second step of three."""
    small_project(tmp_path / "x", ["one"], "int main(void) { return 0; }\n")
    tools = tmp_path / "bin"
    tools.mkdir()
    (tools / "ninja").write_text("#!/bin/sh\n[ \"$1\" = -C ] || exit 0\necho '[1/3] one'; sleep 6; echo '[2/3] two'; echo '[3/3] three'\n")
    (tools / "ninja").chmod(0o755)
    (tmp_path / "x/build").mkdir()
    (tmp_path / "x/build/build.ninja").write_text("")
    done = run([tmp_path / "x/scripts/build"], env=clean_env({"PATH": f"{tools}:/usr/bin:/bin"}))
    assert (done.returncode, done.stderr, done.stdout) == (0, "", "Building into build/\n  2 of 3 steps done\n")


def test_the_format_of_an_unpacked_archive_is_checked_without_git(tmp_path):
    """Its builds are left out, as git leaves them out."""
    for name in ("scripts", "src", "build/src"):
        (tmp_path / name).mkdir(parents=True)
    shutil.copy(ROOT / "scripts/check-format", tmp_path / "scripts")
    shutil.copy(ROOT / ".clang-format", tmp_path)
    (tmp_path / "build/src/generated.c").write_text("int  main( void ){return 0;}\n")
    source = tmp_path / "src/source.c"
    source.write_text("int main(void)\n{\n\treturn 0;\n}\n")
    done = run([tmp_path / "scripts/check-format"], env=clean_env())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    source.write_text("int  main( void ){return 0;}\n")
    done = run([tmp_path / "scripts/check-format"], env=clean_env())
    assert done.returncode != 0 and "src/source.c:1" in done.stderr
