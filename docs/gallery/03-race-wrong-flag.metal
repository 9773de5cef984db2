// A barrier that orders the wrong memory: mem_device does not order threadgroup memory.
#include <metal_stdlib>
using namespace metal;

kernel void rotate(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                   uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float tile[64];
    tile[t] = x[i];
    threadgroup_barrier(mem_flags::mem_device);
    out[i] = tile[(t + 1) % 64];
}
