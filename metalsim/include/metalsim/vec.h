/* vec<T, N>: Metal's vectors as a class, so that conversions convert and comparisons give bool vectors.
 *
 * MSIM_SWIZZLES_2, _3 and _4 list the swizzles that the kernel at hand has; the generator defines them, because
 * declaring all 672 for every vector type would cost more than compiling the kernel. It also writes `v.xy` as
 * `v.msim_get_xy()`, a value, and where it is assigned as `v.msim_set_xy()`: as members swizzles would be types of
 * their own for templates and overloads. MSIM_UNIONS says that the kernel has unions.
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
template <class T, int N, class V = vec<T, N>> struct packed_vec;
}

namespace msim {

template <class T, int N> struct flat;
struct as_data {};

template <class T> struct storage { using type = T; };
template <> struct storage<bool> { using type = unsigned char; };
template <class T, int N> using native = typename storage<T>::type __attribute__((ext_vector_type(N)));

/* Components I... of a vector as something to assign to; V is the vector type they form. */
template <class V, class T, int... I> struct swizzle {
    T *element;

    MSIM_INLINE operator V() const { return V(element[I]...); }
    MSIM_INLINE const swizzle &operator=(const V &value) const {
        int k = 0;
        ((element[I] = value.element[k++]), ...);
        return *this;
    }
    MSIM_INLINE const swizzle &operator=(const swizzle &other) const { return *this = V(other); }
#define MSIM_ASSIGN(op) \
    MSIM_INLINE const swizzle &operator op##=(const V &value) const { return *this = V(*this) op value; }
    MSIM_ASSIGN(+) MSIM_ASSIGN(-) MSIM_ASSIGN(*) MSIM_ASSIGN(/) MSIM_ASSIGN(%)
    MSIM_ASSIGN(&) MSIM_ASSIGN(|) MSIM_ASSIGN(^) MSIM_ASSIGN(<<) MSIM_ASSIGN(>>)
#undef MSIM_ASSIGN
    MSIM_INLINE const swizzle &operator++() const { return *this += V(1); }
    MSIM_INLINE const swizzle &operator--() const { return *this -= V(1); }
    MSIM_INLINE V operator++(int) const { V before(*this); *this += V(1); return before; }
    MSIM_INLINE V operator--(int) const { V before(*this); *this -= V(1); return before; }
};

/* The vector type of a vector, packed or not, or of a swizzle; not there for anything else. */
template <class A> struct vector_type {};
template <class T, int N> struct vector_type<metal::vec<T, N>> { using type = metal::vec<T, N>; };
template <class T, int N> struct vector_type<metal::packed_vec<T, N>> { using type = metal::vec<T, N>; };
template <class V, class T, int... I> struct vector_type<swizzle<V, T, I...>> { using type = V; };
template <class A> using vector_of = typename vector_type<value_t<A>>::type;

template <class A> struct is_vector_value { static constexpr bool value = false; };
template <class T, int N> struct is_vector_value<metal::vec<T, N>> { static constexpr bool value = true; };
template <class T, int N> struct is_vector_value<metal::packed_vec<T, N>> { static constexpr bool value = true; };
template <class V, class T, int... I> struct is_vector_value<swizzle<V, T, I...>> { static constexpr bool value = true; };
template <class A> struct is_vector : is_vector_value<value_t<A>> {};

/* What a value is once its swizzle is resolved. */
template <class A, bool = is_vector<A>::value> struct plain { using type = A; };
template <class A> struct plain<A, true> { using type = vector_of<A>; };
template <class A> using plain_t = typename plain<value_t<A>>::type;

/* The vector type of mixed vector and scalar operands: that of the first vector. */
template <bool, class A, class... R> struct first_vector_of;
template <class A, class... R> struct first_vector : first_vector_of<is_vector<A>::value, A, R...> {};
template <class A, class... R> struct first_vector_of<true, A, R...> : vector_type<A> {};
template <class A, class B, class... R> struct first_vector_of<false, A, B, R...> : first_vector<B, R...> {};
template <class A> struct first_vector_of<false, A> {};
template <class... A> using common_vector = typename first_vector<value_t<A>...>::type;

template <class A> constexpr bool is_scalar = metal::is_arithmetic_v<value_t<A>> || __is_enum(value_t<A>);

