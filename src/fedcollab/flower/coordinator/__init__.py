"""The coordinator's side of a federation over Flower: its folder, the SuperLink with its gate, and runs over it.

Begin with `folder` (what `fedcollab federation` works on) and `relay`, which connects a command to a Flower run.
"""
