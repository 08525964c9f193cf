# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""TRL's GRPO over packed groups, of a tiny Llama on the CPU: `pip install ".[trl]"` first."""

import datasets
import pyarrow
import tiny
import tokenizers
import transformers
from attn.training.trl import PackedGRPOTrainer
from trl import GRPOConfig

words = ["<pad>", "<eos>", *(f"w{number}" for number in range(30))]
of_words = tokenizers.Tokenizer(
    tokenizers.models.WordLevel({word: at for at, word in enumerate(words)}, unk_token="<pad>")
)
of_words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
tokenizer = transformers.PreTrainedTokenizerFast(
    tokenizer_object=of_words, pad_token="<pad>", eos_token="<eos>"
)
transformers.set_seed(0)
prompts = [" ".join(f"w{(3 * first + i) % 30}" for i in range(20)) for first in range(8)]
steps = {"max_steps": 20, "learning_rate": 5e-3, "per_device_train_batch_size": 16, "num_generations": 8}
quiet = {"report_to": [], "logging_steps": 1, "save_strategy": "no", "disable_tqdm": True}
trainer = PackedGRPOTrainer(
    tiny.decoder("llama", eos_token_id=1, pad_token_id=0),
    lambda completions, **_: [float(text.split().count("w7")) for text in completions],
    args=GRPOConfig(**steps, **quiet, max_completion_length=12, bf16=True, use_cpu=True),
    train_dataset=datasets.Dataset(pyarrow.table({"prompt": prompts}), fingerprint="prompts"),
    processing_class=tokenizer,
)
trainer.train()
rewards = [log["reward"] for log in trainer.state.log_history if "reward" in log]
print("learns:", sum(map(float, rewards[-5:])) > 2 * sum(map(float, rewards[:5])))
