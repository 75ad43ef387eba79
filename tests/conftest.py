"""Every test process uses one thread: two workers with two threads each would fight over two cores."""

import torch

torch.set_num_threads(1)
