/* matrix<T, C, R>: C columns of R components each; m[c] is a column. */
#ifndef METALSIM_COLUMNS_H
#define METALSIM_COLUMNS_H

#include "math.h"

namespace msim {
template <class T, T... I> struct number_list {};
template <int N> using numbers = __make_integer_seq<number_list, int, N>;
}  // namespace msim

namespace metal {

template <class T, int C, int R> struct matrix {
    using value_type = T;
    vec<T, R> columns[C];

    matrix() = default;
    /* A diagonal matrix. */
    explicit MSIM_INLINE constexpr matrix(T diagonal) : matrix(diagonal, msim::numbers<C>()) {}
    template <class U, enable_if_t<!is_same_v<U, T>, int> = 0>
    explicit MSIM_INLINE matrix(const matrix<U, C, R> &other) {
        for (int c = 0; c < C; c++) columns[c] = vec<T, R>(other.columns[c]);
    }
    template <class... A, enable_if_t<sizeof...(A) == C && (C > 1) && (msim::is_vector<A>::value && ...), int> = 0>
    MSIM_INLINE constexpr matrix(const A &...column) : columns{vec<T, R>(column)...} {}
    template <class... A, enable_if_t<sizeof...(A) == C * R && (!msim::is_vector<A>::value && ...), int> = 0>
    MSIM_INLINE constexpr matrix(A... value) : matrix(msim::flat<T, C * R>(value...), msim::numbers<C>()) {}
    MSIM_INLINE vec<T, R> &operator[](int c) { return columns[c]; }
    MSIM_INLINE const vec<T, R> &operator[](int c) const { return columns[c]; }

#define MSIM_ELEMENTWISE(op)                                                               \
    friend MSIM_INLINE matrix operator op(const matrix &a, const matrix &b) {              \
        matrix result;                                                                     \
        for (int c = 0; c < C; c++) result.columns[c] = a.columns[c] op b.columns[c];      \
        return result;                                                                     \
    }                                                                                      \
    MSIM_INLINE matrix &operator op##=(const matrix &b) { return *this = *this op b; }
    MSIM_ELEMENTWISE(+) MSIM_ELEMENTWISE(-)
#undef MSIM_ELEMENTWISE
    friend MSIM_INLINE matrix operator*(const matrix &a, T b) {
        matrix result;
        for (int c = 0; c < C; c++) result.columns[c] = a.columns[c] * b;
        return result;
    }
    friend MSIM_INLINE matrix operator*(T a, const matrix &b) { return b * a; }
    MSIM_INLINE matrix &operator*=(T b) { return *this = *this * b; }
    MSIM_INLINE matrix &operator*=(const matrix<T, C, C> &b) { return *this = *this * b; }
    friend MSIM_INLINE matrix operator-(const matrix &a) { return a * T(-1); }
    friend MSIM_INLINE vec<T, R> operator*(const matrix &a, const vec<T, C> &v) {
        vec<T, R> result = a.columns[0] * v.element[0];
        for (int c = 1; c < C; c++) result = result + a.columns[c] * v.element[c];
        return result;
    }
    friend MSIM_INLINE vec<T, C> operator*(const vec<T, R> &v, const matrix &a) {
        vec<T, C> result;
        for (int c = 0; c < C; c++) result.element[c] = dot(v, a.columns[c]);
        return result;
    }
    template <int K> friend MSIM_INLINE matrix<T, K, R> operator*(const matrix &a, const matrix<T, K, C> &b) {
        matrix<T, K, R> result;
        for (int k = 0; k < K; k++) result.columns[k] = a * b.columns[k];
        return result;
    }

private:
    template <int... I>
    MSIM_INLINE constexpr matrix(T diagonal, msim::number_list<int, I...>) : columns{unit(diagonal, I)...} {}
    template <int... I>
    MSIM_INLINE constexpr matrix(const msim::flat<T, C * R> &all, msim::number_list<int, I...>)
        : columns{column(all, I)...} {}
    static MSIM_INLINE constexpr vec<T, R> unit(T diagonal, int c) {
        msim::flat<T, R> one(T(0));
        if (c < R) one.element[c] = diagonal;
        return vec<T, R>(one);
    }
    static MSIM_INLINE constexpr vec<T, R> column(const msim::flat<T, C * R> &all, int c) {
        msim::flat<T, R> one(T(0));
        for (int r = 0; r < R; r++) one.element[r] = all.element[c * R + r];
        return vec<T, R>(one);
    }
};

template <class T, int C, int R> MSIM_INLINE matrix<T, R, C> transpose(const matrix<T, C, R> &a) {
    matrix<T, R, C> result;
    for (int c = 0; c < C; c++)
        for (int r = 0; r < R; r++) result.columns[r].element[c] = a.columns[c].element[r];
    return result;
}

template <class T> MSIM_INLINE T determinant(const matrix<T, 2, 2> &a) { return a[0].x * a[1].y - a[1].x * a[0].y; }
template <class T> MSIM_INLINE T determinant(const matrix<T, 3, 3> &a) { return dot(a[0], cross(a[1], a[2])); }
template <class T> MSIM_INLINE T determinant(const matrix<T, 4, 4> &a) {
    T result = T(0);
    for (int c = 0; c < 4; c++) {
        matrix<T, 3, 3> minor;
        for (int k = 0; k < 3; k++) {
            const vec<T, 4> &column = a[k < c ? k : k + 1];
            minor[k] = vec<T, 3>(column.y, column.z, column.w);
        }
        T term = a[c].x * determinant(minor);
        result = c % 2 ? result - term : result + term;
    }
    return result;
}

#define MSIM_MATRIX_NAMES(T)                                                               \
    using T##2x2 = matrix<T, 2, 2>; using T##2x3 = matrix<T, 2, 3>; using T##2x4 = matrix<T, 2, 4>; \
    using T##3x2 = matrix<T, 3, 2>; using T##3x3 = matrix<T, 3, 3>; using T##3x4 = matrix<T, 3, 4>; \
    using T##4x2 = matrix<T, 4, 2>; using T##4x3 = matrix<T, 4, 3>; using T##4x4 = matrix<T, 4, 4>;
MSIM_MATRIX_NAMES(float) MSIM_MATRIX_NAMES(half) MSIM_MATRIX_NAMES(bfloat)
#undef MSIM_MATRIX_NAMES

}  // namespace metal

#endif
