"""What transformers has saved is loaded and computes the same; what we save, transformers reads."""

import json

import pytest
import tokenizers
import torch
import torch.nn.functional as F
import transformers
from copying import assert_close, randomise
from safetensors.torch import load_file, save_file

from attncourse.attention import lengths_to_mask
from attncourse.beyond_text import ViT
from attncourse.decoding import SpecialTokens, beam_search
from attncourse.pretrained import ARCHITECTURES, load, save
from attncourse.transformer import Encoder, EncoderDecoder, LanguageModel, TransformerConfig

WORDS, D_MODEL, D_FF, HEADS, LONGEST = 23, 16, 24, 4, 32
BART = dict(
    vocab_size=WORDS, d_model=D_MODEL, encoder_layers=2, decoder_layers=3, encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS, encoder_ffn_dim=D_FF, decoder_ffn_dim=D_FF, max_position_embeddings=LONGEST,
    pad_token_id=0, bos_token_id=1, eos_token_id=2, decoder_start_token_id=3, forced_eos_token_id=None,
)  # fmt: skip
LLAMA = dict(
    vocab_size=WORDS, hidden_size=D_MODEL, intermediate_size=D_FF, num_hidden_layers=2, num_attention_heads=HEADS,
    num_key_value_heads=2, max_position_embeddings=LONGEST, eos_token_id=2,
    rope_parameters=dict(rope_type="default", rope_theta=500.0),
)  # fmt: skip
BERT = dict(
    hidden_size=D_MODEL, intermediate_size=D_FF, num_hidden_layers=2, num_attention_heads=HEADS, layer_norm_eps=1e-6
)
GPT2 = dict(vocab_size=WORDS, n_positions=LONGEST, n_embd=D_MODEL, n_layer=2, n_head=HEADS, eos_token_id=2)
T5 = dict(
    vocab_size=WORDS, d_model=D_MODEL, d_kv=6, d_ff=D_FF, num_layers=2, num_heads=HEADS,
    relative_attention_num_buckets=8, relative_attention_max_distance=7, pad_token_id=0, eos_token_id=2,
    decoder_start_token_id=0,
)  # fmt: skip
MADE = {
    "gpt2": lambda: transformers.GPT2LMHeadModel(transformers.GPT2Config(**GPT2)),
    "gpt2 untied": lambda: transformers.GPT2LMHeadModel(
        transformers.GPT2Config(**GPT2, tie_word_embeddings=False, activation_function="relu", n_inner=20)
    ),
    "llama": lambda: transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA)),
    "llama tied": lambda: transformers.LlamaForCausalLM(
        transformers.LlamaConfig(**LLAMA, tie_word_embeddings=True, head_dim=6)
    ),
    "mistral": lambda: transformers.MistralForCausalLM(transformers.MistralConfig(**LLAMA, sliding_window=3)),
    "bert": lambda: transformers.BertForMaskedLM(
        transformers.BertConfig(vocab_size=WORDS, max_position_embeddings=LONGEST, **BERT)
    ),
    "bart": lambda: transformers.BartForConditionalGeneration(transformers.BartConfig(**BART, scale_embedding=True)),
    "marian": lambda: transformers.MarianMTModel(transformers.MarianConfig(**BART, activation_function="swish")),
    "t5": lambda: transformers.T5ForConditionalGeneration(transformers.T5Config(**T5)),
    "t5 v1.1": lambda: transformers.T5ForConditionalGeneration(
        transformers.T5Config(**T5, feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    ),
    "vit": lambda: transformers.ViTForImageClassification(
        transformers.ViTConfig(image_size=8, patch_size=4, num_labels=5, **BERT)
    ),
}
WRITERS = [name for name in MADE if name not in ("bert", "vit")]


def made(name):
    """A small one of theirs, with random weights."""
    theirs = MADE[name]().eval()
    theirs.config._attn_implementation = "sdpa"
    randomise(theirs)
    if "final_logits_bias" in dict(theirs.named_buffers()):
        theirs.final_logits_bias.normal_()
    return theirs


@pytest.fixture
def saved(tmp_path):
    def save_one(name):
        theirs = made(name)
        theirs.save_pretrained(tmp_path / "theirs")
        return theirs, tmp_path / "theirs"

    return save_one


def text(batch=3, n=7):
    return torch.randint(4, WORDS, (batch, n))


