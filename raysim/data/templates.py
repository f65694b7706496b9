"""Prompts of instructions: the template of Alpaca, a tokenizer's chat template, a plain prompt, or a custom one."""

from collections.abc import Callable
from datetime import datetime
from string import Formatter

from raysim.config.error_text import shorten, show
from raysim.data.instruction_files import Instruction
from raysim.data.tokenizers import TextTokenizer
from raysim.system.errors import ConfigError, first_line

ALPACA = (
    "Below is an instruction that describes a task, paired with an input that provides further context. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Input:\n{input}\n\n### Response:\n"
)
ALPACA_WITHOUT_INPUT = (
    "Below is an instruction that describes a task. "
    "Write a response that appropriately completes the request.\n\n"
    "### Instruction:\n{instruction}\n\n### Response:\n"
)
"""The prompts of Stanford Alpaca, which FedIT (Zhang et al., ICASSP 2024) uses with and without an input."""
FIELDS = ("instruction", "input")
DATE = datetime(2024, 7, 26)  # of templates that name today's date, with which every day would have other samples
CLOCK = "strftime_now"
"""The function by which a template asks for the date. transformers takes none in its place, but a macro of this name.

Its argument is a format of strftime, of which each code is replaced.
"""
_CODES = ("-d", "-m", *"aAbBdeHIjmMpSyY")
_REPLACED = "".join(f"|replace('%{code}', '{DATE.strftime(f'%{code}')}')" for code in _CODES)
DATED = f"{{% macro {CLOCK}(format) %}}{{{{ format{_REPLACED} }}}}{{% endmacro +%}}"

Prompt = Callable[[Instruction], tuple[str, bool]]
"""Returns a sample's prompt, and whether it begins with its own special tokens, as chat templates write them."""


def make_prompts(template: str | None, tokenizer: TextTokenizer) -> Prompt:
    """Return a function that returns the prompt of a sample.

    Args:
        template: alpaca, plain, chat, or a text with {instruction} and {input}. None is chat for conversations, plain
            for whole prompts, and otherwise alpaca.
        tokenizer: has the chat template.

    Raises:
        ConfigError: the template is none of these, or the tokenizer has no chat template.
    """
    chat = Chat(tokenizer)
    if template is None:
        return lambda row: (chat.render(row), True) if row.messages else (_by_field(row), False)
    if template == "chat":
        chat.require()
        return lambda row: (chat.render(row), True)
    named = {"alpaca": _alpaca, "plain": _plain}
    return _without_messages(named.get(template) or _own(template), template)


def _by_field(row: Instruction) -> str:
    return _plain(row) if row.whole_prompt else _alpaca(row)


def _alpaca(row: Instruction) -> str:
    text = ALPACA if row.input else ALPACA_WITHOUT_INPUT
    return text.format(instruction=row.instruction, input=row.input)


def _plain(row: Instruction) -> str:
    return f"{row.instruction}\n{row.input}" if row.input else row.instruction


def _own(template: str) -> Callable[[Instruction], str]:
    """Return the prompts of a format string."""
    try:
        fields = [field for _, field, spec, conversion in Formatter().parse(template) if field is not None or spec]
        odd = next((field for field in fields if field not in FIELDS), None)
        if odd is None and "instruction" in fields:
            template.format(instruction="", input="")
            return lambda row: template.format(instruction=row.instruction, input=row.input)
        reason = f" with {{{odd}}}" if odd is not None else ""
    except (ValueError, KeyError, IndexError, AttributeError) as error:
        reason = f" ({first_line(error)})"
    allowed = "alpaca, chat, plain, or a text with {instruction} and, if there are inputs, {input}"
    raise ConfigError(f"dataset.template: found {show(template)}{reason}, allowed: {allowed}")


def _without_messages(prompt: Callable[[Instruction], str], template: str) -> Prompt:
    def checked(row: Instruction) -> tuple[str, bool]:
        if row.messages:
            found = f"found {show(template)} for a conversation ({row.where})"
            raise ConfigError(f"dataset.template: {found}, allowed: chat, or null")
        return prompt(row), False

    return checked


class Chat:
    """Prompts by a tokenizer's chat template, up to where the assistant's answer begins."""

    def __init__(self, tokenizer: TextTokenizer) -> None:
        """Render by this tokenizer's template."""
        self.tokenizer = tokenizer

    def require(self) -> None:
        """Raise ConfigError if the tokenizer has no chat template."""
        if not self.tokenizer.inner.chat_template:
            found = f"found {show(self.tokenizer.name)}, which has no chat template"
            allowed = "the tokenizer of a chat model; or instructions with dataset.template=alpaca"
            raise ConfigError(f"dataset.tokenizer: {found}, allowed: {allowed}")

    def render(self, row: Instruction) -> str:
        """Return the prompt of a sample. An instruction is the user's message."""
        self.require()
        before = row.messages or (("user", _plain(row)),)
        template: str = self.tokenizer.inner.get_chat_template()
        messages = [{"role": role, "content": text} for role, text in before]
        try:
            return str(
                self.tokenizer.inner.apply_chat_template(
                    messages,
                    tokenize=False,
                    add_generation_prompt=True,
                    date_string=f"{DATE:%d %b %Y}",
                    chat_template=f"{DATED}{template}" if CLOCK in template else None,
                )
            )
        except Exception as error:  # a template raises what it wants, such as for two messages of one role
            reason = shorten(first_line(error))
            raise ConfigError(
                f"{row.where}: the chat template refuses it ({reason}), allowed: what it takes"
            ) from error
