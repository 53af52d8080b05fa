// The ready-made model.
#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;

namespace {

paramd_trainable TrainableOf(jlong mlp) {
  paramd_trainable trainable{};
  trainable.struct_size = sizeof(trainable);
  paramd_mlp_trainable(As<paramd_mlp>(mlp), &trainable);
  return trainable;
}

}  // namespace

extern "C" {

JNIEXPORT jlong JNICALL Java_paramd_Native_mlpNew(JNIEnv* env, jclass, jlongArray layers, jbyteArray optimizer,
                                                  jdouble learning_rate, jlong seed, jbyteArray loss, jdouble l2,
                                                  jdouble max_gradient_norm) {
  return Guarded(env, [&]() -> jlong {
    const auto units = paramd::jni::Longs(env, layers);
    const std::vector<int64_t> copy(units.begin(), units.end());
    const paramd::jni::Text optimizer_name(env, optimizer);
    const paramd::jni::Text loss_name(env, loss);
    const paramd_mlp_options options{.struct_size = sizeof(options),
                                     .layers = copy.data(),
                                     .layer_count = copy.size(),
                                     .optimizer = optimizer_name.c_str(),
                                     .learning_rate = learning_rate,
                                     .seed = static_cast<uint64_t>(seed),
                                     .loss = loss_name.c_str(),
                                     .l2 = l2,
                                     .max_gradient_norm = max_gradient_norm};
    paramd_mlp* mlp = nullptr;
    Check(env, paramd_mlp_new_with(&options, &mlp));
    return Address(mlp);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_mlpFree(JNIEnv*, jclass, jlong mlp) { paramd_mlp_free(As<paramd_mlp>(mlp)); }

JNIEXPORT jlong JNICALL Java_paramd_Native_mlpParameters(JNIEnv*, jclass, jlong mlp) {
  return Address(paramd_mlp_parameters(As<paramd_mlp>(mlp), nullptr));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_mlpFloats(JNIEnv*, jclass, jlong mlp) {
  size_t floats = 0;
  paramd_mlp_parameters(As<paramd_mlp>(mlp), &floats);
  return static_cast<jlong>(floats);
}

JNIEXPORT void JNICALL Java_paramd_Native_mlpTrainOnBatch(JNIEnv* env, jclass, jlong mlp, jlong rows, jlong features,
                                                          jlong feature_floats, jlong labels, jlong label_floats,
                                                          jdoubleArray target) {
  Guarded(env, [&] {
    const paramd_trainable trainable = TrainableOf(mlp);
    const paramd_batch batch{.rows = rows,
                             .features = As<const float>(features),
                             .feature_floats = static_cast<size_t>(feature_floats),
                             .labels = As<const float>(labels),
                             .label_floats = static_cast<size_t>(label_floats)};
    std::vector<jdouble> results(1 + trainable.metrics);
    if (!Check(env, trainable.train_on_batch(trainable.context, &batch, results.data(), nullptr, 0))) return;
    env->SetDoubleArrayRegion(target, 0, static_cast<jsize>(results.size()), results.data());
  });
}

JNIEXPORT jdouble JNICALL Java_paramd_Native_mlpLearningRate(JNIEnv*, jclass, jlong mlp) {
  const paramd_trainable trainable = TrainableOf(mlp);
  return trainable.learning_rate(trainable.context);
}

JNIEXPORT void JNICALL Java_paramd_Native_mlpSetLearningRate(JNIEnv*, jclass, jlong mlp, jdouble learning_rate) {
  const paramd_trainable trainable = TrainableOf(mlp);
  trainable.set_learning_rate(trainable.context, learning_rate);
}

JNIEXPORT void JNICALL Java_paramd_Native_mlpPredict(JNIEnv* env, jclass, jlong mlp, jlong features, jlong rows,
                                                     jlong probabilities) {
  Guarded(env, [&] {
    Check(env, paramd_mlp_predict(As<paramd_mlp>(mlp), As<const float>(features), rows, As<float>(probabilities)));
  });
}

}  // extern "C"
