"""Pretrain a small causal language model on texts, and write it as a folder of Hugging Face's format.

python examples/pretrain_small_lm.py FOLDER TEXTS.jsonl [MORE.jsonl.gz ...] [KEY=VALUE ...]

TEXTS are files of JSON lines with a key `text`. Lines that say `split: test` are for testing. The folder gets a
byte-level BPE tokenizer, config.json and model.safetensors of a LlamaForCausalLM. If it exists, nothing is trained.
KEY=VALUE are the parameters of `pretrain`. Needs the extra transformers.

The same seed, number of threads and kind of CPU give the same bits.
"""

import gzip
import json
import math
import sys
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import torch
import yaml
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from torch import Tensor
from torch.nn import functional
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

BEGIN, END, PADDING = "<s>", "</s>", "<pad>"


def pretrain(
    folder: Path,
    files: Sequence[Path],
    *,
    vocabulary: int = 4096,
    width: int = 192,
    layers: int = 4,
    heads: int = 4,
    length: int = 64,
    epochs: int = 3,
    batch: int = 16,
    lr: float = 2e-3,
    seed: int = 0,
    threads: int = 1,
) -> None:
    """Write the model and its tokenizer to a folder, and print the perplexity on the test texts.

    Args:
        folder: the new folder.
        files: files of JSON lines.
        vocabulary: the tokenizer's ids.
        width: the numbers of a token's vector.
        layers: the blocks.
        heads: the heads of each block's attention.
        length: the tokens of a training sample, a part of all texts in a row.
        epochs: the passes over the texts.
        batch: the samples of a step.
        lr: the highest rate of AdamW. It rises over a twentieth of the steps and falls to 0 as a cosine.
        seed: what the initial weights and the order are drawn from.
        threads: the threads of torch.
    """
    torch.set_num_threads(threads)
    texts = {testing: [*_texts(files, testing)] for testing in (False, True)}
    tokenizer = _train_tokenizer(texts[False], vocabulary)
    train, test = (_samples(tokenizer, texts[testing], length) for testing in (False, True))
    torch.manual_seed(seed)
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(tokenizer),
            hidden_size=width,
            intermediate_size=8 * width // 3,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=tokenizer.bos_token_id,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
        )
    )
    steps = epochs * (len(train) // batch)
    optimizer = torch.optim.AdamW(model.parameters(), lr, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 20 * (step + 1) / steps) * (1 + math.cos(math.pi * step / steps)) / 2
    )
    numbers = sum(parameter.numel() for parameter in model.parameters())
    print(f"{numbers:,} parameters, {train.numel():,} tokens, {steps:,} steps", flush=True)
    order = iter(
        [rows for _ in range(epochs) for rows in torch.randperm(len(train)).split(batch) if len(rows) == batch]
    )
    model.train()
    for step, rows in enumerate(order, 1):
        optimizer.zero_grad()
        loss = _loss(model, train[rows])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 500 == 0:
            print(f"step {step:,}: loss {loss.item():.3f}", flush=True)
    model.eval()
    with torch.no_grad():
        losses = [_loss(model, rows).item() * len(rows) for rows in test.split(batch)]
    print(f"perplexity of the {test.numel():,} tokens of the test texts: {math.exp(sum(losses) / len(test)):.1f}")
    tokenizer.model_max_length = model.config.max_position_embeddings  # only now: whole texts were cut into samples
    tokenizer.save_pretrained(folder)
    model.save_pretrained(folder)


def _texts(files: Sequence[Path], testing: bool) -> Iterator[str]:
    """Yield the texts of the lines for testing or of the others."""
    for file in files:
        with gzip.open(file, "rt", encoding="utf-8") if file.suffix == ".gz" else file.open(encoding="utf-8") as lines:
            for row in map(json.loads, lines):
                if (row.get("split") == "test") == testing:
                    yield row["text"]


def _train_tokenizer(texts: Sequence[str], vocabulary: int) -> PreTrainedTokenizerFast:
    """Return a byte-level BPE tokenizer that puts each text between BEGIN and END."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = [PADDING, BEGIN, END]
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=vocabulary, special_tokens=special, initial_alphabet=alphabet)
    tokenizer.train_from_iterator(texts, trainer)
    ends = [(token, tokenizer.token_to_id(token)) for token in (BEGIN, END)]
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{BEGIN} $A {END}", special_tokens=ends)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token=BEGIN, eos_token=END, pad_token=PADDING)


def _samples(tokenizer: PreTrainedTokenizerFast, texts: Sequence[str], length: int) -> Tensor:
    """Return all texts in a row as samples [N, length + 1]. Each begins with the last token of the one before."""
    ids = torch.tensor([*chain.from_iterable(tokenizer(list(texts))["input_ids"])])
    return ids.unfold(0, length + 1, length).contiguous()


def _loss(model: LlamaForCausalLM, rows: Tensor) -> Tensor:
    """Return the mean cross-entropy of the next tokens of samples [n, length + 1]."""
    logits = model(input_ids=rows[:, :-1], use_cache=False).logits
    return functional.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())


if __name__ == "__main__":
    names = [argument for argument in sys.argv[1:] if "=" not in argument]
    if len(names) < 2 or "--help" in names:
        sys.exit(__doc__)
    target, *sources = map(Path, names)
    pairs = (argument.partition("=") for argument in sys.argv[1:] if "=" in argument)
    if not target.exists():
        pretrain(target, sources, **{key: yaml.safe_load(value) for key, _, value in pairs})
    print(f"model.path: {target}")
