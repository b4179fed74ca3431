"""Records what the KDA layers of models/nano really see: nano.bin, inputs of tests/kernels_cuda/recorded_tests.cu.

    .venv/bin/python tests/data/kda/record.py [--k3 PROGRAM]

Two sequences, a paragraph and a conversation in XTML, run through layer 0 and into layer 1 in fp32
(dense, no expert is needed); of layer 0 all heads, of layer 1 the head that forgets most slowly. Layout in README.md.
"""
import argparse
import json
import pathlib
import struct
import subprocess

import torch
from safetensors import safe_open
from torch.nn.functional import linear, rms_norm, silu, softplus

ROOT = pathlib.Path(__file__).resolve().parents[3]
MODEL = ROOT / "models" / "nano"
PARAGRAPH = """The river bends twice before it reaches the old mill. In April the miller counts the sacks: 48 of rye,
31 of wheat, 7 of oats. He writes the numbers on the door, adds them with a short pencil, and each year the sum is a
little smaller than the year before. Nobody minds. The wheel turns, the wheel turns, the wheel turns, and the cat sleeps
on the warm side of the stone."""
MESSAGES = [
    ("user", "Tom has 17 apples and buys 25 more. How many apples does Tom have?"),
    ("assistant", "Tom has 42 apples."),
    ("user", "There were 36 birds in a tree and 19 flew away. How many birds are left?"),
    ("assistant", "17 birds are left."),
]


def token_ids(program, *arguments, text):
    done = subprocess.run([program, *arguments], input=text.encode(), capture_output=True, check=True)
    return [int(word) for word in done.stdout.split()]


class Weights:
    """Tensors of the checkpoint in fp32, by name."""

    def __init__(self, folder):
        self.files = [safe_open(path, "pt") for path in sorted(folder.glob("*.safetensors"))]
        self.where = {name: file for file in self.files for name in file.keys()}

    def __call__(self, name):
        name = "language_model.model." + name
        return self.where[name].get_tensor(name).float()


def norm(x, weight, eps):
    return rms_norm(x, (x.shape[-1],), weight, eps)


def mix(weights, name, sources, eps):
    """Attention Residuals: softmax over the sources of the normalised source times the query."""
    query = (weights(f"{name}_norm.weight") * weights(f"{name}_proj.weight")).flatten()
    values = torch.stack(sources)
    scores = (values @ query) * torch.rsqrt(values.square().mean(-1) + eps)
    return (torch.softmax(scores, 0)[..., None] * values).sum(0)


def projections(weights, layer, x, heads, dim):
    """Inputs of a KDA layer after its projections, rounded to bf16 as the model's type is."""
    w = lambda name: weights(f"layers.{layer}.self_attn.{name}")
    by_head = lambda y: y.view(-1, heads, dim)
    record = {
        "qkv": torch.stack([by_head(linear(x, w(f"{n}_proj.weight"))) for n in "qkv"], 1),
        "z": by_head(linear(linear(x, w("f_a_proj.weight")), w("f_b_proj.weight"))),
        "gate": by_head(linear(x, w("g_proj.weight"))),
        "b": linear(x, w("b_proj.weight")),
    }
    record = {name: values.bfloat16().float() for name, values in record.items()}
    record["taps"] = torch.stack([w(f"{n}_conv1d.weight").view(heads, dim, 4) for n in "qkv"])
    record["a_log"] = w("A_log")
    record["dt_bias"] = w("dt_bias").view(heads, dim)
    record["norm"] = w("o_norm.weight")
    return record


def log_decay(record, bound):
    speed, logits = record["a_log"].exp()[:, None], record["z"] + record["dt_bias"]
    return bound * torch.sigmoid(speed * logits) if bound else -speed * softplus(logits)


def attention(record, starts, bound, eps):
    """The layer token by token, without its output projection."""
    decay, beta = log_decay(record, bound).exp(), torch.sigmoid(record["b"])
    out = torch.empty_like(record["gate"])
    unit = lambda x: x * torch.rsqrt(x.square().sum(-1, keepdim=True) + 1e-6)
    for start, end in zip(starts, starts[1:]):
        raw = torch.cat([torch.zeros(3, *record["qkv"].shape[1:]), record["qkv"][start:end]])
        q, k, v = silu(sum(raw[i : i + end - start] * record["taps"][..., i] for i in range(4))).unbind(1)
        q, k = unit(q), unit(k)
        state = torch.zeros(q.shape[1], q.shape[2], q.shape[2])
        for t in range(end - start):
            state = state * decay[start + t][..., None]
            u = beta[start + t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t][..., None] * u[:, None]
            out[start + t] = torch.einsum("hkv,hk->hv", state, q[t]) * q.shape[2] ** -0.5
    return norm(out, record["norm"], eps) * torch.sigmoid(record["gate"])


