"""diffusers' pipelines of text as programs of a Thinker stage, and how they are loaded.

The pipeline that is kept never runs: each request takes a shallow copy of it, with stand-ins for
the model and a scheduler of its own.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import torch
from PIL import Image

from ..protocol.conversation import Message
from ..protocol.errors import InvalidRequest, ModelLoadFailed
from .component_source import ComponentSource
from .components import component_failure, load_module, load_scheduler
from .denoised_text import BlockProgress, DenoisedText
from .modules import Component, Modules, source_bytes
from .program import Bundle, LoadedModel, StageContext
from .remote_code import model_class
from .thinker import MEDIA_LIMITS, check_media, conversation_of
from .torchvision_ops import make_torchvision_importable
from .wire import to_bundle, to_frame

if TYPE_CHECKING:
    from .checkpoint import Checkpoint
    from .families.text_diffusion import TextDiffusion

MODEL: Final = "model"
ENCODER: Final = "encoder"


def load(family: TextDiffusion, checkpoint: Checkpoint, *, dtype: str, device: str) -> LoadedModel:
    """A checkpoint whose text is denoised, ready to run; no weights are read yet.

    Raises:
        ModelLoadFailed: names the component and what is wrong with it.
    """
    make_torchvision_importable()
    import diffusers

    config = family.config(checkpoint)
    texts = _texts(family, checkpoint)
    pipeline = getattr(diffusers, family.pipeline)(None, None, texts)
    pipeline.set_progress_bar_config(disable=True)
    program = TextProgram(
        family=family,
        config=config,
        pipeline=pipeline,
        scheduler=_scheduler(family, checkpoint),
        texts=texts,
        device=torch.device(device),
    )
    return LoadedModel(
        modules=Modules({MODEL: _model(family, checkpoint, config, dtype=dtype)}),
        specs=family.specs(),
        programs={"thinker": program},
        denoiser=(MODEL, "__call__"),
    )


@dataclass(frozen=True, slots=True)
class TextProgram:
    """The program of a Thinker stage.

    Attributes:
        config: the model's `config.json`.
        pipeline: diffusers', without a model.
        texts: the tokenizer or processor; it has the chat template.
        device: where the model runs: random numbers are drawn there.
    """

    family: TextDiffusion
    config: Mapping[str, Any]
    pipeline: Any
    scheduler: Any
    texts: Any
    device: torch.device

    def __call__(
        self, context: StageContext, params: Mapping[str, Any], inputs: Mapping[str, Bundle]
    ) -> dict[str, Bundle]:
        """Answer a conversation.

        Raises:
            InvalidRequest: there is nothing to answer, or it holds what the model does not take.
        """
        frames = {name: to_frame(bundle) for name, bundle in inputs.items()}
        conversation = conversation_of(params, frames)
        check_media(conversation, self._limits())
        messages = [_to_template(message) for message in conversation.messages]
        prompt_tokens = self._count(messages)
        self._check_length(prompt_tokens, params["max_tokens"])
        text = DenoisedText(
            context, self.texts, self.pipeline.eos_token_id, params["max_tokens"], prompt_tokens
        )
        ids = self._denoise(context, text, messages, params)
        facts = text.finish(ids)
        history = conversation.then(Message("assistant", (facts["text"],))).to_frame()
        return {"text": Bundle({}, facts), "history": to_bundle(history, torch.device("cpu"))}

    def _denoise(
        self,
        context: StageContext,
        text: DenoisedText,
        messages: list[dict[str, Any]],
        params: Mapping[str, Any],
    ) -> list[int]:
        """The pipeline's tokens, whole blocks of them."""
        progress = BlockProgress(context)

        def after_step(pipeline: Any, _: int, step: int, tensors: Mapping[str, Any]) -> Any:
            progress.after_step(pipeline, step)
            if step == 0 and "block_x" in tensors:
                text.committed_before(tensors["block_x"][0].tolist(), params["block_length"])
            return {}

        pipeline = copy.copy(self.pipeline)
        model = context.module(MODEL)
        if self.family.encodes:
            model = _WithEncoder(model, _told(context.module(ENCODER), text.committed))
        pipeline.__dict__.update(model=model, scheduler=copy.deepcopy(self.scheduler))
        made = pipeline(
            messages=messages,
            gen_length=params["max_tokens"],
            num_inference_steps=params["steps"],
            temperature=params["temperature"],
            generator=torch.Generator(self.device).manual_seed(params["seed"]),
            output_type="seq",
            callback_on_step_end=after_step,
            **self.family.arguments(params),
        )
        return list(made.sequences[0].tolist())

    def _count(self, messages: list[dict[str, Any]]) -> int:
        """Tokens of the prompt, as the pipeline makes it."""
        encoded = self.texts.apply_chat_template(
            messages,
            add_generation_prompt=True,
            tokenize=True,
            return_tensors="pt",
            return_dict=True,
        )
        return int(encoded["input_ids"].shape[1])

    def _check_length(self, prompt_tokens: int, max_tokens: int) -> None:
        longest = self.family.longest(self.config)
        whole = self.family.whole_blocks(max_tokens, self.config)
        if longest is not None and prompt_tokens + whole > longest:
            raise InvalidRequest(
                f"The prompt has {prompt_tokens} tokens and max_tokens = {max_tokens} asks for "
                f"{whole} more; this model reads and writes {longest} together.",
                field="max_tokens",
                value=max_tokens,
                allowed=f"{longest} tokens with the prompt",
                stage="thinker",
            )

    def _limits(self) -> dict[str, int]:
        """How many of each kind of media a conversation may hold."""
        taken = {name.removesuffix("s") for name in self.family.media(self.config)}
        return {kind: most if kind in taken else 0 for kind, most in MEDIA_LIMITS.items()}


