"""Runs of data, tasks and clients in time: what is trained on, by whom and when."""

from __future__ import annotations

from bits.run import DATA, Keys, Run, alone, classes, domains

NPZ: Keys = {"dataset": {"name": "npz", "path": "one.npz", "root": DATA}}
DIGITS: Keys = {"dataset": {"name": "digits", "train_samples": 120}}
LISTS: Keys = {"path": ".", "train": "photo_train.txt", "test": "photo_test.txt"}
FED_A_GEM: Keys = alone("fed_a_gem", sample_size=4)
LATE_FED_A_GEM: Keys = alone("fed_a_gem", reference="with_update", sample_size=4)


def folder(path: str, **more: object) -> dict[str, object]:
    """Return a dataset of images that the tool writes."""
    return {"name": "image_folder", "path": path, "size": 6, "seed": 1, "test_fraction": 0.3, **more}


def windows(**more: object) -> Keys:
    """Return the keys of asynchronous boundaries."""
    boundaries = {"asynchronous": {"window": 15, "rounds_per_window": 1, **more}}
    return {**domains(boundaries=boundaries), "training.rounds_per_task": None}


def under(**more: object) -> Keys:
    """Return the keys of an asynchronous schedule; it has no choice of clients per round."""
    return {"schedule": {"kind": "asynchronous", "concurrency": 3, "buffer_size": 2, **more}, "participation": {}}


DATA_AND_TASKS = {
    "digits": Run({**DIGITS, "dataset.normalize": "standard"}),
    "npz, augmentation": Run({**NPZ, **alone("er"), "dataset.augment": ["crop", "flip"], "dataset.train_samples": 60}),
    "npz, der, augmentation": Run({**NPZ, **alone("der"), "dataset.augment": ["flip"]}),
    "digits, scaled": Run({**DIGITS, "dataset.normalize": "standard", "dataset.input_scale": 2.0}),
    "npz, given normalisation": Run({**NPZ, "dataset.normalize": {"mean": [0.4], "std": [0.3]}}),
    "image folder": Run({"dataset": {**folder("photo", classes=["ant", "bee", "cat"]), "root": DATA}}),
    "image folder, from the disk": Run(
        {"dataset": {**folder("photo"), "root": DATA, "load": "disk", "decoded_gib": 0.5}, **alone("er")}
    ),
    "image folder, in memory": Run({"dataset": {**folder("photo"), "root": DATA, "load": "memory"}, **alone("er")}),
    "image folder, transparent": Run({"dataset": {**folder("icons", background="black"), "root": DATA}}),
    "image folder, transparent, grey": Run(
        {"dataset": {**folder("icons", background="white", grey=True), "root": DATA}}
    ),
    "image list": Run({"dataset": {"name": "image_list", "root": DATA, "size": 6, "first_label": 1, **LISTS}}),
    "tiny imagenet": Run({"dataset": {"name": "tiny_imagenet", "root": DATA, "size": 6}, **FED_A_GEM}),
    "image folders as domains": Run(
        {"dataset": {**folder("sketch", grey=True), "root": DATA}, **FED_A_GEM}
        | domains(shift={"domains": [folder("photo"), folder("sketch", grey=True)]})
    ),
    "domains": Run(
        {**NPZ, **domains(shift={"domains": [{"name": "npz", "path": f} for f in ("one.npz", "two.npz")]})}
        | {"partition.per": "run"}
    ),
    "permutation": Run({**domains(3, shift="permutation"), **alone("er")}),
    "synthetic": Run(
        {"dataset": {"name": "synthetic", "classes": 4, "shape": [5], "train": 80, "test": 20, "noise": 2.0, "seed": 3}}
        | domains(shift="permutation")
    ),
    "class-incremental": Run({**classes(3), **alone("er")}),
    "class-incremental, seeded, logits task": Run({**classes(3, class_order="seeded"), "training.logits": "task"}),
    "class-incremental, unequal, top 2": Run({**classes(2, first_task_classes=4), "evaluation.top_k": 2}),
    "class-incremental, listed": Run({**classes(2, classes=[[5, 0], [1, 2, 3, 4]]), **alone("er")}),
    "class-incremental, logits seen": Run({**classes(3), "training.logits": "seen", **alone("der", beta=0.5)}),
    "own order": Run({**classes(3, order="per_client"), **FED_A_GEM}),
    "online": Run({**domains(online=True), **alone("er")}),
    "shards": Run({"partition": {"kind": "shards", "shards_per_client": 3}, **FED_A_GEM}),
    "shards per task": Run({"partition": {"kind": "shards", "per": "task"}, **alone("scaffold")}),
    "pathological": Run({"partition": {"kind": "pathological", "classes_per_client": 3}}),
    "quantity": Run({"partition": {"kind": "quantity", "alpha": 2.0, "min_samples": 2}}),
    "dirichlet": Run({"partition": {"kind": "dirichlet", "alpha": 0.4, "min_samples": 3, "balanced": False}}),
    "dirichlet per task, by samples": Run(
        {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 4, "per": "task"}, **FED_A_GEM}
        | {"aggregation.weights": "samples", "evaluation.per_client": True}
    ),
}

