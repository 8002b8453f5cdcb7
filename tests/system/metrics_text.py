"""Prometheus's text format as tests read it: what was scraped, and what Debian's promtool says of it."""
import re
import shutil
import subprocess

import pytest

SAMPLE = re.compile(r'^([a-zA-Z_:][\w:]*)(?:\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\\n]|\\.)*)"(?:,|$)')
ESCAPES = {"\\\\": "\\", '\\"': '"', "\\n": "\n"}


def unescaped(value):
    return re.sub(r'\\[\\"n]', lambda m: ESCAPES[m[0]], value)


class Metrics:
    """The samples of one scrape: metrics.value("carve_gpu_sessions", gpu="0")."""

    def __init__(self, text):
        self.text, self.samples, self.types = text, [], {}
        for line in text.split("\n")[:-1]:
            if line.startswith("# TYPE "):
                _, _, name, self.types[name] = line.split(" ")
            elif not line.startswith("#"):
                name, labels, value = SAMPLE.match(line).groups()
                pairs = {key: unescaped(text) for key, text in LABEL.findall(labels or "")}
                self.samples.append((name, pairs, float(value)))

    def all(self, name, **labels):
        return [(found, value) for n, found, value in self.samples
                if n == name and all(found.get(k) == v for k, v in labels.items())]

    def value(self, name, **labels):
        (_, value), = self.all(name, **labels)
        return value


def promtool(*words, text=None):
    program = shutil.which("promtool")
    if not program:
        pytest.skip("needs promtool of the package prometheus")
    return subprocess.run([program, *map(str, words)], input=text, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                          timeout=120)


def assert_promtool_takes(text):
    done = promtool("check", "metrics", text=text)
    assert done.returncode == 0, done.stdout
