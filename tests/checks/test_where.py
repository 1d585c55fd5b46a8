"""Where processor time goes: samples of perf are counted by what the functions do in which they were."""

from __future__ import annotations

import llvmlite.binding as llvm
import pytest

from checks.lab.where import kind, plain, shares, table
from switchsum_switch.kernels.machinecode import functions
from switchsum_switch.kernels.target import target_machine

KERNEL = "[guest.kernel.kallsyms]"
MADE = "/tmp/perf-7.map"
MANGLED = "_ZN9switchsum4host6engine7kernels4scanB2v1B56c8tJTIeFIjxB2IKSgI4CrvQCk0Z4yRYcWsBAg6cJqBrMeIZJFEGM0QQAExxx"


@pytest.mark.parametrize(
    ("symbol", "place", "what"),
    [
        ("_copy_to_iter", KERNEL, "copies"),
        ("__schedule", KERNEL, "waiting: sleep, wake-up, yield"),
        ("veth_xmit", KERNEL, "network in the kernel"),
        ("do_syscall_64", KERNEL, "system calls, interrupts"),
        ("read_tsc", KERNEL, "other in the kernel"),
        ("host.engine.kernels.scan", MADE, "conversion of floats"),
        ("host.engine.receiving.receive", MADE, "engine"),
        ("switch.wires.ring.push", MADE, "frames on the link"),
        ("kernel.10", MADE, "switch's program"),
        ("_PyEval_EvalFrameDefault", "/usr/lib/libpython3.11.so.1.0", "Python"),
        ("__memmove_avx512_unaligned_erms", "/usr/lib/libc.so.6", "copies"),
        ("gloo::sum<float>", "/venv/libtorch_cpu.so", "library libtorch_cpu.so"),
    ],
)
def test_a_function_is_told_by_its_name_and_file(symbol: str, place: str, what: str) -> None:
    assert kind(symbol, place) == what


def test_names_of_compiled_functions_are_dotted() -> None:
    assert plain(MANGLED) == "host.engine.kernels.scan"
    assert plain("_ZN4gloo3sumEv") == "_ZN4gloo3sumEv"
    assert plain("switch_batch") == "switch_batch"


def test_samples_of_allreduces_are_counted_by_role() -> None:
    lines = [
        f"    7    10.500000:      7f00aa {MANGLED} ({MADE})",
        f"    7    10.600000:      7f00aa {MANGLED} ({MADE})",
        f"    8    10.600000:  ffffffff81 veth_xmit ({KERNEL})",
        f"    8    11.600000:  ffffffff81 veth_xmit ({KERNEL})",
        f"    9    10.600000:  ffffffff81 veth_xmit ({KERNEL})",
        "something else",
    ]
    found = shares(lines, {7: "worker", 8: "switch"}, [(10.0, 11.0)])
    assert found["worker"] == {("conversion of floats", "host.engine.kernels.scan"): 2}
    assert found["switch"].total() == 1
    text = table(found, runs=1, most=1)
    assert text[2] == "| conversion of floats | 1.0 | 0.0 |"
    assert text[4] == "| all | 1.0 | 0.5 |"
    assert "- 1.0 ms `host.engine.kernels.scan` (conversion of floats)" in text


def test_perf_is_told_where_functions_are() -> None:
    code = target_machine(0).emit_object(
        llvm.parse_assembly("define i32 @one() { ret i32 1 }\ndefine i32 @two() { ret i32 2 }")
    )
    (first, at, length), (second, after, _) = functions(code)
    assert (first, second) == ("one", "two")
    assert 0 < length <= after - at
