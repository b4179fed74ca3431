// Device memory for the tests: plain CUDA on a GPU, plain memory under the emulator. Fresh buffers are poisoned with
// 0xff bytes (NaN).
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#define REQUIRE_CUDA(call)                                                                                \
  do {                                                                                                    \
    const cudaError_t error_ = (call);                                                                    \
    if (error_ != cudaSuccess) {                                                                          \
      std::printf("%s:%d: CUDA error %d from %s\n", __FILE__, __LINE__, static_cast<int>(error_), #call); \
      std::exit(3);                                                                                       \
    }                                                                                                     \
  } while (0)

namespace k3::cuda::testing {

#ifdef K3_CUDA_EMULATOR
inline void* device_allocate(std::size_t bytes) { return std::aligned_alloc(256, (bytes + 511) / 256 * 256); }
inline void device_free(void* p) { std::free(p); }
inline void device_fill(void* p, int byte, std::size_t bytes) { std::memset(p, byte, bytes); }
inline void copy_in(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void copy_out(void* to, const void* from, std::size_t bytes) { std::memcpy(to, from, bytes); }
inline void synchronize() {}
#else
inline void* device_allocate(std::size_t bytes) {
  void* p = nullptr;
  REQUIRE_CUDA(cudaMalloc(&p, bytes + 256));
  return p;
}
inline void device_free(void* p) { cudaFree(p); }
inline void device_fill(void* p, int byte, std::size_t bytes) { REQUIRE_CUDA(cudaMemset(p, byte, bytes)); }
inline void copy_in(void* to, const void* from, std::size_t bytes) {
  REQUIRE_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyHostToDevice));
}
inline void copy_out(void* to, const void* from, std::size_t bytes) {
  REQUIRE_CUDA(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToHost));
}
inline void synchronize() { REQUIRE_CUDA(cudaDeviceSynchronize()); }
#endif

class Buffer {  // bytes on the device, poisoned
 public:
  explicit Buffer(std::size_t bytes = 0) : bytes_(bytes), data_(device_allocate(bytes)) { poison(); }
  Buffer(Buffer&& other) noexcept : bytes_(other.bytes_), data_(other.data_) { other.data_ = nullptr; }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  Buffer& operator=(Buffer&& other) noexcept {
    std::swap(bytes_, other.bytes_);
    std::swap(data_, other.data_);
    return *this;
  }
  ~Buffer() {
    if (data_) device_free(data_);
  }
  void poison() {
    if (bytes_) device_fill(data_, 0xff, bytes_);
  }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t bytes() const { return bytes_; }

 private:
  std::size_t bytes_;
  void* data_;
};

template <class T>
Buffer upload(const std::vector<T>& values) {
  Buffer buffer(values.size() * sizeof(T));
  copy_in(buffer.data(), values.data(), buffer.bytes());
  return buffer;
}
template <class T>
std::vector<T> download(const Buffer& buffer) {
  std::vector<T> values(buffer.bytes() / sizeof(T));
  copy_out(values.data(), buffer.data(), buffer.bytes());
  return values;
}

}  // namespace k3::cuda::testing
