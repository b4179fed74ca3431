#include "base/error.h"
#include "checkpoint/safetensors.h"

namespace k3 {
namespace {

struct DtypeFacts {
  Dtype dtype;
  std::string_view name;
  std::int64_t bits;
};

constexpr DtypeFacts kDtypes[] = {
    {Dtype::BOOL, "BOOL", 8},       {Dtype::F4, "F4", 4},           {Dtype::F6_E2M3, "F6_E2M3", 6},
    {Dtype::F6_E3M2, "F6_E3M2", 6}, {Dtype::U8, "U8", 8},           {Dtype::I8, "I8", 8},
    {Dtype::F8_E4M3, "F8_E4M3", 8}, {Dtype::F8_E5M2, "F8_E5M2", 8}, {Dtype::F8_E8M0, "F8_E8M0", 8},
    {Dtype::I16, "I16", 16},        {Dtype::U16, "U16", 16},        {Dtype::F16, "F16", 16},
    {Dtype::BF16, "BF16", 16},      {Dtype::I32, "I32", 32},        {Dtype::U32, "U32", 32},
    {Dtype::F32, "F32", 32},        {Dtype::I64, "I64", 64},        {Dtype::U64, "U64", 64},
    {Dtype::F64, "F64", 64},        {Dtype::C64, "C64", 64},
};

const DtypeFacts& facts(Dtype dtype) {
  for (const DtypeFacts& known : kDtypes)
    if (known.dtype == dtype) return known;
  check_failed("known dtype", __FILE__, __LINE__, "dtype outside of the format");
}

}  // namespace

std::int64_t dtype_bits(Dtype dtype) { return facts(dtype).bits; }

std::int64_t dtype_bytes(Dtype dtype) {
  K3_CHECK(dtype_bits(dtype) % 8 == 0, "{} elements are not whole bytes", dtype_name(dtype));
  return dtype_bits(dtype) / 8;
}

std::string_view dtype_name(Dtype dtype) { return facts(dtype).name; }

std::optional<Dtype> dtype_from_name(std::string_view name) {
  for (const DtypeFacts& known : kDtypes)
    if (known.name == name) return known.dtype;
  return std::nullopt;
}

}  // namespace k3
