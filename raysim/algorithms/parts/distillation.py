"""Knowledge distillation: pull a student's logits to a teacher's. Hinton et al., 2015, arXiv 1503.02531."""

from torch import Tensor
from torch.nn import functional


def distillation_loss(teacher: Tensor, student: Tensor, temperature: float) -> Tensor:
    """Return -sum_c softmax(teacher/T)_c log softmax(student/T)_c, the mean over the rows of both logits [n, classes].

    Its gradient is that of the Kullback-Leibler divergence, (softmax(student/T) - softmax(teacher/T)) / (n T).
    """
    return functional.cross_entropy(student / temperature, functional.softmax(teacher / temperature, 1))
