"""The attention viewer takes what the models give, refuses what are no weights, and shows the exact percentages."""

import base64
import json
import re
import zlib

import numpy as np
import pytest
import torch
from drawn import axes, grid, table, texts, written
from proven import proven

from attncourse import viz
from attncourse.data import BOS, Tokenizer
from attncourse.decoding import translate
from attncourse.recurrent import Seq2Seq
from attncourse.transformer import (
    AttentionWeights,
    Encoder,
    EncoderDecoder,
    LanguageModel,
    TransformerConfig,
    Weights,
)
from attncourse.viz.viewer import percent, quantise, restore

SOURCE, TARGET, WRITTEN = ["ninety-", "one", "!"], ["<bos>", "ein"], ["ein", "und"]


def softmax(*shape, scale=1.0):
    return (scale * torch.randn(*shape)).softmax(dim=-1)


def everything(n_layers=2, n_heads=3):
    """What an encoder–decoder gives for SOURCE and TARGET."""
    shapes = [(3, 3), (2, 2), (2, 3)]
    return AttentionWeights(*(softmax(1, n_layers, n_heads, *shape) for shape in shapes))


def unpacked(viewer):
    """The weights that the browser has, one array for each kind and model."""
    data, found = zlib.decompress(viewer.packed), []
    for kind in viewer.content["kinds"]:
        for n_layers, n_heads in kind["shapes"]:
            rows = (n_layers, n_heads + (n_heads > 1), len(kind["queries"]))
            n = int(np.prod(rows))
            tops = np.frombuffer(data[: 2 * n], "<u2").reshape(rows)
            levels = np.frombuffer(data[2 * n : 2 * n + n * len(kind["keys"])], np.uint8).reshape(*rows, -1)
            data = data[2 * n + n * len(kind["keys"]) :]
            found.append(restore(levels, tops))
    assert not data
    return found


# What it takes


@pytest.mark.parametrize("shape", [(3, 3), (1, 3, 3), (4, 3, 3), (2, 4, 3, 3), (1, 2, 4, 3, 3)], ids=str)
def test_every_shape_that_a_model_gives_is_taken(shape):
    viewer = viz.attention_viewer(softmax(*shape), SOURCE)
    n_layers, n_heads = (1, 1, *shape)[-4:-2]
    (kind,) = viewer.content["kinds"]
    assert kind["shapes"] == [[n_layers, n_heads]] and kind["label"] == "self-attention"


def test_arrays_and_lists_are_taken_too():
    rows = [[0.1, 0.9], [0.5, 0.5]]
    (ours,), (theirs,) = (unpacked(viz.attention_viewer(given, ["a", "b"])) for given in (rows, np.array(rows)))
    assert np.array_equal(ours, theirs) and np.allclose(ours[0, 0], rows, atol=0.004)


def test_an_encoder_decoder_has_its_three_kinds_in_one_viewer():
    viewer = viz.attention_viewer(everything(), SOURCE, TARGET, WRITTEN)
    sides = {kind["name"]: (kind["queries"], kind["keys"]) for kind in viewer.content["kinds"]}
    assert sides == {"encoder": (SOURCE, SOURCE), "decoder": (TARGET, TARGET), "cross": (WRITTEN, SOURCE)}
    assert viewer.kind == "cross"


def test_causal_attention_is_called_so():
    weights = torch.eye(3)
    assert viz.attention_viewer(weights, SOURCE).content["kinds"][0]["label"] == "causal self-attention"


def test_the_weights_that_a_stack_collects_are_taken():
    own, cross = [softmax(1, 4, 2, 2)] * 2, [softmax(1, 4, 2, 3)] * 2
    assert viz.attention_viewer(Weights(own), TARGET).kind == "self"
    both = viz.attention_viewer(Weights(own, cross), SOURCE, TARGET)
    assert [kind["name"] for kind in both.content["kinds"]] == ["decoder", "cross"]


def test_two_models_share_the_kinds_that_both_have():
    viewer = viz.attention_viewer({"recurrent": softmax(2, 3), "Transformer": everything()}, SOURCE, TARGET)
    (kind,) = viewer.content["kinds"]
    assert viewer.content["models"] == ["recurrent", "Transformer"]
    assert kind["name"] == "cross" and kind["shapes"] == [[1, 1], [2, 3]]


