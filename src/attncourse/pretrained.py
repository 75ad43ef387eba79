"""Weights that others have trained: GPT-2, Llama, Mistral, BERT, BART, Marian, T5 and ViT, from a folder and back.

    gpt2 = load("models/gpt2")                      # config.json, model.safetensors, tokenizer.json
    gpt2.complete(["The animal didn't cross"])      # gpt2.model is a LanguageModel
    save(gpt2.model, "models/mine", "gpt2")         # transformers' GPT2LMHeadModel reads it

A folder is what transformers' `save_pretrained` writes, or a repository of the Hugging Face hub as it is downloaded. An
architecture is a table below: which of their options are which of ours, and which of their tensors are.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import tokenizers
import torch
from jaxtyping import Int
from torch import Tensor, nn

from attncourse.beyond_text import ViT, ViTConfig
from attncourse.decoding import SPECIAL, SpecialTokens, beam_search, greedy, sample
from attncourse.positions import sinusoidal
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, TransformerConfig
from commandkit import files

WEIGHTS, INDEX, CONFIG = "model.safetensors", "model.safetensors.index.json", "config.json"


@dataclass(frozen=True)
class Pretrained:
    """A model in evaluation mode, and what its folder says beside the weights."""

    model: Any
    """A LanguageModel, Encoder, EncoderDecoder or ViT."""
    tokenizer: tokenizers.Tokenizer | None
    """None where the folder has no tokenizer.json."""
    special: SpecialTokens
    unused: tuple[str, ...]
    """Tensors of the checkpoint that the model has no place for: a pooler, the head of another task."""

    def generate(
        self,
        source: Int[Tensor, "batch n"],
        lengths: Int[Tensor, " batch"] | None = None,
        max_length: int = 50,
        n_beams: int = 1,
        temperature: float | None = None,
        top_k: int | None = None,
        top_p: float | None = None,
        generator: torch.Generator | None = None,
    ) -> Int[Tensor, "batch n_written"]:
        """What follows a prompt, or translates a source: greedily, by beams, or sampled where a temperature is given.

        Without `lengths` no row is padded. Raises ValueError as `attncourse.decoding` does, for beams with a
        temperature, and for a model that does not write.
        """
        if not isinstance(self.model, LanguageModel | EncoderDecoder):
            raise ValueError(f"generate: got a {type(self.model).__name__}, expected a model that writes")
        if n_beams != 1 and temperature is not None:
            raise ValueError(f"n_beams: got {n_beams} and a temperature, expected one of the two")
        if lengths is None:
            lengths = torch.full((len(source),), source.shape[1], device=source.device)
        given = (self.model, source, lengths)
        if temperature is not None:
            return sample(*given, max_length, temperature, top_k, top_p, generator, special=self.special).tokens
        if n_beams > 1:
            return beam_search(*given, n_beams, max_length=max_length, special=self.special).tokens[:, 0]
        return greedy(*given, max_length, special=self.special).tokens

    def complete(self, texts: Sequence[str], **options: Any) -> list[str]:
        """`generate` for texts: the continuation of each (a language model), or its translation, without the end token.

        Raises ValueError where there is no tokenizer, TypeError for a single text.
        """
        if isinstance(texts, str):
            raise TypeError(f"texts: got one text, expected a list of them, [{texts!r}]")
        if self.tokenizer is None:
            raise ValueError("complete: the folder had no tokenizer.json; give `generate` the ids")
        ids = [self.tokenizer.encode(text).ids for text in texts]
        lengths = torch.tensor([len(row) for row in ids])
        source = nn.utils.rnn.pad_sequence([torch.tensor(row) for row in ids], True, self.special.fill)
        device = next(self.model.parameters()).device
        written = self.generate(source.to(device), lengths.to(device), **options).tolist()
        ends = {self.special.eos, self.special.pad}
        return [self.tokenizer.decode([token for token in row if token not in ends]) for row in written]


def load(folder: str | Path, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu") -> Pretrained:
    """The checkpoint in `folder`, as a model of ours. Where there is no such folder, the name of a hub's repository.

    Raises FileNotFoundError for what is missing, ValueError for an architecture that is not known here, an option that
    ours has not, a file that is cut short, and tensors that are missing, left over, or of another shape.
    """
    path = _found(folder)
    raw = _json(path / CONFIG)
    architecture = _architecture(raw.get("model_type"))
    tensors = {architecture.full_name(name): tensor for name, tensor in _tensors(path).items()}
    tied = {} if architecture.is_tied is None else {"tie_word_embeddings": architecture.is_tied(tensors)}
    config = architecture.read_config(raw | tied)
    model = architecture.model(config)
    parameters = dict(model.named_parameters())
    with torch.no_grad():
        for same in architecture.names(config):
            if set(same.ours) <= parameters.keys():                               # no bias, or tied, where it is not
                for name, tensor in same.read(tensors, parameters):
                    parameters.pop(name).copy_(tensor)
    if architecture.finish is not None:
        architecture.finish(model, raw)
    if parameters:
        missing = ", ".join(sorted(parameters)[:3])
        raise ValueError(f"{path}: got no weights for {missing}, which a {raw['model_type']} of this config has")
    known = {same.theirs for same in architecture.names(config)}
    unused = tuple(sorted(tensors.keys() - known))
    for name in unused:
        if not re.search(architecture.beside, name):
            raise ValueError(f"{path}: got {name}, which no part of a {raw['model_type']} of this config has")
    special, tokenizer = _special_tokens(path, raw), None
    if (path / "tokenizer.json").exists() and architecture.model is not ViT:
        tokenizer = tokenizers.Tokenizer.from_file(str(path / "tokenizer.json"))
        got, most = tokenizer.get_vocab_size(), config.vocab_size
        if got > most:
            raise ValueError(f"{path}: got a tokenizer of {got} tokens, expected at most the model's {most}")
    return Pretrained(model.to(device=device, dtype=dtype).eval(), tokenizer, special, unused)


def save(
    model: nn.Module,
    folder: str | Path,
    kind: str,
    tokenizer: tokenizers.Tokenizer | None = None,
    special: SpecialTokens = SPECIAL,
) -> None:
    """Write a model of ours as a checkpoint of `kind` ("gpt2", "llama", …) that transformers' `from_pretrained` reads.

    `special` are the ids of its vocabulary: those of `attncourse.data` unless said otherwise. Each file is there whole
    or not at all. Raises ValueError for an unknown kind, and for a model that is none: whose class is another, or whose
    config says what such a checkpoint cannot.
    """
    from safetensors.torch import save as pack

    architecture, path = _architecture(kind), Path(folder)
    if type(model) is not architecture.model:
        raise ValueError(f"model: got {type(model).__name__}, expected {architecture.model.__name__}, as {kind} is")
    config: Any = model.config
    raw = architecture.write_config(config) | {"model_type": kind}
    again = architecture.read_config(raw)
    differ = [name for name, value in vars(_settled(again)).items() if getattr(_settled(config), name) != value]
    if differ:
        said = ", ".join(f"{name}={getattr(config, name)!r}" for name in differ)
        raise ValueError(f"config: got {said}, expected what a checkpoint of {kind} can say")
    raw |= {"pad_token_id": special.pad, "bos_token_id": special.bos, "eos_token_id": special.eos}
    if architecture.model is EncoderDecoder:
        raw["decoder_start_token_id"] = special.bos
    parameters = dict(model.named_parameters())
    tensors = {
        same.theirs: same.write(parameters).detach().cpu().clone(memory_format=torch.contiguous_format)
        for same in (*architecture.twice, *architecture.names(config))
        if set(same.ours) <= parameters.keys() and same.computed is None
    }
    files.write_whole(path / CONFIG, json.dumps(raw | dict(architecture.written), indent=2))
    files.write_whole(path / WEIGHTS, pack(tensors, {"format": "pt"}))
    if tokenizer is not None:
        files.write_whole(path / "tokenizer.json", tokenizer.to_str(pretty=True))


# Tensors: which of ours are which of theirs


@dataclass(frozen=True)
class Same:
    """Parameters of ours that are one tensor of theirs."""

    ours: tuple[str, ...]
    """Several lie one below the other in theirs."""
    theirs: str
    transposed: bool = False
    """Theirs is (d_in, d_out)."""
    skip: int = 0
    """Rows in front of theirs that are never read."""
    shape: tuple[int, ...] = ()
    """Theirs has the same numbers in this shape."""
    computed: Tensor | None = None
    """Theirs is no part of the file: it is this."""

    def read(self, tensors: Mapping[str, Tensor], ours: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
        """Their tensor as ours: each name and what it is to hold."""
        whole = tensors.get(self.theirs, self.computed)
        if whole is None:
            raise ValueError(f"weights: got no {self.theirs}, expected it for {self.ours[0]}")
        whole = (whole.T if self.transposed and whole.ndim == 2 else whole)[self.skip :]
        shapes = [ours[name].shape for name in self.ours]
        sizes = [shape.numel() for shape in shapes]
        if whole.numel() != sum(sizes) or not (self.shape or whole.shape[1:] == shapes[0][1:]):
            wanted = " and ".join(str(tuple(shape)) for shape in shapes)
            got = tuple(whole.shape)
            raise ValueError(f"weights: got {self.theirs} of shape {got}, expected {wanted} by the config")
        for name, shape, part in zip(self.ours, shapes, whole.flatten().split(sizes), strict=True):
            yield name, part.view(shape)

    def write(self, ours: Mapping[str, Tensor]) -> Tensor:
        """Ours as their tensor."""
        whole = torch.cat([ours[name] for name in self.ours])
        if self.skip:
            whole = torch.cat([whole.new_zeros(self.skip, *whole.shape[1:]), whole])
        whole = whole.T if self.transposed and whole.ndim == 2 else whole
        return whole.reshape(self.shape) if self.shape else whole


def _parts(ours: str | Sequence[str], theirs: str, **how: Any) -> Iterator[Same]:
    """Weight and bias of a layer; of several that theirs keeps in one."""
    names = (ours,) if isinstance(ours, str) else ours
    for part in ("weight", "bias"):
        yield Same(tuple(f"{name}.{part}" for name in names), f"{theirs}.{part}", **how)


def _all(pairs: Mapping[str, str], ours: str = "", theirs: str = "") -> Iterator[Same]:
    for mine, its in pairs.items():
        yield from _parts(ours + mine, theirs + its)


def _heads(ours: str, theirs: str, names: str = "q_proj k_proj v_proj o_proj") -> Iterator[Same]:
    """An attention's four projections."""
    own = ("query", "key", "value", "output")
    yield from _all(dict(zip(own, names.split(), strict=True)), f"{ours}.sublayer.", theirs)


