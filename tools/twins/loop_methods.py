"""Fed-CODA-P, LoRM and PILoRA in the loop of LoRM's code, by their formulas."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity, cross_entropy

from raysim.system.seeding import seed_torch, torch_restored
from twins.loop import AdamW, Loop, Tested, cosine, of_task, samples, train, weighted
from twins.problem import Problem, Round
from twins.vision import Named, features, scores

ALL_LAYERS = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
Rates = Mapping[str, float]
"""Learning rates by patterns of names. The first that fits counts."""


def rates_of(names: Named, rates: Rates, factor: float = 1.0) -> dict[str, float]:
    """Return the learning rate of each parameter, times a factor."""
    return {name: factor * next(rates[p] for p in rates if fnmatchcase(name, p)) for name in names}


# --- Fed-CODA-P


def coda_prompt(p: Problem, per_task: int, blocks: tuple[int, ...], rates: Rates) -> Iterator[Tested]:
    """CODA-Prompt (Smith et al., CVPR 2023): prefixes sum_i cos(q * a_i, k_i) p_i, of which a task trains its own."""
    kinds = [f"prompts.{kind}.{place}" for kind in ("components", "keys", "attention") for place in range(len(blocks))]
    t = dict(p.named)
    for r in p.rounds():
        first, last = r.task * per_task, (r.task + 1) * per_task
        if r.begins and r.task:
            with torch_restored():
                seed_torch(p.config.seed, "server", r.number - 1, "fed_coda_prompt")
                t |= {name: with_new_rows(t[name], first, last) for name in kinds}
        old, now = {name: t[name][:first] for name in kinds}, dict(t)

        def found(v: Named, x: Tensor, t: Named = now, old: Named = old) -> Tensor:
            query, prefixes = features(t, x), {}
            for place, block in enumerate(blocks):
                parts, keys, attention = (
                    torch.cat([old[name], v[name]])
                    for name in (f"prompts.{kind}.{place}" for kind in ("components", "keys", "attention"))
                )
                weights = cosine_similarity(query[:, None] * attention, keys, dim=2)
                prompt = torch.einsum("ni,ilw->nlw", weights, parts)
                half = parts.shape[1] // 2
                prefixes[block] = prompt[:, :half], prompt[:, half:]
            return scores({**t, **v}, features(t, x, prefixes=prefixes))

        def loss(v: Named, x: Tensor, y: Tensor, r: Round = r, found: Any = found) -> Tensor:
            return of_task(p, r, found(v, x), y)

        w = {name: t[name][first:last] for name in kinds} | {name: t[name] for name in ("head.weight", "head.bias")}
        w = weighted(p, r, [train(p, k, r, w, loss, AdamW(rates_of(w, rates))) for k in r.cohort])
        for name, value in w.items():
            t[name] = torch.cat([old[name], value, t[name][last:]]) if name in old else value
        yield Tested(lambda x, w=w, found=found: found(w, x), dict(t))


def with_new_rows(table: Tensor, first: int, last: int) -> Tensor:
    """Return the table with new rows: normal draws, orthogonal to the rows before (Gram-Schmidt), of length 1."""
    flat = table.flatten(1).clone()
    for row in range(first, last):
        drawn = torch.randn(flat.shape[1], dtype=flat.dtype)
        rest = drawn - sum(((other @ drawn) / (other @ other) * other for other in flat[:row]), torch.zeros(()))
        flat[row] = rest / rest.norm()
    return flat.view_as(table)


# --- low-rank additions


def adapted(names: Named) -> list[str]:
    """Return the layers that have an A and a B."""
    return [name.removesuffix(".lora_a.weight") for name in names if name.endswith(".lora_a.weight")]


def products(v: Named) -> dict[str, Tensor]:
    """Return D = B A of each layer."""
    return {name: v[f"{name}.lora_b.weight"] @ v[f"{name}.lora_a.weight"] for name in adapted(v)}


def mixed(tasks: list[Named], factor: float) -> dict[str, Tensor]:
    """Return the sum of the tasks' additions, times a factor."""
    return {name: factor * torch.stack([one[name] for one in tasks]).sum(0) for name in tasks[0]}


def of_adapters(p: Problem) -> dict[str, Tensor]:
    """Return the initial A, B and head."""
    return {name: value for name, value in p.named.items() if ".lora_" in name or name.startswith("head.")}


