/// A library with the calls of cuDNN's backend, on streams of the emulated GPU: it takes any graph of the operations
/// that it knows and computes them one after the other, as they are written down.

#include "cudnn/standin.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "cudnn/interpreter.hpp"
#include "simt/queue.hpp"

using namespace distattn::backends::cudnn;

struct distattn::backends::cudnn::Context {
  simt::Queue* queue = nullptr;
};

namespace {

using standin::Record;
using Shared = std::shared_ptr<Record>;

constexpr std::int64_t workspace_bytes = 1000;

std::atomic<int> plans{0}, executions_to_failure{0};
std::atomic<size_t> version{91900};

Shared& record_of(DescriptorHandle handle) { return *static_cast<Shared*>(handle); }

std::size_t size_of(AttributeType type) {
  switch (type) {
    case AttributeType::character:
    case AttributeType::boolean:
      return 1;
    case AttributeType::handle:
    case AttributeType::int64:
    case AttributeType::void_ptr:
    case AttributeType::descriptor:
      return 8;
    default:
      return 4;
  }
}

}  // namespace

extern "C" {

int standin_plans() { return plans; }
void standin_fail(int count) { executions_to_failure = count; }

void standin_version(size_t said) { version = said; }

size_t cudnnGetVersion() { return version; }

Status cudnnCreate(Handle* handle) {
  *handle = new Context;
  return Status::success;
}

Status cudnnDestroy(Handle handle) {
  delete handle;
  return Status::success;
}

Status cudnnSetStream(Handle handle, void* stream) {
  handle->queue = static_cast<simt::Queue*>(stream);
  return Status::success;
}

Status cudnnBackendCreateDescriptor(DescriptorType type, DescriptorHandle* descriptor) {
  *descriptor = new Shared(std::make_shared<Record>());
  record_of(*descriptor)->type = type;
  return Status::success;
}

Status cudnnBackendDestroyDescriptor(DescriptorHandle descriptor) {
  delete static_cast<Shared*>(descriptor);
  return Status::success;
}

Status cudnnBackendSetAttribute(DescriptorHandle descriptor, Attribute name, AttributeType type, int64_t count,
                                const void* values) {
  Record& record = *record_of(descriptor);
  if (record.finalized) return Status::bad_param;
  if (type == AttributeType::descriptor) {
    for (std::int64_t i = 0; i < count; ++i) {
      const Shared& part = record_of(static_cast<const DescriptorHandle*>(values)[i]);
      if (!part->finalized) return Status::bad_param_not_finalized;
      record.parts[name].push_back(part);
    }
    return Status::success;
  }
  const auto* const bytes = static_cast<const std::byte*>(values);
  record.values[name].assign(bytes, bytes + static_cast<std::size_t>(count) * size_of(type));
  return Status::success;
}

Status cudnnBackendGetAttribute(DescriptorHandle descriptor, Attribute name, AttributeType, int64_t, int64_t* count,
                                void* values) {
  const Shared& record = record_of(descriptor);
  if (!record->finalized) return Status::bad_param_not_finalized;
  *count = 1;
  if (name == Attribute::execution_plan_workspace_size) {
    *static_cast<std::int64_t*>(values) = workspace_bytes;
    return Status::success;
  }
  if (name != Attribute::engine_heuristics_results) return Status::bad_param;
  const Shared& engine = record_of(static_cast<DescriptorHandle*>(values)[0]);
  engine->parts[Attribute::engine_heuristics_operation_graph] =
      record->parts[Attribute::engine_heuristics_operation_graph];
  engine->finalized = true;
  return Status::success;
}

Status cudnnBackendFinalize(DescriptorHandle descriptor) {
  Record& record = *record_of(descriptor);
  if (record.finalized) return Status::bad_param;
  record.finalized = true;
  if (record.type == DescriptorType::execution_plan) ++plans;
  return Status::success;
}

Status cudnnBackendExecute(Handle handle, DescriptorHandle plan, DescriptorHandle pack) {
  if (executions_to_failure > 0 && --executions_to_failure == 0) return Status::execution_failed;
  const Record& operands = *record_of(pack);
  if (!operands.finalized || handle->queue == nullptr) return Status::bad_param;
  const auto uids = operands.list<std::int64_t>(Attribute::variant_pack_unique_ids);
  const auto pointers = operands.list<void*>(Attribute::variant_pack_data_pointers);
  void* const workspace = operands.value<void*>(Attribute::variant_pack_workspace);
  const Shared engine = record_of(plan)->part(Attribute::execution_plan_engine_config);
  const Shared graph = engine->part(Attribute::engine_heuristics_operation_graph);
  std::map<std::int64_t, void*> memory;
  for (std::size_t i = 0; i < uids.size(); ++i) memory[uids[i]] = pointers[i];
  auto computation = std::make_shared<standin::Computation>(*graph, memory);
  if (!computation->complete()) return Status::bad_param_null_pointer;
  handle->queue->submit([graph, computation, workspace] {
    std::memset(workspace, 0xff, workspace_bytes);
    computation->run();
  });
  return Status::success;
}

const char* cudnnGetErrorString(Status status) {
  return status == Status::execution_failed ? "execution failed" : "some other error";
}

void cudnnGetLastErrorString(char* message, size_t max_size) {
  std::strncpy(message, "said by the stand-in", max_size - 1);
}
}
