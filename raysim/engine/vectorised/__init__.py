"""Local training of several clients as one program: `training.vectorise`. Horizontally fused training; Wang et al.,
MLSys 2021, arXiv 2102.02344."""
