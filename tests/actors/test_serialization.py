"""What actors send each other arrives with the bits that it had, in memory of its own; without a cluster."""

import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from raysim.actors import serialization
from raysim.api.messages import Broadcast
from raysim.engine.exact_sum import WIDE, ExactSum
from raysim.engine.orders import Order, RoundInfo, Train
from raysim.engine.replies import Reply
from raysim.models.flat import Weights

SMALL, BIG = (
    5,
    serialization.LARGE,
)  # values; of one byte and more each, so that BIG and a few are beyond what travels by value
DTYPES = [
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
]


def over_ray(message: Any) -> Any:
    """What becomes of a message on its way: bytes are bytes, arrays are read only, as in the object store."""
    if isinstance(message, serialization.Large):
        arrays = [np.frombuffer(array.tobytes(), np.uint8) for array in message.arrays]
        assert not any(array.flags.writeable for array in arrays)
        return serialization.Large(bytes(message.packed), arrays)
    assert isinstance(message, bytes)
    return bytes(message)


def sent(value: Any) -> Any:
    return serialization.unpack(over_ray(serialization.pack(value)))


def bits(tensor: Tensor) -> bytes:
    return tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("count", [SMALL, BIG + 3])
def test_tensors_of_every_dtype_keep_their_bits_and_can_be_written(dtype: torch.dtype, count: int) -> None:
    raw = torch.randint(0, 2 if dtype is torch.bool else 256, (count * dtype.itemsize,), dtype=torch.uint8)
    tensor = raw.view(dtype)  # any bits: NaN with a payload, -0.0, subnormal numbers
    message = over_ray(serialization.pack({"a": [tensor]}))
    arrived = serialization.unpack(message)["a"][0]
    assert (arrived.dtype, arrived.shape) == (dtype, tensor.shape)
    assert bits(arrived) == raw.numpy().tobytes()
    arrived.zero_()
    assert bits(arrived) == bytes(len(raw))
    assert bits(tensor) == bits(serialization.unpack(message)["a"][0]) == raw.numpy().tobytes()  # not what others see


@pytest.mark.parametrize(
    "tensor",
    [
        *(torch.zeros(0), torch.zeros(2, 0, 3, dtype=torch.int64), torch.tensor(3.5), torch.tensor(1e-45)),
        *(torch.arange(12.0).view(3, 4).t(), torch.arange(10)[2:9:3], torch.ones(3).expand(2, 3)),
        *(torch.nn.Parameter(torch.ones(2)).detach(), torch.ones(2, requires_grad=True)),
        torch.arange(2.0 * BIG).view(2, BIG).t(),
    ],
    ids=lambda t: f"{tuple(t.shape)}, strides {t.stride()}",
)
def test_views_and_empty_tensors_arrive_as_what_they_show(tensor: Tensor) -> None:
    arrived = sent(tensor)
    assert arrived.dtype == tensor.dtype
    assert arrived.shape == tensor.shape
    assert torch.equal(arrived, tensor)
    assert not arrived.requires_grad
    arrived += 1
    assert torch.equal(arrived, tensor + 1)


def test_only_what_a_view_shows_is_sent() -> None:
    whole = torch.zeros(10 * BIG)
    assert len(serialization.pack(whole[:3])) < 300


def test_small_values_are_bytes_and_large_arrays_are_not_copied() -> None:
    small, large = torch.arange(7.0), torch.arange(float(BIG))
    assert isinstance(serialization.pack([small, {"x": np.arange(3)}, "text", None]), bytes)
    packed = serialization.pack([small, large, np.arange(2 * BIG)])
    assert isinstance(packed, serialization.Large)
    assert len(packed.packed) < 1000
    assert [array.nbytes for array in packed.arrays] == [4 * BIG, 16 * BIG]
    assert packed.arrays[0].ctypes.data == large.data_ptr()


def test_many_small_arrays_are_large_together() -> None:
    parts = [torch.full((serialization.LARGE // 8,), n, dtype=torch.uint8) for n in range(20)]  # 8 of them are LARGE
    packed = serialization.pack(parts)
    assert len(packed.arrays) == 12
    assert all(torch.equal(a, b) for a, b in zip(sent(parts), parts, strict=True))


def test_what_pickle_refuses_is_left_to_ray() -> None:
    def function(x: int) -> int:
        return x + 1

    assert serialization.pack(function) is function
    assert serialization.unpack(function) is function


def test_one_tensor_that_is_sent_twice_arrives_as_one() -> None:
    tensor = torch.arange(3.0)
    first, second = sent([tensor, tensor])
    assert first is second


@pytest.mark.parametrize("size", [SMALL, BIG])
def test_a_call_arrives_with_its_mail_and_posts(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """References come as further arguments, which Ray replaces by what they refer to."""
    put: list[Any] = []

    def reference(value: Any) -> Any:
        put.append(value)
        return f"reference {len(put) - 1}"

    monkeypatch.setattr(serialization.ray, "put", reference)
    order = Order(Train(), (1, 2), {1: 0.5, 2: 0.5}, 2, RoundInfo(1, 0, 0.1), {2: 1}, 7, 0.25)
    weights = Weights(torch.randn(size), torch.zeros(0), torch.arange(2))
    broadcasts = [Broadcast("model", 4, weights), Broadcast("der.teacher", 1, {"logits": torch.randn(3)})]
    stored = [
        Broadcast(broadcast.name, broadcast.version, serialization.store(broadcast.value)) for broadcast in broadcasts
    ]
    message, *references = serialization.seal(order, serialization.store({"er": torch.ones(size)}), stored)
    assert len(references) == len(put) == (0 if size == SMALL else 2)
    assert isinstance(message, bytes)
    asked, message, arrived = serialization.unseal(
        message, [over_ray(put[int(name.split()[1])]) for name in references]
    )
    assert asked == order
    assert torch.equal(message["er"], torch.ones(size))
    assert [(broadcast.name, broadcast.version) for broadcast in arrived] == [("model", 4), ("der.teacher", 1)]
    assert torch.equal(arrived[0].value.parameters, weights.parameters)
    assert torch.equal(arrived[0].value.integers, weights.integers)
    assert torch.equal(arrived[1].value["logits"], broadcasts[1].value["logits"])


def test_a_reply_arrives_whole() -> None:
    reply = Reply(2, steps=3, bytes_up={0: 8}, integers=(0, torch.arange(2)))
    reply.sums = {"parameters": ExactSum(WIDE), "lone": ExactSum(WIDE)}
    reply.sums["parameters"].add(torch.tensor([0.1, -1e7 / 7]), 0.5)
    reply.sums["lone"].hold(torch.tensor([0.1, -1e7 / 7]), 0.25)
    reply.records = {"loss": {0: 0.1}}
    arrived = sent(reply)
    total = arrived.sums["parameters"]
    assert (total.grid, total.weight) == (WIDE, 2**61)
    assert torch.equal(total.limbs, reply.sums["parameters"].limbs)
    assert torch.equal(arrived.sums["lone"].single[0], reply.sums["lone"].single[0])
    assert arrived.sums["lone"].weight == 2**60
    assert (arrived.cohort_size, arrived.steps, arrived.bytes_up) == (2, 3, {0: 8})
    assert arrived.records == {"loss": {0: 0.1}}
    assert pickle.loads(serialization.pack(arrived)).integers[0] == 0
