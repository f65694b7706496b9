"""Runs with other data and targets than images with one label, and with encoded updates."""

from __future__ import annotations

from bits.run import DATA, Keys, Run, alone, by_column, classes, domains

TEXTS: Keys = {
    "dataset": {"name": "text_jsonl", "root": DATA, "path": "train.jsonl", "test": "test.jsonl", "text": "said"}
    | {"label": "topic", "token": r"\w+", "length": 6, "vocabulary": 12}
}
TRANSFORMER: Keys = {
    "model": {"name": "transformer", "width": 8, "layers": 1, "heads": 2, "feedforward": 16, "dropout": 0.1}
}
NUMBERS: Keys = {
    "dataset": {"name": "friedman", "train": 96, "test": 24, "third": [0.0, 0.5], "noise": 0.5, "seed": 1},
    "objective": "regression",
    **domains(shift="permutation"),
}
WRITERS: Keys = {"name": "synthetic", "classes": 4, "shape": [5], "train": 80, "test": 20, "clients": 6}
LISTED: Keys = {"name": "image_list", "root": DATA, "size": 6, "first_label": 1, "path": ".", "client_ids": True}
LISTS: Keys = {"train": "whose_train.txt", "test": "whose_test.txt"}
DATED: Keys = {"train": "dated_train.txt", "test": "dated_test.txt", "columns": ["day", "site"]}
TABLE: Keys = {"name": "csv", "root": DATA, "path": "table_train.csv", "delimiter": ";", "target": "topic"}
TABLE |= {"client": "site", "time": "hour", "ignore": ["note"], "missing": "mean", "categories": ["kind"]}
DATED_TABLE: Keys = {"name": "csv", "root": DATA, "path": "table_dated.csv", "target": "topic", "time": "day"}
DATED_TABLE |= {"time_format": "%d.%m.%Y", "missing_values": ["-"], "missing": "mean"}
LEAF: Keys = {"name": "leaf", "root": DATA}
TABLE_MLP: Keys = {"name": "table_mlp", "hidden": [8], "width": 3, "dropout": 0.1, "batch_norm": True}

ROAD: Keys = {"name": "driving", "vehicles": 2, "frames": 6, "tests": 3, "seconds": 2.0, "size": 32, "smallest": 0.05}
ROADS: Keys = {
    "dataset": {**ROAD, "areas": ["town", "highway"], "hours": [8.0, 9.0], "seed": 4},
    "model": {"name": "tiny_yolo", "width": 1, "stride": 8},
    "objective": {"name": "detection", "stride": 8, "anchors": [[0.2, 0.2], [0.5, 0.4]], "coordinates": 4.0},
    "scenario": {"kind": "by_column", "column": "vehicle", "tasks": 2},
    "clients.count": 2,
    "participation.count": 2,
    "training.rounds_per_task": 2,
    "training.optimizer": {"name": "adam", "lr": 0.001},
    "training.batch_size": 2,
}

NEXT_TOKEN = {
    "dataset": {"name": "npz", "path": "tokens.npz", "root": DATA},
    **TRANSFORMER,
    "model.causal": True,
    "model.output": "token",
    "scenario": {"kind": "bits.own:halves", "tasks": 2},
}

