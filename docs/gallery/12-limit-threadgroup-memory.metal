// Tiles carried over from a GPU with more threadgroup memory than the chip has.
#include <metal_stdlib>
using namespace metal;

kernel void tiles(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                  uint i [[thread_position_in_grid]], uint t [[thread_position_in_threadgroup]]) {
    threadgroup float q[64 * 128];
    threadgroup float k[64 * 128];
    q[t] = x[i];
    k[t] = x[i];
    out[i] = q[t] * k[t];
}
