/* simdgroup_matrix<T, 8, 8>: a matrix spread over the 32 lanes of a SIMD-group, two neighbouring
 * elements of one row in each lane.
 *
 * Lane layout (bits b4..b0 of the lane): row 4*b4 + 2*b2 + b1, first column 4*b3 + 2*b0. Metal leaves it
 * open; MLX and others rely on it (mlx/backend/metal/kernels/steel/gemm/mma.h, get_coord, at 846d176).
 * Loads and stores are accesses of the lanes, so every check and counter sees them.
 */
#ifndef METALSIM_MATRIX_H
#define METALSIM_MATRIX_H

#include "simd.h"

namespace metal {
template <class T, int Cols, int Rows> struct simdgroup_matrix;
}

namespace msim {

MSIM_INLINE unsigned lane_in_simdgroup() { return msim_attribute(MSIM_LANE_ATTRIBUTE); }
MSIM_INLINE unsigned fragment_row(unsigned lane) { return (lane >> 2 & 4) | (lane >> 1 & 3); }
MSIM_INLINE unsigned fragment_column(unsigned lane) { return (lane >> 1 & 4) | (lane << 1 & 2); }

/* All lanes have to be here: a matrix has no value while some are elsewhere. */
MSIM_INLINE void gather_matrix(location here) {
#ifdef MSIM_PLAIN
    return; // only to report lanes that are missing
#endif
    msim_request request = {nullptr, nullptr, MSIM_MATRIX_SYNC, MSIM_U32, 1, 32, 0, here.line, here.place};
    msim_collective(&request);
}

template <class T> struct matrix_slot {
    alignas(8) metal::vec<T, 2> elements;
};
template <class D, class A, class B, class C> struct matrix_operands {
    matrix_slot<D> d;
    matrix_slot<A> a;
    matrix_slot<B> b;
    matrix_slot<C> c;
};

template <class D, class A, class B, class C>
MSIM_INLINE void multiply_matrices(metal::simdgroup_matrix<D, 8, 8> &d, const metal::simdgroup_matrix<A, 8, 8> &a,
                                   const metal::simdgroup_matrix<B, 8, 8> &b,
                                   const metal::simdgroup_matrix<C, 8, 8> &c, location here) {
#ifndef MSIM_COUNTED /* the counters look for collectives */
    if constexpr (metal::is_same_v<D, float> && metal::is_same_v<A, float> && metal::is_same_v<B, float> &&
                  metal::is_same_v<C, float>) {
        const auto &x = a.elements.element, &y = b.elements.element, &z = c.elements.element;
        msim_pair result = msim_multiply(x[0], x[1], y[0], y[1], z[0], z[1], here.line, here.place);
        d.elements.element[0] = result.first;
        d.elements.element[1] = result.second;
        return;
    }
#endif
    matrix_operands<D, A, B, C> operands = {{}, {a.elements}, {b.elements}, {c.elements}};
    constexpr unsigned types = type_code<A>::value | type_code<B>::value << 8 | type_code<C>::value << 16;
    msim_request request = {&operands, nullptr, MSIM_MATRIX_MULTIPLY, (unsigned)type_code<D>::value, 2, 32, types,
                            here.line, here.place};
    msim_collective(&request);
    d.elements = operands.d.elements;
}

template <class T, class P>
MSIM_INLINE void load_matrix(metal::simdgroup_matrix<T, 8, 8> &d, P source, metal::ulong2 steps, metal::ulong2 origin,
                             location here) {
    gather_matrix(here);
    unsigned lane = lane_in_simdgroup();
    unsigned long row = origin.y + fragment_row(lane), column = origin.x + fragment_column(lane);
    unsigned long at = row * steps.y + column * steps.x;
    d.elements.element[0] = source[at];
    d.elements.element[1] = source[at + steps.x];
}

template <class T, class P>
MSIM_INLINE void store_matrix(const metal::simdgroup_matrix<T, 8, 8> &a, P target, metal::ulong2 steps,
                              metal::ulong2 origin, location here) {
    gather_matrix(here);
    unsigned lane = lane_in_simdgroup();
    unsigned long row = origin.y + fragment_row(lane), column = origin.x + fragment_column(lane);
    unsigned long at = row * steps.y + column * steps.x;
    target[at] = a.elements.element[0];
    target[at + steps.x] = a.elements.element[1];
}

}  // namespace msim

