"""torch's and NumPy's switches that apply to a whole process or thread: their values in a run, and which are left.

A notebook, a library or a custom module may have changed a switch. A run in that process would then compute other bits
than the same run on Ray, which starts new processes. So every run, check and evaluation begins with the values below.
At its end, it gives the former values back.
"""

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from raysim.system.errors import ConfigError, RunError

backends: Any = torch.backends  # some of its attributes are newer than the oldest torch that raysim supports
matmul: Any = torch.backends.cuda.matmul
determinism: Any = torch.utils.deterministic  # its attribute is set by a class that type checkers do not follow
REPORTED = "changes what is reported or how fast it is, and no result"
GPU_LIBRARY = "chooses a GPU's library; the default depends on the platform and on torch's variables"


@dataclass(frozen=True)
class Switch:
    """A setting of this process.

    Attributes:
        name: what a user calls or assigns to change it.
        get: returns its value, or None if this torch or this machine does not have it.
        set: changes it.
        wanted: its value in a run on the CPU, which is torch's own default except for the threads.
    """

    name: str
    get: Callable[[], Any]
    set: Callable[[Any], object]
    wanted: Any


def _attribute(path: str, wanted: Any) -> Switch:
    """Return the switch that is an attribute of torch.backends. An older torch may lack it."""
    owner: Any = backends
    *middle, last = path.split(".")
    for part in middle:
        owner = getattr(owner, part)
    return Switch(
        f"torch.backends.{path}", lambda: getattr(owner, last, None), lambda value: setattr(owner, last, value), wanted
    )


def _reduction(name: str) -> Switch:
    """Return a switch of cuBLAS that is a pair in newer versions of torch: reduced precision, and split sums."""
    full = f"allow_{name}_reduced_precision_reduction"
    split = f"{full}_split_k"

    def change(value: tuple[bool, bool]) -> None:
        setattr(matmul, full, value if hasattr(matmul, split) else value[0])

    return Switch(
        f"torch.backends.cuda.matmul.{full}",
        lambda: (getattr(matmul, full), getattr(matmul, split, True)),
        change,
        (True, True),
    )


def _sdp(name: str, get: str, change: str, wanted: bool = True) -> Switch:
    functions: Any = torch.backends.cuda
    return Switch(f"torch.backends.cuda.{name}", getattr(functions, get), getattr(functions, change), wanted)


def _allows_tf32() -> bool:
    """Return torch.backends.cudnn.allow_tf32. torch refuses to read it if it contradicts the newer switches.

    These are read first, and then allow TF32. So a contradiction means that it is off.
    """
    try:
        return bool(backends.cudnn.allow_tf32)
    except RuntimeError:
        return False


def _nnpack(enabled: bool | None = None) -> bool:
    """Return whether NNPACK is on, for which torch has no function. Switch it on or off, if asked."""
    (before,) = torch.backends.nnpack.set_flags(True)
    torch.backends.nnpack.set_flags(before if enabled is None else enabled)
    return bool(before)


def _set_deterministic(value: tuple[bool, bool]) -> None:
    # the call imports torch's compiler: seconds and 80 MB. So it is made only if the value differs
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _flushes_denormals() -> bool:
    return sys.float_info.min / 2 == 0.0  # torch has no function for it; the processor's flag holds for Python, too


def _set_flush_denormals(value: bool) -> None:
    torch.set_flush_denormal(value)


def _autocasts(device: str) -> Sequence[Switch]:
    half = torch.bfloat16 if device == "cpu" else torch.float16
    return (
        Switch(
            f"torch.set_autocast_enabled({device})",
            lambda: torch.is_autocast_enabled(device),
            lambda value: torch.set_autocast_enabled(device, value),
            False,
        ),
        Switch(
            f"torch.set_autocast_dtype({device})",
            lambda: torch.get_autocast_dtype(device),
            lambda value: torch.set_autocast_dtype(device, value),
            half,
        ),
    )


