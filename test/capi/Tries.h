/*===- Tries.h - Ends a C test where something goes wrong ---------*- C -*-===*
 * SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
 * A test returns the text of the call or condition that was not as expected.
 *
 *===----------------------------------------------------------------------===*/
#ifndef ATTN_TEST_CAPI_TRIES_H
#define ATTN_TEST_CAPI_TRIES_H

#include "Capi.h"

#define TRY(call)                                                                                            \
  do {                                                                                                       \
    AttnStatus status = (call);                                                                              \
    const bool wrong = status.kind != AttnStatusOk;                                                          \
    attnStatusFree(status);                                                                                  \
    if (wrong)                                                                                               \
      return #call;                                                                                          \
  } while (0)
#define EXPECT(condition)                                                                                    \
  if (!(condition))                                                                                          \
  return #condition

#endif
