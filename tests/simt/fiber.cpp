#include "simt/fiber.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <new>

#if defined(__SANITIZE_ADDRESS__)
#define SIMT_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIMT_ASAN 1
#endif
#endif
#if defined(SIMT_ASAN)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

#if defined(__x86_64__)
// Saves the registers that the System V ABI preserves, changes stacks, restores them.
extern "C" void simt_switch_stack(void** save, void* load);
asm(R"(
.pushsection .text
.weak simt_switch_stack
.type simt_switch_stack,@function
simt_switch_stack:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size simt_switch_stack,.-simt_switch_stack
.popsection
)");
#endif

namespace simt {
namespace {

#if defined(SIMT_ASAN)
constexpr std::size_t stack_bytes = 256 << 10;
#else
constexpr std::size_t stack_bytes = 64 << 10;
#endif
constexpr std::size_t guard_bytes = 4096;

// Where resume() was called from.
struct Caller {
#if defined(__x86_64__)
  void* stack_pointer = nullptr;
#else
  ucontext_t context;
#endif
  const void* stack_bottom = nullptr;
  std::size_t stack_size = 0;
  void* fake_stack = nullptr;
};
thread_local Caller caller;
thread_local Fiber* running = nullptr;

void announce_switch([[maybe_unused]] void** keep_fake_stack, [[maybe_unused]] const void* bottom,
                     [[maybe_unused]] std::size_t size) {
#if defined(SIMT_ASAN)
  __sanitizer_start_switch_fiber(keep_fake_stack, bottom, size);
#endif
}
void conclude_switch([[maybe_unused]] void* fake_stack, [[maybe_unused]] const void** from_bottom,
                     [[maybe_unused]] std::size_t* from_size) {
#if defined(SIMT_ASAN)
  __sanitizer_finish_switch_fiber(fake_stack, from_bottom, from_size);
#endif
}

}  // namespace

Fiber::Fiber() {
  void* memory = mmap(nullptr, stack_bytes + guard_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  mprotect(memory, guard_bytes, PROT_NONE);
  stack_ = static_cast<char*>(memory) + guard_bytes;
}

Fiber::~Fiber() {
  if (state_ == State::between_bodies) {
    state_ = State::closing;
    resume();
  }
  munmap(stack_ - guard_bytes, stack_bytes + guard_bytes);
}

void Fiber::restart(Body body, void* argument) {
  body_ = body;
  argument_ = argument;
  if (state_ == State::between_bodies) return;
  state_ = State::in_body;
  fake_stack_ = nullptr;
#if defined(SIMT_ASAN)
  __asan_unpoison_memory_region(stack_, stack_bytes);
#endif
#if defined(__x86_64__)
  void** top = reinterpret_cast<void**>(stack_ + stack_bytes);
  *--top = nullptr;  // a return address that is never used; it leaves the stack aligned as at a function's entry
  *--top = reinterpret_cast<void*>(&Fiber::enter);
  for (int saved_register = 0; saved_register < 6; ++saved_register) *--top = nullptr;
  stack_pointer_ = top;
#else
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_;
  context_.uc_stack.ss_size = stack_bytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::enter, 0);
#endif
}

void Fiber::enter() {
  conclude_switch(nullptr, &caller.stack_bottom, &caller.stack_size);
  Fiber& self = *running;
  while (self.state_ != State::closing) {
    self.state_ = State::in_body;
    self.body_(self.argument_);
    self.state_ = State::between_bodies;
    self.pause();
  }
  self.pause();
  std::abort();  // nobody resumes what is closed
}

void Fiber::resume() {
  running = this;
  announce_switch(&caller.fake_stack, stack_, stack_bytes);
#if defined(__x86_64__)
  simt_switch_stack(&caller.stack_pointer, stack_pointer_);
#else
  swapcontext(&caller.context, &context_);
#endif
  conclude_switch(caller.fake_stack, nullptr, nullptr);
}

/// Not inlined: where `caller` is must not be remembered from one resume() to the next, which may be another thread's.
[[gnu::noinline]] void Fiber::pause() {
  announce_switch(state_ == State::closing ? nullptr : &fake_stack_, caller.stack_bottom, caller.stack_size);
#if defined(__x86_64__)
  simt_switch_stack(&stack_pointer_, caller.stack_pointer);
#else
  swapcontext(&context_, &caller.context);
#endif
  conclude_switch(fake_stack_, nullptr, nullptr);
}

}  // namespace simt
