#!/usr/bin/env python3
"""Puts a shared library into a folder with the system's libraries that it needs, so that nobody gets between them.

    bundle_libraries.py [--runtime] LIBRARY FOLDER

The system's libraries (gRPC, protobuf, Abseil and what these need, not glibc) become private to LIBRARY:

- They get names of their own, after the content of all: the loader takes a library for one that is loaded already if
  the names are the same. So another version in the same process does not get in the way, and two copies of this one
  share theirs.
- Their symbols get names of their own. The loader looks for a symbol in the program and whatever was loaded for all to
  see before it looks in the library's own: a framework that shows its own protobuf there would be called in our
  stead. Two bytes of each name change so that neither its length nor its hash does, and tables stay as they are:
  `_ZN4absl` is `^{N4absl`, `grpc_init` is `hQpc_init`.
- Their process-wide symbols become ordinary ones. g++ marks the static variables of inline functions and templates
  STB_GNU_UNIQUE: the loader gives every library of the process the first one's, also where it keeps libraries apart.

With --runtime, the C++ runtime and zlib, which many programs have loaded already and which are compatible with what was
built for older ones, come along, too, as they are.

Needs patchelf. LIBRARY must find the others by a run path.
"""

import argparse
import hashlib
import os
import re
import shutil
import struct
import subprocess
import sys

GLIBC = re.compile(r"(linux-vdso|ld-linux-x86-64|libc|libm|libdl|libpthread|librt)\.so")
RUNTIME = re.compile(r"(libstdc\+\+|libgcc_s|libz)\.so")

SHT_DYNSYM = 11
SHN_UNDEF = 0
SHN_ABS = 0xFFF1
STB_WEAK = 2
STB_GNU_UNIQUE = 10


def fail(message):
    sys.exit(f"bundle_libraries: {message}")


class Library:
    """A 64-bit little-endian ELF file, of which symbols can be changed in place."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.elf = bytearray(file.read())
        if self.elf[:6] != b"\x7fELF\x02\x01":
            fail(f"{path} is no 64-bit little-endian ELF file")
        (sections,) = struct.unpack_from("<Q", self.elf, 0x28)
        size, count = struct.unpack_from("<HH", self.elf, 0x3A)
        headers = [struct.unpack_from("<IIQQQQII", self.elf, sections + size * i) for i in range(count)]
        self.symbols = []  # (its place, its name's place, name)
        for _, kind, _, _, offset, length, link, _ in headers:
            if kind != SHT_DYNSYM:
                continue
            names = headers[link][4]
            for symbol in range(offset + 24, offset + length, 24):
                begin = names + struct.unpack_from("<I", self.elf, symbol)[0]
                self.symbols.append((symbol, begin, bytes(self.elf[begin : self.elf.index(0, begin)])))

    def defined(self):
        """But for names of versions, which stand among the symbols, too."""
        sections = ((name, struct.unpack_from("<H", self.elf, symbol + 6)[0]) for symbol, _, name in self.symbols)
        return {name for name, section in sections if section not in (SHN_UNDEF, SHN_ABS)}

    def shared_tails(self):
        """Pairs of names of which the second one is stored as the first one's end."""
        longest = {}
        for _, begin, name in self.symbols:
            end = begin + len(name)
            longest[end] = max(name, longest.get(end, b""), key=len)
        return {(longest[begin + len(name)], name) for _, begin, name in self.symbols} - {(n, n) for n in longest.values()}

    def localize(self):
        for symbol, _, _ in self.symbols:
            if self.elf[symbol + 4] >> 4 == STB_GNU_UNIQUE:
                self.elf[symbol + 4] = STB_WEAK << 4 | self.elf[symbol + 4] & 0xF

    def rename(self, renamed):
        for _, begin, name in self.symbols:
            new = renamed.get(name, name)
            self.elf[begin : begin + len(new)] = new

    def write(self):
        with open(self.path, "r+b") as file:
            file.write(self.elf)


def new_name(name, at):
    """Another name of the same length and the same hash, h = 33 h + c."""
    first, second = name[at], name[at + 1]
    step = 1 if chr(second).islower() or chr(second) == "_" else -1
    steps = (step, -step, 2 * step, -2 * step)
    pairs = [bytes([first + by, second - 33 * by]) for by in steps if 32 < second - 33 * by < 127]
    # The linker takes what follows an @ for a version.
    pairs.sort(key=lambda pair: b"@" in pair)
    return name[:at] + pairs[0] + name[at + 2 :]