#define MSIM_SWIZZLE(name, width, ...)                                                                       \
    MSIM_INLINE vec<T, width> msim_get_##name() const { return components<__VA_ARGS__>(); }                  \
    MSIM_INLINE msim::swizzle<vec<T, width>, T, __VA_ARGS__> msim_set_##name() { return {element}; }
#define MSIM_COMPONENTS                                                                                      \
    template <int... I> MSIM_INLINE vec<T, sizeof...(I)> components() const {                                \
        return vec<T, sizeof...(I)>(element[I]...);                                                          \
    }

}  // namespace msim

namespace metal {

#define MSIM_VECTOR_OPERATOR(op) \
    friend MSIM_INLINE constexpr vec operator op(const vec &a, const vec &b) { return from(a.data op b.data); }
#define MSIM_COMPARISON(op)                                                                      \
    friend MSIM_INLINE constexpr vec<bool, MSIM_N> operator op(const vec &a, const vec &b) {               \
        return vec<bool, MSIM_N>::from(-__builtin_convertvector(a.data op b.data, msim::native<signed char, MSIM_N>)); \
    }
#define MSIM_COMPOUND(op)                                                                        \
    MSIM_INLINE vec &operator op##=(const vec &b) & { data = (*this op b).data; return *this; }

/* Copies as one access, which is what a GPU makes; inside unions only what is copied like plain memory can be. */
#ifdef MSIM_UNIONS
#define MSIM_COPIES vec(const vec &) = default; vec &operator=(const vec &) & = default;
#else
#define MSIM_COPIES                                                                              \
    MSIM_INLINE constexpr vec(const vec &other) : data(other.data) {}                            \
    MSIM_INLINE vec &operator=(const vec &other) & { data = other.data; return *this; }
#endif

#define MSIM_VECTOR                                                                              \
    using value_type = T;                                                                        \
    static constexpr int width = MSIM_N;                                                         \
    vec() = default;                                                                             \
    MSIM_COPIES                                                                                  \
    template <class N> static MSIM_INLINE constexpr vec from(N native) {                         \
        return vec(msim::as_data(), __builtin_convertvector(native, msim::native<T, MSIM_N>));   \
    }                                                                                            \
    MSIM_INLINE constexpr vec(msim::as_data, msim::native<T, MSIM_N> native) : data(native) {}   \
    template <class S, enable_if_t<msim::is_scalar<S>, int> = 0> MSIM_INLINE constexpr vec(S s)  \
        : data((typename msim::storage<T>::type)(T)s) {}                                         \
    template <class U, enable_if_t<!is_same_v<U, T>, int> = 0>                                   \
    explicit MSIM_INLINE vec(const vec<U, MSIM_N> &other) {                                      \
        for (int i = 0; i < MSIM_N; i++) element[i] = msim::convert<T>(other.element[i]);                       \
    }                                                                                            \
    template <class A, enable_if_t<msim::is_vector<A>::value && !is_same_v<msim::vector_of<A>, vec> && \
                                   !is_same_v<msim::vector_of<A>, msim::value_t<A>>, int> = 0>   \
    explicit MSIM_INLINE vec(const A &other) : vec(msim::vector_of<A>(other)) {}                 \
    template <class A, class B, class... R>                                                      \
    MSIM_INLINE constexpr vec(const A &a, const B &b, const R &...r)                             \
        : vec(msim::flat<T, MSIM_N>(a, b, r...)) {                                               \
        static_assert(msim::width_of<A> + msim::width_of<B> + (0 + ... + msim::width_of<R>) == MSIM_N, \
                      "a vector needs as many components as it is wide");                        \
    }                                                                                            \
    MSIM_INLINE constexpr vec(const msim::flat<T, MSIM_N> &all) : data{MSIM_LIST} {}             \
    /* Braces fill up with zeros. */                                                             \
    MSIM_INLINE constexpr vec(std::initializer_list<T> list) : vec(msim::flat<T, MSIM_N>(list)) {} \
    MSIM_INLINE T &operator[](int i) & { return element[i]; }                                    \
    MSIM_INLINE T operator[](int i) const & { return element[i]; }                               \
    MSIM_INLINE T operator[](int i) const && { return element[i]; }                              \
    MSIM_COMPONENTS                                                                              \
    MSIM_COMPOUND(+) MSIM_COMPOUND(-) MSIM_COMPOUND(*) MSIM_COMPOUND(/) MSIM_COMPOUND(%)         \
    MSIM_COMPOUND(&) MSIM_COMPOUND(|) MSIM_COMPOUND(^) MSIM_COMPOUND(<<) MSIM_COMPOUND(>>)       \
    MSIM_INLINE vec &operator++() & { return *this += vec(1); }                                  \
    MSIM_INLINE vec &operator--() & { return *this -= vec(1); }                                  \
    MSIM_INLINE vec operator++(int) & { vec before(*this); *this += vec(1); return before; }     \
    MSIM_INLINE vec operator--(int) & { vec before(*this); *this -= vec(1); return before; }     \
    MSIM_INLINE constexpr vec operator-() const { return from(-data); }                                    \
    MSIM_INLINE constexpr vec operator+() const { return *this; }                                          \
    MSIM_INLINE constexpr vec operator~() const { return from(~data); }                                    \
    MSIM_INLINE vec<bool, MSIM_N> operator!() const { return *this == vec(0); }                  \
    MSIM_VECTOR_OPERATOR(+) MSIM_VECTOR_OPERATOR(-) MSIM_VECTOR_OPERATOR(*) MSIM_VECTOR_OPERATOR(/) \
    MSIM_VECTOR_OPERATOR(%) MSIM_VECTOR_OPERATOR(&) MSIM_VECTOR_OPERATOR(|) MSIM_VECTOR_OPERATOR(^) \
    MSIM_VECTOR_OPERATOR(<<) MSIM_VECTOR_OPERATOR(>>)                                            \
    MSIM_COMPARISON(==) MSIM_COMPARISON(!=) MSIM_COMPARISON(<) MSIM_COMPARISON(<=)               \
    MSIM_COMPARISON(>) MSIM_COMPARISON(>=)                                                       \
    friend MSIM_INLINE constexpr vec<bool, MSIM_N> operator&&(const vec &a, const vec &b) {                \
        return (a != vec(0)) & (b != vec(0));                                                    \
    }                                                                                            \
    friend MSIM_INLINE constexpr vec<bool, MSIM_N> operator||(const vec &a, const vec &b) {                \
        return (a != vec(0)) | (b != vec(0));                                                    \
    }

}  // namespace metal

