"""Names of jobs: where they come from, which are refused, and that only what is registered is ever found."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from henchman.app import App
from henchman.client.job import AsyncJob, Job
from henchman.client.registry import wire_name
from henchman.errors import ConfigError, DefinitionError, UnknownJob


def top(x: int) -> None:
    """A function that a worker can find."""


async def atop(x: int) -> None:
    """Another one."""


class Mailer:
    @staticmethod
    def send(x: int) -> None:
        """A function in a class."""


@pytest.fixture
def app() -> App:
    return App(redis_url="redis://127.0.0.1:1")


def module(path: Path, text: str, name: str) -> ModuleType:
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def test_names_say_where_the_function_is(app: App) -> None:
    assert app.job(top).name == f"{__name__}.top"
    assert app.job(Mailer.send).name == f"{__name__}.Mailer.send"
    assert app.job(name="HardJob")(atop).name == "HardJob"


def test_def_and_async_def(app: App) -> None:
    plain, waiting = app.job(top), app.job(atop)
    assert (type(plain), plain.is_async) == (Job, False)
    assert (type(waiting), waiting.is_async) == (AsyncJob, True)


def test_what_no_worker_could_find(app: App) -> None:
    def inner() -> None: ...

    for function, said in ((inner, "is defined inside a function"), (lambda: None, "<lambda> is defined inside")):
        with pytest.raises(DefinitionError, match=said) as caught:
            app.job(function)
        assert "give it a fixed name=" in str(caught.value)
    assert app.job(name="inner")(inner).name == "inner"


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (print, "is for functions"),
        (Mailer, "is for functions"),
        (7, "is for functions"),
        ((i for i in ()), "is for functions"),
    ],
)
def test_what_is_no_function(app: App, function: Any, said: str) -> None:
    with pytest.raises(DefinitionError, match=said):
        app.job(name="x")(function)


def test_generators_are_no_jobs(app: App) -> None:
    def many() -> Any:
        yield 1

    async def amany() -> Any:
        yield 1

    for function in (many, amany):
        with pytest.raises(DefinitionError, match="a job returns, it does not yield"):
            app.job(name="x")(function)


def test_a_job_of_a_job(app: App) -> None:
    job = app.job(top)
    with pytest.raises(DefinitionError, match=r"top is a job already"):
        app.job(job)


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 501, "\u202eevil"])
def test_unusable_names(app: App, name: str) -> None:
    with pytest.raises(DefinitionError, match="printable text of 1 to 500"):
        app.job(name=name)(top)


def test_two_functions_under_one_name(app: App) -> None:
    app.job(name="x")(top)
    with pytest.raises(DefinitionError, match="two functions are called 'x'") as caught:
        app.job(name="x")(atop)
    assert str(caught.value).count(Path(__file__).name) == 2


def test_a_module_that_is_loaded_again_defines_its_jobs_again(app: App, tmp_path: Path) -> None:
    text = "def work(x):\n    return {}\n"
    first = module(tmp_path / "mod.py", text.format(1), "mod").work
    second = module(tmp_path / "mod.py", text.format(2), "mod").work
    app.job(first)
    assert app.registry.get(app.job(second).name).function is second
    assert len(app.registry) == 1


def test_only_what_is_registered_is_found(app: App) -> None:
    job = app.job(name="pkg.send")(top)
    assert app.registry.get("pkg.send") is app.registry.find("pkg.send") is job
    assert app.registry.find("os.system") is None
    with pytest.raises(UnknownJob, match=r"no job is registered as 'pkg\.sent'; did you mean 'pkg\.send'\?"):
        app.registry.get("pkg.sent")
    with pytest.raises(UnknownJob) as caught:
        app.registry.get("\x1b[31m" + "x" * 10_000)
    assert "\x1b" not in str(caught.value)
    assert len(str(caught.value)) < 400


def test_queues(app: App) -> None:
    assert app.registry.queues() == ["default"]
    app.job(queue="mail")(top)
    app.job(queue="a")(atop)
    assert app.registry.queues() == ["a", "default", "mail"]
    assert [one.name for one in app.registry] == [f"{__name__}.top", f"{__name__}.atop"]


SCRIPT = """
from henchman import App
app = App(redis_url="redis://127.0.0.1:1")
@app.job
def work(): ...
print(work.name)
"""


@pytest.mark.parametrize(
    ("how", "name"),
    [(["shop.py"], "shop.work"), (["-m", "shop"], "shop.work"), (["-m", "store"], "store.work")],
)
def test_a_main_module_has_the_name_by_which_it_is_imported(tmp_path: Path, how: list[str], name: str) -> None:
    (tmp_path / "shop.py").write_text(SCRIPT)
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "__main__.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert run.stdout == f"{name}\n"


@pytest.mark.parametrize("how", [["-c", SCRIPT], ["my-script.py"]])
def test_a_main_module_that_nobody_can_import(tmp_path: Path, how: list[str]) -> None:
    (tmp_path / "my-script.py").write_text(SCRIPT)
    run = subprocess.run([sys.executable, *how], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "DefinitionError: work is defined in" in run.stderr
    assert "give it a fixed name=" in run.stderr


def test_wire_name_of_a_module_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    monkeypatch.setattr(top, "__module__", "__main__")
    with pytest.raises(DefinitionError, match="interactive session"):
        wire_name(top)


def test_imports(app: App, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("hm_pkg", "hm_pkg/one", "hm_pkg/two", "hm_pkg/none"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    for name in ("one", "two"):
        (tmp_path / "hm_pkg" / name / "jobs.py").write_text(f"import hm_seen\nhm_seen.names.append('{name}')\n")
    (tmp_path / "hm_seen.py").write_text("names = []\n")

    App(imports=["hm_pkg.*.jobs"], redis_url="redis://127.0.0.1:1").load_imports()

    assert sorted(importlib.import_module("hm_seen").names) == ["one", "two"]
    with pytest.raises((ImportError, ConfigError), match="hm_nothing"):
        App(imports=["hm_nothing"], redis_url="redis://127.0.0.1:1").load_imports()


def test_settings_after_the_first_connection(app: App) -> None:
    app.configure(namespace="a")
    assert app.keys.queues == "a:queues"
    app._connections = object()
    with pytest.raises(ConfigError, match="connected already"):
        app.configure(namespace="b")


def test_an_alias_finds_the_job_and_is_no_second_one(app: App) -> None:
    job = app.job(name="new", aliases=["old", "older", "old"], secret=["x"])(top)
    assert job.options.aliases == ("old", "older")
    assert [app.registry.find(name) for name in ("new", "old", "older")] == [job] * 3
    assert app.registry.get("old") is job
    assert (list(app.registry), len(app.registry)) == ([job], 1)
    assert app.registry.mask("old", [1], {}) == (["***"], {})


@pytest.mark.parametrize(
    ("name", "aliases", "said"),
    [
        ("b", ["b"], "b: aliases= names the job itself"),
        ("b", ["a"], r"b: aliases= has 'a', which is the job at .*: a name in a payload means one job"),
        ("b", ["a_was"], "b: aliases= has 'a_was', which is one of a: a name in a payload means one job"),
        ("a_was", [], "'a_was' is an alias of a, so jobs of that name are its own: take it out of its aliases="),
        ("b", "old", "aliases='old': give a list of texts"),
        ("b", ["\n"], "printable text"),
    ],
)
def test_aliases_that_would_mean_two_jobs_are_refused(app: App, name: str, aliases: Any, said: str) -> None:
    app.job(name="a", aliases=["a_was"])(top)
    with pytest.raises(DefinitionError, match=said):
        app.job(name=name, aliases=aliases)(atop)
    assert [one.name for one in app.registry] == ["a"]


def test_a_module_that_is_reloaded_may_give_an_alias_back(app: App) -> None:
    app.job(name="a", aliases=["a_was"])(top)
    app.job(name="a")(top)
    assert app.registry.find("a_was") is None
    app.job(name="a_was")(atop)


def test_keys_of_a_renamed_job_go_on_in_the_scope_of_its_oldest_name(app: App) -> None:
    def one(x: int) -> None: ...
    def other(x: int) -> None: ...

    assert app.job(name="new", aliases=["first", "second"], key="x", once=True)(one).options.scope == "first"
    assert app.job(name="own", aliases=["was"], key="x", once=True, scope="mine")(other).options.scope == "mine"
    assert app.job(name="plain", aliases=["b"])(top).options.scope is None


def test_only_a_definition_has_aliases(app: App) -> None:
    with pytest.raises(DefinitionError, match="aliases= cannot travel with a job"):
        app.enqueue("X", aliases=["y"])  # type: ignore[call-arg]
    with pytest.raises(DefinitionError, match="aliases= is not for ordered queues"):
        app.ordered(queue="o", aliases=["y"])(top)  # type: ignore[call-arg]
