"""Every table and figure of the paper by one command each: `fedcollab reproduce NAME`.

One file a table or figure, with only its difference in it. They share one cache of results (`cells`), one runner
(`runner`), one way to set a scenario up (`setups`) and one to show a number beside the paper's (`output`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