def _gpt2(config: TransformerConfig) -> Iterator[Same]:
    yield Same(("decoder.embedding.tokens.weight",), "transformer.wte.weight")
    yield Same(("decoder.embedding.positions.table",), "transformer.wpe.weight")
    yield Same(("output.weight",), "lm_head.weight")
    yield from _parts("decoder.stack.norm", "transformer.ln_f")
    for i in range(config.n_layers):
        ours, theirs = f"decoder.stack.blocks.{i}.", f"transformer.h.{i}."
        heads, ff = ours + "attention.sublayer.", ours + "ff.sublayer."
        yield from _all({"attention.norm": "ln_1", "ff.norm": "ln_2"}, ours, theirs)
        yield from _parts([heads + x for x in ("query", "key", "value")], theirs + "attn.c_attn", transposed=True)
        yield from _parts(heads + "output", theirs + "attn.c_proj", transposed=True)
        yield from _parts(ff + "up", theirs + "mlp.c_fc", transposed=True)
        yield from _parts(ff + "down", theirs + "mlp.c_proj", transposed=True)


def _llama(config: TransformerConfig) -> Iterator[Same]:
    yield Same(("decoder.embedding.tokens.weight",), "model.embed_tokens.weight")
    yield Same(("output.weight",), "lm_head.weight")
    yield Same(("decoder.stack.norm.weight",), "model.norm.weight")
    for i in range(config.n_layers):
        ours, theirs = f"decoder.stack.blocks.{i}.", f"model.layers.{i}."
        yield from _heads(ours + "attention", theirs + "self_attn.")
        yield from _all({"attention.norm": "input_layernorm", "ff.norm": "post_attention_layernorm"}, ours, theirs)
        yield from _all({f"ff.sublayer.{x}": f"mlp.{x}_proj" for x in ("gate", "up", "down")}, ours, theirs)


