/* Everything that the text of a custom kernel of MLX expects: included before it. */
#include "metal.h"
#include "mlx.h"
