"""Record what `make demo` prints as docs/images/demo.svg.

Run as `python -m tools.record_demo` in a clone where the demo has run before; it trains for some seconds.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text

ROOT: Final = Path(__file__).resolve().parent.parent
PICTURE: Final = ROOT / "docs" / "images" / "demo.svg"
COLUMNS: Final = 58
"""As few as the demo's table allows, so that it can be read on a screen of 390 pixels."""
DEMO: Final = ("switchsum", "run", "-n", "4", "--terminal", "--", sys.executable, "examples/digits.py")


def picture(command: str, said: str) -> str:
    """Return a terminal that shows what a command said, in its colours, with the reader's fonts: nothing is fetched."""
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(f"[bold]$ {command}")
    console.print(Text.from_ansi(said))
    made = console.export_svg(title=command)
    made = re.sub(r"@font-face \{.*?\}\n", "", made, flags=re.DOTALL)
    return "\n".join(line.rstrip() for line in made.splitlines()) + "\n"


def last_of_each_line(said: str) -> str:
    """Return what stands there in the end: of a line that was written again the last text."""
    return "\n".join(line.split("\r")[-1] for line in said.replace("\r\n", "\n").split("\n") if line.strip())


def main() -> None:
    """Run the demo and write its picture."""
    print("training: some seconds", flush=True)
    environment = {**os.environ, "COLUMNS": str(COLUMNS), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(DEMO, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    PICTURE.write_text(picture("make demo", last_of_each_line(done.stdout)))


if __name__ == "__main__":
    main()