def _bert(config: TransformerConfig) -> Iterator[Same]:
    tables = {"tokens.weight": "word", "segments.weight": "token_type", "positions.table": "position"}
    for mine, its in tables.items():
        yield Same((f"embedding.{mine}",), f"bert.embeddings.{its}_embeddings.weight")
    yield from _parts("embedding.norm", "bert.embeddings.LayerNorm")
    for i in range(config.n_layers):
        yield from _bert_block(f"stack.blocks.{i}.", f"bert.encoder.layer.{i}.", "attention.self.")
        norms = {"attention.norm": "attention.output.LayerNorm", "ff.norm": "output.LayerNorm"}
        yield from _all(norms, f"stack.blocks.{i}.", f"bert.encoder.layer.{i}.")


def _bert_block(ours: str, theirs: str, heads: str) -> Iterator[Same]:
    yield from _heads(ours + "attention", theirs, f"{heads}query {heads}key {heads}value attention.output.dense")
    yield from _all({"ff.sublayer.up": "intermediate.dense", "ff.sublayer.down": "output.dense"}, ours, theirs)


def _vit(config: ViTConfig) -> Iterator[Same]:
    d_model, patch = config.d_model, config.patch
    image = (d_model, config.channels, patch, patch)
    yield Same(("class_token",), "vit.embeddings.cls_token", shape=(1, 1, d_model))
    yield Same(("positions.table",), "vit.embeddings.position_embeddings", shape=(1, 1 + config.n_patches, d_model))
    yield Same(("patches.weight",), "vit.embeddings.patch_embeddings.projection.weight", shape=image)
    yield Same(("patches.bias",), "vit.embeddings.patch_embeddings.projection.bias")
    yield from _all({"stack.norm": "vit.layernorm", "head": "classifier"})
    for i in range(config.n_layers):
        ours, theirs = f"stack.blocks.{i}.", f"vit.encoder.layer.{i}."
        yield from _bert_block(ours, theirs, "attention.attention.")
        yield from _all({"attention.norm": "layernorm_before", "ff.norm": "layernorm_after"}, ours, theirs)


