"""What several exercises of this lesson share: inputs, references, and words."""


import torch

from lessonkit.exercises.observe import gradient_reaches

READY_MADE = (
    "attncourse.attention",
    "attncourse.efficient",
    "attncourse_lessons.errata",
    "attncourse_lessons.slides",
    "attncourse.layers",
    "attncourse.positions",
    "attncourse.counting",
    "attncourse.transformer",
    "torch.nn.functional.scaled_dot_product_attention",
    "torch.nn.MultiheadAttention",
    "torch.nn.Transformer",
)


def reached_where_heard(answer, inputs, draw):
    """For each input of real numbers whether a gradient reaches it; True, too, where the answer does not listen to it.

    An input that makes no difference is another aspect's fault.
    """
    inputs = [x.requires_grad_() if x.is_floating_point() else x for x in inputs]
    output, found = answer(*inputs), []
    for place, x in enumerate(inputs):
        if x.requires_grad:
            others = [*inputs[:place], draw.normal(*x.shape), *inputs[place + 1 :]]
            unheard = torch.equal(output, answer(*others))
            found.append(gradient_reaches(output, [x], draw)[0] | unheard)
    return torch.stack(found)
