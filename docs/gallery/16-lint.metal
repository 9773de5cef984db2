// Code that clang takes and Apple's compiler refuses.
#include <metal_stdlib>
using namespace metal;

kernel void mean(device const float* x [[buffer(0)]], device float* out [[buffer(1)]],
                 uint i [[thread_position_in_grid]]) {
    double total = 0;
    float four[4] = {x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]};
    float* p = four;
    for (int k = 0; k < 4; k++) total += p[k];
    out[i] = total / 4;
}