namespace msim {
template <class A, bool = is_vector<A>::value> struct width_type { static constexpr int value = 1; };
template <class A> struct width_type<A, true> { static constexpr int value = vector_of<A>::width; };
template <class A> constexpr int width_of = width_type<A>::value;

/* The components of a list of scalars and vectors, one after the other. */
template <class T, int N> struct flat {
    T element[N];
    MSIM_INLINE constexpr flat(std::initializer_list<T> list) : element{} {
        for (int i = 0; i < N && i < (int)list.size(); i++) element[i] = list.begin()[i];
    }
    template <class... A> MSIM_INLINE constexpr flat(const A &...a) : element{} {
        int k = 0;
        (put(k, a), ...);
    }
    template <class A> MSIM_INLINE constexpr void put(int &k, const A &a) {
        if constexpr (is_vector<A>::value) {
            vector_of<A> v(a);
            for (int i = 0; i < vector_of<A>::width && k < N; i++) element[k++] = convert<T>(v.element[i]);
        } else if (k < N) {
            element[k++] = convert<T>(a);
        }
    }
};

/* What a list in braces makes of a vector: zeros follow. */
template <class V, class... A> MSIM_INLINE constexpr V filled(const A &...a) {
    static_assert((0 + ... + width_of<A>) <= V::width, "a list of more components than the vector is wide");
    if constexpr (sizeof...(A) == 1)
        return ((0 + ... + width_of<A>) == V::width) ? V(a...) : V(flat<typename V::value_type, V::width>(a...));
    else
        return V(flat<typename V::value_type, V::width>(a...));
}
}  // namespace msim

