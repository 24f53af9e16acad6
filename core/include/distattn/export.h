#ifndef DISTATTN_EXPORT_H
#define DISTATTN_EXPORT_H
/** Marks what libdistattn offers to its users; everything else stays inside. */
#define DISTATTN_API __attribute__((visibility("default")))
#endif
