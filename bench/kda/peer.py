"""Times flash-linear-attention's chunk_kda on the shapes of kda_bench: python3 bench/kda/peer.py forward|train. Median of CUDA events, L2 flushed."""
import sys

import torch
from fla.ops.kda import chunk_kda


def time_of(run, repeats=20):
    flush = torch.empty(128 << 20, dtype=torch.uint8, device="cuda")
    for _ in range(3):
        run()
    times = []
    for _ in range(repeats):
        flush.zero_()
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) * 1e3)
    return sorted(times)[len(times) // 2]


def inputs(tokens, heads, dim, grad):
    unit = torch.nn.functional.normalize
    make = lambda: torch.randn(1, tokens, heads, dim, device="cuda")
    q, k, v = unit(make(), dim=-1).bfloat16(), unit(make(), dim=-1).bfloat16(), make().bfloat16()
    g = -5 * torch.rand(1, tokens, heads, dim, device="cuda")
    beta = torch.rand(1, tokens, heads, device="cuda")
    return [x.requires_grad_(grad) for x in (q, k, v, g, beta)]


def main():
    cases = {"forward": [(8192, 96, 128)], "train": [(65536, 4, 64)]}[sys.argv[1]]
    for tokens, heads, dim in cases:
        grad = sys.argv[1] == "train"
        q, k, v, g, beta = inputs(tokens, heads, dim, grad)
        starts = torch.tensor([0] + list(range(2048, tokens + 1, 2048)), device="cuda") if grad else None
        forward = lambda: chunk_kda(q=q, k=k, v=v, g=g, beta=beta, cu_seqlens=starts)[0]
        print(f"fla chunk_kda T{tokens} H{heads} D{dim} forward: {time_of(forward):.1f} us", flush=True)
        if grad:
            d_o = torch.randn_like(v)
            both = lambda: forward().backward(d_o)
            print(f"fla chunk_kda T{tokens} H{heads} D{dim} forward + backward: {time_of(both):.1f} us", flush=True)


main()