def begun(w: Named, r: Round, seed: int, method: str) -> dict[str, Tensor]:
    """Return w with A from U(-1/sqrt(i), 1/sqrt(i)), drawn from the method's stream of the server, and B = 0."""
    after = dict(w)
    with torch_restored():
        seed_torch(seed, "server", r.number, method)
        for name in adapted(w):
            a = w[f"{name}.lora_a.weight"]
            after[f"{name}.lora_a.weight"] = (2 * torch.rand(a.shape, dtype=a.dtype) - 1) / a.shape[1] ** 0.5
            after[f"{name}.lora_b.weight"] = torch.zeros_like(w[f"{name}.lora_b.weight"])
    return after


def final(p: Problem, w: Named, added: Named) -> dict[str, Tensor]:
    """Return the frozen weights with these additions, and the head."""
    return {f"{name}.base.weight": p.named[f"{name}.base.weight"] + d for name, d in added.items()} | {
        name: w[name] for name in ("head.weight", "head.bias")
    }


def gram(rows: Tensor, alpha: float) -> Tensor:
    """Return alpha G + (1 - alpha) diag(G) for G = X X^T of inputs X^T = rows [n, d]."""
    g = rows.T @ rows
    return alpha * g + (1 - alpha) * g.diagonal().diag()


def lorm(p: Problem, alpha: float, alpha_head: float, averaged: bool, rates: Rates) -> Iterator[Tested]:
    """LoRM (Salami et al., ICLR 2025): B = [sum B_k A G_k] A^T [A G A^T]^+, or A = [sum A_k G_k] G^+, in turns."""
    w, done = of_adapters(p), list[Named]()
    layers = adapted(w)
    change, total = ({name: torch.zeros(()).double() for name in layers} for _ in range(2))

    def of_inputs(v: Named, k: int, task: int) -> tuple[dict[str, Tensor], Tensor]:
        """Return the Grams of the layers and of the head on a client's samples, at its model."""
        added, inputs = products(v), dict[str, Tensor]()
        if averaged:
            added = mixed([*done, added], 1 / (len(done) + 1))
        rows = features(p.named, samples(p, k, task)[0], added, inputs=inputs)
        return {name: gram(inputs[name], alpha) for name in layers}, gram(rows, alpha_head)

    trains_b = True
    for r in p.rounds():
        trains_b = r.begins or not trains_b
        own, held = (".lora_b.", ".lora_a.") if trains_b else (".lora_a.", ".lora_b.")

        def loss(v: Named, x: Tensor, y: Tensor, r: Round = r, w: Named = w) -> Tensor:
            t = {**p.named, **w, **v}
            return of_task(p, r, scores(t, features(t, x, products({**w, **v}))), y)

        moving = {name: value for name, value in w.items() if held not in name}
        ends = [{**w, **train(p, k, r, moving, loss, AdamW(rates_of(moving, rates)))} for k in r.cohort]
        grams, of_head = zip(*(of_inputs(v, k, r.task) for v, k in zip(ends, r.cohort, strict=True)), strict=True)
        after = dict(w) | {"head.bias": weighted(p, r, ends)["head.bias"]}
        after["head.weight"] = regmean([v["head.weight"] for v in ends], list(of_head))
        for name in layers:
            of_layer, key, a = [g[name] for g in grams], f"{name}{own}weight", w[f"{name}.lora_a.weight"]
            values = [v[key] for v in ends]
            if trains_b:
                whole = sum(b @ a @ g for b, g in zip(values, of_layer, strict=True))
                after[key] = whole @ a.T @ torch.linalg.pinv(a @ sum(of_layer) @ a.T)
            else:
                after[key] = regmean(values, of_layer)
        w = after
        if r.ends:
            ended = [of_inputs(w, k, r.task)[0] for k in p.clients]
            for name, d in products(w).items():
                of_all = torch.stack([g[name] for g in ended]).sum(0)
                change[name], total[name] = change[name] + d @ of_all, total[name] + of_all
        added = mixed([*done, products(w)], 1 / (len(done) + 1))
        if r.ends:
            done.append(products(w))
            if r.task:
                added = {name: change[name] @ torch.linalg.pinv(total[name]) for name in layers}
        t = {**p.named, **w}
        yield Tested(lambda x, t=t, added=added: scores(t, features(t, x, added)), final(p, w, added))
        if r.ends:
            w = begun(w, r, p.config.seed, "lorm")


def regmean(values: list[Tensor], grams: list[Tensor]) -> Tensor:
    """Return [sum_k W_k G_k] [sum_k G_k]^+ (Jin et al., ICLR 2023)."""
    whole = torch.stack([w @ g for w, g in zip(values, grams, strict=True)]).sum(0)
    return whole @ torch.linalg.pinv(torch.stack(grams).sum(0))


