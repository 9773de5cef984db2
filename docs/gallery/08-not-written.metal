// A ragged end: 250 elements, four per thread, and a guard that leaves the last two out.
#include <metal_stdlib>
using namespace metal;

kernel void scale(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                  constant uint& n [[buffer(2)]], uint i [[thread_position_in_grid]]) {
    if (4 * i + 3 < n)
        for (uint k = 0; k < 4; k++) out[4 * i + k] = 2 * x[4 * i + k];
}
