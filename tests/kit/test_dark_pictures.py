"""The dark palette: every picture of a notebook has a twin for dark pages, with the same hues."""

import io
from itertools import combinations

import numpy as np
from matplotlib.colors import to_rgb
from PIL import Image

from attncourse.viz import style
from lessonkit.authoring.site import dark, readable

PALETTE = [style.INK, style.GREY, *style.SERIES[:6]]


def lab(colours):
    return dark.oklab(np.asarray(colours, dtype=float) / 255)


def palette():
    drawn = (255 * np.array([to_rgb(colour) for colour in ["white", *PALETTE]])).round()
    return drawn, dark.darkened(drawn)


def luminance(colours):
    part = np.asarray(colours) / 255
    return np.where(part <= 0.04045, part / 12.92, ((part + 0.055) / 1.055) ** 2.4) @ [0.2126, 0.7152, 0.0722]


def test_the_hue_of_a_series_stays():
    drawn, night = (lab(colours)[3:, 1:] for colours in palette())
    turned = np.angle((night @ [1, 1j]) / (drawn @ [1, 1j]), deg=True)
    assert np.abs(turned).max() < 2


def test_series_are_as_far_apart_in_the_dark_as_in_the_light():
    drawn, night = (lab(colours)[1:] for colours in palette())
    least = [min(np.linalg.norm(a - b) for a, b in combinations(colours, 2)) for colours in (drawn, night)]
    assert least[1] > 0.95 * least[0]


def test_words_and_lines_stand_out_from_the_dark_ground():
    ground, *inks = luminance(palette()[1])
    contrasts = [(ink + 0.05) / (ground + 0.05) for ink in inks]
    assert contrasts[0] > 12 and contrasts[1] > 4.5 and min(contrasts) >= 3  # WCAG 2.2, of text and of what is drawn


def test_a_larger_weight_stands_out_more():
    weights = dark.darkened(255 * style.WEIGHTS(np.linspace(0, 1, 30))[:, :3])
    assert (np.diff(lab(weights)[:, 0]) > 0).all()


def test_a_pictures_twin_has_its_size_its_note_and_the_dark_palettes_colours():
    drawn, ax = style.figure(2, 1)
    ax.fill_between([0, 1], [1, 1], color=style.ORANGE)
    ax.set_title("orange")
    light = style.png(drawn)
    one, other = (Image.open(io.BytesIO(data)) for data in (light, dark.dark_png(light)))
    assert one.size == other.size and readable.text_size(light) == readable.text_size(dark.dark_png(light)) != 0
    pixels = np.asarray(one.convert("RGB")).reshape(-1, 3)
    assert (np.asarray(other.convert("RGB")).reshape(-1, 3) == dark.darkened(pixels)).all()


def test_a_picture_that_is_half_transparent_counts_as_lying_on_white():
    Image.new("RGBA", (1, 1), (0, 0, 0, 0)).save(clear := io.BytesIO(), format="png")
    Image.new("RGB", (1, 1), "white").save(white := io.BytesIO(), format="png")
    made = (dark.dark_png(file.getvalue()) for file in (clear, white))
    seen = [Image.open(io.BytesIO(data)).convert("RGB").getpixel((0, 0)) for data in made]
    assert seen[0] == seen[1] and max(seen[0]) < 32


def test_a_page_names_both_pictures_and_describes_both(tmp_path):
    (tmp_path / "_images").mkdir()
    drawn, ax = style.figure(2, 1)
    ax.plot([0, 1])
    (tmp_path / "_images" / "one.png").write_bytes(style.png(drawn))
    page = tmp_path / "page.html"
    page.write_text('<img alt="A line." src="_images/one.png" width="192">')
    readable.finish(tmp_path)
    light, night = readable.IMAGE.findall(page.read_text())
    assert ("in-light" in light, "in-dark" in night) == (True, True)
    assert 'alt="A line."' in light and 'alt="A line."' in night
    assert 'src="_images/one.png"' in light and 'src="_images/one.dark.png"' in night
    assert (tmp_path / "_images" / "one.dark.png").read_bytes() != (tmp_path / "_images" / "one.png").read_bytes()
