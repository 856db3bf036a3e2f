"""Each Lua header against its callers: the number of keys and arguments, their order, and no key that was not given."""

from __future__ import annotations

import ast
import inspect
import re

import pytest

from architecture.lua_headers import (
    Names,
    indexes,
    key_problems,
    key_table,
    keys_made,
    read_header,
    strings,
    without_comments,
)
from architecture.samples import SAMPLES
from architecture.source import LUA, called, functions, modules
from architecture.test_keys import KEY
from henchman.store.call import Call, load
from henchman.store.keys import Keys

SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))
NAMESPACE = "sample"
KEYS_LUA = without_comments((LUA / "lib" / "keys.lua").read_text(encoding="utf-8"))


def as_written(name: str) -> str:
    """The text of a script with its libraries, with the names of keys in place of what ``load`` made of them."""
    text = load(name).text
    for one, rest in key_table(KEYS_LUA).items():
        text = text.replace(f"(prefix .. '{rest}')", f"key('{one}')")
    return text


def callers() -> list[str]:
    """Every function of the store that builds a call on a script."""
    return [
        f"{module.name.removeprefix('store.')}.{name}"
        for module in modules().values()
        for name, node in functions(module)
        if module.name.startswith("store.")
        and module.name != "store.call"
        and any(called(one) == "script" for one in ast.walk(node))
    ]


def calls() -> list[tuple[str, Call[object]]]:
    return [(name, make(Keys(NAMESPACE))) for name, makers in SAMPLES.items() for make in makers]


def sent(call: Call[object]) -> tuple[list[str], list[object]]:
    """The keys and the arguments of a call of a script."""
    [(_, _, count, *rest)] = call.parts
    assert isinstance(count, int)
    return [key.decode() if isinstance(key, bytes) else str(key) for key in rest[:count]], list(rest[count:])


def test_every_caller_of_a_script_has_its_samples() -> None:
    assert sorted(SAMPLES) == sorted(callers()), "tests/architecture/samples.py and henchman.store disagree"


def test_every_script_has_a_caller() -> None:
    assert sorted({call.script.name for _, call in calls() if call.script}) == SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_header(name: str) -> None:
    text = load(name).text
    header = read_header(text)
    code = without_comments(text)
    assert header.name == name
    for table, names in (("KEYS", header.keys), ("ARGV", header.args)):
        beyond = [one for one in indexes(code, table) if one > len(names.fixed) and not names.group]
        assert not beyond, f"{name}.lua reads {table}{beyond}, the header names {len(names.fixed)}"


@pytest.mark.parametrize("name", SCRIPTS)
def test_script_touches_only_the_keys_it_was_given_or_made_by_name(name: str) -> None:
    code = without_comments(as_written(name))
    own = code.replace(KEYS_LUA.rstrip("\n"), "")
    assert [one for one in strings(own) if KEY.search(one)] == [], f"{name}.lua spells a key"
    assert set(re.findall(r"\bprefix\b", own)) == set(), f"{name}.lua makes a key without lib/keys.lua"
    assert [one for one in keys_made(own) if one not in key_table(KEYS_LUA)] == [], "lib/keys.lua has no such name"
    assert key_problems(own) == [], f"{name}.lua touches a key that neither came from KEYS nor was made by key()"


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_that_makes_keys_is_given_one_to_make_them_of(name: str) -> None:
    """A real key: a cluster sends the call where it, and all others of its tag, are."""
    script = load(name).text
    if KEYS_LUA.rstrip("\n") in without_comments(script):
        assert read_header(script).keys.fixed[:1] == ["queues"]


def test_keys_have_the_same_names_in_lua_and_in_python() -> None:
    """And each is used: the table holds no name that no script asks for."""
    table = key_table(KEYS_LUA)
    assert len(table) == KEYS_LUA.count(" = '")
    assert {name: beginning(name) for name in table} == {name: f"{NAMESPACE}:{rest}" for name, rest in table.items()}
    used = {one for name in SCRIPTS for one in keys_made(without_comments(as_written(name)))}
    assert set(table) == used


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_makes_the_table_of_names(name: str) -> None:
    assert keys_made(without_comments(load(name).text)) == [], "each call would make it anew"


def test_callers_send_what_the_headers_name() -> None:
    wrong = []
    for function, call in calls():
        assert call.script is not None, f"the sample of {function} is not built on a script"
        header = read_header(call.script.text)
        keys, args = sent(call)
        named = header.keys, header.args
        for word, names, values in zip(("keys", "arguments"), named, (keys, args), strict=True):
            if not names.fit(len(values)):
                wrong.append(f"{function} sends {len(values)} {word}; {header.name}.lua names {show(names)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", SCRIPTS)
