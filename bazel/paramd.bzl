"""Our own libraries, binaries and tests: one set of warnings for all, and the wire's generated code."""

_COPTS = [
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wno-missing-field-initializers",
    "-Werror",
]

def _join(name, srcs, replacement, testonly = None):
    """NAME.cc: all of `srcs`, in whose copies the line "namespace {" is `replacement`."""
    native.genrule(
        name = name + "_gen",
        testonly = testonly,
        srcs = srcs,
        outs = [name + ".cc"],
        cmd = """{
        # Types of a nameless namespace, which the compiler takes for a header's here.
        echo '#ifndef __clang__'
        echo '#pragma GCC diagnostic ignored "-Wsubobject-linkage"'
        echo '#endif'
        for src in $(SRCS); do
            echo '#line 1 "'$$src'"'
            sed "s/^namespace {$$/%s/" $$src
        done; } >$@""" % replacement,
    )

# By its file's name.
_NAMED = "namespace in_$$(basename $$src .cc) {"

def _joined(name, srcs, testonly, apart):
    """With --config=joined, and for analysis and sanitizers, the files of a target are compiled as one: they have most of
    their headers and templates in common. So no two of them may have one name in a nameless namespace, unless they are
    kept `apart`: nothing outside of these namespaces may use what is in them then."""
    files = [src for src in srcs if src.endswith(".cc") and ":" not in src]
    if len(files) < 2:
        return srcs
    joined = name.replace(".", "_") + "_joined"
    _join(joined, files, _NAMED if apart else "namespace {", testonly)
    return select({
        "//bazel:joined": [src for src in srcs if src not in files] + [joined + ".cc"],
        "//conditions:default": srcs,
    })

def paramd_library(name, srcs = [], copts = [], apart = False, **kwargs):
    # Nothing is linked with a shared library of its own.
    kwargs.setdefault("linkstatic", True)
    native.cc_library(
        name = name,
        srcs = _joined(name, srcs, kwargs.get("testonly"), apart),
        copts = _COPTS + copts,
        **kwargs
    )

def paramd_binary(name, srcs = [], copts = [], deps = [], linkshared = False, joined = True, **kwargs):
    native.cc_binary(
        name = name,
        srcs = _joined(name, srcs, kwargs.get("testonly"), apart = False) if joined else srcs,
        copts = _COPTS + copts,
        linkshared = linkshared,
        deps = deps + ["//bazel/system:link_shared" if linkshared else "//bazel/system:link_static"],
        **kwargs
    )

def paramd_test(name, srcs = None, file = None, cases = None, deps = [], copts = [], **kwargs):
    """A Catch2 test, by default of the one file NAME.cc.

    With --config=joined it takes the cases of the file FILE.cc from `cases`, if that is given. FILE is NAME by default."""
    if srcs == None:
        srcs = [name + ".cc"]
    if cases:
        kwargs["args"] = select({
            "//bazel:joined": ["-#", "[#%s]" % (file or name)],
            "//conditions:default": [],
        })
        srcs = select({"//bazel:joined": [], "//conditions:default": srcs})
        deps = select({"//bazel:joined": [cases], "//conditions:default": deps})

    # The linker would drop a shared library of algorithms that nothing names.
    kwargs.setdefault("linkstatic", True)
    native.cc_test(
        name = name,
        srcs = srcs,
        copts = _COPTS + copts,
        deps = deps + ["//tests/support:catch_main", "//bazel/system:link_shared"],
        **kwargs
    )

def paramd_cases(name, srcs, deps, **kwargs):
    """The cases of many tests that run on their own, compiled as one file; see paramd_test."""
    _join(name + "_joined", srcs, _NAMED, testonly = True)
    paramd_library(
        name = name,
        testonly = True,
        srcs = [name + "_joined.cc"],
        alwayslink = True,
        # Only where it is used.
        tags = ["manual"],
        deps = deps + ["//tests/support:catch_main"],
        **kwargs
    )

def paramd_tests(name, srcs, hdrs = [], tags = [], **kwargs):
    """One Catch2 test of many files, and for each NAME.cc of them a test NAME that only runs when it is named.

    They are compiled as one file, in which each file's nameless namespace has the file's name: the headers and templates
    that all of them use take longer than the tests themselves."""
    _join(name, srcs, _NAMED, testonly = True)
    paramd_test(name = name, srcs = [name + ".cc"] + hdrs, tags = tags, **kwargs)
    for src in srcs:
        paramd_test(name = src[:-len(".cc")], srcs = [src] + hdrs, tags = tags + ["manual"], **kwargs)

def paramd_proto_library(name, src, visibility = None):
    """Messages (lite) and gRPC stubs of one .proto file, made by the system's protoc, and its descriptors."""
    stem = src[:-len(".proto")]
    outs = [stem + ".pb.h", stem + ".pb.cc", stem + ".grpc.pb.h", stem + ".grpc.pb.cc"]
    native.genrule(
        name = name + "_gen",
        srcs = [src],
        outs = outs,
        cmd = "/usr/bin/protoc -I. --cpp_out=$(GENDIR) --grpc_out=$(GENDIR)" +
              " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin $(SRCS)",
    )
    native.genrule(
        name = name + "_descriptors",
        srcs = [src],
        outs = [stem + ".descriptors"],
        cmd = "/usr/bin/protoc -I. --descriptor_set_out=$@ $(SRCS)",
        visibility = visibility,
    )
    native.cc_library(
        name = name,
        srcs = [o for o in outs if o.endswith(".pb.cc") and not o.endswith(".grpc.pb.cc")],
        hdrs = [outs[0]],
        deps = ["//bazel/system:protobuf_lite"],
        visibility = visibility,
    )
    native.cc_library(
        name = name + "_grpc",
        srcs = [outs[3]],
        hdrs = [outs[2]],
        deps = [":" + name, "//bazel/system:grpc"],
        visibility = visibility,
    )