def distances(prototypes: Tensor, found: Tensor) -> Tensor:
    """Return || f - c_y ||^2 / d [n, classes] of features [n, d]."""
    return (found[:, None] - prototypes).square().mean(2)


def pilora(
    p: Problem, compact: float, sparse: float, orthogonal: float, temperature: float, rates: Rates, decay: float
) -> Iterator[Tested]:
    """PILoRA (Guo et al., ECCV 2024): distances to prototypes, orthogonal A, prototypes weighed by mean features."""
    w, done = of_adapters(p), list[Named]()
    for r in p.rounds():
        ends, means = list[Named](), dict[int, list[Tensor]]()
        for k in r.cohort:
            passed: list[tuple[Tensor, Tensor]] = []

            def loss(v: Named, x: Tensor, y: Tensor, passed: Any = passed, done: Any = tuple(done)) -> Tensor:
                found = features(p.named, x, products(v))
                passed.append((found.detach(), y))
                far = distances(v["head.weight"], found)
                total = cross_entropy(-far, y) + compact * far.gather(1, y[:, None]).mean()
                for key in (name for name in v if ".lora_a." in name):
                    crossed = sum(((v[key] @ before[key].T).abs().sum() for before in done), torch.zeros(()))
                    total = total + sparse * v[key].abs().sum() + orthogonal * crossed
                return total

            moving = {name: value for name, value in w.items() if name != "head.bias"}
            adam = AdamW(rates_of(moving, rates, cosine(p, r)), decay, decoupled=False)
            ends.append(train(p, k, r, moving, loss, adam))
            rows, labels = (torch.cat([*part]) for part in zip(*passed, strict=True))
            for label in labels.unique().tolist():
                means.setdefault(label, []).append(rows[labels == label].mean(0))
        w = weighted(p, r, ends) | {"head.bias": w["head.bias"]}
        for label, of_class in means.items():
            own = torch.stack([v["head.weight"][label] for v in ends])
            near = 1 / ((own[:, None] - torch.stack(of_class)).norm(dim=2).sum(1) + 1e-10)
            shares = ((near - near.min()) / (near.max() - near.min()) / temperature).softmax(0)
            w["head.weight"][label] = shares @ own
        added, c = mixed([products(v) for v in (*done, w)], 1.0), w["head.weight"]
        linear = {"head.weight": 2 / c.shape[1] * c, "head.bias": -c.square().mean(1)}
        yield Tested(lambda x, added=added, c=c: -distances(c, features(p.named, x, added)), final(p, linear, added))
        if r.ends:
            done = [*done, w]
            w = begun(w, r, p.config.seed, "pilora")


# --- the loops

CODA = {"kind": "coda", "blocks": [0, 1], "pool": 15, "per_task": 3, "length": 4}
LORM: Mapping[str, Any] = {
    "model.adapters": {"rank": 3, "where": ["attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2"]},
    "training.lr_scales": {"*.lora_a.*": 0.5, "*.lora_b.*": 1.5},
}
LORM_GIVEN = {"alpha": 0.0, "alpha_head": 0.5, "rates": {"*.lora_a.*": 0.005, "*.lora_b.*": 0.015, "head.*": 0.01}}
PILORA: Mapping[str, Any] = {
    "model.adapters": {"rank": 4, "where": ["blocks.0.attn.qkv"]},
    "training.logits": "all",
    "training.lr_decay": {"name": "cosine"},
    "training.lr_scales": {"head.*": 30.0},
    "training.optimizer": {"name": "adam", "lr": 0.001, "weight_decay": 1e-5},
}
PILORA_GIVEN = {
    "compact": 0.001,
    "sparse": 0.01,
    "orthogonal": 0.5,
    "temperature": 0.2,
    "rates": {"head.*": 0.03, "*": 0.001},
    "decay": 1e-5,
}

LOOPS = (
    Loop(
        "Fed-CODA-P",
        {"fed_coda_prompt": {"mu": 0.0}},
        coda_prompt,
        {"per_task": 3, "blocks": (0, 1), "rates": {"*": 0.01}},
        {"model.prompts": CODA},
    ),
    Loop("LoRM", {"lorm": {"gram_at": "averaged"}}, lorm, {**LORM_GIVEN, "averaged": True}, LORM),
    Loop("LoRM, default", {"lorm": {}}, lorm, {**LORM_GIVEN, "averaged": False}, LORM),
    Loop("PILoRA", {"pilora": {}}, pilora, PILORA_GIVEN, PILORA),
)
