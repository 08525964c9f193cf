# SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
"""The parts of `bench gpu`, and the bar of each."""

from measuring.comparisons import comparison_bars
from parts.attention import attention_bars, decode_points, feature_points, prefill_points
from parts.backward import backward_bars, backward_points
from parts.batches import batch_bars, batch_points, chunk_points
from parts.cache import append_bars, append_points, cache_points
from parts.context import context_bars, context_points
from parts.deep import deep_bars, deep_points
from parts.diffkv import diffkv_bars, diffkv_points
from parts.duo import duo_bars, duo_points
from parts.eager import eager_bars, eager_points
from parts.graphs import graph_bars, graph_points
from parts.latent import latent_bars, latent_points
from parts.layouts import layout_points, layouts_bars
from parts.outputs import outputs_bars, outputs_points
from parts.pages import pages_bars, pages_points
from parts.planning import planning_bars, planning_points
from parts.python import python_bars, python_points
from parts.quantized import quantized_bars, quantized_points
from parts.row import row_bars, row_points
from parts.serving import serving_bars, serving_points
from parts.shared_backward import shared_backward_bars, shared_backward_points
from parts.sharing import COMPARISONS
from parts.significance import significance_bars, significance_points
from parts.transformers import model_bars, model_points
from parts.wide import wide_bars, wide_points

PARTS = {
    "prefill": prefill_points,
    "batches": batch_points,
    "chunks": chunk_points,
    "features": feature_points,
    "decode": decode_points,
    "mla": latent_points,
    "wide": wide_points,
    "backward": backward_points,
    "eager": eager_points,
    "shared-backward": shared_backward_points,
    "tree-backward": deep_points,
    "quantized": quantized_points,
    "significance": significance_points,
    **COMPARISONS,
    "cache": cache_points,
    "append": append_points,
    "graphs": graph_points,
    "pages": pages_points,
    "diffkv": diffkv_points,
    "layouts": layout_points,
    "row": row_points,
    "duo": duo_points,
    "context": context_points,
    "outputs": outputs_points,
    "planning": planning_points,
    "python": python_points,
    "transformers": model_points,
    "serving": serving_points,
}


OWN_BARS = {
    **{part: comparison_bars for part in COMPARISONS},
    "backward": backward_bars,
    "eager": eager_bars,
    "shared-backward": shared_backward_bars,
    "tree-backward": deep_bars,
    "mla": latent_bars,
    "wide": wide_bars,
    "python": python_bars,
    "quantized": quantized_bars,
    "significance": significance_bars,
    "graphs": graph_bars,
    "pages": pages_bars,
    "diffkv": diffkv_bars,
    "layouts": layouts_bars,
    "row": row_bars,
    "duo": duo_bars,
    "context": context_bars,
    "append": append_bars,
    "outputs": outputs_bars,
    "planning": planning_bars,
    "transformers": model_bars,
    "serving": serving_bars,
    "batches": batch_bars,
    "chunks": batch_bars,
}


def bars(row, session):
    """Return the bars of a measured row: (text, whether it reached the bar)."""
    return OWN_BARS[row["part"]](row) if row["part"] in OWN_BARS else attention_bars(row, session)
