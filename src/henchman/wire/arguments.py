"""The arguments of one job, out and in: compiled once from its function's parameters. And what a job returns.

Positional parameters travel in an array, also when they were given by keyword; keyword-only ones in an object. Plain
values pass as they are; where an annotation names a rich type, its codec changes the form. Values that JSON cannot hold
are refused at the call site, with their place.

Arguments are bound as Python binds them, but without a frame: keywords of positional parameters find their position,
and a default is written out only where a later position is given.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Literal, NamedTuple

from henchman.errors import ArgumentError, DefinitionError
from henchman.kernel.text import described
from henchman.wire import jsontext
from henchman.wire.annotations import Compiler, annotation_of
from henchman.wire.encryption import Keyring, Sealing, sealing_of
from henchman.wire.jsontext import EncodeError, wrong
from henchman.wire.secret import Secrets, cover, is_sealed
from henchman.wire.types import KIND, Codec

__all__ = ["MAX_BYTES", "Mismatch", "Signature", "from_json", "to_json"]

MAX_BYTES = 100 * 1024 * 1024  #: the most that the arguments of one job may take as text

_EMPTY = inspect.Parameter.empty
_RETURNED = "the returned value"
_encode = jsontext.encode
_scalars = jsontext.scalars
_is_plain = jsontext.is_plain


class Mismatch(NamedTuple):
    """What of stored arguments does not fit the parameters. ``kind``: they do not bind, one is of another type, or one
    cannot be decrypted here. ``general``: the same for all jobs of this fault, without values; ``text``: of this job.
    ``refused``: a worker refuses it; a plain value of another type than annotated is passed to the job as it is."""

    kind: Literal["arguments", "type", "encrypted"]
    general: str
    text: str
    refused: bool = True


class Signature:
    """The parameters of one job on the wire. ``plain``: none is rich, so decoding only checks count and names.
    ``sealing``: which of the ``secret`` ones are encrypted; None: none is."""

    def __init__(
        self, binding: Binding, codecs: dict[str, Codec], secret: frozenset[str], sealing: Sealing | None = None
    ) -> None:
        self.binding = binding
        self.sealing = sealing
        self.secret = secret
        if sealing is not None:
            self.secret |= sealing.names
            codecs = codecs | {name: sealing.codec(name, codecs[name]) for name in sealing.names}
        self.plain = all(codec.is_plain for codec in codecs.values())
        self._by_name = {name: codecs[name] for name in binding.by_name}
        self._positional = [codecs[name] for name in binding.positional]
        self._tail = codecs[binding.tail] if binding.tail else None
        self._rest = codecs[binding.rest] if binding.rest else None
        self._least = sys.maxsize if binding.required_keywords else binding.least  # then the quick path is never taken
        self._most = binding.most

    @classmethod
    def of(
        cls,
        function: Callable[..., Any],
        *,
        name: str,
        secret: Collection[str] = (),
        encrypt: Collection[str] | bool = False,
        keyring: Keyring | None = None,
    ) -> Signature:
        """Compile the parameters of ``function``; DefinitionError when one cannot travel, or ``secret`` or ``encrypt``
        (names, or True: all) names none. ``keyring``: with which to encrypt."""
        try:
            parameters = inspect.signature(function).parameters
        except (TypeError, ValueError, NameError) as error:
            raise DefinitionError(f"{name}: the parameters of {function!r} cannot be read: {error}") from None
        unknown = set(secret) - parameters.keys()
        if unknown:
            raise DefinitionError(f"{name}: secret={sorted(unknown)!r} names no parameter; it has {list(parameters)!r}")
        compiler = Compiler()
        codecs = {}
        for parameter in parameters.values():
            try:
                codecs[parameter.name] = compiler.codec(annotation_of(function, parameter))
            except DefinitionError as error:
                raise DefinitionError(f"{name}: parameter {parameter.name!r}: {error}") from None
        called = getattr(function, "__qualname__", name)
        sealing = None if keyring is None else sealing_of(name, encrypt, parameters, keyring)
        return cls(Binding(list(parameters.values()), name, called), codecs, frozenset(secret), sealing)

    @classmethod
    def by_name(cls, name: str) -> Signature:
        """The signature of a job of which only the name is known."""
        return cls.of(lambda *args, **kwargs: None, name=name)

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bytes, bytes | None]:
        """The texts of the positional array and of the keyword-only object (None without any).

        ArgumentError when the arguments do not fit the parameters or cannot be sent.
        """
        if kwargs or not self._least <= len(args) <= self._most:
            args, rest = self.binding.bind(args, kwargs)
        else:
            rest = None
        if self.plain and (_scalars(map(type, args)) or all(map(_is_plain, args))):
            try:
                text = _encode(args)
            except ValueError:  # a lone surrogate, a number of too many digits: the careful walk names it
                text = self._careful(args)
        else:
            text = self._careful(args)
        keywords = None if not rest else self._keywords(rest)
        size = len(text) + len(keywords or b"")
        if size > MAX_BYTES:
            raise self._too_large(size)
        return text, keywords

    def _too_large(self, size: int) -> ArgumentError:
        return ArgumentError(
            f"{self.binding.name}: the arguments take {size:,} bytes, more than {MAX_BYTES:,}; "
            "keep large data in a file or table and send its name"
        )

    def decode(self, args: list[Any], kwargs: dict[str, Any] | None) -> tuple[Sequence[Any], dict[str, Any]]:
        """Arguments to call the function with, from what was read out of a payload.

        ArgumentError, naming the parameter, when count, names or a rich value do not fit.
        """
        if not (kwargs is None and self._least <= len(args) <= self._most):
            self.binding.check(args, kwargs or {})
        if self.plain:
            return args, kwargs or {}
        return self._rich(args, kwargs or {})

    def _rich(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        decoded = [self._change(index, self._codec_at(index).decode, value) for index, value in enumerate(args)]
        named = {name: self._change(name, self._codec_of(name).decode, value) for name, value in kwargs.items()}
        return decoded, named

    def unfit(self, args: list[Any], kwargs: dict[str, Any]) -> Mismatch | None:
        """The first thing about arguments out of a payload that does not fit, None when all do: what ``decode``
        refuses, and plain values of another type than annotated, which it lets pass."""
        if kwargs or not self._least <= len(args) <= self._most:
            try:
                self.binding.check(args, kwargs)
            except ArgumentError as error:
                text = str(error).removeprefix(f"{self.binding.name}: ")
                return Mismatch("arguments", text, text)
        for index, value in enumerate(args):
            codec = self._codec_at(index)
            if codec.decode is None and KIND[type(value)] in codec.kinds and type(value) not in (str, float):
                continue
            if (found := self._unfit(self._name_at(index), codec, value)) is not None:
                return found
        named = ((name, self._codec_of(name), value) for name, value in kwargs.items())
        return next((found for one in named if (found := self._unfit(*one)) is not None), None)

    def _unfit(self, name: str, codec: Codec, value: Any) -> Mismatch | None:
        sealing = self.sealing
        if is_sealed(value):
            if sealing is None or not self._is_among(sealing.names, name):
                text = f"{name} is encrypted, and the job does not say so any more: it would get the cipher text"
                return Mismatch("encrypted", text, text, refused=False)
            try:
                value = sealing.opened(name, value)
            except ArgumentError as error:
                return Mismatch("encrypted", str(error), str(error))
        try:
            if KIND[type(value)] not in codec.kinds or (codec.name == "int" and type(value) is float):
                raise wrong(value, codec.name)
            if codec.decode is not None:
                codec.decode(value)
        except EncodeError as error:
            hidden = self._hides(name)
            general = f"{name}{error.discreet}"
            return Mismatch("type", general, error.text(name, secret=hidden), codec.decode is not None)
        except RecursionError:
            return Mismatch("type", text := f"{name} is nested deeper than {jsontext.MAX_DEPTH} levels", text)
        return None

    def wire_value(self, name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """The parameter ``name`` in arguments as they travel; its default, in that form, where they leave it out."""
        places = self.binding.positional
        index = places.index(name) if name in places else sys.maxsize
        if index < len(args):
            return args[index]
        if name in kwargs:
            return kwargs[name]
        codec = self._positional[index] if name in places else self._by_name[name]
        return self._fit(name, codec.encode, self.binding.defaults[name])

    def mask(self, args: list[Any], kwargs: dict[str, Any] | None) -> tuple[list[Any], dict[str, Any] | None]:
        """The same with secret parameters replaced by ``***``, or "encrypted": for logs, events and people."""
        if not self.secret:
            return args, kwargs
        shown = [cover(value) if self._name_at(index) in self.secret else value for index, value in enumerate(args)]
        if kwargs is None:
            return shown, None
        return shown, {name: cover(value) if self._hides(name) else value for name, value in kwargs.items()}

    def unsealed(self, args: list[Any], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments that travel, as they would if nothing was encrypted; ArgumentError when a key is missing."""
        sealing = self.sealing
        if sealing is None:
            return args, kwargs
        plain = [
            sealing.opened(name, value) if (name := self._name_at(index)) in sealing.names else value
            for index, value in enumerate(args)
        ]
        named = {
            name: sealing.opened(name, value) if self._is_among(sealing.names, name) else value
            for name, value in kwargs.items()
        }
        return plain, named

    def secrets(self, *calls: tuple[Sequence[Any], dict[str, Any] | None]) -> Secrets:
        """The secret values of ``calls``: (args, kwargs), each in any of its forms."""
        return Secrets.of(
            [
                *(one for args, _ in calls for index, one in enumerate(args) if self._name_at(index) in self.secret),
                *(one for _, kwargs in calls for name, one in (kwargs or {}).items() if self._hides(name)),
            ]
        )

    @cached_property
    def secret_places(self) -> list[int | str] | None:
        """The places of secret arguments, for readers of a payload that do not know its job; None without any.

        Of ``args`` the index, or ``-1 - index`` for that one and all that follow; of ``kwargs`` the name, or ``"**"``
        for all of them.
        """
        names = self.binding.positional
        places: list[int | str] = [index for index, name in enumerate(names) if name in self.secret]
        if self.binding.tail in self.secret:
            places.append(-1 - len(names))
        keywords = [name for name in self._by_name if name in self.secret and name not in names]
        return [*places, *(["**"] if self.binding.rest in self.secret else keywords)] or None

    def _careful(self, args: Sequence[Any]) -> bytes:
        converted = [self._fit(index, self._codec_at(index).encode, value) for index, value in enumerate(args)]
        return self._text(converted, range(len(converted)))

    def _keywords(self, rest: dict[str, Any]) -> bytes:
        converted = {name: self._fit(name, self._codec_of(name).encode, value) for name, value in rest.items()}
        return self._text(converted, converted)

    def _fit(self, place: int | str, encode: Callable[[Any], Any] | None, value: Any) -> Any:
        one = value if encode is None else self._change(place, encode, value)
        return one if _is_plain(one) else self._change(place, jsontext.careful, one)

    def _text(self, converted: Any, places: Any) -> bytes:
        try:
            return _encode(converted)
        except ValueError:  # the careful walk names the place; it has accepted the values that are not plain
            for place in places:
                if _is_plain(converted[place]):
                    self._change(place, jsontext.careful, converted[place])
            raise

    def _change(self, place: int | str, change: Callable[[Any], Any] | None, value: Any) -> Any:
        if change is None:
            return value
        name = self._name_at(place) if isinstance(place, int) else place
        try:
            return change(value)
        except EncodeError as error:
            if isinstance(place, int) and place >= len(self._positional):
                error.at(place - len(self._positional))
            raise ArgumentError(error.text(name, secret=self._hides(name))) from None
        except RecursionError:
            raise ArgumentError(f"{name} is nested deeper than {jsontext.MAX_DEPTH} levels") from None

    def _hides(self, name: str) -> bool:
        return self._is_among(self.secret, name)

    def _is_among(self, names: frozenset[str], name: str) -> bool:
        return name in names or (name not in self._by_name and self.binding.rest in names)

    def _codec_at(self, index: int) -> Codec:
        if index < len(self._positional):
            return self._positional[index]
        assert self._tail is not None  # noqa: S101 - the count was checked before
        return self._tail

    def _codec_of(self, name: str) -> Codec:
        codec = self._by_name.get(name) or self._rest
        assert codec is not None  # noqa: S101 - the names were checked before
        return codec

    def _name_at(self, index: int) -> str:
        positional = self.binding.positional
        return positional[index] if index < len(positional) else self.binding.tail or ""


