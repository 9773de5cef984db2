// A kernel with nothing to find: its counters, and what it would take on the chip by the estimate.
#include <metal_stdlib>
using namespace metal;

kernel void row_sums(device const float4* x [[buffer(0)]], device float* out [[buffer(1)]],
                     uint row [[threadgroup_position_in_grid]], uint t [[thread_position_in_threadgroup]],
                     uint lane [[thread_index_in_simdgroup]], uint simdgroup [[simdgroup_index_in_threadgroup]]) {
    threadgroup float partial[8];
    float4 four = x[row * 256 + t];
    float total = simd_sum(four.x + four.y + four.z + four.w);
    if (lane == 0) partial[simdgroup] = total;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (t == 0) {
        float all = 0;
        for (int k = 0; k < 8; k++) all += partial[k];
        out[row] = all;
    }
}
