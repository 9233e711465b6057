"""Random weights under which every part of a network matters and nothing overflows."""

import torch


def effective(model, seed, gain=0.7):
    """Fill `model` with them and return it, in evaluation mode.

    A layer multiplies the size of what it is given by about `gain`, whatever its width; none is
    left at the zeros it may start with. Tokens lie far apart, so that prompts do. Scales of norms
    lie about one; running statistics are not those of a fresh norm.
    """
    generator = torch.Generator().manual_seed(seed)
    tables = {id(m.weight) for m in model.modules() if isinstance(m, torch.nn.Embedding)}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if id(weight) in tables:
                weight.normal_(0, 1, generator=generator)
            elif name.endswith("bias"):
                weight.normal_(0, 0.1, generator=generator)
            elif weight.numel() == max(weight.shape, default=1):
                weight.uniform_(0.5, 1.5, generator=generator)
            else:
                weight.normal_(0, gain * weight[0].numel() ** -0.5, generator=generator)
        for name, statistic in model.named_buffers():
            if name.endswith("running_mean"):
                statistic.normal_(0, 0.3, generator=generator)
            elif name.endswith("running_var"):
                statistic.uniform_(0.5, 1.5, generator=generator)
    return model.float().eval()


def denoiser(model, seed):
    """`effective`, and strong enough that one prompt among much padding shows."""
    return effective(model, seed, gain=1.2)
