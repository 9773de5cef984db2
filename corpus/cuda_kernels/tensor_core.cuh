// Tensor-core building blocks that several kernels share: asynchronous copies into swizzled tiles,
// fragment loads and m16n8k16 products for half and bfloat16 (sm_80 and later).
// Written for kx. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace kx::tc {

constexpr float kLog2e = 1.44269504088896341f;
constexpr float kLn2 = 0.693147180559945309f;

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
    return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// Copies 16 bytes from global to shared memory without passing through registers. With `valid`
// false nothing is read, whatever the source address, and the 16 bytes become zeros.
__device__ __forceinline__ void cp_async_16(uint32_t shared_dst, const void* global_src,
                                            bool valid) {
    const int source_bytes = valid ? 16 : 0;
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;\n"
                 :
                 : "r"(shared_dst), "l"(__cvta_generic_to_global(global_src)), "r"(source_bytes)
                 : "memory");
}

__device__ __forceinline__ void cp_async_commit() {
    asm volatile("cp.async.commit_group;\n" ::: "memory");
}

// Waits until at most kPending of this thread's newest groups are still in flight.
template <int kPending>
__device__ __forceinline__ void cp_async_wait() {
    asm volatile("cp.async.wait_group %0;\n" ::"n"(kPending) : "memory");
}

// Byte offset of a 16-byte chunk in a tile with rows of kRowBytes (128 or a multiple of it).
// Unswizzled, the same chunk of eight consecutive rows, which is what one 8x8 ldmatrix reads, would
// lie on the same four banks. The XOR spreads the eight rows over all 32 banks.
template <int kRowBytes>
__device__ __forceinline__ uint32_t swizzled_offset(int row, int chunk) {
    static_assert(kRowBytes % 128 == 0, "the swizzle permutes groups of eight chunks");
    return row * kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Loads four 8x8 matrices of 16-bit elements. Lane l supplies the address of row (l % 8) of matrix
// (l / 8); afterwards lane l holds elements (l / 4, 2 * (l % 4) + {0, 1}) of every matrix.
__device__ __forceinline__ void ldmatrix_x4(uint32_t (&fragment)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

// Same, every 8x8 matrix transposed on the way: lane l holds (2 * (l % 4) + {0, 1}, l / 4).
__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&fragment)[4], uint32_t address) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];\n"
                 : "=r"(fragment[0]), "=r"(fragment[1]), "=r"(fragment[2]), "=r"(fragment[3])
                 : "r"(address)
                 : "memory");
}

// acc(16x8, float) += a(16x16, row-major) * b(16x8, column-major).
// With g = lane / 4 and t = lane % 4:
//   a[0], a[1], a[2], a[3] : (row g, k 2t), (row g+8, k 2t), (row g, k 2t+8), (row g+8, k 2t+8)
//   b0, b1                 : (k 2t, col g), (k 2t+8, col g)          (two consecutive k each)
//   acc[0..1], acc[2..3]   : (row g, col 2t + {0, 1}), (row g+8, col 2t + {0, 1})
template <class T>
__device__ __forceinline__ void mma_m16n8k16(float (&acc)[4], const uint32_t (&a)[4], uint32_t b0,
                                             uint32_t b1);

template <>
__device__ __forceinline__ void mma_m16n8k16<__half>(float (&acc)[4], const uint32_t (&a)[4],
                                                     uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&acc)[4], const uint32_t (&a)[4],
                                                            uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Two floats rounded to one 32-bit word, `low` in the lower half.
template <class T>
__device__ __forceinline__ uint32_t pack(float low, float high);

template <>
__device__ __forceinline__ uint32_t pack<__half>(float low, float high) {
    const __half2 packed = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&packed);
}

template <>
__device__ __forceinline__ uint32_t pack<__nv_bfloat16>(float low, float high) {
    const __nv_bfloat162 packed = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&packed);
}

// The two elements of a word as floats.
template <class T>
__device__ __forceinline__ float2 unpack(uint32_t word);

template <>
__device__ __forceinline__ float2 unpack<__half>(uint32_t word) {
    return __half22float2(*reinterpret_cast<const __half2*>(&word));
}

template <>
__device__ __forceinline__ float2 unpack<__nv_bfloat16>(uint32_t word) {
    // A bfloat16 is the upper half of a float.
    return make_float2(__uint_as_float(word << 16), __uint_as_float(word & 0xffff0000u));
}

// Stores four words as 16 bytes. Spelled out because the optimizer may split a uint4 whose words
// were computed separately into four scalar stores, and then does not always find them together
// again.
__device__ __forceinline__ void store_16(void* global_dst, const uint32_t (&words)[4]) {
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};\n"
                 :
                 : "l"(__cvta_generic_to_global(global_dst)), "r"(words[0]), "r"(words[1]),
                   "r"(words[2]), "r"(words[3])
                 : "memory");
}

// 2^x on the special-function unit; exactly 0 for -inf.
__device__ __forceinline__ float exp2_approx(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;\n" : "=f"(result) : "f"(x));
    return result;
}

}  // namespace kx::tc
