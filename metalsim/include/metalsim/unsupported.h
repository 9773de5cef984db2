/* Features that metalsim does not have: using one is a compile error that names it. */
#ifndef METALSIM_UNSUPPORTED_H
#define METALSIM_UNSUPPORTED_H

namespace msim {
template <class...> struct never { static constexpr bool value = false; };
}

namespace metal {
/* So that it can be used: what is in it is not there. */
namespace raytracing {}
enum class access { sample, read, write, read_write };
#define MSIM_UNSUPPORTED(NAME)                                                           \
    template <class T, access... A> struct NAME {                                        \
        static_assert(msim::never<T>::value, "metalsim does not support " #NAME);        \
    };
MSIM_UNSUPPORTED(texture1d) MSIM_UNSUPPORTED(texture2d) MSIM_UNSUPPORTED(texture2d_array)
MSIM_UNSUPPORTED(texture1d_array) MSIM_UNSUPPORTED(texture2d_ms) MSIM_UNSUPPORTED(texture3d)
MSIM_UNSUPPORTED(texturecube) MSIM_UNSUPPORTED(texturecube_array) MSIM_UNSUPPORTED(texture_buffer)
MSIM_UNSUPPORTED(depth2d) MSIM_UNSUPPORTED(depth2d_array) MSIM_UNSUPPORTED(depth2d_ms) MSIM_UNSUPPORTED(depthcube)
#undef MSIM_UNSUPPORTED
}  // namespace metal

#endif
