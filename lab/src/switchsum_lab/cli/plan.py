"""`switchsum plan`: what a step's communication takes on given machines, and what to change first."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Option

from switchsum.cli.fields import takes
from switchsum.cli.output import JsonOption, print_json
from switchsum_protocol.errors import UsageError
from switchsum_protocol.frame import FLOAT_FORMATS

if TYPE_CHECKING:
    from switchsum_lab.advice import Question


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of `switchsum plan`."""

    machines: Annotated[int, Option(help="Number of machines.")]
    rate: Annotated[str, Option(help="Rate of each machine's link: 1gbit.")]
    model: Annotated[str | None, Option(help="Bytes of a step's gradients in float32: 100MB.")] = None
    recording: Annotated[
        str | None,
        Option(help="In place of --model: bytes and blocks of a recorded step, as lab/papers/recordings/gpt."),
    ] = None
    step: Annotated[int, Option(help="Number of the recorded step.")] = 0
    density: Annotated[float, Option(help="Share of the gradients' blocks in which any rank has values.")] = 1.0
    ranks: Annotated[int, Option(help="Ranks on each machine.")] = 1
    mtu: Annotated[int, Option(help="MTU of the links.")] = 1500
    switch: Annotated[bool, Option("--switch", help="Assume a programmable switch in the network.")] = False
    lanes: Annotated[
        str, Option(help=f"Lanes that carry the values: {', '.join([*FLOAT_FORMATS][:-1])} or {[*FLOAT_FORMATS][-1]}.")
    ] = "int32"
    bf16_ring: Annotated[bool, Option("--bf16-ring", help="A ring carries bfloat16 in place of float32.")] = False
    rack: Annotated[int | None, Option(help="Machines at one leaf switch. Default: all.")] = None
    oversubscription: Annotated[
        float, Option(help="With --rack: how many times the machines' links hold more than their leaf's links.")
    ] = 1.0
    compress: Annotated[
        str, Option(help="How sums are compressed, as by switchsum.torch.compress: int10, thc, thc:4 or topk:0.01.")
    ] = ""
    every: Annotated[int, Option(help="Steps between two synchronisations, as with DiLoCo.")] = 1
    delay: Annotated[str, Option(help="From a machine to another one, one way: 50us.")] = "0us"
    slots: Annotated[int, Option(help="Frames that each rank has in flight to a switch.")] = 256
    compute: Annotated[
        str, Option(help="Computing of a step, during which gradients travel: 80ms. Default: only communication.")
    ] = "0ms"
    explain: Annotated[bool, Option("--explain", help="Show the arithmetic of each line.")] = False
    as_json: JsonOption = False

    def question(self) -> Question:
        """Return what is asked; raises UsageError."""
        from switchsum_lab.advice import Question
        from switchsum_lab.simulation.conditions import parse_rate, parse_size, parse_time
        from switchsum_lab.sweeps.recording import travels

        if self.recording is not None and self.model is None:
            size, density = travels(self.recording, self.step)
        elif self.model is not None and self.recording is None:
            size, density = parse_size(self.model), self.density
        else:
            raise UsageError("give either --model or --recording")
        return Question(
            machines=self.machines,
            ranks=self.ranks,
            rate_bps=parse_rate(self.rate),
            mtu=self.mtu,
            has_switch=self.switch,
            size=size,
            lanes=self.lanes,
            density=density,
            ring_bits=16 if self.bf16_ring else 32,
            rack=self.rack,
            oversubscription=self.oversubscription,
            compress=self.compress,
            every=self.every,
            delay_s=parse_time(self.delay),
            slots=self.slots,
            compute_s=parse_time(self.compute),
        )


@takes(PlanOptions)
def plan(options: PlanOptions) -> None:
    """Say how long a training step's communication takes at least on your machines, and what to change first."""
    from switchsum_lab import advice
    from switchsum_lab.advice import written_time

    question = options.question()
    found, says = advice.ways(question), advice.advice(question)
    if options.as_json:
        lines = {"ways": [asdict(way) for way in found], "advice": [asdict(line) for line in says]}
        print_json({"question": asdict(question), **lines})
        return
    delays = "headers and delays, but" if question.delay_s else "headers, but no delays and"
    typer.echo(f"Lower bounds by closed formulas: they count {delays} no processor time.")
    if question.every > 1:
        typer.echo(f"Times are means of a step, and bytes are those of a synchronisation every {question.every} steps.")
    if question.density < 1:
        travel = f"any rank has values in {question.density:.1%} of the blocks, and switches add these alone"
        typer.echo(f"{question.size:,} bytes; {travel}.")
    typer.echo("")
    for way in found:
        step = f"; a step takes {written_time(way.step_s)}" if question.compute_s else ""
        typer.echo(f"{written_time(way.seconds):>13}  {way.name}: {way.link_bytes:,} bytes on {way.bound}{step}")
        if options.explain:
            typer.echo(f"{'':>13}  {way.arithmetic}")
    typer.echo("")
    for line in says:
        typer.echo(line.text)
        for text in line.arithmetic if options.explain else ():
            typer.echo(f"  {text}")
