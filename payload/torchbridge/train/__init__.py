"""Training on any device: precision by hardware, fused optimiser, exact resumption."""

from torchbridge.train.config import TrainConfig
from torchbridge.train.data import TensorBatches, accuracy
from torchbridge.train.loop import Trainer, TrainResult, fit
from torchbridge.train.optimizers import learning_rate, make_adamw, why_not_fused
from torchbridge.train.precision import Precision, choose_precision
