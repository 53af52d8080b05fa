// Cancellers, specs and worker options.
#include <memory>

#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;
using paramd::jni::Text;

namespace {

// Who is told of a worker's events: paramd.Events.
struct Listener {
  JavaVM* vm = nullptr;
  jobject events = nullptr;
  jmethodID tell = nullptr;
};

// From any thread. One of native code's is the JVM's for the length of the call.
void Tell(void* context, const char* message) {
  const Listener& listener = *static_cast<Listener*>(context);
  JNIEnv* env = nullptr;
  const bool foreign = listener.vm->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_10) != JNI_OK;
  if (foreign) {
    char name[] = "paramd-heartbeat";
    JavaVMAttachArgs arguments{.version = JNI_VERSION_10, .name = name, .group = nullptr};
    if (listener.vm->AttachCurrentThreadAsDaemon(reinterpret_cast<void**>(&env), &arguments) != JNI_OK) return;
  }
  if (jbyteArray text = paramd::jni::Bytes(env, message); text != nullptr) {
    env->CallVoidMethod(listener.events, listener.tell, text);
    env->DeleteLocalRef(text);
  }
  env->ExceptionClear();
  if (foreign) listener.vm->DetachCurrentThread();
}

// What could not be made for want of memory.
template <typename T>
jlong Made(JNIEnv* env, T* object) {
  if (object == nullptr) paramd::jni::Throw(env, PARAMD_RESOURCE_EXHAUSTED, "there is no memory outside the heap left");
  return Address(object);
}

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_paramd_Native_cancellerNew(JNIEnv* env, jclass) {
  return Guarded(env, [&]() -> jlong { return Made(env, paramd_canceller_new()); });
}

JNIEXPORT void JNICALL Java_paramd_Native_cancellerCancel(JNIEnv*, jclass, jlong canceller) {
  paramd_canceller_cancel(As<paramd_canceller>(canceller));
}

JNIEXPORT void JNICALL Java_paramd_Native_cancellerFree(JNIEnv*, jclass, jlong canceller) {
  paramd_canceller_free(As<paramd_canceller>(canceller));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_specNew(JNIEnv* env, jclass, jbyteArray name) {
  return Guarded(env, [&]() -> jlong { return Made(env, paramd_model_spec_new(Text(env, name).c_str())); });
}

JNIEXPORT void JNICALL Java_paramd_Native_specFree(JNIEnv*, jclass, jlong spec) {
  paramd_model_spec_free(As<paramd_model_spec>(spec));
}

JNIEXPORT void JNICALL Java_paramd_Native_specAddTensor(JNIEnv* env, jclass, jlong spec, jbyteArray name,
                                                        jlongArray shape) {
  Guarded(env, [&] {
    const auto lengths = paramd::jni::Longs(env, shape);
    const std::vector<int64_t> copy(lengths.begin(), lengths.end());
    Check(env,
          paramd_model_spec_add_tensor(As<paramd_model_spec>(spec), Text(env, name).c_str(), copy.data(), copy.size()));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_specSetAlgorithm(JNIEnv* env, jclass, jlong spec, jbyteArray algorithm) {
  Guarded(env, [&] {
    Check(env, paramd_model_spec_set_algorithm(As<paramd_model_spec>(spec), Text(env, algorithm).c_str()));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_specSetConsistency(JNIEnv* env, jclass, jlong spec, jbyteArray consistency) {
  Guarded(env, [&] {
    Check(env, paramd_model_spec_set_consistency(As<paramd_model_spec>(spec), Text(env, consistency).c_str()));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_specSetHyperparameter(JNIEnv* env, jclass, jlong spec, jbyteArray name,
                                                                jdouble value) {
  Guarded(env, [&] {
    Check(env, paramd_model_spec_set_hyperparameter(As<paramd_model_spec>(spec), Text(env, name).c_str(), value));
  });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_optionsNew(JNIEnv* env, jclass) {
  return Guarded(env, [&]() -> jlong { return Made(env, paramd_worker_options_new()); });
}

JNIEXPORT void JNICALL Java_paramd_Native_optionsFree(JNIEnv*, jclass, jlong options) {
  paramd_worker_options_free(As<paramd_worker_options>(options));
}

JNIEXPORT void JNICALL Java_paramd_Native_optionsSet(JNIEnv* env, jclass, jlong options, jbyteArray key,
                                                     jbyteArray value) {
  Guarded(env, [&] {
    Check(env, paramd_worker_options_set(As<paramd_worker_options>(options), Text(env, key).c_str(),
                                         Text(env, value).c_str()));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_optionsSetSpec(JNIEnv* env, jclass, jlong options, jlong spec) {
  Guarded(env, [&] {
    Check(env, paramd_worker_options_set_spec(As<paramd_worker_options>(options), As<paramd_model_spec>(spec)));
  });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_listenerNew(JNIEnv* env, jclass, jobject events) {
  return Guarded(env, [&]() -> jlong {
    auto listener = std::make_unique<Listener>();
    env->GetJavaVM(&listener->vm);
    listener->tell = env->GetMethodID(env->GetObjectClass(events), "tell", "([B)V");
    if (listener->tell == nullptr) return 0;
    listener->events = env->NewGlobalRef(events);
    return Made(env, listener->events == nullptr ? nullptr : listener.release());
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_listenerFree(JNIEnv* env, jclass, jlong listener) {
  if (listener == 0) return;
  env->DeleteGlobalRef(As<Listener>(listener)->events);
  delete As<Listener>(listener);
}

JNIEXPORT void JNICALL Java_paramd_Native_optionsSetListener(JNIEnv* env, jclass, jlong options, jlong listener) {
  Guarded(env, [&] {
    Check(env, paramd_worker_options_set_on_event(As<paramd_worker_options>(options), Tell, As<Listener>(listener)));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_optionsSetCanceller(JNIEnv* env, jclass, jlong options, jlong canceller) {
  Guarded(env, [&] {
    Check(env,
          paramd_worker_options_set_canceller(As<paramd_worker_options>(options), As<paramd_canceller>(canceller)));
  });
}

}  // extern "C"
