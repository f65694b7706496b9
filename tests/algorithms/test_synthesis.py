"""What TARGET and LANDER share (raysim/algorithms/parts/synthesis.py), against numbers derived by hand and NumPy."""

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from raysim.algorithms.parts.image_sizes import UPSAMPLINGS, first_grid
from raysim.algorithms.parts.synthesis import (
    Best,
    ImageDecoder,
    StatisticsMatch,
    adversarial_loss,
    as_bytes,
    crop_and_flip,
    first_by_name,
    redraw,
    shuffled_batches,
)
from raysim.api import BatchStatistics
from raysim.data.transforms import apply_augmentation


def doubles(*rows):
    return torch.tensor(rows, dtype=torch.float64)


def layer(mean, variance, running_mean, running_variance):
    """A layer's statistics; the batch's are leaves of the graph."""
    batch = [doubles(*each).requires_grad_() for each in (mean, variance)]
    return BatchStatistics(*batch, doubles(*running_mean), doubles(*running_variance))


def test_statistics_by_hand():
    """One channel, batch mean 1 and variance 4, running 0 and 1: ||0 - 1|| + ||1 - 4|| = 1 + 3.

    A second layer of two channels, whose means differ by (3, 4) and variances by 0: 5. Norms are not squared.
    """
    one = layer([1.0], [4.0], [0.0], [1.0])
    assert StatisticsMatch().loss([one]).item() == 4
    two = layer([3.0, 4.0], [2.0, 2.0], [0.0, 0.0], [2.0, 2.0])
    assert StatisticsMatch().loss([one, two]).item() == 9


def test_later_calls_are_compared_with_the_running_mean():
    """Call 1 ends with mean 1. In call 2 the batch has mean 2: .9 + .2 = 1.1 against 0; the gradient is a tenth.

    Only the last step of a call counts: mean 2, of two steps with means 7 and 2. Call 3: .9 1.1 + .1 3 = 1.29.
    """
    match, still = StatisticsMatch(), ([1.0], [0.0], [1.0])
    assert match.loss([layer([1.0], *still)]).item() == 1
    match.end_call()
    match.loss([layer([7.0], *still)])
    second = layer([2.0], *still)
    loss = match.loss([second])
    assert loss.item() == pytest.approx(1.1, rel=1e-15)
    loss.backward()
    assert second.mean.grad.item() == pytest.approx(0.1, rel=1e-12)
    match.end_call()
    assert match.loss([layer([3.0], *still)]).item() == pytest.approx(1.29, rel=1e-15)


def test_images_at_the_statistics_have_no_loss_and_a_finite_gradient():
    same = layer([1.0, 2.0], [3.0, 4.0], [1.0, 2.0], [3.0, 4.0])
    loss = StatisticsMatch().loss([same])
    loss.backward()
    assert loss.item() == 0
    assert not same.mean.grad.any()


def test_the_adversarial_term_by_hand():
    """Teacher (.7, .3), student (.6, .4): KL(T || S) = .7 ln(7/6) + .3 ln(3/4) = .021601; the other way .022582.

    A row in which they differ counts as 0, in a mean over both rows.
    """
    teacher, student = doubles([0.7, 0.3], [0.7, 0.3]).log() + 5, doubles([0.6, 0.4], [0.4, 0.6]).log()
    divergence = 0.7 * math.log(7 / 6) + 0.3 * math.log(3 / 4)
    assert divergence == pytest.approx(0.021601, abs=5e-7)
    assert adversarial_loss(teacher[:1], student[:1]).item() == pytest.approx(-divergence, rel=1e-12)
    assert adversarial_loss(teacher, student).item() == pytest.approx(-divergence / 2, rel=1e-12)
    assert adversarial_loss(student[:1], teacher[:1]).item() == pytest.approx(-0.022582, abs=5e-7)


def test_values_are_truncated_to_bytes():
    """255 / 2 = 127.5 becomes 127."""
    images = torch.tensor([0, 0.5, 1, 0.999]).view(1, 1, 2, 2)
    assert as_bytes(images).flatten().tolist() == [0, 127, 255, 254]


def test_the_earlier_of_equal_losses_is_kept():
    best = Best()
    for loss, value in ((3.0, 1.0), (2.0, 2.0), (2.0, 3.0), (2.5, 4.0)):
        best.offer(torch.tensor(loss), torch.full((1, 1, 2, 2), value))
    assert best.images.unique().tolist() == [2.0]


