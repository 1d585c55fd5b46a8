"""Exercises: our solutions are right, skeletons and usual mistakes are each told what is wrong with them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from support.compiled import without_places
from support.timing import patience
from switchsum.cli.app import application
from switchsum.testing.exercises import Bmv2Loader
from switchsum_exercises import EXERCISES, Exercise, driver, find, start
from switchsum_exercises.p4 import Compiled, attempt_of, compile_program
from switchsum_protocol.errors import UsageError

P4C = pytest.mark.skipif(shutil.which("p4c-bm2-ss") is None, reason="needs p4c-bm2-ss on PATH")
IN_P4 = [exercise for exercise in EXERCISES if exercise.has_p4]
SKELETONS = {
    "forwarder": "a frame from port 1 to the station behind port 2 went nowhere",
    "one_slot": "every rank has contributed, and no result left",
    "loss": "round 3 of slot 0: a result left after 1 of 3 contributions",
    "blocks": "rank 0 said with block 0 that block 1 follows; at this rank block 2 is the next that is not zero",
    "floats": "and -30 would do, or -29: 30 bits of every value are lost",
    "tree": "round 1: all ranks of the leaf have contributed, and nothing went up",
}
P4_SKELETONS = {**SKELETONS, "forwarder": "the program never applies table SwitchIngress.stations"}
# Exercise, what the solution says, what a learner wrote instead, and what the check says about it.
MISTAKES = [
    ("forwarder", "if other != port]", "]", "came back through port 1: its sender would see it twice"),
    ("forwarder", "goal is None or goal == port", "goal is None", "was sent back"),
    ("forwarder", "return [(goal, frame)]", "return [(p, frame) for p in (1, 2, 3)]", "left through ports [1, 2, 3]"),
    ("forwarder", "return [(goal, frame)]", "return (goal, frame)", "it returns a list of (port, Frame)"),
    ("forwarder", "self.stations.get(frame.destination)", "self.stations[frame.destination]", "KeyError in line"),
    ("one_slot", "add(self.sums, frame.lanes)", "frame.lanes", "the last contribution alone"),
    ("one_slot", "        self.sums = (0,) * LANES\n        self.count = 0\n        return", "        self.count = 0\n"
     "        return", "round 2: the sum has round 1 in it: the slot was not emptied"),
    ("one_slot", "(port_of(rank), result) for rank in range(self.workers)", "(port, result)", "0 and 1 got no result"),
    ("one_slot", "self.count < self.workers", "self.count < 2", "a result left after 2 of 3 contributions"),
    ("loss", "            return []\n        cell.sums", "        cell.sums",
     "round 2 of slot 0: rank 1's repeat was added twice"),
    ("loss", "return [(port, Frame(", "return [(port_of(r), Frame(", "ranks 0 and 1 got the result as well"),
    ("loss", "self.cells[frame.number % 2]", "self.cells[0]", "a slot has two versions"),
    ("loss", "        if frame.number < cell.number:\n            return []\n        if frame.number > cell.number:",
     "        if frame.number != cell.number:", "an old number is dropped"),
    ("loss", "if len(cell.seen) == self.workers:", "if False:", "rank 2 lost the result"),
    ("loss", "return [(port_of(rank), Frame(kind=Kind.RESULT, number=cell.number,",
     "return [(port_of(rank), Frame(kind=Kind.RESULT, number=0,", "got a result with number=0"),
    ("loss", "lanes=cell.sums)) for", "lanes=list(cell.sums))) for", "lanes are a tuple of ints"),
    ("loss", "lanes=cell.sums)) for", "lanes=tuple(map(float, cell.sums)))) for", "lanes are a tuple of ints"),
    ("loss", "[(port_of(rank), Frame", "[(float(port_of(rank)), Frame", "a port is an int"),
    ("one_slot", "self.count < self.workers", "exec('import sys; sys.exit(0)')", "ends the process"),
    ("one_slot", "self.count < self.workers", "exec('import os; os._exit(0)')", "ends the process"),
    ("one_slot", "self.count < self.workers", "print('exercise 2: right, 3 checks passed')", "reads like the verdict"),
    ("blocks", "or result.next_block != self.announced:", "or False:", "zero at this rank: a frame for nothing"),
    ("blocks", "min(self.nexts)", "max(self.nexts)", "a result left before ranks 1 and 2 had sent it"),
    ("blocks", "min(self.nexts)", "frame.next_block", "a result left before ranks 1 and 2 had sent it"),
    ("blocks", "self.nexts[frame.rank] = frame.next_block",
     "self.nexts[frame.rank] = frame.next_block if frame.next_block != NO_BLOCK else 0", "is not waited for"),
    ("blocks", "self.block, self.nexts = 0, [0] * self.workers", "self.block = 0", "a result left before"),
    ("blocks", "self.block, self.sums = following, ZEROS", "self.block = following", "and the sum is"),
    ("blocks", "self.sums[result.block] = result.lanes or ZEROS", "pass", "of sums; the sum is"),
    ("floats", "while workers * round", "while round", "the sum of 3 such ranks overflows a lane"),
    ("floats", "return LOWEST_EXPONENT", "return 0", "a rank with zeros must not raise the exponent"),
    ("floats", "clamp(round(math.ldexp(value, -exponent)))", "clamp(int(math.ldexp(value, -exponent)))", "cutting off"),
    ("floats", "clamp(round(math.ldexp(value, -exponent)))", "clamp(math.floor(math.ldexp(value, -exponent) + 0.5))",
     "halves go to the even neighbour"),
    ("floats", "clamp(round(math.ldexp(value, -exponent)))", "round(math.ldexp(value, -exponent))", "has 32 bits"),
    ("floats", "math.ldexp(lane, exponent)", "float(lane)", "the values are (1.0"),
    ("floats", "max(self.exponent, frame.exponent)", "frame.exponent", "with less than the greatest"),
    ("floats", "clamp(total) for total in add", "total for total in add", "it saturates at 2147483647"),
    ("floats", "exponent=self.exponent)", "exponent=0)", "with less than the greatest"),
    ("tree", "rank=self.number", "rank=frame.rank", "at the root, a leaf's rank is its own number"),
    ("tree", "return [(port, cell.result)]", "return self.up(cell)", "the leaf answers itself"),
    ("tree", "            return self.up(cell)", "            return []", "its contribution may be lost"),
    ("tree", " or cell.result is not None:", ":", "a second copy of round 1's result was sent down again"),
    ("tree", "if frame.number != cell.number or cell", "if cell", "a late copy of round 1's result was sent down in"),
    ("tree", "[(port_of(rank), frame) for rank in range(self.workers)]", "[(1, frame)]", "and rank 1 did not get it"),
    ("tree", "[(port, cell.result)]", "[(port_of(r), cell.result) for r in cell.seen]", "not through 2 alone"),
]  # fmt: skip


def judged(name: str, text: str, folder: Path) -> str:
    """Return what the check says about a learner's code; nothing if it is right."""
    path = folder / "switch.py"
    path.write_text(text)
    try:
        driver.check(next(one for one in EXERCISES if one.name == name), driver.Attempt(driver.load(path)))
    except driver.Wrong as wrong:
        return str(wrong)
    return ""


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("import sys; sys.exit(0)", "ends the process when it is loaded"),
        ("import os; os._exit(0)", "ends the process when it is loaded"),
        ("print('all checks passed')", "reads like the verdict"),
        ("class Switch:\n    def __init__(self, workers): raise SystemExit(0)", "ends the process"),
    ],
)
@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_an_answer_that_ends_the_process_or_prints_the_verdict_has_exit_code_1(
    exercise: Exercise, body: str, said: str, tmp_path: Path
) -> None:
    if "workers" in body and exercise.name in ("forwarder", "blocks", "floats", "tree"):
        pytest.skip("its classes are made with other arguments")
    (tmp_path / "switch.py").write_text(body)
    done = CliRunner().invoke(application(), ["exercise", "check", str(exercise.number), str(tmp_path)])
    assert done.exit_code == 1, done.output
    assert "not yet" in done.output
    assert said in " ".join(done.output.split())


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_an_answer_without_the_skeletons_names_is_told_so(exercise: Exercise, tmp_path: Path) -> None:
    for text in ("", "Switch = 3", "Switch = Worker = Leaf = Root = lambda *_, **__: None"):
        assert judged(exercise.name, text, tmp_path)


