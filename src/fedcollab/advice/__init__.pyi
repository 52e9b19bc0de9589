from .advise import advise as advise
from .result import Advice as Advice
from .result import Candidate as Candidate
from .result import Expected as Expected
from .result import Gain as Gain
