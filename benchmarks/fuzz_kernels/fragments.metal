#include <metal_simdgroup_matrix>
#include <metal_stdlib>
using namespace metal;

kernel void multiply_fragments(const device half* a [[buffer(0)]], const device half* b [[buffer(1)]],
                               device float* c [[buffer(2)]], uint lane [[thread_index_in_simdgroup]],
                               uint simd [[simdgroup_index_in_threadgroup]]) {
    threadgroup half tile[2 * 64];
    simdgroup_matrix<half, 8, 8> left, right;
    simdgroup_matrix<float, 8, 8> sum = simdgroup_matrix<float, 8, 8>(0.0f);
    for (uint k = 0; k < 2; k++) {
        tile[simd * 64 + lane] = a[k * 64 + lane];
        tile[simd * 64 + lane + 32] = a[k * 64 + lane + 32];
        simdgroup_barrier(mem_flags::mem_threadgroup);
        simdgroup_load(left, tile + simd * 64, 8);
        simdgroup_load(right, b + k * 64, 8, ulong2(0, 0), false);
        simdgroup_multiply_accumulate(sum, left, right, sum);
        simdgroup_barrier(mem_flags::mem_threadgroup);
    }
    sum.thread_elements()[0] *= 0.5f;
    simdgroup_store(sum, c + simd * 64, 8);
}
