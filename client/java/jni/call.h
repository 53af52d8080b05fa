// What every native function needs: arguments from Java, errors to it.
#ifndef PARAMD_CLIENT_JAVA_JNI_CALL_H_
#define PARAMD_CLIENT_JAVA_JNI_CALL_H_

#include <cxxabi.h>
#include <jni.h>

#include <exception>
#include <new>
#include <string>
#include <vector>

#include "client/c/paramd.h"

namespace paramd::jni {

// An object or memory that Java holds as a number.
template <typename T>
T* As(jlong address) {
  return reinterpret_cast<T*>(address);
}

template <typename T>
jlong Address(T* object) {
  return reinterpret_cast<jlong>(object);
}

// A byte[] with text; null stays null.
class Text {
 public:
  Text(JNIEnv* env, jbyteArray bytes);
  const char* c_str() const { return given_ ? text_.c_str() : nullptr; }

 private:
  const bool given_;
  std::string text_;
};

// Several of them, and their pointers for as long as it lives.
class Texts {
 public:
  Texts(JNIEnv* env, jobjectArray array);
  const std::vector<const char*>& pointers() const { return pointers_; }

 private:
  std::vector<Text> texts_;
  std::vector<const char*> pointers_;
};

std::vector<jlong> Longs(JNIEnv* env, jlongArray array);
std::vector<jdouble> Doubles(JNIEnv* env, jdoubleArray array);

// A new byte[] with text; null, and an exception, if there is no memory for it.
jbyteArray Bytes(JNIEnv* env, const char* text);

// Null, and an exception, if there is no memory for it.
jdoubleArray DoubleArray(JNIEnv* env, const double* values, size_t count);
jlongArray LongArray(JNIEnv* env, const std::vector<jlong>& values);

// Throws a ParamdException, unless one is on its way.
void Throw(JNIEnv* env, paramd_code code, const char* message);

// Whether a call of the C ABI succeeded; throws what it said if not.
bool Check(JNIEnv* env, paramd_code code);

// What `call` returns. An exception of C++ must not reach the JVM: it becomes a ParamdException, and the result 0.
template <typename Call>
auto Guarded(JNIEnv* env, const Call& call) -> decltype(call()) {
  try {
    return call();
  } catch (const std::bad_alloc&) {
    Throw(env, PARAMD_RESOURCE_EXHAUSTED, "there is no memory outside the heap for this call");
  } catch (const std::exception& exception) {
    Throw(env, PARAMD_INTERNAL, exception.what());
  } catch (const abi::__forced_unwind&) {
    throw;
  } catch (...) {
    Throw(env, PARAMD_INTERNAL, "an exception of unknown type");
  }
  return decltype(call())();
}

}  // namespace paramd::jni

#endif  // PARAMD_CLIENT_JAVA_JNI_CALL_H_
