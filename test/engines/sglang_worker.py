# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Answers prompts in SGLang, in a process of an environment that has it: cases as JSON from stdin, results as JSON lines.

A case: `name`; `model`, a folder; `kind`, the random model to write there first (models.py); `backend`; `mutant`, a name of
sglang_plugin.py or null; `rounds`, lists of prompts of token ids, one after the other; `tokens` to answer; `logprobs`,
false to ask for none: only then SGLang reads prompts beside decoding; `options` of sglang.Engine. Cases behind each other with the same model, backend and options share an engine, whose cache is emptied.
A result: `tokens` and `logprobs` of each answer; `cached`, the tokens of each prompt that were in the radix cache;
`margin`, by how much the closest choice was decided; how many steps there were of `decoding`, `graphs`, `prompts`, `drafts`, and
`mixed`;
`most`, the most rows of a step; `shared`, in how many tables neighbours shared pages; `seconds`; or `error`. A case with
`of`, the name of an earlier one, asks instead what Transformers says of its answers: `tokens` and `logprobs`. A case with
`check`, options of SGLang, asks what SGLang makes of them: the backends of its `graphs`."""

import json
import os
import sys
import tempfile
import time
import traceback

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import sglang_parts  # noqa: E402, F401  SGLang's processes import this file, too.

os.environ |= {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}

# Prompts are read in chunks of 64 tokens, beside decoding.
SETTINGS = dict(
    device="cpu",
    dtype="float16",
    skip_tokenizer_init=True,
    skip_server_warmup=True,
    random_seed=0,
    context_length=512,
    max_total_tokens=2048,
    max_running_requests=8,
    chunked_prefill_size=64,
    enable_mixed_chunk=True,
    page_size=16,
    log_level="error",
)


class Running:
    """The engine of the latest case."""

    def __init__(self):
        self.engine, self.settings = None, None

    def get(self, case):
        settings = SETTINGS | case.get("options", {})
        settings |= dict(model_path=case["model"], attention_backend=case["backend"])
        if settings != self.settings:
            from sglang import Engine

            self.stop()
            self.engine, self.settings = Engine(**settings), settings
        return self.engine

    def stop(self):
        if self.engine is not None:
            self.engine.shutdown()
        self.engine = self.settings = None


running = Running()


def reference(case, answered):
    """Return what Transformers says of the answers of another case."""
    import sglang_models

    running.stop()
    prompts = [prompt for prompts in case["rounds"] for prompt in prompts]
    tokens, logprobs = sglang_models.logprobs(case["model"], prompts, answered[case["of"]]["tokens"])
    return dict(tokens=tokens, logprobs=logprobs)


def check(case):
    """Return what SGLang makes of options."""
    from sglang.srt.arg_groups.overrides import resolved_view
    from sglang.srt.plugins import load_plugins

    load_plugins()
    from sglang.srt.server_args import ServerArgs

    given = dict(model_path=case["model"], device="cpu", attention_backend="attn") | case["check"]
    arguments = ServerArgs(**given)
    arguments.resolve_once()
    graphs = resolved_view(arguments).cuda_graph_config
    return dict(graphs=[str(graphs.decode.backend), str(graphs.prefill.backend)])


def answer(case):
    import sglang_models

    folder = case["model"]
    if case.get("kind") and not os.path.exists(folder):
        sglang_models.write(case["kind"], folder)
    engine = running.get(case)
    engine.flush_cache()
    engine.collective_rpc("change_attn", mutant=case.get("mutant"))
    asked = dict(temperature=0, max_new_tokens=case["tokens"], ignore_eos=True)
    more = dict(return_logprob=True, top_logprobs_num=2) if case.get("logprobs", True) else {}
    began, found = time.monotonic(), []
    for prompts in case["rounds"]:
        found += engine.generate(input_ids=prompts, sampling_params=asked, **more)
    seconds = time.monotonic() - began
    with tempfile.TemporaryDirectory() as scratch:
        path = os.path.join(scratch, "steps.json")
        engine.collective_rpc("write_steps", path=path)
        with open(path) as file:
            steps = json.load(file)
    about = [each["meta_info"] for each in found]
    result = dict(
        tokens=[each["output_ids"] for each in found],
        cached=[each["cached_tokens"] for each in about],
        seconds=seconds,
    )
    if more:
        top = [sorted(at[0] for at in pair) for each in about for pair in each["output_top_logprobs"]]
        result |= dict(
            logprobs=[[at[0] for at in each["output_token_logprobs"]] for each in about],
            margin=min(other - one for one, other in top),
        )
    return steps | result


def main():
    answered = {}
    for case in json.load(sys.stdin):
        try:
            if "check" in case:
                result = check(case)
            else:
                result = reference(case, answered) if "of" in case else answer(case)
            answered[case["name"]] = result
        except Exception as error:
            traceback.print_exc()
            result = dict(error=f"{type(error).__name__}: {error}")
        print("RESULT " + json.dumps(dict(name=case["name"]) | result), flush=True)
    running.stop()


if __name__ == "__main__":
    main()