def _bart(config: TransformerConfig, marian: bool = False) -> Iterator[Same]:
    yield Same(("encoder.embedding.tokens.weight",), "model.shared.weight")
    yield Same(("output.bias",), "final_logits_bias", shape=(1, config.vocab_size))
    for side, n_layers in (("encoder", config.n_layers), ("decoder", config.decoder_layers)):
        table = (f"{side}.embedding.positions.table",), f"model.{side}.embed_positions.weight"
        if marian:                                                # sines first, then cosines, and not in the file
            waves = sinusoidal(torch.arange(config.max_length), config.d_model)
            yield Same(*table, computed=torch.cat([waves[:, ::2], waves[:, 1::2]], dim=1))
        else:
            yield Same(*table, skip=2)
        yield from _parts(f"{side}.embedding.norm", f"model.{side}.layernorm_embedding")
        for i in range(n_layers):
            ours, theirs = f"{side}.stack.blocks.{i}.", f"model.{side}.layers.{i}."
            for mine, its in {"attention": "self_attn", "cross": "encoder_attn"}.items():
                if side == "decoder" or mine == "attention":
                    yield from _heads(ours + mine, f"{theirs}{its}.", "q_proj k_proj v_proj out_proj")
                    yield from _parts(f"{ours}{mine}.norm", f"{theirs}{its}_layer_norm")
            ff = {"ff.norm": "final_layer_norm", "ff.sublayer.up": "fc1", "ff.sublayer.down": "fc2"}
            yield from _all(ff, ours, theirs)