ENDLESS = {
    "loop": "while True: pass",
    "what catches errors": "while True:\n            try: forever()\n            except Exception: pass",
    "sleep": "import time; time.sleep(1e6)",
    "call": "return forever()",
}


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_that_never_returns_is_ended_and_its_line_named(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(driver, "LONGEST_S", 0.5)
    monkeypatch.setattr(driver, "MORE_S", patience(10))
    text = "forever = lambda: [0 for _ in iter(int, 1)]\nclass Switch:\n    def __init__(self, workers): pass\n"
    text += f"    def process(self, port, frame):\n        {ENDLESS[kind]}\n"
    said = judged("one_slot", text, tmp_path)
    assert "Switch.process has not returned after 0.5 s" in said
    assert ("it is in line 1 of" if kind == "call" else "it is in line") in said
    assert signal.getitimer(signal.ITIMER_REAL)[0] > 0  # pytest's own
    assert "has not returned" in judged("one_slot", "while True: pass", tmp_path)


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("while True:\n    try:\n        pass\n    except:\n        pass", "switch.py has not returned after 0.5 s"),
        ("import itertools\nsum(itertools.repeat(0))", "line 2 in <module>"),  # C code that looks at no signal
    ],
)
def test_an_answer_that_cannot_be_interrupted_ends_with_the_process(body: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "switch.py").write_text(body)
    code = (
        "from pathlib import Path; from switchsum_exercises import driver; driver.LONGEST_S, driver.MORE_S = 0.5, 0.2"
    )
    command = [sys.executable, "-c", f"{code}; driver.load(Path('switch.py'))"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patience(30), check=False)
    assert done.returncode == 1
    assert said in done.stderr


