/// C API: passes, waited for or queued.

#include "attention.hpp"
#include "tensors.hpp"

struct distattn_event {
  distattn::Event event;
  std::shared_ptr<distattn_comm::Ending> ending;
};

namespace distattn::c_api {
namespace {

Bindings views_of(const distattn_tensors* tensors) {
  required(tensors, "tensors");
  return bindings_of(read(tensors, DISTATTN_TENSORS_INIT, "distattn_tensors"));
}

void call(distattn_attention& handle, const distattn_tensors* tensors,
          const Timeline& (Attention::*pass)(const Bindings&)) {
  handle.ending->check();
  const Bindings bindings = views_of(tensors);
  collective(*handle.ending, [&] { (handle.attention.*pass)(bindings); });
}

void queue(distattn_attention& handle, const distattn_tensors* tensors, const distattn_event* after,
           distattn_event** event, Event (Attention::*pass)(const Bindings&, const Event&)) {
  if (event != nullptr) *event = nullptr;
  handle.ending->check();
  const Bindings bindings = views_of(tensors);
  auto made = event != nullptr ? std::make_unique<distattn_event>() : nullptr;
  const Event queued = collective(
      *handle.ending, [&] { return (handle.attention.*pass)(bindings, after != nullptr ? after->event : Event()); });
  if (made == nullptr) return;
  *made = {queued, handle.ending};
  *event = made.release();
}

/// What must not be const: null is refused.
distattn_attention& handle_of(distattn_attention* attention) {
  required(attention, "attention");
  return *attention;
}

}  // namespace
}  // namespace distattn::c_api

using namespace distattn;

extern "C" {

distattn_status distattn_forward(distattn_attention* attention, const distattn_tensors* tensors) {
  return c_api::guarded([&] { c_api::call(c_api::handle_of(attention), tensors, &Attention::forward); });
}

distattn_status distattn_backward(distattn_attention* attention, const distattn_tensors* tensors) {
  return c_api::guarded([&] {
    c_api::plan_of(c_api::attention_of(attention), Pass::backward);
    c_api::call(*attention, tensors, &Attention::backward);
  });
}

distattn_status distattn_forward_async(distattn_attention* attention, const distattn_tensors* tensors,
                                       const distattn_event* after, distattn_event** event) {
  return c_api::guarded([&] { c_api::queue(c_api::handle_of(attention), tensors, after, event, &Attention::forward); });
}

distattn_status distattn_backward_async(distattn_attention* attention, const distattn_tensors* tensors,
                                        const distattn_event* after, distattn_event** event) {
  return c_api::guarded([&] {
    c_api::plan_of(c_api::attention_of(attention), Pass::backward);
    c_api::queue(*attention, tensors, after, event, &Attention::backward);
  });
}

distattn_status distattn_event_done(const distattn_event* event, int32_t* done) {
  return c_api::guarded([&] {
    c_api::required(event, "event");
    c_api::required(done, "done");
    *done = event->event.done() ? 1 : 0;
    if (*done != 0) c_api::ending_with(*event->ending, [&] { event->event.wait(); });
  });
}

distattn_status distattn_event_wait(const distattn_event* event) {
  return c_api::guarded([&] {
    c_api::required(event, "event");
    c_api::ending_with(*event->ending, [&] { event->event.wait(); });
  });
}

void distattn_event_free(distattn_event* event) { delete event; }

distattn_status distattn_attention_check(distattn_attention* attention) {
  return c_api::guarded([&] {
    distattn_attention& handle = c_api::handle_of(attention);
    c_api::collective(*handle.ending, [&] { handle.attention.check(); });
  });
}

distattn_status distattn_attention_wait(distattn_attention* attention) {
  return c_api::guarded([&] {
    distattn_attention& handle = c_api::handle_of(attention);
    c_api::ending_with(*handle.ending, [&] { handle.attention.wait(); });
    handle.ending->check();
  });
}

}  // extern "C"
