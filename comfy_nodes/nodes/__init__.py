"""The nodes, one file per stage. Ids, inputs and their order are frozen: they only ever grow."""

from .control import Control
from .convert import FromLatent, ToConditioning, ToLatent
from .encode import TextEncode
from .guider import Guider
from .load import LoadModel
from .lora import LoRA
from .message import Message
from .sample import Sample
from .speech import CodecDecode, Speak, Talker
from .status import RuntimeStatus
from .text_sampling import TextSampling
from .thinker import Thinker
from .vae import VAEDecode, VAEEncode, VideoDecode

NODES = (
    LoadModel,
    LoRA,
    Thinker,
    TextSampling,
    Message,
    Talker,
    CodecDecode,
    Speak,
    TextEncode,
    Control,
    Guider,
    Sample,
    VAEEncode,
    VAEDecode,
    VideoDecode,
    ToLatent,
    FromLatent,
    ToConditioning,
    RuntimeStatus,
)
"""Every node of the pack, in the order of a typical graph."""
