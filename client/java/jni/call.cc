#include "client/java/jni/call.h"

#include <cstring>

namespace paramd::jni {

Text::Text(JNIEnv* env, jbyteArray bytes) : given_(bytes != nullptr) {
  if (!given_) return;
  text_.resize(static_cast<size_t>(env->GetArrayLength(bytes)));
  env->GetByteArrayRegion(bytes, 0, static_cast<jsize>(text_.size()), reinterpret_cast<jbyte*>(text_.data()));
}

Texts::Texts(JNIEnv* env, jobjectArray array) {
  const jsize count = env->GetArrayLength(array);
  texts_.reserve(static_cast<size_t>(count));
  for (jsize i = 0; i < count; ++i) {
    auto text = static_cast<jbyteArray>(env->GetObjectArrayElement(array, i));
    texts_.emplace_back(env, text);
    env->DeleteLocalRef(text);
  }
  for (const Text& text : texts_) pointers_.push_back(text.c_str());
}

std::vector<jlong> Longs(JNIEnv* env, jlongArray array) {
  std::vector<jlong> values(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetLongArrayRegion(array, 0, static_cast<jsize>(values.size()), values.data());
  return values;
}

std::vector<jdouble> Doubles(JNIEnv* env, jdoubleArray array) {
  std::vector<jdouble> values(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetDoubleArrayRegion(array, 0, static_cast<jsize>(values.size()), values.data());
  return values;
}

jbyteArray Bytes(JNIEnv* env, const char* text) {
  const jsize length = text == nullptr ? 0 : static_cast<jsize>(std::strlen(text));
  jbyteArray bytes = env->NewByteArray(length);
  if (bytes != nullptr) env->SetByteArrayRegion(bytes, 0, length, reinterpret_cast<const jbyte*>(text));
  return bytes;
}

jdoubleArray DoubleArray(JNIEnv* env, const double* values, size_t count) {
  jdoubleArray array = env->NewDoubleArray(static_cast<jsize>(count));
  if (array != nullptr) env->SetDoubleArrayRegion(array, 0, static_cast<jsize>(count), values);
  return array;
}

jlongArray LongArray(JNIEnv* env, const std::vector<jlong>& values) {
  jlongArray array = env->NewLongArray(static_cast<jsize>(values.size()));
  if (array != nullptr) env->SetLongArrayRegion(array, 0, static_cast<jsize>(values.size()), values.data());
  return array;
}

// Looked up each time: a class that is held on to would keep its class loader alive.
void Throw(JNIEnv* env, paramd_code code, const char* message) {
  if (env->ExceptionCheck()) return;
  jclass type = env->FindClass("paramd/ParamdException");
  if (type == nullptr) return;
  jmethodID constructor = env->GetMethodID(type, "<init>", "(I[B)V");
  if (constructor == nullptr) return;
  jbyteArray text = Bytes(env, message);
  if (text == nullptr) return;
  jobject exception = env->NewObject(type, constructor, static_cast<jint>(code), text);
  if (exception != nullptr) env->Throw(static_cast<jthrowable>(exception));
}

bool Check(JNIEnv* env, paramd_code code) {
  if (code == PARAMD_OK) return true;
  Throw(env, code, paramd_error_message());
  return false;
}

}  // namespace paramd::jni
