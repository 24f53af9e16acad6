#pragma once
/// UCP objects that release themselves, and its errors as ours.

#include <ucp/api/ucp.h>

#include <memory>
#include <string>
#include <utility>

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

/// A block of memory known to the network card; unregistered at the end.
class RegisteredMemory {
 public:
  RegisteredMemory(const Context& context, void* memory, std::size_t bytes);
  ~RegisteredMemory();
  RegisteredMemory(RegisteredMemory&& other) noexcept
      : context_(other.context_), handle_(std::exchange(other.handle_, nullptr)) {}
  RegisteredMemory& operator=(RegisteredMemory&& other) noexcept {
    std::swap(context_, other.context_);
    std::swap(handle_, other.handle_);
    return *this;
  }

  ucp_mem_h handle() const { return handle_; }

 private:
  ucp_context_h context_;
  ucp_mem_h handle_ = nullptr;
};

}  // namespace distattn::backends::ucx
