"""Images that are old, small or odd: their programs are in the slice, or have no GPU, or nothing starts and the reason is said."""
import io
import pathlib
import shutil
import subprocess
import tarfile

import pytest

from conftest import BUILD
from podman_host import HOG, libraries_of, podman, storage  # noqa: F401: fixtures

SIM = [BUILD / "sim/libcuda.so.1", BUILD / "sim/libnvidia-ml.so.1"]


def compiled(path, source, *options, compiler="cc"):
    subprocess.run([compiler, "-o", path, "-x", "c", "-", *options], input=source, text=True, check=True)
    return path


@pytest.fixture
def image(podman, tmp_path):
    """image(lines, files): one with these files ({path: file of the host, or text}) above the test's own image."""
    def make(lines=(), files={}):
        context = tmp_path / "context"
        context.mkdir()
        copies = []
        for number, (to, what) in enumerate(files.items()):
            at = context / str(number)
            if isinstance(what, str):
                at.write_text(what)
                at.chmod(0o755)
            else:
                shutil.copy(what, at)
            copies.append(f"COPY {number} {to}")
        (context / "Containerfile").write_text("\n".join((f"FROM {podman.IMAGE}", *copies, *lines)) + "\n")
        done = podman("podman", "build", "-q", "-t", "localhost/odd:1", "-f", context / "Containerfile", context)
        assert done.returncode == 0, done.stderr
        return "localhost/odd:1"

    yield make
    podman("podman", "rmi", "--force", "localhost/odd:1")


def is_in_slice(done, mib=2048):
    assert f"this GPU has {mib} MiB" in done.stdout, done.stderr + done.stdout


def test_an_image_of_one_program_and_its_libraries(podman, tmp_path):
    """As distroless ones: no shell, no /etc, no /run, no /tmp."""
    tar = io.BytesIO()
    with tarfile.open(fileobj=tar, mode="w") as to:
        for file in {str(HOG), *libraries_of(HOG, *SIM)}:
            to.add(pathlib.Path(file).resolve(), "hog" if file == str(HOG) else file.lstrip("/"))
    (tmp_path / "image.tar").write_bytes(tar.getvalue())
    assert podman("podman", "import", tmp_path / "image.tar", "localhost/distroless:1").returncode == 0
    is_in_slice(podman.carve("--vram", "2", "--rm", "localhost/distroless:1", "/hog"))
    is_in_slice(podman.carve("--vram", "2", "--rm", "--read-only", "localhost/distroless:1", "/hog"))
    podman.nothing_is_left()


@pytest.mark.long
def test_an_entry_point_that_is_a_script_and_clears_the_environment(podman, image):
    named = image(['ENTRYPOINT ["/entry"]'], {"/entry": '#!/bin/sh\nexec env -i SIMGPU_HOST=$SIMGPU_HOST "$@"\n'})
    for options in ([], ["--read-only"], ["--entrypoint", "/bin/env"]):
        command = ["/bin/hog"] if not options[:1] == ["--entrypoint"] else ["-u", "CARVE_SESSION", "-u", "CARVE_ATTACH", "/bin/hog"]
        is_in_slice(podman.carve("--vram", "2", "--rm", *options, named, *command))


@pytest.mark.long
def test_libraries_that_an_image_preloads_itself_stay(podman, image, tmp_path):
    """By its environment, as with an allocator: it is loaded, and carve's libraries are."""
    library = compiled(tmp_path / "own.so", '#include <unistd.h>\n__attribute__((constructor)) static void here(void) '
                       '{ (void)!write(2, "own allocator\\n", 14); }\n', "-shared", "-fPIC")
    named = image(["ENV LD_PRELOAD=/own.so"], {"/own.so": library})
    done = podman.carve("--vram", "2", "--rm", named, "hog")
    is_in_slice(done)
    assert "own allocator" in done.stderr


