// The training loop, with Java's models and sources behind C callbacks.
#include <algorithm>
#include <cmath>
#include <limits>

#include "client/java/jni/call.h"

using paramd::jni::As;
using paramd::jni::Check;
using paramd::jni::Guarded;

namespace {

constexpr jsize kBatchFields = 9;

// The environment of this thread. One of native code's is attached as a daemon, until it ends; null if it can't be.
JNIEnv* Attach(JavaVM* vm) {
  JNIEnv* env = nullptr;
  if (vm->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_10) == JNI_OK) return env;
  struct Attachment {
    JavaVM* vm = nullptr;
    ~Attachment() {
      if (vm != nullptr) vm->DetachCurrentThread();
    }
  };
  thread_local Attachment attachment;
  char name[] = "paramd-reader";
  JavaVMAttachArgs arguments{.version = JNI_VERSION_10, .name = name, .group = nullptr};
  if (vm->AttachCurrentThreadAsDaemon(reinterpret_cast<void**>(&env), &arguments) != JNI_OK) return nullptr;
  attachment.vm = vm;
  return env;
}

// The TrainingCalls of one training. Its methods take and give numbers only, so that no local reference is made however
// many minibatches there are, and they do not throw: what is on its way all the same is dropped.
class Calls {
 public:
  // An exception is on its way if it is not ok().
  Calls(JNIEnv* env, jobject calls) {
    env->GetJavaVM(&vm_);
    jclass type = env->GetObjectClass(calls);
    const auto method = [&](const char* name, const char* signature) {
      return env->ExceptionCheck() ? nullptr : env->GetMethodID(type, name, signature);
    };
    train_on_batch_ = method("trainOnBatch", "(JJJJJ)I");
    learning_rate_ = method("learningRate", "()D");
    set_learning_rate_ = method("setLearningRate", "(D)V");
    next_ = method("next", "([J)I");
    rewind_ = method("rewind", "(J)I");
    batches_per_epoch_ = method("batchesPerEpoch", "()J");
    cancel_ = method("cancel", "()V");
    failure_message_ = method("failureMessage", "()[B");
    jmethodID results = method("results", "()[D");
    if (env->ExceptionCheck()) return;
    jobject result_array = env->CallObjectMethod(calls, results);
    if (env->ExceptionCheck()) return;
    jobject batch_array = env->NewLongArray(kBatchFields);
    if (env->ExceptionCheck()) return;
    results_ = static_cast<jdoubleArray>(env->NewGlobalRef(result_array));
    batch_ = static_cast<jlongArray>(env->NewGlobalRef(batch_array));
    calls_ = env->NewGlobalRef(calls);
    ok_ = results_ != nullptr && batch_ != nullptr && calls_ != nullptr;
    if (!ok_) paramd::jni::Throw(env, PARAMD_RESOURCE_EXHAUSTED, "the JVM has no memory for a global reference");
  }

  ~Calls() {
    JNIEnv* env = Attach(vm_);
    for (jobject reference : {static_cast<jobject>(results_), static_cast<jobject>(batch_), calls_}) {
      if (reference != nullptr) env->DeleteGlobalRef(reference);
    }
  }

  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  bool ok() const { return ok_; }

  paramd_trainable Trainable(float* parameters, size_t floats, const std::vector<const char*>& metric_names) {
    return {.struct_size = sizeof(paramd_trainable),
            .context = this,
            .parameters = parameters,
            .floats = floats,
            .metrics = metric_names.size(),
            .metric_names = metric_names.data(),
            .train_on_batch = [](void* context, const paramd_batch* batch, double* results, char* message,
                                 size_t size) { return Of(context)->TrainOnBatch(*batch, results, message, size); },
            .learning_rate = [](void* context) { return Of(context)->LearningRate(); },
            .set_learning_rate = [](void* context, double rate) { Of(context)->SetLearningRate(rate); }};
  }