def padded():
    lengths = torch.tensor([9, 4, 6])
    mask = lengths_to_mask(lengths, 9)
    return text(3, 9) * mask, lengths, mask


def outputs(name, ours, theirs):
    """What the two say to the same inputs."""
    if isinstance(ours, ViT):
        images = torch.randn(2, 3, 8, 8)
        return ours(images), theirs(images).logits
    if isinstance(ours, LanguageModel):
        read = text()
        return ours(read), theirs(read).logits
    source, lengths, mask = padded()
    if isinstance(ours, Encoder):
        states = theirs.bert(input_ids=source, attention_mask=mask.long()).last_hidden_state
        return ours(source, lengths)[mask], states[mask]
    target = text()
    return ours(source, lengths, target), theirs(
        input_ids=source, attention_mask=mask.long(), decoder_input_ids=target
    ).logits


@pytest.mark.parametrize("name", MADE)
@torch.no_grad()
def test_a_saved_model_is_loaded_and_computes_the_same(name, saved):
    theirs, folder = saved(name)
    loaded = load(folder)
    assert type(loaded.model) is ARCHITECTURES[name.split()[0]].model and not loaded.model.training
    assert_close(*outputs(name, loaded.model, theirs))


@pytest.mark.parametrize("name", MADE)
@torch.no_grad()
def test_what_is_saved_is_read_by_transformers_and_computes_the_same(name, saved, tmp_path):
    ours = load(saved(name)[1]).model
    randomise(ours)
    if name == "marian":                                          # its positions are computed, and in no file
        ours.load_state_dict(
            {k: v for k, v in load(tmp_path / "theirs").model.state_dict().items() if "positions" in k}, strict=False
        )
    kind = name.split()[0]
    save(ours, tmp_path / "ours", kind)
    reader = transformers.BertForMaskedLM if kind == "bert" else getattr(transformers, ARCHITECTURES[kind].called)
    theirs = reader.from_pretrained(tmp_path / "ours").eval()
    assert_close(*outputs(name, ours, theirs))
    assert_close(*outputs(name, load(tmp_path / "ours").model, theirs))


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("name", WRITERS)
@torch.no_grad()
def test_a_loaded_model_writes_what_transformers_writes(name, beams, saved):
    theirs, folder = saved(name)
    loaded = load(folder)
    source, mask = text(3, 5), torch.ones(3, 5, dtype=torch.long)
    never = dict(length_penalty=0.0, early_stopping="never") if beams > 1 else {}
    expected = theirs.generate(
        source, attention_mask=mask, max_new_tokens=8, do_sample=False, num_beams=beams, **never,
        pad_token_id=loaded.special.fill, suppress_tokens=None if loaded.special.pad is None else [loaded.special.pad],
    )  # fmt: skip
    expected = expected[:, 5:] if isinstance(loaded.model, LanguageModel) else expected[:, 1:]
    if beams > 1:
        lengths = torch.full((3,), 5)
        written = beam_search(loaded.model, source, lengths, beams, 0.0, 8, special=loaded.special).tokens[:, 0]
    else:
        written = loaded.generate(source, max_length=8)
    width = max(written.shape[1], expected.shape[1])
    same = [F.pad(tokens, (0, width - tokens.shape[1]), value=loaded.special.fill) for tokens in (written, expected)]
    assert torch.equal(*same)


def test_sampling_from_a_loaded_model_draws_the_same_from_the_same_seed(saved):
    loaded = load(saved("gpt2")[1])
    draws = [
        loaded.generate(text(2, 4) * 0 + 5, temperature=1.0, top_k=5, generator=torch.Generator().manual_seed(seed))
        for seed in (0, 0, 1)
    ]
    assert torch.equal(draws[0], draws[1]) and not torch.equal(draws[0], draws[2])


def byte_tokenizer(size):
    vocabulary = {chr(97 + i): i for i in range(size)}
    return tokenizers.Tokenizer(tokenizers.models.BPE(vocabulary, []))


def test_texts_are_completed_by_the_tokenizer_of_the_folder(saved):
    _, folder = saved("gpt2")
    byte_tokenizer(WORDS).save(str(folder / "tokenizer.json"))
    loaded = load(folder)
    (alone,) = loaded.complete(["abd"], max_length=6)
    together = loaded.complete(["abd", "efghi"], max_length=6)
    assert alone == together[0] and len(together) == 2 and set(alone) <= set("abcdefghijklmnopqrstuvw ")


