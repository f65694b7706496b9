"""A search with Optuna that ends bad runs early: python examples/search_with_optuna.py [KEY=VALUE ...].

Needs `pip install optuna`. Run it in the folder that contains `configs/`. Candidates are rated on validation samples;
the best is then to be run with other seeds on the test samples.
"""

import sys
from collections.abc import Sequence
from statistics import fmean

import optuna

import raysim
from raysim.callbacks import Callback, RunView
from raysim.engine.events import RoundDone

CONFIG = "configs/quickstart.yaml"
COMMON = ["evaluation.every_rounds=2", "evaluation.split=validation", "logging.tensorboard=false"]


class Pruning(Callback):
    """Reports each evaluation to Optuna, and ends the run if Optuna prunes it."""

    def __init__(self, trial: optuna.Trial) -> None:
        self.trial = trial

    def on_evaluation(self, run: RunView, done: RoundDone) -> None:
        """Report the mean over the tasks so far, by the first protocol."""
        accuracies = next(iter((done.evaluation or {}).values()))
        self.trial.report(fmean(accuracies[: done.so_far]), step=done.round)
        if self.trial.should_prune():
            run.stop("it is worse than the others were by then")


def search(trials: int, overrides: Sequence[str] = ()) -> optuna.Study:
    """Search the learning rate and the memory with the highest average accuracy."""

    def accuracy(trial: optuna.Trial) -> float:
        chosen = [
            f"training.optimizer.lr={trial.suggest_float('lr', 0.01, 1.0, log=True)}",
            f"memory.capacity={trial.suggest_int('capacity', 20, 200, step=20)}",
            "methods={er: {}}",
            f"name=search-{trial.number}",
        ]
        result = raysim.run(CONFIG, [*COMMON, *overrides, *chosen], local=True, callbacks=[Pruning(trial)])
        if result.stopped_by:
            raise optuna.TrialPruned
        metrics = next(iter(result.evaluation.values()))
        return metrics["average_accuracy"] or 0.0

    pruner = optuna.pruners.MedianPruner(n_startup_trials=4)
    study = optuna.create_study(direction="maximize", sampler=optuna.samplers.TPESampler(seed=0), pruner=pruner)
    study.optimize(accuracy, n_trials=trials)
    return study


if __name__ == "__main__":
    best = search(20, sys.argv[1:])
    print(f"best accuracy {best.best_value:.3f} with {best.best_params}")