class _WithEncoder:
    """A model as it looks to a pipeline that also calls its encoder: the engine runs both."""

    def __init__(self, model: Any, encoder: Callable[..., Any]) -> None:
        self._model = model
        self.model = SimpleNamespace(encoder=encoder, decoder=model.model.decoder)

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        """The model's class: diffusers asks with isinstance."""
        return self._model.__class__

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._model(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)


def _told(
    encoder: Callable[..., Any], committed: Callable[[list[int]], None]
) -> Callable[..., Any]:
    """The encoder; what it reads after the prompt are finished blocks."""

    def encode(**given: Any) -> Any:
        if given["past_key_values"].get_seq_length():
            committed(given["input_ids"][0].tolist())
        return encoder(**given)

    return encode


def _to_template(message: Message) -> dict[str, Any]:
    """A message as pipelines take it: plain text, or parts where there are pictures."""
    if all(isinstance(part, str) for part in message.parts):
        return {"role": message.role, "content": message.text}
    parts = [
        {"type": "text", "text": part}
        if isinstance(part, str)
        else {"type": "image", "image": Image.fromarray(part.tensor.array)}
        for part in message.parts
    ]
    return {"role": message.role, "content": parts}


def _model(
    family: TextDiffusion, checkpoint: Checkpoint, config: Mapping[str, Any], *, dtype: str
) -> Component:
    """The model, and its encoder by a name of its own where that is called by itself."""
    source = ComponentSource(MODEL, _place(checkpoint, MODEL))
    cls = model_class(checkpoint, config)

    def build() -> dict[str, torch.nn.Module]:
        model: Any = load_module(source, cls, dtype=dtype, device="cpu")
        return {MODEL: model, ENCODER: model.model.encoder} if family.encodes else {MODEL: model}

    names = (MODEL, ENCODER) if family.encodes else (MODEL,)
    return Component(names, source_bytes(source, dtype), build)


def _texts(family: TextDiffusion, checkpoint: Checkpoint) -> Any:
    """The tokenizer or processor."""
    import transformers

    folder = _place(checkpoint, family.texts)
    auto = {"tokenizer": transformers.AutoTokenizer, "processor": transformers.AutoProcessor}
    try:
        texts = auto[family.texts].from_pretrained(
            folder, local_files_only=True, trust_remote_code=checkpoint.trust_remote_code
        )
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise component_failure(folder, error) from error
    if not texts.chat_template:
        raise ModelLoadFailed(
            f"The {family.texts} in {folder} has no chat template.", field="chat_template"
        )
    if family.masks and texts.mask_token_id is None:
        raise ModelLoadFailed(f"The {family.texts} in {folder} has no mask token.", field="mask")
    return texts


def _scheduler(family: TextDiffusion, checkpoint: Checkpoint) -> Any:
    import diffusers

    folder = checkpoint.folder / "scheduler"
    if not folder.is_dir():
        return getattr(diffusers, family.schedulers[0])()
    scheduler = load_scheduler(folder)
    name = type(scheduler).__name__
    if name not in family.schedulers:
        raise ModelLoadFailed(
            f"The scheduler in {folder} is a {name}, which {family.pipeline} does not take.",
            field="scheduler",
            value=name,
            allowed=", ".join(family.schedulers),
        )
    return scheduler


def _place(checkpoint: Checkpoint, component: str) -> Path:
    """Where a component is: in diffusers' layout each has a folder of its own."""
    return checkpoint.folder / component if "_class_name" in checkpoint.index else checkpoint.folder
