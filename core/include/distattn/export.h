#pragma once
/** Marks what libdistattn offers to its users; everything else stays inside. */

#define DISTATTN_API __attribute__((visibility("default")))
