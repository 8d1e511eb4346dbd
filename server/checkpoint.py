"""One commit a round: model, optimizer and all that the parts have learned, whole or not at all."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fedslice.core.params import Model, Params
from server.model_file import model_bytes, to_bytes

_KEPT = 2


def commit(folder: Path, number: int, model: Model, optimizer: Params, state: Mapping[str, Any]) -> Path:
    """Write a checkpoint beside the others and name it last, so that a name means a whole one; keep the newest two.

    Args:
        folder: Where checkpoints lie.
        number: The round that is committed.
        model: The model after it.
        optimizer: The server optimizer's tensors.
        state: What the other parts have learned, as JSON can hold it. What nodes and Flower's strategies keep for
            themselves is not in it.
    """
    final = folder / f"round-{number:06d}"
    draft = folder / f".{final.name}"
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    (draft / "model.safetensors").write_bytes(model_bytes(model))
    (draft / "optimizer.safetensors").write_bytes(to_bytes(optimizer))
    (draft / "state.json").write_text(json.dumps({"round": number, **state}, sort_keys=True), encoding="utf-8")
    shutil.rmtree(final, ignore_errors=True)
    draft.rename(final)
    for old in sorted(folder.glob("round-*"))[:-_KEPT]:
        shutil.rmtree(old)
    return final