def test_the_browser_has_the_weights_of_every_kind_layer_and_head():
    given = everything()
    for model in (given, {"a": given, "b": given._replace(cross=softmax(1, 1, 1, 2, 3))}):
        held = unpacked(viz.attention_viewer(model, SOURCE, TARGET))
        models = model.values() if isinstance(model, dict) else [model]
        expected = [weights[name][0] for name in range(3) for weights in models]
        for shown, weights in zip(held, expected, strict=True):
            assert np.allclose(shown[:, : weights.shape[1]], weights, atol=0.004)


def test_the_mean_of_the_heads_stands_behind_them():
    weights = softmax(2, 3, 3, 3)
    (held,) = unpacked(viz.attention_viewer(weights, SOURCE))
    assert np.allclose(held[:, :3], weights, atol=0.004)
    assert np.allclose(held[:, 3], weights.mean(dim=1), atol=0.004)


# What it refuses


def bad(row, column, value, n=3):
    weights = torch.full((1, 2, n, n), 1 / n)
    weights[0, 1, row, column] = value
    return weights


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (bad(2, 0, torch.nan), r"weights: got nan \(layer 0, head 1, query 2\), expected shares from 0 to 1"),
        (bad(2, 0, torch.inf), r"weights: got inf \(layer 0, head 1, query 2\)"),
        (bad(1, 0, -0.5), r"weights: got -0\.5 \(layer 0, head 1, query 1\), expected what comes after the softmax"),
        (bad(0, 2, 0.6), r"got weights that sum to 1\.27 \(layer 0, head 1, query 0\), expected 1: dropout does that"),
        (torch.tensor([[0.9, 0.2, 0.2]] * 3).T, r"sum to 2\.7 .*, expected 1: dropout"),
        (torch.tensor([[0.8, 0.5, 0.1], [0.1, 0.3, 0.2], [0.1, 0.2, 0.7]]), r"down each key they do"),
        (softmax(2, 3), r"weights: got 2 queries by 3 keys, expected \(3, 3\), as there are tokens"),
        (softmax(3), r"weights: got shape \(3,\), expected \(n_layers, n_heads, n_query, n_key\)"),
        (softmax(2, 1, 1, 3, 3), r"of a batch, show one: weights\[i\]"),
        (torch.empty(0, 0), r"weights: got shape \(0, 0\)"),
        ({}, "weights: got 0 models, expected one, or two"),
        ({name: softmax(3, 3) for name in "abc"}, "weights: got 3 models"),
        ({"a": softmax(3, 3), "b": everything()}, r"no kind of attention in common \(self and encoder/decoder/cross\)"),
    ],
)
def test_what_are_no_weights_of_these_tokens_is_refused(weights, message):
    target = TARGET if isinstance(weights, dict) and "a" in weights and "c" not in weights else None
    if target:
        weights = weights | {"a": Weights([softmax(1, 1, 3, 3)])}
    with pytest.raises(ValueError, match=message):
        viz.attention_viewer(weights, SOURCE, target)


def test_tokens_that_are_one_text_or_too_few_are_refused():
    with pytest.raises(TypeError, match="source: got one text, expected a list of its tokens"):
        viz.attention_viewer(softmax(3, 3), "abc")
    with pytest.raises(TypeError, match="weights: got str, expected a tensor, an AttentionWeights"):
        viz.attention_viewer("weights", SOURCE)
    with pytest.raises(ValueError, match="written: got 1 tokens, expected 2, one a token of the target"):
        viz.attention_viewer(everything(), SOURCE, TARGET, ["ein"])
    with pytest.raises(ValueError, match="target: got None, expected the tokens that look, for decoder self-attention"):
        viz.attention_viewer(everything(), SOURCE)
    with pytest.raises(ValueError, match=r"encoder self-attention: got 3 queries by 3 keys, expected \(2, 2\)"):
        viz.attention_viewer(everything(), SOURCE[:2], TARGET)


@pytest.mark.parametrize(
    ("start", "message"),
    [
        ({"kind": "self"}, "kind: got 'self', expected one of 'encoder', 'decoder', 'cross'"),
        ({"view": "both"}, "view: got 'both', expected one of 'one', 'all'"),
        ({"layer": 2}, r"layer: got 2, expected one of 0\.\.1"),
        ({"head": -1}, r"head: got -1, expected one of 0\.\.2"),
        ({"threshold": 5}, "threshold: got 5.*, expected a weight from 0 to 1"),
    ],
)
def test_a_start_that_is_not_there_is_refused_at_first_and_later(start, message):
    with pytest.raises(ValueError, match=message):
        viz.attention_viewer(everything(), SOURCE, TARGET, **start)
    viewer = viz.attention_viewer(everything(), SOURCE, TARGET)
    with pytest.raises(ValueError, match=message):
        viewer.set_trait(*next(iter(start.items())))


