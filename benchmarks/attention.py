"""Time and peak memory of attention against the length n: the full one, and those that cost less.

    python benchmarks/attention.py [--n 512 1024 2048 4096 8192] [--repeats 3] [--device cuda] [--json]

Forward and backward together (flex_attention on the CPU: forward alone, it has no more). One head. The slope is that of
log cost against log n over the three largest n: 1 is linear, 2 quadratic. Goals: 1 for the window, 2 for the full one.
"""

import argparse
import json
import math
import os
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version

import torch
import torch.nn.functional as F
from torch.profiler import ProfilerActivity, profile

from attncourse.attention import attend
from attncourse.efficient import (
    dense_mask,
    flex_attend,
    linear_attend,
    linformer_attend,
    sliding_window,
    sliding_window_attend,
    tiled_attend,
)

D, WIDTH, TILE, K = 64, 64, 128, 128
WINDOW = sliding_window(WIDTH)
AT_LEAST = 0.1  # seconds a turn, so that a quick mechanism's median does not hang on what else the machine did
MECHANISMS: dict[str, Callable] = {
    "full": lambda q, k, v, E, G: attend(q, k, v)[0],
    "sdpa": lambda q, k, v, E, G: F.scaled_dot_product_attention(q, k, v),
    "tiled": lambda q, k, v, E, G: tiled_attend(q, k, v, tile=TILE),
    "window": lambda q, k, v, E, G: sliding_window_attend(q, k, v, WIDTH),
    "flex": lambda q, k, v, E, G: flex_attend(q, k, v, WINDOW),
    "linformer": lambda q, k, v, E, G: linformer_attend(q, k, v, E, G),
    "linear": lambda q, k, v, E, G: linear_attend(q, k, v),
    "linear causal": lambda q, k, v, E, G: linear_attend(q, k, v, causal=True),
}


def inputs_for(name: str, n: int, device: str) -> list[torch.Tensor]:
    shapes = [(1, 1, n, D)] * 3 + [(K, n)] * 2
    inputs = [torch.randn(shape, device=device) / math.sqrt(shape[-1]) for shape in shapes]
    return [x.requires_grad_(has_backward(name, device)) for x in inputs]


def has_backward(name: str, device: str) -> bool:
    return name != "flex" or device == "cuda"


def run(name: str, inputs: list[torch.Tensor]) -> None:
    output = MECHANISMS[name](*inputs)
    if output.requires_grad:
        torch.autograd.grad(output, inputs, torch.ones_like(output), allow_unused=True)


def seconds(name: str, inputs: list[torch.Tensor], device: str) -> float:
    synchronize = torch.cuda.synchronize if device == "cuda" else lambda: None
    synchronize()
    start = time.perf_counter()
    run(name, inputs)
    synchronize()
    return time.perf_counter() - start


def peak_bytes(name: str, inputs: list[torch.Tensor], device: str) -> int:
    """The most bytes alive at once during the run, beyond the inputs.

    On the CPU torch's profiler reports each allocation and release of torch's allocator, those inside an operator too,
    so their running sum is exact; the process's resident size is not. Not counted: what a library allocates by itself.
    """
    if device == "cuda":
        torch.cuda.synchronize()
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        run(name, inputs)
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated() - before
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        run(name, inputs)
    events = [event for event in profiler.profiler.kineto_results.events() if event.name() == "[memory]"]
    alive = peak = 0
    for event in sorted(events, key=lambda event: event.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def slope(ns: list[int], costs: list[float]) -> float:
    logs = [[math.log(x) for x in xs[-3:]] for xs in (ns, costs)]
    return statistics.linear_regression(*logs).slope


def that_answer_right(names: list[str], n: int, device: str) -> list[str]:
    """Nothing is timed that computes something else. Flex is left out where it would only fall back."""
    # Not scaled down as for the timing: with small scores every attention is nearly the mean of the values.
    inputs = [x.detach() * math.sqrt(x.shape[-1]) for x in inputs_for("full", n, device)[:3]]
    inputs += [x.detach() for x in inputs_for("full", n, device)[3:]]
    query, key, value, E, G = inputs
    expected = dict.fromkeys(("full", "sdpa", "tiled"), by_hand((query @ key.mT / math.sqrt(D)).exp(), value))
    window = dense_mask(WINDOW, n, n, device)
    expected |= dict.fromkeys(("window", "flex"), attend(query, key, value, window)[0])
    expected["linformer"] = attend(query, E @ key, G @ value)[0]
    weights = (F.elu(query) + 1) @ (F.elu(key) + 1).mT
    expected |= {"linear": by_hand(weights, value), "linear causal": by_hand(weights.tril(), value)}
    for name in list(names):
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="flex_attention does not compile")
                output = MECHANISMS[name](*inputs)
        except UserWarning as reason:
            print(f"{name} is left out: {reason}")
            names = [other for other in names if other != name]
            continue
        torch.testing.assert_close(output, expected[name], rtol=0, atol=1e-3 if device == "cuda" else 1e-5)
    return names


