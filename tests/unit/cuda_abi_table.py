"""Writes the list that test_cuda_abi (or test_nvml_abi) compares: every constant, size and offset of
our CUDA or NVML headers.

usage: cuda_abi_table.py OUTPUT HEADER...
"""
import re
import sys

STRUCT = re.compile(r"typedef (?:struct|union) \{\n(.*?)\n\} (\w+);", re.S)
MEMBER = re.compile(r"^\t(?:\w[^\n(]*?[ *]|\} )(\w+(?:, \w+)*)(?:\[\d+\])*;$", re.M)
# Ours alone: one name for what the vendor declares twice, or a layout that newer headers dropped.
RENAMED = {"CUDA_EVENT_NODE_PARAMS", "nvmlPciInfo_v2_t"}
# Grows from one version of the vendor's header to the next.
GROWING = {"NVML_GPU_INSTANCE_PROFILE_COUNT"}


def main(output, headers):
    lines = []
    for path in headers:
        text = open(path, encoding="utf-8").read()
        lines += [f"ABI_VALUE({name})" for name in re.findall(r"^\t((?:CU|NVML_)\w+) = ", text, re.M)
                  if name not in GROWING]
        lines += [f"ABI_VALUE({name})" for name in re.findall(r"\bX\((CUDA_\w+), \d+\)", text)]
        for body, name in STRUCT.findall(text):
            if name in RENAMED:
                continue
            lines.append(f"ABI_SIZE({name})")
            for names in MEMBER.findall(body):
                lines += [f"ABI_OFFSET({name}, {m.strip()})" for m in names.split(",")]
    with open(output, "w", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")


main(sys.argv[1], sys.argv[2:])