namespace metal {

#define MSIM_N 2
#define MSIM_LIST all.element[0], all.element[1]
template <class T> struct vec<T, 2> {
    union { msim::native<T, 2> data; T element[2]; struct { T x, y; }; struct { T r, g; }; };
    MSIM_VECTOR
    MSIM_SWIZZLES_2
};
#undef MSIM_N
#undef MSIM_LIST
#define MSIM_N 3
#define MSIM_LIST all.element[0], all.element[1], all.element[2]
template <class T> struct vec<T, 3> {
    union { msim::native<T, 3> data; T element[3]; struct { T x, y, z; }; struct { T r, g, b; }; };
    MSIM_VECTOR
    MSIM_SWIZZLES_3
};
#undef MSIM_N
#undef MSIM_LIST
#define MSIM_N 4
#define MSIM_LIST all.element[0], all.element[1], all.element[2], all.element[3]
template <class T> struct vec<T, 4> {
    union { msim::native<T, 4> data; T element[4]; struct { T x, y, z, w; }; struct { T r, g, b, a; }; };
    MSIM_VECTOR
    MSIM_SWIZZLES_4
};
#undef MSIM_N
#undef MSIM_LIST

/* Vectors without padding: 12 bytes for packed_float3. V is in the parameters for the sake of its operators. */
#define MSIM_PACKED_COMPOUND(op)                                                                 \
    MSIM_INLINE packed_vec &operator op##=(const V &b) & { return *this = V(*this) op b; }
#define MSIM_PACKED                                                                              \
    using value_type = T;                                                                        \
    packed_vec() = default;                                                                      \
    packed_vec(const packed_vec &) = default;                                                    \
    packed_vec &operator=(const packed_vec &) & = default;                                       \
    MSIM_INLINE packed_vec(const V &v) {                                                         \
        for (int i = 0; i < V::width; i++) element[i] = v.element[i];                            \
    }                                                                                            \
    template <class S, enable_if_t<msim::is_scalar<S>, int> = 0>                                 \
    MSIM_INLINE packed_vec(S s) : packed_vec(V(s)) {}                                            \
    template <class A, enable_if_t<msim::is_vector<A>::value && !is_same_v<msim::vector_of<A>, V>, int> = 0> \
    explicit MSIM_INLINE packed_vec(const A &other) : packed_vec(V(other)) {}                    \
    template <class A, class B, class... R>                                                      \
    MSIM_INLINE packed_vec(const A &a, const B &b, const R &...r) : packed_vec(V(a, b, r...)) {} \
    MSIM_INLINE operator V() const {                                                             \
        V v;                                                                                     \
        for (int i = 0; i < V::width; i++) v.element[i] = element[i];                            \
        return v;                                                                                \
    }                                                                                            \
    MSIM_INLINE T &operator[](int i) & { return element[i]; }                                    \
    MSIM_INLINE T operator[](int i) const & { return element[i]; }                               \
    MSIM_INLINE T operator[](int i) const && { return element[i]; }                              \
    MSIM_COMPONENTS                                                                              \
    MSIM_PACKED_COMPOUND(+) MSIM_PACKED_COMPOUND(-) MSIM_PACKED_COMPOUND(*) MSIM_PACKED_COMPOUND(/) \
    MSIM_PACKED_COMPOUND(%) MSIM_PACKED_COMPOUND(&) MSIM_PACKED_COMPOUND(|) MSIM_PACKED_COMPOUND(^) \
    MSIM_PACKED_COMPOUND(<<) MSIM_PACKED_COMPOUND(>>)                                            \
    MSIM_INLINE packed_vec &operator++() & { return *this += V(1); }                             \
    MSIM_INLINE packed_vec &operator--() & { return *this -= V(1); }                             \
    MSIM_INLINE V operator-() const { return -V(*this); }                                        \
    MSIM_INLINE V operator+() const { return V(*this); }                                         \
    MSIM_INLINE V operator~() const { return ~V(*this); }                                        \
    MSIM_INLINE auto operator!() const { return !V(*this); }

template <class T, class V> struct packed_vec<T, 2, V> {
    union { T element[2]; struct { T x, y; }; struct { T r, g; }; };
    MSIM_PACKED MSIM_SWIZZLES_2
};
template <class T, class V> struct packed_vec<T, 3, V> {
    union { T element[3]; struct { T x, y, z; }; struct { T r, g, b; }; };
    MSIM_PACKED MSIM_SWIZZLES_3
};
template <class T, class V> struct packed_vec<T, 4, V> {
    union { T element[4]; struct { T x, y, z, w; }; struct { T r, g, b, a; }; };
    MSIM_PACKED MSIM_SWIZZLES_4
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
