"""What the clients have: their samples, people's own files, and how samples become model inputs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
