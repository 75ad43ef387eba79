"""What the attention viewer weighs in a notebook, and how soon it answers in Chromium. Goals: 300 kB and 50 ms.

    python benchmarks/viewer.py [--layers 6] [--heads 8] [--tokens 64] [--repeats 5] [--json]

Weights of random scores, whose deviation is 3, so that they are neither flat nor sharp: trained heads pack better. A
hover is timed from the pointer's event until the page is laid out, and until the next frame is on its way; the first
picture from opening the page. Needs Chromium: Playwright's own, or the system's.
"""

import argparse
import base64
import json
import platform
import statistics
import tempfile
from pathlib import Path

import torch
from chromium import chromium

from attncourse import viz

PAYLOAD_GOAL, HOVER_GOAL = 300, 50

HOVER = """async () => {
  const times = [];
  for (const option of document.querySelectorAll("[role=option]")) {
    await new Promise(requestAnimationFrame);
    const start = performance.now();
    option.dispatchEvent(new PointerEvent("pointerover", { bubbles: true }));
    document.body.getBoundingClientRect();
    const laid = performance.now() - start;
    await new Promise(requestAnimationFrame);
    times.push([laid, performance.now() - start]);
  }
  return times;
}"""


def payload(viewer: viz.attention_viewer) -> dict[str, int]:
    """Bytes in a saved notebook: the weights with their tokens, the script and its style, the still picture."""
    state = viewer.get_state()
    script = sum(len(json.dumps(state[name])) for name in ("_esm", "_css"))
    packed = len(base64.b64encode(state["packed"]))
    rest = len(json.dumps({name: value for name, value in state.items() if name not in ("_esm", "_css", "packed")}))
    picture = len(json.dumps(viewer._repr_mimebundle_()))
    return {"weights_bytes": packed + rest, "script_bytes": script, "picture_bytes": picture}


def answers(html: str, repeats: int) -> dict[str, float]:
    """Milliseconds, medians over the tokens of all repeats."""
    hovers, first = [], []
    with chromium() as browser, tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "viewer.html").write_text(html, encoding="utf-8")
        for _ in range(repeats):
            page = browser.new_page()
            page.goto((Path(folder) / "viewer.html").as_uri())
            page.wait_for_selector("html[data-ready]")
            page.wait_for_timeout(200)
            first.append(page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime"))
            hovers += page.evaluate(HOVER)
            page.close()
        said = {"chromium": browser.version}
    laid, framed = ([time[i] for time in hovers] for i in (0, 1))
    return {
        "hover_ms": statistics.median(laid),
        "hover_95_ms": statistics.quantiles(laid, n=20)[-1],
        "hover_to_frame_ms": statistics.median(framed),
        "first_picture_ms": statistics.median(first),
    } | said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--repeats", type=int, default=5, help="pages that are opened")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    args = parser.parse_args()

    torch.manual_seed(0)
    n = args.tokens
    weights = (3 * torch.randn(args.layers, args.heads, n, n)).softmax(dim=-1)
    viewer = viz.attention_viewer(weights, [f"token{i}" for i in range(n)], title="Benchmark")
    weighs = payload(viewer)
    takes = answers(viewer.page(), args.repeats)
    print(f"{args.layers} layers × {args.heads} heads × {n} × {n}, Chromium {takes['chromium']}")
    print(f"{'':<34}{'':>9}{'goal':>7}")
    print(f"{'weights and tokens':<34}{weighs['weights_bytes'] / 1000:>6.0f} kB{PAYLOAD_GOAL:>7}")
    print(f"{'with script, style, still picture':<34}{sum(weighs.values()) / 1000:>6.0f} kB{PAYLOAD_GOAL:>7}")
    print(f"{'a hover, median':<34}{takes['hover_ms']:>6.1f} ms{HOVER_GOAL:>7}")
    print(f"{'a hover, 95th percentile':<34}{takes['hover_95_ms']:>6.1f} ms{HOVER_GOAL:>7}")
    print(f"{'a hover, to the next frame':<34}{takes['hover_to_frame_ms']:>6.1f} ms{HOVER_GOAL:>7}")
    print(f"{'first picture':<34}{takes['first_picture_ms']:>6.0f} ms")
    if args.json:
        result = weighs | takes | {"layers": args.layers, "heads": args.heads, "tokens": n}
        print(json.dumps(result | {"python": platform.python_version(), "machine": platform.machine()}))


if __name__ == "__main__":
    main()
