// simdgroup_matrix<T, 8, 8> on mma.sync. Needs KX_MATRIX_LANES, with which a lane's two elements of Metal's fragment
// (row, column), (row, column + 1) are those of mma's accumulator and of its left operand; the right operand is
// transposed between the lanes first. One multiplication fills 8 of the 16 rows of m16n8k8.
//
// Float operands are multiplied by fused multiply-adds, one k after the other: the tensor cores' tf32 keeps 10 bits.
namespace kx_metal {

KX_FN uint kx_row() { return kx_here() >> 2; }
KX_FN uint kx_column() { return (kx_here() & 3u) << 1; }

template <class T, int Cols, int Rows> struct simdgroup_matrix {
    static_assert(Cols == 8 && Rows == 8, "simdgroup_matrix is 8 by 8");
    using value_type = T;
    vec<T, 2> elements;

    simdgroup_matrix() = default;
    explicit KX_FN simdgroup_matrix(T diagonal) {
        elements.x = kx_row() == kx_column() ? diagonal : T(0);
        elements.y = kx_row() == kx_column() + 1 ? diagonal : T(0);
    }
    KX_FN vec<T, 2> &thread_elements() { return elements; }
    KX_FN const vec<T, 2> &thread_elements() const { return elements; }
};
using simdgroup_float8x8 = simdgroup_matrix<float, 8, 8>;
using simdgroup_half8x8 = simdgroup_matrix<half, 8, 8>;
using simdgroup_bfloat8x8 = simdgroup_matrix<bfloat, 8, 8>;

template <class T, int Cols, int Rows = Cols> KX_FN simdgroup_matrix<T, Cols, Rows> make_filled_simdgroup_matrix(T value) {
    simdgroup_matrix<T, Cols, Rows> result;
    result.elements = vec<T, 2>(value);
    return result;
}
template <class T, int Cols, int Rows = Cols>
KX_FN simdgroup_matrix<T, Cols, Rows> make_diagonal_simdgroup_matrix(T value) {
    return simdgroup_matrix<T, Cols, Rows>(value);
}

template <class T, class S>
KX_FN void simdgroup_load(simdgroup_matrix<T, 8, 8> &m, const S *source, ulong elements_per_row = 8,
                          ulong2 origin = ulong2(0), bool transpose = false) {
    ulong along = transpose ? elements_per_row : 1, across = transpose ? 1 : elements_per_row;
    const S *first = source + (origin.y + kx_row()) * across + (origin.x + kx_column()) * along;
    m.elements.x = T(first[0]);
    m.elements.y = T(first[along]);
}
template <class T, class S>
KX_FN void simdgroup_store(const simdgroup_matrix<T, 8, 8> &m, S *target, ulong elements_per_row = 8,
                           ulong2 origin = ulong2(0), bool transpose = false) {
    ulong along = transpose ? elements_per_row : 1, across = transpose ? 1 : elements_per_row;
    S *first = target + (origin.y + kx_row()) * across + (origin.x + kx_column()) * along;
    first[0] = S(m.elements.x);
    first[along] = S(m.elements.y);
}

// The lane's two elements of the transposed matrix: (column, row), (column + 1, row).
KX_FN uint kx_transposed(uint pair) {
    uint result;
    asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
    return result;
}
#define KX_MMA(TYPE, PTX)                                                                                      \
    KX_FN float2 kx_multiply(const vec<TYPE, 2> &a, const vec<TYPE, 2> &b, float2 c) {                         \
        float unused0 = 0.0f, unused1 = 0.0f;                                                                  \
        asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." PTX "." PTX ".f32 {%0, %1, %2, %3}, {%4, %5}, "   \
                     "{%6}, {%0, %1, %2, %3};"                                                                 \
                     : "+f"(c.x), "+f"(c.y), "+f"(unused0), "+f"(unused1)                                      \
                     : "r"(as_type<uint>(a)), "r"(0u), "r"(kx_transposed(as_type<uint>(b))));                  \
        return c;                                                                                              \
    }
KX_MMA(half, "f16")
KX_MMA(bfloat, "bf16")
#undef KX_MMA
KX_FN float2 kx_multiply(const float2 &a, const float2 &b, float2 c) {
    uint row = kx_row(), column = kx_column();
    KX_UNROLL for (uint k = 0; k < 8; k++) {
        float left = __shfl_sync(0xffffffffu, k & 1 ? a.y : a.x, row * 4 + k / 2);
        c.x = ::fmaf(left, __shfl_sync(0xffffffffu, b.x, k * 4 + column / 2), c.x);
        c.y = ::fmaf(left, __shfl_sync(0xffffffffu, b.y, k * 4 + column / 2), c.y);
    }
    return c;
}

template <class D, class A, class B, class C>
KX_FN void simdgroup_multiply_accumulate(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                                         const simdgroup_matrix<B, 8, 8> &b, const simdgroup_matrix<C, 8, 8> &c) {
    float2 sum = float2(float(c.elements.x), float(c.elements.y));
    if constexpr (is_same_v<A, B> && is_small_float_v<A>) {
        sum = kx_multiply(a.elements, b.elements, sum);
    } else {
        sum = kx_multiply(float2(float(a.elements.x), float(a.elements.y)),
                          float2(float(b.elements.x), float(b.elements.y)), sum);
    }
    d.elements = vec<D, 2>(D(sum.x), D(sum.y));
}
template <class D, class A, class B>
KX_FN void simdgroup_multiply(simdgroup_matrix<D, 8, 8> &d, const simdgroup_matrix<A, 8, 8> &a,
                              const simdgroup_matrix<B, 8, 8> &b) {
    simdgroup_multiply_accumulate(d, a, b, make_filled_simdgroup_matrix<D, 8, 8>(D(0)));
}
template <class T>
KX_FN simdgroup_matrix<T, 8, 8> operator*(const simdgroup_matrix<T, 8, 8> &a, const simdgroup_matrix<T, 8, 8> &b) {
    simdgroup_matrix<T, 8, 8> result;
    simdgroup_multiply(result, a, b);
    return result;
}

}  // namespace kx_metal
