"""One Config out of file, environment and arguments; what is wrong is named with its place and the way out."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from henchman.config import KEYS, UNSET, Config
from henchman.errors import ConfigError


def load(start: Path, env: dict[str, str] | None = None, **arguments: object) -> Config:
    return Config.load(start=start, env=env or {}, arguments=arguments)


def write(folder: Path, text: str, name: str = "henchman.toml") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(text)
    return folder


class TestLayers:
    def test_nothing_set_gives_the_defaults_and_says_so(self, tmp_path: Path) -> None:
        config = load(tmp_path)
        assert config == Config()
        assert set(config.origins) == set(KEYS)
        assert set(config.origins.values()) == {"default"}

    def test_later_layers_win_and_each_value_remembers_its_origin(self, tmp_path: Path) -> None:
        write(tmp_path, "concurrency = 1\nprocesses = 2\nlease = 40\n")
        config = load(tmp_path, {"HENCHMAN_CONCURRENCY": "3", "HENCHMAN_PROCESSES": "4"}, concurrency=5)
        assert (config.concurrency, config.processes, config.lease) == (5, 4, 40.0)
        assert config.origins["concurrency"] == "argument"
        assert config.origins["processes"] == "environment HENCHMAN_PROCESSES"
        assert config.origins["lease"] == f"henchman.toml ({tmp_path}/henchman.toml)"
        assert config.origins["queues"] == "default"

    def test_a_value_set_to_its_default_is_still_set(self, tmp_path: Path) -> None:
        write(tmp_path, "concurrency = 3")
        config = load(tmp_path, concurrency=10)
        assert (config.concurrency, config.origins["concurrency"]) == (10, "argument")

    @pytest.mark.parametrize("nothing", [None, UNSET])
    def test_an_unset_argument_leaves_what_the_file_says(self, tmp_path: Path, nothing: object) -> None:
        write(tmp_path, 'queues = ["mail"]')
        config = load(tmp_path, queues=nothing).with_arguments(queues=nothing)
        assert config.queues == ("mail",)
        assert "henchman.toml" in config.origins["queues"]

    def test_an_empty_list_argument_is_set(self, tmp_path: Path) -> None:
        write(tmp_path, 'queues = ["mail"]')
        assert load(tmp_path, queues=()).queues == ()

    def test_an_empty_variable_counts_as_not_set(self, tmp_path: Path) -> None:
        config = load(tmp_path, {"HENCHMAN_CONCURRENCY": "", "REDIS_URL": " ", "HENCHMAN_REDIS_URL": ""})
        assert config == Config()

    def test_redis_url_is_honoured_and_ours_wins(self, tmp_path: Path) -> None:
        config = load(tmp_path, {"REDIS_URL": "redis://theirs"})
        assert (config.redis_url, config.origins["redis_url"]) == ("redis://theirs", "environment REDIS_URL")
        config = load(tmp_path, {"REDIS_URL": "redis://theirs", "HENCHMAN_REDIS_URL": "redis://ours"})
        assert (config.redis_url, config.origins["redis_url"]) == ("redis://ours", "environment HENCHMAN_REDIS_URL")

    def test_with_arguments_changes_only_what_it_names(self, tmp_path: Path) -> None:
        first = load(tmp_path, {"HENCHMAN_LEASE": "60"}, tag="blue")
        second = first.with_arguments(concurrency=4)
        assert (second.lease, second.tag, second.concurrency) == (60.0, "blue", 4)
        assert second.origins["lease"] == "environment HENCHMAN_LEASE"
        assert first.concurrency == 10

    def test_timeout_is_the_command_lines_name_for_the_shutdown_timeout(self, tmp_path: Path) -> None:
        assert load(tmp_path, timeout=7).shutdown_timeout == 7.0

    def test_the_environment_is_read_at_load_and_not_at_import(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HENCHMAN_TAG", "late")
        assert Config.load().tag == "late"


NOBODY = 65534


class TestFilesOfOthers:
    """Settings from a folder above the working folder may be somebody else's trap."""

    @pytest.mark.parametrize("name", ["henchman.toml", "pyproject.toml"])
    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_another_users_file_above_is_refused(self, tmp_path: Path, name: str) -> None:
        inner = write(tmp_path, '[tool.henchman]\nredis_url = "redis://evil"', name) / "inner"
        inner.mkdir()
        os.chown(tmp_path / name, NOBODY, NOBODY)
        with pytest.raises(ConfigError, match=rf"{name} is not trusted: .* belongs to user number {NOBODY}.*put a"):
            load(inner)
        write(inner, "")
        assert load(inner).redis_url is None, "the way out that it names"

    @pytest.mark.parametrize(("file", "folder"), [(0o666, 0o755), (0o644, 0o777)])
    def test_what_everybody_may_write_above_is_refused(self, tmp_path: Path, file: int, folder: int) -> None:
        inner = write(tmp_path, 'redis_url = "redis://evil"') / "inner"
        inner.mkdir()
        (tmp_path / "henchman.toml").chmod(file)
        tmp_path.chmod(folder)
        with pytest.raises(ConfigError, match=r"is not trusted: .* everybody on this machine may .*chmod o-w"):
            load(inner)
        assert load(tmp_path).redis_url == "redis://evil", "who works in the folder itself sees what stands there"

    def test_ones_own_file_above_is_read(self, tmp_path: Path) -> None:
        inner = write(tmp_path, "concurrency = 3") / "inner"
        inner.mkdir()
        (tmp_path / "henchman.toml").chmod(0o664)
        tmp_path.chmod(0o1777)
        assert load(inner).concurrency == 3

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
    def test_a_project_that_speaks_of_other_things_does_not_matter(self, tmp_path: Path) -> None:
        inner = write(tmp_path, "[tool.other]", "pyproject.toml") / "inner"
        inner.mkdir()
        os.chown(tmp_path / "pyproject.toml", NOBODY, NOBODY)
        assert load(inner).concurrency == 10


