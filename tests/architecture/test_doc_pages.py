"""The pages under docs/ and the README: every block runs or is checked, every link leads somewhere.

Blocks of Python are run, in one module a page; one that begins with ``# name.py`` is written to that file and imported.
Commands are parsed with the options that they show, and those that only look are run. Settings go through the reader of
settings; Ruby, JSON and unit files through their parsers. ``<!-- not run: why -->`` above a block excuses it, and these
excuses are counted. Four pages have tests of their own that run their blocks and look at the effects (``OWN``); the
tutorial and the How-to pages are walked by ``fundamentals/test_walks.py``.
"""

from __future__ import annotations

import configparser
import importlib
import json
import pkgutil
import re
import runpy
import shlex
import subprocess
import sys
import textwrap
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest.mock import MagicMock

import click
import pytest
from click.testing import CliRunner

from architecture.source import ROOT
from henchman import App
from henchman.cli.main import henchman
from henchman.client.options import JobOptions, PushOptions
from henchman.config import Config

PAGES = [*sorted((ROOT / "docs").glob("*.md")), ROOT / "README.md"]
INDEX = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
HOW_TO = [
    ROOT / "docs" / f"{name}.md"
    for name in INDEX.partition(":caption: How to")[2].partition("```")[0].split()
    if name not in ("transactions", "django")  # one program, one project: tests/contrib and tests/frameworks run them
]
OWN = {"django", "inspection", "testing", "transactions", "tutorial"}
MOST_EXCUSES = 12
LOOKS = {"status", "queues", "ordered", "processes", "metrics", "retries", "scheduled", "dead", "cron", "batches"}
NAMED = re.compile(r"# (\w+)\.py(, continued)?\n")
STAND_INS = ("shop", "db")  # what examples call that no page defines
ALL = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
FENCE = re.compile(r"(?:^ *<!-- not run: ([^\n]+) -->\n\n?)?^( *)```(\w+)\n(.*?)^\2```$", re.DOTALL | re.MULTILINE)


class Block(NamedTuple):
    language: str
    text: str
    excuse: str


def blocks(page: Path, *languages: str) -> list[Block]:
    """The blocks of a page in these languages that are not excused."""
    return [one for one in every_block(page) if one.language in languages and not one.excuse]


def every_block(page: Path) -> list[Block]:
    found = FENCE.findall(page.read_text(encoding="utf-8"))
    return [Block(language, textwrap.dedent(text), excuse) for excuse, _, language, text in found]


class Home:
    """The folder of one page's reader, with a server: its modules are gone afterwards, its apps closed."""

    def __init__(self, folder: Path, page: Path) -> None:
        self.folder = folder
        self.module = ModuleType("page_of_docs")
        self.before = set(sys.modules)
        self.page = page
        vars(self.module).update({name: MagicMock(**{"orders_of.return_value": []}) for name in STAND_INS})
        sys.modules["page_of_docs"] = self.module

    def run(self, block: Block) -> None:
        if block.language == "toml":
            if block.text.startswith("# henchman.toml"):
                (self.folder / "henchman.toml").write_text(block.text)
            return
        named = NAMED.match(block.text)
        if named is None:
            code = compile(block.text, f"docs/{self.page.name}", "exec", dont_inherit=True)
            exec(code, self.module.__dict__)  # noqa: S102 - our own page
            return
        file = self.folder / f"{named[1]}.py"
        file.write_text((file.read_text() + "\n\n" if named[2] else "") + block.text, encoding="utf-8")
        sys.modules.pop(named[1], None)
        importlib.invalidate_caches()
        importlib.import_module(named[1])

    def close(self) -> None:
        ours = [sys.modules.pop(name) for name in set(sys.modules) - self.before if self.is_ours(sys.modules[name])]
        for app in {id(one): one for module in ours for one in vars(module).values() if isinstance(one, App)}.values():
            app.close()

    def is_ours(self, module: ModuleType) -> bool:
        return module is self.module or str(self.folder) in str(getattr(module, "__file__", ""))


@pytest.fixture
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Home]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # a file that is continued within a second is another
    made = Home(tmp_path, request.getfixturevalue("page"))
    yield made
    made.close()


