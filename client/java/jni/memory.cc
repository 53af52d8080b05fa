// Memory outside the heap, and the library itself.
#include <cstdlib>
#include <cstring>

#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;

extern "C" {

// Of Native.VERSION: of what the class and this library expect of each other.
JNIEXPORT jint JNICALL Java_paramd_Native_version(JNIEnv*, jclass) { return 3; }

JNIEXPORT jlong JNICALL Java_paramd_Native_address(JNIEnv* env, jclass, jobject buffer) {
  return Address(env->GetDirectBufferAddress(buffer));
}

JNIEXPORT jobject JNICALL Java_paramd_Native_view(JNIEnv* env, jclass, jlong address, jlong bytes) {
  return env->NewDirectByteBuffer(As<void>(address), bytes);
}

JNIEXPORT jlong JNICALL Java_paramd_Native_allocate(JNIEnv* env, jclass, jlong bytes) {
  void* memory = std::malloc(static_cast<size_t>(bytes));
  if (memory == nullptr) {
    paramd::jni::Throw(
        env, PARAMD_RESOURCE_EXHAUSTED,
        "there is no memory outside the heap for a copy of the floats; give direct buffers in native byte "
        "order, which need none, or more memory to the process");
  }
  return Address(memory);
}

JNIEXPORT void JNICALL Java_paramd_Native_free(JNIEnv*, jclass, jlong address) { std::free(As<void>(address)); }

JNIEXPORT void JNICALL Java_paramd_Native_copy(JNIEnv*, jclass, jlong from, jlong to, jlong bytes) {
  std::memcpy(As<void>(to), As<const void>(from), static_cast<size_t>(bytes));
}

}  // extern "C"
