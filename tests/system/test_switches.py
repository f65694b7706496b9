"""Switches of torch and NumPy that a caller's process has set change no bit of a run, and are given back."""

import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from small_configs import TINY

import raysim
from raysim.config.lookup import resolve
from raysim.system import switches
from raysim.system.seeding import guard_globals, torch_untouched
from raysim.system.switches import IN_CONTEXT, LEFT, SWITCHES

BRIEF = {"scenario.tasks": 1, "training.rounds_per_task": 1}
OTHERS: dict[Any, Any] = {
    "none": "bf16",
    "tf32": "ieee",
    "highest": "medium",
    "auto": "cuda_depthwise",
    "default": "magma",
}
OTHERS |= {torch.float32: torch.float64, torch.bfloat16: torch.float16, torch.float16: torch.bfloat16}
OTHERS |= {True: False, False: True, (False, False): (True, True), (True, True): (False, False), 10: 3}
BY_NAME = {
    "torch.set_num_threads": 2,  # True == 1 in OTHERS
    "torch.serialization.set_default_mmap_options": 1,
    "torch.serialization.set_default_load_endianness": torch.serialization.LoadEndianness.BIG,
    "torch.backends.cuda.matmul.fp32_precision": "tf32",  # a GPU has no bf16 there
    "torch.backends.cudnn.fp32_precision": "tf32",
    "torch.backends.cudnn.depthwise_kernel": "native",
}
CONTEXTS: dict[str, Callable[[], Any]] = {
    "torch.set_default_device": lambda: torch.device("meta"),
    "torch.inference_mode": torch.inference_mode,
    "torch.autograd.set_multithreading_enabled": lambda: torch.autograd.set_multithreading_enabled(False),
    "numpy.seterr": lambda: np.errstate(all="raise"),
    "torch.set_anomaly_enabled": lambda: torch.autograd.set_detect_anomaly(True),
}


def run(out: Path) -> str:
    sha = raysim.run(TINY, BRIEF, out=out, local=True).model_sha256
    assert sha is not None
    return sha


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.filterwarnings("ignore")  # of torch, on switches of devices that this machine lacks
@pytest.mark.parametrize("switch", SWITCHES, ids=lambda switch: switch.name)
def test_a_switch_of_the_caller_changes_no_bit_and_is_given_back(switch, plain, tmp_path):
    if (switch.get() is None and switch.wanted is not None) or switch.name.startswith("torch.backends.opt_einsum"):
        pytest.skip("this torch or this machine does not have it")
    other = BY_NAME.get(switch.name, OTHERS.get(switch.wanted))
    assert other is not None, "name another value for a new switch here"
    with torch_untouched():
        switch.set(other)
        found = switch.get()
        assert found != switch.wanted
        assert run(tmp_path / "run") == plain
        assert switch.get() == found


@pytest.mark.parametrize("name", CONTEXTS)
def test_a_context_of_the_caller_changes_no_bit(name, plain, tmp_path):
    assert set(CONTEXTS) >= set(IN_CONTEXT)
    with CONTEXTS[name]():
        assert run(tmp_path / "run") == plain


def test_a_default_device_is_given_back(plain, tmp_path):
    torch.set_default_device("meta")
    try:
        assert run(tmp_path / "run") == plain
        assert torch.get_default_device().type == "meta"
        torch.set_default_device(None)
        assert run(tmp_path / "again") == plain
    finally:
        old = torch.__version__.startswith("2.9.")  # its get_default_device, which transformers calls, fails after None
        torch.set_default_device("cpu" if old else None)


def test_old_and_new_precisions_together_are_given_back():
    """torch refuses to read its older precisions while the newer ones contradict them."""
    with torch_untouched():
        torch.set_float32_matmul_precision("medium")
        torch.backends.fp32_precision = "bf16"  # type: ignore[attr-defined]
        torch.backends.mkldnn.matmul.fp32_precision = "none"  # type: ignore[attr-defined]
        torch.backends.cudnn.conv.fp32_precision = "ieee"  # type: ignore[attr-defined]
        with torch_untouched():
            assert torch.get_float32_matmul_precision() == "highest"
            assert torch.backends.fp32_precision == "none"  # type: ignore[attr-defined]
            assert torch.backends.mkldnn.matmul.fp32_precision == "none"  # type: ignore[attr-defined]
            assert torch.backends.cudnn.allow_tf32
        assert torch.backends.fp32_precision == "bf16"  # type: ignore[attr-defined]
        assert torch.backends.cudnn.conv.fp32_precision == "ieee"  # type: ignore[attr-defined]
        torch.backends.fp32_precision = "none"  # type: ignore[attr-defined]
        assert torch.backends.mkldnn.matmul.fp32_precision == "none"  # type: ignore[attr-defined]
        torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
        assert torch.get_float32_matmul_precision() == "medium"
    assert torch.get_float32_matmul_precision() == "highest"


def test_a_gpu_has_other_precisions_only_if_it_need_not_be_deterministic(monkeypatch):
    """Without a GPU, the switches can still be set. A nested run begins and ends as the outer one was."""
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    for deterministic in (True, False):
        with torch_untouched():
            switches.set_torch(torch.device("cuda"), deterministic)
            for _ in range(2):
                assert torch.backends.cuda.matmul.allow_tf32 is torch.backends.cudnn.allow_tf32 is not deterministic
                assert torch.backends.cudnn.benchmark is not deterministic
                assert torch.are_deterministic_algorithms_enabled() is deterministic
                with torch_untouched():
                    switches.set_torch(torch.device("cuda"), not deterministic)
        assert not torch.are_deterministic_algorithms_enabled()
        assert not torch.backends.cuda.matmul.allow_tf32


