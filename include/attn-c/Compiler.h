/*===- Compiler.h - From text to an artifact ----------------------*- C -*-===*/
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef ATTN_C_COMPILER_H
#define ATTN_C_COMPILER_H

#include "attn-c/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What this library is. Strings live as long as it is loaded. */
typedef struct AttnBuildInfo {
  const char *version;    /* "0.1.0" */
  const char *producer;   /* names this very build: changes whenever its code does; part of every cache key */
  const char *llvm;       /* "22.1.8" */
  const char *hostTarget; /* the CPU that host code is made for and loaded on: "x86-64-v3", "x86-64-v2" */
  int32_t hostVersion;    /* of host code; others are refused */
} AttnBuildInfo;
ATTN_C_EXPORT AttnBuildInfo attnBuildInfo(void);

/* The chip of that index to compile for, from sm_80 on; null beyond the last. */
ATTN_C_EXPORT const char *attnTargetName(size_t index);

/* Path of ptxas, or empty where there is none. */
ATTN_C_EXPORT AttnStatus attnFindPtxas(AttnBytes **path);
/* Which ptxas that is, by the hash of its file; empty where there is none. Part of a cache key of cubins, as
 * the producer is of every one. Reads the whole file each time. */
ATTN_C_EXPORT AttnStatus attnIdentifyPtxas(AttnBytes **identity);

/* A problem: MLIR text with an attention, or an operation on a cache. */
typedef struct AttnSource {
  const char *text; /* UTF-8; not terminated where size says so */
  size_t size;
  const char *name;     /* for "name:line:col: error: …"; null: "attn" */
  const char *entry;    /* the function, where the text has several; null or empty: the only one */
  const char *target;   /* null: "sm_90a" */
  const char *schedule; /* "auto", "mma" or "wgmma"; null: "auto" */
} AttnSource;

/* Whether gradients are the same bits in every run: attn.ordered. */
typedef enum AttnOrder {
  AttnOrderDefault = 0, /* the compiler chooses by the description */
  AttnOrderFixed = 1,   /* every run adds in one order */
  AttnOrderAny = 2,     /* runs may differ, where that is quicker */
} AttnOrder;

/* What is asked of the function beside its text. Each field stands for an attribute that the function may
 * have in the text, too; asked for in both places it has to be the same. Zeros ask for nothing. */
typedef struct AttnAsks {
  bool backward; /* attn.backward: the kernels are those of gradients */
  const char *const
      *tables; /* which of the score's tables get gradients, and "sink_logits"; beside backward */
  size_t tableCount;
  AttnOrder ordered;        /* attn.ordered; beside backward */
  const char *significance; /* attn.significance: "max", "mean" or "sum"; null: none */
  int32_t
      significanceRows; /* attn.significance_rows: of how many of the last rows of a sequence; 0: of all */
  bool devicePlan;      /* attn.device_plan: with a kernel that makes plans on the device */
} AttnAsks;

/* Forms of code, to be combined. */
typedef enum AttnForm {
  AttnFormHost = 1,        /* native code for the host device */
  AttnFormHostChecked = 2, /* the same, instrumented for its detectors; excludes the one above */
  AttnFormPtx = 4,
  AttnFormCubin = 8, /* through ptxas */
} AttnForm;

typedef struct AttnCompiled AttnCompiled;
/* Where the text is wrong the message is the compiler's own: "name:line:col: error: …" and the line in
 * question. LLVM ends the process where it gets no memory: docs/embedding.md says what to do about limits. */
ATTN_C_EXPORT AttnStatus attnCompile(const AttnSource *source, uint32_t forms, AttnCompiled **compiled);
/* The same of a function of which more is asked than its text says. `asks` null: nothing. */
ATTN_C_EXPORT AttnStatus attnCompileAsked(const AttnSource *source, const AttnAsks *asks, uint32_t forms,
                                          AttnCompiled **compiled);
ATTN_C_EXPORT void attnCompiledDestroy(AttnCompiled *compiled);
/* The artifact: one file, to be kept or loaded (attnKernelLoad). */
ATTN_C_EXPORT const AttnBytes *attnCompiledArtifact(const AttnCompiled *compiled);
/* JSON: see attn_rt/artifact/Artifact.h. */
ATTN_C_EXPORT const char *attnCompiledManifest(const AttnCompiled *compiled);
/* What the compiler says unasked, "name:line:col: remark: …": why it chose a schedule. Null beyond the last.
 */
ATTN_C_EXPORT const char *attnCompiledRemark(const AttnCompiled *compiled, size_t index);
/* What ptxas -v printed; empty without a cubin. */
ATTN_C_EXPORT const char *attnCompiledPtxasLog(const AttnCompiled *compiled);
/* Seconds to the machine level (0 for form) and for each form; 0 for what was not made. Of cubins those after
 * the last kernel was PTX: others are being assembled while it is not. */
ATTN_C_EXPORT double attnCompiledSeconds(const AttnCompiled *compiled, uint32_t form);

/* What attn-opt --emit=level prints: "problem", "online", "tile", "machine", "ptx", "cubin" or "manifest". */
ATTN_C_EXPORT AttnStatus attnEmit(const AttnSource *source, const char *level, AttnBytes **text);
/* The same of a function of which more is asked than its text says. `asks` null: nothing. */
ATTN_C_EXPORT AttnStatus attnEmitAsked(const AttnSource *source, const AttnAsks *asks, const char *level,
                                       AttnBytes **text);

/* A picture of what was planned last: who does what. */
ATTN_C_EXPORT AttnStatus attnPlanSvg(const AttnPlan *plan, AttnBytes **svg);

#ifdef __cplusplus
}
#endif

#endif
