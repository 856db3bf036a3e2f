"""``henchman ordered``: what it shows, what it does, and what is in the server afterwards."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from rich.cells import cell_len

from cli.conftest import INVISIBLE
from henchman.cli.main import henchman
from henchman.cli.status import _line, _Look
from henchman.inspector.metrics import overview
from henchman.inspector.scaling import SlotsWanted
from henchman.store import call
from henchman.store.ordered import Push, Verdict
from support.ordered import FAR, OrderedQueue
from support.store import ME, Store

HOSTILE = "[bold]x[/bold]\u202e"


@pytest.fixture
def queue(store: Store) -> OrderedQueue:
    made = OrderedQueue(store, "products")
    made.join(ME)
    return made


def run(queue: OrderedQueue, words: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(henchman, [*words.split(), "--redis", queue.store.connections.url], input=answer)


def end(queue: OrderedQueue, name: str, verdict: str, delay: float = 1e6, count: int = 0, error: str = "Boom") -> None:
    queue.put(name, b'{"n":1}', 5)
    [(token, one)] = queue.take(ME)
    assert queue.settle(ME, Verdict(token, one.id, verdict, delay, count, error)) == [1]


@pytest.fixture
def four(queue: OrderedQueue) -> int:
    """One id dead, one retrying, one in flight with arrivals, one that waits; the token of the claim."""
    end(queue, "dead", "to_morgue", error="Boom: for good")
    end(queue, "again", "retry", 1e6, 2, "Boom: again")
    queue.put("held", b'{"n":2}', 1)
    [(token, _)] = queue.take(ME)
    queue.put("held", b'{"n":3}', 3)
    queue.put("later", b'{"n":4}', 4, FAR)
    queue.declare(limit=24)
    return token


def ids(result: Result) -> list[str]:
    assert result.exit_code == 0, result.output
    return [one["id"] for one in json.loads(result.stdout)["ids"]]


class TestShow:
    def test_nothing_there(self, queue: OrderedQueue) -> None:
        assert run(queue, "ordered").stdout.startswith("No ordered queues.")
        assert json.loads(run(queue, "ordered --json").stdout) == {"ordered": []}
        gone = run(queue, "ordered products")
        assert (gone.exit_code, gone.stderr) == (1, "Error: there is no ordered queue 'products'\n")
        queue.put("a")
        assert "did you mean 'products'?" in run(queue, "ordered product").stderr

    def test_all(self, queue: OrderedQueue, four: int) -> None:
        run(queue, "ordered pause products")
        shown = run(queue, "ordered")
        assert re.search(r"^products +2 +– +1 +1 +1 +paused$", shown.stdout, re.MULTILINE), shown.stdout
        [row] = json.loads(run(queue, "ordered --json").stdout)["ordered"]
        assert row == {
            "name": "products",
            "length": 2,
            "morgue_length": 1,
            "lag": 0.0,
            "busy": 1,
            "fresh": 1,
            "retries": 1,
            "processed": 0,
            "failed": 2,
            "paused": True,
            "max_parallel": 24,
            "max_parallel_from": "code",
            "max_per_group": None,
        }

    def test_where_else_they_are_shown(self, queue: OrderedQueue, four: int) -> None:
        for command in ("queues", "status"):
            shown = run(queue, command)
            assert re.search(r"^products +2 +– +1 +1 +1$", shown.stdout, re.MULTILINE), shown.stdout
            assert "No queues" not in shown.stdout
            assert json.loads(run(queue, f"{command} --json").stdout)["ordered"][0]["length"] == 2
        status = run(queue, "status")
        assert "ordered: 2, 1 in morgues" in status.stdout
        assert json.loads(run(queue, "status --json").stdout)["stats"]["ordered_busy"] == 1

    def test_one_queue(self, queue: OrderedQueue, four: int) -> None:
        shown = run(queue, "ordered products").stdout
        assert "products: 2 ids wait: 1 fresh, 1 retry; 1 in flight; 1 in the morgue; lag 0.0 s\n" in shown
        assert "0 processed, 2 failed; at most 24 claims at a time (as the code says)\n" in shown
        assert re.search(r'^again +retrying +in 12 days +3 +1 +\{"n":1\}\n  Boom: again\nlater +waiting ', shown, re.M)
        assert "held" not in shown

    def test_lists(self, queue: OrderedQueue, four: int) -> None:
        assert ids(run(queue, "ordered products --json")) == ["again", "later"]
        assert ids(run(queue, "ordered products --reverse --json")) == ["later", "again"]
        assert ids(run(queue, "ordered products --failed --json")) == ["again"]
        assert ids(run(queue, "ordered products --failed --min 3 --json")) == []
        assert ids(run(queue, "ordered products --busy --json")) == ["held"]
        assert ids(run(queue, "ordered products --dead --json")) == ["dead"]
        assert ids(run(queue, f"ordered products --dead --min {FAR} --json")) == []
        assert ids(run(queue, "ordered products --by retry --json")) == ["later", "again"]
        assert ids(run(queue, "ordered products --by retry --max -1 --json")) == ["later"]
        assert sorted(ids(run(queue, "ordered products --by id --json"))) == ["again", "later"]
        assert ids(run(queue, "ordered products --prefix la --json")) == ["later"]
        assert ids(run(queue, "ordered products --dead --prefix x --json")) == []
        assert ids(run(queue, f"ordered products --by time --min {FAR} --json")) == ["later"]
        dead = run(queue, "ordered products --dead").stdout
        assert re.search(r'^dead +(now|\d+ s ago) +1 +\{"n":1\}\n  Boom: for good$', dead, re.MULTILINE), dead
        held = run(queue, "ordered products --busy").stdout
        assert re.search(rf'^held +{ME} +(now|\d+ s ago) +5 min +1 +1 +\{{"n":2\}}$', held, re.MULTILINE), held

    def test_pages(self, queue: OrderedQueue) -> None:
        queue.push(*[Push(b"%03d" % number, str(FAR + number), "", b"1") for number in range(120)])
        names = [f"{number:03}" for number in range(120)]
        assert ids(run(queue, "ordered products --json")) == names[:50]
        assert ids(run(queue, "ordered products --page 3 --json")) == names[100:]
        assert ids(run(queue, "ordered products --limit 7 --page 2 --json")) == names[7:14]
        assert ids(run(queue, f"ordered products --min {FAR + 100} --limit 7 --page 2 --json")) == names[107:114]
        assert run(queue, "ordered products").stdout.endswith("50 of 120 ids, page 1; more with --page 2\n")

    def test_one_id(self, queue: OrderedQueue, four: int) -> None:
        shown = run(queue, "ordered products held")
        assert shown.exit_code == 0
        for text in ("held: in flight\n", f"held by     {ME}, its lease lives for ", f"token       {four}\n"):
            assert text in shown.stdout
        assert re.search(r'1 payload in flight, by score:\n +1  \{"n":2\}\n', shown.stdout)
        assert re.search(r'1 payload arrived meanwhile, by score:\n +3  \{"n":3\}\n', shown.stdout)
        assert "again: retrying; 3 runs failed\n" in run(queue, "ordered products again").stdout
        assert "last error  Boom: again\n" in run(queue, "ordered products again").stdout
        assert "later: waiting for its time\n" in run(queue, "ordered products later").stdout
        dead = run(queue, "ordered products dead").stdout
        assert "dead: dead: in the morgue\n" in dead
        assert "of          Boom: for good\n" in dead
        document = json.loads(run(queue, "ordered products held --json").stdout)
        assert (document["state"], document["holder"]["token"]) == ("in flight", str(four))

    def test_an_absent_id(self, queue: OrderedQueue, four: int) -> None:
        for form in ("", " --json"):
            gone = run(queue, f"ordered products nobody{form}")
            assert gone.exit_code == 1
        assert "nobody: nothing waits under this id" in run(queue, "ordered products nobody").stdout

    def test_lowkiq(self, queue: OrderedQueue, four: int) -> None:
        figures = {"length": 2, "morgue_length": 1, "lag": 0.0}
        document = json.loads(run(queue, "ordered --lowkiq-stats").stdout)
        assert document == {"total": figures, "by_worker": {"products": figures}}

    def test_a_queue_that_is_called_like_an_action(self, queue: OrderedQueue) -> None:
        OrderedQueue(queue.store, "move").put("a")
        assert ids(run(queue, "ordered show move --json")) == ["a"]
        server = ["--redis", queue.store.connections.url]
        shown = CliRunner().invoke(henchman, ["ordered", *server, "show", "move", "--json"])
        assert ids(shown) == ["a"]
        assert CliRunner().invoke(henchman, ["ordered", *server, "pause", "move"]).stdout.startswith("move is paused")

    @pytest.mark.parametrize("words", ["ordered", "ordered NAME", "ordered NAME --dead", "ordered NAME ID", "status"])
    def test_hostile_text_makes_no_mess(self, queue: OrderedQueue, words: str) -> None:
        nasty = OrderedQueue(queue.store, HOSTILE)
        end(nasty, HOSTILE, "to_morgue", error=f"{HOSTILE}\x1b[2J" * 20)
        end(nasty, HOSTILE, "retry", 1e6, 0, f"{HOSTILE}\x1b[2J" * 20)
        nasty.put(HOSTILE, (HOSTILE * 100).encode())
        filled = [{"NAME": HOSTILE, "ID": HOSTILE}.get(word, word) for word in words.split()]
        shown = CliRunner().invoke(henchman, ["--redis", queue.store.connections.url, *filled])
        assert shown.exit_code in (0, 3), shown.output
        assert "[bold]x[/bold]\\u202e" in shown.stdout
        assert not INVISIBLE.search(shown.output)
        wide = [line for line in shown.stdout.splitlines() if cell_len(line) > 100]
        assert not wide or "ID" in words

    def test_help(self, queue: OrderedQueue) -> None:
        shown = CliRunner().invoke(henchman, ["ordered", "--help"]).stdout
        for word in ("revive", "kill", "delete", "morgue-delete", "run-now", "max-parallel", "move", "show"):
            assert word in shown
        assert "--prefix" in CliRunner().invoke(henchman, ["ordered", "show", "--help"]).stdout

    def test_no_server(self) -> None:
        assert CliRunner().invoke(henchman, ["ordered"]).exit_code == 3


class TestAct:
    def test_by_id(self, queue: OrderedQueue, four: int) -> None:
        assert run(queue, "ordered revive products dead").stdout == "1 id revived\n"
        assert queue.waiting(b"dead") == [(5, b'{"n":1}')]
        killed = run(queue, "ordered kill products again held")
        assert (killed.exit_code, killed.stdout) == (1, "1 id moved to the morgue\n")
        assert "1 id stayed:\n  held: in flight; it stays as it is" in killed.stderr
        assert queue.morgue(b"again") == [(5, b'{"n":1}')]
        assert run(queue, "ordered delete products dead").stdout == "1 id deleted\n"
        gone = run(queue, "ordered morgue-delete products again nobody")
        assert (gone.exit_code, gone.stdout) == (1, "1 id deleted from the morgue\n")
        assert "1 id had nothing there" in gone.stderr
        assert run(queue, "ordered run-now products later").stdout == "1 id due now\n"
        assert queue.scores("due")[b"later"] <= time.time() + 5
        assert queue.settle(ME, Verdict(four, b"held", "done")) == [1]

    def test_one_payload(self, queue: OrderedQueue, four: int) -> None:
        for payload in (b'"x"', b'"y"'):
            queue.put("later", payload, 9)
        several = run(queue, "ordered drop products later 9")
        assert (several.exit_code, "2 payloads have this score" in several.stderr) == (2, True)
        done = run(queue, 'ordered drop products later 9 --text "x"')
        assert (done.exit_code, done.stdout) == (0, '1 id without the payload "x"\n')
        assert queue.waiting(b"later") == [(4, b'{"n":4}'), (9, b'"y"')]
        assert run(queue, "ordered drop products held 3 --arrived").exit_code == 0
        assert run(queue, "ordered drop products dead 5 --dead").exit_code == 0
        assert run(queue, "ordered drop products dead 5 --dead").exit_code == 1
        held = run(queue, "ordered drop products held 1")
        assert (held.exit_code, "held: in flight; it stays as it is" in held.stderr) == (1, True)
        assert queue.settle(ME, Verdict(four, b"held", "done")) == [1]
        assert queue.left() == {"due", "retry", "err", "p:later", "one"}

    def test_which_must_be_said(self, queue: OrderedQueue, four: int) -> None:
        for verb, flag in (
            ("revive", "--all"),
            ("kill", "--all-failed"),
            ("delete", "--all-failed"),
            ("run-now", "--all"),
        ):
            for more in ("", f" dead {flag}"):
                wrong = run(queue, f"ordered {verb} products{more}")
                assert wrong.exit_code == 2
                assert f"one or several ids, or {flag}." in wrong.stderr
            assert run(queue, f"ordered {verb} nowhere x").exit_code == 1

    def test_all(self, queue: OrderedQueue, four: int) -> None:
        assert run(queue, "ordered kill products --all-failed").stdout == "1 id moved to the morgue\n"
        assert run(queue, "ordered revive products --all").stdout == "2 ids revived\n"
        due = run(queue, "ordered run-now products --all")
        assert (due.exit_code, due.stdout) == (1, "1 id due now\n")
        assert "held: in flight" in due.stderr
        assert queue.scores("due").keys() == {b"dead", b"again", b"later", b"held"}
        assert sorted(one.id for _, one in queue.take(ME)) == [b"again", b"dead", b"later"]
        assert queue.scores("retry") == {}

    def test_deleting_many_asks_first(self, queue: OrderedQueue, four: int) -> None:
        for words in ("delete products --all-failed", "morgue-delete products --all"):
            refused = run(queue, f"ordered {words}")
            assert refused.exit_code == 2
            assert "Delete 1 id of products, for good?" in refused.stderr
            assert "say --yes" in refused.stderr
        before = queue.kept()
        assert run(queue, "ordered delete products --all --yes").stdout == "1 id deleted\n"
        assert run(queue, "ordered morgue-delete products --all -y").stdout == "1 id deleted from the morgue\n"
        assert queue.kept().arrived == before.arrived
        assert queue.kept().due.keys() == {b"held", b"later"}
        assert run(queue, "ordered morgue-delete products --all").stdout == "Nothing to delete.\n"

    def test_pause(self, queue: OrderedQueue) -> None:
        queue.put("a")
        for command in ("ordered", "queues"):
            assert "products is paused; what runs goes on." in run(queue, f"{command} pause products").stdout
            assert queue.take(ME) == []
            assert "products" not in [one["name"] for one in json.loads(run(queue, "queues --json").stdout)["queues"]]
            assert run(queue, f"{command} unpause products").stdout == "products goes on\n"
            assert run(queue, f"{command} unpause products").stdout == "products was not paused\n"
        assert len(queue.take(ME)) == 1
        assert "'products' is an ordered queue" in run(queue, "queues clear products -y").stderr

    def test_max_parallel(self, queue: OrderedQueue, four: int) -> None:
        assert run(queue, "ordered max-parallel products 48").stdout == "products: at most 48 claims at a time\n"
        assert "at most 48 claims at a time (set by hand)" in run(queue, "ordered products").stdout
        assert run(queue, "ordered max-parallel products 0").stdout == "products: no limit of claims at a time\n"
        back = run(queue, "ordered max-parallel products none").stdout
        assert back == "products: at most 24 claims at a time, as the code says\n"
        for wrong in ("-1", "x", "1.5", "\u0663"):
            assert run(queue, f"ordered max-parallel products {wrong}").exit_code == 2

    def test_move(self, queue: OrderedQueue, four: int) -> None:
        moved = run(queue, "ordered move products other")
        assert (moved.exit_code, moved.stdout) == (1, "2 ids moved to other\n")
        assert "held: in flight" in moved.stderr
        other = OrderedQueue(queue.store, "other")
        assert (other.waiting(b"again"), other.scores("retry")) == ([(5, b'{"n":1}')], {b"again": 2})
        assert run(queue, "ordered move other products later").stdout == "1 id moved to products\n"
        assert queue.scores("due")[b"later"] == FAR
        assert "cannot be moved to itself" in run(queue, "ordered move products products").stderr


def test_doctor_names_ordered_queues_that_the_app_does_not_define(queue: OrderedQueue, project: Path) -> None:
    (project / "cli_ordered_app.py").write_text(
        "from henchman import App\napp = App()\n@app.ordered(queue='prices')\ndef sync(claim): ...\n"
    )
    queue.put("x", b"{}", 1)
    assert "no definition" not in run(queue, "doctor").stdout, "there is no app to compare with"
    shown = run(queue, "-A cli_ordered_app:app doctor --json")
    (check,) = (one for one in json.loads(shown.stdout)["checks"] if one["name"] == "ordered queues")
    assert (check["verdict"], check["text"]) == ("warn", "no definition of this app serves products (1 id)")


def test_a_watched_status_tells_of_ordered_queues_only_where_there_are_any(redis_url: str) -> None:
    store = Store(redis_url)
    queue = OrderedQueue(store, "products")

    def line() -> str:
        return _line(_Look(call.run(store.connections, overview(store.keys)), {}, SlotsWanted(0, {})))

    assert "ordered" not in line()
    queue.put("x", b"{}", 1)
    assert ", ordered: 1, 0 in morgues, 0 processes" in line()
    store.connections.close()