def test_names_without_the_backbones_prefix_and_berts_old_names_are_understood(tmp_path):
    theirs = made("bert")
    theirs.bert.save_pretrained(tmp_path)                         # its backbone alone: names without "bert."
    old = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta"): tensor
        for name, tensor in load_file(tmp_path / "model.safetensors").items()
    }
    save_file(old, tmp_path / "model.safetensors")
    with torch.no_grad():
        assert_close(*outputs("bert", load(tmp_path).model, theirs))


def test_a_checkpoint_in_several_files_is_read(tmp_path):
    theirs = made("llama")
    theirs.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    with torch.no_grad():
        assert_close(*outputs("llama", load(tmp_path).model, theirs))


def test_what_is_left_over_is_told(saved):
    assert "cls.predictions.bias" in load(saved("bert")[1]).unused


def test_a_checkpoint_can_be_loaded_in_half_precision(saved):
    assert {p.dtype for p in load(saved("gpt2")[1], dtype=torch.bfloat16).model.parameters()} == {torch.bfloat16}


def changed(folder, **options):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | options))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"model_type": "resnet"}, r"^model_type: got 'resnet', expected one of gpt2, llama"),
        ({"scale_attn_by_inverse_layer_idx": True}, r"^config.json: got scale_attn_by_inverse_layer_idx=True, expe"),
        ({"activation_function": "mish"}, r"^config.json: got activation_function='mish', expected one of relu, gelu"),
        ({"n_embd": 20}, r"^weights: got transformer.wte.weight of shape \(23, 16\), expected \(23, 20\) by the"),
        ({"n_layer": 3}, r"^weights: got no transformer.h.2.ln_1.weight, expected it for decoder.stack.blocks.2"),
        ({"n_layer": 1}, r"got transformer.h.1.\S+, which no part of a gpt2 of this config has"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused_in_one_line(options, message, saved):
    _, folder = saved("gpt2")
    changed(folder, **options)
    with pytest.raises(ValueError, match=message) as refusal:
        load(folder)
    assert "\n" not in str(refusal.value)


def test_stretched_rotary_embeddings_are_refused(saved):
    _, folder = saved("llama")
    changed(folder, rope_parameters={"rope_type": "llama3", "rope_theta": 500.0})
    with pytest.raises(ValueError, match=r"^config.json: got rope_type='llama3', expected 'default'"):
        load(folder)


def test_a_file_that_is_cut_short_is_refused(saved):
    _, folder = saved("gpt2")
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"model.safetensors: cut short, or no safetensors file"):
        load(folder)


def test_a_tokenizer_with_more_tokens_than_the_model_is_refused(saved):
    _, folder = saved("gpt2")
    byte_tokenizer(WORDS + 1).save(str(folder / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"got a tokenizer of 24 tokens, expected at most the model's 23"):
        load(folder)


@pytest.mark.parametrize("gone", ["config.json", "model.safetensors"])
def test_a_missing_file_is_named(gone, saved):
    _, folder = saved("gpt2")
    (folder / gone).unlink()
    with pytest.raises(FileNotFoundError, match=rf"{gone}: missing"):
        load(folder)


def test_a_folder_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no such folder; expected one with config.json"):
        load(tmp_path / "nothing here")


SMALL = dict(vocab_size=WORDS, d_model=D_MODEL, n_heads=HEADS)


@pytest.mark.parametrize(
    ("model", "kind", "message"),
    [
        (Encoder, "gpt2", r"^model: got Encoder, expected LanguageModel, as gpt2 is"),
        (LanguageModel, "gpt2", r"^config: got positions='sinusoidal', scale_embedding=None, expected what a che"),
        (EncoderDecoder, "opt", r"^model_type: got 'opt', expected one of"),
    ],
)
def test_a_model_that_no_such_checkpoint_can_hold_is_not_saved(model, kind, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        save(model(TransformerConfig(**SMALL)), tmp_path / "x", kind)
    assert not (tmp_path / "x").exists()


def test_the_ids_of_special_tokens_come_back(tmp_path):
    special = SpecialTokens(pad=None, bos=7, eos=9)
    model = LanguageModel(TransformerConfig(**SMALL, positions="learned", activation="gelu tanh"))
    save(model, tmp_path, "gpt2", byte_tokenizer(WORDS), special)
    loaded = load(tmp_path)
    assert loaded.special == special and loaded.tokenizer.get_vocab_size() == WORDS
