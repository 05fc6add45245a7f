"""Turn plain data, records and arrays into text and back; the arrays' values lie elsewhere, and the text says where.

What is read is data and nothing else: no name in it is looked up but in the table of records, and every value is
checked against the annotation of the field that it goes to.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

import attrs
import numpy as np
from numpy.typing import NDArray

from padiff.codec._arrays import DTYPES, Sink, Source, name_of
from padiff.codec._errors import Malformed, Unsendable, refuse
from padiff.codec._fields import Checker, Shape, no_function, shapes_of
from padiff.codec._known import Known

Array = NDArray[Any]

_DEEPEST = 250
_MOST_DIMENSIONS = 64
_NUMBERS = (type(None), bool, int, float)
_AS_IS = (*_NUMBERS, str)
_SEQUENCES: Mapping[str, Callable[[Iterable[Any]], Any]] = {"l": list, "t": tuple, "s": set, "f": frozenset}
_TAGS: Mapping[type[Any], str] = {list: "l", tuple: "t", set: "s", frozenset: "f"}


@attrs.frozen
class Custom:
    """How values of a class that is no record are written, and read again."""

    cls: type
    plain: Callable[[Any], Any]
    read: Callable[[Any], Any]


class Codec:
    """What writes and reads the records of a table of types.

    Records with an identity (attrs' ``eq=False``) are written once, and named by their numbers in ``known`` afterwards.
    A field for a function is written and read as None. Of equal records of the types in ``shared``, whose fields are
    plain, one is held; ``pool`` holds them for several codecs.
    """

    def __init__(
        self,
        records: Iterable[type],
        known: Known,
        customs: Mapping[str, Custom] | None = None,
        shared: Collection[type] = (),
        pool: dict[Any, Any] | None = None,
    ) -> None:
        self.known = known
        self.shared, self.pool = frozenset(shared), {} if pool is None else pool
        self.customs = dict(customs or {})
        self.types = {cls.__name__: cls for cls in records}
        self.names = {cls: name for name, cls in self.types.items()}
        self.shapes = shapes_of(tuple(self.types.values()))

    def encode(self, value: Any, arrays: Sink) -> bytes:
        """Return a value's text; raise `Unsendable`."""
        encoder = _Encoder(self, arrays)
        try:
            return json.dumps(encoder.encoded(value), separators=(",", ":")).encode()
        except BaseException as error:
            self.known.drop(encoder.new)
            if isinstance(error, RecursionError):
                msg = "it is nested too deeply"
                raise Unsendable(msg) from None
            raise

    def layout(self) -> dict[str, list[str]]:
        """Return the names of the fields of every type of records, in the order in which they are written."""
        return {name: [field for field, _ in shape.fields] for name, shape in self.shapes.items()}

    def decode(self, text: bytes, arrays: Source, layout: Mapping[str, Sequence[str]] | None = None) -> Any:
        """Return what a text says; raise `Malformed`.

        ``layout`` is that of the codec that wrote it, where that may be of another version: a field that it does not
        name has its default, and one that is not known here is left out.
        """
        try:
            return _Decoder(self, arrays, layout or {}).decoded(json.loads(text))
        except Malformed:
            raise
        except RecursionError:
            msg = "it is nested too deeply"
            raise Malformed(msg) from None
        except Exception as error:
            msg = f"{type(error).__name__}: {str(error)[:200]}"
            raise Malformed(msg) from error


class _Encoder:
    def __init__(self, codec: Codec, arrays: Sink) -> None:
        self._codec = codec
        self._arrays = arrays
        self.new: list[int] = []
        self._once: dict[int, tuple[int, Any]] = {}

    def encoded(self, value: Any) -> Any:
        kind: type[Any] = type(value)
        if kind in _AS_IS:
            return value
        tag = _TAGS.get(kind)
        if tag is not None:
            return [tag, *map(self.encoded, value)]
        if kind is np.ndarray:
            return self._array(value)
        name = self._codec.names.get(kind)
        if name is not None:
            return self._record(name, value)
        if isinstance(value, Mapping):
            return ["d", *([self.encoded(key), self.encoded(item)] for key, item in value.items())]
        if isinstance(value, np.generic):
            return ["n", name_of(value.dtype), value.tobytes().hex()]
        if kind is complex:
            return ["c", value.real, value.imag]
        if kind is bytes:
            return ["b", value.hex()]
        if kind is slice:
            return ["p", *map(self.encoded, (value.start, value.stop, value.step))]
        return self._otherwise(value)

    def _otherwise(self, value: Any) -> Any:
        for name, custom in self._codec.customs.items():
            if isinstance(value, custom.cls):
                return ["k", name, self.encoded(custom.plain(value))]
        for plain in (int, float, str):
            if isinstance(value, plain):
                return plain(value)
        if isinstance(value, np.ndarray):
            return self._array(np.asarray(value))
        msg = f"a {type(value).__module__}.{type(value).__qualname__} is no plain data"
        raise Unsendable(msg)

    def _record(self, name: str, value: Any) -> Any:
        shape, number = self._codec.shapes[name], None
        if shape.lasting:
            number, new = self._codec.known.number(value)
            if not new:
                return ["@", number]
            self.new.append(number)
        else:
            seen = self._once.get(id(value))
            if seen is not None:
                return ["&", seen[0]]
            self._once[id(value)] = len(self._once), value
        found = ["r", name, number]
        for field, fits in shape.fields:
            item = None if fits is no_function else getattr(value, field)
            found.append(item if type(item) in _AS_IS else self.encoded(item))
        return found

    def _array(self, array: Array) -> list[Any]:
        name = name_of(array.dtype)
        if name not in DTYPES:
            msg = f"an array of {array.dtype} is no array of numbers"
            raise Unsendable(msg)
        return ["a", name, list(array.shape), list(self._arrays.put(array))]


class _Decoder:
    def __init__(self, codec: Codec, arrays: Source, layout: Mapping[str, Sequence[str]]) -> None:
        self._codec = codec
        self._layout = layout
        self._arrays = arrays
        self._written: dict[str, tuple[list[tuple[str, Checker | None]], list[str]]] = {}
        self._once: list[Any] = []
        self._depth = 0

    def decoded(self, value: Any) -> Any:
        if type(value) is str:
            return sys.intern(value)  # paths, names of classes, dtypes: each comes a hundred times
        if type(value) in _AS_IS:
            return value
        if self._depth > _DEEPEST:
            raise RecursionError
        self._depth += 1
        found = self._tagged(value)
        self._depth -= 1
        return found

    def _tagged(self, value: Any) -> Any:
        if type(value) is not list or not value or type(value[0]) is not str:
            refuse("a value is neither plain nor tagged")
        tag, items = value[0], value[1:]
        build = _SEQUENCES.get(tag)
        if build is not None:
            return build(map(self.decoded, items))
        decode = _DECODERS.get(tag)
        if decode is None:
            refuse(f"a value has the unknown tag {tag[:20]!r}")
        return decode(self, items)

    def _array(self, items: list[Any]) -> Array:
        name, shape, place = items
        dtype = DTYPES.get(name)
        if dtype is None or type(shape) is not list or type(place) is not list:
            refuse(f"an array came with the dtype {name!r}")
        whole = all(type(number) is int and number >= 0 for number in shape)
        if not whole or len(shape) > _MOST_DIMENSIONS:
            refuse(f"an array came with the shape {str(shape)[:80]}")
        return self._arrays.get(place, dtype, tuple(shape))

    def _scalar(self, items: list[Any]) -> Any:
        name, data = items
        return np.frombuffer(bytes.fromhex(data), DTYPES[name])[0]

    def _complex(self, items: list[Any]) -> complex:
        real, imaginary = items
        return complex(float(real), float(imaginary))

    def _custom(self, items: list[Any]) -> Any:
        name, value = items
        return self._codec.customs[name].read(self.decoded(value))

    def _again(self, items: list[Any]) -> Any:
        index = items[0]
        if type(index) is not int or not 0 <= index < len(self._once):
            refuse(f"record {index!r} of the message was named before it came")
        return self._once[index]

    def _record(self, items: list[Any]) -> Any:
        name, number, *values = items
        shape = self._codec.shapes.get(name) if type(name) is str else None
        if shape is None:
            refuse(f"a record came of the unknown type {str(name)[:80]!r}")
        written = self._written.get(name)
        if written is None:
            written = self._written[name] = self._fields_of(name, shape)
        present, missing = written
        if len(values) != len(present) or shape.lasting is not (type(number) is int):
            refuse(f"a {name} came with {len(values)} fields and the number {number!r}")
        record: Any = object.__new__(shape.cls)
        place = len(self._once)
        if shape.lasting:
            self._codec.known.add(number, record)
        else:
            self._once.append(record)
        for (field, fits), value in zip(present, values, strict=True):
            found = value if type(value) in _NUMBERS else self.decoded(value)
            if fits is None:
                continue  # what a later version keeps there
            if not fits(found):
                refuse(f"the field {field} of a {name} came as {_brief(found)}")
            object.__setattr__(record, field, found)
        for field in missing:
            object.__setattr__(record, field, _default(shape.cls, field))
        if shape.cls in self._codec.shared:
            record = self._once[place] = self._codec.pool.setdefault(record, record)
        return record

    def _fields_of(self, name: str, shape: Shape) -> tuple[list[tuple[str, Checker | None]], list[str]]:
        """Return the fields of a type of records as they were written, and those that were not."""
        checkers = dict(shape.fields)
        names = self._layout.get(name, list(checkers))
        if len(set(names)) < len(names):
            refuse(f"the fields of a {name} are named twice")
        return [(field, checkers.get(field)) for field in names], [field for field in checkers if field not in names]


def _default(cls: type, field: str) -> Any:
    """Return what a field holds that was not written; raise `Malformed` where it has to be."""
    default = getattr(attrs.fields(cls), field).default
    if isinstance(default, attrs.Factory) and not default.takes_self:  # type: ignore[arg-type]
        return default.factory()
    if default is attrs.NOTHING or isinstance(default, attrs.Factory):  # type: ignore[arg-type]
        refuse(f"a {cls.__name__} came without the field {field}")
    return default


_DECODERS: Mapping[str, Callable[[_Decoder, list[Any]], Any]] = {
    "a": _Decoder._array,
    "b": lambda decoder, items: bytes.fromhex(items[0]),
    "c": _Decoder._complex,
    "d": lambda decoder, items: {decoder.decoded(key): decoder.decoded(item) for key, item in items},
    "k": _Decoder._custom,
    "n": _Decoder._scalar,
    "p": lambda decoder, items: slice(*map(decoder.decoded, items)),
    "r": _Decoder._record,
    "@": lambda decoder, items: decoder._codec.known.get(items[0]),
    "&": _Decoder._again,
}


def _brief(value: Any) -> str:
    """Return what kind of value something is, and what it reads as where that is short."""
    return f"a {type(value).__name__}, {repr(value)[:80] if type(value) in _AS_IS else ''}".rstrip(", ")
