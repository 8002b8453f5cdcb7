"""contrib/: the alert rules and the dashboard name metrics that there are, and Debian's promtool takes the rules."""
import json
import re
import shutil

from conftest import ROOT
from daemon_client import GIB
from metrics_text import Metrics, promtool
from own_daemon import daemon, make_daemon  # noqa: F401: fixtures
from test_metrics import scrape

RULES = ROOT / "contrib/prometheus/carve-alerts.yml"
DASHBOARD = ROOT / "contrib/grafana/carve.json"
NAME = re.compile(r"\b(?:carve|process)_[a-z0-9_]+")
# Those of carve-metrics, of a system daemon, and of a daemon with agents.
ELSEWHERE = {"carve_metrics_refused_total", "carve_warden_up", "carve_queue_waiting", "carve_queue_running"}


def test_promtool_takes_the_alert_rules():
    done = promtool("check", "rules", RULES)
    assert done.returncode == 0 and "14 rules found" in done.stdout, done.stdout


def test_alerts_fire_when_they_should(tmp_path):
    shutil.copy(RULES, tmp_path)
    shutil.copy(ROOT / "tests/system/metrics/rules_test.yml", tmp_path)
    done = promtool("test", "rules", tmp_path / "rules_test.yml")
    assert done.returncode == 0, done.stdout


def test_rules_and_dashboard_name_metrics_that_there_are(daemon):
    daemon.call("PUT", "/v1/timeslicing", {"mode": "fair"})
    daemon.grant(vram="4")
    there = {name for name, _, _ in scrape(daemon).samples} | ELSEWHERE
    assert set(NAME.findall(RULES.read_text())) - there == set()
    dashboard = json.loads(DASHBOARD.read_text())
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    expressions += [variable["query"]["query"] for variable in dashboard["templating"]["list"] if variable["type"] == "query"]
    assert len(expressions) > 20
    assert {name for expression in expressions for name in NAME.findall(expression)} - there == set()


def test_the_page_lists_all_metrics(daemon):
    daemon.call("PUT", "/v1/timeslicing", {"mode": "fair"})
    daemon.grant(vram="4")
    page = (ROOT / "docs/admin/metrics.md").read_text()
    names = {name for name, _, _ in scrape(daemon).samples} | ELSEWHERE
    short = {name for name in names if name not in page}
    assert {name for name in short if f"_{name.split('_', 3)[-1]}" not in page} == set()


def test_panels_of_the_dashboard_do_not_overlap():
    cells = {}
    for panel in json.loads(DASHBOARD.read_text())["panels"]:
        at = panel["gridPos"]
        for x in range(at["x"], at["x"] + at["w"]):
            for y in range(at["y"], at["y"] + at["h"]):
                assert x < 24 and (x, y) not in cells, (panel["title"], cells.get((x, y)))
                cells[x, y] = panel["title"]
