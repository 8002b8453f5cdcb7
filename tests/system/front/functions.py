"""The driver's functions, and which of them the front hooks: as its sources list them."""
import re

from conftest import ROOT

FRONT = ROOT / "src" / "front"
HOOKS = re.findall(r"\t[XGL]\((\w+)\)", (FRONT / "cuda/hooks.h").read_text())
FUNCTIONS = [line.split("\t")[0] for line in (FRONT / "cuda/symbol-classes.tsv").read_text().splitlines()
             if re.match(r"cu[A-Z]", line)]
