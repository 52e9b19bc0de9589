"""A silo's side of a federation over Flower: its config, its process, its state, and what it runs.

Begin with `config` (silo.toml), `starting` (`fedcollab silo start`) and `serving`, which answers one message.
"""
