"""What threads.py promises, seen from outside."""

import platform
import subprocess
import sys

import pytest

STEPS = """
import resource
import torch
from fedcollab.threads import one_core_each
from fedcollab.training.batches import Batch, shares
from fedcollab.training.gradient import Automatic
from fedcollab.training.models import Network

network = Network(Network.describe("cnn", {}, (3, 32, 32), 10))
w, gradient = network.initial()[None].clone(), Automatic(network, 0.01)
batch = Batch(torch.rand(1, 32, 3, 32, 32), torch.arange(32)[None] % 10, shares((32,), 32), (32,))
with one_core_each():
    for step in range(15):
        if step == 5:
            before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        gradient.descend(w, batch)
print((resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) / 10)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library decides otherwise")
def test_memory_that_a_step_frees_is_there_for_the_next():
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True, check=True)
    assert float(done.stdout) < 200  # pages made anew in a step; about 2,000 where the memory goes back
