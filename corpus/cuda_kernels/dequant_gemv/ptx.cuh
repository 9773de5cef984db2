// The PTX instructions that the dequantizing product needs.
// Written for kx. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace kx::ptx {

// Sixteen bytes that are used once: through the read-only path, without a place in L1, which is
// left to the activations that every warp of the block wants. The hint pulls whole 128-byte lines
// into L2, since neighbouring lanes want the rest.
__device__ __forceinline__ uint4 load_streaming(const uint4* source) {
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0, %1, %2, %3}, [%4];\n"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(source));
    return v;
}

// (word & mask) | bits in one instruction. Written in C, it becomes two wherever both constants would
// have to be immediates. 0xea is the truth table: (0xf0 & 0xcc) | 0xaa.
__device__ __forceinline__ uint32_t and_or(uint32_t word, uint32_t mask, uint32_t bits) {
    uint32_t result;
    asm("lop3.b32 %0, %1, %2, %3, 0xea;\n" : "=r"(result) : "r"(word), "r"(mask), "r"(bits));
    return result;
}

// acc(16x8, float) += a(16x16, row-major) * b(16x8, column-major), a and b in half or bfloat16.
// With g = lane / 4 and t = lane % 4:
//   a[0], a[1], a[2], a[3] : (row g, k 2t), (row g+8, k 2t), (row g, k 2t+8), (row g+8, k 2t+8)
//   b0, b1                 : (k 2t, col g), (k 2t+8, col g)          (two consecutive k each)
//   acc[0..1], acc[2..3]   : (row g, col 2t + {0, 1}), (row g+8, col 2t + {0, 1})
// The template argument only names the type of the packed elements.
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
__device__ __forceinline__ void mma_m16n8k16<__nv_bfloat16>(float (&acc)[4],
                                                            const uint32_t (&a)[4], uint32_t b0,
                                                            uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};\n"
        : "+f"(acc[0]), "+f"(acc[1]), "+f"(acc[2]), "+f"(acc[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace kx::ptx