def by_hand(weights: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    return weights @ value / weights.sum(dim=-1, keepdim=True)


def table(title: str, ns: list[int], rows: dict[str, list[float]], unit: float, device: str) -> None:
    print(f"\n{title:<28}" + "".join(f"{f'n={n}':>10}" for n in ns) + f"{'slope':>8}")
    for name, costs in rows.items():
        label = name if has_backward(name, device) else f"{name} (forward)"
        print(f"{label:<28}" + "".join(f"{cost / unit:>10.2f}" for cost in costs) + f"{slope(ns, costs):>8.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n", type=int, nargs="+", default=[512, 1024, 2048, 4096, 8192], help="two or more lengths")
    parser.add_argument("--repeats", type=int, default=3, help="turns; the median is over all of a mechanism's runs")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu", choices=["cpu", "cuda"])
    parser.add_argument("--without", nargs="+", default=[], choices=list(MECHANISMS), help="mechanisms to leave out")
    parser.add_argument("--threads", type=int, default=1, help="of the CPU")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()
    if len(set(args.n)) < 2:
        parser.error(f"--n: got {args.n}, expected two or more lengths")
    os.environ.setdefault("KINETO_LOG_LEVEL", "99")               # or the profiler tells stderr of each start and stop
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    ns, device = sorted(set(args.n)), args.device

    names = that_answer_right([name for name in MECHANISMS if name not in args.without], ns[0], device)
    times: dict[str, list[list[float]]] = {name: [[] for _ in ns] for name in names}
    peaks: dict[str, list[float]] = {name: [] for name in names}
    # Memory first: the untimed runs pay for warming up. Flex also compiles, and makes its list of blocks, which is kept
    # from then on; making it takes n² booleans for a moment, and is in neither table.
    for n in ns:
        for name in names:
            inputs = inputs_for(name, n, device)
            run(name, inputs)
            peaks[name].append(peak_bytes(name, inputs, device))
    for _ in range(args.repeats):
        for at, n in enumerate(ns):
            for name in names:
                inputs, spent = inputs_for(name, n, device), 0.0
                while spent < AT_LEAST:
                    times[name][at].append(seconds(name, inputs, device))
                    spent += times[name][at][-1]
    medians = {name: [statistics.median(each) for each in times[name]] for name in names}

    where = f"cpu, {args.threads} thread(s)" if device == "cpu" else torch.cuda.get_device_name()
    print(f"one head, d = {D}, float32, window {WIDTH} each side, tile {TILE}, k = {K}; {where}")
    table("milliseconds", ns, medians, 1e-3, device)
    table("peak memory, MiB", ns, peaks, 2**20, device)
    if args.json:
        slopes = {}
        for name in names:
            key = name.replace(" ", "_")
            slopes |= {f"{key}_time_slope": slope(ns, medians[name]), f"{key}_memory_slope": slope(ns, peaks[name])}
        result = {
            **slopes,
            "n": ns,
            "median_seconds": medians,
            "peak_bytes": peaks,
            "forward_only": [name for name in names if not has_backward(name, device)],
            "repeats": args.repeats,
            "threads": args.threads,
            "device": torch.cuda.get_device_name() if device == "cuda" else f"cpu ({platform.machine()})",
            "torch": torch.__version__,
            "python": platform.python_version(),
            "attncourse": version("attncourse"),
        }
        print(json.dumps(result))


if __name__ == "__main__":
    main()
