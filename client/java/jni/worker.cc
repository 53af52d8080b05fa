// The calls of one worker.
#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;

namespace {

paramd_worker* WorkerAt(jlong address) { return As<paramd_worker>(address); }

// Gives what an exchange brought to Java, if it succeeded.
void Deliver(JNIEnv* env, paramd_code code, const paramd_exchanged& exchanged, jlongArray target) {
  if (!Check(env, code)) return;
  const jlong values[] = {exchanged.version, exchanged.staleness};
  env->SetLongArrayRegion(target, 0, 2, values);
}

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_paramd_Native_workerJoin(JNIEnv* env, jclass, jlong options) {
  return Guarded(env, [&]() -> jlong {
    paramd_worker* worker = nullptr;
    Check(env, paramd_worker_join(As<paramd_worker_options>(options), &worker));
    return Address(worker);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerFree(JNIEnv*, jclass, jlong worker) {
  paramd_worker_free(WorkerAt(worker));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerTakeMemory(JNIEnv*, jclass, jlong worker) {
  return Address(paramd_worker_take_memory(WorkerAt(worker)));
}

JNIEXPORT void JNICALL Java_paramd_Native_memoryClear(JNIEnv*, jclass, jlong memory) {
  paramd_memory_clear(As<paramd_memory>(memory));
}

JNIEXPORT void JNICALL Java_paramd_Native_memoryFree(JNIEnv*, jclass, jlong memory) {
  paramd_memory_free(As<paramd_memory>(memory));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerParameters(JNIEnv*, jclass, jlong worker) {
  return static_cast<jlong>(paramd_worker_parameters(WorkerAt(worker)));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerIncarnation(JNIEnv*, jclass, jlong worker) {
  return static_cast<jlong>(paramd_worker_incarnation(WorkerAt(worker)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerModel(JNIEnv* env, jclass, jlong worker) {
  return Guarded(env, [&]() -> jbyteArray { return paramd::jni::Bytes(env, paramd_worker_model(WorkerAt(worker))); });
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerTransport(JNIEnv* env, jclass, jlong worker) {
  return Guarded(env,
                 [&]() -> jbyteArray { return paramd::jni::Bytes(env, paramd_worker_transport(WorkerAt(worker))); });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerInitialize(JNIEnv* env, jclass, jlong worker, jlong center,
                                                           jlong floats, jdouble timeout) {
  Guarded(env, [&] {
    Check(env,
          paramd_worker_initialize(WorkerAt(worker), As<const float>(center), static_cast<size_t>(floats), timeout));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerPull(JNIEnv* env, jclass, jlong worker, jlong center, jlong floats,
                                                     jdouble timeout, jlongArray target) {
  Guarded(env, [&] {
    paramd_exchanged exchanged{};
    const paramd_code code =
        paramd_worker_pull(WorkerAt(worker), As<float>(center), static_cast<size_t>(floats), timeout, &exchanged);
    Deliver(env, code, exchanged, target);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerCommit(JNIEnv* env, jclass, jlong worker, jlong update, jlong floats,
                                                       jdouble timeout, jlongArray target) {
  Guarded(env, [&] {
    paramd_exchanged exchanged{};
    const paramd_code code = paramd_worker_commit(WorkerAt(worker), As<const float>(update),
                                                  static_cast<size_t>(floats), timeout, &exchanged);
    Deliver(env, code, exchanged, target);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerExchange(JNIEnv* env, jclass, jlong worker, jlong update, jlong center,
                                                         jlong floats, jdouble timeout, jlongArray target) {
  Guarded(env, [&] {
    paramd_exchanged exchanged{};
    const paramd_code code = paramd_worker_exchange(WorkerAt(worker), As<const float>(update), As<float>(center),
                                                    static_cast<size_t>(floats), timeout, &exchanged);
    Deliver(env, code, exchanged, target);
  });
}

JNIEXPORT jint JNICALL Java_paramd_Native_workerCommitState(JNIEnv*, jclass, jlong worker) {
  return paramd_worker_commit_state(WorkerAt(worker));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerCommitBuffer(JNIEnv*, jclass, jlong worker) {
  return Address(paramd_worker_commit_buffer(WorkerAt(worker)));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerCenterBuffer(JNIEnv*, jclass, jlong worker) {
  return Address(paramd_worker_center_buffer(WorkerAt(worker)));
}

JNIEXPORT void JNICALL Java_paramd_Native_workerCancel(JNIEnv* env, jclass, jlong worker) {
  Guarded(env, [&] { Check(env, paramd_worker_cancel(WorkerAt(worker))); });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerResume(JNIEnv* env, jclass, jlong worker) {
  Guarded(env, [&] { Check(env, paramd_worker_resume(WorkerAt(worker))); });
}

JNIEXPORT void JNICALL Java_paramd_Native_workerLeave(JNIEnv* env, jclass, jlong worker, jbyteArray error,
                                                      jdouble timeout) {
  Guarded(env,
          [&] { Check(env, paramd_worker_leave(WorkerAt(worker), paramd::jni::Text(env, error).c_str(), timeout)); });
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerWire(JNIEnv* env, jclass, jlong worker) {
  return paramd::jni::Bytes(env, paramd_worker_wire(WorkerAt(worker)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerAlgorithm(JNIEnv* env, jclass, jlong worker) {
  return paramd::jni::Bytes(env, paramd_worker_algorithm(WorkerAt(worker)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerConsistency(JNIEnv* env, jclass, jlong worker) {
  return paramd::jni::Bytes(env, paramd_worker_consistency(WorkerAt(worker)));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerHyperparameters(JNIEnv*, jclass, jlong worker) {
  return static_cast<jlong>(paramd_worker_hyperparameters(WorkerAt(worker)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerHyperparameterName(JNIEnv* env, jclass, jlong worker,
                                                                         jlong index) {
  return paramd::jni::Bytes(env, paramd_worker_hyperparameter_name(WorkerAt(worker), static_cast<size_t>(index)));
}

JNIEXPORT jdouble JNICALL Java_paramd_Native_workerHyperparameterValue(JNIEnv*, jclass, jlong worker, jlong index) {
  return paramd_worker_hyperparameter_value(WorkerAt(worker), static_cast<size_t>(index));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_workerTensors(JNIEnv*, jclass, jlong worker) {
  return static_cast<jlong>(paramd_worker_tensors(WorkerAt(worker)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_workerTensorName(JNIEnv* env, jclass, jlong worker, jlong index) {
  return paramd::jni::Bytes(env, paramd_worker_tensor_name(WorkerAt(worker), static_cast<size_t>(index)));
}

JNIEXPORT jlongArray JNICALL Java_paramd_Native_workerTensorShape(JNIEnv* env, jclass, jlong worker, jlong index) {
  return Guarded(env, [&]() -> jlongArray {
    size_t rank = 0;
    const int64_t* const shape = paramd_worker_tensor_shape(WorkerAt(worker), static_cast<size_t>(index), &rank);
    return paramd::jni::LongArray(env, std::vector<jlong>(shape, shape + rank));
  });
}

}  // extern "C"
