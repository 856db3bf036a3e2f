"""The key of a job: how it follows from the arguments, what the payload says of it, and what a push asks of the server.

The key is computed once, when the job is pushed, from the arguments as they travel; nothing computes it again.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec

from henchman.client.needs import FOLLOW_FOR, Need, check_after, need_of, policies, problem_of_push
from henchman.client.options import ONCE_FOR, JobOptions, PushOptions
from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.digests import sha256
from henchman.kernel.text import as_shown, described
from henchman.limits.kinds import Limit
from henchman.wire import jsontext
from henchman.wire.arguments import Signature
from henchman.wire.jsontext import EncodeError
from henchman.wire.payload import encode
from henchman.wire.secret import is_sealed

__all__ = ["KeyRule", "Keyed", "keyed", "limit_value", "limits_by_value", "mark_of"]

LONGEST: Final = 200  # bytes of a key; of a longer one the beginning and a digest
_HEAD: Final = 160
_LIMITS: Final = b"\r"  # where the limits of a job stand in its payload; no JSON text holds it
_LETTERS: Final = {"until_success": "u", "queued": "w", "running": "r"}


class KeyRule:
    """How the key of one job follows from its arguments; DefinitionError when ``options.key`` names no parameter.
    ``option``: by what people say it; ``may_lack``: arguments may give none; ``without``: why that cannot be else."""

    option, may_lack = "key", False
    without = "a key would be one piece of work"

    def __init__(self, name: str, options: JobOptions, signature: Signature) -> None:
        self.scope = options.scope or name
        if self.scope.startswith("batch:"):
            raise DefinitionError(f"{name}: scope {self.scope!r}: such names are those of the steps of workflows")
        self._name = name
        self._signature = signature
        self._function: Any = options.key if callable(options.key) else None
        self._parameters: tuple[str, ...] = options.key if isinstance(options.key, tuple) else ()
        known = list(dict.fromkeys((*signature.binding.positional, *signature.binding.by_name)))
        unknown = [one for one in self._parameters if one not in known]
        if unknown:
            raise DefinitionError(
                f"{name}: {self.option}={unknown!r} names no parameter of its own value; there are {known!r}"
            )
        places = signature.binding.positional
        only = self._parameters[0] if len(self._parameters) == 1 else None
        self._place = places.index(only) if only in places else None  # of the only argument that is the key
        self._hides = bool(signature.secret if self._function else signature.secret.intersection(self._parameters))

    def text(self, args: bytes, kwargs: bytes | None) -> str:
        """The key of a job with these arguments (JSON); ArgumentError when they give none.

        ``17`` and ``"17"`` are the same key; several parameters make a list of texts. A key longer than 200 bytes is
        cut and ends in a digest; one that may hold what is secret is nothing but a digest.
        """
        values = jsontext.read(args)
        if self._signature.sealing is not None:
            values, named = self._signature.unsealed(values, {} if kwargs is None else jsontext.read(kwargs))
            args, kwargs = jsontext.encode(values), jsontext.encode(named)
        if self._place is not None and self._place < len(values):
            return self._short(self._part(self._parameters[0], values[self._place]))
        named = {} if kwargs is None else jsontext.read(kwargs)
        if self._function is not None:
            parts = [self._called(values, named)]
        else:
            parts = [self._part(one, self._signature.wire_value(one, values, named)) for one in self._parameters]
        return self._short(parts[0] if len(parts) == 1 else jsontext.encode(parts).decode())

    def mark(self, args: bytes, kwargs: bytes | None) -> str:
        """``mark_of`` these arguments; encrypted ones, each time another text, do not tell one from others."""
        if self._signature.sealing is not None:
            named = {} if kwargs is None else jsontext.read(kwargs)
            args = jsontext.encode([None if is_sealed(one) else one for one in jsontext.read(args)])
            kwargs = jsontext.encode({name: None if is_sealed(one) else one for name, one in named.items()})
        return mark_of(args, kwargs)

    def _short(self, text: str) -> str:
        """The key, or what stands for it."""
        if not self._hides and len(text) <= LONGEST and text.isascii():
            return text
        try:
            raw = text.encode()
        except UnicodeEncodeError:
            raise ArgumentError(
                f"{self._name}: the {self.option} holds half a surrogate pair, which is no text"
            ) from None
        if self._hides:
            return "#" + _digest(f"{self.scope}\n".encode() + raw)
        return _cut(raw)

    def _called(self, values: list[Any], named: dict[str, Any]) -> str:
        args, kwargs = self._signature.binding.filled(*self._signature.decode(values, named))
        try:
            value = self._function(*args, **kwargs)
        except Exception as error:
            what = type(error).__name__ if self._signature.secret else described(error)
            raise ArgumentError(f"{self._name}: its {self.option} function raised {what}") from error
        if value is None and self.may_lack:
            return ""
        if isinstance(value, bool) or not isinstance(value, str | int):
            shown = type(value).__name__ if self._signature.secret else as_shown(value, 80)
            raise ArgumentError(
                f"{self._name}: its {self.option} function returned {shown}; it returns a text or an integer"
            )
        return self._part("its function", str.__str__(value) if isinstance(value, str) else int(value))

    def _part(self, whence: str, value: Any) -> str:
        if value is None or value == "":
            shared = f"all jobs without {self.without}"
            raise ArgumentError(f"{self._name}: the {self.option} ({whence}) is {value!r}: {shared}")
        try:
            return value if isinstance(value, str) else jsontext.canonical(value).decode()
        except EncodeError as error:  # an integer of too many digits
            raise ArgumentError(error.text(whence, secret=self._hides)) from None


class _LimitRule(KeyRule):
    """Whose a limit is that each value of something has for itself."""

    option, without = "by", "one would be under one limit"


def limit_value(limit: str, by: Any) -> str:
    """Whose a limit is, as a job with the value ``by`` has it: a text, an integer, or a tuple of them."""
    parts = by if isinstance(by, tuple) and len(by) > 1 else (by,)
    if not all(isinstance(one, (str, int)) and not isinstance(one, bool) and one != "" for one in parts):
        raise ArgumentError(f"app.limit({limit!r}, by={as_shown(by, 80)}): give a text, an integer, or a tuple of them")
    try:
        texts = [one if isinstance(one, str) else jsontext.canonical(one).decode() for one in parts]
        return _cut((texts[0] if len(texts) == 1 else jsontext.encode(texts).decode()).encode())
    except (EncodeError, UnicodeEncodeError):
        raise ArgumentError(f"app.limit({limit!r}, by={as_shown(by, 80)}): no job has such a value") from None


def _cut(raw: bytes) -> str:
    """A key as it travels: of a long one the beginning and a digest."""
    if len(raw) > LONGEST:
        return f"{raw[:_HEAD].decode('utf-8', 'ignore')}#{_digest(raw)}"
    return raw.decode()


def _digest(raw: bytes) -> str:
    return str(sha256(raw).hexdigest()[:32])


def mark_of(args: bytes, kwargs: bytes | None) -> str:
    """By what the server tells arguments from others without keeping them: eight hex digits."""
    return f"{zlib.crc32(kwargs or b'', zlib.crc32(args)):08x}"


class Keyed(NamedTuple):
    """What all pushes of one job, ``name``, have in common that has a key, is followed, waits for others, or has limits
    of which each value of something has its own.

    ``rule``: None for a job without a key, which is followed by its id. ``fields``: what else stands under ``hm`` of
    their payloads; ``phases``: for how long a key is held; ``ask``: what the server is asked, see
    ``lua/lib/admit.lua``; ``pieces``: what a payload says, around the key, and ``missing``: what the server is told of
    needs. ``needs``: what they wait for whatever their key, ``same``: in which scopes for the job of their own key,
    with its memory in seconds and its name. ``is_recorded``: history keeps each job. ``raises``: a duplicate is an
    error. ``limits``: each with what says whose it is, None: everybody's.
    """

    name: str
    rule: KeyRule | None
    fields: Mapping[str, Any]
    phases: str
    ask: Mapping[str, Any]
    asked: bytes
    pieces: tuple[bytes, ...]
    missing: tuple[bytes, ...] = ()
    needs: tuple[Need, ...] = ()
    same: tuple[tuple[str, int, str], ...] = ()
    is_recorded: bool = False
    raises: bool = False
    limits: tuple[tuple[Limit, KeyRule | None], ...] = ()

    @property
    def is_asked(self) -> bool:
        """Whether a push may be refused or wait; a key that is taken at the start alone lets every push through."""
        return self.phases not in ("", "r") or "throttle" in self.ask or "debounce" in self.ask or bool(self.missing)

    @property
    def stamped(self) -> bool:
        """Whether a job goes into its queue, if anywhere, at once."""
        return "debounce" not in self.ask and self.ask["conflict"] != "wait" and not self.missing

    def key(self, jid: str, args: bytes, kwargs: bytes | None) -> str:
        """The key of the job ``jid`` with these arguments (JSON); ArgumentError when they give none, or one that it
        would itself wait for."""
        if self.rule is None:
            return jid if self.phases else ""
        key = self.rule.text(args, kwargs)
        if self.needs and self.phases and any(one[:2] == (self.rule.scope, key) for one in self.needs):
            raise ArgumentError(
                f"{self.name}: after= names the job that has the key {as_shown(key, 80)} already, which is this one's "
                "too: it would wait for itself. unique='running' lets jobs of a key run one after the other"
            )
        return key

    def mark(self, args: bytes, kwargs: bytes | None) -> str:
        """By what a duplicate's arguments are told from the first one's: eight hex digits."""
        return (mark_of if self.rule is None else self.rule.mark)(args, kwargs)

    def followed(self, key: str, jid: str) -> Need | None:
        """What waits who waits for the job ``jid`` with this key; None where nobody can."""
        if not key or not ("o" in self.phases or "f" in self.phases):
            return None
        return Need(self.ask["scope"], key, self.fields.get("once_for", FOLLOW_FOR), jid)

    def said_limits(self, args: bytes, kwargs: bytes | None) -> list[Any]:
        """The limits of a job with these arguments (JSON); ArgumentError when they do not say whose one is."""
        return [one.said("" if rule is None else rule.text(args, kwargs)) for one, rule in self.limits]

    def own_fields(self, key: str, args: bytes, kwargs: bytes | None) -> dict[str, Any]:
        """What stands under ``hm`` of the payload of a job with this key."""
        ours = dict(self.fields)
        if self.limits:
            ours["limits"] = self.said_limits(args, kwargs)
        if self.phases:
            ours["key"] = [self.ask["scope"], key, self.phases]
        if "debounce" in self.ask:
            ours["debounce"] = [self.ask["scope"], key]
        if self.missing:
            ours["needs"] = [*self.needs, *([scope, key, *rest] for scope, *rest in self.same)]
        return ours

    def member(self, key: str, args: bytes, kwargs: bytes | None) -> bytes:
        """The same as text for ``Template.render``."""
        text = jsontext.encode(key).join(self.pieces)
        return text.replace(_LIMITS, jsontext.encode(self.said_limits(args, kwargs)), 1) if self.limits else text

    def ending(self, until: float) -> Keyed:
        """The same of jobs that are over at the Unix time ``until``."""
        *pieces, last = self.pieces
        said = b',"hm":{' if last == b"" else last[:-1] + b","
        last = said + b'"deadline":%b}' % jsontext.encode(until)
        return self._replace(fields={**self.fields, "deadline": until}, pieces=(*pieces, last))

    def missed(self, key: str) -> bytes:
        """What a job with this key waits for, as the server takes it; empty when for nothing."""
        return jsontext.encode(key).join(self.missing) if self.missing else b""

    def question(self, key: str, mark: str) -> bytes:
        """``ask`` for one job alone, as scripts take it that push others too."""
        if not self.is_asked:
            return b""
        needs = {"needs": msgspec.Raw(self.missed(key))} if self.missing else {}
        return msgspec.json.encode({**self.ask, "key": key, "mark": mark, **needs})


def keyed(
    name: str,
    options: JobOptions,
    push: PushOptions,
    signature: Signature | None,
    fields: Mapping[str, Any],
    *,
    in_batch: bool,
    is_recorded: bool,
) -> Keyed | None:
    """What is special about pushes of a job that has a key, is followed or waits for others; None for any other job.
    DefinitionError for options of the push that do not go with those of its key."""
    follows = options.followed or bool(push.followed)
    after = (*options.after, *(push.after or ()))
    _check_push(name, options, push, after, follows, in_batch=in_batch)
    limited = limits_by_value(options, push)
    if options.key is None and not follows and not after and not limited:
        return None
    running = "r" if "running" in options.unique else ""
    at_push = "o" if options.once else "".join(_LETTERS[one] for one in options.unique if one != "running")
    at_push = at_push or ("f" if follows else "")
    signature = Signature.by_name(name) if signature is None else signature
    rule = None if options.key is None else KeyRule(name, options, signature)
    limits = tuple((one, _whose(name, options, one, signature)) for one in limited)
    check_after(name, options, signature, [one for one in after if not isinstance(one, Need)])
    said = _said(options, at_push, running) | policies(options, push, name)
    needs, same = _needs(after)
    ask = _asked(options, push.again, "" if rule is None else rule.scope, at_push, running)
    if "wait_at_most" in said:
        ask["wait_at_most"] = said["wait_at_most"]
    said, asked, missing = {**fields, **said}, jsontext.encode(ask), _lists(needs, same, 3)
    pieces, raises = _pieces(said, ask, _lists(needs, same, 4), limited), ask["conflict"] == "raise"
    phases = at_push + running
    return Keyed(name, rule, said, phases, ask, asked, pieces, missing, needs, same, is_recorded, raises, limits)


def limits_by_value(options: JobOptions, push: PushOptions) -> tuple[Limit, ...]:
    """The limits of a push, where each value of something has one of its own; none where all of them are everybody's:
    those stand in its template."""
    limits = options.limits if push.limits is None else push.limits
    return limits if any(one.partition is not None for one in limits) else ()


def _whose(name: str, options: JobOptions, limit: Limit, signature: Signature) -> KeyRule | None:
    by = (limit.partition,) if isinstance(limit.partition, str) else limit.partition
    said = msgspec.structs.replace(options, key=by, scope=limit.name)
    return None if by is None else _LimitRule(f"{name}, limit {limit.name}", said, signature)


def _said(options: JobOptions, at_push: str, running: str) -> dict[str, Any]:
    """What stands under ``hm`` of payloads beside the key."""
    said: dict[str, Any] = {}
    if at_push == "o" or (at_push == "f" and options.once_for is not None):
        said["once_for"] = math.ceil(options.once_for or ONCE_FOR)
    if running and not at_push and options.on_conflict == "skip":
        said["conflict"] = "skip"  # at the start
    if options.debounce is not None:
        said["delay"] = options.debounce  # it moves along when the server's clock steps
    return said


def _check_push(
    name: str, options: JobOptions, push: PushOptions, after: Sequence[Any], follows: bool, *, in_batch: bool
) -> None:
    """DefinitionError for a push whose options mean nothing beside those of its job."""
    if options.key is None and push.again:
        raise DefinitionError(f"{name}: again= pushes a job although its key is taken, and this one has no key")
    if in_batch and (options.on_conflict == "replace" or options.debounce is not None):
        what = "debounce=" if options.debounce is not None else "on_conflict='replace'"
        raise DefinitionError(
            f"{name}: {what} takes newer arguments into a job that is there, which may be of another batch or of none; "
            "push it outside: using(batch=None)"
        )
    if options.debounce is not None and (push.delay is not None or push.at is not None):
        raise DefinitionError(f"{name}: debounce= says itself when the job is due; leave out delay= and at=")
    if push.followed is False and options.followed:
        raise DefinitionError(f"{name} is defined with followed=True, and others may rely on that: leave followed= out")
    if problem := problem_of_push(options, push, after, follows=follows):
        raise DefinitionError(f"{name}: {problem}")


def _needs(after: Sequence[Any]) -> tuple[tuple[Need, ...], tuple[tuple[str, int, str], ...]]:
    """What jobs wait for whatever their key, and what by it: each once."""
    same = dict.fromkeys(need_of(one) for one in after if not isinstance(one, Need))
    return tuple(dict.fromkeys(one for one in after if isinstance(one, Need))), tuple(same)


def _lists(needs: Sequence[Need], same: Sequence[tuple[str, int, str]], words: int) -> tuple[bytes, ...]:
    """The JSON of needs, the first ``words`` of each, cut where the key stands; empty when there are none."""
    if not needs and not same:
        return ()
    each = [jsontext.encode(list(one[:words])) for one in needs]
    for scope, *rest in same:
        tail = b"".join(b"," + jsontext.encode(one) for one in rest[: words - 2])
        each.append(b"[%b,\n%b]" % (jsontext.encode(scope), tail))
    return tuple((b"[" + b",".join(each) + b"]").split(b"\n"))


def _pieces(
    fields: Mapping[str, Any], ask: Mapping[str, Any], needs: Sequence[bytes], limits: Sequence[Limit]
) -> tuple[bytes, ...]:
    """The field ``hm`` of a payload, cut where the key stands; empty when there is nothing to say."""
    inside, about = [encode(fields)[1:-1]] if fields else [], jsontext.encode(ask["scope"])
    inside += [b'"key":[%b,\n,%b]' % (about, jsontext.encode(ask["phases"]))] if ask["phases"] else []
    inside += [b'"limits":' + _LIMITS] if limits else []
    inside += [b'"debounce":[%b,\n]' % about] if "debounce" in ask else []
    inside += [b'"needs":' + b"\n".join(needs)] if needs else []
    return tuple((b',"hm":{' + b",".join(inside) + b"}").split(b"\n")) if inside else (b"",)


def _asked(options: JobOptions, again: bool | None, scope: str, at_push: str, running: str) -> dict[str, Any]:
    """What ``lua/lib/admit.lua`` is asked of every push. A conflict of ``running`` alone is one of the start."""
    of_push = at_push not in ("", "f") or (options.throttle is not None and not running)
    ask = {
        "scope": scope,
        "phases": at_push + running,
        "conflict": options.on_conflict or "skip" if of_push else "skip",
        "once_for": math.ceil(options.once_for or ONCE_FOR) if options.once else None,
        "again": again or None,
        "throttle": None if options.throttle is None else max(1, math.ceil(options.throttle * 1000)),
        "debounce": options.debounce,
        "most": None if options.debounce is None else options.debounce_most or 10 * options.debounce,
    }
    return {what: value for what, value in ask.items() if value is not None}