def _t5(config: TransformerConfig) -> Iterator[Same]:
    yield Same(("encoder.embedding.tokens.weight",), "shared.weight")
    yield Same(("output.weight",), "lm_head.weight")
    for side, n_layers in (("encoder", config.n_layers), ("decoder", config.decoder_layers)):
        yield Same((f"{side}.stack.norm.weight",), f"{side}.final_layer_norm.weight")
        first = f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"
        yield Same((f"{side}.stack.bias.bias.weight",), first)    # their first block keeps the biases of all
        for i in range(n_layers):
            ours, theirs = f"{side}.stack.blocks.{i}.", f"{side}.block.{i}.layer."
            layers = {"attention": "SelfAttention", "cross": "EncDecAttention", "ff": "DenseReluDense"}
            if side == "encoder":
                del layers["cross"]
            for j, (mine, its) in enumerate(layers.items()):
                yield from _parts(f"{ours}{mine}.norm", f"{theirs}{j}.layer_norm")
                if mine != "ff":
                    yield from _heads(ours + mine, f"{theirs}{j}.{its}.", "q k v o")
                else:
                    gated = config.activation != "relu"
                    names = {"gate": "wi_0", "up": "wi_1" if gated else "wi", "down": "wo"}
                    yield from _all(names, f"{ours}ff.sublayer.", f"{theirs}{j}.{its}.")


def _t5_is_tied(tensors: Mapping[str, Tensor]) -> bool:
    """By what is there: the config's `tie_word_embeddings` says, in T5, whether the states are scaled."""
    return "lm_head.weight" not in tensors or torch.equal(tensors["lm_head.weight"], tensors["shared.weight"])


@torch.no_grad()
def _scale_t5(model: EncoderDecoder, raw: Mapping[str, Any]) -> None:
    """T5 (not 1.1) multiplies the states by 1/√d_model before the output; the last norm's weight may as well be."""
    if raw.get("scale_decoder_outputs", raw.get("tie_word_embeddings", True)):
        norm: Any = model.decoder.stack.norm
        norm.weight.mul_(model.config.d_model**-0.5)


# Configs: which of our choices are which of their options


REQUIRED = object()
ACTIVATIONS = {
    "relu": "relu", "gelu": "gelu", "gelu_new": "gelu tanh", "gelu_pytorch_tanh": "gelu tanh", "silu": "silu",
    "swish": "silu",
}  # fmt: skip


@dataclass(frozen=True)
class Option:
    """One of theirs, which is one of ours."""

    theirs: str
    ours: str
    default: Any = REQUIRED
    """What it is where their file does not say."""
    choices: Mapping[Any, Any] | None = None
    """Theirs, and what each is called here."""

    def read(self, raw: Mapping[str, Any]) -> Any:
        value = raw.get(self.theirs, self.default)
        if value is REQUIRED:
            raise ValueError(f"config.json: got no {self.theirs}, expected it for {self.ours}")
        if self.choices is None:
            return value
        if value not in self.choices:
            raise ValueError(f"config.json: got {self.theirs}={value!r}, expected one of {', '.join(self.choices)}")
        return self.choices[value]

    def write(self, value: Any) -> Any:
        return value if self.choices is None else next((k for k, v in self.choices.items() if v == value), None)


@dataclass(frozen=True)
class Architecture:
    """How a kind of checkpoint is read and written."""

    model: type
    called: str
    """The class of transformers that reads what we write."""
    options: tuple[Option, ...]
    fixed: Mapping[str, Any]
    """What all of this kind have in common, in our words."""
    names: Callable[[Any], Iterable[Same]]
    demands: Mapping[str, Any]
    """Their options that ours can only take in one way."""
    prefix: str = ""
    """What names begin with unless the backbone was saved alone."""
    beside: str = r"$^"
    """Names that may be there and are no part of the model."""
    mirrored: Mapping[str, str] = field(default_factory=dict)
    """Options that must be as another, because ours has one for both."""
    is_tied: Callable[[Mapping[str, Tensor]], bool] | None = None
    """Whether the output is the embedding, where their config does not tell."""
    finish: Callable[[Any, Mapping[str, Any]], None] | None = None
    """What is left to be done to a model when its weights are there."""
    twice: tuple[Same, ...] = ()
    """Parameters that are written under a second name, unless ours has something else there,"""
    written: Mapping[str, Any] = field(default_factory=dict)
    """and options that say so."""

    def read_config(self, raw: Mapping[str, Any]) -> Any:
        raw = _flat(raw)
        for name, wanted in self.demands.items():
            if raw.get(name, wanted) != wanted:
                raise ValueError(f"config.json: got {name}={raw[name]!r}, expected {wanted!r}: ours has no other")
        for name, other in self.mirrored.items():
            if raw.get(name, raw.get(other)) != raw.get(other):
                raise ValueError(f"config.json: got {name}={raw[name]!r}, expected {raw.get(other)!r}, as {other} is")
        read = {option.ours: option.read(raw) for option in self.options}
        return (ViTConfig if self.model is ViT else TransformerConfig)(**self.fixed, **read)

    def write_config(self, config: Any) -> dict[str, Any]:
        settled = _settled(config)
        raw = {option.theirs: option.write(getattr(settled, option.ours)) for option in self.options}
        if "rope_theta" in raw:
            raw["rope_parameters"] = {"rope_type": "default", "rope_theta": raw["rope_theta"]}
        if "num_labels" in raw:
            raw["id2label"] = {str(i): f"LABEL_{i}" for i in range(raw.pop("num_labels"))}
        mirrored = {name: raw[other] for name, other in self.mirrored.items()}
        return raw | mirrored | dict(self.demands) | {"architectures": [self.called]}

    def full_name(self, name: str) -> str:
        """A tensor's name as the table has it: with the prefix, and as names were before 2019 (BERT's gamma, beta)."""
        name = re.sub(r"LayerNorm\.gamma$", "LayerNorm.weight", re.sub(r"LayerNorm\.beta$", "LayerNorm.bias", name))
        whole = not self.prefix or name.startswith(self.prefix) or re.match(r"lm_head|final_logits|cls\.|classif", name)
        return name if whole else self.prefix + name


