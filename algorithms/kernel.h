// Loops over floats that use the widest vectors of the processor they run on.
#ifndef PARAMD_ALGORITHMS_KERNEL_H_
#define PARAMD_ALGORITHMS_KERNEL_H_

// Before a function at namespace scope, in a .cc file: compiles it twice, for any x86-64 and for AVX2, and chooses when
// the program is loaded. Results are the same to the bit: AVX2 alone brings no fused multiply-add.
//
// Only for loops over raw pointers that call nothing. An inline function compiled for AVX2 could become the copy that
// all of the program shares, and then crash on a processor without.
//
// AVX-512 is not among the versions: it gains a tenth where data is in the second-level cache, and nothing beyond.
// Sanitizers instrument what runs before they are ready, and clang 14 clones no static function: there it is the plain
// function.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_ADDRESS__) && \
    !defined(__SANITIZE_THREAD__)
#define PARAMD_KERNEL __attribute__((target_clones("avx2", "default"))) static
#else
#define PARAMD_KERNEL static
#endif

#endif  // PARAMD_ALGORITHMS_KERNEL_H_
