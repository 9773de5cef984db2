"""From C++ to an instrumented library: compiler, cache, LLVM IR, hooks, static profiles of blocks."""
