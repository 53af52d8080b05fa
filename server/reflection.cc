#include "server/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>

#include <string>

#include "server/descriptors.inc"

namespace paramd {

void EnableReflection() {
  // Lite messages carry no descriptors, so they are registered here, as generated code of full protobuf would do.
  google::protobuf::FileDescriptorSet set;
  if (set.ParseFromArray(kDescriptors, sizeof(kDescriptors))) {
    for (const google::protobuf::FileDescriptorProto& file : set.file()) {
      // The registry keeps the pointer.
      static const std::string encoded = file.SerializeAsString();
      google::protobuf::DescriptorPool::InternalAddGeneratedFile(encoded.data(), static_cast<int>(encoded.size()));
    }
  }
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
}

}  // namespace paramd
