#pragma once
/// UCP objects that release themselves, and its errors as ours.

#include <ucp/api/ucp.h>

#include <memory>
#include <string>

#include "distattn/error.hpp"

namespace distattn::backends::ucx {

/// Throws Error(environment) "what failed (why)" unless `status` is fine.
void check(const char* what, ucs_status_t status);

/// One process's UCX, set up so that a peer's death is noticed over every transport, shared memory too.
class Context {
 public:
  /// `segments`: where shared memory is made; empty: where UCX likes.
  Context(int ranks, const std::string& segments);

  ucp_context_h get() const { return context_.get(); }
  /// Of those who must not outlive it.
  std::shared_ptr<ucp_context> share() const { return context_; }

 private:
  std::shared_ptr<ucp_context> context_;
};

/// A block of memory known to the network card; unregistered at the end, which the context waits for.
class RegisteredMemory {
 public:
  RegisteredMemory(const Context& context, void* memory, std::size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(const RegisteredMemory&) = delete;
  RegisteredMemory& operator=(const RegisteredMemory&) = delete;

  ucp_mem_h handle() const { return handle_; }

 private:
  const std::shared_ptr<ucp_context> context_;
  ucp_mem_h handle_ = nullptr;
};

}  // namespace distattn::backends::ucx
