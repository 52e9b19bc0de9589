"""From the published tables to federations: which column is the client, what the label is, what is left out.

A rule takes the published tables by name, as they are read from CSV, and returns one table with the columns `client`
and `label` beside the features, in the order of the published rows. What all rules share stands in `prepare`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pandas as pd

Frames = dict[str, "pd.DataFrame"]
#: clients with fewer rows are left out
LEAST = 15
#: of more clients the largest are kept
MOST = 60
#: of clients with more rows so many are drawn
ROWS = 3000
DAYS = 365.25
MONTHS = [f"m{month:02d}" for month in range(1, 13)]
WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def prepare(rule: Callable[[Frames], pd.DataFrame], frames: Frames, rows: int = ROWS) -> dict[str, pd.DataFrame]:
    """Apply a rule and part its table by client.

    Parameters
    ----------
    rule : function
        One of `RULES`.
    frames : dict of DataFrame
        The published tables by name.
    rows : int
        Of clients with more rows, so many are drawn; they stay in order.

    Returns
    -------
    dict of DataFrame
        Features and `label` of each client, by name: clients of at least 15 rows, at most the 60 largest.
    """
    table = rule(frames)
    sizes = table["client"].value_counts()
    kept = sorted(sizes.index[sizes >= LEAST], key=lambda client: (-sizes[client], client))[:MOST]
    columns = [column for column in table.columns if column not in ("client", "label")]
    parts = {client: table.loc[table["client"] == client, [*columns, "label"]] for client in sorted(kept)}
    draw = np.random.RandomState(0)  # one for all clients, in the order of their names
    return {
        client: (part if len(part) <= rows else part.sample(rows, random_state=draw).sort_index()).reset_index(
            drop=True
        )
        for client, part in parts.items()
    }


def arrests_years(frames: Frames) -> pd.DataFrame:
    """Client: the year; label: released with a summons."""
    table = frames["Arrests"]
    features = table[["colour", "age", "sex", "employed", "citizen", "checks"]]
    return features.assign(label=table["released"], client="y" + table["year"].astype(str))


def breast_cohorts(frames: Frames) -> pd.DataFrame:
    """Client: the year of surgery in Rotterdam, or the German trial; label: recurrence or death within two years."""
    import pandas as pd

    rotterdam, german = frames["rotterdam"], frames["gbsg"]
    rotterdam = rotterdam.assign(
        time=np.where(rotterdam["recur"] == 1, rotterdam["rtime"], rotterdam["dtime"]),
        event=(rotterdam["recur"] == 1) | (rotterdam["death"] == 1),
        client="Rotterdam_" + rotterdam["year"].astype(str),
    )
    sizes = pd.cut(german["size"], [-1, 20, 50, np.inf], labels=["<=20", "20-50", ">50"]).astype(str)
    german = german.assign(size=sizes, time=german["rfstime"], event=german["status"] == 1, client="GBSG_trial")
    table = pd.concat([rotterdam, german], ignore_index=True)
    soon = table["event"] & (table["time"] <= 2 * DAYS)
    table = table.assign(label=np.where(soon, "yes", "no"))[soon | (table["time"] > 2 * DAYS)]
    return table[["age", "meno", "size", "grade", "nodes", "pgr", "er", "hormon", "label", "client"]]


def chile_regions(frames: Frames) -> pd.DataFrame:
    """Client: the region; label: the intended vote."""
    table = frames["Chile"].dropna(subset=["vote"])
    return table.drop(columns=["rownames", "region", "vote"]).assign(label=table["vote"], client=table["region"])


def epa_makers(frames: Frames) -> pd.DataFrame:
    """Client: the manufacturer; label: combined miles a gallon above the median of both years; no electric cars.

    Models that are alike in all features and in the label count once.
    """
    import pandas as pd

    table = pd.concat([frames["epa2012"], frames["epa2021"]], ignore_index=True)
    names = table["mfr_name"].str.lower().str.replace(r"[^a-z0-9]+", "_", regex=True).str.strip("_").str[:20]
    features = table.rename(columns={"air_aspir_method_desc": "air_aspir"})[
        ["model_yr", "engine_displacement", "no_cylinders", "air_aspir", "transmission", "no_gears", "trans_lockup",
         "drive_sys", "fuel_usage", "class"]
    ]  # fmt: skip
    return features.assign(label=_above(table["comb_mpg"]), client=names)[
        table["no_cylinders"].notna()
    ].drop_duplicates()


def exam_schools(frames: Frames) -> pd.DataFrame:
    """Client: the school; label: the exam score above the median of all pupils."""
    table = frames["Exam"]
    features = table[["standLRT", "sex", "intake"]]
    return features.assign(label=_above(table["normexam"]), client="school" + table["school"].astype(str))


def flights_carriers(frames: Frames) -> pd.DataFrame:
    """Client: the airline; label: arrives more than 15 minutes late; cancelled flights and departure are left out."""
    import pandas as pd

    flights = frames["flights"].dropna(subset=["arr_delay"])
    keys = ["origin", "year", "month", "day", "hour"]
    weather = ["temp", "dewp", "humid", "wind_speed", "precip", "pressure", "visib"]
    table = flights.merge(frames["weather"][keys + weather], on=keys, how="left")
    days = pd.to_datetime(table[["year", "month", "day"]]).dt.dayofweek
    features = table[["hour", "distance", "origin", *weather]]
    features.insert(0, "month", [MONTHS[month - 1] for month in table["month"]])
    features.insert(1, "weekday", [WEEKDAYS[day] for day in days])
    return features.assign(label=np.where(table["arr_delay"] > 15, "yes", "no"), client=table["carrier"])


def fries_raters(frames: Frames) -> pd.DataFrame:
    """Client: the rater; label: rancid flavour above the median of all tastings; missing ones are left out."""
    table = frames["french_fries"]
    table = table.dropna(subset=["rancid"])
    features = table[["time", "treatment", "potato", "buttery", "grassy", "painty"]]
    features = features.assign(treatment="oil" + table["treatment"].astype(str))
    return features.assign(label=_above(table["rancid"]), client="rater" + table["subject"].astype(str))


def hpc_protocols(frames: Frames) -> pd.DataFrame:
    """Client: the protocol of the job; label: the class of its execution time."""
    table = frames["hpc_data"]
    logs = {
        f"log_{name}": np.log(table[column] + (name == "pending"))
        for name, column in (("compounds", "compounds"), ("fields", "input_fields"), ("pending", "num_pending"))
    }
    features = table[["iterations", "hour", "day"]].assign(**logs)
    features = features[["log_compounds", "log_fields", "iterations", "log_pending", "hour", "day"]]
    return features.assign(label=table["class"], client="protocol" + table["protocol"])


def lalonde_cohorts(frames: Frames) -> pd.DataFrame:
    """Client: the cohort (the two arms of the NSW experiment, PSID-1, CPS-1); label: no earnings at all in 1978."""
    import pandas as pd

    nsw = frames["nsw74demo"]
    nsw = nsw.assign(client=np.where(nsw["trt"] == 1, "nsw_treated", "nsw_control"))
    table = pd.concat([nsw, frames["psid1"].assign(client="psid"), frames["cps1"].assign(client="cps")])
    features = table[["age", "educ", "black", "hisp", "marr", "nodeg", "re74", "re75"]]
    return features.assign(label=np.where(table["re78"] == 0, "yes", "no"), client=table["client"])


def loans_states(frames: Frames) -> pd.DataFrame:
    """Client: the state of the borrower; label: the interest rate above the median of all loans."""
    table = frames["loans_full_schema"]
    features = table[
        ["emp_length", "homeownership", "annual_income", "verified_income", "debt_to_income", "delinq_2y",
         "earliest_credit_line", "inquiries_last_12m", "total_credit_lines", "open_credit_lines", "total_credit_limit",
         "total_credit_utilized", "num_historical_failed_to_pay", "accounts_opened_24m",
         "months_since_last_credit_inquiry", "total_debit_limit", "num_cc_carrying_balance", "num_mort_accounts",
         "account_never_delinq_percent", "public_record_bankrupt", "loan_purpose", "application_type", "loan_amount",
         "term"]
    ]  # fmt: skip
    return features.assign(label=_above(table["interest_rate"]), client=table["state"])


def rodent_plots(frames: Frames) -> pd.DataFrame:
    """Client: the trapping plot; label: the genus, of the six commonest; rodents that were not weighed are left out."""
    table = frames["complete"].dropna(subset=["genus", "weight"])
    table = table[table["taxa"] == "Rodent"]
    common = table["genus"].value_counts().index[:6]
    table = table[table["genus"].isin(common)]
    features = table[["weight", "hindfoot_length", "sex", "month", "year"]]
    return features.assign(label=table["genus"], client=[f"plot{plot:02d}" for plot in table["plot_id"]])


def stackoverflow(frames: Frames) -> pd.DataFrame:
    """Client: the country; label: the salary above the median of all respondents."""
    table = frames["stackoverflow"]
    features = table.drop(columns=["rownames", "Country", "Salary"])
    return features.assign(label=_above(table["Salary"]), client=table["Country"].str.replace(" ", "_"))


def weather_cities(frames: Frames) -> pd.DataFrame:
    """Client: the city; label: rain, snow, hail or a thunderstorm on the next day."""
    table = frames["Weather"].sort_values(["city", "date"], kind="stable")
    wet = table["events"].str.contains("Rain|Snow|Thunderstorm|Hail", na=False)
    following = wet.groupby(table["city"]).shift(-1)
    columns = ["high_temp", "avg_temp", "low_temp", "high_dewpt", "avg_dewpt", "low_dewpt", "high_humidity",
               "avg_humidity", "low_humidity", "high_hg", "avg_hg", "low_hg", "avg_vis", "low_vis", "high_wind",
               "avg_wind"]  # fmt: skip
    features = table[columns].assign(wet_today=wet.astype(float))
    features.insert(0, "month", [MONTHS[month - 1] for month in table["month"]])
    made = features.assign(label=following.map({True: "yes", False: "no"}), client=table["city"].str.replace(" ", "_"))
    return made.dropna(subset=["label"])


def _above(values: Any) -> Any:
    """Return "high" for values above their median, "low" for the others."""
    return np.where(values > values.median(), "high", "low")


#: the rules by federation; the others cannot be made from what is published without knowing more
RULES: dict[str, Callable[[Frames], pd.DataFrame]] = {
    rule.__name__: rule
    for rule in (
        arrests_years,
        breast_cohorts,
        chile_regions,
        epa_makers,
        exam_schools,
        flights_carriers,
        fries_raters,
        hpc_protocols,
        lalonde_cohorts,
        loans_states,
        rodent_plots,
        stackoverflow,
        weather_cities,
    )
}