def test_a_switch_that_torch_refuses_to_change_is_named(monkeypatch):
    def refuse(value: object) -> None:
        raise RuntimeError("flags are frozen")

    stuck = switches.Switch("torch.backends.stuck", lambda: True, refuse, False)
    monkeypatch.setattr(switches, "SWITCHES", [stuck])
    with pytest.raises(raysim.ConfigError, match=r"torch.backends.stuck: found True, allowed: False; torch refuses"):
        raysim.run(TINY, BRIEF, local=True)


def test_what_a_custom_module_sets_when_imported_ends_with_the_import(tmp_path, monkeypatch):
    """Otherwise hosts on Ray, which import it after their start, would compute otherwise than a local run."""
    (tmp_path / "sets_dtype.py").write_text(
        "import torch\nfrom raysim.api import Method\ntorch.set_default_dtype(torch.float64)\nclass M(Method): pass\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    resolve("method", "sets_dtype:M")
    assert torch.get_default_dtype() is torch.float32


def test_a_component_that_was_imported_before_is_found_without_setting_switches(monkeypatch):
    """Every client of every round looks some up, and to set and give back all switches takes as long as a step."""
    first = resolve("method", "er")
    monkeypatch.setattr(switches, "switches_restored", None)
    assert resolve("method", "er") is first


def test_code_that_changes_a_switch_during_a_run_is_refused():
    """On Ray, it would change the switch in its own host alone."""
    said = r"^mine changed torch.set_default_dtype, which applies to the whole process; allowed: to restore it, or"
    with torch_untouched():
        with pytest.raises(raysim.RunError, match=said), guard_globals("mine", "client"):
            torch.set_default_dtype(torch.float64)
        with pytest.raises(raysim.RunError, match=r"torch.backends.mkldnn.matmul"), guard_globals("mine", "client"):
            torch.backends.mkldnn.matmul.fp32_precision = "bf16"  # type: ignore[attr-defined]
        with guard_globals("mine", "client"), torch.no_grad(), torch.autocast("cpu"):
            pass


@pytest.mark.parametrize("when", ["built", "called"])
def test_a_model_that_changes_a_switch_is_refused_at_the_start(when, tmp_path, monkeypatch):
    """It would compute all that follows in another precision, and in a host on Ray only what this host does."""
    (tmp_path / "sets_precision.py").write_text("""
import torch

class Net(torch.nn.Linear):
    def forward(self, x):
        if self.when == "called":
            torch.set_float32_matmul_precision("medium")
        with torch.no_grad(), torch.autocast("cpu"), torch.inference_mode():  # these end with their blocks
            x.sum()
        return super().forward(x.flatten(1))

def net(shape, classes, *, when: str):
    if when == "built":
        torch.set_float32_matmul_precision("medium")
    found = Net(shape[0], classes)
    found.when = when
    return found
""")
    monkeypatch.syspath_prepend(tmp_path)
    said = (
        r"^model.name: net \(.*:12\) changed .*torch.set_float32_matmul_precision, which applies to the whole process"
    )
    with pytest.raises(raysim.ConfigError, match=said):
        raysim.run(TINY, BRIEF | {"model": {"name": "sets_precision:net", "when": when}}, local=True)
    raysim.run(TINY, BRIEF | {"model": {"name": "sets_precision:net", "when": "never"}}, local=True, out=tmp_path / "o")


def test_switching_does_not_import_torchs_compiler():
    """It takes seconds and 80 MB."""
    called = []
    with pytest.MonkeyPatch.context() as patch, torch_untouched():
        patch.setattr(torch, "use_deterministic_algorithms", lambda *values, **names: called.append(values))
        switches.set_torch(torch.device("cpu"), True)
        with torch_untouched():
            pass
    assert not called


def documented_setters() -> set[str]:
    """Return torch's public setters of this process: functions named set_, enable_, ..., and assignable attributes."""
    found = set()
    modules = [torch, torch.autograd, torch.autograd.graph, torch.__future__, torch.serialization]
    backends = [module for name, module in sys.modules.items() if name.startswith("torch.backends")]
    for module in modules + backends:
        inner = vars(module).get("m", module)  # torch wraps modules that have assignable attributes
        for name, value in [*vars(inner).items()]:
            verb = name.partition("_")[0]
            known = verb in ("set", "use") or (module in backends and verb in ("enable", "allow", "preferred"))
            if known and callable(value) and not isinstance(value, types.ModuleType):
                found.add(f"{inner.__name__}.{name}")
        for name, value in [*vars(type(module)).items()]:
            if type(value).__name__ == "ContextProp":
                found.add(f"{inner.__name__}.{name}")
            if hasattr(value, "fp32_precision"):
                found.add(f"{inner.__name__}.{name}.fp32_precision")
        if hasattr(type(vars(module).get("engine")), "__set__"):
            found.add(f"{inner.__name__}.engine")
    return found


def test_every_setter_that_torch_has_is_in_a_list():
    named = {switch.name.partition("(")[0] for switch in SWITCHES} | {*IN_CONTEXT, *LEFT}
    known = {name for name in documented_setters() if not name.endswith((".set_flags", "mkldnn.fp32_precision"))}
    assert len(known) > 40
    assert known <= named
