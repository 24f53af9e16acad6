#pragma once
/** Marks what libdistattn offers: in C a function, in C++ a public header's namespace. Everything else stays inside. */

#define DISTATTN_API __attribute__((visibility("default")))