def test_a_padded_query_that_looks_at_nothing_is_no_mistake():
    weights = torch.tensor([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]])
    words = viz.attention_viewer(weights, SOURCE).still()[1]
    assert words.endswith("! looks at nothing.")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_any_precision_are_taken(dtype):
    viz.attention_viewer(softmax(2, 2, 64, 64, scale=3).to(dtype), [str(i) for i in range(64)])


# What it shows is exact


@pytest.mark.parametrize("scale", [0.0, 0.3, 3.0, 30.0])
@pytest.mark.parametrize("n_key", [2, 7, 64, 128])
def test_a_percentage_is_that_of_the_exact_weight(scale, n_key):
    weights = softmax(500, n_key, scale=scale).double().numpy()
    shown = restore(*quantise(weights))
    assert np.array_equal(percent(shown), percent(weights))
    assert np.abs(shown - weights).max() < 0.005


def test_equal_weights_stay_equal_and_what_is_not_zero_is_not_shown_as_zero():
    weights = np.array([[1 / 3, 1 / 3, 1 / 3, 0], [1 - 2e-9, 1e-9, 1e-9, 0], [0, 0, 0, 0]])
    shown = restore(*quantise(weights))
    assert len(set(shown[0, :3])) == 1
    assert np.array_equal(shown > 0, weights > 0)


def test_six_layers_of_eight_heads_on_64_tokens_take_at_most_300_kb_in_a_notebook():
    viewer = viz.attention_viewer(softmax(6, 8, 64, 64, scale=3), [f"token{i}" for i in range(64)])
    kept = {
        name: base64.b64encode(value).decode() if isinstance(value, bytes) else value
        for name, value in viewer.get_state().items()
    }
    data, metadata = viewer._repr_mimebundle_()
    assert len(json.dumps([kept, data, metadata])) < 300_000  # script, style and still picture with it


