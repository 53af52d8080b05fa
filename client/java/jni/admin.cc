// The control plane, and what opens it.
#include <iterator>
#include <memory>

#include "client/java/jni/call.h"

using paramd::jni::Address;
using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;
using paramd::jni::Text;

extern "C" {

JNIEXPORT jlong JNICALL Java_paramd_Native_adminConnect(JNIEnv* env, jclass, jlong options, jdouble timeout) {
  return Guarded(env, [&]() -> jlong {
    paramd_admin* admin = nullptr;
    Check(env, paramd_admin_connect_with(As<paramd_worker_options>(options), timeout, &admin));
    return Address(admin);
  });
}

JNIEXPORT jobjectArray JNICALL Java_paramd_Native_secretsMake(JNIEnv* env, jclass, jobjectArray hosts) {
  return Guarded(env, [&]() -> jobjectArray {
    const paramd::jni::Texts names(env, hosts);
    paramd_secrets* made = nullptr;
    if (!Check(env, paramd_secrets_new(names.pointers().data(), names.pointers().size(), &made))) return nullptr;
    const std::unique_ptr<paramd_secrets, void (*)(paramd_secrets*)> secrets(made, paramd_secrets_free);
    constexpr const char* kKeys[] = {"tls_ca", "tls_cert", "tls_key", "token", "token_file"};
    const jobjectArray texts = env->NewObjectArray(std::size(kKeys), env->FindClass("[B"), nullptr);
    for (size_t i = 0; texts != nullptr && i < std::size(kKeys); ++i) {
      const jbyteArray text = paramd::jni::Bytes(env, paramd_secrets_get(secrets.get(), kKeys[i]));
      if (text == nullptr) return nullptr;
      env->SetObjectArrayElement(texts, static_cast<jsize>(i), text);
    }
    return texts;
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_adminFree(JNIEnv*, jclass, jlong admin) {
  paramd_admin_free(As<paramd_admin>(admin));
}

JNIEXPORT void JNICALL Java_paramd_Native_adminCreateModel(JNIEnv* env, jclass, jlong admin, jlong spec) {
  Guarded(env, [&] { Check(env, paramd_admin_create_model(As<paramd_admin>(admin), As<paramd_model_spec>(spec))); });
}

JNIEXPORT void JNICALL Java_paramd_Native_adminDeleteModel(JNIEnv* env, jclass, jlong admin, jbyteArray model) {
  Guarded(env, [&] { Check(env, paramd_admin_delete_model(As<paramd_admin>(admin), Text(env, model).c_str())); });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_adminDescribe(JNIEnv* env, jclass, jlong admin, jbyteArray model) {
  return Guarded(env, [&]() -> jlong {
    paramd_models* models = nullptr;
    Check(env, paramd_admin_describe(As<paramd_admin>(admin), Text(env, model).c_str(), &models));
    return Address(models);
  });
}

JNIEXPORT jlongArray JNICALL Java_paramd_Native_adminStaleness(JNIEnv* env, jclass, jlong admin, jbyteArray model) {
  return Guarded(env, [&]() -> jlongArray {
    const Text name(env, model);
    std::vector<uint64_t> histogram(256);
    while (true) {
      size_t entries = 0;
      if (!Check(env, paramd_admin_staleness(As<paramd_admin>(admin), name.c_str(), histogram.data(), histogram.size(),
                                             &entries))) {
        return nullptr;
      }
      const bool complete = entries <= histogram.size();
      histogram.resize(entries);
      if (complete) break;
    }
    return paramd::jni::LongArray(env, std::vector<jlong>(histogram.begin(), histogram.end()));
  });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_adminPull(JNIEnv* env, jclass, jlong admin, jbyteArray model, jlong center,
                                                     jlong floats) {
  return Guarded(env, [&]() -> jlong {
    int64_t version = 0;
    Check(env, paramd_admin_pull(As<paramd_admin>(admin), Text(env, model).c_str(), As<float>(center),
                                 static_cast<size_t>(floats), &version));
    return version;
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_adminInitialize(JNIEnv* env, jclass, jlong admin, jbyteArray model,
                                                          jlong center, jlong floats) {
  Guarded(env, [&] {
    Check(env, paramd_admin_initialize(As<paramd_admin>(admin), Text(env, model).c_str(), As<const float>(center),
                                       static_cast<size_t>(floats)));
  });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_adminHistory(JNIEnv* env, jclass, jlong admin, jbyteArray model,
                                                        jboolean averaged) {
  return Guarded(env, [&]() -> jlong {
    paramd_history* history = nullptr;
    Check(env, paramd_admin_history(As<paramd_admin>(admin), Text(env, model).c_str(), averaged ? 1 : 0, &history));
    return Address(history);
  });
}

JNIEXPORT void JNICALL Java_paramd_Native_historyFree(JNIEnv*, jclass, jlong history) {
  paramd_history_free(As<paramd_history>(history));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_historySeries(JNIEnv*, jclass, jlong history) {
  return static_cast<jlong>(paramd_history_series(As<paramd_history>(history)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_historyWorker(JNIEnv* env, jclass, jlong history, jlong series) {
  return Guarded(env, [&]() -> jbyteArray {
    return paramd::jni::Bytes(env, paramd_history_worker(As<paramd_history>(history), static_cast<size_t>(series)));
  });
}

JNIEXPORT jdoubleArray JNICALL Java_paramd_Native_historyRecords(JNIEnv* env, jclass, jlong history, jlong series) {
  return Guarded(env, [&]() -> jdoubleArray {
    const paramd_history_record* records = nullptr;
    const size_t count = paramd_history_records(As<paramd_history>(history), static_cast<size_t>(series), &records);
    std::vector<double> fields;
    for (size_t i = 0; i < count; ++i) {
      fields.insert(fields.end(),
                    {static_cast<double>(records[i].step), records[i].epoch, records[i].time_s, records[i].loss});
    }
    return paramd::jni::DoubleArray(env, fields.data(), fields.size());
  });
}

JNIEXPORT jlong JNICALL Java_paramd_Native_historyDropped(JNIEnv*, jclass, jlong history, jlong series) {
  return static_cast<jlong>(paramd_history_dropped(As<paramd_history>(history), static_cast<size_t>(series)));
}

JNIEXPORT jlong JNICALL Java_paramd_Native_historyMetrics(JNIEnv*, jclass, jlong history, jlong series) {
  return static_cast<jlong>(paramd_history_metrics(As<paramd_history>(history), static_cast<size_t>(series)));
}

JNIEXPORT jbyteArray JNICALL Java_paramd_Native_historyMetricName(JNIEnv* env, jclass, jlong history, jlong series,
                                                                  jlong metric) {
  return Guarded(env, [&]() -> jbyteArray {
    return paramd::jni::Bytes(env, paramd_history_metric_name(As<paramd_history>(history), static_cast<size_t>(series),
                                                              static_cast<size_t>(metric)));
  });
}

JNIEXPORT jdoubleArray JNICALL Java_paramd_Native_historyMetricValues(JNIEnv* env, jclass, jlong history,
                                                                      jlong series) {
  return Guarded(env, [&]() -> jdoubleArray {
    const auto* const given = As<paramd_history>(history);
    const size_t index = static_cast<size_t>(series);
    const size_t values = paramd_history_records(given, index, nullptr) * paramd_history_metrics(given, index);
    return paramd::jni::DoubleArray(env, paramd_history_metric_values(given, index), values);
  });
}

}  // extern "C"
