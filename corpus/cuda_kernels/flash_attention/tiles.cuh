// Tile shapes, the shared-memory swizzle and the asynchronous tile loader.
// Written for kx. SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "ptx.cuh"

namespace kx {

template <int kHeadDim_>
struct Tiling {
    static constexpr int kHeadDim = kHeadDim_;
    static constexpr int kWarps = 4;
    static constexpr int kThreads = kWarps * 32;
    static constexpr int kRowTiles = 2;  // 16-row MMA tiles per warp
    static constexpr int kWarpRows = kRowTiles * 16;
    static constexpr int kBlockRows = kWarps * kWarpRows;
    // Scores take kBlockKeys/2 * kRowTiles registers and the output kHeadDim/2 * kRowTiles:
    // a wider key tile is affordable exactly when the head is narrow.
    static constexpr int kBlockKeys = kHeadDim == 64 ? 128 : 64;
    static constexpr int kKeyTiles = kBlockKeys / 8;
    static constexpr int kDimTiles = kHeadDim / 8;

    static constexpr int kRowBytes = kHeadDim * static_cast<int>(sizeof(__half));
    static constexpr int kChunksPerRow = kRowBytes / 16;
    static constexpr int kQueryBytes = kBlockRows * kRowBytes;
    static constexpr int kKeyBytes = kBlockKeys * kRowBytes;
    static constexpr int kStages = 2;
    static constexpr int kSharedBytes = kQueryBytes + 2 * kStages * kKeyBytes;

    static_assert(kHeadDim == 64 || kHeadDim == 128, "the swizzle needs 8 or 16 chunks per row");
};

// Byte offset of a 16-byte chunk in a swizzled tile.
//
// Rows are 128 or 256 bytes, a multiple of 32 banks * 4 bytes, so unswizzled the eight row
// addresses of one 8x8 ldmatrix (same chunk, consecutive rows) would all fall on the same four
// banks: an eight-way conflict. XOR-ing the low three chunk bits with (row % 8) sends the eight
// rows to eight different groups of four banks, all 32 banks exactly once. Writing stays
// conflict-free too: eight neighbouring chunks of one row are only permuted among themselves.
template <class T>
__device__ __forceinline__ uint32_t swizzled_offset(int row, int chunk) {
    return row * T::kRowBytes + ((chunk ^ (row & 7)) << 4);
}

// Starts the copy of kRows rows into a swizzled tile; rows at or beyond row_count become zeros.
// The zeros are not cosmetic: a masked probability is 0, and 0 * (stale NaN in V) would be NaN.
template <class T, int kRows>
__device__ __forceinline__ void load_tile_async(uint32_t tile, const __half* base, int row_stride,
                                                int first_row, int row_count) {
    constexpr int kRowsPerPass = T::kThreads / T::kChunksPerRow;
    // A pass advances by a multiple of eight rows, so (row % 8) and with it the swizzle are the
    // same in every pass and the destination moves by a compile-time constant.
    static_assert(kRowsPerPass % 8 == 0 && kRows % kRowsPerPass == 0);
    const int chunk = threadIdx.x % T::kChunksPerRow;
    const int row = threadIdx.x / T::kChunksPerRow;
    const uint32_t destination = tile + swizzled_offset<T>(row, chunk);
    const __half* source = base + chunk * 8 + static_cast<int64_t>(first_row + row) * row_stride;
    const int rows_left = row_count - first_row - row;
#pragma unroll
    for (int pass = 0; pass < kRows / kRowsPerPass; ++pass) {
        const int step = pass * kRowsPerPass;
        // An address past the end is harmless: with a source size of 0 it is never read.
        ptx::cp_async_16(destination + step * T::kRowBytes,
                         source + static_cast<int64_t>(row_stride) * step, step < rows_left);
    }
}

}  // namespace kx
