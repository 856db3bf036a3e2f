"""The pytest plugin, as a user's tests meet it; and the examples of docs/testing.md, run with it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PLUGIN = "henchman.testing.plugin"
pytest_plugins = ["pytester"]

APP = """
from henchman import App

app = App(redis_url="redis://nobody.invalid:1")
ran = []

@app.job
def note(number: int) -> None:
    ran.append(number)
"""
CONFTEST = """
import jobs, pytest

@pytest.fixture(scope="session")
def henchman_app():
    return jobs.app
"""


def run(pytester: pytest.Pytester, *args: str) -> pytest.RunResult:
    """pytest in a process of its own that finds the plugin by the entry point which pyproject.toml names."""
    installed = pytester.mkdir("installed")
    facts = installed / "henchman_plugin-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: henchman-plugin\nVersion: 1.0\n", encoding="utf-8")
    lines = [f"{name} = {module}" for name, module in PYPROJECT["project"]["entry-points"]["pytest11"].items()]
    (facts / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines, ""]), encoding="utf-8")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(installed), os.environ.get("PYTHONPATH")])))
        result = pytester.runpytest_subprocess("-p", "no:randomly", "-W", "error", *args, timeout=150)
    shutil.rmtree(installed)
    return result


def test_it_loads_without_the_heavy_parts() -> None:
    code = f"import sys, {PLUGIN}; print(*[n for n in ('redis', 'hiredis', 'click', 'rich') if n in sys.modules])"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=150).stdout
    assert out.split() == []


def test_a_session_has_one_server_that_is_empty_at_each_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(jobs=APP, conftest=CONFTEST)
    pytester.makepyfile(
        """
        import os, pytest
        from jobs import app, note, ran

        urls = []

        @pytest.mark.parametrize("number", [1, 2])
        def test_real(henchman, number):
            urls.append(henchman.url)
            assert henchman.app is app
            assert [queue.name for queue in app.queues] == []
            note.enqueue(number)
            note.using(delay=3600).enqueue(number)
            assert [(queue.name, queue.size()) for queue in app.queues] == [("default", 1)]
            worker = henchman.drain()
            assert worker.errors == []
            assert ran[-1] == number

        def test_one_server():
            assert urls[0] == urls[1]

        def test_fake(henchman_fake, henchman_clock, henchman):
            note.using(delay=60).enqueue(9)  # to the server: the fixture that came last answers
            assert len(henchman_fake) == 0
            with henchman.worker() as worker:
                worker.drain()

        def test_clock(henchman_fake, henchman_clock):
            note.using(delay=60).enqueue(9)
            assert len(henchman_fake.drain_all()) == 0
            henchman_clock.advance(60)
            assert len(henchman_fake.drain_all()) == 1
            assert app.stand_ins

        def test_afterwards():
            assert "stand_ins" not in vars(app)
        """
    )
    run(pytester).assert_outcomes(passed=6)


def test_the_app_comes_from_the_settings(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(jobs=APP)
    pytester.makepyfile("def test_it(henchman_app):\n    import jobs\n    assert henchman_app is jobs.app\n")
    missing = run(pytester)
    missing.assert_outcomes(errors=1)
    missing.stdout.fnmatch_lines(["*which app? Define a fixture henchman_app that returns it*"])
    pytester.makefile(".toml", henchman='app = "jobs:app"\n')
    run(pytester).assert_outcomes(passed=1)


def test_a_failed_assertion_shows_its_words_and_not_our_code(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(jobs=APP, conftest=CONFTEST)
    pytester.makepyfile(
        "from jobs import note\ndef test_it(henchman_fake):\n    henchman_fake.assert_enqueued(note, 1)\n"
    )
    failed = run(pytester)
    failed.stdout.fnmatch_lines(["E * AssertionError: expected a push of jobs.note(1); found none"])
    failed.stdout.no_fnmatch_line("*looks.py*")


def test_a_test_that_forgets_its_fixture_pushes_nothing(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(jobs=APP.replace('redis_url="redis://nobody.invalid:1"', ""), conftest=CONFTEST)
    pytester.makepyfile(
        """
        import asyncio, pytest
        from henchman import App, testing
        from jobs import app, note, ran

        @pytest.mark.parametrize("ask", [
            lambda: note.enqueue(1),
            lambda: note.using(delay=5).enqueue(1),
            lambda: note.enqueue_many([(1,)]),
            lambda: app.enqueue("jobs.note", 1),
            lambda: asyncio.run(note.aenqueue(1)),
            lambda: note.using(batch=app.batch("x").open()).enqueue(1),
            lambda: app.queues["default"].size(),
            lambda: App().enqueue("x"),
        ])
        def test_it(ask):
            with pytest.raises(testing.NoFixture, match="use the fixture henchman_fake or henchman"):
                ask()

        def test_forgotten():
            note.enqueue(1)

        def test_blocks(henchman):
            note.enqueue(1)
            with testing.fake(app) as jobs:
                note.enqueue(2)
                jobs.drain_all()
            with testing.inline(app):
                note.enqueue(3)
            henchman.drain()
            assert ran == [2, 3, 1]
            with testing.worker(App()) as worker:
                worker.app.enqueue("x")

        def test_afterwards():
            with pytest.raises(testing.NoFixture):
                note.enqueue(1)
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=10, failed=1)
    done.stdout.fnmatch_lines(["*NoFixture: this test talks to the server of the app itself (*"])
    assert not (pytester.path / ".henchman").exists()


def test_a_setting_allows_it(pytester: pytest.Pytester) -> None:
    pytester.makeini("[pytest]\nhenchman_real_server = true")
    pytester.makepyfile(jobs=APP)
    pytester.makepyfile(
        """
        import pytest
        from henchman import ServerAway
        from jobs import note

        def test_it():
            with pytest.raises(ServerAway):
                note.enqueue(1)
        """
    )
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.parametrize(("fixture", "drain"), [("henchman", "drain"), ("henchman_fake", "drain_all")])
def test_a_failed_test_shows_what_its_jobs_raised(pytester: pytest.Pytester, fixture: str, drain: str) -> None:
    secret = APP + "    if number < 0: raise ValueError(f'no such number: {number}')\n"
    pytester.makepyfile(jobs=secret.replace("@app.job", "@app.job(retry=0)"), conftest=CONFTEST)
    pytester.makepyfile(
        f"""
        from jobs import note, ran

        def test_it({fixture}):
            note.enqueue_many([(-1,), (7,)])
            {fixture}.{drain}()
            assert ran == [7, 8]

        def test_that_passes({fixture}):
            note.enqueue(-2)
            {fixture}.{drain}()
        """
    )
    done = run(pytester)
    done.assert_outcomes(passed=1, failed=1)
    done.stdout.fnmatch_lines(["*what jobs raised: 1*", "*jobs.py*", "ValueError: no such number: -1"])
    done.stdout.no_fnmatch_line("*no such number: -2*")


def test_the_examples_of_the_docs(pytester: pytest.Pytester) -> None:
    text = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)
    tests = 0
    for number, block in enumerate(blocks):
        named = re.match(r"# (\w+\.py)\n", block)
        name = named[1] if named else f"test_docs_{number}.py"
        (pytester.path / name).write_text(block, encoding="utf-8")
        tests += block.count("\ndef test_")
    assert tests >= 7
    run(pytester).assert_outcomes(passed=tests)
