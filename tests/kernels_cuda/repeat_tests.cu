// Same input, same bits: 100 runs, two streams at once, shared memory full of NaN beforehand, other strides. (Fresh
// buffers, workspaces too, hold 0xff bytes in every test; gpu.h.)
#include "kernels_cuda/layer_cases.h"
#include "kernels_cuda/test.h"

namespace k3::cuda::testing {
namespace {

using Bits = std::vector<std::vector<char>>;

Bits bits_of_call(const Device& d) { return {download<char>(d.y), download<char>(d.state), download<char>(d.window)}; }

enum class Kernel { decode, window, drafts, prefill, split_prefill };
struct Call {
  Kernel kernel;
  const char* name;
  StepCase c;
};
std::vector<Call> calls() {
  const std::vector<int> mixed{130, 1, 0, 65, 17, 200}, slots{6, 1, 3, 0, 2, 5}, none(6, 0), some{0, 1, 0, 16, 3, 0};
  return {{Kernel::decode,
           "decode",
           {"",
            5,
            128,
            40,
            Type::bf16,
            std::vector<int>(32, 1),
            [] {
              std::vector<int> s;
              for (int i = 0; i < 32; ++i) s.push_back((i * 7 + 3) % 40);
              return s;
            }(),
            {}}},
          {Kernel::window, "window", {"", 3, 128, 7, Type::bf16, {9, 1, 0, 16, 3, 2}, slots, {}}},
          {Kernel::drafts, "drafts", {"", 3, 64, 7, Type::bf16, {9, 1, 0, 24, 8, 2}, slots, some}},
          {Kernel::prefill, "prefill", {"", 3, 128, 7, Type::bf16, mixed, slots, {}}},
          {Kernel::split_prefill, "split-prefill", {"", 2, 128, 7, Type::bf16, {700, 1, 0, 65, 17, 200}, slots, {}}}};
}
bool is_prefill(Kernel kernel) { return kernel == Kernel::prefill || kernel == Kernel::split_prefill; }

// One kernel's call on device tensors that can be put back to their start.
struct Caller {
  Call call;
  Inputs in;
  Device device;
  Buffer workspace;

  Caller(const Call& call_, unsigned seed) : call(call_), in(make_inputs(call_.c, seed)), device(call_.c, in) {
    if (call.kernel == Kernel::decode) device.a.longest = 1;
    if (is_prefill(call.kernel))
      workspace = Buffer(
          kda::prefill_workspace_bytes(device.a.longest, device.a.rows, call.c.heads, {.segments = segments()}));
  }
  int segments() const { return call.kernel == Kernel::split_prefill ? 4 : 1; }
  void launch(cudaStream_t stream) {
    if (is_prefill(call.kernel))
      REQUIRE_CUDA(kda::prefill(device.a, device.a.longest, workspace.data(), stream, {.segments = segments()}));
    else REQUIRE_CUDA(kda::step(device.a, stream));
  }
  void reset() {
    workspace.poison(), device.y.poison();
    const std::vector<float> state = narrow(in.state);
    copy_in(device.state.data(), state.data(), device.state.bytes());
    write_rows(device.rows_window, in.window);
  }
};
template <class F>
bool for_calls(F check) {
  bool good = true;
  for (const Call& call : calls()) {
    if (is_prefill(call.kernel) && !on_hopper_gpu()) {
      std::printf("    %s skipped: needs sm_90\n", call.name);
      continue;
    }
    if (check(call)) continue;
    std::printf("    FAIL %s\n", call.name);
    good = false;
  }
  return good;
}

#ifndef K3_CUDA_EMULATOR
bool repeat_case() {
  return for_calls([](const Call& call) {
    Caller caller(call, 21);
    caller.launch(nullptr);
    synchronize();
    const Bits first = bits_of_call(caller.device);
    for (int i = 0; i < 100; ++i) {
      caller.reset();
      caller.launch(nullptr);
      synchronize();
      if (bits_of_call(caller.device) != first) return false;
    }
    return true;
  });
}

// Calls in flight on two streams at once, each many times over: the state goes on from call to call.
bool streams_case() {
  return for_calls([](const Call& call) {
    constexpr int kTimes = 20;
    Caller one(call, 21), two(call, 22);
    const auto alone = [&](Caller& caller) {
      for (int i = 0; i < kTimes; ++i) caller.launch(nullptr);
      synchronize();
      Bits bits = bits_of_call(caller.device);
      caller.reset();
      synchronize();
      return bits;
    };
    const Bits first = alone(one), second = alone(two);
    cudaStream_t left, right;
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&left, cudaStreamNonBlocking));
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&right, cudaStreamNonBlocking));
    for (int i = 0; i < kTimes; ++i) one.launch(left), two.launch(right);
    synchronize();
    REQUIRE_CUDA(cudaStreamDestroy(left));
    REQUIRE_CUDA(cudaStreamDestroy(right));
    return bits_of_call(one.device) == first && bits_of_call(two.device) == second;
  });
}