def rename_symbols(private, others):
    """Gives what `private` libraries but the first define other names, unless `others` define it, too."""
    names = set.union(*(library.defined() for library in private[1:])) - set.union(*(other.defined() for other in others))
    names = {name for name in names if len(name) > 1}
    # What is stored in one place changes in the same bytes.
    tails = set.union(*(library.shared_tails() for library in private))
    places = {name: 0 for name in names}
    for whole, tail in tails:
        if tail in names and whole not in names:
            fail(f"can't rename {tail.decode()}, which is stored as the end of {whole.decode()}")
    moved = True
    while moved:
        moved = False
        for whole, tail in tails:
            if tail not in names:
                continue
            before = len(whole) - len(tail)
            place = max(places[tail], places[whole] - before)
            moved = moved or (places[tail], places[whole]) != (place, place + before)
            places[tail], places[whole] = place, place + before
    for whole, tail in tails:
        if whole in names:
            at = places[whole] - (len(whole) - len(tail))
            if (tail not in names and at + 2 > 0) or (tail in names and places[tail] != at):
                fail(f"can't rename {whole.decode()}, of which {tail.decode()} is stored as the end")
    renamed = {name: new_name(name, place) for name, place in places.items()}
    known = {name for library in private + others for _, _, name in library.symbols}
    clashes = known & set(renamed.values())
    if clashes or len(set(renamed.values())) != len(renamed):
        fail(f"new names of symbols are others' already: {clashes}")
    for library in private:
        library.rename(renamed)


def needed(library):
    """Paths of all that `library` needs, by name."""
    paths = {}
    for line in subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout.splitlines():
        name = os.path.basename(line.split()[0])
        if GLIBC.match(name):
            continue
        found = re.search(r"=> (/.*) \(0x", line)
        if not found:
            fail(f"can't find {name}, which {library} needs; scripts/setup.sh --packages installs it")
        paths[name] = found[1]
    return paths


def glibc(library):
    lines = subprocess.run(["ldd", library], check=True, capture_output=True, text=True).stdout
    return re.findall(r"=> (/.*/lib[cm]\.so\S*) \(0x", lines)


def patchelf(*arguments):
    subprocess.run(["patchelf", *arguments], check=True)


def install(source, target):
    shutil.copyfile(source, target)
    os.chmod(target, 0o644)


def main():
    parser = argparse.ArgumentParser(usage="%(prog)s [--runtime] LIBRARY FOLDER")
    parser.add_argument("--runtime", action="store_true")
    parser.add_argument("library")
    parser.add_argument("folder")
    options = parser.parse_args()
    for tool in ("patchelf", "ldd", "strip"):
        if not shutil.which(tool):
            fail(f"there is no {tool} here; scripts/setup.sh --packages installs it")

    paths = needed(options.library)
    runtime = {name for name in paths if RUNTIME.match(name)}
    digest = hashlib.sha256()
    for name in sorted(paths):
        with open(paths[name], "rb") as file:
            digest.update(file.read())
    names = {name: f"paramd-{digest.hexdigest()[:12]}-{name}" for name in paths.keys() - runtime}

    target = os.path.join(options.folder, os.path.basename(options.library))
    subprocess.run(["strip", "--strip-unneeded", "-o", target, options.library], check=True)
    os.chmod(target, 0o644)
    replacements = [word for name, new in names.items() for word in ("--replace-needed", name, new)]
    patchelf(*replacements, target)
    private = [Library(target)]
    for name, new in names.items():
        copy = os.path.join(options.folder, new)
        subprocess.run(["strip", "--strip-unneeded", "-o", copy, paths[name]], check=True)
        os.chmod(copy, 0o644)
        # Not in one go: patchelf 0.14 then confuses the names.
        patchelf("--set-soname", new, copy)
        patchelf(*replacements, copy)
        # Also for the linker of a program that uses LIBRARY.
        patchelf("--set-rpath", "$ORIGIN", copy)
        private.append(Library(copy))
    rename_symbols(private, [Library(path) for path in [paths[name] for name in runtime] + glibc(options.library)])
    for library in private:
        library.localize()
        library.write()
    if options.runtime:
        for name in runtime:
            install(paths[name], os.path.join(options.folder, name))


main()
