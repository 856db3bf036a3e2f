"""The judgement on the ordered queues: one at a time, in order, by token; nothing lost, repeats with a cause.

A span is one id in one claim. What is judged of its order needs no look into the server: a token tells when it was
claimed, or at least its worker when it asked for it, so a payload that the server had before that moment must be in it,
unless a span before has done it. (Clocks are stepped: a token only says which claim came first.)
"""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kinds import ORDERED
from ordered_record import OrderedRecord
from past import History, Run
from redis import Redis
from repeats import Repeats
from spans import Pushed, Span, is_zombie

__all__ = ["OrderedJudgement"]

SURE = 0.005  # seconds: a token may be a little ahead of the server's clock, when many were given at one moment
KEPT = ("meta", "stat", "wake", "morgue", "merr")  # what may be left of a queue, beside the payloads in its morgue
GOOD = ("ok",)


def _timed_out(queue: str, span: Span, after: Span) -> bool:
    """Whether the handler returned after its time-out without having been told of it: that is a failure (a busy
    machine may strike so late), and what comes next with its payloads counts it."""
    overdue = span.ended - span.begun >= ORDERED[queue].options["timeout"] and span.how in GOOD
    return overdue and after.retry_count > span.retry_count and not set(span.keys).isdisjoint(after.keys)


