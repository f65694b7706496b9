"""The promise for 1.x: what was there at a release is there today, with the same defaults."""

from stable_interface import KEPT, list_interface


def test_what_was_promised_is_there_with_the_same_defaults() -> None:
    """The file is only added to: python tools/stable_interface.py. A key that is renamed stays in it until 2.0."""
    kept = KEPT.read_text(encoding="utf-8").splitlines()
    assert kept == sorted(set(kept))
    assert len(kept) > 1000
    assert {line.partition(" ")[0] for line in kept} == {"name", "parameter", "command", "option", "key", "value"}
    assert sorted(set(kept) - list_interface()) == []


def test_names_options_keys_and_values_are_in_it() -> None:
    """One of each kind, as the pages have them."""
    assert list_interface() > {
        "name raysim.run",
        "name raysim.api.ClientHalf",
        "parameter raysim.run positional_or_keyword out = None",
        "command sweep",
        "option run --resume",
        "key methods.der.alpha = 1.0",
        "key training.batch_size = 32",
        "key scenario.tasks = unset",
        "key dataset(npz).path = unset",
        'key schedule.kind = "asynchronous"',
        'value dataset.name "npz"',
    }
