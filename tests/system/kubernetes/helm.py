"""Renders carve's chart without helm: the part of its language that the chart uses, and an error for anything else."""
import json
import pathlib
import re

import yaml

TAG = re.compile(r"\{\{(-?)\s*(.*?)\s*(-?)\}\}", re.S)
WORD = re.compile(r'"(?:[^"\\]|\\.)*"|\(|\)|\||[^\s()|]+')


class Chart:
    def __init__(self, directory, namespace="carve", **values):
        directory = pathlib.Path(directory)
        chart = yaml.safe_load((directory / "Chart.yaml").read_text())
        self.files = sorted((directory / "templates").glob("*.yaml"))
        self.root = {"Values": merged(yaml.safe_load((directory / "values.yaml").read_text()), values),
                     "Release": {"Namespace": namespace, "Name": "carve"}, "Chart": {"AppVersion": chart["appVersion"]}}

    def objects(self):
        return [o for file in self.files for o in yaml.safe_load_all(self.render(file.read_text())) if o]

    def render(self, text):
        words, at = [], 0
        for tag in TAG.finditer(text):
            before = text[at:tag.start()]
            if words and words[-1] == ("trim",):
                words.pop()
                before = before.lstrip()
            words += [("text", before.rstrip() if tag[1] else before), ("tag", tag[2])] + ([("trim",)] if tag[3] else [])
            at = tag.end()
        words.append(("text", text[at:]))
        out = self.block(iter(words), self.root)
        assert "{{" not in out
        return out

    def block(self, words, dot, silent=False):
        out = []
        for kind, word in words:
            verb, _, rest = word.partition(" ")
            if kind == "text":
                out.append(word)
            elif verb == "end":
                break
            elif verb in ("if", "with"):
                value = None if silent else self.value(rest, dot)
                out.append(self.block(words, value if verb == "with" else dot, silent or not value))
            elif not silent:
                out.append(scalar(self.value(word, dot)))
        return "" if silent else "".join(out)

    def value(self, text, dot):
        result, rest = self.pipeline(WORD.findall(text), dot)
        assert not rest, text
        return result

    def pipeline(self, words, dot):
        piped = []
        while True:
            arguments = []
            while words and words[0] not in ("|", ")"):
                if words[0] == "(":
                    value, words = self.pipeline(words[1:], dot)
                    words = words[1:]
                else:
                    value, words = self.term(words[0], dot), words[1:]
                arguments.append(value)
            value = self.call(arguments + piped)
            if not words or words[0] == ")":
                return value, words
            piped, words = [value], words[1:]

    def term(self, word, dot):
        if word == ".":
            return dot
        if word.startswith("."):
            value = self.root
            for name in word[1:].split("."):
                value = value[name]
            return value
        return json.loads(word) if word[0] in '"0123456789' else FUNCTIONS[word]

    @staticmethod
    def call(arguments):
        return arguments[0](*arguments[1:]) if callable(arguments[0]) else arguments[0]


def merged(base, over):
    return {k: merged(base[k], over[k]) if isinstance(base.get(k), dict) and base[k] and k in over else over.get(k, base.get(k))
            for k in {**base, **over}}


def scalar(value):
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def nindent(width, text):
    return "\n" + "\n".join(" " * width + line if line else line for line in text.splitlines())


class Refused(Exception):
    """The chart's own `fail`."""


def fail(message):
    raise Refused(message)


FUNCTIONS = {
    "default": lambda other, value: value or other,
    "fail": fail,
    "dict": lambda *pairs: dict(zip(pairs[::2], pairs[1::2])),
    "ne": lambda a, b: a != b,
    "nindent": nindent,
    "quote": lambda value: json.dumps(str(value)),
    "toJson": lambda value: json.dumps(value, separators=(",", ":")),
    "toYaml": lambda value: yaml.safe_dump(value, default_flow_style=False).rstrip("\n"),
}
