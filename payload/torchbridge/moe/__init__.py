"""Mixture of experts in which every assignment is computed, or counted as dropped."""

from torchbridge.moe.banks import FeedForwardBank, Segments
from torchbridge.moe.config import MoEConfig
from torchbridge.moe.experts import (
    AttentionExpert,
    ConvolutionalExpert,
    FeedForwardExpert,
    ParameterEfficientExpert,
)
from torchbridge.moe.layers import (
    LAYERS,
    ROUTERS,
    AdaptiveMoELayer,
    GLaMStyleMoE,
    MoELayer,
    SparseMoELayer,
    SwitchTransformerMoE,
    create_moe,
    create_moe_layer,
    create_router,
)
from torchbridge.moe.losses import (
    LoadBalancer,
    entropy_load_balance_loss,
    gshard_load_balance_loss,
    router_z_loss,
    switch_load_balance_loss,
)
from torchbridge.moe.parallel import ExpertParallelism, ExpertPlacement
from torchbridge.moe.paths import Batch, Path
from torchbridge.moe.routers import (
    BalancingRouter,
    DynamicCapacityRouter,
    HashRouter,
    LearnedRouter,
    SwitchRouter,
    TopKRouter,
)
from torchbridge.moe.scheduling import ExpertScheduler, MemoryEfficientSwitching
