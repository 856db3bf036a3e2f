"""Each Lua header against its callers: the number of keys and arguments, their order, and no key that was not given."""

from __future__ import annotations

import ast
import inspect

import pytest

from architecture.lua_headers import Names, indexes, key_problems, read_header, strings, without_comments
from architecture.samples import SAMPLES
from architecture.source import LUA, called, functions, modules
from architecture.test_keys import KEY
from henchman.store.call import Call, load
from henchman.store.keys import Keys

SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))
NAMESPACE = "sample"


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
def test_script_touches_only_the_keys_it_was_given(name: str) -> None:
    code = without_comments(load(name).text)
    assert [one for one in strings(code) if KEY.search(one)] == [], f"{name}.lua spells a key"
    assert key_problems(code) == [], f"{name}.lua touches a key that did not come from KEYS"


def test_callers_send_what_the_headers_name() -> None:
    wrong = []
    for function, call in calls():
        assert call.script is not None, f"the sample of {function} is not built on a script"
        header = read_header(call.script.text)
        keys, args = sent(call)
        named = header.keys.unrolled(header.args, args), header.args
        for word, names, values in zip(("keys", "arguments"), named, (keys, args), strict=True):
            if not names.fit(len(values)):
                wrong.append(f"{function} sends {len(values)} {word}; {header.name}.lua names {show(names)}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("name", SCRIPTS)
def test_groups_are_sampled_twice_over(name: str) -> None:
    header = read_header(load(name).text)
    samples = [sent(call) for _, call in calls() if call.script and call.script.name == name]
    keys = [header.keys.unrolled(header.args, args) for _, args in samples]
    for names, values in (
        (keys, [sample[0] for sample in samples]),
        ([header.args] * len(samples), [s[1] for s in samples]),
    ):
        assert any(len(some) >= len(one.fixed) + 2 * len(one.group) for one, some in zip(names, values, strict=True)), (
            f"{name}: no sample repeats the last group of {show(names[0])}"
        )
    assert max(len(one.fixed) for one in keys) >= len(header.keys.fixed) + (
        2 * len(header.keys.group) if header.keys.rest else 0
    )


def test_keys_stand_in_the_order_of_the_header() -> None:
    wrong = []
    for function, call in calls():
        header = read_header(call.script.text if call.script else "")
        keys, args = sent(call)
        names = header.keys.unrolled(header.args, args)
        for index, key in enumerate(keys):
            name = names.name(index)
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

    def test_two_groups(self) -> None:
        header = read_header("-- x: y\n-- KEYS a (b c)*many (d)*\n-- ARGV many (e)*\n-- returns 1")
        names = header.keys.unrolled(header.args, [2, "e"])
        assert [names.name(index) for index in range(7)] == ["a", "b", "c", "b", "c", "d", "d"]
        assert [names.fit(count) for count in (3, 4, 5, 8)] == [False, False, True, True]

    @pytest.mark.parametrize(
        "text",
        [
            "-- x: y\n-- KEYS (a)*few (b)*\n-- ARGV many\n-- returns 1",
            "-- x: y\n-- KEYS (a)* (b)*\n-- ARGV many\n-- returns 1",
            "-- x: y\n-- KEYS\n-- ARGV n (a)*n (b)*\n-- returns 1",
        ],
    )
    def test_two_groups_that_nothing_counts(self, text: str) -> None:
        with pytest.raises(ValueError, match="must be"):
            read_header(text)

    @pytest.mark.parametrize(
        "text",
        ["", "-- x", "-- x: y\n-- ARGV a\n-- KEYS b\n-- returns 1", "-- x: y\n-- KEYS (a)* b\n-- ARGV\n-- returns 1"],
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
        ],
    )
    def test_keys_from_the_list_pass(self, code: str) -> None:
        assert not key_problems(code)
