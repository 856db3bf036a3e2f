"""What is released: the archives are whole; the wheel alone, in an empty environment, does what the README promises."""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

import henchman
from fundamentals.test_walks import ROOT, Reader, quick_start
from support.processes import clean_environ

pytestmark = pytest.mark.frameworks("it makes an environment of its own")


def ran(*command: str | Path, **options: object) -> str:
    """What a command says; it must end well."""
    done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, **options)  # type: ignore[call-overload]
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return str(done.stdout)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is made of it."""
    pytest.importorskip("build", reason="pip install -e '.[frameworks]'")
    out = tmp_path_factory.mktemp("dist")
    ran(sys.executable, "-m", "build", "--no-isolation", "--outdir", out, ROOT)
    (sdist,), (wheel,) = out.glob("*.tar.gz"), out.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def programs(archives: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the programs of an environment are in which the wheel was installed with the extras of the quick start."""
    home = tmp_path_factory.mktemp("env")
    ran(sys.executable, "-m", "venv", home)
    quiet = ("--quiet", "--disable-pip-version-check", "--no-input")
    ran(home / "bin/python", "-m", "pip", "install", *quiet, f"{archives[1]}[embedded,sql]", env=clean_environ())
    return home / "bin"


@pytest.fixture
def newcomer(programs: Path, tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path, programs)
    yield made
    made.stop()


def test_the_archives_pass_the_check_of_the_index(archives: tuple[Path, Path]) -> None:
    assert ran(sys.executable, "-m", "twine", "--no-color", "check", "--strict", *archives).count("PASSED") == 2
    for archive in archives:
        assert archive.name.startswith(f"henchman-{henchman.__version__}")


def test_the_wheel_has_all_that_the_package_has(archives: tuple[Path, Path]) -> None:
    source = ROOT / "src"
    listed = ran("git", "-C", ROOT, "ls-files", "src").split()
    with zipfile.ZipFile(archives[1]) as wheel:
        packed = {one for one in wheel.namelist() if ".dist-info/" not in one}
    assert {str((ROOT / one).relative_to(source)) for one in listed} == packed


def test_the_sdist_is_what_one_works_with(archives: tuple[Path, Path]) -> None:
    with tarfile.open(archives[0]) as sdist:
        packed = {one.partition("/")[2] for one in sdist.getnames()}
    for file in (
        "LICENSE",
        "README.md",
        "CHANGELOG.md",
        "pyproject.toml",
        "Makefile",
        "tests/conftest.py",
        "tools/test",
    ):
        assert file in packed, file
    strange = {one.partition("/")[0] for one in packed} - {one.name for one in ROOT.iterdir()} - {"PKG-INFO"}
    assert not strange
    assert not [one for one in packed if ".venv" in one or "__pycache__" in one]


def test_the_wheel_alone_walks_the_quick_start(newcomer: Reader) -> None:
    newcomer.walk(quick_start())


def test_the_wheel_alone_runs_the_demo(programs: Path, tmp_path: Path) -> None:
    said = ran(programs / "henchman", "demo", cwd=tmp_path, env=clean_environ())
    assert "10,000" in said


def test_nothing_of_the_clone_is_used(programs: Path, tmp_path: Path) -> None:
    where = ran(
        programs / "python", "-c", "import henchman; print(henchman.__file__)", cwd=tmp_path, env=clean_environ()
    )
    assert where.startswith(str(programs.parent))


@pytest.mark.parametrize("name", ["ci", "release"])
def test_a_workflow_is_whole(name: str) -> None:
    """Checked for syntax: there was no forge to run it."""
    yaml = pytest.importorskip("yaml")
    file = yaml.safe_load((ROOT / f".github/workflows/{name}.yml").read_text(encoding="utf-8"))
    assert file["permissions"] == {"contents": "read"}
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for job in file["jobs"].values():
        assert job["timeout-minutes"] <= 90
        for step in job["steps"]:
            assert ("uses" in step) != ("run" in step), step
            assert re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v1)", step.get("uses", "actions/checkout@v4")), step
            for target in re.findall(r"\bmake ([a-z-]+)", step.get("run", "")):
                assert target in targets


def test_the_hooks_are_the_programs_of_a_check() -> None:
    yaml = pytest.importorskip("yaml")
    (local,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    assert local["repo"] == "local"
    assert {one["entry"] for one in local["hooks"]} <= {line.strip() for line in makefile.splitlines()}


def test_only_pythons_that_were_run_are_claimed() -> None:
    claimed = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    row = next(
        line for line in (ROOT / "docs/versions.md").read_text(encoding="utf-8").splitlines() if "CPython" in line
    )
    assert claimed == ["3.11"]
    assert all(one in row for one in claimed)


def test_the_compose_file_says_what_the_programs_take() -> None:
    """Checked for syntax: nothing here builds images."""
    yaml = pytest.importorskip("yaml")
    file = yaml.safe_load((ROOT / "contrib/docker/compose.yaml").read_text(encoding="utf-8"))
    for name, service in file["services"].items():
        assert ("image" in service) != ("build" in service), name
        assert set(service.get("depends_on", {})) <= set(file["services"])
        assert {one.partition(":")[0] for one in service.get("volumes", ())} <= set(file["volumes"])
        if service["command"][0] == "henchman":
            said = ran(sys.executable, "-m", "henchman", service["command"][1], "--help")
            assert not [one for one in service["command"] if one.startswith("-") and one not in said]
