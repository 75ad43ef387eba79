"""Lines of slides that this lesson tests: as printed, as they should be, and what tells them apart."""

from attncourse.counting import preset
from attncourse.transformer import Decoder, TransformerConfig
from attncourse_lessons.results import TRANSLATION
from attncourse_lessons.slides.erratum import CSE576, CSE5321, FOUNDATIONS, NARANG, PARAMETRIC, Erratum, Finding
from attncourse_lessons.slides.transcriptions import NARANG_ROWS


def _another_model(activation) -> Finding:
    baseline, name = preset("t5 base").config.activation, activation()
    return Finding(name.lower() != baseline, f"row 2 is {name}; row 1, the baseline, has {baseline}")


RELU_TWICE = Erratum(
    name="ReLU twice",
    decks=(FOUNDATIONS, CSE5321),
    place=NARANG,
    claim="row 2: ReLU, 223M, 2.179 ± 0.003",
    correction="GeLU; ReLU is what row 1 has, with other numbers",
    question="Are rows 1 and 2 two different models?",
    printed=lambda: "ReLU",
    corrected=lambda: "GeLU",
    check=_another_model,
    by="trusted",
    slip=True,
)


def _published(names) -> Finding:
    unknown = [name for name in names() if name not in NARANG_ROWS]
    return Finding(not unknown, f"not in the paper: {', '.join(unknown)}" if unknown else "the paper has that row")


REZERO = Erratum(
    name="Rezero renamed",
    decks=(FOUNDATIONS, CSE5321),
    place=NARANG,
    claim="rows Resnet, Resnet + LayerNorm, …; in the other Resero",
    correction="Rezero: a residual path that starts at zero",
    question="Does the paper have a row of that name?",
    printed=lambda: ("Resnet", "Resero"),
    corrected=lambda: ("Rezero",),
    check=_published,
    by="trusted",
    slip=True,
)


def _has_its_subject(rows) -> Finding:
    models = [row.model for row in rows()]
    own = [model for model in models if model.startswith("Transformer")]
    return Finding(bool(own), f"{len(own)} of {len(models)} rows are Transformers")


NO_TRANSFORMER = Erratum(
    name="no row of the Transformer",
    decks=(CSE576, PARAMETRIC),
    place="Great Results with Transformers",
    claim="Great results with Transformers: a table that ends with ConvS2S Ensemble",
    correction="base 27.3 and 38.1, big 28.4 and 41.8 BLEU are missing",
    question="Is there a Transformer in the table?",
    printed=lambda: [row for row in TRANSLATION if not row.model.startswith("Transformer")],
    corrected=lambda: TRANSLATION,
    check=_has_its_subject,
    by="trusted",
    slip=True,
)


def _looks_across(decoder) -> Finding:
    config = TransformerConfig(vocab_size=5, d_model=8, n_layers=1, n_heads=2)
    across = all(block.cross is not None for block in decoder(config).stack.blocks)
    return Finding(across, "its output depends on a memory" if across else "its output depends on its own input alone")


DECODER = Erratum(
    name="the word decoder",
    decks=(CSE576, CSE5321, FOUNDATIONS, PARAMETRIC),
    place="The Transformer Decoder; Encoder-Decoder Attention",
    claim="The Transformer Decoder: a stack without cross-attention in two decks, with it in two others",
    correction="here a decoder has cross-attention, unless we say decoder-only",
    question="Does it have cross-attention?",
    printed=lambda config: Decoder(config, cross=False),
    corrected=lambda config: Decoder(config, cross=True),
    check=_looks_across,
    kind="convention",
)

ERRATA = (RELU_TWICE, REZERO, NO_TRANSFORMER, DECODER)
