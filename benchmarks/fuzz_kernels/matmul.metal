#include <metal_stdlib>
using namespace metal;

constant constexpr int TILE = 8;

struct Sizes {
    int rows;
    int columns;
    int depth;
};

kernel void matmul(device const float* a [[buffer(0)]], device const float* b [[buffer(1)]],
                   device float* c [[buffer(2)]], constant Sizes& sizes [[buffer(3)]],
                   uint3 position [[thread_position_in_grid]], uint3 local [[thread_position_in_threadgroup]]) {
    threadgroup float left[TILE][TILE];
    threadgroup float right[TILE][TILE];
    uint row = position.x / TILE % TILE, column = position.x % TILE;
    uint r = local.x / TILE % TILE, s = local.x % TILE;
    float sum = 0.0f;
    for (int k = 0; k < 16; k += TILE) {
        left[r][s] = a[row * 16 + k + s];
        right[r][s] = b[(k + r) * TILE + column];
        threadgroup_barrier(mem_flags::mem_threadgroup);
#pragma unroll
        for (int j = 0; j < TILE; j++) {
            sum = fma(left[r][j], right[j][s], sum);
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    c[row * TILE + column] = sum + float(sizes.rows);
}
