"""With a grid, the head's bits are the same however the data are divided, ordered and asked for."""

from hashlib import sha256

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from raysim.federation.features import cache_features
from raysim.federation.federation import build_federation

GRID = {"grid": 12, "bound": 4.0, "ridge": 0.5, "ridge_relative": False}
METHODS = [{"analytic": GRID}, {"stsa": {**GRID, "train_first": False}}]
LINEAR = {"name": "mlp", "hidden": []}
PARTITIONS = [
    {"kind": "iid"},
    {"kind": "dirichlet", "alpha": 0.1, "min_samples": 0},
    {"kind": "dirichlet", "alpha": 1.0, "min_samples": 0},
    {"kind": "quantity", "alpha": 1.0, "min_samples": 1},
]


@st.composite
def federations(draw):
    """A federation of 72 samples of 4 classes: its partition, clients, tasks, arrivals, drop-outs and schedule."""
    clients, tasks, rounds = draw(st.integers(1, 6)), draw(st.integers(1, 4)), draw(st.integers(1, 3))
    keys = {
        "seed": draw(st.integers(0, 2**20)),
        "clients__count": clients,
        "clients__dropout": draw(st.sampled_from([0.0, 0.5, 0.9])),
        "scenario__kind": "class_incremental",
        "scenario__tasks": tasks,
        "scenario__class_order": draw(st.sampled_from(["natural", "seeded"])),
        "scenario__order": draw(st.sampled_from(["same", "per_client"])),
        "scenario__online": draw(st.booleans()),
        "training__rounds_per_task": rounds,
        "partition": draw(st.sampled_from(PARTITIONS)),
    }
    if draw(st.booleans()) and tasks * rounds > 1 and clients > 1:
        late = {"round": draw(st.integers(2, tasks * rounds)), "clients": [draw(st.integers(1, clients - 1))]}
        keys["clients__arrive"] = {"at": [late]}
    if draw(st.booleans()):
        stale = draw(st.sampled_from([None, 0, 1]))
        keys["schedule"] = {
            "kind": "asynchronous",
            "concurrency": draw(st.integers(1, clients)),
            "buffer_size": draw(st.integers(1, min(3, clients))),
            "max_staleness": stale,
            "speeds": {"kind": "log_normal"},
        }
    else:
        keys["participation"] = {"fraction": draw(st.sampled_from([0.2, 0.5, 1.0]))}
    return keys


def base(**keys):
    data = {"name": "synthetic", "classes": 4, "shape": [5], "train": 72, "test": 8}
    return {"dataset": data, "model": LINEAR, "scenario": {"kind": "class_incremental", "tasks": 1}} | keys


def digest(run):
    (weight,) = (tensor for name, tensor in run.state.items() if name.endswith("weight"))
    return sha256(weight.numpy().tobytes()).hexdigest()


def asked_rows(config, federation):
    """The rows of the training data that some client has been asked for: up to the window that it has at a task's end.

    A client without samples in a window is not asked then, and a last window may be empty.
    """
    rows = []
    for client, stream in enumerate(federation.streams):
        ends = [federation.availability.window(client, row) for row in federation.availability.rows]
        last = max([stream.end(window) for window in ends if window is not None], default=0)
        rows.append(np.concatenate(stream.rows)[:last])
    return np.concatenate(rows)


def integer_sums(federation, rows):
    """G and P of NumPy, in integers: steps of 4 / 2^11, at most 2^11 in size."""
    x, y = federation.dataset.train.x[rows].astype(np.float64), federation.dataset.train.y[rows]
    z = np.clip(np.rint(x / (4 / 2**11)), -(2**11), 2**11).astype(np.int64)
    return z.T @ z, z.T @ np.eye(4, dtype=np.int64)[y]


def check_federation(tiny, simulate, reference, keys):
    """The sums are those of NumPy over what was asked for. If that is all, the head is that of one machine."""
    config = tiny(**base(), **{key: value for key, value in keys.items() if key != "methods"}, methods=keys["methods"])
    federation = build_federation(config)
    rows = asked_rows(config, federation)
    assume(len(rows) > 0)
    run = simulate(config, federation)
    (half,) = run.simulation.exchange.halves.values()
    gram, cross = integer_sums(federation, rows)
    assert half.samples == len(rows)
    assert np.array_equal(half.gram.numpy(), gram[np.triu_indices(5)])
    assert np.array_equal(half.cross.numpy(), cross)
    assert len(rows) < 72 or digest(run) == reference


@pytest.fixture(scope="module")
def reference(tiny, simulate):
    """The head of one client with all data in one task."""
    return digest(simulate(tiny(**base(methods=METHODS[0], clients__count=1, training__rounds_per_task=1))))


LAW = {"deadline": None, "suppress_health_check": list(HealthCheck), "database": None, "derandomize": True}


@settings(max_examples=15, **LAW)
@given(keys=federations(), methods=st.sampled_from(METHODS))
def test_every_federation_has_the_head_of_one_machine(tiny, simulate, reference, keys, methods):
    check_federation(tiny, simulate, reference, keys | {"methods": methods})


@pytest.mark.soak
@settings(max_examples=200, **LAW)
@given(keys=federations(), methods=st.sampled_from(METHODS))
def test_two_hundred_federations_have_the_head_of_one_machine(tiny, simulate, reference, keys, methods):
    check_federation(tiny, simulate, reference, keys | {"methods": methods})


@pytest.mark.parametrize("method", ["analytic", "stsa"])
def test_features_that_are_computed_once_have_one_head(tiny, simulate, tmp_path, method):
    """Of a frozen layer and 20 random features on it, for 1 and 5 clients and other orders of the tasks."""
    model = {"name": "mlp", "hidden": [30], "freeze": ["1.*"], "random_features": 20, "cache": True}
    data = {"name": "synthetic", "classes": 4, "shape": [40], "train": 50, "test": 4, "root": str(tmp_path)}
    keys = {"grid": 20, "bound": 64.0} | ({"train_first": False} if method == "stsa" else {})
    found = set()
    for clients, tasks, order in ((1, 1, "same"), (5, 2, "per_client"), (3, 4, "same")):
        scenario = {"kind": "class_incremental", "tasks": tasks, "order": order}
        more = {"clients__count": clients, "training__rounds_per_task": 1}
        config = tiny(dataset=data, model=model, scenario=scenario, methods={method: keys}, **more)
        run = simulate(config, cache_features(config, build_federation(config)))
        found.add(run.sha256)
    assert len(found) == 1
