// Windows of a training loop in Java.
#include <iterator>

#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;

namespace {

paramd_window* WindowAt(jlong address) { return As<paramd_window>(address); }

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_paramd_Native_windowNew(JNIEnv* env, jclass, jlong worker, jlongArray addresses,
                                                     jlongArray lengths, jlong communication_window, jboolean overlap,
                                                     jdouble exchange_timeout, jobjectArray metric_names) {
  return Guarded(env, [&]() -> jlong {
    const std::vector<jlong> memory = paramd::jni::Longs(env, addresses);
    const std::vector<jlong> floats = paramd::jni::Longs(env, lengths);
    std::vector<paramd_span> spans;
    for (size_t i = 0; i < memory.size(); ++i) {
      spans.push_back({.floats = As<float>(memory[i]), .count = static_cast<size_t>(floats[i])});
    }
    const paramd::jni::Texts names(env, metric_names);
    const paramd_window_options options{.struct_size = sizeof(paramd_window_options),
                                        .communication_window = communication_window,
                                        .overlap = overlap ? 1 : 0,
                                        .exchange_timeout = exchange_timeout,
                                        .metrics = names.pointers().size(),
                                        .metric_names = names.pointers().data()};
    paramd_window* window = nullptr;
    Check(env, paramd_window_new(As<paramd_worker>(worker), spans.data(), spans.size(), &options, &window));
    return Address(window);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_windowFree(JNIEnv*, jclass, jlong window) {
  paramd_window_free(WindowAt(window));
}

JNIEXPORT void JNICALL Java_paramd_Native_windowBegin(JNIEnv* env, jclass, jlong window) {
  Check(env, paramd_window_begin(WindowAt(window)));
}

JNIEXPORT void JNICALL Java_paramd_Native_windowBeforeStep(JNIEnv* env, jclass, jlong window) {
  Check(env, paramd_window_before_step(WindowAt(window)));
}

JNIEXPORT jboolean JNICALL Java_paramd_Native_windowAfterStep(JNIEnv* env, jclass, jlong window, jdouble epoch,
                                                              jdoubleArray results) {
  return Guarded(env, [&]() -> jboolean {
    const std::vector<jdouble> values = paramd::jni::Doubles(env, results);
    int full = 0;
    Check(env, paramd_window_after_step(WindowAt(window), epoch, values.data(), &full));
    return full != 0;
  });
}

JNIEXPORT jboolean JNICALL Java_paramd_Native_windowByEpoch(JNIEnv*, jclass, jlong window) {
  return paramd_window_by_epoch(WindowAt(window)) != 0;
}

JNIEXPORT void JNICALL Java_paramd_Native_windowEnd(JNIEnv* env, jclass, jlong window) {
  Check(env, paramd_window_end(WindowAt(window)));
}

JNIEXPORT void JNICALL Java_paramd_Native_windowFinish(JNIEnv* env, jclass, jlong window) {
  Check(env, paramd_window_finish(WindowAt(window)));
}

JNIEXPORT void JNICALL Java_paramd_Native_windowAbandon(JNIEnv* env, jclass, jlong window) {
  Check(env, paramd_window_abandon(WindowAt(window)));
}

JNIEXPORT jdoubleArray JNICALL Java_paramd_Native_windowStatistics(JNIEnv* env, jclass, jlong window) {
  paramd_window_statistics statistics{};
  if (!Check(env, paramd_window_get_statistics(WindowAt(window), &statistics))) return nullptr;
  const jdouble fields[] = {static_cast<jdouble>(statistics.steps), static_cast<jdouble>(statistics.exchanges),
                            static_cast<jdouble>(statistics.exchanged), statistics.mean_staleness,
                            statistics.exchanging_s};
  return paramd::jni::DoubleArray(env, fields, std::size(fields));
}

}  // extern "C"
