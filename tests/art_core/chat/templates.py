# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportMissingTypeStubs=false
"""Every chat template that TRL ships and every renderer of renderers, each with a tokenizer.

There is no hub to fetch tokenizers from, so each gets a small one that has the
template's control tokens.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.resources import files

import regex
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from art_core.chat import TemplateFormat, chat_format_for

SMOLLM2_TEMPLATE = (
    "{% for message in messages %}{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
    "Face<|im_end|>\n' }}{% endif %}{{'<|im_start|>' + message['role'] + '\n' + "
    "message['content'] + '<|im_end|>' + '\n'}}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
_CORPUS = [
    "system user assistant tool You are a helpful assistant. Hello, what is the time in Paris?",
    '{"name": "get_time", "arguments": {"zone": "Europe/Paris", "n": 12}}',
    "<tool_call> </tool_call> <think> </think> <tools> function parameters description type",
    "im_start im_end tool_response the of and to in is that it was for on are as with his they",
]
_CONTROL = regex.compile(
    r"<[|｜][^<>\s'{}]*?[|｜]>|<\|[a-z_]+>|<[a-z_]+\|>|<sop>"
    r"|</?(?:think|tool_call|tool_response|start_of_turn|end_of_turn|end_of_utterance"
    r"|arg_key|arg_value|image|start_of_image|end_of_image)>"
    r"|</?s>|\[/?(?:INST|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS|ARGS|gMASK)\]"
)
# As in the models' own tokenizers, these are added tokens but not special ones.
_NOT_SPECIAL = regex.compile(r"</?(?:think|tool_call|tool_response|arg_key|arg_value)>")


def make_tokenizer(
    template: str | None,
    special: Sequence[str],
    *,
    added: Sequence[str] = (),
    eos: str = "<|im_end|>",
    bos: str | None = None,
) -> PreTrainedTokenizerBase:
    """A small byte-level BPE tokenizer; ``added`` are added tokens that aren't special."""
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    backend.add_tokens([AddedToken(text, special=False, normalized=False) for text in added])
    backend.add_special_tokens([AddedToken(text, special=True) for text in special])
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token=eos, bos_token=bos, chat_template=template
    )


def make_metaspace_tokenizer(template: str) -> PreTrainedTokenizerBase:
    """A SentencePiece-style tokenizer: blanks as ``▁``, bytes as ``<0x0A>``.

    ``<|im_end|>`` swallows the blanks behind it, as Phi-3's ``<|end|>`` does.
    """
    backend = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    backend.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    letters = [chr(code) for code in range(33, 127)]
    trainer = trainers.BpeTrainer(
        vocab_size=700,
        special_tokens=["<unk>", *(f"<0x{byte:02X}>" for byte in range(256))],
        initial_alphabet=["▁", *letters],
        show_progress=False,
    )
    backend.train_from_iterator(_CORPUS, trainer)
    # The trainer makes added tokens of the bytes; in real vocabularies they are ordinary.
    spec = json.loads(backend.to_str())
    spec["added_tokens"] = []
    backend = Tokenizer.from_str(json.dumps(spec))
    backend.add_special_tokens(
        [
            AddedToken("<|im_start|>", special=True),
            AddedToken("<|im_end|>", special=True, rstrip=True),
        ]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|im_end|>", chat_template=template
    )


@dataclass(frozen=True, eq=False)
class Template:
    """One entry of the matrix."""

    origin: str
    """``trl`` or ``renderers``."""
    name: str
    control: Sequence[str]
    eos: str
    source: str | None = None

    def __str__(self) -> str:
        return f"{self.origin}/{self.name}"

    @cached_property
    def tokenizer(self) -> PreTrainedTokenizerBase:
        soft = [token for token in self.control if _NOT_SPECIAL.fullmatch(token)]
        special = [token for token in self.control if token not in soft]
        return make_tokenizer(
            self.source, [*special, self.eos, "<s>"], added=soft, eos=self.eos, bos="<s>"
        )

    @cached_property
    def chat(self) -> TemplateFormat:
        renderer = self.name if self.origin == "renderers" else None
        return chat_format_for(self.tokenizer, renderer=renderer)


def trl_templates() -> Iterator[Template]:
    folder = files("trl") / "chat_templates"
    for file in sorted(folder.iterdir(), key=lambda item: item.name):
        if file.name.endswith(".jinja"):
            source = file.read_text(encoding="utf-8")
            found = dict.fromkeys(_CONTROL.findall(source))
            extra = ["<|constrain|>"] if "<|channel|>" in found else []
            yield Template(
                origin="trl",
                name=file.name.removesuffix(".jinja"),
                control=[*found, *extra],
                eos=_eos(source),
                source=source,
            )


def _eos(source: str) -> str:
    """The token that ends a turn where the template leaves that to ``eos_token``."""
    for token in (
        "<|im_end|>",
        "<|eot_id|>",
        "<end_of_turn>",
        "<｜end▁of▁sentence｜>",
        "<|return|>",
        "</s>",
    ):
        if token in source:
            return token
    return "<eos>"


