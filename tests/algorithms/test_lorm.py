"""LoRM: the closed forms by hand, and a run against NumPy."""

import numpy as np
import pytest
import torch
from replay_oracle import stream_of
from test_lora import BASE, LORA, A, B

from raysim.algorithms import lorm
from raysim.algorithms.lorm import LoRM, merge
from raysim.algorithms.parts.grams import pack, pseudo_inverse, shrink, times, unpack
from raysim.engine.compatibility import check_fit, check_methods
from raysim.federation.federation import build_federation
from raysim.models.building import build_model, check_model
from raysim.system.errors import ConfigError

# the diagonal of the Gram matrix of 6 inputs, and half of that of 5
SMALL_RUN = {
    "model": {"name": "mlp", "hidden": [5], "adapters": {"rank": 2, "where": ["*"]}},
    "bytes_up": 4 * (6 + 15),
    "sends_at_end": True,
}

HEAD, BIAS = "2.weight", "2.bias"
ONE_STEP = {"training__batch_size": 12, "training__optimizer": {"lr": 0.3}}


def doubles(value):
    return torch.tensor(value, dtype=torch.float64)


@pytest.mark.parametrize("form", [torch.diag, lambda diagonal: diagonal])
def test_weights_merge_by_their_inputs(form):
    """W_1 = (1 0), W_2 = (0 1), G_1 = diag(1, 3), G_2 = diag(3, 1): W = (1, 1) / 4, and the mean is (1, 1) / 2.
    The matrix of a diagonal and the diagonal alone give the same.
    """
    w, g, start = doubles([[[1, 0]], [[0, 1]]]), doubles([[1, 3], [3, 1]]), doubles([[2, -1]])
    weighted = sum(times(own - start, form(gram)) for own, gram in zip(w, g, strict=True))
    torch.testing.assert_close(merge(start, weighted, form(g.sum(0))), doubles([[0.25, 0.25]]))


def test_b_merges_by_the_inputs_of_a():
    """A = (1 1), B_1 = 1, B_2 = 3, G_1 = I, G_2 = 2 I: A G A^T = 2 and 4, so B = (2 + 12) / 6 = 7/3."""
    a, start = doubles([[1, 1]]), doubles([[0.5]])
    grams = [times(a, k * torch.eye(2, dtype=torch.float64)) @ a.T for k in (1, 2)]
    weighted = sum((b - start) @ gram for b, gram in zip((1, 3), grams, strict=True))
    torch.testing.assert_close(merge(start, weighted, sum(grams)), doubles([[7 / 3]]))


def test_what_no_input_reaches_becomes_zero():
    """G = diag(4, 0): W times the projector on G's range. So does a value that is rounding: 1e-9 in float32."""
    w = doubles([[5, 7]])
    for gram in (doubles([4, 0]), doubles([[4, 0], [0, 0]])):
        torch.testing.assert_close(merge(w, torch.zeros_like(w), gram), doubles([[5, 0]]))
    torch.testing.assert_close(pseudo_inverse(doubles([1, 1e-9]), torch.float32), doubles([1, 0]))
    torch.testing.assert_close(pseudo_inverse(doubles([1, 1e-9]), torch.float64), doubles([1, 1e9]))


def test_grams_are_shrunk_and_packed():
    """alpha 1/2 halves what is off the diagonal. 3 numbers hold a symmetric 2 x 2, 2 a diagonal."""
    gram = shrink(doubles([[1, 4], [4, 9]]), 0.5)
    torch.testing.assert_close(gram, doubles([[1, 2], [2, 9]]))
    vector = pack({"full": gram, "diagonal": doubles([5, 6])})
    assert sorted(vector.tolist()) == [1, 2, 5, 6, 9]
    again = unpack(vector, {"full": 0.5, "diagonal": 0.0}, {"full": 2, "diagonal": 2})
    assert [one.tolist() for one in again.values()] == [[[1, 2], [2, 9]], [5, 6]]


