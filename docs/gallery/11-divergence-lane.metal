// A shuffle from a lane that has already returned.
#include <metal_stdlib>
using namespace metal;

kernel void neighbour(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                      constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (i >= n) return;
    float next = simd_shuffle_down(x[i], 1);
    out[i] = next - x[i];
}
