"""Kimi-Linear against the implementation in the transformers library, on random checkpoints in both directions, float32 on a CPU.

Equal: logits of every position (RMS of the difference 2e-5 of the RMS of the logits, the rounding of float32 in another order), and greedy
text. What differs: the *released* remote code of the 48B adds the router's correction bias to the weights too, the library and k3 use it for
the choice only. The library writes a dense layer as block_sparse_moe.gate_proj (k3 reads both names) and ignores tie_word_embeddings.
"""
import pytest
import torch
import transformers

from safetensors.torch import load_file

IDS = [(17 * i * i + 5 * i + 3) % 300 for i in range(75)]  # longer than a chunk of 64

SHAPES = {
    "small": dict(num_hidden_layers=4),
    "more_mla_heads": dict(num_hidden_layers=5, num_attention_heads=4, num_key_value_heads=4, kv_lora_rank=24, v_head_dim=24),
    "no_renormalisation": dict(num_hidden_layers=3, norm_topk_prob=False, routed_scaling_factor=1.0, num_experts_per_tok=3),
    "all_dense": dict(num_hidden_layers=4, mlp_layer_types=["dense"] * 4),
    "two_dense_layers": dict(num_hidden_layers=5, mlp_layer_types=["dense", "dense", "sparse", "sparse", "sparse"], n_shared_experts=2,
                             layer_types=["linear_attention", "full_attention", "linear_attention", "linear_attention", "full_attention"]),
}


def config_of(**changes):
    values = dict(vocab_size=300, hidden_size=48, intermediate_size=80, moe_intermediate_size=32, num_attention_heads=2, num_key_value_heads=2,
                  kv_lora_rank=32, qk_rope_head_dim=8, qk_nope_head_dim=16, v_head_dim=16, num_local_experts=8, num_experts_per_tok=2,
                  linear_head_dim=16, linear_num_heads=3, max_position_embeddings=512, initializer_range=0.1, pad_token_id=0, bos_token_id=1,
                  eos_token_id=299)
    layers = changes["num_hidden_layers"]  # the library's cache needs at least one attention layer
    values["layer_types"] = ["full_attention" if layer % 4 == 3 or layer == layers - 1 else "linear_attention" for layer in range(layers)]
    return transformers.KimiLinearConfig(**(values | changes))


def random_model(config, seed):
    torch.manual_seed(seed)
    model = transformers.KimiLinearForCausalLM(config).float().eval()
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if name.endswith("e_score_correction_bias"):
                tensor.normal_(0, 0.3)  # zero at initialisation; here it must change the choice and nothing else
            elif name.endswith("norm.weight"):
                tensor.normal_(1, 0.2)
    return model


def logits_of(k3, folder, ids, out):
    k3("logits", folder, "--ids", ",".join(map(str, ids)), "--dtype", "float32", "--device", "cpu", "--out", out)
    return load_file(str(out))["logits"]


def assert_same_logits(got, model, ids):
    with torch.no_grad():
        want = model(torch.tensor([ids])).logits[0]
    error = ((got - want).square().mean() / want.square().mean()).sqrt().item()
    worst = (got - want).abs().amax(dim=1)
    assert error < 2e-5, f"relative RMS {error:.2e}, worst at position {worst.argmax().item()}: {worst.max().item():.2e}"


def greedy_of(k3, folder, ids, count):
    answer = k3.json("generate", folder, "--ids", ",".join(map(str, ids)), "--max-tokens", count, "--dtype", "float32", "--device", "cpu", "--json")
    return answer["ids"]


def assert_same_greedy(got, model, ids, count):
    with torch.no_grad():
        want = model.generate(torch.tensor([ids]), max_new_tokens=count, do_sample=False)[0, len(ids):].tolist()
    assert got == want


@pytest.mark.parametrize("shape", SHAPES)
def test_their_checkpoint_read_here(k3, tmp_path, shape):
    model = random_model(config_of(**SHAPES[shape]), seed=len(shape))
    model.save_pretrained(tmp_path / "model")
    assert_same_logits(logits_of(k3, tmp_path / "model", IDS, tmp_path / "out.safetensors"), model, IDS)
    assert_same_greedy(greedy_of(k3, tmp_path / "model", IDS[:9], 20), model, IDS[:9], 20)


@pytest.mark.parametrize("layers, heads, experts", [(4, 2, 8), (5, 4, 16)])
def test_our_checkpoint_read_there(k3, new_model, tmp_path, layers, heads, experts):
    folder = new_model("kimi-linear", seed=layers, num_hidden_layers=layers, hidden_size=64, intermediate_size=96, moe_intermediate_size=32,
                       num_experts=experts, num_experts_per_token=2, num_attention_heads=heads, num_key_value_heads=heads, kv_lora_rank=32,
                       qk_nope_head_dim=16, qk_rope_head_dim=8, v_head_dim=16, vocab_size=300, initializer_range=0.1,
                       **{"linear_attn_config.num_heads": 2, "linear_attn_config.head_dim": 32})
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    assert isinstance(model, transformers.KimiLinearForCausalLM)
    assert_same_logits(logits_of(k3, folder, IDS, tmp_path / "out.safetensors"), model, IDS)
    assert_same_greedy(greedy_of(k3, folder, IDS[:9], 20), model, IDS[:9], 20)


def test_the_golden_checkpoint_read_there(k3, golden):
    model = transformers.AutoModelForCausalLM.from_pretrained(golden / "kimi-linear-tiny", dtype=torch.float32).eval()
    expected = load_file(str(golden / "kimi-linear-tiny" / "expected.safetensors"))
    assert_same_logits(expected["a.logits"], model, expected["a.ids"].tolist())