@pytest.mark.parametrize("exercise", EXERCISES, ids=lambda exercise: exercise.name)
def test_solutions_pass_and_skeletons_are_told_why_not(exercise: Exercise, tmp_path: Path) -> None:
    assert judged(exercise.name, (exercise.folder / "solution.py").read_text(), tmp_path) == ""
    assert SKELETONS[exercise.name] in judged(exercise.name, (exercise.folder / "skeleton.py").read_text(), tmp_path)


@pytest.mark.parametrize(("name", "right", "mistake", "sentence"), MISTAKES, ids=lambda value: str(value)[:20])
def test_mistakes_are_named(name: str, right: str, mistake: str, sentence: str, tmp_path: Path) -> None:
    text = next(one for one in EXERCISES if one.name == name).folder.joinpath("solution.py").read_text()
    assert text.count(right) == 1
    if mistake == "rank=frame.rank":
        text = text.replace("self.up(cell)", "self.up(cell, frame)").replace(
            "self, cell: Cell)", "self, cell: Cell, frame: Frame)"
        )
    text = text.replace(right, mistake)
    if name == "loss" and "port_of(r)" in mistake:
        text = text.replace(
            "lanes=cell.sums))]\n            return []", "lanes=cell.sums)) for r in cell.seen]\n            return []"
        )
    assert sentence in judged(name, text, tmp_path)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("class Switch(", "switch.py is no Python, line 1"),
        ("import nothing_like_it", "raised ModuleNotFoundError when it was loaded"),
        ("", "switch.py has no Switch; the skeleton has one"),
    ],
)
def test_what_is_no_switch_at_all_is_said(text: str, sentence: str, tmp_path: Path) -> None:
    assert sentence in judged("loss", text, tmp_path)


@pytest.mark.parametrize("exercise", IN_P4, ids=lambda exercise: exercise.name)
def test_compiled_solutions_pass_on_the_embedded_switch(exercise: Exercise) -> None:
    assert driver.check(exercise, attempt_of(exercise, exercise.folder, "solution")) > 0


@pytest.mark.bmv2
@pytest.mark.root
@pytest.mark.parametrize("exercise", IN_P4, ids=lambda exercise: exercise.name)
def test_compiled_solutions_pass_on_bmv2_and_other_programs_do_not(exercise: Exercise) -> None:
    number = str(exercise.number)
    right = CliRunner().invoke(application(), ["exercise", "check", number, "--solution", "--p4", "--switch", "bmv2"])
    assert right.stdout.startswith(f"exercise {number}: right, "), right.output
    other = next(one for one in IN_P4 if one is not exercise).folder
    program = Compiled(
        document=(other / "solution.json").read_text(), p4info=(other / "solution.p4info.txtpb").read_text()
    )
    with Bmv2Loader() as load, pytest.raises(driver.Wrong, match=P4_SKELETONS[exercise.name]):
        driver.check(exercise, attempt_of(exercise, exercise.folder, "solution", lambda _: load(program)))


