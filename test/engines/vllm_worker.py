# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers prompts in vLLM, in a process of an environment that has it: cases as JSON from stdin, results as JSON lines.

A case: `name`; `model`, a folder; `kind`, the random model to write there first (models.py); `backend`, CUSTOM or null for
vLLM's own; `mutant`, a name of mutants.py or null; `prompts`, lists of token ids; `tokens` to answer; `options` of vllm.LLM.
A result: `tokens` and `logprobs` of each answer; `cached`, the tokens of each prompt that were in the prefix cache;
`margin`, by how much the closest choice was decided; `shared`, in how many tables neighbours shared pages; `preempted`, how
many requests were; `longest`, the most rows of a request in attn's steps; `blocks`, those of the cache; `apart`, how far outputs of layers are from float64 where the mutant says
so; `seconds`; or `error`. A case with `validate` asks instead why the backend refuses a configuration: `reasons`."""

import gc
import json
import os
import sys
import time

os.environ |= {
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "HF_HUB_OFFLINE": "1",
}

# Prompts are read in chunks of 64 tokens. Pages of 32 are the smallest that vLLM's own backend has.
SETTINGS = dict(
    dtype="float16",
    enforce_eager=True,
    skip_tokenizer_init=True,
    seed=0,
    max_model_len=256,
    max_num_seqs=8,
    max_num_batched_tokens=64,
    enable_prefix_caching=True,
    block_size=32,
)


def answer(case):
    import models
    import mutants
    from attn.serving import steps
    from attn.vllm import plans
    from vllm import LLM, SamplingParams
    from vllm.v1.core.sched.scheduler import Scheduler

    settings = SETTINGS | case.get("options", {})
    if case["backend"]:
        settings["attention_backend"] = case["backend"]
    folder = case["model"]
    if case.get("kind") and not os.path.exists(folder):
        models.write(case["kind"], folder)
    shared, shared_tables, preempted = [], steps.shared_tables, []
    preempt = Scheduler._preempt_request
    mutants.apart.clear()

    def watched(*given):
        found = shared_tables(*given)
        shared.append(found is not None)
        return found

    def watched_preemption(*given, **named):
        preempted.append(1)
        return preempt(*given, **named)

    longest, make_step = [0], plans.step

    def watched_step(*given, **counts):
        longest.append(counts["longest"])
        return make_step(*given, **counts)

    plans.step = watched_step
    steps.shared_tables, Scheduler._preempt_request = watched, watched_preemption
    with mutants.applied(case.get("mutant")):
        llm = LLM(folder, **settings)
        began = time.monotonic()
        asked = SamplingParams(
            temperature=0, max_tokens=case["tokens"], logprobs=2, ignore_eos=True, detokenize=False
        )
        prompts = [dict(prompt_token_ids=each) for each in case["prompts"]]
        found = llm.generate(prompts, asked, use_tqdm=False)
        seconds = time.monotonic() - began
    answers = [
        [
            (token, at)
            for token, at in zip(output.outputs[0].token_ids, output.outputs[0].logprobs, strict=True)
        ]
        for output in found
    ]
    result = dict(
        tokens=[[token for token, _ in each] for each in answers],
        logprobs=[[at[token].logprob for token, at in each] for each in answers],
        cached=[output.num_cached_tokens for output in found],
        margin=min(
            sorted(at[token].logprob - other.logprob for other in at.values())[1]
            for each in answers
            for token, at in each
        ),
        shared=sum(shared),
        preempted=len(preempted),
        longest=max(longest),
        blocks=llm.llm_engine.vllm_config.cache_config.num_gpu_blocks,
        apart=max(mutants.apart, default=None),
        seconds=seconds,
    )
    steps.shared_tables, Scheduler._preempt_request, plans.step = shared_tables, preempt, make_step
    llm.llm_engine.engine_core.shutdown()
    del llm
    gc.collect()
    return result


def reasons(case):
    """Return why the backend refuses a configuration, given as changes of one that it serves."""
    import attn.vllm
    import torch
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    attn.vllm.register()
    served = dict(
        head_size=64,
        dtype="float16",
        kv_cache_dtype="auto",
        block_size=16,
        use_mla=False,
        has_sink=True,
        use_sparse=False,
        use_mm_prefix=False,
        use_per_head_quant_scales=False,
        device_capability=None,
        attn_type="decoder",
        has_sliding_window=True,
    )
    given = served | case["validate"]
    given["dtype"] = getattr(torch, given["dtype"])
    # Without a configuration the name is that of other layers than MLA.
    backend = AttentionBackendEnum.CUSTOM.get_class()
    if given.pop("latent", False):
        from attn.vllm.latents import LatentBackend as backend
    return dict(reasons=backend.validate_configuration(**given))


def main():
    for case in json.load(sys.stdin):
        try:
            result = (reasons if "validate" in case else answer)(case)
        except Exception as error:
            result = dict(error=f"{type(error).__name__}: {error}")
        print("RESULT " + json.dumps(dict(name=case["name"]) | result), flush=True)


if __name__ == "__main__":
    main()