namespace metal {

template <class T, int Cols, int Rows> struct simdgroup_matrix {
    static_assert(Cols == 8 && Rows == 8, "simdgroup_matrix is 8 by 8");
    static_assert(is_floating_point_v<T>, "simdgroup_matrix holds float, half or bfloat");
    using value_type = T;

    vec<T, 2> elements;

    simdgroup_matrix() = default;
    /* A diagonal matrix. */
    explicit MSIM_INLINE simdgroup_matrix(T diagonal) {
        unsigned lane = msim::lane_in_simdgroup(), first = msim::fragment_column(lane), row = msim::fragment_row(lane);
        elements.element[0] = first == row ? diagonal : T(0);
        elements.element[1] = first + 1 == row ? diagonal : T(0);
    }
    MSIM_INLINE vec<T, 2> &thread_elements() { return elements; }
    MSIM_INLINE const vec<T, 2> &thread_elements() const { return elements; }
};

using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Cols, int Rows = Cols>
MSIM_INLINE simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, Cols, Rows> result;
    result.elements = vec<T, 2>(value);
    return result;
}
template <class T, int Cols, int Rows = Cols>
MSIM_INLINE simdgroup_matrix<T, Cols, Rows> make_diagonal_simdgroup_matrix(T value) {
    return simdgroup_matrix<T, Cols, Rows>(value);
}

#define MSIM_MATRIX_LOAD(SPACE)                                                                          \
    template <class T>                                                                                   \
    MSIM_INLINE void simdgroup_load(simdgroup_matrix<T, 8, 8> &d, const SPACE T *source,                 \
                                    ulong elements_per_row = 8, ulong2 origin = ulong2(0),               \
                                    bool transpose = false, MSIM_HERE) {                                 \
        msim::load_matrix(d, source, transpose ? ulong2(elements_per_row, 1) : ulong2(1, elements_per_row), origin, here); \
    }
MSIM_MATRIX_LOAD(device) MSIM_MATRIX_LOAD(threadgroup)
#undef MSIM_MATRIX_LOAD

#define MSIM_MATRIX_STORE(SPACE)                                                                         \
    template <class T>                                                                                   \
    MSIM_INLINE void simdgroup_store(const simdgroup_matrix<T, 8, 8> &a, SPACE T *target,                \
                                     ulong elements_per_row = 8, ulong2 origin = ulong2(0),              \
                                     bool transpose = false, MSIM_HERE) {                                \
        msim::store_matrix(a, target, transpose ? ulong2(elements_per_row, 1) : ulong2(1, elements_per_row), origin, here); \
    }
MSIM_MATRIX_STORE(device) MSIM_MATRIX_STORE(threadgroup)
#undef MSIM_MATRIX_STORE

template <class D, class A, class B>
MSIM_INLINE void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                    const simdgroup_matrix<B, 8, 8> &b, MSIM_HERE) {
    msim::multiply_matrices(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)), here);
}
template <class D, class A, class B, class C>
MSIM_INLINE void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                               const simdgroup_matrix<B, 8, 8> &b,
                                               const simdgroup_matrix<C, 8, 8> &c, MSIM_HERE) {
    msim::multiply_matrices(d, a, b, c, here);
}
template <class T>
MSIM_INLINE simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8> &a, const simdgroup_matrix<T, 8, 8> &b) {
    simdgroup_matrix<T, 8, 8> result;
    simdgroup_multiply(result, a, b);
    return result;
}

}  // namespace metal

#endif