def _flat(raw: Mapping[str, Any]) -> dict[str, Any]:
    """Their options without folders, as older files have them."""
    rope = {**(raw.get("rope_scaling") or {}), **(raw.get("rope_parameters") or {})}
    flat = {**raw, **rope, "rope_type": rope.get("rope_type", rope.get("type", "default"))}
    if "id2label" in raw:
        flat["num_labels"] = len(raw["id2label"])
    return flat


def _settled(config: Any) -> Any:
    """With all that follows from the rest said. Left out: chance, and what other positions than its own would read."""
    said = dict(
        n_kv_heads=config.kv_heads, d_head=config.width_head, d_ff=config.width_ff, final_norm=config.ends_in_norm,
        n_layers_decoder=config.decoder_layers, scale_embedding=config.scales_embedding, share_embedding=True,
        target_vocab_size=None, dropout=0.0, dropout_attention=0.0, dropout_ff=0.0,
    )  # fmt: skip
    others = {
        "max_length": config.max_positions is None,
        "max_distance": config.positions not in ("shaw", "bucketed"),
        "n_buckets": config.positions != "bucketed",
        "rope_base": config.positions != "rope",
        "rope_style": config.positions != "rope",
    }
    unsaid = {name: getattr(TransformerConfig, name) for name, unread in others.items() if unread}
    return replace(config, **said, **unsaid)


