"""torch.ops.k3 from Python: every operator is there, computes what its formula says and has gradients."""
import pytest
import torch

KDA_ROWS = [0, 7, 7, 90]


def random_kda(dtype=torch.float64):
    torch.manual_seed(0)
    tokens, heads, dim = KDA_ROWS[-1], 3, 8
    unit = lambda: torch.nn.functional.normalize(torch.randn(tokens, heads, dim, dtype=dtype), dim=-1)
    g = -5 * torch.sigmoid(torch.randn(tokens, heads, dim, dtype=dtype))
    return [unit(), unit(), torch.randn(tokens, heads, dim, dtype=dtype), g, torch.rand(tokens, heads, dtype=dtype)]


def recurrence(q, k, v, g, beta, cu_seqlens):
    out = torch.zeros_like(v)
    for start, end in zip(cu_seqlens, cu_seqlens[1:]):
        state = torch.zeros(q.shape[1], q.shape[2], v.shape[2], dtype=q.dtype)
        for t in range(start, end):
            state = state * g[t].exp()[..., None]
            u = beta[t][:, None] * (v[t] - torch.einsum("hkv,hk->hv", state, k[t]))
            state = state + k[t][..., None] * u[:, None]
            out[t] = torch.einsum("hkv,hk->hv", state, q[t]) * q.shape[2] ** -0.5
    return out


def test_kda_forms_equal_the_recurrence(ops):
    inputs = random_kda()
    want = recurrence(*inputs, KDA_ROWS)
    for form in ("recurrent", "chunk", "automatic"):
        out, state = ops.kda(*inputs, KDA_ROWS, None, True, form)
        torch.testing.assert_close(out, want, rtol=1e-10, atol=1e-10)
        assert state.shape == (3, 3, 8, 8)


def test_kda_gradients_through_python(ops):
    inputs = [x.requires_grad_() for x in random_kda()]
    weight = torch.randn_like(inputs[2])
    got = torch.autograd.grad((ops.kda(*inputs, KDA_ROWS, None, True, "chunk")[0] * weight).sum(), inputs)
    want = torch.autograd.grad((ops.kda(*inputs, KDA_ROWS, None, True, "recurrent")[0] * weight).sum(), inputs)
    for a, b in zip(got, want):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-8)


def test_norms_glu_and_mix(ops):
    torch.manual_seed(1)
    x, w = torch.randn(5, 16), torch.randn(16)
    torch.testing.assert_close(ops.rms_norm(x, w, 1e-5), torch.nn.functional.rms_norm(x, (16,), w, 1e-5))
    torch.testing.assert_close(ops.l2_norm(x, 1e-6), x / (x.square().sum(-1, keepdim=True) + 1e-6).sqrt())
    torch.testing.assert_close(ops.glu(x, 2 * x, False, 0.0, 0.0), torch.nn.functional.silu(x) * 2 * x)
    mean = ops.attn_res_mix([x, 2 * x, 3 * x], torch.ones(16), torch.zeros(16), 1e-5)
    torch.testing.assert_close(mean, 2 * x)


def test_router_and_experts(ops):
    torch.manual_seed(2)
    h = torch.randn(6, 16)
    chosen, weights, scores, cutoff = ops.route(h, torch.randn(8, 16), torch.zeros(8), 2, True, 1.0)
    torch.testing.assert_close(weights.sum(-1), torch.ones(6))
    assert (scores.gather(1, chosen) >= cutoff[:, None]).all()
    w1, w3, w2 = torch.randn(8, 32, 16), torch.randn(8, 32, 16), torch.randn(8, 16, 32)
    got = ops.experts(h, chosen, weights, w1, w3, w2, False, 0.0, 0.0)
    for t in range(6):
        want = sum(weights[t, i] * (w2[e] @ (torch.nn.functional.silu(w1[e] @ h[t]) * (w3[e] @ h[t]))) for i, e in enumerate(chosen[t]))
        torch.testing.assert_close(got[t], want, rtol=1e-4, atol=1e-4)


