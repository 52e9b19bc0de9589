"""Renew what the README shows of the demo: its output, and a picture of the report's first screen.

Run by `make docs`. The text between the two markers in README.md is replaced; the picture is docs/images/report.png.
"""

from __future__ import annotations

import datetime
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(r"(<!-- demo output: begin -->\n).*?(<!-- demo output: end -->)", re.DOTALL)
BROWSER = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run", "--disable-sync"]
BROWSER += ["--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1"]


def demo_output(out: Path) -> str:
    """What `fedcollab demo` prints on standard output."""
    program = "import sys; from fedcollab.cli import main; main()"
    command = [sys.executable, "-c", program, "demo", "--out", str(out)]
    done = subprocess.run(command, check=True, capture_output=True, text=True, cwd=ROOT)
    return done.stdout.replace(str(out), "runs/demo")


def main() -> None:
    """Renew README and picture."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "demo"
        text = demo_output(out)
        readme = ROOT / "README.md"
        machine = f"{os.cpu_count()} cores, no GPU"
        note = (
            f"Output of {datetime.datetime.now(datetime.UTC).date()} ({machine}, one seed), renewed by `make docs`:\n"
        )
        block = f"{note}\n```text\n{text.strip()}\n```\n"
        readme.write_text(BLOCK.sub(lambda match: match[1] + block + match[2], readme.read_text()))
        print("README.md: demo output renewed")
        browser = shutil.which("chromium") or shutil.which("google-chrome")
        if browser is None:
            sys.exit("no chromium here: the picture stays as it is")
        picture = ROOT / "docs" / "images" / "report.png"
        picture.parent.mkdir(exist_ok=True)
        shot = [f"--screenshot={picture}", "--window-size=1280,900", f"--user-data-dir={folder}/profile"]
        page = (out / "report.html").as_uri()
        subprocess.run([browser, *BROWSER, *shot, "--virtual-time-budget=8000", page], check=True, capture_output=True)
        print(f"{picture.relative_to(ROOT)}: renewed")


if __name__ == "__main__":
    main()
