// A barrier that only some threads reach.
#include <metal_stdlib>
using namespace metal;

kernel void halve(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[64];
    tile[t] = x[i];
    if (t < 32) {
        threadgroup_barrier(mem_flags::mem_threadgroup);
        tile[t] += tile[t + 32];
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[i] = tile[t % 32];
}
