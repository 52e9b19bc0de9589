"""What the clients have: their samples, people's own files, and how samples become model inputs.

Begin with `client` (one client's samples) and `schema` (how they become arrays, the same at every client).

`samples`, `split`, `rare`    samples checked; their test split; values that few rows have
`read`, `tables`, `npz`       a folder of CSV, Parquet or NPZ files, one a client
`own`                         the TOML file that says how a folder is read
`rows`                        rows to predict on, which have no labels
`spelling`                    when two texts are one value
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
