"""Values of P4 types as P4Data messages, by the types that P4Info gives (P4Runtime specification, 8.4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from switchsum_switch.messages.p4runtime import encode_uint, v1

from .refusal import invalid

Encoder = Callable[[Iterator[int]], Any]
"""Takes the numbers that a value consists of, and returns its P4Data."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """A type whose values are one number."""

    kind: str
    """The field of P4Data that has its values."""
    width: int = 0
    """Bits; 0: P4Info does not say."""
    signed: bool = False
    names: tuple[str, ...] = ()
    """Names of an enum without numbers, in order."""
    new_type: str = ""
    """The type's name, if control planes may see it in another form."""


def scalar(what: str, spec: Any, type_info: Any) -> Scalar:
    """Return what P4Info says of a type whose values are one number; raises Refused for other types."""
    kind = spec.WhichOneof("type_spec")
    match kind:
        case "bitstring" if (of := spec.bitstring.WhichOneof("type_spec")) in ("bit", "int"):
            return Scalar(kind="bitstring", width=getattr(spec.bitstring, of).bitwidth, signed=of == "int")
        case "serializable_enum" if (name := spec.serializable_enum.name) in type_info.serializable_enums:
            return Scalar(kind="enum_value", width=type_info.serializable_enums[name].underlying_type.bitwidth)
        case "enum" if (name := spec.enum.name) in type_info.enums:
            return Scalar(kind="enum", names=tuple(member.name for member in type_info.enums[name].members))
        case "new_type" if (name := spec.new_type.name) in type_info.new_types:
            made = type_info.new_types[name]
            if made.WhichOneof("representation") == "original_type":
                return scalar(what, made.original_type, type_info)
            return Scalar(kind="bitstring", new_type=name)
    raise invalid(f"P4Info: {what} has values of a type that is not supported ({kind})")


def encoder(what: str, spec: Any, type_info: Any, count: int) -> Callable[[Sequence[int]], Any]:
    """Return a function that encodes `count` numbers as a value of a P4DataTypeSpec; raises Refused if they differ."""
    encode, size = _encoder(what, spec, type_info)
    if size != count:
        raise invalid(f"{what} has {size} values in P4Info, {count} in the program")
    return lambda numbers: encode(iter(numbers))


def value_names(spec: Any, type_info: Any) -> tuple[str, ...]:
    """Return the names of the members of a struct of P4Info, those of inner structs too; of other types none."""
    if spec.WhichOneof("type_spec") != "struct":
        return ()
    members = type_info.structs[spec.struct.name].members
    return tuple(name for member in members for name in value_names(member.type_spec, type_info) or (member.name,))


def _encoder(what: str, spec: Any, type_info: Any) -> tuple[Encoder, int]:
    """Return the encoder of a type, and how many numbers its values consist of."""
    kind = spec.WhichOneof("type_spec")
    match kind:
        case "bitstring":
            return (lambda numbers: v1.P4Data(bitstring=encode_uint(next(numbers)))), 1
        case "bool":
            return (lambda numbers: v1.P4Data(bool=bool(next(numbers)))), 1
        case "serializable_enum":
            return (lambda numbers: v1.P4Data(enum_value=encode_uint(next(numbers)))), 1
        case "enum":
            return _named(what, "enum", type_info.enums.get(spec.enum.name))
        case "error":
            return _named(what, "error", type_info.error if type_info.HasField("error") else None)
        case "new_type":
            return _new_type(what, spec, type_info)
        case "struct" | "tuple":
            return _compound(what, kind, spec, type_info)
    raise invalid(f"P4Info: {what} has a value of a type that is not supported ({kind})")


def _compound(what: str, kind: str, spec: Any, type_info: Any) -> tuple[Encoder, int]:
    if kind == "struct" and spec.struct.name not in type_info.structs:
        raise invalid(f"P4Info: {what} is of the struct {spec.struct.name}, which is not there")
    if kind == "struct":
        specs = [member.type_spec for member in type_info.structs[spec.struct.name].members]
    else:
        specs = list(spec.tuple.members)
    parts = [_encoder(what, part, type_info) for part in specs]

    def encode(numbers: Iterator[int]) -> Any:
        return v1.P4Data(**{kind: v1.P4StructLike(members=[part(numbers) for part, _ in parts])})

    return encode, sum(size for _, size in parts)


def _new_type(what: str, spec: Any, type_info: Any) -> tuple[Encoder, int]:
    name = spec.new_type.name
    if name not in type_info.new_types:
        raise invalid(f"P4Info: {what} has the type {name}, which is not there")
    made = type_info.new_types[name]
    if made.WhichOneof("representation") == "original_type":
        return _encoder(what, made.original_type, type_info)
    if made.translated_type.WhichOneof("sdn_type") == "sdn_string":
        return (lambda numbers: v1.P4Data(bitstring=str(next(numbers)).encode())), 1
    return (lambda numbers: v1.P4Data(bitstring=encode_uint(next(numbers)))), 1


def _named(what: str, field: str, found: Any) -> tuple[Encoder, int]:
    """Return the encoder of a type whose values have names."""
    if found is None:
        raise invalid(f"P4Info: {what} has an {field} that is not there")
    names = [member if isinstance(member, str) else member.name for member in found.members]

    def encode(numbers: Iterator[int]) -> Any:
        number = next(numbers)
        return v1.P4Data(**{field: names[number] if number < len(names) else str(number)})

    return encode, 1
