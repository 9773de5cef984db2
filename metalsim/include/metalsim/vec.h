/* vec<T, N>: Metal's vectors as a class, so that conversions convert and comparisons give bool vectors.
 *
 * MSIM_SWIZZLES_2, _3 and _4 list the swizzles that the kernel at hand writes; the generator defines
 * them, because declaring all 672 for every vector type would cost more than compiling the kernel.
 */
#ifndef METALSIM_VEC_H
#define METALSIM_VEC_H

#include "types.h"

#ifndef MSIM_SWIZZLES_2
#define MSIM_SWIZZLES_2
#define MSIM_SWIZZLES_3
#define MSIM_SWIZZLES_4
#endif

namespace metal {
template <class T, int N> struct vec;
template <class T, int N> struct packed_vec;
}

namespace msim {

template <class T> struct storage { using type = T; };
template <> struct storage<bool> { using type = unsigned char; };
template <class T, int N> using native = typename storage<T>::type __attribute__((ext_vector_type(N)));

/* Components I... of the vector that shares its storage; V is the vector type they form. */
template <class V, class T, int N, int... I> struct swizzle {
    T element[N == 3 ? 4 : N];

    MSIM_INLINE operator V() const { return V(element[I]...); }
    MSIM_INLINE void assign(const V &value) {
        int k = 0;
        ((element[I] = value.element[k++]), ...);
    }
    MSIM_INLINE swizzle &operator=(const V &value) { assign(value); return *this; }
    MSIM_INLINE swizzle &operator=(const swizzle &other) { assign(V(other)); return *this; }
#define MSIM_ASSIGN(op) \
    MSIM_INLINE swizzle &operator op##=(const V &value) { assign(V(*this) op value); return *this; }
    MSIM_ASSIGN(+) MSIM_ASSIGN(-) MSIM_ASSIGN(*) MSIM_ASSIGN(/)
#undef MSIM_ASSIGN
    MSIM_INLINE T operator[](int i) const { return V(*this).element[i]; }
};

/* The vector type of a vector or swizzle; not there for anything else. */
template <class A> struct vector_type {};
template <class T, int N> struct vector_type<metal::vec<T, N>> { using type = metal::vec<T, N>; };
template <class V, class T, int N, int... I> struct vector_type<swizzle<V, T, N, I...>> { using type = V; };
template <class A> using vector_of = typename vector_type<value_t<A>>::type;

template <class A> struct is_vector { static constexpr bool value = false; };
template <class T, int N> struct is_vector<metal::vec<T, N>> { static constexpr bool value = true; };
template <class V, class T, int N, int... I> struct is_vector<swizzle<V, T, N, I...>> {
    static constexpr bool value = true;
};

/* What a value is once its swizzle is resolved. */
template <class A, bool = is_vector<A>::value> struct plain { using type = A; };
template <class A> struct plain<A, true> { using type = vector_of<A>; };
template <class A> using plain_t = typename plain<value_t<A>>::type;

/* The vector type of mixed vector and scalar operands: that of the first vector. */
template <class A, class... R> struct first_vector : first_vector<R...> {};
template <class T, int N, class... R> struct first_vector<metal::vec<T, N>, R...> { using type = metal::vec<T, N>; };
template <class V, class T, int N, int... I, class... R> struct first_vector<swizzle<V, T, N, I...>, R...> {
    using type = V;
};
template <class A> struct first_vector<A> : vector_type<A> {};
template <class T, int N> struct first_vector<metal::vec<T, N>> { using type = metal::vec<T, N>; };
template <class V, class T, int N, int... I> struct first_vector<swizzle<V, T, N, I...>> { using type = V; };
template <class... A> using common_vector = typename first_vector<value_t<A>...>::type;

template <class A> constexpr bool is_scalar = metal::is_arithmetic_v<value_t<A>> || __is_enum(value_t<A>);

#define MSIM_SWIZZLE2(name, a, b) msim::swizzle<vec<T, 2>, T, MSIM_N, a, b> name;
#define MSIM_SWIZZLE3(name, a, b, c) msim::swizzle<vec<T, 3>, T, MSIM_N, a, b, c> name;
#define MSIM_SWIZZLE4(name, a, b, c, d) msim::swizzle<vec<T, 4>, T, MSIM_N, a, b, c, d> name;

}  // namespace msim

