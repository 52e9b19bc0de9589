from .encoder import ENCODERS as ENCODERS
from .encoder import Encoder as Encoder
from .encoder import find as find
from .encoder import name_encoder as name_encoder
from .encoder import register_encoder as register_encoder
from .features import encoded as encoded
from .features import watched as watched
