"""Every use of this machine's wall clock stands in wall_clocks.toml with its reason: stored times are the server's."""

from __future__ import annotations

import ast
import re
import tomllib
from collections import Counter

from architecture.source import ROOT, modules

LIST = ROOT / "tests" / "architecture" / "wall_clocks.toml"
CLOCK = re.compile(r"(.*\.)?(time\.(time|time_ns|CLOCK_REALTIME)|datetime\.(now|utcnow|today)|date\.today)")
#: these take the wall clock when they are given no time, as their last argument
BROKEN_DOWN = {"time.localtime": 1, "time.gmtime": 1, "time.ctime": 1, "time.asctime": 1, "time.strftime": 2}


def _asks(node: ast.AST) -> bool:
    if isinstance(node, ast.Attribute):
        return CLOCK.fullmatch(ast.unparse(node)) is not None
    if isinstance(node, ast.ImportFrom):  # under another name it would not be found
        return node.module == "time" and any(alias.name in ("time", "time_ns") for alias in node.names)
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        return len(node.args) < BROKEN_DOWN.get(ast.unparse(node.func), 0)
    return False


def test_every_use_of_the_wall_clock_has_its_reason() -> None:
    listed = tomllib.loads(LIST.read_text(encoding="utf-8"))["uses"]
    found = Counter(module.file for module in modules().values() for node in ast.walk(module.tree) if _asks(node))
    wrong = []
    for file, uses in sorted(found.items()):
        known = listed.get(file, {}).get("uses", 0)
        if uses > known:
            wrong.append(
                f"src/henchman/{file} asks the wall clock {uses} times, {known} have a reason in wall_clocks.toml: "
                "what is stored or compared later is the server's time (app.clock.now()), what bounds waiting is "
                "time.monotonic()"
            )
        elif uses < known:
            wrong.append(f"wall_clocks.toml: {file} has {uses} uses, not {known}")
    wrong += [f"wall_clocks.toml: {file} no longer needs its line" for file in sorted(listed.keys() - found.keys())]
    wrong += [f"wall_clocks.toml: {file}: say why" for file, one in listed.items() if len(one.get("reason", "")) < 20]
    assert not wrong, "\n".join(wrong)


def test_it_sees_them_all() -> None:
    code = "time.time() + dt.datetime.now(UTC) + f(time.time) + date.today() + time.localtime() + time.strftime('%H')"
    assert sum(map(_asks, ast.walk(ast.parse(code)))) == 6
    fine = "time.monotonic() + time.localtime(at) + time.strftime('%H', at) + datetime.fromtimestamp(at) + clock.now()"
    assert not any(map(_asks, ast.walk(ast.parse(fine))))
    assert any(map(_asks, ast.walk(ast.parse("from time import time"))))