OTHER_DATA = {
    "roads in rain": Run({**ROADS, "dataset.weather": "rain", "objective.no_object": 0.4, "objective.ignore": 0.5}),
    "roads in fog": Run({**ROADS, "dataset.weather": "fog", **alone("der"), "objective.metric": "mAP50-95"}),
    "roads in snow": Run(
        {**ROADS, "dataset.weather": "snow", "objective.confidence": 0.1, "objective.suppress": 0.3}
        | {"objective.detections": 5}
    ),
    "texts, bag": Run({**TEXTS, "model": {"name": "bag_of_embeddings", "width": 6}, **alone("er"), **classes(2)}),
    "texts, transformer": Run({**TEXTS, **TRANSFORMER, "model.vocabulary": 14, **alone("der"), **classes(2)}),
    "texts, hugging face": Run(
        {**TEXTS, "model": {"name": "hugging_face", "path": f"{DATA}/bert", "pretrained": False, "pool": "mean"}}
        | {"model.dropout": 0.1, "training.optimizer": {"name": "adam", "lr": 0.01}, **alone("er"), **classes(2)}
    ),
    "next token": Run({**NEXT_TOKEN, "objective": {"name": "next_token", "padding": 0}, **alone("er")}),
    "next token, exact match": Run(
        {**NEXT_TOKEN, "objective": {"name": "next_token", "padding": 0, "metric": "exact_match", "new_tokens": 3}}
    ),
    "next token, ROUGE-L": Run({**NEXT_TOKEN, "objective": {"name": "next_token", "metric": "rouge_l", "end": 4}}),
    "next token, choices": Run(
        {
            **NEXT_TOKEN,
            "dataset.path": "answers.npz",
            "objective": {"name": "next_token", "metric": "choices", "choices": [[1, 2], [3]], "per_token": True},
        }
    ),
    "numbers": Run({**NUMBERS, **alone("fed_a_gem", sample_size=4)}),
    "several labels": Run(
        {
            "dataset": {"name": "digit_attributes", "train_samples": 120},
            "objective": {"name": "multi_label", "average": "macro"},
            **alone("der"),
        }
    ),
    "natural": Run({"dataset": WRITERS, **domains(shift="permutation"), "partition": {"kind": "natural"}}),
    "natural, left out": Run(
        {"dataset": {**LISTED, **LISTS}, "partition": {"kind": "natural", "others": "left_out", "min_samples": 2}}
    ),
    "by column": Run(
        {"dataset": {"name": "digits", "train_samples": 120}, **by_column("ink", blur=0.4), **alone("er")}
    ),
    "by column, cuts, online": Run(
        {"dataset": {**LISTED, **DATED}, **by_column("day", cuts=[20.0], online=True), **alone("fed_a_gem")}
    ),
    "by column, per client": Run(
        {"dataset": {**LISTED, **DATED}, **by_column("day", per="client"), "partition": {"kind": "natural"}}
    ),
    "texts by day": Run(
        {**TEXTS, "dataset.columns": ["day"], "model": {"name": "bag_of_embeddings", "width": 6}}
        | by_column("day", cuts=["2024-01-11"])
    ),
    "texts, clients by day": Run(
        {**TEXTS, "dataset.columns": ["day"], "model": {"name": "bag_of_embeddings", "width": 6}, **classes(2)}
        | {"partition": {"kind": "dirichlet", "by": "day", "min_samples": 1}}
    ),
    "few labels": Run({"dataset.label_rate": 0.4, **domains(online=True), **alone("er")}),
    "few labels, cfed": Run({"dataset.label_rate": 0.4, **classes(3, blur=0.3), **alone("cfed", review_share=0.6)}),
    "table": Run(
        {"dataset": {**TABLE, "test": "table_test.csv", "standardize": "client"}, "model": TABLE_MLP, **alone("er")}
        | {**by_column("hour", cuts=[12.0]), "partition": {"kind": "natural"}}
    ),
    "table, regression": Run(
        {"dataset": {**TABLE, "target": "first", "target_kind": "number", "columns": ["topic"], "standardize": "none"}}
        | {"dataset.test_fraction": 0.3, "dataset.seed": 1, "objective": "regression", **by_column("topic", tasks=3)}
        | {
            "model": {**TABLE_MLP, "categories": [4]},
            **alone("fed_a_gem", sample_size=4),
            "training.optimizer.lr": 0.01,
        }
    ),
    "table of dates": Run(
        {"dataset": DATED_TABLE, "model": {"name": "mlp", "hidden": [8]}, **by_column("day", cuts=["2024-02-01"])}
    ),
    "texts of users": Run(
        {"dataset": {**LEAF, "path": "leaf/texts", "length": 5, "vocabulary": 9, "lower": False}, **classes(2)}
        | {"model": {"name": "bag_of_embeddings", "width": 6}, "partition": {"kind": "natural"}}
    ),
    "images of users": Run(
        {"dataset": {**LEAF, "path": "leaf/images", "images": "photo", "size": 6}, "partition": {"kind": "natural"}}
        | classes(2)
    ),
    "blurred": Run({**classes(3), "scenario.blur": 0.4, **alone("er")}),
    "repeated": Run({**classes(3), "scenario.repetition": {"probability": 0.5, "introduced_by": 2}, **alone("er")}),
    "repeated, listed": Run(
        {**classes(3, classes=[[0, 1, 2], [2, 3], [4, 5, 0]]), "scenario.repetition": "listed", **alone("fed_a_gem")}
    ),
    "cache by loss": Run({**classes(3), **alone("re_fed", importance="loss")}),
    "cache by herding": Run({**classes(3), **alone("re_fed", importance="herding")}),
    "the global model on clients' data": Run({**classes(3), "evaluation.model": "global_per_client"}),
    "ended early": Run(
        {"evaluation.every_rounds": 1, **domains()}
        | {
            "callbacks": {
                "early_stopping": {"metric": "loss", "protocol": "domain_il", "patience": 1, "min_delta": 9.0}
            }
        }
        | {"callbacks.early_stopping.mode": "min"}
    ),
    "ended early, upwards": Run({"callbacks": {"early_stopping": {"metric": "loss", "patience": 2, "mode": "max"}}}),
}

SENT_ENCODED = {
    "top_k": Run({**alone("top_k", fraction=0.2), **domains()}),
    "top_k, no feedback + er": Run({"methods": {"er": {}, "top_k": {"fraction": 0.1, "feedback": False}}}),
    "top_k + fed_a_gem": Run(
        {"methods": {"fed_a_gem": {"sample_size": 4}, "top_k": {"fraction": 0.3, "vectors": "all"}}}
    ),
    "quantize": Run({**alone("quantize", bits=4, bucket=16), **domains()}),
    "quantize + scaffold": Run(
        {"methods": {"scaffold": {}, "quantize": {"bits": 2, "norm": "max", "feedback": True, "vectors": "all"}}}
    ),
}