@pytest.fixture
def watched(tiny, simulate, monkeypatch):
    """A function: a run, what each client had trained by round, and the server's parameters before and after."""

    def run(**overrides):
        trained, steps, ends = [], [], []
        of_client, of_server, of_end = LoRM.Client.finish, LoRM.Server.update, LoRM.Server.end_task

        def named(model, vector):
            return {name: value.clone().numpy() for name, value in model.named(vector).items()}

        def finish(self, client, delta):
            trained.append((client.round, client.id, named(client.model, client.model.parameters)))
            return of_client(self, client, delta)

        def update(self, server, delta, reply):
            done = of_server(self, server, delta, reply)
            before, after = server.parameters, server.parameters + done.parameters
            steps.append((named(server.network, before), named(server.network, after)))
            return done

        def end_task(self, server):
            ends.append(named(server.network, server.parameters))
            yield from of_end(self, server)

        monkeypatch.setattr(LoRM.Client, "finish", finish)
        monkeypatch.setattr(LoRM.Server, "update", update)
        monkeypatch.setattr(LoRM.Server, "end_task", end_task)
        config = tiny(**{"model": LORA, **ONE_STEP, **overrides})
        federation = build_federation(config)
        done = simulate(config, federation)
        data = [
            [stream_of(federation, k)[0][s.span(t, t + 1)] for t in range(2)] for k, s in enumerate(federation.streams)
        ]
        return done, trained, steps, ends, data, build_model(config, federation.shape, federation.classes).state_dict()

    return run


def gram(x, alpha):
    """The Gram of rows x, with alpha times what is off the diagonal."""
    full = x.T @ x
    return alpha * full + (1 - alpha) * np.diag(np.diag(full))


