"""Compression by name: what names mean, and what is refused with what would work."""

from __future__ import annotations

from typing import Any

import pytest

from switchsum_host import compress as compressors
from switchsum_protocol.errors import UsageError

torch = pytest.importorskip("torch", reason="PyTorch is not installed (make torch)")
from switchsum.torch.compression import METHODS, compress, compressor_of  # noqa: E402  (it needs torch)
from switchsum.torch.hooks import NarrowLanes, compressed  # noqa: E402


@pytest.mark.parametrize("name", METHODS)
def test_every_example_works(name: str) -> None:
    for example in filter(None, (METHODS[name].example, METHODS[name].numbered)):
        assert example.split(":")[0] == name
        compressor_of(example)


@pytest.mark.parametrize(
    ("how", "lanes", "block"), [("int8", "int8", 64), ("int8:32", "int8", 32), ("int16:32", "int16", 32)]
)
def test_small_blocks_have_scales_of_their_own(how: str, lanes: str, block: int) -> None:
    made = compressor_of(how)
    assert isinstance(made, compressors.BlockScaled)
    assert (made._lanes, made._block) == (lanes, block)


@pytest.mark.parametrize(
    ("how", "inner", "values"),
    [
        ("topk:0.01+int16", compressors.TopK, {"_density": 0.01, "_lanes": "int16", "_kept": None}),
        ("TopK:0.02 + keep", compressors.TopK, {"_density": 0.02, "_lanes": "int32", "_kept": 0.02}),
        ("globaltopk:0.02+int16", compressors.GlobalTopK, {"_density": 0.02, "_lanes": "int16"}),
        ("oktopk:0.01+int8", compressors.ThresholdTopK, {"_density": 0.01, "_lanes": "int8", "_kept": 0.01}),
        ("blocktopk:0.05+int32", compressors.BlockTopK, {"_density": 0.05, "_lanes": "int32"}),
        ("powersgd:4", compressors.PowerSgd, {"_rank": 4}),
    ],
)
def test_what_is_not_right_in_the_mean_has_error_feedback(how: str, inner: type, values: dict[str, object]) -> None:
    made = compressor_of(how)
    assert isinstance(made, compressors.ErrorFeedback)
    assert type(made._inner) is inner
    assert {name: getattr(made._inner, name) for name in values} == values


def test_what_is_right_in_the_mean_or_has_feedback_of_its_own_has_none_around_it() -> None:
    assert isinstance(compressor_of("int16"), NarrowLanes)
    assert isinstance(compressor_of("int10"), compressors.Packed)
    assert isinstance(compressor_of("qsgd"), compressors.Qsgd)
    assert isinstance(compressor_of("dgc:0.01+int16"), compressors.DeepGradientCompression)


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("gzip", "no compression 'gzip': use one of int16, int16:32, int10, int8, int8:32, thc, thc:4, blocks:32"),
        ("", "use one of"),
        ("topk", "topk takes a share above 0 and up to 1, as in topk:0.01"),
        ("topk:", "as in topk:0.01"),
        ("topk:2", "as in topk:0.01"),
        ("topk:nan", "as in topk:0.01"),
        ("powersgd:0.5", "a whole number from 1 on, as in powersgd:4"),
        ("powersgd:inf", "as in powersgd:4"),
        ("blocks", "blocks takes a whole number from 1 on, as in blocks:32"),
        ("blocks:0", "as in blocks:32"),
        ("blocks:32+keep", r"only topk takes"),
        ("qsgd:4", "qsgd takes no number: qsgd"),
        ("topk:0.01+int4", "'int4' is unknown; use one of"),
        ("topk:0.01+int16+int8", r"lanes twice: use topk:0.01\+int16 or topk:0.01\+int8"),
        ("int16:", "int16 takes a whole number from 1 on, as in int16:32, not 'int16:'"),
        ("int8:0", "as in int8:32"),
        ("int8:half", "a whole number from 1 on, as in int8:32"),
        ("int10:32", "int10 takes no number: int10"),
        ("int8:64+int16", r"sends everything, in these lanes; use int8:64 alone, or topk:0.01\+int16"),
        ("int8+keep", r"only topk takes"),
        ("int16+int8", "sends everything, in these lanes; use int16 alone"),
        ("int10+int8", "three values to 32 bits; use int10 alone"),
        ("qsgd+int16", r"use qsgd alone, or topk:0.01\+int16"),
        ("powersgd:4+int16", "lanes of 32 bits; use powersgd:4 alone"),
        ("dgc:0.01+keep", r"only topk takes \+keep, as in topk:0.01\+keep"),
    ],
)
def test_what_cannot_be_is_refused_with_what_can(how: str, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        compressor_of(how)


def test_what_is_no_name_is_refused() -> None:
    how: Any = compressors.TopK(0.01)
    with pytest.raises(UsageError, match=r"takes a name, as in .*; hooks\.compressed takes compressors"):
        compressor_of(how)


def test_a_name_in_the_place_of_a_compressor_is_refused_at_once() -> None:
    with pytest.raises(UsageError, match=r"compress\(model, 'topk:0.01'\)"):
        compressed("topk:0.01")  # type: ignore[arg-type]


def test_other_models_are_refused() -> None:
    with pytest.raises(UsageError, match="compress takes a DistributedDataParallel, not Linear"):
        compress(torch.nn.Linear(2, 2), "int16")