@pytest.mark.parametrize("size", UPSAMPLINGS)
@pytest.mark.parametrize("channels", [1, 3])
def test_a_decoder_makes_images_of_every_size(size, channels):
    images = ImageDecoder(5, channels, *first_grid(size, size), width=4)(torch.randn(2, 5))
    assert images.shape == (2, channels, size, size)
    assert ((images > 0) & (images < 1)).all()


def test_the_published_decoder_has_2_33_million_weights():
    """256 x 8192 + 8192; BatchNorm 2 x 128; 128 x 128 x 9 and 2 x 128; 128 x 64 x 9 and 2 x 64; 64 x 3 x 9 + 3."""
    decoder = ImageDecoder(256, 3, *first_grid(32, 32, 2))
    wanted = 2_105_344 + 256 + 147_456 + 256 + 73_728 + 128 + 1_731
    assert sum(p.numel() for p in decoder.parameters()) == wanted == 2_328_899


def test_crops_and_flips_are_those_of_the_dataset(quiet_torch):
    """Every image is one of the 81 x 2 that the dataset's augmentation makes; not all alike; the gradient passes."""
    torch.manual_seed(0)
    image = torch.rand(1, 1, 8, 8)
    allowed = torch.tensor([*itertools.product(range(-4, 5), range(-4, 5), (0, 1))])
    made = {one.numpy().tobytes() for one in apply_augmentation(image.expand(162, -1, -1, -1), allowed)}
    images = image.expand(64, -1, -1, -1).clone().requires_grad_()
    shown = crop_and_flip(images, ["crop", "flip"])
    found = {one.detach().numpy().tobytes() for one in shown}
    assert found <= made
    assert len(found) > 20
    shown.sum().backward()
    assert images.grad.any()


def test_without_augmentation_nothing_is_drawn(quiet_torch):
    images, before = torch.rand(2, 1, 8, 8), torch.get_rng_state()
    assert crop_and_flip(images, ["probes:own"]) is images
    assert torch.equal(torch.get_rng_state(), before)


def test_files_are_sorted_as_text():
    """Calls 0 to 11 of two images: 0-0, 0-1, 1-0, 1-1, 10-0, 10-1, 11-0, 11-1, 2-0, ... Image 10-0 is number 20."""
    assert first_by_name(12, 2, 9).tolist() == [0, 1, 2, 3, 20, 21, 22, 23, 4]
    assert first_by_name(1, 12, 4).tolist() == [0, 1, 10, 11]
    assert sorted(first_by_name(3, 4, 100).tolist()) == list(range(12))


def test_batches_go_through_all_images_again_and_again():
    """7 in batches of 3: 3, 3, and a rest of one, which is left out. 8: 3, 3, 2."""
    drawn = itertools.islice(shuffled_batches(7, 3, torch.randperm), 4)
    assert [len(part) for part in drawn] == [3] * 4
    passes = list(itertools.islice(shuffled_batches(8, 3, torch.randperm), 6))
    for turn in (passes[:3], passes[3:]):
        assert torch.cat(turn).sort().values.tolist() == list(range(8))
    assert [len(part) for part in passes] == [3, 3, 2] * 2


def test_a_students_weights_are_drawn_as_in_the_code(quiet_torch):
    """Xavier normal: variance 2 / (inputs + outputs), 9 weights to each of a convolution's; biases of variance 1.

    BatchNorm's weights are near 1. Its statistics stay those of the teacher.
    """
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(300, 100), nn.Conv2d(40, 60, 3), nn.BatchNorm2d(2000), nn.BatchNorm1d(3))
    module[2].running_mean.fill_(7.0)
    module[2].bias.data.fill_(7.0)
    redraw(module)
    np.testing.assert_allclose(module[0].weight.var().item(), 2 / 400, rtol=0.05)
    np.testing.assert_allclose(module[1].weight.var().item(), 2 / (100 * 9), rtol=0.05)
    np.testing.assert_allclose(module[0].bias.std().item(), 1, rtol=0.3)
    np.testing.assert_allclose([module[2].weight.mean().item(), module[2].weight.std().item()], [1, 0.02], rtol=0.1)
    assert not module[2].bias.any()
    assert module[2].running_mean.unique().tolist() == [7.0]