@pytest.mark.parametrize("alpha", [0.0, 0.7])
def test_a_run_merges_as_the_paper_says(watched, alpha):
    """Rounds 1 and 3 train B, rounds 2 and 4 A. The layer's inputs are the data, the head's are W x + b of the client.

    s = 1/2. The formulas are those of the paper, with sums over clients of B_k A G_k, A_k G_k and W_k G_k. A client
    arrives with task 2, so that the tasks have unequal numbers of samples.
    """
    late = {"count": 3, "arrive": {"at": [{"round": 3, "clients": [1]}]}}
    keys = {"alpha": alpha, "alpha_head": 0.5}
    run, trained, steps, ends, data, start = watched(clients=late, methods={"lorm": keys})
    assert [len(x) for x in data[1]] == [0, 12]
    w0, bias = start[BASE].numpy(), start["1.base.bias"].numpy()
    for number, (before, after) in enumerate(steps, 1):
        own = [(data[k][(number - 1) // 2], weights) for at, k, weights in trained if at == number]
        grams = [gram(x, alpha) for x, _ in own]
        fixed, moved = (A, B) if number % 2 else (B, A)
        assert all(np.array_equal(w[fixed], before[fixed]) for _, w in own)
        assert all(np.abs(w[moved] - before[moved]).max() > 1e-6 for _, w in own)
        np.testing.assert_array_equal(after[fixed], before[fixed])
        if moved == B:
            a, total = before[A], sum(grams)
            wanted = (
                sum(w[B] @ a @ g for (_, w), g in zip(own, grams, strict=True)) @ a.T @ np.linalg.inv(a @ total @ a.T)
            )
        else:
            wanted = sum(w[A] @ g for (_, w), g in zip(own, grams, strict=True)) @ np.linalg.inv(sum(grams))
        np.testing.assert_allclose(after[moved], wanted, rtol=1e-7, atol=1e-10)
        heads = [gram(x @ (w0 + 0.5 * w[B] @ w[A]).T + bias, 0.5) for x, w in own]
        wanted = sum(w[HEAD] @ g for (_, w), g in zip(own, heads, strict=True)) @ np.linalg.inv(sum(heads))
        np.testing.assert_allclose(after[HEAD], wanted, rtol=1e-7, atol=1e-10)
        np.testing.assert_allclose(after[BIAS], np.mean([w[BIAS] for _, w in own], 0), rtol=1e-12)
    tasks = [sum(gram(data[k][t], alpha) for k in range(3)) for t in range(2)]
    products = sum(0.5 * end[B] @ end[A] @ g for end, g in zip(ends, tasks, strict=True))
    np.testing.assert_allclose(run.state[BASE], w0 + products @ np.linalg.inv(sum(tasks)), rtol=1e-7, atol=1e-10)
    assert not run.state[B].any()


def test_grams_may_be_of_the_mean_of_tasks(watched, monkeypatch):
    """In task 2 the head's inputs are those of W0 + (D_1 + s B A) / 2. The model itself is as it was."""
    seen, real = [], lorm.gram_matrices

    def spy(client, positions, alphas, purpose):
        found = real(client, positions, alphas, purpose)
        seen.append((client.round, client.id, {name: one.clone().numpy() for name, one in found.items()}))
        return found

    monkeypatch.setattr(lorm, "gram_matrices", spy)
    methods = {"lorm": {"gram_at": "averaged", "alpha_head": 1.0}}
    _, trained, _, ends, data, start = watched(methods=methods)
    w0, bias = start[BASE].numpy(), start["1.base.bias"].numpy()
    ((_, k, w),) = (one for one in trained if one[:2] == (3, 1))
    own = next(grams for at, client, grams in seen if (at, client) == (3, 1))
    mean = w0 + 0.5 * (ends[0][B] @ ends[0][A] + w[B] @ w[A]) / 2
    np.testing.assert_allclose(own[HEAD], gram(data[k][1] @ mean.T + bias, 1.0), rtol=1e-9)


def test_with_equal_inputs_it_is_the_mean_in_the_range(tiny, simulate):
    """One client: what it trained is what the server has, as its Gram is invertible (12 samples of 6 numbers)."""
    one = {"model": LORA, "clients__count": 1, "scenario__tasks": 1, "training__rounds_per_task": 1}
    ours = simulate(tiny(**one, methods={"lorm": {"train": "b"}}))
    ffa = simulate(tiny(**one, methods={"ffa_lora": {"merge": "none"}}))
    merged = ffa.state[BASE] + 0.5 * ffa.state[B] @ ffa.state[A]
    torch.testing.assert_close(ours.state[BASE], merged, atol=1e-12, rtol=0)
    torch.testing.assert_close(ours.state[HEAD], ffa.state[HEAD], atol=1e-10, rtol=0)


def test_one_matrix_alone(watched):
    """With train: a, B stays 0, so A has no gradient and only the head is trained."""
    run, _, steps, _, _, start = watched(methods={"lorm": {"train": "a"}})
    assert not any(after[B].any() for _, after in steps)
    torch.testing.assert_close(run.state[BASE], start[BASE])


def test_it_resumes(resumed):
    whole, again = resumed(3, model=LORA, methods={"lorm": {"gram_at": "averaged"}})
    assert whole == again


def test_what_it_refuses(tiny):
    model = {"name": "probes:convolutions", "adapters": {"rank": 1, "where": ["1"]}}
    config = tiny(dataset__shape=[1, 5, 5], model=model, methods={"lorm": {}})
    network = check_model(config, (1, 5, 5), 4)
    with pytest.raises(ConfigError, match=r"methods.lorm: found an adapter of 1, a convolution with groups, allowed:"):
        check_fit(config, network, 4)
    frozen_head = {**LORA, "adapters": {**LORA["adapters"], "head": False}}
    config = tiny(model=frozen_head, methods={"lorm": {}})
    with pytest.raises(ConfigError, match=r"methods.lorm: .*head"):
        check_fit(config, check_model(config, (6,), 4), 4)
    schedule = {"kind": "asynchronous", "concurrency": 2, "buffer_size": 1}
    with pytest.raises(ConfigError, match=r"methods.lorm: .*schedule"):
        check_methods(tiny(model=LORA, methods={"lorm": {}}, schedule=schedule))