IN_TIME = {
    "asynchronous boundaries": Run({**windows(), **FED_A_GEM}),
    "asynchronous boundaries, repeat": Run(
        {**windows(rounds_per_window=2, on_exhausted="repeat"), **alone("der"), **under()}
    ),
    "custom stream": Run(
        {**windows(stream="bits.own:stream", windows=4), "scenario.kind": "class_incremental", **alone("er")}
    ),
    "jittered": Run({**domains(3, boundaries={"jittered": {"rounds": 1}}), "training.rounds_per_task": 3}),
    "jittered, re_fed": Run(
        {**classes(boundaries={"jittered": {"rounds": 1}}), "training.rounds_per_task": 3, **alone("re_fed", epochs=2)}
    ),
    "fedbuff": Run({**under(speeds={"kind": "log_normal", "sigma": 1.5}), **alone("er")}),
    "fedbuff, told": Run({**under(), **alone("er"), "logging.dispatches": True, "logging.memory": True}),
    "profiled": Run({**alone("er"), "logging.profile": True}),
    "fedbuff, fed_a_gem": Run(
        {**under(speeds={"kind": "pareto", "shape": 1.5}, bandwidth=5000, rate=0.8), **LATE_FED_A_GEM}
    ),
    "fedbuff, max staleness": Run(
        {**under(max_staleness=1, staleness={"kind": "constant"}, speeds={"kind": "pareto"}, buffer_size=1)}
    ),
    "fedbuff, hinge, arrivals": Run(
        {**under(staleness={"kind": "hinge", "slope": 2.0, "after": 1}, buffer_size=1), **LATE_FED_A_GEM}
        | {"clients": {"count": 4, "arrive": {"at": [{"round": 2, "clients": [3]}]}, "dropout": 0.2}}
    ),
    "fedasync": Run(
        under(mixing="models", buffer_size=1, rate=0.6, staleness={"kind": "polynomial", "power": 0.7})
        | {"schedule.speeds": {"kind": "log_normal", "seconds_per_sample": 0.01}}
    ),
    "waiting for stragglers": Run(
        {"schedule": {"speeds": {"kind": "log_normal"}, "bandwidth": 2000}, **alone("scaffold")}
    ),
    "arrivals": Run(
        {"clients": {"count": 6, "arrive": {"first": 2, "per_task": 2}}, **domains(3), **FED_A_GEM}
        | {"participation": {"fraction": 0.6}}
    ),
    "departures and drop-outs": Run(
        {"clients": {"count": 5, "leave": [{"round": 3, "clients": [0, 2]}], "dropout": 0.3}, **alone("scaffold")}
        | {"training.rounds_per_task": 3}
    ),
    "drawn by size": Run(
        {"participation": {"count": 2, "sampler": "by_size"}, "aggregation.weights": "samples", **FED_A_GEM}
        | {"partition": {"kind": "dirichlet", "alpha": 0.5, "min_samples": 4}}
    ),
    "in turn": Run({"participation": {"fraction": 0.5, "sampler": "round_robin"}}),
    "drawn by a custom sampler": Run({"participation": {"count": 2, "sampler": "bits.own:last"}}),
}