  paramd_batch_source Source() {
    return {.struct_size = sizeof(paramd_batch_source),
            .context = this,
            .next = [](void* context, paramd_batch* batch, int* more, char* message,
                       size_t size) { return Of(context)->Next(batch, more, message, size); },
            .rewind = [](void* context, int64_t epoch, char* message,
                         size_t size) { return Of(context)->Rewind(epoch, message, size); },
            .batches_per_epoch = [](void* context) { return Of(context)->BatchesPerEpoch(); },
            .cancel = [](void* context) { Of(context)->Cancel(); }};
  }

 private:
  static Calls* Of(void* context) { return static_cast<Calls*>(context); }

  static bool Dropped(JNIEnv* env) {
    if (!env->ExceptionCheck()) return false;
    env->ExceptionClear();
    return true;
  }

  static paramd_code Unattached(char* message, size_t size) {
    Say("the JVM does not take another thread, so model and source can't be called", message, size);
    return PARAMD_RESOURCE_EXHAUSTED;
  }

  static void Say(const std::string& text, char* message, size_t size) {
    if (message == nullptr || size == 0) return;
    const size_t length = std::min(text.size(), size - 1);
    std::copy_n(text.data(), length, message);
    message[length] = '\0';
  }

  // What a method that returned `code` means.
  paramd_code Result(JNIEnv* env, jint code, char* message, size_t size) {
    if (Dropped(env)) {
      Say("the JVM ran out of stack or memory in a callback", message, size);
      return PARAMD_INTERNAL;
    }
    if (code == PARAMD_OK) return PARAMD_OK;
    auto text = static_cast<jbyteArray>(env->CallObjectMethod(calls_, failure_message_));
    if (!Dropped(env) && text != nullptr) {
      Say(paramd::jni::Text(env, text).c_str(), message, size);
      env->DeleteLocalRef(text);
    }
    return static_cast<paramd_code>(code);
  }

  paramd_code TrainOnBatch(const paramd_batch& batch, double* results, char* message, size_t size) {
    JNIEnv* env = Attach(vm_);
    if (env == nullptr) return Unattached(message, size);
    const jint returned =
        env->CallIntMethod(calls_, train_on_batch_, static_cast<jlong>(batch.rows),
                           paramd::jni::Address(batch.features), static_cast<jlong>(batch.feature_floats),
                           paramd::jni::Address(batch.labels), static_cast<jlong>(batch.label_floats));
    const paramd_code code = Result(env, returned, message, size);
    if (code == PARAMD_OK) env->GetDoubleArrayRegion(results_, 0, env->GetArrayLength(results_), results);
    return code;
  }

  double LearningRate() {
    JNIEnv* env = Attach(vm_);
    const double rate = env == nullptr ? std::nan("") : env->CallDoubleMethod(calls_, learning_rate_);
    return env != nullptr && Dropped(env) ? std::nan("") : rate;
  }

  void SetLearningRate(double rate) {
    JNIEnv* env = Attach(vm_);
    if (env == nullptr) return;
    env->CallVoidMethod(calls_, set_learning_rate_, rate);
    Dropped(env);
  }

  paramd_code Next(paramd_batch* batch, int* more, char* message, size_t size) {
    JNIEnv* env = Attach(vm_);
    if (env == nullptr) return Unattached(message, size);
    const jint returned = env->CallIntMethod(calls_, next_, batch_);
    const paramd_code code = Result(env, returned, message, size);
    if (code != PARAMD_OK) return code;
    jlong fields[kBatchFields];
    env->GetLongArrayRegion(batch_, 0, kBatchFields, fields);
    *more = fields[0] >= 0 ? 1 : 0;
    *batch = {.rows = fields[0],
              .features = As<const float>(fields[1]),
              .feature_floats = static_cast<size_t>(fields[2]),
              .labels = As<const float>(fields[3]),
              .label_floats = static_cast<size_t>(fields[4])};
    if (fields[5] >= 0) AddSparseRows(fields + 5, batch);
    return PARAMD_OK;
  }

  // As an mlp takes them. `fields`: the number of values, and where starts, columns and values are.
  void AddSparseRows(const jlong* fields, paramd_batch* batch) {
    lengths_[0] = batch->rows + 1;
    lengths_[1] = fields[0];
    const auto input = [&](int i, paramd_type type, const int64_t* length) {
      inputs_[i] = {.type = type,
                    .shape = length,
                    .rank = 1,
                    .values = As<const void>(fields[1 + i]),
                    .count = static_cast<size_t>(*length)};
    };
    input(0, PARAMD_INT32, &lengths_[0]);
    input(1, PARAMD_INT32, &lengths_[1]);
    input(2, PARAMD_FLOAT32, &lengths_[1]);
    batch->inputs = inputs_;
    batch->input_count = std::size(inputs_);
  }

