#pragma once
/// UCP objects that release themselves, and its errors as ours.

#include <ucp/api/ucp.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "distattn/error.hpp"

namespace distattn::backends::ucx {

/// Throws Error(environment) "what failed (why)" unless `status` is fine.
void check(const char* what, ucs_status_t status);

/// One process's UCX, set up so that a peer's death is noticed over every transport, shared memory too.
class Context {
 public:
  /// `segments`: where shared memory is made; empty: where UCX likes; nothing: nowhere, unless a user says otherwise.
  Context(int ranks, const std::optional<std::string>& segments);

  ucp_context_h get() const { return context_.get(); }
  /// Whether it sends from and receives into such memory.
  bool reaches(ucs_memory_type_t type) const { return (memory_types_ >> type & 1u) != 0; }
  /// Of those who must not outlive it.
  std::shared_ptr<ucp_context> share() const { return context_; }

 private:
  std::shared_ptr<ucp_context> context_;
  std::uint64_t memory_types_ = 0;  // a bit each
};

/// A block of memory known to the network card; unregistered at the end, which the context waits for.
class RegisteredMemory {
 public:
  RegisteredMemory(const Context& context, void* memory, std::size_t bytes, ucs_memory_type_t type);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  ucp_mem_h handle() const { return handle_; }
  ucs_memory_type_t type() const { return type_; }

 private:
  const std::shared_ptr<ucp_context> context_;
  const ucs_memory_type_t type_;
  ucp_mem_h handle_ = nullptr;
};

}  // namespace distattn::backends::ucx
