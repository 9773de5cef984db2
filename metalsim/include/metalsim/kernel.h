/* Everything that a kernel text expects: included before it. */
#include "types.h"
#include "vec.h"
#include "math.h"
#include "simd.h"
#include "matrix.h"
#include "atomic.h"
#include "unsupported.h"
#include "mlx.h"
