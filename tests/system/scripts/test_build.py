"""scripts/build: a checkout that was copied with its build directory."""
import shutil

from conftest import ROOT, clean_env, run


def test_a_copied_checkout_builds_anew(tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    (first / "scripts").mkdir(parents=True)
    shutil.copy(ROOT / "scripts/build", first / "scripts")
    (first / "scripts/install-packages").write_text("#!/bin/sh\n")
    (first / "scripts/install-packages").chmod(0o755)
    (first / "meson.build").write_text("project('small', 'c')\nexecutable('small', 'small.c')\n")
    (first / "small.c").write_text("int main(void) { return 0; }\n")

    def build(place):
        done = run([place / "scripts/build"], env=clean_env())
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout
    assert "anew" not in build(first)
    shutil.copytree(first, second)
    assert f"build/ was made for {first}: building anew" in build(second)
    assert (second / "build/small").exists() and "anew" not in build(second)


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
