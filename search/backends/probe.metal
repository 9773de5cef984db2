// What kernels take for granted of a SIMD-group: 8 values a lane, into 32 by 8 floats.
const uint lane = thread_index_in_simdgroup;
simdgroup_float8x8 numbers;
simdgroup_load(numbers, x, 8);
device float* mine = y + 8 * lane;
mine[0] = numbers.thread_elements()[0];
mine[1] = numbers.thread_elements()[1];
mine[2] = simd_sum(float(lane));
mine[3] = simd_prefix_exclusive_sum(1.0f);
mine[4] = simd_shuffle_xor(float(lane), 9);
const float below = simd_shuffle_up(float(lane), 1);
mine[5] = lane > 0 ? below : -1.0f;
simdgroup_float8x8 square;
simdgroup_multiply(square, numbers, numbers);
mine[6] = square.thread_elements()[0];
mine[7] = simd_broadcast(float(lane), 17);