class TestFiles:
    def test_the_nearest_parent_wins(self, tmp_path: Path) -> None:
        write(tmp_path, "concurrency = 1")
        inner = write(tmp_path / "a", "concurrency = 2")
        assert load(inner / "b" / "c").concurrency == 2
        assert load(tmp_path / "x").concurrency == 1

    def test_pyproject_is_read_and_one_without_our_table_is_passed_by(self, tmp_path: Path) -> None:
        write(tmp_path, "[tool.henchman]\nconcurrency = 6\n", "pyproject.toml")
        inner = write(tmp_path / "a", "[tool.ruff]\nline-length = 1\n", "pyproject.toml")
        config = load(inner)
        assert config.concurrency == 6
        assert config.origins["concurrency"] == f"pyproject.toml ({tmp_path}/pyproject.toml)"

    def test_another_tools_broken_file_is_not_ours_to_complain_of(self, tmp_path: Path) -> None:
        assert load(write(tmp_path, "this is [not toml", "pyproject.toml")) == Config()

    def test_two_files_side_by_side_are_refused(self, tmp_path: Path) -> None:
        write(tmp_path, "[tool.henchman]\n", "pyproject.toml")
        with pytest.raises(ConfigError, match="keep one of them"):
            load(write(tmp_path, ""))

    @pytest.mark.parametrize("text", ["concurrency = = 3", "tag = 'a\x00'", "\udcff"])
    def test_a_file_that_is_not_toml_is_named(self, tmp_path: Path, text: str) -> None:
        (tmp_path / "henchman.toml").write_bytes(text.encode("utf-8", "surrogateescape"))
        with pytest.raises(ConfigError, match=r"henchman\.toml cannot be read: "):
            load(tmp_path)

    def test_tool_henchman_that_is_no_table_is_named(self, tmp_path: Path) -> None:
        write(tmp_path, "[tool]\nhenchman = 3\n", "pyproject.toml")
        with pytest.raises(ConfigError, match="must be a table"):
            load(tmp_path)

    def test_a_relative_folder_is_relative_to_the_file(self, tmp_path: Path) -> None:
        write(tmp_path, 'folder = "var/hm"')
        assert load(tmp_path / "a" / "b").folder == tmp_path / "var" / "hm"

    def test_a_relative_folder_elsewhere_is_relative_to_the_working_folder(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert load(tmp_path, {"HENCHMAN_FOLDER": "hm"}).folder == tmp_path / "hm"
        assert load(tmp_path, folder=Path("../x")).folder == tmp_path.parent / "x"

    def test_the_servers_folder_is_in_the_project(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, "", "pyproject.toml")
        (tmp_path / "a" / "b").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / "a" / "b")
        assert load(tmp_path).server_folder() == tmp_path / ".henchman"
        assert load(tmp_path, folder="/srv/hm").server_folder() == Path("/srv/hm")