namespace metal {

#define MSIM_VECTOR_OPERATOR(op) \
    friend MSIM_INLINE vec operator op(const vec &a, const vec &b) { return from(a.data op b.data); }
#define MSIM_COMPARISON(op)                                                                      \
    friend MSIM_INLINE vec<bool, MSIM_N> operator op(const vec &a, const vec &b) {               \
        return vec<bool, MSIM_N>::from(-__builtin_convertvector(a.data op b.data, msim::native<signed char, MSIM_N>)); \
    }
#define MSIM_COMPOUND(op)                                                                        \
    MSIM_INLINE vec &operator op##=(const vec &b) { data = (*this op b).data; return *this; }

#define MSIM_VECTOR                                                                              \
    using value_type = T;                                                                        \
    static constexpr int width = MSIM_N;                                                         \
    vec() = default;                                                                             \
    MSIM_INLINE vec(const vec &other) : data(other.data) {}                                      \
    MSIM_INLINE vec &operator=(const vec &other) { data = other.data; return *this; }            \
    template <class N> static MSIM_INLINE vec from(N native) {                                   \
        vec result;                                                                              \
        result.data = __builtin_convertvector(native, msim::native<T, MSIM_N>);                  \
        return result;                                                                           \
    }                                                                                            \
    template <class S, enable_if_t<msim::is_scalar<S>, int> = 0> MSIM_INLINE vec(S s)            \
        : data((typename msim::storage<T>::type)(T)s) {}                                         \
    template <class U, enable_if_t<!is_same_v<U, T>, int> = 0>                                   \
    explicit MSIM_INLINE vec(const vec<U, MSIM_N> &other) {                                      \
        for (int i = 0; i < MSIM_N; i++) element[i] = msim::convert<T>(other.element[i]);                       \
    }                                                                                            \
    template <class A, enable_if_t<msim::is_vector<A>::value && !is_same_v<A, vec> &&            \
                                   !is_same_v<msim::vector_of<A>, vec> &&                        \
                                   !is_same_v<msim::vector_of<A>, A>, int> = 0>                  \
    explicit MSIM_INLINE vec(const A &other) : vec(msim::vector_of<A>(other)) {}                 \
    template <class U, enable_if_t<!is_same_v<U, T>, int> = 0>                                   \
    explicit MSIM_INLINE vec(const packed_vec<U, MSIM_N> &other) {                               \
        for (int i = 0; i < MSIM_N; i++) element[i] = msim::convert<T>(other.element[i]);        \
    }                                                                                            \
    template <class A, class B, class... R> MSIM_INLINE vec(const A &a, const B &b, const R &...r) { \
        int k = 0;                                                                               \
        put(k, a);                                                                               \
        put(k, b);                                                                               \
        (put(k, r), ...);                                                                        \
        static_assert(msim::width_of<A> + msim::width_of<B> + (0 + ... + msim::width_of<R>) == MSIM_N, \
                      "a vector needs as many components as it is wide");                        \
    }                                                                                            \
    MSIM_INLINE T &operator[](int i) { return element[i]; }                                      \
    MSIM_INLINE T operator[](int i) const { return element[i]; }                                 \
    MSIM_COMPOUND(+) MSIM_COMPOUND(-) MSIM_COMPOUND(*) MSIM_COMPOUND(/) MSIM_COMPOUND(%)         \
    MSIM_COMPOUND(&) MSIM_COMPOUND(|) MSIM_COMPOUND(^) MSIM_COMPOUND(<<) MSIM_COMPOUND(>>)       \
    MSIM_INLINE vec &operator++() { return *this += vec(1); }                                    \
    MSIM_INLINE vec operator-() const { return from(-data); }                                    \
    MSIM_INLINE vec operator+() const { return *this; }                                          \
    MSIM_INLINE vec operator~() const { return from(~data); }                                    \
    MSIM_INLINE vec<bool, MSIM_N> operator!() const { return *this == vec(0); }                  \
    MSIM_VECTOR_OPERATOR(+) MSIM_VECTOR_OPERATOR(-) MSIM_VECTOR_OPERATOR(*) MSIM_VECTOR_OPERATOR(/) \
    MSIM_VECTOR_OPERATOR(%) MSIM_VECTOR_OPERATOR(&) MSIM_VECTOR_OPERATOR(|) MSIM_VECTOR_OPERATOR(^) \
    MSIM_VECTOR_OPERATOR(<<) MSIM_VECTOR_OPERATOR(>>)                                            \
    MSIM_COMPARISON(==) MSIM_COMPARISON(!=) MSIM_COMPARISON(<) MSIM_COMPARISON(<=)               \
    MSIM_COMPARISON(>) MSIM_COMPARISON(>=)                                                       \
    friend MSIM_INLINE vec<bool, MSIM_N> operator&&(const vec &a, const vec &b) {                \
        return (a != vec(0)) & (b != vec(0));                                                    \
    }                                                                                            \
    friend MSIM_INLINE vec<bool, MSIM_N> operator||(const vec &a, const vec &b) {                \
        return (a != vec(0)) | (b != vec(0));                                                    \
    }                                                                                            \
private:                                                                                         \
    template <class A> MSIM_INLINE void put(int &k, const A &a) {                                \
        if constexpr (msim::is_vector<A>::value) {                                               \
            msim::vector_of<A> v(a);                                                             \
            for (int i = 0; i < msim::vector_of<A>::width; i++) element[k++] = msim::convert<T>(v.element[i]);  \
        } else {                                                                                 \
            element[k++] = msim::convert<T>(a);                                                                 \
        }                                                                                        \
    }

}  // namespace metal

