"""What other packages add to the console: pages, facts on the page of a job, findings, how a call is shown.

A package names its class among the entry points ``henchman.console``. An extension is asked on a thread of its own, one
question after the other; its turn and its answer are waited for a second each. One that raises or hangs takes no page
with it, and *System* says what is wrong.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from importlib.metadata import EntryPoint, entry_points
from itertools import islice
from queue import SimpleQueue
from typing import Any, Final, Literal, NamedTuple, Protocol, TypeVar

from henchman.console.pages import Download, Screen, View
from henchman.console.render import NAME
from henchman.inspector.base import Entry
from henchman.kernel.text import described, shorten, visible
from henchman.oncall.deeds import Deed, Missing
from henchman.oncall.finding import Finding

__all__ = ["Added", "Extension", "ExtensionFile", "Extensions", "Fact", "Trouble"]

GROUP: Final = "henchman.console"
_WAIT, _LOAD = 1.0, 10.0  # seconds for an answer, and until it is imported and made
_HANGS: Final = 3  # threads of one extension that did not answer: then it is asked no more
_MOST: Final = 20  # facts, and findings, of one extension
_LONG: Final = 300  # characters of a fact
_WORDS: Final = 8  # of an address, with the name
_MEDIA: Final = re.compile(r"[\w.+-]{1,60}/[\w.+-]{1,60}(; ?charset=utf-8)?")
_PLAIN: Final = re.compile(r"[^A-Za-z0-9._-]")
_NOTHING: Final[Any] = object()  # nothing was answered
_log = logging.getLogger("henchman.console")

T = TypeVar("T")


class Fact(NamedTuple):
    """A fact on the page of a job; ``address``: where it leads, absolute or below this site; empty: nowhere."""

    label: str
    text: str
    address: str = ""


class Trouble(NamedTuple):
    """Something that is wrong, for the overview: a sentence, what it rests on, and what to do. It leads to the page of
    the extension."""

    text: str
    evidence: str = ""
    advice: str = ""
    severity: Literal["critical", "warning"] = "warning"


class ExtensionFile(NamedTuple):
    """A file that a page of an extension loads: its bytes, and what they are."""

    body: bytes
    media_type: str


class Html(Protocol):
    """What says itself which HTML it is, as ``markupsafe.Markup`` does."""

    def __html__(self) -> str: ...


class Extension:
    """Subclass it, and name the class in ``[project.entry-points."henchman.console"]``; the name there is its address.

    It is made once, with the app of the console (of ``henchman web`` without an app: of its settings alone). Every
    method may be called from several requests at once, one after the other. What a subclass leaves out is not asked.
    """

    #: of its page, as it stands in the navigation
    title: str = ""

    def __init__(self, app: Any) -> None:
        self.app = app

    def page(self, path: Sequence[str], query: Mapping[str, str]) -> str | Html | ExtensionFile | None:
        """What stands below its title. ``path``: the words of the address behind its own; None: there is no such page.

        Plain text is shown as text. ``markupsafe.Markup`` is HTML, under the console's content security policy: no
        inline scripts or styles. A file (``ExtensionFile``) is sent as it is.
        """
        return None

    def facts(self, job: Entry) -> Iterable[Fact]:
        """Facts on the page of ``job``, whose secret arguments are masked."""
        return ()

    def troubles(self) -> Iterable[Trouble]:
        """What is wrong now."""
        return ()

    def call(self, job: Entry) -> str | None:
        """How a job is shown in lists, in place of its name and arguments; None: as always."""
        return None


class Added(NamedTuple):
    """An extension as *System* shows it. ``adds``: what it has; ``problem``: what went wrong last, empty: nothing."""

    name: str
    version: str
    adds: Sequence[str]
    problem: str


class _Asked:
    """One extension, asked on a thread of its own."""

    def __init__(self, point: EntryPoint) -> None:
        self.name, self.version = point.name, point.dist.version if point.dist else ""
        self.made: Extension | None = None
        self.problem = ""
        self._hangs = 0
        self._lock = threading.Lock()
        self._calls = SimpleQueue[Callable[[], None]]()
        self._server: threading.Thread | None = None

    def ask(self, what: Callable[[], T], default: T, wait: float | None = None) -> T:
        """What it answers within a second, or so many; ``default`` where it does not, or raises."""
        wait = _WAIT if wait is None else wait
        if self._hangs >= _HANGS:
            return default
        if not self._lock.acquire(timeout=wait):  # one after the other
            self._note(f"it is asked more often than it answers: nobody waits longer than {wait:g} s for their turn")
            return default
        try:
            return self._answer(what, default, wait)
        finally:
            self._lock.release()

    def _answer(self, what: Callable[[], T], default: T, wait: float) -> T:
        calls, answered, found = self._thread(), threading.Event(), list[T]()

        def call() -> None:
            try:
                found.append(what())
            except BaseException as error:  # whatever it does is its own
                self._note(described(error))
            answered.set()

        calls.put(call)
        if not answered.wait(wait):
            self._server, self._hangs = None, self._hangs + 1
            off = ", and is asked no more" if self._hangs >= _HANGS else ""
            self._note(f"it did not answer within {wait:g} s{off}")
        return found[0] if found else default

    def _thread(self) -> SimpleQueue[Callable[[], None]]:
        if self._server is None or not self._server.is_alive():  # a fork leaves it behind
            self._calls, name = SimpleQueue(), f"henchman-console-{self.name}"
            self._server = threading.Thread(target=_serve, args=(self._calls,), name=name, daemon=True)
            self._server.start()
        return self._calls

    def _note(self, problem: str) -> None:
        if problem != self.problem:
            _log.warning("extension %s: %s", visible(self.name), visible(problem))
        self.problem = shorten(visible(problem), _LONG)


def _serve(calls: SimpleQueue[Callable[[], None]]) -> None:
    while True:
        calls.get()()


class Extensions:
    """All of them that are installed. ``only``: the names of those that are wanted; "*": of all. ``app``: see
    ``Extension``."""

    def __init__(self, app: Any, only: Collection[str]) -> None:
        points = {one.name: one for one in entry_points(group=GROUP)}
        self._asked = [_Asked(one) for name, one in sorted(points.items()) if "*" in only or name in only]
        for one in self._asked:
            one.made = one.ask(partial(_made, points[one.name], app), None, _LOAD)
        self._live = [(one, one.made) for one in self._asked if one.made is not None]
        for name in sorted({*only} - points.keys() - {"*"}):
            _log.warning("console_extensions names %s, and no package brings it", visible(name))

    @property
    def deeds(self) -> Mapping[tuple[str, str], Deed]:
        """They look, and do nothing."""
        return {}

    @property
    def nav(self) -> tuple[tuple[str, tuple[tuple[str, str, str], ...]], ...]:
        """A group of the navigation: address, title and no letter of each page; no group without pages."""
        titles = [(one.name, made.title) for one, made in self._live if made.title]
        pages = tuple((f"x/{name}", shorten(visible(title), 40), "") for name, title in titles)
        return (("More", pages),) if pages else ()

    @property
    def views(self) -> Mapping[tuple[str, int], View]:
        """Their pages, by how many words of the address follow."""
        return {("x", words): self._page for words in range(1, _WORDS + 1)} if self.nav else {}

    def _page(self, name: str, *rest: Any) -> Screen | Download:
        *path, query = rest
        one, made = next(((one, made) for one, made in self._live if one.name == name and made.title), (None, None))
        if one is None or made is None:
            raise Missing(f"no extension brings a page {visible(name)}: see System")
        said = one.ask(lambda: _said(made.page(path, query.given)), _NOTHING)
        if said is None:
            raise Missing(f"{visible(name)} has no such page")
        if isinstance(said, ExtensionFile):
            media_type = said.media_type if _MEDIA.fullmatch(said.media_type) else "application/octet-stream"
            return Download(_PLAIN.sub("_", (path or [name])[-1])[-80:], media_type, iter([said.body]), kept=False)
        problem = one.problem if said is _NOTHING else ""
        (body, is_html) = ("", False) if problem else said
        facts = {"title": made.title, "body": body, "is_html": is_html, "problem": problem}
        return Screen("extension.html", facts, 502 if problem else 200)

    def _that_say(self, what: str) -> list[tuple[_Asked, Extension]]:
        return [(one, made) for one, made in self._live if _has(made, what)]

    def facts(self, job: Entry) -> list[Fact]:
        """The facts of all on the page of a job."""
        found: list[Fact] = []
        for one, made in self._that_say("facts"):
            found += one.ask(partial(_facts, made, job), [])
        return found

    def findings(self) -> list[Finding]:
        """What they find wrong."""
        found: list[Finding] = []
        for one, made in self._that_say("troubles"):
            found += one.ask(partial(_findings, made, one.name), [])
        return found

    def name(self, jobs: Sequence[Entry]) -> None:
        """Let each of these jobs be shown as the first of them that knows it says."""
        nobody: list[str | None] = [None] * len(jobs)
        for one, made in self._that_say("call"):
            for job, text in zip(jobs, one.ask(partial(_calls, made, jobs), nobody), strict=True):
                if isinstance(text, str) and text and not job.shown:
                    job.shown = visible(text)

    def added(self) -> list[Added]:
        """Each as *System* shows it."""
        words = {"page": "a page", "facts": "facts of a job", "troubles": "findings", "call": "how calls are shown"}
        return [
            Added(one.name, one.version, [word for name, word in words.items() if _has(one.made, name)], one.problem)
            for one in self._asked
        ]


def _made(point: EntryPoint, app: Any) -> Extension:
    if not NAME.fullmatch(point.name):
        raise ValueError(f"{point.name!r} cannot name an extension: give 1 to 40 letters, digits, dots, _ or -")
    made = point.load()(app)
    if not isinstance(made, Extension):
        raise TypeError(f"{point.value} is no subclass of henchman.web.extension.Extension")
    return made


def _said(page: str | Html | ExtensionFile | None) -> ExtensionFile | tuple[str, bool] | None:
    """What a page says, made here: a text and whether it is HTML, or a file."""
    if page is None:
        return None
    if isinstance(page, ExtensionFile):
        if not isinstance(page.body, bytes) or not isinstance(page.media_type, str):
            raise TypeError("an ExtensionFile has bytes and the text of a media type")
        return page
    return (page.__html__(), True) if hasattr(page, "__html__") else (str(page), False)


def _has(made: Extension | None, name: str) -> bool:
    """Whether a subclass says more than the class it comes from."""
    return made is not None and getattr(type(made), name) is not getattr(Extension, name)


def _facts(made: Extension, job: Entry) -> list[Fact]:
    found = [Fact(*one) for one in islice(made.facts(job), _MOST)]
    return [Fact(_short(one.label), _short(one.text), _safe(one.address)) for one in found]


def _calls(made: Extension, jobs: Sequence[Entry]) -> list[str | None]:
    return [made.call(job) for job in jobs]


def _findings(made: Extension, name: str) -> list[Finding]:
    return [_finding(name, Trouble(*one)) for one in islice(made.troubles(), _MOST)]


def _finding(name: str, one: Trouble) -> Finding:
    severity: Literal["critical", "warning"] = "critical" if one.severity == "critical" else "warning"
    text, evidence, advice = _short(one.text), _short(one.evidence), _short(one.advice)
    return Finding(severity, shorten(visible(name), 30), text, evidence, "x", name, advice, filters=(("about", text),))


def _short(text: object) -> str:
    return shorten(visible(str(text)), _LONG)


def _safe(address: str) -> str:
    """An address that leads somewhere and runs nothing; else none."""
    return address if address.startswith(("https://", "http://", "/")) and address.isprintable() else ""
