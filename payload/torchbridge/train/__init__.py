"""Training on any device: precision chosen by hardware, fused optimizer, exact resumption."""

from torchbridge.train.config import Precision, TrainConfig, choose_precision
from torchbridge.train.data import TensorBatches, accuracy
from torchbridge.train.loop import Trainer, TrainResult, fit
from torchbridge.train.optimizers import learning_rate, make_adamw, why_not_fused