namespace msim {
template <class A, bool = is_vector<A>::value> struct width_type { static constexpr int value = 1; };
template <class A> struct width_type<A, true> { static constexpr int value = vector_of<A>::width; };
template <class A> constexpr int width_of = width_type<A>::value;
}  // namespace msim

namespace metal {

#define MSIM_N 2
template <class T> struct vec<T, 2> {
    union { msim::native<T, 2> data; T element[2]; struct { T x, y; }; struct { T r, g; }; MSIM_SWIZZLES_2 };
    MSIM_VECTOR
};
#undef MSIM_N
#define MSIM_N 3
template <class T> struct vec<T, 3> {
    union { msim::native<T, 3> data; T element[3]; struct { T x, y, z; }; struct { T r, g, b; }; MSIM_SWIZZLES_3 };
    MSIM_VECTOR
};
#undef MSIM_N
#define MSIM_N 4
template <class T> struct vec<T, 4> {
    union { msim::native<T, 4> data; T element[4]; struct { T x, y, z, w; }; struct { T r, g, b, a; }; MSIM_SWIZZLES_4 };
    MSIM_VECTOR
};
#undef MSIM_N

/* Vectors without padding: 12 bytes for packed_float3. */
template <class T, int N> struct packed_vec {
    T element[N];
    packed_vec() = default;
    MSIM_INLINE packed_vec(const vec<T, N> &v) { for (int i = 0; i < N; i++) element[i] = v.element[i]; }
    template <class... A, enable_if_t<sizeof...(A) == N, int> = 0>
    MSIM_INLINE packed_vec(A... a) : element{(T)a...} {}
    MSIM_INLINE operator vec<T, N>() const {
        vec<T, N> v;
        for (int i = 0; i < N; i++) v.element[i] = element[i];
        return v;
    }
    MSIM_INLINE T &operator[](int i) { return element[i]; }
    MSIM_INLINE T operator[](int i) const { return element[i]; }
};

#define MSIM_VECTOR_NAMES(T) \
    using T##2 = vec<T, 2>; using T##3 = vec<T, 3>; using T##4 = vec<T, 4>; \
    using packed_##T##2 = packed_vec<T, 2>; using packed_##T##3 = packed_vec<T, 3>; \
    using packed_##T##4 = packed_vec<T, 4>;
MSIM_VECTOR_NAMES(bool) MSIM_VECTOR_NAMES(char) MSIM_VECTOR_NAMES(uchar) MSIM_VECTOR_NAMES(short)
MSIM_VECTOR_NAMES(ushort) MSIM_VECTOR_NAMES(int) MSIM_VECTOR_NAMES(uint) MSIM_VECTOR_NAMES(long)
MSIM_VECTOR_NAMES(ulong) MSIM_VECTOR_NAMES(half) MSIM_VECTOR_NAMES(float) MSIM_VECTOR_NAMES(bfloat)

}  // namespace metal

#endif
