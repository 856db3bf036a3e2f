"""The settings as type checkers and editors see them where an app is made: ``**settings: Unpack[SettingKeywords]``.

What a setting means, and how it is checked, stands in ``settings.py``. None is as if nothing were said.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, TypedDict

__all__ = ["SettingKeywords"]

_Seconds = float | timedelta
_Texts = list[str] | tuple[str, ...]


class SettingKeywords(TypedDict, total=False):
    """Those of ``App``, ``app.configure``, ``app.embed`` and ``testing.worker``."""

    app: str | None
    imports: _Texts | None
    redis_url: str | None
    namespace: str | None
    embedded: bool | None
    folder: Path | str | None
    sidekiq: Literal["mixed", "8", "7", "6", 8, 7, 6] | None
    timestamps: Literal["seconds", "ms"] | None
    queues: _Texts | None
    concurrency: int | None
    capsules: Mapping[str, Mapping[str, Any]] | None
    ordered_scheduler: Literal["lag", "seq", "weighted"] | None
    ordered_nodes: int | None
    ordered_node: int | None
    processes: int | None
    shutdown_timeout: _Seconds | None
    lease: _Seconds | None
    hang_after: _Seconds | None
    heartbeat: _Seconds | None
    connect_timeout: _Seconds | None
    io_timeout: _Seconds | None
    wait_replicas: int | None
    wait_timeout: _Seconds | None
    buffer: int | None
    transactional: bool | None
    max_retries: int | None
    job_timeout: _Seconds | None
    job_deadline: _Seconds | None
    queue_defaults: Mapping[str, Mapping[str, _Seconds]] | None
    dead_max: int | None
    dead_timeout: _Seconds | None
    max_memory: int | str | None
    max_jobs: int | None
    isolated_memory: int | str | None
    isolated_ready: int | None
    log_format: Literal["auto", "pretty", "json", "logfmt"] | None
    log_level: Literal["debug", "info", "warning", "error"] | None
    configure_logging: bool | None
    health: str | None
    dump_folder: Path | str | None
    journal: Path | str | None
    tag: str | None
    labels: _Texts | None
    database_url: str | None
    outbox: str | None
    history: Literal["on", "best_effort", "off"] | None
    history_bytes: int | str | None
    history_keep: _Seconds | None
    history_keep_status: Mapping[str, _Seconds] | None
    api_token: str | _Texts | None
    console_password: str | None
    console_look_password: str | None
    console_links: Mapping[str, str] | str | None
    console_extensions: _Texts | None
    encryption_keys: Mapping[str, str] | str | None
