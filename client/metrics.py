"""What tasks measure, by scikit-learn; a metric that its data does not define is NaN."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.metrics import average_precision_score, f1_score, mean_squared_error, roc_auc_score

Array = npt.NDArray[Any]

# Names and direction, the first the one a run is judged by.
CLASSIFICATION = {"macro_f1": "higher", "accuracy": "higher"}
DETECTION = {"f1": "higher", "auc_roc": "higher", "auc_pr": "higher", "accuracy": "higher"}
REGRESSION = {"rmse": "lower"}


def classification(logits: Array, targets: Array) -> dict[str, float]:
    """Return accuracy and macro F1 over the classes present; logits are (examples, classes)."""
    predicted = logits.argmax(axis=1)
    return {
        "accuracy": float((predicted == targets).mean()),
        "macro_f1": float(f1_score(targets, predicted, average="macro", labels=np.unique(targets), zero_division=0)),
    }


def detection(scores: Array, targets: Array, threshold: float = 0.0) -> dict[str, float]:
    """Return F1, accuracy at a threshold, AUC-ROC and AUC-PR; scores and 0/1 targets are (examples,).

    Without a single positive there is nothing to find, and F1 is NaN.
    """
    predicted = scores > threshold
    ranked = len(np.unique(targets)) == 2 and bool(np.isfinite(scores).all())
    return {
        "f1": float(f1_score(targets, predicted, zero_division=0)) if targets.any() else math.nan,
        "accuracy": float((predicted == targets).mean()),
        "auc_roc": float(roc_auc_score(targets, scores)) if ranked else math.nan,
        "auc_pr": float(average_precision_score(targets, scores)) if ranked else math.nan,
    }


def regression(predicted: Array, targets: Array) -> dict[str, float]:
    """Return the root mean squared error, in the unit of the target."""
    finite = bool(np.isfinite(predicted).all())
    return {"rmse": math.sqrt(mean_squared_error(targets, predicted)) if finite else math.nan}
