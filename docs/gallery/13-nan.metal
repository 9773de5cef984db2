// A NaN in the output, traced to where it was born: a row that is all masked gives infinity minus infinity.
#include <metal_stdlib>
using namespace metal;

kernel void softmax_weight(device const float* scores [[buffer(0)]], device float* out [[buffer(1)]],
                           uint i [[thread_position_in_grid]]) {
    float score = i < 32 ? -INFINITY : scores[i];
    float largest = simd_max(score);
    float weight = exp(score - largest);
    out[i] = weight / simd_sum(weight);
}