def situ(weights, layer, x, beta, linear_beta):
    up, gate = (linear(x, weights(f"layers.{layer}.mlp.{n}_proj.weight")) for n in ("up", "gate"))
    h = beta * torch.tanh(gate / beta) * torch.sigmoid(gate) * linear_beta * torch.tanh(up / linear_beta)
    return linear(h, weights(f"layers.{layer}.mlp.down_proj.weight"))


def pack(layer, record, heads, starts, bound, eps):
    pick = lambda name, axis: record[name].index_select(axis, torch.tensor(heads)).contiguous()
    tokens, dim = record["gate"].shape[0], record["gate"].shape[2]
    half = [pick("qkv", 2), pick("z", 1), pick("gate", 1), pick("b", 1)]
    wide = [pick("taps", 1), pick("a_log", 0), pick("dt_bias", 0), record["norm"]]
    data = struct.pack("<5i2f", layer, len(starts) - 1, tokens, len(heads), dim, bound, eps)
    data += struct.pack(f"<{len(starts)}i", *starts)
    data += b"".join(values.bfloat16().view(torch.int16).numpy().tobytes() for values in half)
    return data + b"".join(values.numpy().astype("<f4").tobytes() for values in wide)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--k3", default=str(ROOT / "build/release/bin/k3"), help="the program, for its tokenizer")
    program = parser.parse_args().k3
    config = json.loads((MODEL / "config.json").read_text())["text_config"]
    linear_config, eps = config["linear_attn_config"], config["rms_norm_eps"]
    heads, dim, bound = linear_config["num_heads"], linear_config["head_dim"], linear_config["gate_lower_bound"]
    messages = [{"role": role, "content": content} for role, content in MESSAGES]
    conversation = json.dumps({"messages": messages, "add_generation_prompt": False})
    sequences = [token_ids(program, "tokenize", text=PARAGRAPH.replace("\n", " ")),
                 token_ids(program, "render", "--ids", "-", text=conversation)]
    starts = [0, len(sequences[0]), len(sequences[0]) + len(sequences[1])]

    weights = Weights(MODEL)
    embedding = weights("embed_tokens.weight")[torch.tensor(sum(sequences, []))]
    first = projections(weights, 0, norm(embedding, weights("layers.0.input_layernorm.weight"), eps), heads, dim)
    prefix = linear(attention(first, starts, bound, eps).flatten(1), weights("layers.0.self_attn.o_proj.weight"))
    x = mix(weights, "layers.0.mlp_res", [embedding, prefix], eps)
    x = norm(x, weights("layers.0.post_attention_layernorm.weight"), eps)
    prefix = prefix + situ(weights, 0, x, config["activation_situ_beta"], config["activation_situ_linear_beta"])
    x = mix(weights, "layers.1.self_attention_res", [embedding, prefix], eps)
    second = projections(weights, 1, norm(x, weights("layers.1.input_layernorm.weight"), eps), heads, dim)
    slowest = int(log_decay(second, bound).mean((0, 2)).argmax())

    records = [pack(0, first, range(heads), starts, bound, eps), pack(1, second, [slowest], starts, bound, eps)]
    out = pathlib.Path(__file__).with_name("nano.bin")
    out.write_bytes(b"K3KDA\0\0\1" + struct.pack("<i", len(records)) + b"".join(records))
    print(f"{out.name}: {out.stat().st_size} bytes, sequences {[len(s) for s in sequences]}, head {slowest} of layer 1")
    for layer, record in enumerate((first, second)):
        decay = log_decay(record, bound).exp()
        print(f"layer {layer}: decay {decay.min():.5f} .. {decay.mean():.5f} .. {decay.max():.6f}, "
              f"beta {torch.sigmoid(record['b']).min():.4f} .. {torch.sigmoid(record['b']).max():.4f}, "
              f"largest |v| {record['qkv'][:, 2].abs().max():.2f}")


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
