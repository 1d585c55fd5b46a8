"""What errors, logs and notices say: read from the source, as `python -m tools.messages` lists it."""

from __future__ import annotations

from dataclasses import fields

from switchsum.launch.options import RunOptions
from tools.messages import Message, messages

MOST_WORDS = 40
FEWEST = 1_100
ALONE = {"Read", "query", "StreamChannel", "SetForwardingPipelineConfig", "GetForwardingPipelineConfig"}
"""Names of P4Runtime calls, behind which the error puts the failing updates."""


def found() -> list[Message]:
    made = list(messages())
    assert len(made) >= FEWEST
    return made


def test_a_message_is_one_sentence_that_is_soon_read() -> None:
    long = [one for one in found() if len(one.text.split()) > MOST_WORDS]
    assert long == []


ENDS = {"help": ".?", "advice": ".?:"}


def test_help_and_advice_are_sentences() -> None:
    """Advice may end with a colon: its command follows."""
    texts = [one for one in found() if one.kind in ("help", "advice") and one.file.startswith("src/")]
    assert len(texts) > 150
    assert [one for one in texts if one.text.rstrip()[-1] not in ENDS[one.kind]] == []


def test_an_error_says_what_happened() -> None:
    errors = [one for one in found() if one.kind.rpartition(".")[2].endswith(("Error", "Lost", "Refused", "Capacity"))]
    assert len(errors) > 300
    options = {option.name for option in fields(RunOptions)}  # in front of the sentence of an OptionError
    bare = [
        one
        for one in errors
        if len(one.text.split()) < 2
        and one.text not in ALONE
        and "{" not in one.text
        and not (one.kind == "OptionError" and one.text in options)
    ]
    assert bare == []