class TestUnknown:
    def test_in_a_file(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError,
            match=r"unknown setting 'concurency' in henchman\.toml \(/.*\); did you mean 'concurrency'\?",
        ):
            load(write(tmp_path, "concurency = 3"))

    def test_with_a_dash(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="did you mean 'redis_url'"):
            load(write(tmp_path, 'redis-url = "redis://x"'))

    def test_a_pyproject_table_in_henchman_toml(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"stand at the top, without \[tool.henchman\]"):
            load(write(tmp_path, "[tool.henchman]\nlease = 5"))

    def test_in_the_environment(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match=r"variable HENCHMAN_LEASES .*; did you mean 'HENCHMAN_LEASE'\?"):
            load(tmp_path, {"HENCHMAN_LEASES": "3"})
        with pytest.raises(ConfigError, match=r"did you mean 'HENCHMAN_LEASE'\?"):
            load(tmp_path, {"HENCHMAN_lease": "3"})

    def test_as_an_argument(self, tmp_path: Path) -> None:
        with pytest.raises(
            ConfigError, match=r"unknown setting 'redisurl' in the arguments; did you mean 'redis_url'\?"
        ):
            load(tmp_path, redisurl=None)

    def test_nothing_like_it(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, zzz=1)
        assert str(caught.value) == "unknown setting 'zzz' in the arguments"

    def test_variables_of_the_workshop_are_no_settings(self, tmp_path: Path) -> None:
        assert load(tmp_path, {"HENCHMAN_REQUIRE_ALL": "1", "HENCHMAN_TEST_X": "1"}) == Config()

    def test_variables_that_kubernetes_makes_for_a_service_of_our_name_are_no_settings(self, tmp_path: Path) -> None:
        names = ("PORT", "SERVICE_HOST", "WEB_SERVICE_PORT_HTTP", "WEB_PORT_80_TCP", "PORT_80_TCP_ADDR")
        assert load(tmp_path, {f"HENCHMAN_{name}": "tcp://10.0.0.1:80" for name in names}) == Config()

    def test_the_values_of_unknown_variables_are_not_shown(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, {"HENCHMAN_REDISURL": "redis://u:hush@h"})
        assert "hush" not in str(caught.value)


