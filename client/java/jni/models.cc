// Models as a daemon or a file describes them, and files of models.
#include <iterator>
#include <string>

#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;
using paramd::jni::Text;

namespace {

const paramd_models* ModelsAt(jlong address) { return As<const paramd_models>(address); }

}  // namespace

extern "C" {

JNIEXPORT void JNICALL Java_paramd_Native_modelsFree(JNIEnv*, jclass, jlong models) {
  paramd_models_free(As<paramd_models>(models));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_modelsCount(JNIEnv*, jclass, jlong models) {
  return static_cast<jlong>(paramd_models_count(ModelsAt(models)));
}

JNIEXPORT jobjectArray JNICALL Java_paramd_Native_modelsTexts(JNIEnv* env, jclass, jlong models, jlong index) {
  return Guarded(env, [&]() -> jobjectArray {
    const paramd_models* const given = ModelsAt(models);
    const size_t model = static_cast<size_t>(index);
    std::vector<const char*> texts = {paramd_models_name(given, model), paramd_models_algorithm(given, model),
                                      paramd_models_consistency(given, model), paramd_models_problem(given, model)};
    for (size_t i = 0; i < paramd_models_hyperparameters(given, model); ++i) {
      texts.push_back(paramd_models_hyperparameter_name(given, model, i));
    }
    for (size_t i = 0; i < paramd_models_tensors(given, model); ++i) {
      texts.push_back(paramd_models_tensor_name(given, model, i));
    }
    const jobjectArray array = env->NewObjectArray(static_cast<jsize>(texts.size()), env->FindClass("[B"), nullptr);
    for (size_t i = 0; array != nullptr && i < texts.size(); ++i) {
      const jbyteArray text = paramd::jni::Bytes(env, texts[i]);
      if (text == nullptr) return nullptr;
      env->SetObjectArrayElement(array, static_cast<jsize>(i), text);
      env->DeleteLocalRef(text);
    }
    return array;
  });
}

JNIEXPORT jdoubleArray JNICALL Java_paramd_Native_modelsNumbers(JNIEnv* env, jclass, jlong models, jlong index) {
  return Guarded(env, [&]() -> jdoubleArray {
    const size_t model = static_cast<size_t>(index);
    const paramd_model_info info = paramd_models_info(ModelsAt(models), model);
    std::vector<double> numbers = {static_cast<double>(info.version),
                                   static_cast<double>(info.parameters),
                                   static_cast<double>(info.initialized),
                                   static_cast<double>(info.workers),
                                   static_cast<double>(info.live_workers),
                                   static_cast<double>(info.commits),
                                   static_cast<double>(info.rejected),
                                   info.mean_staleness,
                                   info.training_time_s};
    for (size_t i = 0; i < paramd_models_hyperparameters(ModelsAt(models), model); ++i) {
      numbers.push_back(paramd_models_hyperparameter_value(ModelsAt(models), model, i));
    }
    return paramd::jni::DoubleArray(env, numbers.data(), numbers.size());
  });
}

JNIEXPORT jlongArray JNICALL Java_paramd_Native_modelsTensorShape(JNIEnv* env, jclass, jlong models, jlong model,
                                                                  jlong index) {
  return Guarded(env, [&]() -> jlongArray {
    size_t rank = 0;
    const int64_t* const shape =
        paramd_models_tensor_shape(ModelsAt(models), static_cast<size_t>(model), static_cast<size_t>(index), &rank);
    return paramd::jni::LongArray(env, std::vector<jlong>(shape, shape + rank));
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_fileWrite(JNIEnv* env, jclass, jbyteArray path, jlong spec, jlong version,
                                                    jlong center, jlong floats) {
  Guarded(env, [&] {
    Check(env, paramd_file_write(Text(env, path).c_str(), As<paramd_model_spec>(spec), version, As<const float>(center),
                                 static_cast<size_t>(floats)));
  });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_fileDescribe(JNIEnv* env, jclass, jbyteArray path) {
  return Guarded(env, [&]() -> jlong {
    paramd_models* models = nullptr;
    Check(env, paramd_file_describe(Text(env, path).c_str(), &models));
    return Address(models);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_fileRead(JNIEnv* env, jclass, jbyteArray path, jlong center, jlong floats) {
  Guarded(env, [&] {
    Check(env, paramd_file_read(Text(env, path).c_str(), As<float>(center), static_cast<size_t>(floats)));
  });
}

}  // extern "C"
