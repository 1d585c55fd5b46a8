from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchsum_protocol.errors import SwitchsumError, UsageError
from switchsum_switch.messages import p4runtime as p4rt
from switchsum_switch.messages.p4runtime import Code, Outcome, config, v1
from tools.p4runtime_descriptors import TARGET, descriptors

PUBLISHED = "1.6.0"
"""The release of P4Runtime of which messages/p4runtime.binpb is made; p4runtime-shell pins an older one."""
COMPILED = Path(__file__).parents[2] / "p4src" / "compiled"


def test_messages_survive_the_wire() -> None:
    entry = v1.TableEntry(table_id=7, priority=3, metadata=b"\x00cookie")
    entry.match.add(field_id=1).ternary.value = b"\x0f"
    entry.action.action.action_id = 9
    update = v1.Update(type=v1.Update.INSERT)
    update.entity.table_entry.CopyFrom(entry)
    again = v1.Update.FromString(update.SerializeToString())
    assert again.entity.table_entry == entry
    assert again.entity.WhichOneof("entity") == "table_entry"


def test_wire_numbers_are_those_of_the_protocol() -> None:
    # Table 7, metadata in field 11: a byte for byte example worked out by hand from p4runtime.proto.
    assert v1.TableEntry(table_id=7, metadata=b"A").SerializeToString() == bytes.fromhex("0807 5a0141")


def test_nested_messages_and_enums_are_attributes() -> None:
    assert v1.FieldMatch.LPM(value=b"A", prefix_len=8) == v1.FieldMatch(lpm={"value": b"A", "prefix_len": 8}).lpm
    assert v1.SetForwardingPipelineConfigRequest.VERIFY_AND_COMMIT == 3
    assert config.MatchField.LPM == 3


def test_service_has_every_method_with_its_streams() -> None:
    streams = {name: (method.client_streams, method.server_streams) for name, method in p4rt.METHODS.items()}
    assert streams == {
        "Write": (False, False),
        "Read": (False, True),
        "SetForwardingPipelineConfig": (False, False),
        "GetForwardingPipelineConfig": (False, False),
        "StreamChannel": (True, True),
        "Capabilities": (False, False),
    }
    read = p4rt.METHODS["Read"]
    assert read.path == "/p4.v1.P4Runtime/Read"
    assert read.request.FromString(v1.ReadRequest(device_id=5).SerializeToString()).device_id == 5
    assert type(v1.ReadResponse()) is read.response