class TestValues:
    @pytest.mark.parametrize(
        ("text", "value"), [("yes", True), ("TRUE", True), ("1", True), ("no", False), ("0", False)]
    )
    def test_booleans_in_the_environment(self, tmp_path: Path, text: str, value: bool) -> None:
        assert load(tmp_path, {"HENCHMAN_EMBEDDED": text}).embedded is value

    def test_lists_in_the_environment(self, tmp_path: Path) -> None:
        assert load(tmp_path, {"HENCHMAN_QUEUES": "critical:3, default,"}).queues == ("critical:3", "default")

    def test_durations(self, tmp_path: Path) -> None:
        assert load(tmp_path, {"HENCHMAN_LEASE": "7.5"}).lease == 7.5
        assert load(tmp_path, lease=timedelta(minutes=1)).lease == 60.0
        assert isinstance(load(tmp_path, lease=6).lease, float)

    @pytest.mark.parametrize(
        ("given", "megabytes"), [(500, 500), ("500MB", 500), ("1GB", 1024), ("1.5 gb", 1536), ("500", 500)]
    )
    def test_memory(self, tmp_path: Path, given: object, megabytes: int) -> None:
        assert load(tmp_path, max_memory=given).max_memory == megabytes
        assert load(tmp_path, {"HENCHMAN_MAX_MEMORY": str(given)}).max_memory == megabytes

    def test_choices(self, tmp_path: Path) -> None:
        config = load(write(tmp_path, 'sidekiq = 8\ntimestamps = "ms"'), {"HENCHMAN_LOG_LEVEL": "WARNING"})
        assert (config.sidekiq, config.timestamps, config.log_level) == ("8", "ms", "warning")

    @pytest.mark.parametrize(
        ("name", "value", "due"),
        [
            ("concurrency", 0, "a whole number from 1 to 1,000"),
            ("concurrency", 1001, "a whole number"),
            ("concurrency", True, "a whole number"),
            ("concurrency", 1.0, "a whole number"),
            ("concurrency", "4", "a whole number"),
            ("lease", 4.9, "seconds, a number from 5 to 3,600"),
            ("lease", float("nan"), "seconds"),
            ("lease", float("inf"), "seconds"),
            ("lease", "30", "seconds"),
            ("embedded", "yes", "true or false"),
            ("embedded", 1, "true or false"),
            ("queues", "mail", "a list"),
            ("queues", [3], "NAME or NAME:WEIGHT"),
            ("queues", ["mail:0"], "NAME or NAME:WEIGHT"),
            ("queues", ["two words"], "NAME or NAME:WEIGHT"),
            ("namespace", "a b", "letters, digits"),
            ("namespace", "app:", "not ending in a colon"),
            ("sidekiq", "9", "one of mixed, 8, 7, 6"),
            ("log_level", "warn", "did you mean 'warning'"),
            ("max_memory", "lots", "such as 500"),
            ("folder", "", "a path"),
            ("folder", "a\0b", "a path"),
            ("redis_url", "localhost:6379", "an address such as redis://localhost:6379/0"),
            ("redis_url", "redsi://h", "did you mean 'redis'"),
            ("redis_url", 6379, "an address"),
        ],
    )
    def test_what_is_wrong_is_named(self, tmp_path: Path, name: str, value: object, due: str) -> None:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, **{name: value})
        text = str(caught.value)
        assert text.startswith(f"{name} = ")
        assert "(argument): it must be" in text
        assert due in text

    @pytest.mark.parametrize("text", ["ten", "1e3", "0x10", "--1", "9" * 5000, "nan"])
    def test_numbers_in_the_environment_are_plain(self, tmp_path: Path, text: str) -> None:
        for name in ("CONCURRENCY", "LEASE"):
            with pytest.raises(ConfigError, match=rf"\(environment HENCHMAN_{name}\): it must be"):
                load(tmp_path, {f"HENCHMAN_{name}": text})

    def test_an_overridden_value_is_checked_too(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="concurrency = -1"):
            load(write(tmp_path, "concurrency = -1"), concurrency=4)

    def test_milliseconds_need_sidekiq_8(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match='set sidekiq = "8" too'):
            load(tmp_path, timestamps="ms")
        assert load(tmp_path, timestamps="ms", sidekiq="8").timestamps == "ms"

    def test_the_heartbeat_follows_a_short_lease_unless_it_was_chosen(self, tmp_path: Path) -> None:
        config = load(tmp_path, lease=6)
        assert (config.heartbeat, config.origins["heartbeat"]) == (2.0, "default")
        assert config.with_arguments(lease=60).heartbeat == 5.0
        assert load(tmp_path, lease=6, heartbeat=60).heartbeat == 60.0, "the lease is renewed beside it"


