"""Object code is loaded without LLVM, and does the same as what LLVM's linker has loaded."""

from __future__ import annotations

import ctypes
import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Protocol

import llvmlite.binding as llvm
import pytest

from support.timing import patience
from switchsum_switch.kernels import elf, machinecode
from switchsum_switch.kernels.elf import Image, Unsupported
from switchsum_switch.kernels.machinecode import Library, cpu_of, fingerprint
from switchsum_switch.kernels.target import LinkedImage, target_machine

PROGRAMS = Path(__file__).parents[1] / "programs"
ALL_KINDS = """
@counts = common global [4 x i64] zeroinitializer, align 64
@factors = internal constant [4 x i64] [i64 3, i64 5, i64 7, i64 11], align 32
@places = internal global [2 x ptr] [ptr @counts, ptr getelementptr ([4 x i64], ptr @factors, i64 0, i64 2)], align 16
@environ = external global ptr
declare i64 @labs(i64)
declare i64 @given(i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal i64 @scaled(i64 %value, i64 %which) noinline {
  %place = getelementptr [4 x i64], ptr @factors, i64 0, i64 %which
  %factor = load i64, ptr %place
  %product = mul i64 %value, %factor
  ret i64 %product
}

define i64 @work(i64 %value, i64 %size) {
  %which = and i64 %value, 3
  %count_place = getelementptr [4 x i64], ptr @counts, i64 0, i64 %which
  %count = load i64, ptr %count_place
  %more = add i64 %count, 1
  store i64 %more, ptr %count_place
  %buffer = alloca i8, i64 %size
  call void @llvm.memset.p0.i64(ptr %buffer, i8 2, i64 %size, i1 false)
  %byte = load volatile i8, ptr %buffer
  %two = zext i8 %byte to i64
  %scaled = call i64 @scaled(i64 %value, i64 %which)
  %positive = call i64 @labs(i64 %scaled)
  %doubled = mul i64 %positive, %two
  %third = getelementptr [2 x ptr], ptr @places, i64 0, i64 1
  %seven_place = load volatile ptr, ptr %third
  %seven = load i64, ptr %seven_place
  %counts_place = load volatile ptr, ptr @places
  %here = getelementptr [4 x i64], ptr %counts_place, i64 0, i64 %which
  %now = load i64, ptr %here
  %variables = load ptr, ptr @environ
  %present = icmp ne ptr %variables, null
  %one = zext i1 %present to i64
  %a = add i64 %doubled, %seven
  %b = shl i64 %now, 32
  %c = add i64 %a, %b
  %d = add i64 %c, %one
  %e = call i64 @given(i64 %d)
  ret i64 %e
}
"""
"""Code with every kind of relocation that LLVM has written for us: constants, addresses in data, common symbols,
functions and variables of the process, and what the caller gives."""

GIVEN = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64)(lambda value: value ^ 0x5A)
pytestmark = pytest.mark.skipif(not elf.IS_SUPPORTED, reason="LLVM's linker loads code on this machine")


class Loaded(Protocol):
    def address(self, symbol: str) -> int: ...


def code_of(text: str) -> bytes:
    machine = target_machine(2)
    module = llvm.parse_assembly(text)
    module.triple, module.data_layout = machine.triple, str(machine.target_data)
    return bytes(machine.emit_object(module))


def given() -> dict[str, int]:
    return {"given": ctypes.cast(GIVEN, ctypes.c_void_p).value or 0}


def results(image: Loaded, rng: random.Random) -> list[int]:
    work = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_int64, ctypes.c_int64)(image.address("work"))
    return [work(rng.randrange(-(1 << 20), 1 << 20), rng.randrange(1, 4000)) for _ in range(200)]


def test_code_does_the_same_as_by_llvms_linker() -> None:
    code = code_of(ALL_KINDS)
    images = Image(code, ("work",), given()), LinkedImage(code, ("work",), given())
    ours, llvms = (results(image, random.Random(64)) for image in images)
    assert ours == llvms
    assert len(set(ours)) > 190


def test_images_share_no_data() -> None:
    code = code_of(ALL_KINDS)
    first, second = Image(code, ("work",), given()), Image(code, ("work",), given())
    assert results(first, random.Random(1)) == results(second, random.Random(1))
    assert results(first, random.Random(1)) != results(second, random.Random(2))


