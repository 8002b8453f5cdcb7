#!/usr/bin/python3
"""Writes the files of the page as a C table: embed.py OUTPUT FILE..."""
import pathlib
import sys

TYPES = {".html": "text/html; charset=utf-8", ".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8",
         ".svg": "image/svg+xml"}


def literal(text):
    """C takes strings of any length from gcc, line by line here."""
    escaped = (line.replace("\\", "\\\\").replace('"', '\\"') for line in text.split("\n"))
    return '\\n"\n\t\t"'.join("".join(c if c.isascii() else "".join(f"\\{b:03o}" for b in c.encode()) for c in line) for line in escaped)


def main():
    output, *names = sys.argv[1:]
    files = [pathlib.Path(name) for name in names]
    entries = ",\n".join(f'\t{{"{f.name}", "{TYPES[f.suffix]}",\n\t\t"{literal(f.read_text())}"}}' for f in files)
    pathlib.Path(output).write_text('#include "web/files.h"\n\n'
                                    f"const struct web_file web_files[] = {{\n{entries},\n\t{{0}},\n}};\n")


main()