_CHATML = ("<|im_start|>", "<|im_end|>", "<|endoftext|>")
_TAGS = (
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<tool_response>",
    "</tool_response>",
)
_QWEN = (*_CHATML, *_TAGS, "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>")
_GLM = (
    *("[gMASK]", "<sop>", "<|system|>", "<|user|>", "<|assistant|>", "<|observation|>"),
    *("<|endoftext|>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "/nothink"),
    *_TAGS,
)
_DEEPSEEK = (
    *("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜User｜>", "<｜Assistant｜>"),
    *(
        "<｜tool▁calls▁begin｜>",
        "<｜tool▁calls▁end｜>",
        "<｜tool▁call▁begin｜>",
        "<｜tool▁call▁end｜>",
    ),
    *("<｜tool▁outputs▁begin｜>", "<｜tool▁outputs▁end｜>", "<｜tool▁output▁begin｜>"),
    *("<｜tool▁output▁end｜>", "<｜tool▁sep｜>", "｜DSML｜", "<think>", "</think>"),
    *("<｜latest_reminder｜>", "<｜action｜>", "<｜query｜>", "<｜authority｜>", "<｜domain｜>"),
    *("<｜title｜>", "<｜read_url｜>"),
)
_KIMI = (
    *("<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"),
    *("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"),
    *("<|tool_call_argument_begin|>", "<|tool_call_end|>", "<|endoftext|>", "<think>", "</think>"),
    *("<|media_begin|>", "<|media_content|>", "<|media_pad|>", "<|media_end|>"),
)
_GEMMA = (
    *("<bos>", "<eos>", "<|turn>", "<turn|>", "<|channel>", "<channel|>", "<|think|>", "<|tool>"),
    *("<tool|>", "<|tool_call>", "<tool_call|>", "<|tool_response>", "<tool_response|>"),
    *("<|image>", "<|image|>", "<image|>", '<|"|>'),
)
_HY3 = tuple(
    f"{left}:opensource{right}"
    for left, right in (
        *(
            (f"<{slash}{tag}", ">")
            for slash in ("", "/")
            for tag in (
                "think",
                "tool_calls",
                "tool_call",
                "arg_key",
                "arg_value",
                "tool_responses",
                "tool_response",
            )
        ),
        *(
            (f"<｜{name}", "｜>")
            for name in (
                "hy_begin_of_sentence",
                "hy_eos",
                "hy_User",
                "hy_Assistant",
                "reasoning_mode",
            )
        ),
        ("<tool_sep", ">"),
    )
)
_INKLING = (
    *("<|message_user|>", "<|message_model|>", "<|message_system|>", "<|message_tool|>"),
    *("<|content_text|>", "<|content_thinking|>", "<|content_image|>", "<|content_audio_input|>"),
    *("<|content_xml|>", "<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>"),
    *("<|content_model_end_sampling|>", "<|end_message|>", "<|audio_end|>", "<|unused_200054|>"),
    *("<|unused_200053|>", "<|endoftext|>"),
)
_LAGUNA = (
    *("〈|EOS|〉", "<assistant>", "</assistant>"),
    *("<think>", "</think>", "<tool_call>", "</tool_call>"),
)
_LLAMA = (
    *("<|begin_of_text|>", "<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"),
    *("<|end_of_text|>", "<|eom_id|>", "<|python_tag|>"),
)
_MINIMAX = (
    *("]~!b[", "]~b]", "[e~[", "<think>", "</think>"),
    *("<minimax:tool_call>", "</minimax:tool_call>"),
)
RENDERERS: dict[str, tuple[Sequence[str], str]] = {
    **dict.fromkeys(("qwen3", "prime-qwen3", "qwen3-vl"), (_QWEN, "<|im_end|>")),
    **dict.fromkeys(("qwen3.5", "qwen3.6", "qwen3.8"), (_QWEN, "<|im_end|>")),
    **dict.fromkeys(("nemotron-3", "nemotron-3-ultra", "nemotron-3.5"), (_QWEN, "<|im_end|>")),
    **dict.fromkeys(("glm-4.5", "glm-5", "glm-5.1", "glm-5.3"), (_GLM, "<|endoftext|>")),
    **dict.fromkeys(
        ("deepseek-v3", "deepseek-r1", "deepseek-v4"), (_DEEPSEEK, "<｜end▁of▁sentence｜>")
    ),
    **dict.fromkeys(("kimi-k2", "kimi-k2.5"), (_KIMI, "<|im_end|>")),
    **dict.fromkeys(
        ("laguna-xs.2", "laguna-m.1", "laguna-xs-2.1", "laguna-s-2.1"), (_LAGUNA, "〈|EOS|〉")
    ),
    "gemma4": (_GEMMA, "<eos>"),
    "hy3": (_HY3, "<｜hy_eos:opensource｜>"),
    "inkling": (_INKLING, "<|content_model_end_sampling|>"),
    "llama-3": (_LLAMA, "<|eot_id|>"),
    "minimax-m2": (_MINIMAX, "[e~["),
}
"""All but gpt-oss, whose renderer downloads its vocabulary; TRL has a template for it."""


def renderer_templates() -> Iterator[Template]:
    for name, (control, eos) in RENDERERS.items():
        kept = [token for token in control if token != eos]
        yield Template(origin="renderers", name=name, control=kept, eos=eos)