def test_groups_are_sampled_twice_over(name: str) -> None:
    header = read_header(load(name).text)
    samples = [sent(call) for _, call in calls() if call.script and call.script.name == name]
    for names, values in ((header.keys, [keys for keys, _ in samples]), (header.args, [args for _, args in samples])):
        assert max(map(len, values)) >= len(names.fixed) + 2 * len(names.group), (
            f"{name}: no sample repeats the group of {show(names)}"
        )


def test_keys_stand_in_the_order_of_the_header() -> None:
    wrong = []
    for function, call in calls():
        header = read_header(call.script.text if call.script else "")
        keys, _ = sent(call)
        for index, key in enumerate(keys):
            name = header.keys.name(index)
            if not key.startswith(beginning(name)):
                wrong.append(f"{function} sends {key!r} as KEYS[{index + 1}], which {header.name}.lua calls {name}")
    assert not wrong, "\n".join(wrong)


def beginning(name: str) -> str:
    """How a key of this name begins, where store/keys.py has it under this name; at least with the namespace."""
    known = getattr(Keys(NAMESPACE), name, f"{NAMESPACE}:")
    if callable(known):
        types = {"str": "\0", "int": 0}
        given = [types[str(one.annotation)] for one in inspect.signature(known).parameters.values()]
        return str(known(*given)).partition("\0")[0]
    return str(known)


def show(names: Names) -> str:
    return " ".join(names.fixed) + (f" ({' '.join(names.group)})*" if names.group else "")


class TestTheReader:
    """The reader of headers, tried on what is wrong."""

    def test_headers(self) -> None:
        header = read_header("-- x: y\n-- KEYS a b (c d)*\n-- ARGV\n-- returns 1")
        assert (header.keys, header.args) == (Names(["a", "b"], ["c", "d"]), Names([], []))
        assert [header.keys.fit(count) for count in (1, 2, 3, 4, 6)] == [False, True, False, True, True]
        assert header.keys.name(5) == "d"

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "-- x",
            "-- x: y\n-- KEYS (a)* (b)*\n-- ARGV many\n-- returns 1",
            "-- x: y\n-- ARGV a\n-- KEYS b\n-- returns 1",
            "-- x: y\n-- KEYS (a)* b\n-- ARGV\n-- returns 1",
        ],
    )
    def test_wrong_headers(self, text: str) -> None:
        with pytest.raises(ValueError, match="must be"):
            read_header(text)

    @pytest.mark.parametrize(
        "code",
        [
            "redis.call('GET', ARGV[1])",
            "redis.call('DEL', KEYS[1], ARGV[1])",
            "redis.call('LMOVE', KEYS[1], prefix .. 'x', 'LEFT', 'LEFT')",
            "local key = KEYS[1] key = ARGV[1]\nlocal key = ARGV[2]\nredis.call('GET', key)",
            "local function f(key)\n  redis.call('GET', key)\nend\nf(KEYS[1])\nf(ARGV[1])",
            "redis.call(ARGV[1], KEYS[1])",
            "local own = {}\nown[ARGV[1]] = ARGV[1]\nredis.call('GET', own[ARGV[1]])",
            "local own = {}\nredis.call('GET', own[ARGV[1]])",
            "redis.call('GET', key(ARGV[1]))",
            "redis.call('GET', prefix .. 'retry')",
            "local set = key('retry')\nset = ARGV[1]\nredis.call('GET', set)",
        ],
    )
    def test_keys_from_elsewhere_are_seen(self, code: str) -> None:
        assert key_problems(code)

    @pytest.mark.parametrize(
        "code",
        [
            "redis.call('TIME')",
            "local a, b = KEYS[1], KEYS[2]\nredis.call('LMOVE', a, b, 'LEFT', 'LEFT')",
            "for _, key in ipairs(KEYS) do redis.call('GET', key) end",
            "local function f(n, key)\n  redis.call('GET', key)\nend\nf(1, KEYS[2 * f])",
            "redis.call('DEL', unpack(KEYS))",
            "local own = {}\nown[KEYS[1]] = KEYS[1]\nredis.call('GET', own[ARGV[1]])",
            "redis.call('GET', key('retry'))",
            "local queue, base = ARGV[1], key('queue_prefix') .. ARGV[1]\nredis.call('GET', base .. 'x')",
            "redis.call('UNLINK', own_key(ARGV[1]))",
        ],
    )
    def test_keys_from_the_list_pass(self, code: str) -> None:
        assert not key_problems(code)
