/*===- Capi.h - What the C tests share ----------------------------*- C -*-===*/
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef ATTN_TEST_CAPI_CAPI_H
#define ATTN_TEST_CAPI_CAPI_H

#include "attn-c/Cache.h"
#include "attn-c/Compiler.h"
#include "attn-c/Pages.h"
#include "attn-c/Unstable.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Each returns what went wrong, or null. */
const char *decodeOfACache(void);
const char *everyErrorIsAStatus(void);
const char *nullIsRefused(void);
const char *truncatesACache(void);
const char *managesPages(void);

/* The text of an example; exits where there is none. */
char *readExample(const char *name);
AttnSource sourceOf(const char *text);

#ifdef __cplusplus
}
#endif

#endif