has_path_search = bool(backends.opt_einsum.is_available())
SWITCHES: Sequence[Switch] = (
    # Precisions of float32, the general before the particular: a particular one that is "none" takes the general one's
    # value. So a particular one shows its own value only once the general ones are "none".
    _attribute("fp32_precision", "none"),
    _attribute("cudnn.fp32_precision", "none"),
    Switch(  # to assign it would change torch.backends.fp32_precision instead (torch 2.9 to 2.14)
        "torch.backends.mkldnn.set_flags(_fp32_precision)",
        lambda: backends.mkldnn.fp32_precision,
        lambda value: backends.mkldnn.set_flags(_fp32_precision=value),
        "none",
    ),
    _attribute("cuda.matmul.fp32_precision", "none"),
    _attribute("mkldnn.matmul.fp32_precision", "none"),
    _attribute("mkldnn.conv.fp32_precision", "none"),
    _attribute("mkldnn.rnn.fp32_precision", "none"),
    _attribute("cudnn.conv.fp32_precision", "tf32"),
    _attribute("cudnn.rnn.fp32_precision", "tf32"),
    Switch(
        "torch.backends.cudnn.allow_tf32",
        _allows_tf32,
        lambda value: setattr(backends.cudnn, "allow_tf32", value),
        True,
    ),
    Switch(
        "torch.set_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
        "highest",
    ),
    # Which kernels compute, and how
    Switch("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads, 1),
    Switch("torch.set_flush_denormal", _flushes_denormals, _set_flush_denormals, False),
    Switch(
        "torch.use_deterministic_algorithms",
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        _set_deterministic,
        (False, False),
    ),
    Switch(
        "torch.utils.deterministic.fill_uninitialized_memory",
        lambda: determinism.fill_uninitialized_memory,
        lambda value: setattr(determinism, "fill_uninitialized_memory", value),
        True,
    ),
    _attribute("mkldnn.enabled", True),
    _attribute("mkldnn.deterministic", False),
    _attribute("mkldnn.allow_tf32", False),
    Switch("torch.backends.nnpack.set_flags", _nnpack, _nnpack, True),
    _attribute("opt_einsum.enabled", has_path_search),
    _attribute("opt_einsum.strategy", "auto" if has_path_search else None),
    Switch(
        "torch.backends.mha.set_fastpath_enabled",
        torch.backends.mha.get_fastpath_enabled,
        torch.backends.mha.set_fastpath_enabled,
        True,
    ),
    _sdp("enable_flash_sdp", "flash_sdp_enabled", "enable_flash_sdp"),
    _sdp("enable_mem_efficient_sdp", "mem_efficient_sdp_enabled", "enable_mem_efficient_sdp"),
    _sdp("enable_math_sdp", "math_sdp_enabled", "enable_math_sdp"),
    _sdp("enable_cudnn_sdp", "cudnn_sdp_enabled", "enable_cudnn_sdp"),
    _sdp(
        "allow_fp16_bf16_reduction_math_sdp",
        "fp16_bf16_reduction_math_sdp_allowed",
        "allow_fp16_bf16_reduction_math_sdp",
        False,
    ),
    _attribute("cudnn.enabled", True),
    _attribute("cudnn.deterministic", False),
    _attribute("cudnn.benchmark", False),
    _attribute("cudnn.benchmark_limit", 10),
    _attribute("cudnn.depthwise_kernel", "auto"),
    _reduction("fp16"),
    _reduction("bf16"),
    _attribute("cuda.matmul.allow_fp16_accumulation", False),
    _attribute("cuda.matmul.prefer_cublaslt_grouped_gemm", False),
    Switch(
        "torch.backends.cuda.preferred_linalg_library",
        lambda: backends.cuda.preferred_linalg_library().name.lower(),
        torch.backends.cuda.preferred_linalg_library,
        "default",
    ),
    _attribute("miopen.immediate", False),
    # What a tensor is if the code does not say it, and what is recorded for gradients
    Switch("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype, torch.float32),
    Switch("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled, True),
    *_autocasts("cpu"),
    *_autocasts("cuda"),
    Switch("torch.set_autocast_cache_enabled", torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled, True),
    Switch(
        "torch.__future__.set_overwrite_module_params_on_conversion",
        torch.__future__.get_overwrite_module_params_on_conversion,
        torch.__future__.set_overwrite_module_params_on_conversion,
        False,
    ),
    Switch(
        "torch.__future__.set_swap_module_params_on_conversion",
        torch.__future__.get_swap_module_params_on_conversion,
        torch.__future__.set_swap_module_params_on_conversion,
        False,
    ),
    # Files: a shared mapping of weights would write into the user's file
    Switch(
        "torch.serialization.set_default_mmap_options",
        torch.serialization.get_default_mmap_options,
        torch.serialization.set_default_mmap_options,
        2,  # mmap.MAP_PRIVATE
    ),
    Switch(
        "torch.serialization.set_default_load_endianness",
        torch.serialization.get_default_load_endianness,
        torch.serialization.set_default_load_endianness,
        None,
    ),
    Switch(
        "torch.serialization.set_crc32_options",
        torch.serialization.get_crc32_options,
        torch.serialization.set_crc32_options,
        True,
    ),
)
IN_CONTEXT = (
    "torch.set_default_device",
    "torch.inference_mode",
    "torch.autograd.set_multithreading_enabled",
    "numpy.seterr",
)
"""Switches that `switches_restored` sets by a context of their own."""
LEFT = {
    "torch.set_default_tensor_type": "the default dtype and the default device, which are in the list",
    "torch.set_deterministic_debug_mode": "the same state as torch.use_deterministic_algorithms",
    "torch.set_anomaly_enabled": "finds where a NaN begins, for which a user debugs a local run; changes no result",
    "torch.autograd.set_detect_anomaly": "the same state as torch.set_anomaly_enabled",
    "torch.autograd.set_grad_enabled": "the same state as torch.set_grad_enabled",
    "torch.set_num_interop_threads": "can be set once; no operation of one thread of a run uses these threads",
    "torch.set_rng_state": "random generators are owned by raysim.system.seeding",
    "torch.set_warn_always": REPORTED,
    "torch.set_printoptions": REPORTED,
    "torch.set_autocast_cpu_enabled": "the same state as torch.set_autocast_enabled",
    "torch.set_autocast_cpu_dtype": "the same state as torch.set_autocast_dtype",
    "torch.set_autocast_gpu_dtype": "the same state as torch.set_autocast_dtype",
    "torch.set_autocast_ipu_enabled": "another kind of device",
    "torch.set_autocast_ipu_dtype": "another kind of device",
    "torch.set_autocast_xla_enabled": "another kind of device",
    "torch.set_autocast_xla_dtype": "another kind of device",
    "torch.autograd.graph.set_warn_on_accumulate_grad_stream_mismatch": REPORTED,
    "torch.set_vital": REPORTED,
    "torch.autograd.graph.set_override_stale_capture_stream": "for captured CUDA graphs, which raysim does not use",
    "torch.backends.cuda.preferred_blas_library": GPU_LIBRARY,
    "torch.backends.cuda.preferred_rocm_fa_library": GPU_LIBRARY,
    "torch.backends.cuda.matmul.allow_tf32": "the same state as the precisions of float32",
    "torch.backends.quantized.engine": "chooses the library of quantized layers, which have no gradients",
}
"""Setters that torch documents and that raysim leaves alone, with the reason. A test finds setters in neither list."""


@contextmanager
def switches_restored() -> Iterator[None]:
    """Set all switches for a run on the CPU. At the end, give back the values that were found.

    Raises:
        ConfigError: torch refuses to change a switch.
    """
    with ExitStack() as contexts:
        contexts.enter_context(np.errstate(divide="warn", over="warn", under="ignore", invalid="warn"))
        if torch.is_inference_mode_enabled():
            contexts.enter_context(torch.inference_mode(False))
        contexts.enter_context(torch.autograd.set_multithreading_enabled(True))
        if _find_default_device() != "cpu":
            contexts.enter_context(torch.device("cpu"))
        found = _establish()
        try:
            yield
        finally:
            _establish()  # so that every switch can be read again, see SWITCHES
            for switch, before in reversed(found):
                if switch.get() != before:
                    switch.set(before)


def _find_default_device() -> str:
    """Return the kind of device on which torch makes tensors if none is given."""
    try:
        return torch.get_default_device().type
    except AttributeError:  # torch 2.9 after set_default_device(None), which makes it the CPU
        return "cpu"


def set_torch(device: torch.device, deterministic: bool) -> None:
    """Set all switches for computations on this device: on a GPU, deterministic algorithms if requested.

    Raises:
        ConfigError: torch refuses to change a switch.
    """
    _establish()
    if device.type == "cuda":
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts; for deterministic products
        if deterministic:
            _set_deterministic((True, False))
        matmul.allow_tf32 = not deterministic
        backends.cudnn.allow_tf32 = not deterministic
        backends.cudnn.benchmark = not deterministic


@contextmanager
def guard_switches(who: str, error: type[ConfigError | RunError] = RunError) -> Iterator[None]:
    """Refuse code that changes a switch: in a run of one process, it would change it for all other code.

    Args:
        who: the name of the code, for the message.
        error: the error to raise.
    """
    before = read_switches()
    yield
    changed = [name for name, value in read_switches().items() if value != before[name]]
    if changed:
        way = "allowed: to restore it, or what torch offers for single tensors and blocks, such as dtype="
        raise error(f"{who} changed {' and '.join(changed)}, which applies to the whole process; {way}")


def read_switches() -> Mapping[str, Any]:
    """Return the values of all switches by name; None for one that cannot be read, since others contradict it."""
    return {switch.name: _read(switch) for switch in SWITCHES}


def _read(switch: Switch) -> Any:
    try:  # not contextlib.suppress: every order of a run reads all switches
        return switch.get()
    except RuntimeError:
        return None


def _establish() -> Sequence[tuple[Switch, Any]]:
    """Set all switches, and return those that exist here with the values that they had."""
    found = []
    for switch in SWITCHES:
        before = switch.get()
        if before is None and switch.wanted is not None:
            continue  # not in this torch, or not on this machine
        found.append((switch, before))
        _change(switch, before)
    for switch, _ in found:  # torch.set_float32_matmul_precision has changed newer switches
        _change(switch, switch.get())
    return found


def _change(switch: Switch, now: Any) -> None:
    if now != switch.wanted:
        try:
            switch.set(switch.wanted)
        except (RuntimeError, ValueError) as error:
            problem = f"torch refuses to change it ({error})"
            raise ConfigError(f"{switch.name}: found {now}, allowed: {switch.wanted}; {problem}") from error
