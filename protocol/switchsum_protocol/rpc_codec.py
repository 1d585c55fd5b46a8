"""How errors of `rpc` travel: a refusal is a gRPC status whose details are `"<error class>: <text>"`.

`error_from_details` turns it back into the error of `switchsum_protocol.errors` that the controller raised.  Messages
travel as JSON (`switchsum_switch.messages.codec`).
"""

from __future__ import annotations

from . import errors


def details_of(error: errors.SwitchsumError) -> str:
    """Write an error as gRPC status details."""
    return f"{type(error).__name__}: {error}"


def error_from_details(details: str) -> errors.SwitchsumError:
    """Read an error back from gRPC status details; one that this side does not know becomes a RemoteError."""
    name, _, text = details.partition(": ")
    kind = getattr(errors, name, None)
    if isinstance(kind, type) and issubclass(kind, errors.SwitchsumError):
        try:
            return kind(text)
        except TypeError:
            pass  # an error whose constructor wants more than a text
    return errors.RemoteError(details)
