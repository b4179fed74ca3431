"""Times flash-linear-attention's KDA layer without its projections on the shapes of kda_bench: python3 bench/kda/peer.py [SECONDS [CASE ...]]

A layer is what its own layers/kda.py does: three short convolutions, chunk_kda or fused_recurrent_kda with norm, gate and
beta in the kernel, gated RMSNorm. Median of CUDA events, L2 flushed; decode and verify as a CUDA graph, so that Python does
not count. Triton compiles and tunes for minutes, so each case is a process: all get ready at the same time, for SECONDS at
most (default 200), then they are timed one after another. One JSON object a line: case, us or error.
"""
import json
import select
import subprocess
import sys
import time

import torch
from fla.modules import FusedRMSNormGated, ShortConvolution
from fla.ops.kda import chunk_kda, fused_recurrent_kda

DEVICE, DIM = "cuda", 128


def time_of(run, repeats=30):
    flush = torch.empty(128 << 20, dtype=torch.uint8, device=DEVICE)
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


def bf16(*shape):
    return torch.randn(*shape, device=DEVICE, dtype=torch.bfloat16)


def layer(batch, tokens, heads, recurrent, sequences=1):
    """A call of the layer's middle; sequences > 1: rows of equal length, packed."""
    width = heads * DIM
    x = [bf16(batch, tokens, width) for _ in range(3)]
    z, gate = bf16(batch, tokens, heads, DIM), bf16(batch, tokens, heads, DIM)
    beta = bf16(batch, tokens, heads)
    a_log = torch.rand(heads, device=DEVICE)
    bias = torch.randn(width, device=DEVICE)
    convolutions = [ShortConvolution(width, 4, activation="silu", device=DEVICE, dtype=torch.bfloat16) for _ in range(3)]
    norm = FusedRMSNormGated(DIM, activation="sigmoid", eps=1e-5, device=DEVICE, dtype=torch.bfloat16)
    starts = torch.arange(sequences + 1, device=DEVICE) * (tokens // sequences) if sequences > 1 else None
    state = torch.zeros(batch * sequences, heads, DIM, DIM, device=DEVICE)
    caches = [torch.zeros(batch, width, 4, device=DEVICE, dtype=torch.bfloat16) for _ in range(3)] if recurrent else [None] * 3
    options = dict(use_qk_l2norm_in_kernel=True, use_gate_in_kernel=True, use_beta_sigmoid_in_kernel=True, lower_bound=-5.0,
                   A_log=a_log, dt_bias=bias, initial_state=state, output_final_state=True, state_v_first=True)

    def run():
        q, k, v = (conv(x=u, cache=cache, output_final_state=recurrent, cu_seqlens=starts)[0].view(batch, tokens, heads, DIM)
                   for conv, u, cache in zip(convolutions, x, caches))
        if recurrent:
            o, _ = fused_recurrent_kda(q=q, k=k, v=v, g=z, beta=beta, **options)
        else:
            o, _ = chunk_kda(q=q, k=k, v=v, g=z, beta=beta, safe_gate=True, cu_seqlens=starts, **options)
        return norm(o, gate)

    return run


def graph_of(run):
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        run()
    return graph.replay


def core(tokens, heads, dim, sequence, backward):
    """chunk_kda alone, as training calls it: normalised q and k, g and beta given."""
    unit = torch.nn.functional.normalize
    make = lambda: torch.randn(1, tokens, heads, dim, device=DEVICE)
    inputs = [unit(make(), dim=-1).bfloat16(), unit(make(), dim=-1).bfloat16(), make().bfloat16(),
              -5 * torch.rand(1, tokens, heads, dim, device=DEVICE), torch.rand(1, tokens, heads, device=DEVICE)]
    q, k, v, g, beta = (u.requires_grad_(backward) for u in inputs)
    starts = torch.arange(0, tokens + 1, sequence, device=DEVICE) if sequence < tokens else None
    forward = lambda: chunk_kda(q=q, k=k, v=v, g=g, beta=beta, cu_seqlens=starts)[0]
    d_o = torch.randn_like(v)
    return (lambda: forward().backward(d_o)) if backward else forward


CASES = {
    "prefill T8192 H96": lambda: layer(1, 8192, 96, False),
    "prefill T8192 H32": lambda: layer(1, 8192, 32, False),
    "prefill T8192 H12": lambda: layer(1, 8192, 12, False),
    "prefill 4 x 8192 H96": lambda: layer(1, 32768, 96, False, 4),
    "prefill T1M H12": lambda: layer(1, 1 << 20, 12, False),
    "train T8192 H96 forward": lambda: core(8192, 96, 128, 8192, False),
    "train T8192 H96 forward + backward": lambda: core(8192, 96, 128, 8192, True),
    "train 65536x4x64 forward": lambda: core(65536, 4, 64, 2048, False),
    "train 65536x4x64 forward + backward": lambda: core(65536, 4, 64, 2048, True),
    "decode H96 b1": lambda: graph_of(layer(1, 1, 96, True)),
    "decode H96 b32": lambda: graph_of(layer(32, 1, 96, True)),
    "verify 8 H96 b32": lambda: graph_of(layer(32, 8, 96, True)),
}


def child(name):
    """Gets ready, says so, waits for a line on standard input, times."""
    with torch.set_grad_enabled(name.startswith("train")):
        try:
            run = CASES[name]()
            run()
            torch.cuda.synchronize()
            print("ready", flush=True)
            sys.stdin.readline()
            print(json.dumps({"case": name, "us": round(time_of(run, 10 if "1M" in name else 30), 1)}), flush=True)
        except Exception as error:
            print(json.dumps({"case": name, "error": (str(error) or type(error).__name__).splitlines()[0][:200]}), flush=True)


def main():
    if sys.argv[1:2] == ["--child"]:
        return child(sys.argv[2])
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 200
    deadline = time.monotonic() + seconds
    waiting = {name: subprocess.Popen([sys.executable, __file__, "--child", name], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
               for name in sys.argv[2:] or CASES}
    ready = {}
    while waiting and (left := deadline - time.monotonic()) > 0:
        for pipe in select.select([process.stdout for process in waiting.values()], [], [], left)[0]:
            name = next(name for name, process in waiting.items() if process.stdout is pipe)
            process, line = waiting.pop(name), pipe.readline()
            if line == "ready\n":
                ready[name] = process
            else:
                print(line.strip() or json.dumps({"case": name, "error": f"exit code {process.wait()}"}), flush=True)
    for name, process in waiting.items():
        process.kill()
        print(json.dumps({"case": name, "error": f"not ready after {seconds:.0f} s"}), flush=True)
    for process in ready.values():
        print(process.communicate("go\n")[0].strip(), flush=True)


main()
