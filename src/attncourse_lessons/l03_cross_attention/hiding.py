"""An intervention on a decoder with attention: hide source positions from it, and see what it still predicts."""

from collections.abc import Sequence

import torch
from torch import Tensor

from attncourse.data.batches import Batch
from attncourse.recurrent import DecoderState, Seq2Seq


def hide(state: DecoderState, positions: Sequence[int]) -> DecoderState:
    """The same decoder state, which may no longer attend to these source positions."""
    mask = state.memory.mask.clone()                                                       # (batch, n_source)
    mask[:, list(positions)] = False
    return state._replace(memory=state.memory._replace(mask=mask))


@torch.inference_mode()
def predicted(model: Seq2Seq, batch: Batch, hidden: Sequence[int] = ()) -> Tensor:
    """The likeliest token at each target position, (batch, n_target), while the model reads the right translation.

    The `hidden` source positions are masked at every step.
    """
    state = hide(model.start(batch.source, batch.lengths), hidden)
    found = []
    for token in batch.target_in.unbind(dim=1):
        logits, state, _ = model.step(token, state)
        found.append(logits.argmax(dim=-1))
    return torch.stack(found, dim=1)
