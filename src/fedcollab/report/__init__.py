"""Stage 5: what to show to the partners. A page from a run directory, its pictures as figures, a terminal.

Begin with `run`, which reads all that a run directory holds, and `judgement`, which says what its trainings mean.

the page       `page` writes it, `document` fills it; one file a section: `answer` and `advised`, `measured`, `slider`,
               `clients`, `findings`, `differences`, `trained`, `facts`
pictures       `charts`, `advice_charts` and `training_charts`; `pictures` lists them, `figures` writes them
terminal       `terminal`, `compared_shown`; notebooks: `notebook` and `plots`
shared         `words`, `ways`, `theme`
tables         `client_table` (every figure of every client), `compared` (runs side by side)
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
