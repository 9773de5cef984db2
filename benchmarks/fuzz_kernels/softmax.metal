#include <metal_math>
#include <metal_stdlib>
using namespace metal;

namespace rows {
inline float largest(float v, threadgroup float* shared, uint lane, uint group) {
    v = simd_max(v);
    if (lane == 0) shared[group] = v;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float result = -INFINITY;
    for (ushort k = 0; k < 2; ++k) result = max(result, shared[k]);
    return result;
}
}  // namespace rows

kernel void softmax_half(device const half4* x [[buffer(0)]], device half4* out [[buffer(1)]],
                         threadgroup float* shared [[threadgroup(0)]], uint i [[thread_position_in_grid]],
                         uint lane [[thread_index_in_simdgroup]], uint group [[simdgroup_index_in_threadgroup]]) {
    if (lane < 16) {
        shared[group * 16 + lane] = 0;
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float4 v = float4(x[i]);
    float high = rows::largest(max(max(v.x, v.y), max(v.z, v.w)), shared, lane, group);
    float4 e = fast::exp(v - high);
    float sum = simd_sum(e.x + e.y + e.z + e.w);
    out[i] = half4(e / sum);
}