class Binding:
    """The parameters of one function. ``tail`` is the name of ``*args``, ``rest`` that of ``**kwargs``."""

    def __init__(self, parameters: list[inspect.Parameter], name: str, called: str) -> None:
        self.name = name
        self._called = called
        by_kind: dict[Any, list[inspect.Parameter]] = {}
        for parameter in parameters:
            by_kind.setdefault(parameter.kind, []).append(parameter)
        unnamed = by_kind.get(inspect.Parameter.POSITIONAL_ONLY, [])
        places = unnamed + by_kind.get(inspect.Parameter.POSITIONAL_OR_KEYWORD, [])
        keywords = by_kind.get(inspect.Parameter.KEYWORD_ONLY, [])
        tail = by_kind.get(inspect.Parameter.VAR_POSITIONAL)
        rest = by_kind.get(inspect.Parameter.VAR_KEYWORD)
        self.positional = [one.name for one in places]
        self.unnamed = frozenset(one.name for one in unnamed)
        self.tail = tail[0].name if tail else None
        self.rest = rest[0].name if rest else None
        self.least = sum(one.default is _EMPTY for one in places)
        self.most = sys.maxsize if tail else len(places)
        self.required_keywords = [one.name for one in keywords if one.default is _EMPTY]
        self.by_name = [one.name for one in places if one.name not in self.unnamed] + [one.name for one in keywords]
        self._keywords = frozenset(one.name for one in keywords)
        self._required = frozenset(self.required_keywords)
        self._named: list[Any] = [None if one.name in self.unnamed else one.name for one in places]
        self._defaults = [one.default for one in places]
        self.defaults = {one.name: one.default for one in (*places, *keywords) if one.default is not _EMPTY}
        self._index = {one.name: index for index, one in enumerate(places) if one.name not in self.unnamed}

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The positional values and the keyword-only ones; ArgumentError in Python's own words."""
        count, more = len(args), len(kwargs)
        if self.least <= count <= self.most and self._keywords >= kwargs.keys() >= self._required:
            return args, kwargs
        if not self._required and self.least <= count + more <= self.most:  # the next positions, all by name
            values = [kwargs[name] for name in self._named[count : count + more] if name in kwargs]
            if len(values) == more:
                return (*args, *values), {}
        return self._bind_slowly(args, kwargs)

    def _bind_slowly(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        count = len(args)
        if count > self.most:
            raise self._refused(self._too_many(count))
        later: dict[int, Any] = {}
        rest: dict[str, Any] = {}
        for name, value in kwargs.items():
            index = self._index.get(name)
            if index is not None:
                if index < count:
                    raise self._refused(f"got multiple values for argument {name!r}")
                later[index] = value
            elif name in self._keywords or self.rest is not None:
                rest[name] = value
            elif name in self.unnamed:
                raise self._refused(f"got a positional-only argument passed as keyword: {name!r}")
            else:
                raise self._refused(f"got an unexpected keyword argument {name!r}")
        if count < self.least:
            missing = [self.positional[i] for i in range(count, self.least) if i not in later]
            if missing:
                raise self._refused(_missing(missing, "positional"))
        if self.required_keywords:
            unsaid = [name for name in self.required_keywords if name not in rest]
            if unsaid:
                raise self._refused(_missing(unsaid, "keyword-only"))
        if later:
            defaults = self._defaults
            gap = range(count, max(later) + 1)
            args += tuple([later[i] if i in later else defaults[i] for i in gap])
        return args, rest

    def check(self, args: list[Any], kwargs: dict[str, Any]) -> None:
        """ArgumentError when arguments out of a payload do not fit; a positional one may come by name."""
        count = len(args)
        if count > self.most:
            raise ArgumentError(f"{self.name}: {count} argument{_s(count)} given, takes {self._range()}")
        for name in kwargs:
            index = self._index.get(name)
            if index is not None and index < count:
                raise ArgumentError(f"{self.name}: argument {name!r} is given twice")
            if index is None and name not in self._keywords and self.rest is None:
                raise ArgumentError(f"{self.name}: unexpected argument {name[:100]!r}")
        by_name = {self._index[name] for name in kwargs if name in self._index}
        missing = [self.positional[i] for i in range(count, self.least) if i not in by_name]
        missing += [name for name in self.required_keywords if name not in kwargs]
        if missing:
            raise ArgumentError(f"{self.name}: missing argument{_s(len(missing))} {', '.join(map(repr, missing))}")

    def filled(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Arguments, with the defaults of what they leave out."""
        given, named = list(args), dict(kwargs)
        before = self.positional[: len(args)]
        for name, default in self.defaults.items():
            if name in self.unnamed and name not in before:
                given.append(default)
            elif name not in named and name not in before:
                named[name] = default
        return given, named

    def _refused(self, why: str) -> ArgumentError:
        return ArgumentError(f"{self._called}() {why}")

    def _range(self) -> str:
        if self.most == sys.maxsize:
            return f"{self.least} or more"
        return str(self.most) if self.least == self.most else f"{self.least} to {self.most}"

    def _too_many(self, count: int) -> str:
        most = len(self._defaults)
        takes = f"{most}" if self.least == most else f"from {self.least} to {most}"
        return f"takes {takes} positional argument{_s(most)} but {count} {'was' if count == 1 else 'were'} given"


def _missing(names: list[str], kind: str) -> str:
    quoted = [repr(name) for name in names]
    listed = " and ".join(quoted) if len(quoted) <= 2 else f"{', '.join(quoted[:-1])}, and {quoted[-1]}"
    return f"missing {len(names)} required {kind} argument{_s(len(names))}: {listed}"


def _s(count: int) -> str:
    return "" if count == 1 else "s"


# --- returned values -------------------------------------------------------------------------------------------------


@lru_cache(maxsize=1000)
def _returned(function: Callable[..., Any]) -> Codec | None:
    try:
        annotation = inspect.signature(function).return_annotation
        parameter = inspect.Parameter("it", inspect.Parameter.KEYWORD_ONLY, annotation=annotation)
        return Compiler().codec(annotation_of(function, parameter))
    except (DefinitionError, TypeError, ValueError, NameError):
        return None  # no codec: plain JSON is given as it is


def to_json(function: Any, value: Any) -> Any:
    """``value`` as plain JSON; ValueError says what of it JSON cannot hold."""
    codec = None if function is None else _returned(function)
    try:
        plain = value if codec is None or codec.encode is None else codec.encode(value)
        return plain if jsontext.is_plain(plain) and _fits(plain) else jsontext.careful(plain)
    except EncodeError as error:
        raise ValueError(error.text(_RETURNED)) from None
    except RecursionError:
        raise ValueError(f"{_RETURNED} is nested deeper than {jsontext.MAX_DEPTH} levels") from None
    except BaseException as error:  # of the value's own code, a SystemExit too: the job has ended before it
        raise ValueError(f"{_RETURNED} cannot be read: {described(error)}") from None


def _fits(plain: Any) -> bool:
    """Whether the encoder takes it: not a number of too many digits, nor half a surrogate pair."""
    try:
        jsontext.encode(plain)
    except ValueError:
        return False
    return True


def from_json(function: Any, value: Any) -> Any:
    """The value that ``to_json`` made plain; ValueError when it no longer fits the annotation."""
    codec = None if function is None else _returned(function)
    if codec is None or codec.decode is None:
        return value
    try:
        return codec.decode(value)
    except EncodeError as error:
        raise ValueError(error.text(_RETURNED)) from None
