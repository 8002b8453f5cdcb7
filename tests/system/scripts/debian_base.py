"""A base image of Debian, made of this machine's own packages: no registry and no mirror is asked."""
import os
import pathlib
import re
import subprocess

FIELDS = ("Package", "Essential", "Depends", "Pre-Depends", "Provides")
INFO = pathlib.Path("/var/lib/dpkg/info")


def installed():
    """{name: its fields}; a name that is provided leads to the package that provides it."""
    form = "\t".join(f"${{{f}}}" for f in FIELDS) + "\t${db:Status-Status}\n"
    packages, provided = {}, {}
    for line in subprocess.run(["dpkg-query", "-W", "-f", form], capture_output=True, text=True, check=True).stdout.splitlines():
        *values, state = line.split("\t")
        fields = dict(zip(FIELDS, values))
        if state == "installed":
            packages[fields["Package"]] = fields
            provided.update({name: fields for name in names(fields["Provides"])})
    return {**provided, **packages}


def names(text):
    return [re.match(r"[^\s:(]+", word.strip())[0] for part in text.split(",") for word in part.split("|") if word.strip()]


def closure(wanted):
    """Essential packages, `wanted`, and what these depend on, as far as it is installed here."""
    packages = installed()
    todo = [p for p in packages.values() if p["Essential"] == "yes"] + [packages[name] for name in wanted if name in packages]
    found = {}
    while todo:
        fields = todo.pop()
        if fields["Package"] not in found:
            found[fields["Package"]] = fields
            todo += [packages[name] for name in names(fields["Depends"] + "," + fields["Pre-Depends"]) if name in packages]
    return sorted(found)


def status_of(packages):
    text = pathlib.Path("/var/lib/dpkg/status").read_text()
    return "".join(part + "\n\n" for part in text.strip().split("\n\n") if re.match(r"Package: (.*)", part)[1] in packages)


def files_of(packages):
    """Paths without a leading slash, in places that are directories: /bin is a link."""
    listed = subprocess.run(["dpkg", "-L", *packages], capture_output=True, text=True, check=True).stdout.splitlines()
    notes = [str(p) for p in INFO.iterdir() if re.split(r"[.:]", p.name)[0] in packages or p.name.rpartition(".")[0] in packages]
    found = {"bin", "sbin", "lib", "lib64", "etc/passwd", "etc/group"}
    for line in [*listed, *notes]:
        path = os.path.join(os.path.realpath(os.path.dirname(line)), os.path.basename(line)).lstrip("/")
        if line.startswith("/") and os.path.lexists("/" + path) and not re.match(r"usr/share/(doc|man|locale|info)/", path):
            found.add(path)
    return sorted(found - {""})


def archive_make(path, wanted, directory):
    """A tar archive of the base's root at `path`. `directory`: for files that are made."""
    packages = closure(wanted)
    (directory / "var/lib/dpkg").mkdir(parents=True)
    (directory / "var/lib/dpkg/status").write_text(status_of(set(packages)))
    listing = directory / "listing"
    listing.write_text("\n".join(files_of(set(packages))) + "\n")
    subprocess.run(["tar", "-cf", path, "--no-recursion", "-C", "/", "-T", listing, "-C", directory, "var/lib/dpkg/status"], check=True)
