"""The daemon's log: a reader of logfmt takes every line apart."""
import json
import re

import pytest

from conftest import ON_GPU, ROOT
from own_daemon import make_daemon  # noqa: F401

EVENT = re.compile(r"(%s|[a-z_])+(\.(%s|[a-z_])+)+")
VALUE = r'("[^"]*"|[^ "=]*)'
LITERAL = r'"(?:[^"\\]|\\.)*"'


def formats():
    """Those of all calls in the source, with macros of their formats as "%u"."""
    for path in sorted((ROOT / "src").rglob("*.c")):
        if path.name == "log.c":
            continue
        for call in re.finditer(rf'log_event\((?:[^",;]|\([^)]*\))*?,\s*((?:{LITERAL}|\b[A-Z_]\w*|\s)+)', path.read_text()):
            parts = re.findall(rf"{LITERAL}|\w+", call[1])
            yield path.name, "".join(p[1:-1].replace('\\"', '"') if p[0] == '"' else "" if p.startswith("PRI") else "x"
                                     for p in parts)


def test_each_line_is_an_event_and_keys_with_values():
    found = list(formats())
    assert len(found) > 100
    for name, format in found:
        event, *rest = format.split(" ", 1)
        # The log of events writes words of its table.
        assert EVENT.fullmatch(event) or (name, event) == ("events.c", "%s"), (name, format)
        assert not rest or re.fullmatch(rf"[a-z_]+={VALUE}( [a-z_]+={VALUE})*", rest[0]), (name, format)


def test_each_kind_of_event_is_an_event_of_the_log():
    kinds = re.findall(r'= \{"([^"]*)"', (ROOT / "src/daemon/events/event_kinds.c").read_text())
    assert len(kinds) > 20 and not [kind for kind in kinds if not EVENT.fullmatch(kind)]


@pytest.mark.skipif(ON_GPU, reason="has a fake driver")
def test_a_value_with_quotes_and_keys_of_its_own_stays_one_value(make_daemon, tmp_path):  # noqa: F811
    state = tmp_path / 'a "b" uid=0\\ c'
    daemon = make_daemon(args=["--state-dir", str(state)])
    line, = [line for line in daemon.log().splitlines() if " carved.listening " in line]
    pairs = dict(re.findall(r'([a-z_]+)=("(?:[^"\\]|\\.)*"|[^ ]*)', line))
    assert set(pairs) == {"dir", "state", "version"}
    assert json.loads(pairs["state"]) == str(state) and pairs["dir"] == str(daemon.runtime)