class TestShown:
    def test_describe_names_every_setting_with_help_and_origin(self, tmp_path: Path) -> None:
        shown = {one.name: one for one in load(tmp_path, lease=60, queues=["a", "b"], max_memory="1GB").describe()}
        assert tuple(shown) == KEYS
        assert all(one.help.endswith((".", "lease.")) for one in shown.values())
        assert shown["lease"][1:3] == ("1 min", "argument")
        assert shown["queues"].value_text == "a, b"
        assert shown["max_memory"].value_text == "1 GB"
        assert shown["dead_timeout"].value_text == "180 days"
        assert shown["redis_url"].value_text == "not set"
        assert shown["embedded"].value_text == "true"

    def test_passwords_are_never_shown(self, tmp_path: Path) -> None:
        config = load(tmp_path, redis_url="rediss://user:hush@host:1/0")
        assert {one.name: one.value_text for one in config.describe()}["redis_url"] == "rediss://user:***@host:1/0"
        assert repr(config) == "Config(redis_url=rediss://user:***@host:1/0)"
        for bad in ("redsi://u:hush@h", "u:hush@host"):
            with pytest.raises(ConfigError) as caught:
                load(tmp_path, redis_url=bad)
            assert "hush" not in str(caught.value)

    def test_values_from_elsewhere_are_shown_as_text(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError) as caught:
            load(tmp_path, {"HENCHMAN_LOG_LEVEL": "\x1b[31m" + "x" * 500})
        assert "\x1b" not in str(caught.value)
        assert len(str(caught.value)) < 300


class TestPassedOn:
    def test_a_child_process_gets_the_same_settings_and_origins(self, tmp_path: Path) -> None:
        config = load(
            tmp_path,
            {"HENCHMAN_LEASE": "6"},
            queues=["a:3"],
            folder="/srv/hm",
            redis_url="redis://:pw@h",
            max_memory=100,
            sidekiq="8",
            timestamps="ms",
        )
        again = Config.from_json(config.to_json())
        assert again == config
        assert again.origins == config.origins
        assert Config.from_json(Config().to_json()) == Config()

    def test_importing_loads_nothing_heavy(self) -> None:
        """Every program that pushes a job imports Henchman: what takes long to load waits until it is needed."""
        heavy = ("redis", "asyncio", "logging", "hashlib", "click", "rich", "sqlalchemy", "tomllib", "subprocess")
        code = f"import sys, henchman; print(*[m for m in {heavy} if m in sys.modules])"
        assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "\n"


class TestTokens:
    GOOD = "0123456789abcdef"

    def test_one_or_several_and_never_shown(self, tmp_path: Path) -> None:
        assert load(tmp_path, api_token=self.GOOD).api_token == (self.GOOD,)
        both = load(tmp_path, {"HENCHMAN_API_TOKEN": f"{self.GOOD}, {self.GOOD}2"})
        assert both.api_token == (self.GOOD, self.GOOD + "2")
        assert {one.name: one.value_text for one in both.describe()}["api_token"] == "***, ***"
        assert self.GOOD not in repr(both)
        assert Config.from_json(both.to_json()) == both

    @pytest.mark.parametrize("wrong", ["short", "with space 0123456789", ["short"], 5, "0123456789abcdef,x"])
    def test_what_is_no_token_is_not_repeated(self, tmp_path: Path, wrong: object) -> None:
        with pytest.raises(ConfigError, match=r"api_token = \*\*\* \(argument\): .*each 16 to 200") as caught:
            load(tmp_path, api_token=wrong)
        assert "short" not in str(caught.value)