class OrderedJudgement:
    """``rules`` gives (name, violations); ``facts`` are filled meanwhile. ``since`` and ``to``: see ``Judgement``."""

    def __init__(
        self, history: History, repeats: Repeats, redis: Redis, since: float, to: float, record: Path | None = None
    ) -> None:
        self._history, self._repeats, self._redis = history, repeats, redis
        self._pushed = history.ordered.pushed
        self._spans = history.ordered.by_entity()
        self._unconfirmed = {one.key for one in self._pushed.values() if one.at < to and one.told_at > since}
        self._failed_over = to > 0.0  # then SQL may know what the replica had not heard of, and is not compared
        self._record = OrderedRecord(record) if record is not None and not self._failed_over else None
        self._deaf_since = since
        self._excused = 0
        self._with: dict[str, list[Span]] = defaultdict(list)  # by payload, in the order of their tokens
        self._next: dict[Span, Span] = {}
        for (queue, _), spans in self._spans.items():
            entered = [span for span in spans if span.keys]
            self._next |= dict(itertools.pairwise(entered))
            for span, after in itertools.pairwise(entered):
                if _timed_out(queue, span, after):
                    span.how = "JobTimeout"
            for span in entered:
                for key in span.keys:
                    self._with[key].append(span)
        self._morgue = {queue: self._read_morgue(queue) for queue in ORDERED}
        self._causes: Counter[str] = Counter()
        self.facts: dict[str, Any] = {}

    def rules(self) -> Iterator[tuple[str, list[str]]]:
        """Every rule with what violates it."""
        yield "ordered: accepted payloads that were not done", list(self._lost())
        yield "ordered: payloads that were refused, or never pushed, or another's", list(self._strange())
        yield "ordered: out of order", list(self._order())
        yield "ordered: two at once", list(self._overlaps())
        yield "ordered: writes refused by the fence without a cause", list(self._refused())
        yield "ordered: repeats without a cause", list(self._repeated())
        yield "ordered: morgue", list(self._wrong_morgue())
        yield "ordered: left on the server", list(self._left())
        if not self._failed_over:
            yield "ordered: counters differ from the ledger", list(self._counters())
        if self._record is not None:
            yield "ordered: records in SQL", list(self._record.rule(self._pushed, self._recorded))
            self.facts["ordered payloads recorded"] = self._record.told()
        self._tell()

    def _recorded(self, one: Pushed) -> str | None:
        """The status that its record must have in the end; None where there is none, or nothing of it is known."""
        if one.key in self._morgue[one.entity[0]].get(one.entity[1], {}):
            return "error"
        return "finished" if self._done(one.key) is not None else None

    def _must(self) -> list[Pushed]:
        return [
            one
            for one in self._pushed.values()
            if one.key not in self._unconfirmed
            and (one.told == "accepted" or (one.told != "refused" and self._with[one.key]))
        ]

    def _done(self, key: str) -> Span | None:
        """The first span that did it."""
        return next((span for span in self._with[key] if span.fine), None)

    def _lost(self) -> Iterator[str]:
        for one in self._must():
            if self._done(one.key) is None and one.key not in self._morgue[one.entity[0]].get(one.entity[1], {}):
                starts = [
                    f"{span.pid} {span.at:.3f} {span.how or 'no end'}{span.refused}" for span in self._with[one.key]
                ]
                yield f"{one.key} for {'/'.join(one.entity)} ({one.told}), spans: {'; '.join(starts) or 'none'}"

    def _strange(self) -> Iterator[str]:
        for entity, spans in self._spans.items():
            for span in spans:
                for key in span.keys:
                    one = self._pushed.get(key)
                    if one is None or one.told == "refused" or one.entity != entity:
                        yield f"{key} came to {'/'.join(entity)}, {one.told if one else 'which nobody pushed'}"

    def _order(self) -> Iterator[str]:
        """Scores rise within a span; and what the server had when a span was claimed was not left behind."""
        score = {key: one.score for key, one in self._pushed.items()}
        for entity, spans in self._spans.items():
            for span in spans:
                scores = [score.get(key, -1) for key in span.keys]
                if scores != sorted(scores):
                    yield f"{'/'.join(entity)} {span.token}: scores {scores}"
        for one in self._must():
            done = self._done(one.key)
            if one.told != "accepted" or (done is None and not one.dead):
                continue
            for span in self._spans[one.entity]:
                if not span.keys or span.claimed < one.told_at + SURE or self._over_before(one, done, span):
                    continue
                if one.key not in span.keys and max(score.get(key, -1) for key in span.keys) > one.score:
                    if self._failed_over and span.claimed >= self._deaf_since:
                        self._excused += 1  # the replica had not heard how the one before it ended
                        continue
                    yield f"{one.key} (score {one.score}) of {'/'.join(one.entity)} was left behind by {span.token}"

    def _over_before(self, one: Pushed, done: Span | None, span: Span) -> bool:
        """Whether it was done, or buried, when ``span`` was claimed."""
        if done is not None:
            return done.token < span.token
        last = self._with[one.key][-1:]
        return bool(last and last[0].token < span.token)

    def _overlaps(self) -> Iterator[str]:
        """A span begins when the one before it has been heard of for the last time, unless that was a zombie's."""
        for entity, spans in self._spans.items():
            held: Span | None = None
            for span in sorted((one for one in spans if one.keys), key=lambda one: one.at):
                if held is not None and span.at < held.seen and not self._zombie(held):
                    late = held.seen - span.at
                    yield f"{'/'.join(entity)}: {span.pid} began {late:.3f} s before {held.pid} had ended"
                if held is not None and span.token <= held.token:
                    yield f"{'/'.join(entity)}: token {span.token} began after {held.token}"
                held = span if held is None or span.seen > held.seen else held

    def _zombie(self, span: Span) -> bool:
        """Whether the process was buried, or its claim lost with a server."""
        return any(is_zombie(window, span) for window in self._history.windows)

    def _refused(self) -> Iterator[str]:
        for entity, spans in self._spans.items():
            for span in spans:
                if span.refused and not self._zombie(span):
                    yield f"{'/'.join(entity)}: {span.refused} of {span.pid} with token {span.token} at {span.seen:.3f}"

    def _repeated(self) -> Iterator[str]:
        """Each span but the last with a payload has failed as told, was told to stop, or has a cause."""
        for key, spans in self._with.items():
            for span in spans[:-1]:
                if (span.how and span.how not in GOOD) or (span.refused and self._zombie(span)):
                    continue
                cause = self._cause(span)
                if cause is None:
                    yield f"{key} ran in {span.pid} {span.at:.3f}-{span.ended:.3f} {span.how or 'no end'}, and again"
                else:
                    self._causes[cause] += 1

    def _cause(self, span: Span) -> str | None:
        run = Run(span.begun, span.at, span.pid, 1, 0.0)
        run.ended = span.ended
        return self._repeats.cause(run)

    def _read_morgue(self, queue: str) -> dict[str, dict[str, str]]:
        """By id: payload keys, and the error of its last burial."""
        redis: Any = self._redis
        base = f"hm:ordered:{queue}/"
        errors = {name.decode(): text.decode("utf-8", "replace") for name, text in redis.hgetall(base + "merr").items()}
        found = {}
        for name in map(bytes.decode, redis.zrange(base + "morgue", 0, -1)):
            bodies = redis.zrange(f"{base}m:{name}", 0, -1)
            keys = [body.partition(b'"key":"')[2].partition(b'"')[0].decode() for body in bodies]
            found[name] = dict.fromkeys(keys, errors.get(name, ""))
        return found

    def _buried(self, span: Span) -> bool:
        """Whether this failure sent the lowest payload of the span to the morgue."""
        entity = self._pushed[span.keys[0]].entity if span.keys[0] in self._pushed else ("", "")
        most = ORDERED[entity[0]].max_retries if entity[0] in ORDERED else 0
        last = self._with[span.keys[0]][-1] is span
        return last and span.how not in ("", *GOOD) and span.retry_count + 1 >= most

    def _wrong_morgue(self) -> Iterator[str]:
        for queue, dead in self._morgue.items():
            for name, keys in dead.items():
                for key, error in keys.items():
                    spans = self._with[key]
                    by_failing = bool(spans) and spans[-1].keys[0] == key and self._buried(spans[-1])
                    pill = self._history.ordered.poisoned[queue] > 0 and bool(spans)
                    if not error or key not in self._pushed or not (by_failing or pill):
                        told = [f"{span.how or 'no end'} after {span.retry_count}" for span in spans]
                        yield f"{key} of {queue}/{name} does not belong there ({error or 'no error'}; {told})"
        for one in self._must():
            if one.dead and one.key not in self._morgue[one.entity[0]].get(one.entity[1], {}):
                yield f"{one.key} of {'/'.join(one.entity)} is not there"

    def _left(self) -> Iterator[str]:
        redis: Any = self._redis
        for queue in ORDERED:
            base = f"hm:ordered:{queue}/"
            kept = {*KEPT, *(f"{pile}:{name}" for name in self._morgue[queue] for pile in ("m", "jm"))}
            for key in (one.decode().removeprefix(base) for one in redis.scan_iter(match=f"{base}*", count=1000)):
                if key not in kept:
                    yield f"{base}{key}"
        for key in redis.scan_iter(match="hm:held:*", count=1000):
            yield f"{key.decode()} holds {redis.hlen(key)}"

    def _settled(self, span: Span) -> bool:
        """Whether the server has counted the end of ``span``: what follows shows it."""
        after = self._next.get(span)
        if span.how in GOOD:
            return span.fine and not (after and set(span.keys) & set(after.keys))
        if not span.how or span.refused:
            return False
        if after is not None and after.retry_count > span.retry_count:
            return True
        return self._buried(span)

    def claims(self) -> tuple[int, int, int]:
        """Claims that were counted as processed, and of them as failed; and how many more may be (poison pills)."""
        good: dict[tuple[str, int], bool] = {}
        for (queue, _), spans in self._spans.items():
            for span in spans:
                if span.keys and self._settled(span):
                    good[queue, span.token] = good.get((queue, span.token), True) and span.how in GOOD
        return len(good), sum(not fine for fine in good.values()), self._history.ordered.poisoned.total()

    def _counters(self) -> Iterator[str]:
        """Each id in a claim is settled once, whatever was repeated."""
        for queue in ORDERED:
            settled = [
                span.how in GOOD
                for (name, _), spans in self._spans.items()
                for span in spans
                if name == queue and span.keys and self._settled(span)
            ]
            slack = self._history.ordered.poisoned[queue]
            found: Any = self._redis.hgetall(f"hm:ordered:{queue}/stat")
            for name, least, most in (
                ("processed", sum(settled), sum(settled)),
                ("failed", len(settled) - sum(settled), len(settled) - sum(settled) + slack),
            ):
                count = int(found.get(name.encode(), 0))
                if not least <= count <= most:
                    yield f"{name} of {queue} is {count}, by the ledger {least} to {most}"

    def _tell(self) -> None:
        told = Counter(one.told or "producer died" for one in self._pushed.values())
        spans = [span for some in self._spans.values() for span in some]
        words = ", ".join(f"{count} {word}" for word, count in told.most_common())
        self.facts["ordered payloads"] = f"{len(self._pushed)} ({words}) of {len(self._spans)} ids"
        self.facts["ordered spans (an id in a claim)"] = (
            f"{len(spans)} in {len({span.token for span in spans})} claims, up to "
            f"{max((len(span.keys) for span in spans), default=0)} payloads"
        )
        self.facts["late writes refused by the fence of their id"] = sum(bool(span.refused) for span in spans)
        self.facts["ordered payloads in the morgue, as they should"] = sum(
            len(keys) for dead in self._morgue.values() for keys in dead.values()
        )
        causes = ", ".join(f"{count} {cause}" for cause, count in self._causes.most_common())
        self.facts["ordered payloads repeated"] = f"{self._causes.total()}" + (f": {causes}" if causes else "")
        if self._failed_over:
            self.facts["ordered payloads left behind by what the replica had not heard of"] = self._excused
            lost = [key for key in self._unconfirmed if self._pushed[key].told == "accepted"]
            gone = sum(not self._with[key] for key in lost)
            self.facts["ordered payloads not confirmed by the replica"] = f"{len(lost)}, lost {gone}"
