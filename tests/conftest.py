"""Every test starts from the same seed, and every test process uses one thread.

Two workers with two threads each would fight over two cores.
"""

import pytest
import torch

pytest.register_assert_rewrite("hostile_class", "small_class")  # an assertion there says what it compared, too

torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def shown(monkeypatch):
    """The words of the figures that were shown."""
    said = []
    monkeypatch.setattr("attncourse.viz.style.display", lambda data, metadata, raw: said.append(data["text/plain"]))
    return said
