"""``henchman server``: the embedded server by hand; and ``henchman doctor``: every setting, and what is wrong."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import click
from rich.console import RenderableType
from rich.text import Text

from henchman.app import App
from henchman.batch.lock_patrol import forget as forget_keys
from henchman.batch.lock_patrol import lost_keys
from henchman.cli.outbox import outbox_of
from henchman.cli.session import (
    NOTHING_RUNS,
    Group,
    NothingRuns,
    Session,
    as_json,
    command,
    confirmed,
    server_options,
    yes,
)
from henchman.cli.show import answer, cell, complain, duration, facts, moment, say, size, table
from henchman.config import Config
from henchman.config.settings import Setting
from henchman.deploy.check import check as check_waiting
from henchman.embedded.server import EmbeddedServer
from henchman.errors import ConfigError, HistoryError, OutboxError, ServerError
from henchman.history import load
from henchman.inspector.doctor import Check, examine, unserved
from henchman.kernel.text import count, shorten, visible
from henchman.outbox import load as load_outbox
from henchman.store import history
from henchman.store.locks import PHASES, HeldKey
from henchman.work.journal import BAD, SUFFIX
from henchman.work.journal import waiting as unread

__all__ = ["doctor", "server"]

_STATES = {
    "running": "running",
    "loading": "running, loading its data",
    "silent": "its process lives, but does not answer",
    "stopped": "not running",
}
_BEHIND, _FAR_BEHIND = 10.0, 300.0  # seconds that the recorder may be behind
_KEYS_SHOWN = 10
_SAMPLE = 1000  # jobs of each place that are held against the code
_OUTBOX_BEHIND = 5.0  # seconds that the oldest row of the outbox may wait
_SETTINGS: dict[str, Callable[[Setting], Any]] = {
    "setting": lambda one: one.name,
    "value": lambda one: cell(one.value_text, "bold" if one.origin != "default" else ""),
    "from": lambda one: cell(one.origin, "dim" if one.origin == "default" else ""),
}
_MARKS = {"ok": ("ok", "green"), "warn": ("warn", "yellow"), "bad": ("BAD", "bold red")}


@click.group(cls=Group)
@server_options
def server() -> None:
    """The embedded server: what serves a project that has no Redis of its own.

    It lives in --folder, else as configured (folder, HENCHMAN_FOLDER, the app's own), else in .henchman of the current
    project.
    """


def _embedded(session: Session) -> EmbeddedServer:
    return EmbeddedServer(session.config.server_folder(), report=complain)


@command(server)
def start(session: Session) -> None:
    """Start it, to stay up until `henchman server stop`."""
    say(f"running at {_embedded(session).start()}")


@command(server)
@click.option("--force", is_flag=True, help="Stop it although processes use it; they start it again when they need it.")
def stop(session: Session, force: bool) -> None:
    """Stop it; its data stay. Refused while processes use it."""
    say("stopped; its data stay" if _embedded(session).stop(force=force) else "it was not running")


@command(server, "status")
@as_json
def server_status(session: Session, as_json: bool) -> None:
    """Say how it is. Exit status 0: running; 3: not running."""
    now = _embedded(session).status()
    known = [
        ("state", _STATES[now.state] + (" (stays up without users)" if now.kept and now.running else "")),
        ("folder", now.folder),
        ("url", now.url),
        ("pid", now.pid),
        ("server", now.server),
        ("uptime", None if now.uptime is None else duration(now.uptime)),
        ("users", now.users if now.running else None),
        ("data", size(now.data_bytes)),
        ("log", now.log if now.state != "stopped" else None),
    ]
    answer({**now._asdict(), "running": now.running}, *facts(known, 8), as_json=as_json)
    if not now.running:
        sys.exit(NOTHING_RUNS)


@command(server)
def url(session: Session) -> None:
    """Print its URL and nothing else. Exit status 3: not running."""
    embedded = _embedded(session)
    found = embedded.find()
    if found is None:
        complain(f"no server is running in {embedded.folder}; henchman server start")
        sys.exit(NOTHING_RUNS)
    click.echo(found)


# ---- doctor


@command()
@click.option("--forget", is_flag=True, help="Free the business keys of jobs that are nowhere, and do nothing else.")
@yes
@as_json
def doctor(session: Session, forget: bool, yes: bool, as_json: bool) -> None:
    """Show each setting and where it came from, check the server, and say what to do.

    Exit status 0: nothing is bad; 1: something is; 3: there is no server.

    A key whose job is nowhere (the server forgot its last second, somebody deleted what is Sidekiq's or ours by hand)
    is freed by the workers within a day, and within minutes where it keeps another job out. --forget does so now, when
    a second search finds the job nowhere again; the next in line has the key then.
    """
    if forget:
        _forget(session, yes, as_json)
        return
    nothing, settings = False, session.config.describe()
    try:
        checks = [Check("server", "ok", session.shown_url), *examine(session.runner, session.keys)]
        if session.app is not None:
            checks += _of_app(session.known_app)
    except NothingRuns as error:
        checks, nothing = [Check("server", "warn", error.message, "henchman server start, or configure one")], True
    except ServerError as error:
        checks = [_unreachable(session, error)]
    reachable = len(checks) > 1
    if session.app_problem:
        advice = "workers cannot start like this; henchman work shows the whole traceback"
        checks.append(Check("app", "bad", session.app_problem, advice))
    checks += [_database(session.config), *_journal(session.config.journal)]
    if reachable:
        checks += [_stream(session), _lost_keys(session)]
        if session.config.outbox is not None:
            checks.append(_outbox(session))
    shown: list[RenderableType] = [table(settings, _SETTINGS, wide="value"), "", *_lines(checks)]
    document = {
        "settings": [{"name": one.name, "value": one.value_text, "origin": one.origin} for one in settings],
        "checks": [one.to_json() for one in checks],
    }
    answer(document, *shown, as_json=as_json)
    if nothing:
        sys.exit(NOTHING_RUNS)
    if any(one.verdict == "bad" for one in checks):
        sys.exit(1)


def _journal(folder: Path | None) -> Iterator[Check]:
    """What workers could not tell, and nobody has told yet; nothing where there is no journal."""
    if folder is not None:
        yield _looked_into(folder)


def _of_app(app: App) -> list[Check]:
    """What an app and the work on the server have to do with each other."""
    return [unserved(app.connections, app.keys, app.registry.ordered()), _waiting(app)]


def _waiting(app: App) -> Check:
    """Whether what waits fits the code, of so many jobs of each place; one whose name is an alias does."""
    fits = check_waiting(app, sample=_SAMPLE, refused_only=True).fits
    if fits.findings:
        wrong, first = sum(one.count for one in fits.findings), fits.findings[0]
        text = f"{count(wrong, 'job')} of {fits.looked:,} that were looked at would not run as pushed"
        return Check("waiting jobs", "warn", f"{text}; {first.name}: {first.text}", "henchman check names each")
    text = f"{count(fits.looked, 'job')} looked at, all fit this code"
    if fits.aliased:
        (old, new), many = fits.aliased.most_common(1)[0]
        text += f"; {many:,} bear an old name: {old} runs as {new}"
    return Check("waiting jobs", "ok", text)


def _looked_into(folder: Path) -> Check:
    name, lines, damaged = "journal", 0, len(list(folder.glob(f"*{SUFFIX}{BAD}")))
    try:
        for file in unread(folder, ""):
            lines += len(file.rows)
            file.handle.close()
    except OSError as error:
        return Check(name, "bad", f"{shorten(str(folder), 80)} cannot be read: {error.strerror}", "who may read it?")
    if damaged:
        return Check(name, "warn", f"{count(damaged, 'file')} in {folder} with damaged lines", "keep or delete them")
    if lines:
        text = f"{count(lines, 'job')} ended, and the server has not been told: the files of workers that are gone"
        return Check(name, "warn", f"{text}, in {folder}", "the next worker that starts there tells it")
    return Check(name, "ok", f"nothing waits in {folder}")


def _database(config: Config) -> Check:
    """Whether the database can be reached, and fits this release."""
    name = "history"
    off = config.why_history_is_off()
    if off:
        wanted = config.history != "off" and config.database_url is not None
        return Check(name, "warn" if wanted else "ok", off, "jobs run all the same")
    try:
        admin = load(config)
    except ConfigError as error:
        return Check(name, "bad", str(error), "install the driver where workers run")
    try:
        version = admin.current()
    except HistoryError as error:
        advice = "is the address right, and does the database run? Jobs run on meanwhile"
        return Check(name, "bad", str(error), advice)
    finally:
        admin.close()
    if version.fits:
        return Check(name, "ok", f"{admin.shown}, schema {version.found}")
    has = f"schema {version.found}, {version.needed} is needed" if version.found else "no tables of Henchman yet"
    if admin.makes_itself:
        return Check(name, "ok", f"{admin.shown}: {has}; a worker that records sees to it")
    return Check(name, "bad", f"{admin.shown}: {has}", "henchman db upgrade")


def _stream(session: Session) -> Check:
    """How far the recorder is behind. ServerError when there is no server."""
    name = "history lag"
    found = session.runner.run(history.backlog(session.keys))
    if not found.entries:
        dropped = f"; {found.dropped:,} messages and steps of progress had no room, so far" if found.dropped else ""
        return Check(name, "ok", f"nothing waits to be recorded{dropped}")
    share = found.bytes / session.config.history_bytes
    text = f"{found.entries:,} entries wait, the oldest for {found.lag:,.1f} s; {share:.0%} of history_bytes"
    if found.lag < _BEHIND and share < 0.5:
        return Check(name, "ok", text)
    who = f"{found.recorder} records" if found.recorder else "nobody records: a worker with history on does"
    verdict: Literal["warn", "bad"] = "bad" if found.lag > _FAR_BEHIND or share > 0.9 else "warn"
    return Check(name, verdict, f"{text}; {who}", "see the workers' log, and whether the database keeps up")


def _lost_keys(session: Session) -> Check:
    """Business keys whose jobs are nowhere."""
    name = "business keys"
    try:
        lost = lost_keys(session.any_app)
    except ServerError as error:
        return Check(name, "bad", f"cannot be looked into: {error}", "what the server forbids: henchman doctor, rights")
    bound = f" of the {lost.looked:,} that were looked at" if lost.more else ""
    if not lost.found:
        return Check(name, "ok", f"each{bound} is held by a job that is somewhere" if lost.looked else "none is old")
    text = f"{count(len(lost.found), 'key')}{bound}: held by jobs that are nowhere; {_key_in_words(lost.found[0])}"
    return Check(name, "warn", text, "a worker frees them within a day; at once: henchman doctor --forget")


def _key_in_words(one: HeldKey) -> str:
    held = f"{shorten(one.name, 80)!r} of {shorten(one.scope, 80)!r} ({PHASES[one.phase]})" if one.scope else "its end"
    return f"{held} by job {shorten(one.jid, 80)}, since {moment(one.since)}"


def _forget(session: Session, yes: bool, as_json: bool) -> None:
    """Free the keys of jobs that are nowhere."""
    lost = lost_keys(session.any_app)
    if lost.found:
        shown = "\n".join(f"  {visible(_key_in_words(one))}" for one in lost.found[:_KEYS_SHOWN])
        more = f"\n  and {len(lost.found) - _KEYS_SHOWN:,} more" if len(lost.found) > _KEYS_SHOWN else ""
        jobs = "its job is" if len(lost.found) == 1 else "their jobs are"
        confirmed(
            f"{shown}{more}\nFree {count(len(lost.found), 'key')}? As far as can be seen {jobs} nowhere.", yes=yes
        )
    freed = forget_keys(session.any_app, lost.found)
    rows = [{"phase": PHASES[one.phase], "scope": one.scope, "key": one.name, "jid": one.jid} for one in freed]
    bound = f"; {lost.looked:,} keys were looked at, and there are more" if lost.more else ""
    said = f"{count(len(freed), 'key')} freed{bound}" if freed else f"no key is held by a job that is nowhere{bound}"
    answer({"freed": rows, "looked": lost.looked, "more": lost.more}, said, as_json=as_json)


def _outbox(session: Session) -> Check:
    """How far the outbox is behind, and what the server refuses. ServerError when there is no server."""
    name = "outbox"
    try:
        with outbox_of(session) as database:
            version = database.version()
            if not version.fits:
                has = f"schema {version.found}" if version.found else "no tables of the outbox"
                return Check(name, "bad", f"{database.shown}: {has}", database.upgrade_by)
            found = load_outbox("status").look(database, session.runner, session.keys)
    except (ConfigError, OutboxError) as error:
        return Check(name, "bad", str(error), "is the address right, and does the database run? What waits there stays")
    text = f"{found.database}: {found.waiting:,} of {found.rows:,} rows wait, the oldest for {found.lag:,.1f} s"
    if found.waiting and not found.relay:
        return Check(name, "bad", f"{text}; nobody relays", "start a worker with this outbox: henchman work")
    if found.lag > _OUTBOX_BEHIND:
        return Check(name, "warn", f"{text}; {found.relay} relays", "see the workers' log: henchman outbox")
    if found.refused_count:
        more = f"{text}; the server refuses {found.refused_count:,} rows"
        return Check(name, "warn", more, "henchman outbox names the reasons; they are tried again each minute")
    return Check(name, "ok", text)


def _unreachable(session: Session, error: ServerError) -> Check:
    text = str(error) if session.shown_url in str(error) else f"{session.shown_url}: {error}"
    if "uthentication required" in text or "refused the login" in text:
        return Check("server", "bad", text, "put user and password into the address: redis://USER:PASSWORD@HOST:PORT/0")
    return Check("server", "bad", text, "is the address right, and does the server run?")


def _lines(checks: list[Check]) -> Iterator[Text]:
    for check in checks:
        word, style = _MARKS[check.verdict]
        yield Text.assemble((f"{word:<6}", style), (f"{check.name:<17}", "bold"), visible(check.text))
        if check.advice and check.verdict != "ok":
            yield Text(f"{'':<23}→ {visible(check.advice)}")
