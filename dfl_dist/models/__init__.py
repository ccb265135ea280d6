"""Models: the built-in ones, and what training needs of any: one flat vector, a loss, a score."""

from dfl_dist.models.zoo import cifar_cnn, digits_mlp, mnist_2nn, resnet18_gn

__all__ = ["cifar_cnn", "digits_mlp", "mnist_2nn", "resnet18_gn"]
