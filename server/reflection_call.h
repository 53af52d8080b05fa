// The standard reflection service on our queue (see health.h for why), message by message.
#ifndef PARAMD_SERVER_REFLECTION_CALL_H_
#define PARAMD_SERVER_REFLECTION_CALL_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/support/byte_buffer.h>

#include <atomic>
#include <memory>

#include "server/access.h"
#include "server/event.h"
#include "server/reflect.h"
#include "server/streams.h"

namespace paramd {

// A call of a method that no other service of the server has: of reflection, or unknown and told so.
class ReflectionCall : public Stream, public std::enable_shared_from_this<ReflectionCall> {
 public:
  // Waits for one call on the queue; a new one waits for the next when it has come. `reflect` may be null.
  static void Listen(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveCalls* calls,
                     Streams* streams, Access* access, const Reflect* reflect);

  void Drain() override;

 private:
  ReflectionCall(grpc::AsyncGenericService* service, grpc::ServerCompletionQueue* queue, LiveCalls* calls,
                 Streams* streams, Access* access, const Reflect* reflect);

  void OnStarted(bool ok);
  void OnDone(bool ok);
  void OnRead(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void Read();
  void Finish(const grpc::Status& status);

  const LiveCall live_;
  grpc::AsyncGenericService* const service_;
  grpc::ServerCompletionQueue* const queue_;
  Streams* const streams_;
  Access* const access_;
  const Reflect* const reflect_;

  grpc::GenericServerContext context_;
  grpc::GenericServerAsyncReaderWriter stream_{&context_};
  grpc::ByteBuffer in_;
  std::atomic<bool> done_{false};
  MethodEvent<ReflectionCall> on_started_{&ReflectionCall::OnStarted};
  MethodEvent<ReflectionCall> on_done_{&ReflectionCall::OnDone};
  MethodEvent<ReflectionCall> on_read_{&ReflectionCall::OnRead};
  MethodEvent<ReflectionCall> on_written_{&ReflectionCall::OnWritten};
  MethodEvent<ReflectionCall> on_finished_{&ReflectionCall::OnFinished};
};

}  // namespace paramd

#endif  // PARAMD_SERVER_REFLECTION_CALL_H_