@pytest.mark.long
def test_a_program_of_another_c_library_has_no_gpu(podman, image, tmp_path):
    """musl's dynamic linker, as Alpine's programs have it, loads nothing of carve's: there is no driver that it could find."""
    if not shutil.which("musl-gcc"):
        pytest.skip("needs musl-tools")
    source = '#include <dlfcn.h>\n#include <stdio.h>\nint main(void) { puts(dlopen("libcuda.so.1", RTLD_NOW) ? "a GPU" : "no driver"); }\n'
    program = compiled(tmp_path / "program", source, compiler="musl-gcc")
    named = image([], {"/bin/program": program, "/lib/ld-musl-x86_64.so.1": pathlib.Path("/usr/lib/x86_64-linux-musl/libc.so")})
    done = podman.carve("--vram", "2", "--rm", named, "program")
    assert done.stdout == "no driver\n", done.stderr


@pytest.fixture
def old_library(tmp_path):
    """This machine's C library without the symbols' version 2.28."""
    library, = [name for name in libraries_of(HOG) if name.endswith("/libc.so.6")]
    file = tmp_path / "libc.so.6"
    data = pathlib.Path(library).read_bytes()
    assert data.count(b"\0GLIBC_2.28\0") == 1
    file.write_bytes(data.replace(b"\0GLIBC_2.28\0", b"\0GLIBC_2.2x\0"))
    return library, file


def test_an_old_c_library_is_refused(podman, image, old_library, tmp_path):
    to, file = old_library
    named = image(["LABEL carve.vram=2GiB"], {to: file})
    assert podman.host.carve("hook", "install", "--hooks-dir", tmp_path / "hooks").returncode == 0
    for argv in ([], ["--user", "1000"]):
        done = podman.carve("--vram", "2", "--rm", *argv, named, "hog")
        assert done.returncode != 0 and "older than glibc 2.28" in done.stderr, done.stderr
    done = podman("podman", "--hooks-dir", tmp_path / "hooks", "run", "--rm", named, "hog")
    assert done.returncode != 0 and "older than glibc 2.28" in done.stderr, done.stderr
    podman.nothing_is_left()


@pytest.mark.long
def test_a_library_is_not_looked_for_outside_the_image(podman, image, old_library):
    """A link of the image's to an old one of the host's leads to no file of its own, so nothing is refused."""
    library, file = old_library
    named = image([f"RUN rm {library} && ln -s {'/..' * 30}{file} {library}"])
    done = podman.carve("--vram", "2", "--rm", named, "/bin/busybox", "echo", "started")
    assert done.stdout == "started\n", done.stderr


def test_a_nested_root_has_no_gpu_or_the_slice(podman, image):
    """A container in the container, as far as its files go: one without the slice's has no driver, one with them is in the slice."""
    script = """mkdir -p /nested/bin /nested/tmp; cp /bin/hog /bin/busybox /nested/bin; cp -a /lib /lib64 /usr /nested/ 2>/dev/null
mkdir -p /nested/run /nested/tmp
chroot /nested /bin/hog && echo ran
mkdir -p /nested$SIMGPU_HOST /nested/run/carve-slice /nested/etc /nested/dev
mount --bind $SIMGPU_HOST /nested$SIMGPU_HOST; mount --rbind /run/carve-slice /nested/run/carve-slice; cp /etc/ld.so.preload /nested/etc/
chroot /nested /bin/hog"""
    done = podman.carve("--vram", "2", "--rm", "--cap-add=SYS_ADMIN", podman.IMAGE, "/bin/busybox", "sh", "-c",
                        "busybox --install -s /bin; " + script)
    assert "ran" not in done.stdout.splitlines(), done.stdout
    is_in_slice(done)


def test_programs_of_a_login_are_in_the_slice(podman):
    """As of ssh: from a process that knows nothing of the container's environment."""
    host = podman.host.env["SIMGPU_HOST"]
    assert podman.carve("--vram", "2", "--detach", "--name", "login", podman.IMAGE, "sleep", "600").returncode == 0
    is_in_slice(podman("podman", "exec", "login", "/bin/env", "-i", f"SIMGPU_HOST={host}", "/bin/hog"))
    podman("podman", "rm", "--force", "--time", "0", "login")


@pytest.mark.long
def test_the_usual_filter_of_system_calls_binds_a_container(podman):
    done = podman.carve("--vram", "2", "--rm", podman.IMAGE, "sh", "-c", "cat /proc/self/status; hog")
    is_in_slice(done)
    assert "Seccomp:\t2" in done.stdout
