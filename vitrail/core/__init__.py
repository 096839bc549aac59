"""The parts: attention, what surrounds it, and what goes in and comes out."""

from vitrail.core.attention import Attention, BareAttention, Cache
from vitrail.core.block import Block, DropPath, FeedForward, Stack, Sublayer, activations
from vitrail.core.convolution import ConvolutionAsAttention
from vitrail.core.embeddings import ConvStem, Grouping, ImageEmbedding, PatchStem, Stem, stems
from vitrail.core.graphs import Axial, Edges, Fixed, Graph, Strided
from vitrail.core.hashing import Hashing
from vitrail.core.heads import ClassMeanPool, ClassPool, DistilledHead, DistilledPool, Head, MeanPool
from vitrail.core.kernels import Kernel, ReLU, Softmax, kernels
from vitrail.core.linear_attention import Linear, LowRank
from vitrail.core.local import Local
from vitrail.core.masks import CAUSAL, NONE, Mask
from vitrail.core.norms import BatchNorm, LayerNorm, norms
from vitrail.core.positions import Position, positions
from vitrail.core.resnet import ResNetStem
from vitrail.core.span import MixedAttention, Span
from vitrail.core.sparse import BigBird, Sparse
from vitrail.core.star import Star
from vitrail.core.tokens import TokenEmbedding, check_tokens, present, unembedding

__all__ = [
    "CAUSAL",
    "NONE",
    "Attention",
    "Axial",
    "BareAttention",
    "BatchNorm",
    "BigBird",
    "Block",
    "Cache",
    "ClassMeanPool",
    "ClassPool",
    "ConvStem",
    "ConvolutionAsAttention",
    "DistilledHead",
    "DistilledPool",
    "DropPath",
    "Edges",
    "FeedForward",
    "Fixed",
    "Graph",
    "Grouping",
    "Hashing",
    "Head",
    "ImageEmbedding",
    "Kernel",
    "LayerNorm",
    "Linear",
    "Local",
    "LowRank",
    "Mask",
    "MeanPool",
    "MixedAttention",
    "PatchStem",
    "Position",
    "ReLU",
    "ResNetStem",
    "Softmax",
    "Span",
    "Sparse",
    "Stack",
    "Star",
    "Stem",
    "Strided",
    "Sublayer",
    "TokenEmbedding",
    "activations",
    "check_tokens",
    "kernels",
    "norms",
    "positions",
    "present",
    "stems",
    "unembedding",
]
