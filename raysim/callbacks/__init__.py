"""Callbacks: they receive a run's events in the driver, and may record numbers and figures or end the run early."""

from raysim.callbacks.callback import Callback, RunView
from raysim.callbacks.early_stopping import EarlyStopping

__all__ = ["CALLBACKS", "Callback", "EarlyStopping", "RunView"]

CALLBACKS = {
    "early_stopping": "raysim.callbacks.early_stopping:EarlyStopping",
    "mlflow": "raysim.callbacks.mlflow:MLflow",
    "wandb": "raysim.callbacks.wandb:WeightsAndBiases",
}
