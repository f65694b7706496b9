"""Folders of small tokenizers, as save_pretrained of `transformers` writes them, made of a few words or lines."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

CHAT = (
    "{% for message in messages %}<{{ message['role'] }}> {{ message['content'] }} {% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
"""A chat template whose marks are words."""


def word_level(folder: Path, words: Sequence[str], **keys: Any) -> str:
    """Return the folder of a tokenizer of words: [PAD] is 0, [UNK] 1, [CLS] 2, [SEP] 3, and `words` from 4 on."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    named = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return _save(folder, PreTrainedTokenizerFast(tokenizer_object=inner, **named, **keys))


def for_answers(folder: Path, words: Sequence[str], chat: str | None = CHAT) -> str:
    """Return the folder of a tokenizer of words for language models: <s> is 0 and before texts, </s> 1, `words` from 2.

    It has no pad token. With `chat` it has this chat template.
    """
    vocabulary = {word: number for number, word in enumerate(["<s>", "</s>", *words])}
    inner = Tokenizer(models.WordLevel(vocabulary, unk_token=words[0]))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    inner.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    made = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token="<s>", eos_token="</s>")
    made.chat_template = chat
    return _save(folder, made)


def byte_level(folder: Path, lines: Sequence[str], size: int = 300) -> str:
    """Return the folder of a byte-level BPE that is trained on these lines, without special tokens, as GPT-2's."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=size, initial_alphabet=alphabet, special_tokens=["<end>"], show_progress=False
    )
    inner.train_from_iterator(lines, trainer)
    return _save(folder, PreTrainedTokenizerFast(tokenizer_object=inner, eos_token="<end>"))


def _save(folder: Path, made: PreTrainedTokenizerFast) -> str:
    made.save_pretrained(folder)
    return str(folder)
