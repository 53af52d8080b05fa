#include "server/reflection.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "proto/reflection.pb.h"
#include "server/descriptors.inc"

namespace paramd {
namespace {

using google::protobuf::DescriptorPool;
using google::protobuf::FileDescriptor;
using google::protobuf::FileDescriptorProto;
using google::protobuf::FileDescriptorSet;
using grpc::reflection::v1alpha::ServerReflectionRequest;
using grpc::reflection::v1alpha::ServerReflectionResponse;

template <size_t size>
void AddFiles(const unsigned char (&descriptors)[size], DescriptorPool* pool, ServerReflectionResponse* services) {
  FileDescriptorSet set;
  set.ParseFromArray(descriptors, size);
  for (const FileDescriptorProto& proto : set.file()) {
    const FileDescriptor* const file = pool->BuildFile(proto);
    for (int i = 0; i < file->service_count(); ++i) {
      services->mutable_list_services_response()->add_service()->set_name(file->service(i)->full_name());
    }
  }
}

std::string Answer(const DescriptorPool& pool, const ServerReflectionResponse& services, const std::string& bytes) {
  ServerReflectionRequest request;
  ServerReflectionResponse response;
  const bool parsed = request.ParseFromString(bytes);
  const FileDescriptor* file = nullptr;
  if (request.has_list_services()) {
    response = services;
  } else if (request.has_file_by_filename()) {
    file = pool.FindFileByName(request.file_by_filename());
  } else if (request.has_file_containing_symbol()) {
    file = pool.FindFileContainingSymbol(request.file_containing_symbol());
  }
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  if (file != nullptr) {
    FileDescriptorProto proto;
    file->CopyTo(&proto);
    response.mutable_file_descriptor_response()->add_file_descriptor_proto(proto.SerializeAsString());
  } else if (!request.has_list_services()) {
    const bool known = parsed && request.message_request_case() != ServerReflectionRequest::MESSAGE_REQUEST_NOT_SET;
    response.mutable_error_response()->set_error_code(
        static_cast<int>(known ? absl::StatusCode::kNotFound : absl::StatusCode::kUnimplemented));
    response.mutable_error_response()->set_error_message(
        known ? absl::StrCat("there is no ", request.file_by_filename(), request.file_containing_symbol())
              : "ask for services, for a file, or for the file of a symbol");
  }
  return response.SerializeAsString();
}

}  // namespace

Reflect MakeReflection() {
  const auto pool = std::make_shared<DescriptorPool>();
  ServerReflectionResponse services;
  AddFiles(kParamd, pool.get(), &services);
  AddFiles(kHealth, pool.get(), &services);
  AddFiles(kReflection, pool.get(), &services);
  return [pool, services](const std::string& request) { return Answer(*pool, services, request); };
}

}  // namespace paramd