def test_no_package_with_generated_modules_is_needed() -> None:
    program = """
import sys
sys.modules["p4"] = sys.modules["google.rpc"] = None
from switchsum_switch.messages import p4runtime
print(p4runtime.v1.TableEntry.DESCRIPTOR.full_name, p4runtime.Status.DESCRIPTOR.full_name)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "p4.v1.TableEntry google.rpc.Status\n"


@pytest.mark.skipif(
    version("p4runtime") != PUBLISHED, reason=f"p4runtime is not {PUBLISHED}, whose descriptors are kept"
)
def test_descriptors_are_those_that_are_published() -> None:
    assert descriptors() == TARGET.read_bytes(), "python tools/p4runtime_descriptors.py"


def test_p4info_of_every_build_is_read() -> None:
    for path in sorted(COMPILED.glob("*.p4info.txtpb")):
        info = p4rt.parse_p4info(path.read_text())
        assert info.pkg_info.arch == "v1model"
        assert config.P4Info.FromString(info.SerializeToString()) == info
        kinds = {field.match_type for table in info.tables for field in table.match_fields}
        assert config.MatchField.EXACT in kinds


def test_text_that_is_no_p4info_is_refused() -> None:
    with pytest.raises(UsageError, match="not a P4Info"):
        p4rt.parse_p4info("tables { preamble { id: x } }")


def test_fields_of_a_newer_p4info_are_left_out() -> None:
    info = p4rt.parse_p4info('pkg_info { arch: "v1model" invented_later: 7 }')
    assert info.pkg_info.arch == "v1model"


@pytest.mark.parametrize(
    ("value", "data"),
    [(0, "00"), (99, "63"), (255, "ff"), (256, "0100"), (0x3064, "3064"), (1 << 64, "010000000000000000")],
)
def test_integers_take_the_shortest_string(value: int, data: str) -> None:
    assert p4rt.encode_uint(value) == bytes.fromhex(data)


@given(st.integers(min_value=0, max_value=1 << 200), st.integers(min_value=0, max_value=4))
def test_integers_are_read_back_with_any_leading_zeros(value: int, zeros: int) -> None:
    assert p4rt.decode_uint(bytes(zeros) + p4rt.encode_uint(value), max(1, value.bit_length())) == value


# The unsigned rows of the specification's table of invalid encodings.
@pytest.mark.parametrize(("width", "data"), [(8, "0163"), (8, ""), (16, "010063"), (12, "1063"), (12, "004063")])
def test_strings_that_are_empty_or_too_wide_are_refused(width: int, data: str) -> None:
    with pytest.raises(ValueError, match=r"empty|does not fit"):
        p4rt.decode_uint(bytes.fromhex(data), width)


@given(st.integers(min_value=0, max_value=(1 << 128) - 1))
def test_election_ids_survive(value: int) -> None:
    message = p4rt.encode_election_id(value)
    assert p4rt.decode_election_id(v1.Uint128.FromString(message.SerializeToString())) == value


def test_details_come_back_in_order() -> None:
    outcomes = [Outcome(), Outcome(code=Code.NOT_FOUND, message="no such entry"), Outcome()]
    assert p4rt.decode_details(p4rt.encode_details(Code.UNKNOWN, "1 of 3", outcomes)) == outcomes


def test_details_of_unknown_kinds_are_kept_as_unknown() -> None:
    status = p4rt.Status(code=2)
    status.details.add(type_url="type.googleapis.com/google.rpc.RetryInfo")
    status.details.add(
        type_url="type.googleapis.com/p4.v1.Error", value=v1.Error(canonical_code=999).SerializeToString()
    )
    assert [outcome.code for outcome in p4rt.decode_details(status.SerializeToString())] == [Code.UNKNOWN] * 2


def rpc_error(code: Code, details: str, trailers: list[tuple[str, bytes]] | None) -> SimpleNamespace:
    return SimpleNamespace(
        code=lambda: SimpleNamespace(value=(int(code), code.name.lower())),
        details=lambda: details,
        trailing_metadata=lambda: trailers,
    )


def test_error_names_the_update_that_failed() -> None:
    updates = [v1.Update(type=v1.Update.INSERT), v1.Update(type=v1.Update.DELETE)]
    outcomes = [Outcome(), Outcome(code=Code.NOT_FOUND, message="no such entry")]
    trailer = p4rt.encode_details(Code.UNKNOWN, "1 of 2 updates failed", outcomes)
    error = p4rt.P4RuntimeError.from_rpc(
        "Write", rpc_error(Code.UNKNOWN, "1 of 2 updates failed", [(p4rt.STATUS_DETAILS_KEY, trailer)]), updates
    )
    assert isinstance(error, SwitchsumError)
    assert (error.operation, error.code, error.message) == ("Write", Code.UNKNOWN, "1 of 2 updates failed")
    (failure,) = error.failures
    assert (failure.index, failure.code, failure.update) == (1, Code.NOT_FOUND, updates[1])
    assert str(error) == ("Write: UNKNOWN: 1 of 2 updates failed (update 1: NOT_FOUND: no such entry [type: DELETE])")


@pytest.mark.parametrize("trailers", [None, [], [(p4rt.STATUS_DETAILS_KEY, b"\xff broken")]])
def test_error_without_readable_details_still_says_what_failed(trailers: list[tuple[str, bytes]] | None) -> None:
    error = p4rt.P4RuntimeError.from_rpc("Read", rpc_error(Code.UNAVAILABLE, "gone", trailers))
    assert (error.code, error.failures, str(error)) == (Code.UNAVAILABLE, (), "Read: UNAVAILABLE: gone")
