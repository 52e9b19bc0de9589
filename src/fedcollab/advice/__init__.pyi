from .advise import advise as advise
from .gains import Expected as Expected
from .gains import Gain as Gain
from .result import Advice as Advice
from .result import Candidate as Candidate