def test_two_thousand_tokens_are_shown_in_blocks_whose_rows_still_sum_to_one():
    n = 2000
    weights = torch.zeros(n, n)
    weights[torch.arange(n - 100), torch.arange(n - 100) // 2] = 1.0  # and the last hundred look at nothing
    viewer = viz.attention_viewer(weights, [f"w{i}" for i in range(n)])
    (kind,), (held,) = viewer.content["kinds"], unpacked(viewer)
    assert held.shape == (1, 1, 125, 125) and kind["queries"][1] == "16–31: w16 …"
    assert "2000 queries and 2000 keys, too many to show one by one: they stand in blocks of 16" in kind["note"]
    assert np.allclose(held[0, 0, :118].sum(axis=-1), 1, atol=0.01)
    assert np.allclose(held[0, 0, 118].sum(), 1, atol=0.01) and not held[0, 0, 119:].any()
    assert np.allclose(held[0, 0, 2, 1], 1)  # queries 32–47 look at keys 16–23, all in the second block
    assert len(viewer.packed) < 30_000 and kind["note"] in viewer.still()[1]


def test_many_heads_make_larger_blocks():
    table = torch.full((40, 40, 128, 1), 1.0).expand(40, 40, 128, 2) / 2
    (kind,) = viz.attention_viewer(table, ["a", "b"], [str(i) for i in range(128)]).content["kinds"]
    assert len(kind["queries"]) <= 50


# Where widgets do not run


@pytest.mark.parametrize("view", ["one", "all"])
def test_the_viewer_brings_a_still_picture_with_words_that_are_the_same_each_time(view):
    weights = everything()
    first, again = (
        viz.attention_viewer(weights, SOURCE, TARGET, title="91", view=view)._repr_mimebundle_() for _ in range(2)
    )
    data, metadata = first
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"] == metadata["image/png"]["alt"]
    assert "application/vnd.jupyter.widget-view+json" in data
    assert data["text/plain"].startswith("Attention viewer “91”, cross-attention. ") and "0x" not in data["text/plain"]
    assert (data["image/png"], data["text/plain"]) == (again[0]["image/png"], again[0]["text/plain"])


MAPS = (torch.arange(24.0).view(2, 2, 2, 3) + 1) ** 2
MAPS /= MAPS.sum(dim=-1, keepdim=True)                              # (n_layers, n_heads, n_query, n_key)


def rows(weights):
    """What a table of these reads."""
    return {query: {key: pytest.approx(weight, abs=1e-5) for key, weight in zip(SOURCE, row, strict=True)}
            for query, row in zip(TARGET, weights.tolist(), strict=True)}  # fmt: skip


@proven
@pytest.mark.parametrize("head", [0, 1, None])
def test_the_still_picture_is_a_table_of_the_head_that_is_selected(head):
    (ax,) = axes(viz.attention_viewer, MAPS, SOURCE, TARGET, layer=1, head=head)
    weights = MAPS[1].mean(dim=0) if head is None else MAPS[1, head]
    assert table(ax) == rows(weights)
    assert grid(ax)[0] == pytest.approx(weights[0].tolist(), abs=1e-5)
    assert written(ax)["ein"] == {key: f"{x:.2f}" for key, x in zip(SOURCE, weights[1].tolist(), strict=True)}
    assert ax.get_title() == "layer 1, " + ("mean of the heads" if head is None else f"head {head}")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("source tokens (keys)", "target tokens (queries)")


@proven
def test_two_models_stand_still_side_by_side():
    a, b = axes(viz.attention_viewer, {"a": MAPS, "b": MAPS[1, 1]}, SOURCE, TARGET)
    for ax, weights in ((a, MAPS[0, 0]), (b, MAPS[1, 1])):
        assert table(ax) == rows(weights)
        assert [*written(ax)["ein"].values()] == [f"{x:.2f}" for x in weights[1].tolist()]
    assert (a.get_title(), b.get_title()) == ("a, layer 0, head 0", "b")


@proven
def test_all_heads_stand_still_with_a_row_a_layer_and_a_column_a_head():
    found = axes(viz.attention_viewer, {"a": MAPS, "b": MAPS[1, 1]}, SOURCE, TARGET, view="all")
    assert [ax.get_title() for ax in found[:5]] == ["a\nhead 0", "head 1", "", "b\nhead 0", ""]
    assert [found[0].get_ylabel(), found[5].get_ylabel()] == ["layer 0", "layer 1"]
    shown = [MAPS[0, 0], MAPS[0, 1], None, MAPS[1, 1], None, MAPS[1, 0], MAPS[1, 1], None, None, None]
    for ax, weights in zip(found, shown, strict=True):
        assert ax.axison == (weights is not None)
        if weights is not None:
            assert grid(ax) == [pytest.approx(row, abs=1e-5) for row in weights.tolist()]
    sides = [(ax.get_yticklabels(), ax.get_xticklabels()) for ax in found]
    words = [tuple([label.get_text() for label in labels] for labels in both) for both in sides]
    assert words[0] == (TARGET, []) and words[1] == ([], []) and words[3] == (TARGET, SOURCE)
    assert words[5] == (TARGET, SOURCE) and words[6] == ([], SOURCE), "below the last layer, and beside the first head"


def test_the_words_say_where_each_query_looks_in_the_head_that_is_selected():
    weights = torch.zeros(2, 2, 3, 3)
    weights[..., 0] = 1
    weights[1, 0] = torch.tensor([[0.1, 0.2, 0.7], [0.6, 0.2, 0.2], [0.0, 0.996, 0.004]])
    viewer = viz.attention_viewer(weights, SOURCE)
    viewer.layer = 1
    assert viewer.still()[1] == (
        "Attention viewer, self-attention. layer 1, head 0: ninety- looks most at ! (70 %); "
        "one looks most at ninety- (60 %); ! looks most at one (100 %)."
    )
    viewer.view = "all"
    assert "2 layers of 2 heads; the sharpest is layer 0, head 0, where a query gives 100 %" in viewer.still()[1]


def test_of_many_queries_the_words_name_the_surest():
    words = viz.attention_viewer(softmax(60, 60, scale=4), [f"w{i}" for i in range(60)]).still()[1]
    assert "Of 60 queries, the surest: " in words and words.count("looks most at") == 8


def test_two_models_stand_side_by_side_in_the_words():
    words = viz.attention_viewer({"a": softmax(2, 3), "b": everything()}, SOURCE, TARGET, WRITTEN).still()[1]
    assert re.search(r"a: ein looks .*\. b, layer 0, head 0: ein looks", words)


def test_the_page_asks_nothing_of_a_network_and_tokens_cannot_break_it():
    page = viz.attention_viewer(softmax(3, 3), ["</script><script>alert(1)</script>", "b", "c"]).page("<b>")
    assert page.count("</script>") == 3 and "<title>&lt;b&gt;</title>" in page
    assert set(re.findall(r"https?://[\w./]+", page)) == {"http://www.w3.org/2000/svg"}  # the name of a language


# A model of the package


TEXTS = ["twenty-one, two", "one hundred and two", "ninety-nine"]
ENGLISH = Tokenizer.train(TEXTS, 60)


@pytest.fixture
def models():
    config = TransformerConfig(vocab_size=len(ENGLISH), d_model=16, n_layers=2, n_heads=2)
    return {
        "language model": LanguageModel(config),
        "encoder": Encoder(config),
        "Transformer": EncoderDecoder(config),
        "recurrent": Seq2Seq(len(ENGLISH), len(ENGLISH), d_embedding=8, d_hidden=8),
    }


def test_a_language_model_and_an_encoder_are_looked_at_with_one_text(models):
    pieces = ENGLISH.pieces("ninety-one")
    for name, tokens, label in (
        ("language model", ["<bos>", *pieces], "causal self-attention"),
        ("encoder", pieces, "self-attention"),
    ):
        viewer = viz.show_attention(models[name], "ninety-one", ENGLISH, title="look")
        assert viewer.content["title"] == "look"
        (kind,) = viewer.content["kinds"]
        assert (kind["queries"], kind["label"], kind["shapes"]) == (tokens, label, [[2, 2]])


@proven
def test_what_a_language_model_looks_at_is_what_it_gives(models):
    model, pieces = models["language model"].eval(), ["<bos>", *ENGLISH.pieces("ninety-one")]
    with torch.no_grad():                                            # (1, n_layers, n_heads, n, n)
        weights = model(torch.tensor([[BOS, *ENGLISH.encode("ninety-one")]]), with_weights=True)[1]
    (ax,) = axes(viz.show_attention, model, "ninety-one", ENGLISH, layer=1, head=1)
    expected = weights[0, 1, 1].tolist()
    assert grid(ax) == [pytest.approx(row, abs=1e-5) for row in expected]
    assert [words for words, *_ in texts(ax)] == [f"{x:.2f}" for row in expected for x in row]
    assert ax.get_title() == "layer 1, head 1"
    assert [label.get_text() for label in ax.get_yticklabels()] == pieces
    assert [label.get_text() for label in ax.get_xticklabels()] == pieces


@pytest.mark.parametrize("name", ["Transformer", "recurrent"])
def test_a_translator_is_looked_at_while_it_writes(models, name):
    viewer = viz.show_attention(models[name], "ninety-one", ENGLISH, ENGLISH)
    (translation,) = translate(models[name], ["ninety-one"], ENGLISH, ENGLISH)
    cross = next(kind for kind in viewer.content["kinds"] if kind["name"] == "cross")
    n = len(cross["queries"])
    assert cross["queries"] == translation.target_pieces[:n] and cross["keys"] == translation.source_pieces
    held = unpacked(viewer)[-1]  # translate gives the last block's mean over the heads
    assert np.allclose(held[-1, -1], translation.weights[:n], atol=0.005)


def test_a_text_that_was_written_by_somebody_else_may_be_given(models):
    viewer = viz.show_attention(models["Transformer"], "one", ENGLISH, ENGLISH, written="two")
    sides = {kind["name"]: kind["queries"] for kind in viewer.content["kinds"]}
    assert sides["cross"] == [*ENGLISH.pieces("two"), "<eos>"] and sides["decoder"][0] == "<bos>"


def test_two_translators_are_compared_on_what_the_first_writes(models):
    pair = {name: models[name] for name in ("recurrent", "Transformer")}
    viewer = viz.show_attention(pair, "one", ENGLISH, ENGLISH)
    (kind,) = viewer.content["kinds"]
    alone = viz.show_attention(models["recurrent"], "one", ENGLISH, ENGLISH).content["kinds"][0]
    assert kind["queries"] == alone["queries"] and kind["shapes"] == [[1, 1], [2, 2]]


def test_looking_leaves_a_model_in_its_mode(models):
    for model in models.values():
        model.train()
        if hasattr(model, "decoder"):
            model.decoder.eval()
        before = [part.training for part in model.modules()]
        viz.show_attention(model, "one", ENGLISH, ENGLISH)
        assert [part.training for part in model.modules()] == before


def test_what_cannot_be_looked_at_is_refused(models):
    with pytest.raises(TypeError, match=r"model: got Linear, expected a LanguageModel, Encoder"):
        viz.show_attention(torch.nn.Linear(2, 2), "one", ENGLISH)
    with pytest.raises(TypeError, match="target_tokenizer: got None"):
        viz.show_attention(models["Transformer"], "one", ENGLISH)
    mean = Seq2Seq(len(ENGLISH), len(ENGLISH), d_embedding=8, d_hidden=8, summary="mean pool")
    with pytest.raises(ValueError, match="got summary='mean pool', one vector to look at"):
        viz.show_attention(mean, "one", ENGLISH, ENGLISH)
