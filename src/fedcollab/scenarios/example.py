"""A small federation of invented hospitals as CSV files, to play with: `fedcollab new FOLDER`.

    P(outcome = yes) = 1 / (1 + exp(-z))
    z = 1.2 age + 0.8 pressure + 0.6 glucose - 0.6 pulse + 0.8 smoker + 2.5 s marker

with numbers as deviations of variance 1. In the hospitals of the plain s = +1; in those of the hills, which give
another drug, s = -1. So who belongs together is known, and an answer can be judged.
"""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np

from fedcollab import files
from fedcollab.errors import InputError

#: the hospitals: name -> patients, and the sign of the marker's effect
HOSPITALS: dict[str, tuple[int, int]] = {
    "plain-north": (100, +1),
    "plain-south": (80, +1),
    "plain-west": (60, +1),
    "plain-port": (60, +1),
    "hill-east": (100, -1),
    "hill-top": (70, -1),
    "hill-foot": (60, -1),
}
#: numbers: name -> mean, deviation, digits, and what one deviation adds to z
NUMBERS: dict[str, tuple[float, float, int, float]] = {
    "age": (60, 12, 0, 1.2),
    "pressure": (135, 18, 0, 0.8),
    "glucose": (100, 15, 0, 0.6),
    "pulse": (72, 9, 0, -0.6),
    "iron": (90, 20, 0, 0.0),
    "sodium": (140, 3, 0, 0.0),
    "marker": (3, 1, 2, 2.5),
}
#: what the label's column is called
LABEL = "outcome"

README = """# {title}: seven invented hospitals

Made by `fedcollab new`. One file a hospital, one row a patient, the same columns everywhere:

| column | meaning |
|---|---|
| `age`, `pressure`, `glucose`, `pulse`, `marker` | numbers; some pressures are missing |
| `iron`, `sodium` | numbers that say nothing about the outcome |
| `smoker` | yes or no |
| `outcome` | what is to be predicted: yes or no |

The four hospitals of the plain follow one rule. In the three of the hills the marker means the opposite. Does fedcollab
find that, from data that no hospital shows to another?

    fedcollab inspect --clients {folder} --label outcome
    fedcollab run --clients {folder} --label outcome --rounds 30

The second command takes about a minute and writes a report to open in a browser. To try next:

- Give one hospital the other rule: copy `hill-top.csv` over `plain-west.csv`, and run with `--fresh`.
- Forbid a pair: `--cannot-link plain-north,plain-south`.
- Put a file of your own beside these, with the same columns.
- Let a hospital come later: move `plain-west.csv` elsewhere, run, then `fedcollab join RUN --client plain-west.csv`.
"""


def write_example(folder: str | Path, seed: int = 0) -> list[Path]:
    """Write the example's CSV files and a README into a new or empty folder.

    Parameters
    ----------
    folder : str or Path
        Where to write; it is made if it is missing.
    seed : int
        Another seed, other patients.

    Returns
    -------
    list of Path
        The files, the README last.

    Raises
    ------
    InputError
        If the folder is a file, or is not empty.

    Examples
    --------
    >>> import tempfile
    >>> [path.name for path in write_example(tempfile.mkdtemp())][-2:]
    ['hill-foot.csv', 'README.md']
    """
    folder = Path(folder)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InputError(f"`FOLDER` (={str(folder)!r}) exists and is not an empty folder; give another name")
    written = []
    for number, (name, (patients, sign)) in enumerate(HOSPITALS.items()):
        written.append(folder / f"{name}.csv")
        files.write_bytes(written[-1], _table(patients, sign, np.random.default_rng([seed, number])).encode())
    written.append(folder / "README.md")
    files.write_bytes(written[-1], README.format(title=folder.name, folder=folder).encode())
    return written


def _table(patients: int, sign: int, rng: np.random.Generator) -> str:
    """Return one hospital's table as CSV text."""
    normal = rng.normal(size=(patients, len(NUMBERS)))
    effects = np.array([effect for _, _, _, effect in NUMBERS.values()])
    effects[list(NUMBERS).index("marker")] *= sign
    smoker = rng.random(patients) < 0.3
    ill = rng.random(patients) < 1 / (1 + np.exp(-(normal @ effects + 0.8 * smoker)))
    missing = rng.random(patients) < 0.05
    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*NUMBERS, "smoker", LABEL])
    for i in range(patients):
        row = [
            f"{mean + deviation * value:.{digits}f}"
            for (mean, deviation, digits, _), value in zip(NUMBERS.values(), normal[i], strict=True)
        ]
        if missing[i]:
            row[list(NUMBERS).index("pressure")] = ""
        rows.writerow([*row, "yes" if smoker[i] else "no", "yes" if ill[i] else "no"])
    return text.getvalue()