  paramd_code Rewind(int64_t epoch, char* message, size_t size) {
    JNIEnv* env = Attach(vm_);
    if (env == nullptr) return Unattached(message, size);
    const jint returned = env->CallIntMethod(calls_, rewind_, static_cast<jlong>(epoch));
    return Result(env, returned, message, size);
  }

  int64_t BatchesPerEpoch() {
    JNIEnv* env = Attach(vm_);
    const jlong batches = env == nullptr ? 0 : env->CallLongMethod(calls_, batches_per_epoch_);
    return env != nullptr && Dropped(env) ? 0 : batches;
  }

  void Cancel() {
    JNIEnv* env = Attach(vm_);
    if (env == nullptr) return;
    env->CallVoidMethod(calls_, cancel_);
    Dropped(env);
  }

  JavaVM* vm_ = nullptr;
  bool ok_ = false;
  jobject calls_ = nullptr;
  jdoubleArray results_ = nullptr;
  jlongArray batch_ = nullptr;
  int64_t lengths_[2] = {};  // of what next_ gave last
  paramd_input inputs_[3] = {};
  jmethodID train_on_batch_ = nullptr;
  jmethodID learning_rate_ = nullptr;
  jmethodID set_learning_rate_ = nullptr;
  jmethodID next_ = nullptr;
  jmethodID rewind_ = nullptr;
  jmethodID batches_per_epoch_ = nullptr;
  jmethodID cancel_ = nullptr;
  jmethodID failure_message_ = nullptr;
};

int AsInt(double value) { return static_cast<int>(std::clamp<double>(value, 0, std::numeric_limits<int>::max())); }

}  // namespace

extern "C" {

JNIEXPORT void JNICALL Java_paramd_Native_train(JNIEnv* env, jclass, jlong options, jdoubleArray train_options,
                                                jlong mlp, jobject calls, jlong parameters, jlong floats,
                                                jobjectArray metric_names, jdoubleArray target) {
  Guarded(env, [&] {
    const paramd::jni::Texts names(env, metric_names);
    Calls callbacks(env, calls);
    if (!callbacks.ok()) return;
    paramd_trainable trainable =
        callbacks.Trainable(As<float>(parameters), static_cast<size_t>(floats), names.pointers());
    if (mlp != 0 && !Check(env, paramd_mlp_trainable(As<paramd_mlp>(mlp), &trainable))) return;
    const paramd_batch_source source = callbacks.Source();
    const std::vector<jdouble> given = paramd::jni::Doubles(env, train_options);
    const paramd_train_options read{.struct_size = sizeof(paramd_train_options),
                                    .epochs = static_cast<int64_t>(given[0]),
                                    .communication_window = static_cast<int64_t>(given[1]),
                                    .learning_rate = given[2],
                                    .max_prefetch = AsInt(given[3]),
                                    .overlap = AsInt(given[4]),
                                    .target_loss = given[5],
                                    .has_target_loss = AsInt(given[6]),
                                    .exchange_timeout = given[7]};
    paramd_train_summary summary{};
    const paramd_code code = paramd_train(As<paramd_worker_options>(options), &read, &trainable, &source, &summary);
    const jdouble fields[] = {static_cast<jdouble>(summary.steps),
                              static_cast<jdouble>(summary.samples),
                              static_cast<jdouble>(summary.exchanges),
                              static_cast<jdouble>(summary.epochs),
                              summary.mean_staleness,
                              summary.wall_s,
                              summary.exchanging_s,
                              summary.last_loss,
                              static_cast<jdouble>(summary.reached_target_loss)};
    // Before anything is thrown: a training that failed has a summary, too.
    env->SetDoubleArrayRegion(target, 0, std::size(fields), fields);
    Check(env, code);
  });
}

}  // extern "C"
