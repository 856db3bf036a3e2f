"""Prometheus itself scrapes a worker and draws its alerts; the dashboard asks for figures that are told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from henchman.inspector.prometheus import exposition
from henchman.store import outbox
from henchman.store.call import ask, run
from support.processes import Work, push
from support.replicas import free_port
from support.store import Store
from support.worker import looker, until

CONTRIB = Path(__file__).parents[2] / "contrib"
ALERTS = CONTRIB / "prometheus" / "alerts.yml"
CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{alerts}"]
scrape_configs:
  - job_name: henchman
    static_configs: [{{targets: ["127.0.0.1:{port}"]}}]
"""
needs_prometheus = pytest.mark.skipif(
    not shutil.which("prometheus"), reason="prometheus is not installed (apt install prometheus)"
)


def _answer(url: str) -> Any:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:  # noqa: S310 - of our own making
            return json.load(answer)["data"]
    except OSError:
        return None


@contextmanager
def prometheus(folder: Path, scraped: int) -> Iterator[Callable[[str], Any]]:
    """A Prometheus that scrapes that port each second; what it answers to a path of its API."""
    folder.mkdir()
    port = free_port()
    config = folder / "prometheus.yml"
    config.write_text(CONFIG.format(alerts=ALERTS, port=scraped))
    command = [
        "prometheus",
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    try:
        yield lambda path: _answer(f"http://127.0.0.1:{port}/api/v1/{path}")
    finally:
        process.terminate()
        process.wait(30)


@needs_prometheus
def test_prometheus_scrapes_a_worker(redis_url: str, tmp_path: Path) -> None:
    port = free_port()
    with looker(redis_url) as redis, Work(tmp_path / "w", redis_url, "--health", str(port)) as work:
        work.ready(redis, 1)
        push(redis, "act", *[(f"j{one}", "sleep", 0.0) for one in range(20)])
        redis.lpush("queue:forgotten", '{"class":"Mail","jid":"x","args":[]}')
        redis.sadd("queues", "forgotten")

        with prometheus(tmp_path / "p", port) as ask:

            def value(query: str) -> float:
                found = ask(f"query?{urllib.parse.urlencode({'query': query})}")
                return float(found["result"][0]["value"][1]) if found and found["result"] else -1.0

            until(lambda: value("sum(henchman_job_runs_total)") == 20, "it has counted the runs")
            assert value('up{job="henchman"}') == 1
            assert value("henchman_processes") == 1
            assert value('henchman_queue_size{queue="forgotten"}') == 1
            assert value('henchman_queue_slots{queue="forgotten"}') == 0
            until(
                lambda: any(
                    one["labels"].get("alertname") == "HenchmanQueueServedByNobody" for one in ask("alerts")["alerts"]
                ),
                "an alert for the queue that nobody serves",
            )
            assert work.stop() == 0
            until(lambda: value('up{job="henchman"}') == 0, "it sees that the worker has gone")


@needs_prometheus
def test_the_rules_are_rules() -> None:
    done = subprocess.run(["promtool", "check", "rules", str(ALERTS)], capture_output=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr


def test_alerts_and_dashboard_ask_for_what_is_told(store: Store) -> None:
    store.push("mail", b'{"class":"Mail","jid":"1","args":[]}')
    store.ask("SADD", store.keys.ordered_queues, "prices")
    figures = outbox.OutboxFigures(time.time(), "shop", rows=1, waiting=1, lag=1.0, refused=0, duplicates=0)
    run(store.connections, ask(outbox.note(store.keys, "a" * 32, figures)))
    text = run(store.connections, exposition(store.keys))
    told = set(re.findall(r"# TYPE (henchman_\w+)", text))
    told |= {f"henchman_job_duration_seconds_{part}" for part in ("bucket", "sum", "count")}
    dashboard = (CONTRIB / "grafana" / "henchman.json").read_text()
    for name, asked in ("alerts", ALERTS.read_text()), ("dashboard", dashboard):
        names = set(re.findall(r"\bhenchman_\w+", asked))
        assert len(names) > 10
        assert names <= told, (name, names - told)
    panels = json.loads(dashboard)["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_the_port_tells_why_it_tells_nothing(redis_url: str, tmp_path: Path) -> None:
    port = free_port()
    with looker(redis_url) as redis, Work(tmp_path / "w", redis_url, "--health", str(port)) as work:
        work.ready(redis, 1)

        def status(query: str) -> tuple[int, str]:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics{query}", timeout=20) as answer:
                    return answer.status, answer.read().decode()
            except urllib.error.HTTPError as error:
                with error:
                    return error.code, error.read().decode()

        until(lambda: status("")[0] == 200, "the port tells figures")
        assert "henchman_slots_desired 0\n" in status("?within=30")[1]
        assert status("?within=0") == (400, "within='0': give seconds, from 1 to 86400\n")
        assert status("?within=x") == (400, "within='x': give seconds, from 1 to 86400\n")
