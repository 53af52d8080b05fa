#!/usr/bin/env python3
"""Makes the process-wide symbols of shared libraries ordinary ones, in place.

    localize_symbols.py LIBRARY...

g++ marks the static variables of inline functions and templates STB_GNU_UNIQUE: the loader then gives every library of
the process the first one's, also where it keeps libraries apart. Two versions of a library in one process so share half
of their state, and crash. As weak symbols they are found by the scope of whoever loaded the library, as all others are.
"""

import struct
import sys

DYNSYM = 11  # SHT_DYNSYM
UNIQUE = 10  # STB_GNU_UNIQUE
WEAK = 2


def localize(path):
    with open(path, "r+b") as file:
        elf = bytearray(file.read())
        if elf[:6] != b"\x7fELF\x02\x01":
            sys.exit(f"localize_symbols: {path} is no 64-bit little-endian ELF file")
        (sections,) = struct.unpack_from("<Q", elf, 0x28)
        size, count = struct.unpack_from("<HH", elf, 0x3A)
        for header in range(sections, sections + size * count, size):
            if struct.unpack_from("<I", elf, header + 4)[0] != DYNSYM:
                continue
            offset, length = struct.unpack_from("<QQ", elf, header + 0x18)
            for info in range(offset + 4, offset + length, 24):
                if elf[info] >> 4 == UNIQUE:
                    elf[info] = WEAK << 4 | elf[info] & 0xF
        file.seek(0)
        file.write(elf)


for library in sys.argv[1:]:
    localize(library)
