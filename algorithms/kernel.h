// Loops over floats that use the widest vectors of the processor they run on.
#ifndef PARAMD_ALGORITHMS_KERNEL_H_
#define PARAMD_ALGORITHMS_KERNEL_H_

// Before a function at namespace scope, in a .cc file: compiles it twice, for any x86-64 and for AVX2, and chooses when
// the program is loaded. Results are the same to the bit: AVX2 alone brings no fused multiply-add.
//
// Only for loops over raw pointers that call nothing. An inline function compiled for AVX2 could become the copy that
// all of the program shares, and then crash on a processor without.
//
// AVX-512 is not among the versions: it gains 5 to 25 % where data is in the second-level cache, and loses as much
// where it comes from memory. Under ThreadSanitizer, which is not ready when the choice is made, it is the plain
// function.
#if defined(__x86_64__) && !defined(__SANITIZE_THREAD__)
#define PARAMD_KERNEL __attribute__((target_clones("avx2", "default"))) static
#else
#define PARAMD_KERNEL static
#endif

#endif  // PARAMD_ALGORITHMS_KERNEL_H_
