"""A file has at most 500 lines and a function at most 40, or says in limits.toml why not."""

from __future__ import annotations

from architecture.source import LIMITS, LUA, SRC, functions, modules

FILE_LINES, FUNCTION_LINES = 500, 40


def check(kind: str, sizes: dict[str, int], most: int) -> None:
    excused = LIMITS.get(kind, {})
    wrong = []
    for name, size in sizes.items():
        if size > excused.get(name, {}).get("lines", most):
            wrong.append(f"{name}: {size} lines, at most {excused.get(name, {}).get('lines', most)}")
    for name, entry in excused.items():
        if sizes.get(name, 0) <= most:
            wrong.append(f"limits.toml: {name} no longer needs its exception")
        if len(entry.get("reason", "")) < 20:
            wrong.append(f"limits.toml: {name} needs a reason that another person understands")
    assert not wrong, "\n".join(wrong)


def test_files() -> None:
    paths = [module.path for module in modules().values()] + sorted(LUA.rglob("*.lua"))
    sizes = {path.relative_to(SRC).as_posix(): len(path.read_text(encoding="utf-8").splitlines()) for path in paths}
    check("files", sizes, FILE_LINES)


def test_functions() -> None:
    sizes = {
        f"{module.file}:{name}": (node.end_lineno or 0) - node.lineno + 1
        for module in modules().values()
        for name, node in functions(module)
    }
    check("functions", sizes, FUNCTION_LINES)
