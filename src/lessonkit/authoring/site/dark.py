"""A second palette: a picture drawn on white, as it would have been drawn on a dark page.

Light and dark change places in Oklab, a space in which equal steps look equally far apart (B. Ottosson, "A perceptual
color space for image processing", 2020, https://bottosson.github.io/posts/oklab/). Hue stays, and so does chroma as far
as a screen can show it.
"""

import io

import numpy as np
from PIL import Image, PngImagePlugin

MARK = "dark"  # in the name of a picture's twin
GROUND, INK = 0.182, 0.93  # lightness of what was white (the dark page's), and of what was the darkest ink
DARKEST = 0.22
# Colours halfway between would come out too faint on the dark: below 1, the curve lifts them.
CURVE = 0.7

_TO_CONES = np.array([
    [0.4122214708, 0.5363325363, 0.0514459929],
    [0.2119034982, 0.6806995451, 0.1073969566],
    [0.0883024619, 0.2817188376, 0.6299787005],
])  # fmt: skip
_TO_LAB = np.array([
    [0.2104542553, 0.7936177850, -0.0040720468],
    [1.9779984951, -2.4285922050, 0.4505937099],
    [0.0259040371, 0.7827717662, -0.8086757660],
])  # fmt: skip


def oklab(colours: np.ndarray) -> np.ndarray:
    """Lightness, a and b of colours (…, 3) in sRGB from 0 to 1."""
    linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ _TO_CONES.T) @ _TO_LAB.T


def _linear(lab: np.ndarray) -> np.ndarray:
    return ((lab @ np.linalg.inv(_TO_LAB).T) ** 3) @ np.linalg.inv(_TO_CONES).T


def _srgb(lab: np.ndarray) -> np.ndarray:
    linear = _linear(lab).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)


def darkened(colours: np.ndarray) -> np.ndarray:
    """The dark palette's colours for colours (n, 3) drawn on white, bytes of sRGB both."""
    lab = oklab(colours / 255)
    ink = ((1 - lab[:, :1]) / (1 - DARKEST)).clip(0, 1) ** CURVE
    lightness = GROUND + (INK - GROUND) * ink
    # The largest share of the chroma that a screen can show, by halving: where all of it can, all.
    low, high = np.zeros_like(lightness), np.ones_like(lightness)
    share = high
    for _ in range(12):
        linear = _linear(np.hstack([lightness, share * lab[:, 1:]]))
        fits = ((linear >= -1e-4) & (linear <= 1 + 1e-4)).all(axis=1, keepdims=True)
        low, high = np.where(fits, share, low), np.where(fits, high, share)
        share = (low + high) / 2
    return (255 * _srgb(np.hstack([lightness, low * lab[:, 1:]]))).round().astype(np.uint8)


def dark_png(png: bytes) -> bytes:
    """The PNG in the dark palette, with its notes; what was transparent counts as white."""
    light = Image.open(io.BytesIO(png))
    notes = PngImagePlugin.PngInfo()
    for name, text in getattr(light, "text", {}).items():
        notes.add_text(name, text)
    if light.mode == "P" and "transparency" not in light.info:
        palette = np.array(light.getpalette("RGB"), dtype=np.uint8).reshape(-1, 3)
        dark = light.copy()
        dark.putpalette(darkened(palette).tobytes(), "RGB")
    else:
        over_white = Image.alpha_composite(Image.new("RGBA", light.size, "white"), light.convert("RGBA"))
        pixels = np.asarray(over_white.convert("RGB"))
        colours, places = np.unique(pixels.reshape(-1, 3), axis=0, return_inverse=True)
        dark = Image.fromarray(darkened(colours)[places].reshape(pixels.shape))
    dark.save(file := io.BytesIO(), format="png", optimize=True, pnginfo=notes)
    return file.getvalue()