def test_no_memory_may_be_written_and_run() -> None:
    image = Image(code_of(ALL_KINDS), ("work",), given())
    rights = {}
    for line in Path("/proc/self/maps").read_text().splitlines():
        first, last = (int(word, 16) for word in line.split()[0].split("-"))
        rights[range(first, last)] = line.split()[1]
    [code] = [right for area, right in rights.items() if image.address("work") in area]
    assert code == "r-xp"


def test_a_function_that_is_nowhere_is_named() -> None:
    code = code_of(
        "declare i64 @nobody_has_it(i64)\ndefine i64 @f(i64 %x) {\n%y = call i64 @nobody_has_it(i64 %x)\nret i64 %y\n}"
    )
    with pytest.raises(RuntimeError, match="uses nobody_has_it"):
        Image(code, ("f",), {})
    with pytest.raises(RuntimeError, match="does not define g"):
        Image(code, ("g",), {"nobody_has_it": 1})
    with pytest.raises(RuntimeError):  # LLVM's linker says it, too
        LinkedImage(code, ("f",), {})


def test_another_kind_of_file_is_left_to_llvm() -> None:
    of_a_thread = "@x = thread_local global i64 5\ndefine i64 @f() {\n%y = load i64, ptr @x\nret i64 %y\n}"
    for code in (b"", b"\x7fELF", code_of(of_a_thread), Path(sys.executable).read_bytes()[:4096]):
        with pytest.raises(Unsupported):
            Image(code, (), {})


def test_a_damaged_file_is_unsupported_or_names_what_it_lacks() -> None:
    code, rng = code_of(ALL_KINDS), random.Random(64)
    for length in range(0, len(code), 97):
        with pytest.raises((Unsupported, RuntimeError)):
            Image(code[:length], ("work",), given())
    refused = 0
    for _ in range(2000):
        damaged = bytearray(code)
        damaged[rng.randrange(len(code))] ^= 1 << rng.randrange(8)
        try:
            Image(bytes(damaged), ("work",), given())
        except (Unsupported, RuntimeError):
            refused += 1
    assert refused > 100  # many bits are names, padding or code, which nobody reads here


@pytest.fixture
def by_llvm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elf, "IS_SUPPORTED", False)


@pytest.mark.usefixtures("by_llvm")
def test_where_the_loader_does_not_know_the_processor_llvm_links() -> None:
    library = Library(code_of(ALL_KINDS), ("work",), given())
    assert results(library, random.Random(3)) == results(
        Image(code_of(ALL_KINDS), ("work",), given()), random.Random(3)
    )


WARM = """
import sys, signal
from pathlib import Path
from switchsum_switch.daemon.daemon import Config, ProgramConfig, SwitchProcess
config = Config(listen="unix:" + sys.argv[2], program=ProgramConfig(device_config=Path(sys.argv[1]).read_bytes()),
                interfaces={1: "udp:127.0.0.1:0/127.0.0.1:9"})
with SwitchProcess(config) as switch:
    most_kb = [int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmHWM" in line]
    print(most_kb[0] // 1024, *sorted({"llvmlite", "numba"} & set(sys.modules)))
"""


@pytest.mark.skipif("NUMBA_DISABLE_JIT" in os.environ, reason="nothing is compiled")
def test_a_switch_that_finds_its_code_on_disk_loads_no_compiler(tmp_path: Path) -> None:
    command = [sys.executable, "-c", WARM, str(PROGRAMS / "matching.json"), str(tmp_path / "s")]
    for _ in range(2):  # the first one may compile
        done = subprocess.run(command, capture_output=True, text=True, timeout=patience(120), check=True)
    most_mb, *compilers = done.stdout.split()
    assert not compilers
    assert int(most_mb) <= 105


def test_the_processor_is_part_of_the_name_of_code(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines = ["processor : 0\n", "vendor_id : A\n", "model : 1\n", "cpu MHz : 2500.1\n", "flags : fpu avx2\n"]
    said = cpu_of(lines)
    assert said == cpu_of([*lines[:3], "cpu MHz : 900\n", lines[4]])  # which changes all the time
    assert said != cpu_of([*lines[:4], "flags : fpu\n"])
    assert said != cpu_of([lines[0], "vendor_id : B\n", *lines[2:]])
    assert not cpu_of(lines[:4])
    ours = fingerprint()
    monkeypatch.setattr(machinecode, "_CPUS", tmp_path / "none")
    fingerprint.cache_clear()
    try:
        assert llvm.get_host_cpu_name() in fingerprint() != ours  # LLVM says it
    finally:
        fingerprint.cache_clear()