_WORDS = Option("vocab_size", "vocab_size")
_TIED, _UNTIED = (Option("tie_word_embeddings", "tie_output", tied) for tied in (True, False))
_BART_OPTIONS = (
    _WORDS, Option("d_model", "d_model"), Option("encoder_layers", "n_layers"),
    Option("decoder_layers", "n_layers_decoder"), Option("encoder_attention_heads", "n_heads"),
    Option("encoder_ffn_dim", "d_ff"), Option("max_position_embeddings", "max_length", 1024),
    Option("activation_function", "activation", "gelu", ACTIVATIONS),
    Option("scale_embedding", "scale_embedding", False), Option("dropout", "dropout", 0.1),
)  # fmt: skip
_BART_MIRRORED = {"decoder_attention_heads": "encoder_attention_heads", "decoder_ffn_dim": "encoder_ffn_dim"}
_LLAMA = Architecture(
    model=LanguageModel,
    called="LlamaForCausalLM",
    options=(
        _WORDS, _UNTIED, Option("hidden_size", "d_model"), Option("num_hidden_layers", "n_layers"),
        Option("num_attention_heads", "n_heads"), Option("num_key_value_heads", "n_kv_heads", None),
        Option("head_dim", "d_head", None), Option("intermediate_size", "d_ff"),
        Option("max_position_embeddings", "max_length", 2048), Option("rms_norm_eps", "norm_eps", 1e-6),
        Option("rope_theta", "rope_base", 10000.0),
        Option("hidden_act", "activation", "silu", {"silu": "swiglu", "gelu_pytorch_tanh": "geglu tanh"}),
    ),
    fixed=dict(norm="rms", positions="rope", rope_style="half", bias=False, dropout=0.0),
    names=_llama,
    demands={"rope_type": "default", "attention_bias": False, "mlp_bias": False},
    prefix="model.",
    beside=r"rotary_emb\.inv_freq$|^lm_head\.weight$",
)  # fmt: skip
ARCHITECTURES = {
    "gpt2": Architecture(
        model=LanguageModel,
        called="GPT2LMHeadModel",
        options=(
            _WORDS, _TIED, Option("n_embd", "d_model"), Option("n_layer", "n_layers"), Option("n_head", "n_heads"),
            Option("n_inner", "d_ff", None), Option("n_positions", "max_length"),
            Option("layer_norm_epsilon", "norm_eps", 1e-5), Option("resid_pdrop", "dropout", 0.1),
            Option("activation_function", "activation", "gelu_new", ACTIVATIONS),
        ),
        fixed=dict(positions="learned"),
        names=_gpt2,
        demands={
            "scale_attn_weights": True, "scale_attn_by_inverse_layer_idx": False, "add_cross_attention": False,
        },
        prefix="transformer.",
        beside=r"attn\.(masked_)?bias$|^lm_head\.weight$",
    ),
    "llama": _LLAMA,
    "mistral": replace(
        _LLAMA,
        called="MistralForCausalLM",
        options=(*_LLAMA.options, Option("sliding_window", "window", None)),
        demands={"rope_type": "default"},
    ),
    "bert": Architecture(
        model=Encoder,
        called="BertModel",
        options=(
            _WORDS, Option("hidden_size", "d_model"), Option("num_hidden_layers", "n_layers"),
            Option("num_attention_heads", "n_heads"), Option("intermediate_size", "d_ff"),
            Option("max_position_embeddings", "max_length", 512), Option("type_vocab_size", "n_segments", 2),
            Option("layer_norm_eps", "norm_eps", 1e-12), Option("hidden_dropout_prob", "dropout", 0.1),
            Option("hidden_act", "activation", "gelu", ACTIVATIONS),
        ),
        fixed=dict(positions="learned", norm_place="post", embedding_norm=True),
        names=_bert,
        demands={"position_embedding_type": "absolute"},
        prefix="bert.",
        beside=r"pooler|^cls\.|^classifier|position_ids$",
    ),
    "bart": Architecture(
        model=EncoderDecoder,
        called="BartForConditionalGeneration",
        options=_BART_OPTIONS,
        fixed=dict(positions="learned", norm_place="post", embedding_norm=True, output_bias=True),
        names=_bart,
        demands={"tie_word_embeddings": True},
        mirrored=_BART_MIRRORED,
        beside=r"(en|de)coder\.embed_tokens\.weight$|^lm_head\.weight$",
    ),
    "marian": Architecture(
        model=EncoderDecoder,
        called="MarianMTModel",
        options=_BART_OPTIONS,
        fixed=dict(positions="learned", norm_place="post", output_bias=True),
        names=partial(_bart, marian=True),
        demands={"tie_word_embeddings": True, "share_encoder_decoder_embeddings": True},
        mirrored=_BART_MIRRORED | {"decoder_vocab_size": "vocab_size"},
        beside=r"(en|de)coder\.embed_tokens\.weight$|^lm_head\.weight$",
    ),
    "t5": Architecture(
        model=EncoderDecoder,
        called="T5ForConditionalGeneration",
        options=(
            _WORDS, _TIED, Option("d_model", "d_model"), Option("num_layers", "n_layers"),
            Option("num_decoder_layers", "n_layers_decoder", None), Option("num_heads", "n_heads"),
            Option("d_kv", "d_head"), Option("d_ff", "d_ff"),
            Option("relative_attention_num_buckets", "n_buckets", 32),
            Option("relative_attention_max_distance", "max_distance", 128),
            Option("layer_norm_epsilon", "norm_eps", 1e-6), Option("dropout_rate", "dropout", 0.1),
            Option("feed_forward_proj", "activation", "relu", {"relu": "relu", "gated-gelu": "geglu tanh"}),
        ),
        fixed=dict(positions="bucketed", norm="rms", bias=False, scale_scores=False),
        names=_t5,
        demands={},
        is_tied=_t5_is_tied,
        finish=_scale_t5,
        twice=(Same(("encoder.embedding.tokens.weight",), "lm_head.weight"),),
        written={"tie_word_embeddings": False, "scale_decoder_outputs": False},
        beside=r"(en|de)coder\.embed_tokens\.weight$|^lm_head\.weight$|EncDecAttention\.relative_attention_bias",
    ),
    "vit": Architecture(
        model=ViT,
        called="ViTForImageClassification",
        options=(
            Option("hidden_size", "d_model"), Option("num_hidden_layers", "n_layers"),
            Option("num_attention_heads", "n_heads"), Option("intermediate_size", "d_ff"),
            Option("image_size", "image_size"), Option("patch_size", "patch"), Option("num_channels", "channels", 3),
            Option("num_labels", "n_classes", 2), Option("layer_norm_eps", "norm_eps", 1e-12),
            Option("hidden_dropout_prob", "dropout", 0.0), Option("hidden_act", "activation", "gelu", ACTIVATIONS),
        ),
        fixed=dict(positions="learned"),
        names=_vit,
        demands={"qkv_bias": True},
        prefix="vit.",
        beside=r"pooler",
    ),
}  # fmt: skip


