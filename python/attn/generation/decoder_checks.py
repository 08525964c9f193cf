# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""Checks of Decoder: models whose steps can be recorded, prompts that fit, and the options of `generate` that it has."""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Sequence

import torch
from torch import Tensor, nn

from ..adapters.diffkv_cache import DiffKVCache
from ..adapters.transformers_cache import PagedCache
from ..adapters.transformers_config import CACHE, cache_name, check_config
from ..adapters.transformers_fallback import NAME, OWN_NAMES
from ..errors import PlanError, TensorError, closest, expected

IMPLEMENTATIONS = (*OWN_NAMES, "sdpa", "eager")
_ASKED = ("input_ids", "attention_mask", "position_ids")
_HOST_ROPE = ("dynamic", "longrope")
_RECORDING = ("reduce-overhead", "max-autotune")  # Modes of torch.compile that record graphs themselves.

# Options of Transformers' `generate` that Choice does not have, and the value at which each changes nothing.
_PROCESSED = {
    "num_beams": 1,
    "num_beam_groups": 1,
    "diversity_penalty": 0.0,
    "constraints": None,
    "force_words_ids": None,
    "penalty_alpha": None,
    "dola_layers": None,
    "assistant_model": None,
    "prompt_lookup_num_tokens": None,
    "assistant_early_exit": None,
    "use_mtp": False,
    "repetition_penalty": 1.0,
    "encoder_repetition_penalty": 1.0,
    "no_repeat_ngram_size": 0,
    "encoder_no_repeat_ngram_size": 0,
    "bad_words_ids": None,
    "sequence_bias": None,
    "min_length": 0,
    "min_new_tokens": None,
    "forced_bos_token_id": None,
    "forced_eos_token_id": None,
    "exponential_decay_length_penalty": None,
    "suppress_tokens": None,
    "begin_suppress_tokens": None,
    "guidance_scale": None,
    "watermarking_config": None,
    "token_healing": False,
    "remove_invalid_values": False,
    "stop_strings": None,
    "max_time": None,
    "logits_processor": None,
    "stopping_criteria": None,
    "prefix_allowed_tokens_fn": None,
    "streamer": None,
    "negative_prompt_ids": None,
    "past_key_values": None,
    "cache": None,
    "cache_implementation": None,
    "inputs_embeds": None,
    "return_dict_in_generate": False,
    "output_scores": False,
    "output_logits": False,
    "output_attentions": False,
    "output_hidden_states": False,
}
_SAMPLED = {"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "min_p": None, "top_h": None}
_SERVED = (
    "max_new_tokens",
    "do_sample",
    "temperature",
    "top_k",
    "top_p",
    "eos_token_id",
    "pad_token_id",
    "num_return_sequences",
    "held",
)
_CALLERS = {"past_key_values", "cache", "cache_implementation", "streamer"}
"""Options about how a call runs rather than about its result: a configuration's values are ignored."""


def check_model(model: nn.Module) -> None:
    """Raise a PlanError for models whose steps differ in more than the contents of tensors."""
    kind = type(model).__name__
    if not callable(getattr(model, "can_generate", None)) or not model.can_generate():
        raise expected(PlanError, "model", "a model of Transformers that generates", kind)
    config = model.config.get_text_config(decoder=True)
    check_config(config, "Decoder")
    missing = [name for name in _ASKED if name not in inspect.signature(model.forward).parameters]
    missing += [] if cache_name(model.forward) else [CACHE]
    if missing:
        raise PlanError(f"model: the forward of {kind} takes no {', '.join(missing)}; take model.generate")
    if not getattr(model, "_can_compile_fullgraph", False):
        raise PlanError(
            f"model: what {kind} computes depends on what its tensors hold (Transformers does not compile it as one graph), "
            "which a recorded step could not repeat; take model.generate"
        )
    ropes = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    for rope in [ropes, *(each for each in ropes.values() if isinstance(each, dict))]:
        if rope.get("rope_type") in _HOST_ROPE:
            raise PlanError(
                f"model: rotary embeddings of type {rope['rope_type']!r} of {kind} are chosen by the host in each step, which a "
                "recorded one could not repeat; take model.generate"
            )
    devices = {str(weight.device) for weight in model.parameters()}
    if len(devices) != 1:
        raise expected(PlanError, "model", "weights on one device", sorted(devices))


def check_implementation(model: nn.Module, cache: object) -> str:
    """Return the model's implementation of attention. PlanError if it cannot be recorded over a PagedCache, or over any
    other cache."""
    found = model.config.get_text_config(decoder=True)._attn_implementation
    legal: tuple[str, ...] = IMPLEMENTATIONS
    text = f"one of {', '.join(legal)}"
    if isinstance(cache, PagedCache):
        legal, what = ((NAME,), "latents") if cache.is_latent else (OWN_NAMES, "a cache")
        text = f"{' or '.join(legal)}, over {what} in pages"
    if found not in legal:
        raise expected(PlanError, "attn_implementation", text, found, nearest=repr(NAME))
    return found


def check_cache(cache: object, model: nn.Module) -> None:
    """Raise a PlanError if a decoder or an engine is given a cache that is not a paged one of this model."""
    if isinstance(cache, DiffKVCache):
        raise PlanError(
            "cache: attn.transformers.DiffKVCache keeps other tokens of each KV head, reads a prompt in one forward pass, and "
            "waits for the device behind it; recorded steps have one length for all heads of a sequence, and wait for "
            'nothing. Take attn.transformers.PagedCache, which stores few bits with key="int8", value="int4", or '
            "model.generate(past_key_values=cache)"
        )
    if not isinstance(cache, PagedCache):
        legal = "an attn.transformers.PagedCache, or None for a static cache of the decoder's own"
        raise expected(PlanError, "cache", legal, cache)
    layers = model.config.get_text_config(decoder=True).num_hidden_layers
    if len(cache.layers) != layers:
        raise expected(PlanError, "cache", f"one of the model's {layers} layers", len(cache.layers))


def not_planned(model: str) -> PlanError:
    """Return the error about layers that only the host plans, found once a prompt has gone through them."""
    return PlanError(
        f"model: layers of {model} are not planned on the device (learned sinks without a cache in pages, head gates, layers "
        'that differ, or tensors that PyTorch attends to), which a recorded step could not repeat; take "sdpa", or '
        "model.generate"
    )


def count_copies(given: int | None, configured: object, sequences: int) -> int:
    """Return the number of sequences of each prompt. PlanError."""
    count = getattr(configured, "num_return_sequences", None) if given is None else given
    count = 1 if count is None else count
    if isinstance(count, bool) or not isinstance(count, int) or count < 1 or sequences % count:
        legal = f"a divisor of the {sequences} sequences that the decoder was made for"
        raise expected(PlanError, "num_return_sequences", legal, count)
    return count


def compile_options(given: bool | dict | None, device: torch.device, cache: object) -> dict | None:
    """Return the options of torch.compile, or None if nothing is compiled. PlanError."""
    is_latent = isinstance(cache, PagedCache) and cache.is_latent
    if given is None:
        given = device.type == "cuda" and not is_latent
    if is_latent and given is not False:
        hint = "Layers tell a cache of latents what they project while Python runs; steps are recorded all the same"
        raise expected(PlanError, "compile", "False or None over latents", given, nearest=False, hint=hint)
    if isinstance(given, bool):
        return {} if given else None
    if not isinstance(given, dict):
        raise expected(PlanError, "compile", "True, False, or options of torch.compile in a dict", given)
    mode = given.get("mode")
    if mode in _RECORDING:
        hint = "The step is recorded as a whole, so compiled code must not record parts of it"
        nearest = "'max-autotune-no-cudagraphs'" if mode == "max-autotune" else "'default'"
        legal = "a mode that records no graphs"
        raise expected(PlanError, "compile['mode']", legal, mode, nearest=nearest, hint=hint)
    if (given.get("options") or {}).get("triton.cudagraphs"):
        raise expected(PlanError, "compile['options']['triton.cudagraphs']", "False", True, nearest=False)
    return dict(given)


def check_prompt(ids: Tensor, prompts: int, device: torch.device) -> None:
    """Raise a TensorError if token ids are not `int[prompts, columns]` on the model's device."""
    if not isinstance(ids, Tensor) or ids.dtype not in (torch.int64, torch.int32):
        found = ids.dtype if isinstance(ids, Tensor) else ids
        raise expected(TensorError, "input_ids", "a tensor of int64 or int32", found)
    if ids.dim() != 2 or ids.shape[0] != prompts or not ids.shape[1]:
        legal = f"[{prompts}, columns], as many sequences as the decoder was made for"
        raise expected(TensorError, "input_ids", legal, list(ids.shape))
    if ids.device != device:
        raise expected(TensorError, "input_ids", f"a tensor on the model's device, {device}", str(ids.device))


def find_padding(mask: Tensor | None, ids: Tensor, pad: int | None) -> tuple[Tensor, list[int]]:
    """Return which columns are not padding, bool[sequences, columns], and how many padding columns precede each
    sequence. Waits for the device. A prompt without a mask hides its `pad` tokens, as in `generate`. TensorError."""
    if mask is None:
        mask = torch.ones_like(ids, dtype=torch.bool) if pad is None else ids != pad
        if pad is not None and not bool(mask.any(1).all()):
            mask = torch.ones_like(mask)
    elif not isinstance(mask, Tensor) or mask.shape != ids.shape:
        found = list(mask.shape) if isinstance(mask, Tensor) else mask
        raise expected(TensorError, "attention_mask", f"{list(ids.shape)}, as input_ids", found)
    mask = mask.to(device=ids.device, dtype=torch.bool)
    columns = ids.shape[1]
    front = []
    for row, shown in enumerate(mask.cpu()):
        count = int(shown.sum())
        if not count:
            raise TensorError(f"attention_mask[{row}]: expected a token that is shown, got padding alone")
        if not bool(shown[columns - count :].all()):
            hidden = int((~shown[int(shown.to(torch.uint8).argmax()) :]).to(torch.uint8).argmax())
            place = int(shown.to(torch.uint8).argmax()) + hidden
            raise TensorError(
                f"attention_mask[{row}]: expected padding before the tokens only, got some at column {place}; pad on the "
                "left, or take model.generate"
            )
        front.append(columns - count)
    return mask, front


def check_room(columns: int, new: int, tokens: int) -> None:
    """Raise a PlanError if prompt and new tokens exceed the cache. The last token's keys are not written."""
    if columns > tokens:
        legal = f"at most {tokens} columns, as the decoder was made for (tokens={tokens})"
        raise expected(PlanError, "input_ids", legal, columns)
    most = tokens - columns + 1
    if isinstance(new, bool) or not isinstance(new, int) or not 1 <= new <= most:
        nearest = min(max(new, 1), most) if isinstance(new, int) else most
        legal = f"1 to {most} after {columns} columns, as the decoder was made for {tokens} tokens"
        raise expected(PlanError, "max_new_tokens", legal, new, nearest=nearest)


def check_held(held: Sequence[int], tokens: list[int], shown: list[int]) -> None:
    """Raise a PlanError unless `held` has a number of tokens for each sequence, of those in the cache, and fewer than
    are shown."""
    if not tokens:
        legal = "a number of columns: there are no sequences in pages that would have tokens of their own"
        raise expected(PlanError, "held", legal, list(held))
    if len(held) != len(tokens) or len(shown) != len(tokens):
        legal = f"a number for each of the {len(tokens)} sequences of the cache"
        raise expected(PlanError, "held", legal, list(held))
    for row, count in enumerate(held):
        most = min(tokens[row], shown[row] - 1)
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= most:
            legal = f"0 to {most}: {tokens[row]} tokens are held, and one of {shown[row]} has to be read"
            nearest = min(max(count, 0), most) if isinstance(count, int) else 0
            raise expected(PlanError, f"held[{row}]", legal, count, nearest=nearest)


def refuse_others(
    options: dict[str, object],
    configured: object,
    sample: bool,
    but: Collection[str] = (),
    served: Sequence[str] = _SERVED,
) -> None:
    """Raise a PlanError for options of `generate` that Choice does not have, given or in a model's generation
    configuration. The caller serves those of the configuration that `but` names. `served` are options of its own, for
    messages."""
    known = _PROCESSED | _SAMPLED
    for name, value in options.items():
        if name not in known or name == "stop_strings" and "stop" in served:
            legal = f"one of {', '.join(served)}"
            call = "generate" if served is _SERVED else "add_request"
            raise expected(PlanError, call, legal, name, nearest=closest(name, served))
        if value is not None and value != known[name]:
            raise _refused(name, value, "")
    for name, neutral in (known if sample else _PROCESSED).items():
        value = getattr(configured, name, None)
        if name not in {*_CALLERS, *but} and value is not None and value != neutral:
            raise _refused(name, value, "model.generation_config: ")


def _refused(name: str, value: object, where: str) -> PlanError:
    shown = value if isinstance(value, (bool, int, float, str)) else type(value).__name__
    return PlanError(
        f"{where}{name}={shown}: recorded steps choose the likeliest token, or sample by temperature, top_k and top_p; "
        "take model.generate"
    )


def token_ids(name: str, given: object, vocabulary: int) -> tuple[int, ...]:
    """Return one or several tokens, as eos_token_id is given; () for None. PlanError."""
    if given is None:
        return ()
    if isinstance(given, Tensor):
        given = given.tolist()
    found = tuple(given) if isinstance(given, Iterable) else (given,)
    for token in found:
        if isinstance(token, bool) or not isinstance(token, int) or not 0 <= token < vocabulary:
            raise expected(PlanError, name, f"tokens, 0 to {vocabulary - 1}", token)
    return found