def test_mxfp4_round_trip(ops):
    x = torch.randn(4, 64)
    codes, scales = ops.mxfp4_quantize(x)
    assert codes.shape == (4, 32) and scales.shape == (4, 2)
    torch.testing.assert_close(ops.mxfp4_dequantize(codes, scales, torch.float32), ops.mxfp4_round(x), rtol=0, atol=0)


def test_bad_rows_are_refused(ops):
    try:
        ops.kda(*random_kda(), [1, 90], None, True, "chunk")
    except RuntimeError as error:
        assert "cu_seqlens" in str(error)
    else:
        raise AssertionError("cu_seqlens that do not start with 0 were accepted")


def test_kda_step_refuses_a_cpu(ops):
    x = torch.zeros(2, 2, 64)
    arguments = [x, x, x, x, torch.zeros(2, 2), x, torch.zeros(384, 4), torch.zeros(2), torch.zeros(128), torch.ones(64), -5.0, 1e-5]
    with pytest.raises(RuntimeError, match="needs CUDA tensors"):
        ops.kda_step(*arguments, torch.zeros(1, 2, 64, 64), torch.zeros(1, 3, 384), [0, 2], [0])


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("dim, lengths", [(64, [1, 16, 0, 3]), (128, [1, 1]), (128, [150, 1, 64])])
def test_kda_step_equals_the_operators(ops, dim, lengths):
    """The fused layer on a GPU in bf16 against the operators it replaces, in fp64 on the CPU, from a filled state."""
    if max(lengths) > 16 and torch.cuda.get_device_capability()[0] != 9:
        pytest.skip("prompts need Hopper")
    torch.manual_seed(3)
    heads, tokens, width, slots = 3, sum(lengths), 3 * dim, [5, 2, 0, 3][: len(lengths)]
    starts = [sum(lengths[:i]) for i in range(len(lengths) + 1)]
    q, k, v, z, gate = (torch.randn(tokens, heads, dim).bfloat16() for _ in range(5))
    b = torch.randn(tokens, heads).bfloat16()
    taps, a_log, bias, norm = torch.randn(3 * width, 4) / 2, torch.randn(heads) / 4, torch.randn(width), 1 + torch.randn(dim) / 8
    state, window = torch.randn(6, heads, dim, dim), torch.randn(6, 3, 3 * width).bfloat16()

    wide = lambda x: x.double()
    u = torch.cat([wide(x).reshape(tokens, width) for x in (q, k, v)], -1)
    out, new_window = ops.short_conv(u, wide(taps), starts, wide(window)[slots])
    by_head = lambda i: out[:, i * width:(i + 1) * width].reshape(tokens, heads, dim)
    g = ops.kda_gate(wide(z), wide(a_log), wide(bias), -5.0)
    o, new_state = ops.kda(ops.l2_norm(by_head(0), 1e-6), ops.l2_norm(by_head(1), 1e-6), by_head(2), g, torch.sigmoid(wide(b)), starts,
                           wide(state)[slots], True, "recurrent")
    want = ops.gated_rms_norm(o, wide(gate), wide(norm), 1e-5)

    move = lambda x: x.cuda()
    device_state, device_window = state.cuda(), window.cuda()
    got = ops.kda_step(*map(move, (q, k, v, z, b, gate, taps, a_log, bias, norm)), -5.0, 1e-5, device_state, device_window, starts, slots)
    error = lambda x, y: ((x.cpu().double() - y).square().mean() / y.square().mean()).sqrt().item()
    assert error(got, want) < 1.2e-2  # bf16: the convolution's output and the result are rounded, prompts also their operands
    assert error(device_state[slots], new_state) < 1e-2
    assert torch.equal(device_window.cpu()[slots], new_window.bfloat16())