@P4C
@pytest.mark.parametrize("exercise", IN_P4, ids=lambda exercise: exercise.name)
def test_compiled_solutions_are_current_and_skeletons_compile(exercise: Exercise, tmp_path: Path) -> None:
    committed, made = exercise.folder / "solution.json", compile_program(exercise.folder / "solution.p4")
    assert without_places(json.loads(made.document)) == without_places(json.loads(committed.read_text()))
    assert made.p4info == committed.with_suffix(".p4info.txtpb").read_text()
    start(exercise, tmp_path / "mine")
    with pytest.raises(driver.Wrong, match=P4_SKELETONS[exercise.name]):
        driver.check(exercise, attempt_of(exercise, tmp_path / "mine", "switch"))


@P4C
def test_what_p4c_says_is_handed_on(tmp_path: Path) -> None:
    (tmp_path / "switch.p4").write_text("header {")
    with pytest.raises(driver.Wrong, match=r"p4c does not take switch\.p4: .*error"):
        compile_program(tmp_path / "switch.p4")


def test_commands(tmp_path: Path) -> None:
    run = CliRunner()
    assert "3  loss: repeats and versions (Python)" in run.invoke(application(), ["exercise", "list"]).output
    folder = str(tmp_path / "mine")
    begun = run.invoke(application(), ["exercise", "start", "2", folder])
    assert (begun.exit_code, (tmp_path / "mine" / "switch.p4").is_file()) == (0, True)
    checked = run.invoke(application(), ["exercise", "check", "2", folder])
    assert (checked.exit_code, "exercise 2: not yet. round 1: every rank" in checked.output) == (1, True)
    right = run.invoke(application(), ["exercise", "check", "2", "--solution"])
    assert (right.exit_code, right.stdout) == (0, "exercise 2: right, 3 checks passed\n")


def test_nothing_is_overwritten_and_wrong_numbers_are_refused(tmp_path: Path) -> None:
    start(find(1), tmp_path)
    with pytest.raises(UsageError, match="is there already: choose another folder"):
        start(find(1), tmp_path)
    with pytest.raises(UsageError, match="there is no exercise 99"):
        find(99)
    with pytest.raises(UsageError, match="in Python alone"):
        attempt_of(find(3), tmp_path, "switch")
    for options in (["--switch", "bmv2"], ["--p4", "--switch", "tofino"]):
        done = CliRunner().invoke(application(), ["exercise", "check", "1", "--solution", *options])
        assert "--switch must be embedded or bmv2, and bmv2 needs --p4" in str(done.exception)


def test_exercises_need_nothing_of_linux() -> None:
    code = """
import os, select, socket, sys
for module, names in ((os, "eventfd memfd_create sched_setaffinity sched_getaffinity unshare setns pidfd_open"),
                      (select, "epoll"), (socket, "AF_PACKET AF_NETLINK SO_BINDTODEVICE")):
    for name in names.split():
        if hasattr(module, name):
            delattr(module, name)
sys.argv = ["switchsum", "exercise", "check", "2", "--solution", *sys.argv[1:]]
from switchsum.cli.app import application
application()()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "exercise 2: right, 3 checks passed\n", done.stderr


def test_the_page_for_teachers_grades_a_class(tmp_path: Path) -> None:
    page = (Path(__file__).resolve().parent.parent / "docs" / "for-teaching.md").read_text()
    loop = page.partition("## Grade a class")[2].partition("```sh\n")[2].partition("```")[0]
    answers = {
        "ada": (find(3).folder / "solution.py").read_text(),
        "bob": (find(3).folder / "skeleton.py").read_text(),
        "eve": "import ctypes\nctypes.CDLL(None)._exit(0)\n",
    }
    for who, answer in answers.items():
        folder = tmp_path / "answers" / who / "loss"
        folder.mkdir(parents=True)
        (folder / "switch.py").write_text(answer)
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    subprocess.run(["bash", "-ec", loop], cwd=tmp_path, env={**os.environ, "PATH": path}, check=True)
    assert (tmp_path / "loss.csv").read_text() == "answers/ada/loss,1\nanswers/bob/loss,0\nanswers/eve/loss,0\n"