__global__ void poison_shared_kernel(int words) {
  extern __shared__ unsigned poison[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) reinterpret_cast<volatile unsigned*>(poison)[i] = 0xffffffffu;
}
void poison_shared() {  // of every SM: what a kernel reads without having written it is NaN
  cudaDeviceProp properties;
  REQUIRE_CUDA(cudaGetDeviceProperties(&properties, 0));
  const int bytes = static_cast<int>(properties.sharedMemPerBlockOptin);
  REQUIRE_CUDA(cudaFuncSetAttribute(poison_shared_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
  poison_shared_kernel<<<4 * properties.multiProcessorCount, 256, bytes>>>(bytes / 4);
  REQUIRE_CUDA(cudaGetLastError());
}
bool poisoned_shared_case() {
  bool good = for_calls([](const Call& call) {
    Caller caller(call, 21);
    caller.launch(nullptr);
    synchronize();
    const Bits first = bits_of_call(caller.device);
    caller.reset();
    poison_shared();
    caller.launch(nullptr);
    synchronize();
    return bits_of_call(caller.device) == first;
  });
  for (int dim : {32, 64, 128})
    for (Type type : {Type::fp32, Type::bf16}) {
      const Case c{"", 2, dim, {70, 0, 1, 33}, type};
      const auto p = make_problem(c);
      Run run(c, p, type, normal_values(p.v.size(), 7, type), normal_values(p.state.size(), 8, Type::fp32));
      run.forward(kda::Keep::for_backward), run.backward(true), synchronize();
      const auto first = run.outputs();
      run.poison_outputs();
      poison_shared();
      run.forward(kda::Keep::for_backward);
      poison_shared();
      run.backward(true), synchronize();
      if (run.outputs() != first) std::printf("    FAIL chunk form, dim %d\n", dim), good = false;
    }
  return good;
}

bool repeat_training_case() {
  const Case c{"", 3, 128, {700, 33, 1, 290}, Type::bf16};
  const auto p = make_problem(c);
  Run run(c, p, Type::bf16, normal_values(p.v.size(), 7, Type::bf16), normal_values(p.state.size(), 8, Type::fp32));
  run.forward(kda::Keep::for_backward), run.backward(true), synchronize();
  const auto first = run.outputs();
  for (int i = 0; i < 100; ++i) {
    run.poison_outputs();
    run.forward(kda::Keep::for_backward), run.backward(true), synchronize();
    if (run.outputs() != first) return std::printf("    FAIL run %d differs\n", i), false;
  }
  return true;
}
#endif

// Every tensor with its heads outside of its tokens and padding behind each row, against the ordinary layout.
bool strides_case() {
  return for_calls([](const Call& call) {
    Caller plain(call, 21), strided(call, 21);
    const StepCase& c = call.c;
    const std::int64_t T = plain.in.starts.back(), H = c.heads, D = c.dim, row = D + 16, head = T * row + 64;
    std::vector<Buffer> buffers;
    buffers.reserve(8);
    const auto spread = [&](kda::Rows& rows, const std::vector<double>& values, std::int64_t block, int which,
                            bool scalar) {
      const std::int64_t dim = scalar ? 1 : D, token_stride = scalar ? 3 : row, head_stride = scalar ? 3 * T + 5 : head;
      std::vector<double> part;
      for (std::int64_t t = 0; t < T; ++t)
        part.insert(part.end(), values.begin() + (t * block + which) * H * dim,
                    values.begin() + (t * block + which + 1) * H * dim);
      buffers.emplace_back(H * head_stride * 2);
      write_rows({c.type, T, token_stride, head_stride, 0, c.heads, static_cast<int>(dim), &buffers.back()}, part);
      rows = {buffers.back().data(), token_stride, head_stride};
    };
    kda::StepArguments& a = strided.device.a;
    spread(a.q, strided.in.qkv, 3, 0, false), spread(a.k, strided.in.qkv, 3, 1, false),
        spread(a.v, strided.in.qkv, 3, 2, false);
    spread(a.z, strided.in.z, 1, 0, false), spread(a.gate, strided.in.gate, 1, 0, false),
        spread(a.b, strided.in.b, 1, 0, true);
    buffers.emplace_back(H * head * 2);
    const DeviceRows y{c.type, T, row, head, 0, c.heads, c.dim, &buffers.back()};
    a.y = y.mutable_rows();
    plain.launch(nullptr), strided.launch(nullptr);
    synchronize();
    const std::vector<double> want = read_rows(plain.device.rows_y), got = read_rows(y);
    for (std::size_t i = 0; i < want.size(); ++i)
      if (got[i] != want[i] && !(std::isnan(got[i]) && std::isnan(want[i])))
        return std::printf("    value %zu: %g instead of %g\n", i, got[i], want[i]), false;
    return download<char>(plain.device.state) == download<char>(strided.device.state) &&
           download<char>(plain.device.window) == download<char>(strided.device.window);
  });
}

// The chunk form with all tensors strided so, gradients and d_o too (fla 871).
bool strides_training_case(int dim, Type type) {
  const Case c{"", 3, dim, {70, 0, 1, 33}, type};
  const auto p = make_problem(c);
  const auto d_o = normal_values(p.v.size(), 7, type), d_final = normal_values(p.state.size(), 8, Type::fp32);
  Run plain(c, p, type, d_o, d_final), strided(c, p, type, d_o, d_final);
  const std::int64_t T = p.tokens();
  std::vector<Buffer> buffers;
  buffers.reserve(16);
  const auto spread = [&](const DeviceRows& like, const std::vector<double>* values) {
    const bool scalar = like.dim == 1;
    const std::int64_t token_stride = scalar ? 3 : dim + 12, head_stride = scalar ? 3 * T + 5 : T * token_stride + 8;
    buffers.emplace_back(c.heads * head_stride * 4);
    const DeviceRows rows{like.type, T, token_stride, head_stride, 0, c.heads, like.dim, &buffers.back()};
    if (values) write_rows(rows, *values);
    return rows;
  };
  strided.rows_q = spread(strided.rows_q, &p.q), strided.rows_k = spread(strided.rows_k, &p.k),
  strided.rows_v = spread(strided.rows_v, &p.v);
  strided.rows_g = spread(strided.rows_g, &p.g), strided.rows_beta = spread(strided.rows_beta, &p.beta);
  strided.rows_d_o = spread(strided.rows_d_o, &d_o), strided.rows_o = spread(strided.rows_o, nullptr);
  for (DeviceRows* rows : {&strided.rows_dq, &strided.rows_dk, &strided.rows_dv, &strided.rows_dg, &strided.rows_dbeta})
    *rows = spread(*rows, nullptr);
  kda::ForwardInputs& in = strided.in;
  in.q = strided.rows_q.rows(), in.k = strided.rows_k.rows(), in.v = strided.rows_v.rows(),
  in.g = strided.rows_g.rows();
  in.beta = strided.rows_beta.rows(), strided.out.o = strided.rows_o.mutable_rows();
  kda::BackwardArguments& back = strided.back;
  back.inputs = in, back.d_o = strided.rows_d_o.rows(), back.dq = strided.rows_dq.mutable_rows(),
  back.dk = strided.rows_dk.mutable_rows();
  back.dv = strided.rows_dv.mutable_rows(), back.dg = strided.rows_dg.mutable_rows(),
  back.dbeta = strided.rows_dbeta.mutable_rows();
  for (Run* run : {&plain, &strided}) run->forward(kda::Keep::for_backward), run->backward(true);
  synchronize();
  bool good = download<char>(plain.final_state) == download<char>(strided.final_state) &&
              download<char>(plain.d_state) == download<char>(strided.d_state);
  for (DeviceRows Run::* rows :
       {&Run::rows_o, &Run::rows_dq, &Run::rows_dk, &Run::rows_dv, &Run::rows_dg, &Run::rows_dbeta})
    good = compare("strided", read_rows(strided.*rows), read_rows(plain.*rows), 0) &&
           read_rows(strided.*rows) == read_rows(plain.*rows) && good;
  return good;
}

}  // namespace

void add_repeat_tests(std::vector<Test>& all) {
  all.push_back({"layer-strides", false, strides_case});
  for (int dim : {32, 64, 128})
    for (Type type : {Type::fp32, Type::bf16})
      all.push_back({"strides-d" + std::to_string(dim) + (type == Type::fp32 ? "-fp32" : "-bf16"), dim == 32,
                     [=] { return strides_training_case(dim, type); }});
#ifndef K3_CUDA_EMULATOR
  all.push_back({"layer-repeat-100", false, repeat_case});
  all.push_back({"repeat-100-d128", false, repeat_training_case});
  all.push_back({"layer-two-streams", false, streams_case});
  all.push_back({"poisoned-shared", false, poisoned_shared_case});
#endif
}

}  // namespace k3::cuda::testing