def _architecture(kind: Any) -> Architecture:
    if kind not in ARCHITECTURES:
        raise ValueError(f"model_type: got {kind!r}, expected one of {', '.join(ARCHITECTURES)}")
    return ARCHITECTURES[kind]


# Files


def _found(folder: str | Path) -> Path:
    path = Path(folder)
    if path.is_dir():
        return path
    if re.fullmatch(r"[\w.-]+(/[\w.-]+)?", str(folder)):
        try:
            from huggingface_hub import snapshot_download

            return Path(snapshot_download(str(folder), allow_patterns=["*.json", "*.safetensors"]))
        except ImportError:
            pass
        except Exception as error:  # a hub that cannot be reached fails in a dozen ways
            reason = str(error).splitlines()[0]
            raise FileNotFoundError(f"{folder}: no such folder here, and the hub does not give it: {reason}") from error
    raise FileNotFoundError(f"{folder}: no such folder; expected one with {CONFIG} and {WEIGHTS}")


def _json(path: Path) -> dict[str, Any]:
    if not path.exists():
        raise FileNotFoundError(f"{path}: missing; expected what transformers' save_pretrained writes")
    try:
        read = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: cut short, or no JSON ({error})") from error
    if not isinstance(read, dict):
        raise ValueError(f"{path}: got {type(read).__name__}, expected an object")
    return read


def _tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a checkpoint, which may lie in several files."""
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load_file
    except ImportError as error:
        raise ImportError("attncourse.pretrained needs safetensors: pip install 'attncourse[train]'") from error
    names = [WEIGHTS]
    if (path / INDEX).exists():
        names = sorted(set(_json(path / INDEX)["weight_map"].values()))
    tensors: dict[str, Tensor] = {}
    for name in names:
        if not (path / name).exists():
            old = " (older files, pytorch_model.bin, are opened by transformers: save them anew)"
            raise FileNotFoundError(f"{path / name}: missing{old if (path / 'pytorch_model.bin').exists() else ''}")
        try:
            tensors |= load_file(path / name)
        except SafetensorError as error:
            raise ValueError(f"{path / name}: cut short, or no safetensors file ({error})") from error
    return tensors


def _special_tokens(path: Path, raw: Mapping[str, Any]) -> SpecialTokens:
    if (path / "generation_config.json").exists():
        said = _json(path / "generation_config.json").items()
        raw = {**raw, **{name: value for name, value in said if value is not None}}

    def one(name: str) -> Any:
        token = raw.get(name)
        return token[0] if isinstance(token, list) else token     # several may end a text: the first is the usual one

    starts = [one(name) for name in ("decoder_start_token_id", "bos_token_id", "pad_token_id")]
    start = next((token for token in starts if token is not None), 0)
    return SpecialTokens(one("pad_token_id"), start, one("eos_token_id"))