@ALL
def test_python_runs_and_commands_look(page: Path, home: Home, redis_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if page.stem in OWN:
        return
    monkeypatch.setenv("HENCHMAN_REDIS_URL", redis_url)
    monkeypatch.setenv("HENCHMAN_DATABASE_URL", f"sqlite:///{home.folder / 'history.sqlite'}")
    for block in blocks(page, "python", "toml"):
        home.run(block)
    for args in shown(page):
        if looks(args):
            done = CliRunner().invoke(henchman, args, catch_exceptions=False)
            unpushed = "there is no ordered queue" in done.output  # the walk of the page pushes; here is nothing
            assert unpushed or done.exit_code in ((0, 3, 4) if args[0] == "status" else (0,)), f"{args}: {done.output}"


@pytest.mark.parametrize("page", HOW_TO, ids=lambda page: page.stem)
def test_python_says_its_file_and_imports_what_it_names(page: Path, tmp_path: Path) -> None:
    """A newcomer has the text alone: of a block without a file nobody knows where it belongs."""
    for block in every_block(page):
        if block.language == "python" and not block.text.startswith(">>> "):
            named = NAMED.match(block.text)
            assert named, f"this block names no file, such as `# jobs.py` or `# jobs.py, continued`:\n{block.text}"
            with (tmp_path / f"{named[1]}.py").open("a" if named[2] else "w", encoding="utf-8") as file:
                file.write(block.text)
    ruff = [sys.executable, "-m", "ruff", "check", "--isolated", "--no-cache", "--quiet", "--select", "F821", tmp_path]
    done = subprocess.run(ruff, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def looks(args: list[str]) -> bool:
    """Whether a command only looks, once, and names nothing that is an id of the reader's own."""
    acts = {"pause", "unpause", "retry", "revive", "max-parallel", "move", "run", "resume", "kill", "delete", "mark"}
    acts |= {"quiet", "stop", "dump", "clear"}
    of_the_readers = any(re.search(r"[…$]|^[A-Z]", one) for one in args)
    return bool(args) and args[0] in LOOKS and not (of_the_readers or "--watch" in args or acts & set(args))


def shown(page: Path) -> Iterator[list[str]]:
    """The arguments of each ``henchman`` in a shell block or a unit file of the page."""
    lines = [line for block in blocks(page, "sh", "console") for line in block.text.replace("\\\n", " ").splitlines()]
    units = [re.sub(r"^ExecStart=\S*/", "", line) for one in blocks(page, "ini") for line in one.text.splitlines()]
    yield from commands([*lines, *units])


def named(page: Path) -> Iterator[list[str]]:
    """The arguments of each ``henchman`` in the text of the page."""
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    yield from commands([re.sub(r"\s+", " ", one) for one in re.findall(r"`(henchman [^`]+)`", text)])


def commands(lines: Iterable[str]) -> Iterator[list[str]]:
    for line in lines:
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars="|&;<>()")
        lexer.whitespace_split = True
        words = list(lexer)
        while words:
            end = next((n for n, word in enumerate(words) if re.fullmatch(r"[|&;<>()]+", word)), len(words))
            command, words = words[:end], words[end + 1 :]
            while command and re.match(r"\w+=", command[0]):
                command = command[1:]
            if command[:1] == ["henchman"]:
                yield command[1:]


@ALL
def test_commands_have_these_options(page: Path) -> None:
    for args in [*shown(page), *named(page)]:
        try:
            parse(henchman, [one.replace("…", "") for one in args if one != "…"])
        except click.UsageError as error:
            unknown = isinstance(error, click.NoSuchOption) or "No such command" in error.message
            if unknown or args in list(shown(page)):  # in a line of text arguments may be left out
                pytest.fail(f"henchman {shlex.join(args)}: {error.format_message()}")
        except click.exceptions.Exit:  # --help
            pass


def parse(command: click.Command, args: list[str], parent: click.Context | None = None) -> None:
    """Let each level of commands take its options, and run nothing."""
    context = command.make_context(command.name, args, parent=parent)
    if isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
        _, found, rest = command.resolve_command(context, rest)
        assert found is not None
        parse(found, rest, context)


@ALL
def test_settings_are_settings(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "toml"):
        text = block.text
        file = tmp_path / ("pyproject.toml" if "[tool." in text else "henchman.toml")
        file.write_text(text)
        if "henchman" in tomllib.loads(text).get("tool", {"henchman": {}}):
            assert Config.load(start=tmp_path, env={}) != Config()
        file.unlink()
    for variable in re.findall(r"\b(HENCHMAN_[A-Z_]+)=([^\s`]+)", page.read_text(encoding="utf-8")):
        if variable[0] != "HENCHMAN_DEBUG":
            Config.load(start=tmp_path, env=dict([variable]))


@ALL
def test_other_languages_are_read_by_their_parsers(page: Path, tmp_path: Path) -> None:
    for block in blocks(page, "json", "ini", "ruby"):
        if block.language == "json":
            json.loads(block.text)
        elif block.language == "ini":
            unit = configparser.ConfigParser(strict=True, interpolation=None)
            unit.read_string(block.text)
            assert unit.sections()
        else:
            done = subprocess.run(["ruby", "-c"], input=block.text, capture_output=True, text=True, check=False)
            assert done.returncode == 0, done.stderr


@ALL
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\((?!https?:)([^)#]+)", text):
        assert (page.parent / target).exists(), target


CONTRACTS = ("dependencies", "django", "exports", "fastapi", "flask", "keys", "outbox", "transactions", "workflows")


@pytest.mark.parametrize("name", CONTRACTS)
def test_a_page_about_a_promise_begins_with_what_is_not_promised(name: str) -> None:
    page = (ROOT / "docs" / f"{name}.md").read_text(encoding="utf-8")
    assert "not promise" in page.split("\n\n")[1].partition("\n")[0]


def test_manifests_are_whole_and_their_commands_and_figures_are_ours() -> None:
    """Checked for syntax: there is no cluster here."""
    yaml = pytest.importorskip("yaml")
    found: dict[str, Any] = {}
    for page in (ROOT / "docs" / "deploying.md", ROOT / "docs" / "monitoring.md"):
        for block in blocks(page, "yaml"):
            if "apiVersion" in (one := yaml.safe_load(block.text)):
                found[one["kind"]] = one
    assert set(found) == {"Deployment", "ScaledObject", "HorizontalPodAutoscaler"}
    workers = found["Deployment"]["spec"]
    pod = workers["template"]
    assert workers["selector"]["matchLabels"] == pod["metadata"]["labels"]
    assert pod["spec"]["terminationGracePeriodSeconds"] >= Config().shutdown_timeout + 15
    (container,) = pod["spec"]["containers"]
    parse(henchman, container["command"][1:])
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert container["command"][-1].endswith(f":{ports['health']}")
    name = found["Deployment"]["metadata"]["name"]
    assert found["ScaledObject"]["spec"]["scaleTargetRef"]["name"] == name
    assert found["HorizontalPodAutoscaler"]["spec"]["scaleTargetRef"]["name"] == name
    told = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    for figure in re.findall(
        r"henchman_\w+", yaml.safe_dump([found["ScaledObject"], found["HorizontalPodAutoscaler"]])
    ):
        assert f"| `{figure}` |" in told, figure


def test_few_blocks_are_excused() -> None:
    excused = [(page.stem, one.excuse) for page in PAGES for one in every_block(page) if one.excuse]
    assert len(excused) <= MOST_EXCUSES, excused


def test_languages_are_known() -> None:
    known = {"python", "sh", "console", "toml", "json", "ini", "ruby", "yaml", "text", "sql"}
    assert {one.language for page in PAGES for one in every_block(page)} <= known


def test_every_option_of_a_job_is_told() -> None:
    page = (ROOT / "docs" / "options.md").read_text(encoding="utf-8")
    told = {
        name: "yes" in row.rpartition("| ")[2] or "only there" in row
        for row in re.findall(
            r"^\| `.*\|$", page.partition("## Options of a job")[2].partition("\n## ")[0], re.MULTILINE
        )
        for name in re.findall(r"`(\w+)`", row.split("|")[1])
    }
    ours = {"iterable"}  # said by @app.iterable alone
    assert set(told) == {*JobOptions.__struct_fields__, *PushOptions.__struct_fields__} - ours
    assert {name for name, one in told.items() if one} == {*PushOptions.__struct_fields__} - ours


def test_the_reference_finds_what_it_describes() -> None:
    """Building it takes half a minute and is CI's: a class that was moved is to be known at once."""
    pages = runpy.run_path(str(ROOT / "docs" / "reference_pages.py"))
    for heading, target in pages["CLASSES"].items():
        assert isinstance(pkgutil.resolve_name(target), type), f"{heading}: {target}"
