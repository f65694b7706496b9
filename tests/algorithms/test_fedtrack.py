"""FedTrack is C-FLAG without its memory: the same bits, and the bytes of C-FLAG's first task for ever."""

import numpy as np
import pytest

from raysim.engine.compatibility import check_methods
from raysim.system.errors import ConfigError

SOFTMAX = {"name": "probes:softmax"}


@pytest.fixture
def run_of(tiny, simulate):
    """A function: the run of a method with knobs, 3 clients of unequal size, 2 tasks."""

    def run(methods, **overrides):
        partition = {"kind": "dirichlet", "alpha": 0.5, "min_samples": 3, "balanced": False}
        return simulate(tiny(methods=methods, partition=partition, training__local_epochs=2, **overrides))

    return run


@pytest.mark.parametrize(
    "model", [SOFTMAX, {"name": "mlp", "hidden": [5], "dropout": 0.4}, {"name": "mlp", "batch_norm": True}]
)
@pytest.mark.parametrize("order", ["random", "cyclic", "reshuffled"])
def test_it_is_c_flag_with_alpha_0_and_fixed_rates_bit_for_bit(run_of, model, order):
    """C-FLAG's oracle 14. C-FLAG still exchanges F, and adds 0 F; with alpha > 0 the second task moves other bits."""
    fedtrack = run_of({"fedtrack": {"order": order}}, model=model)
    c_flag = run_of({"c_flag": {"order": order, "alpha": 0.0, "adaptive": "off"}}, model=model)
    assert fedtrack.sha256 == c_flag.sha256
    assert [r.loss for r in fedtrack.rounds] == [r.loss for r in c_flag.rounds]
    assert run_of({"c_flag": {"order": order, "alpha": 0.01, "adaptive": "off"}}, model=model).sha256 != c_flag.sha256


@pytest.mark.parametrize("knobs", [{"beta": 0.03}, {"table": "keep"}])
def test_its_knobs_are_c_flags(run_of, knobs):
    c_flag = {"c_flag": {**knobs, "alpha": 0.0, "adaptive": "off"}}
    assert run_of({"fedtrack": knobs}).sha256 == run_of(c_flag).sha256


def test_the_bytes_of_a_round(run_of):
    """P = 4 * 6 + 4 = 28 float64, 224 bytes: model and G down, G_i and Delta_i up, in both tasks; and no memory."""
    run = run_of({"fedtrack": {}}, model=SOFTMAX)
    assert [(r.bytes_up, r.bytes_down) for r in run.rounds] == [(3 * 2 * 224, 3 * 2 * 224)] * 4
    assert all(client.memory is None for client in run.simulation.runner.host.clients.values())
    assert all(r.records == {} for r in run.rounds)


def endless(client, start):
    """A custom stream."""
    while True:
        yield np.zeros(6, np.float32), 1


def test_a_custom_stream_may_have_several_rows_of_the_accuracy_matrix(tiny, simulate):
    """Its samples are of no task. With 2 tasks the matrix has a row after 2 rounds and one after all 3."""
    windows = {"window": 4, "windows": 3, "rounds_per_window": 1, "stream": "test_fedtrack:endless"}
    scenario = {"kind": "class_incremental", "tasks": 2, "boundaries": {"asynchronous": windows}}
    run = simulate(tiny(methods={"fedtrack": {}}, scenario=scenario, training={"batch_size": 4}))
    assert [r.task_done for r in run.rounds] == [False, True, True]


def test_beside_a_method_with_a_memory_it_does_not_look_into_it(run_of, tiny):
    """SPECIAL works at the server and goes with it; a method inside the local loop does not."""
    assert run_of({"fedtrack": {}, "special": {}}).sha256 != run_of({"fedtrack": {}}).sha256
    with pytest.raises(ConfigError, match="changes the local loop"):
        check_methods(tiny(methods={"fedtrack": {}, "er": {}}))


@pytest.mark.parametrize(
    ("training", "said"),
    [
        ({"training__clip_norm": 1.0}, "training.clip_norm: found 1.0, allowed with fedtrack"),
        ({"training__optimizer": {"name": "adam"}}, "methods.fedtrack: needs plain SGD"),
    ],
)
def test_what_cannot_work_is_refused_at_start(tiny, training, said):
    with pytest.raises(ConfigError, match=said):
        check_methods(tiny(methods={"fedtrack": {}}, **training))


def test_any_learning_rate_will_do(tiny):
    """Nothing adapts, so 1 - L alpha > 0 is not asked for."""
    check_methods(tiny(methods={"fedtrack": {}}, training__optimizer={"lr": 3.0}))
