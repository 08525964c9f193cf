/*===- Compiler.h - From text to an artifact ----------------------*- C -*-===*/
/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
#ifndef ATTN_C_COMPILER_H
#define ATTN_C_COMPILER_H

#include "attn-c/Runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Facts of this library. Strings live as long as it is loaded. */
typedef struct AttnBuildInfo {
  const char *version;    /* "0.1.0" */
  const char *producer;   /* identifies this build: changes whenever its code does; part of every cache key */
  const char *llvm;       /* "22.1.8" */
  const char *hostTarget; /* the CPU that host code is made for and loaded on: "x86-64-v3", "x86-64-v2" */
  int32_t hostVersion;    /* version of host code; others are refused */
} AttnBuildInfo;
ATTN_C_EXPORT AttnBuildInfo attnBuildInfo(void);

/* The target of that index to compile for, from sm_80 on; null past the last. */
ATTN_C_EXPORT const char *attnTargetName(size_t index);

/* Path of ptxas, or empty if there is none. */
ATTN_C_EXPORT AttnStatus attnFindPtxas(AttnBytes **path);
/* Identifies ptxas by the hash of its file; empty if there is none. Part of a cache key of cubins, as the
 * producer is part of every key. Reads the whole file each time. */
ATTN_C_EXPORT AttnStatus attnIdentifyPtxas(AttnBytes **identity);

/* A problem: MLIR text with an attention, or an operation on a cache. */
typedef struct AttnSource {
  const char *text; /* UTF-8; needs no terminator, `size` counts */
  size_t size;
  const char *name;     /* for "name:line:col: error: …"; null: "attn" */
  const char *entry;    /* the function, if the text has several; null or empty: the only one */
  const char *target;   /* null: "sm_90a" */
  const char *schedule; /* "auto", "mma" or "wgmma"; null: "auto" */
} AttnSource;

/* Whether gradients have the same bits in every run: attn.ordered. */
typedef enum AttnOrder {
  AttnOrderDefault = 0, /* the compiler chooses by the description */
  AttnOrderFixed = 1,   /* every run adds in one order */
  AttnOrderAny = 2,     /* runs may differ, if that is faster */
  AttnOrderApart = 3,   /* as fixed, in two launches: quicker where rows see few tokens */
} AttnOrder;

/* Requests beside the text of a function. Each field stands for an attribute that the function may also have
 * in the text; if both are given they must be equal. Zeros request nothing. */
typedef struct AttnAsks {
  bool backward;             /* attn.backward: compile the kernels of gradients */
  const char *const *tables; /* score tables that get gradients, or "sink_logits"; with backward */
  size_t tableCount;
  AttnOrder ordered;        /* attn.ordered; with backward */
  const char *significance; /* attn.significance: "max", "mean" or "sum"; null: none */
  int32_t significanceRows; /* attn.significance_rows: last rows of a sequence that count; 0: all */
  bool devicePlan;          /* attn.device_plan: add a kernel that makes plans on the device */
  const char *numerics;     /* attn.numerics: "row": the same bits in every kernel and plan; null: none */
} AttnAsks;

/* Forms of code, to be combined. */
typedef enum AttnForm {
  AttnFormHost = 1,        /* native code for the host device */
  AttnFormHostChecked = 2, /* native code with its detectors; excludes AttnFormHost */
  AttnFormPtx = 4,
  AttnFormCubin = 8, /* through ptxas */
} AttnForm;

typedef struct AttnCompiled AttnCompiled;
/* For wrong text the message is the compiler's own: "name:line:col: error: …" and that line. LLVM ends the
 * process if it gets no memory: docs/embedding.md describes limits. */
ATTN_C_EXPORT AttnStatus attnCompile(const AttnSource *source, uint32_t forms, AttnCompiled **compiled);
/* Compiles a function with requests beside its text. `asks` null: none. */
ATTN_C_EXPORT AttnStatus attnCompileAsked(const AttnSource *source, const AttnAsks *asks, uint32_t forms,
                                          AttnCompiled **compiled);
ATTN_C_EXPORT void attnCompiledDestroy(AttnCompiled *compiled);
/* The artifact: one file, to store or to load (attnKernelLoad). */
ATTN_C_EXPORT const AttnBytes *attnCompiledArtifact(const AttnCompiled *compiled);
/* JSON: see attn_rt/artifact/Artifact.h. */
ATTN_C_EXPORT const char *attnCompiledManifest(const AttnCompiled *compiled);
/* Remarks of the compiler, "name:line:col: remark: …": why it chose a schedule. Null past the last. */
ATTN_C_EXPORT const char *attnCompiledRemark(const AttnCompiled *compiled, size_t index);
/* The output of ptxas -v; empty without a cubin. */
ATTN_C_EXPORT const char *attnCompiledPtxasLog(const AttnCompiled *compiled);
/* Seconds to the machine level (0 for form) and for each form; 0 for forms that were not made. The seconds of
 * cubins count from the PTX of the last kernel on: earlier cubins are assembled during the PTX. */
ATTN_C_EXPORT double attnCompiledSeconds(const AttnCompiled *compiled, uint32_t form);

/* The output of attn-opt --emit=level: problem, online, tile, machine, ptx, cubin or manifest. */
ATTN_C_EXPORT AttnStatus attnEmit(const AttnSource *source, const char *level, AttnBytes **text);
/* Emits a function with requests beside its text. `asks` null: none. */
ATTN_C_EXPORT AttnStatus attnEmitAsked(const AttnSource *source, const AttnAsks *asks, const char *level,
                                       AttnBytes **text);

/* A picture of the latest plan: the work of each block. */
ATTN_C_EXPORT AttnStatus attnPlanSvg(const AttnPlan *plan, AttnBytes **svg);

#ifdef __cplusplus
}
#endif

#endif
