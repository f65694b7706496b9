"""Names that people bring from Flower, Mammoth, Avalanche, PyCIL, FLGo and PyTorch, by raysim's own. Data only.

Names are compared without case, "_" and "-": numClients is num_clients. A name with a dot counts in its block only.
"""

from collections.abc import Mapping

KEYS: Mapping[str, tuple[str, ...]] = {
    "name": ("run_name", "experiment_name", "exp_name", "prefix"),
    "seed": ("random_seed", "rng_seed", "manual_seed", "torch_seed", "np_seed"),
    "dataset": ("data", "benchmark", "dataset_name", "data_name"),
    "dataset.root": ("data_root", "data_path", "data_dir", "dataset_path", "dataset_root", "base_path"),
    "dataset.train_samples": ("n_train", "num_train", "max_samples", "subset", "dataset.samples"),
    "dataset.augment": ("transform", "transforms", "data_aug", "augmentation"),
    "dataset.normalize": ("normalise", "normalization"),
    "scenario.tasks": (
        "n_tasks", "num_tasks", "nb_tasks", "tasks", "task_num", "n_experiences", "num_experiences", "nb_experiences",
    ),
    "scenario": ("setting", "incremental_kind", "scenario_type"),
    "scenario.class_order": ("permute_classes", "fixed_class_order", "shuffle_classes", "shuffle"),
    "scenario.first_task_classes": ("init_cls", "initial_classes", "base_classes", "nc_first_task"),
    "partition": ("partitioner", "partition_type", "split_type", "data_split"),
    "partition={kind: dirichlet, alpha: ...}": ("dirichlet_alpha", "dir_alpha", "alpha_dirichlet", "dirichlet"),
    "clients.count": (
        "num_clients", "n_clients", "nb_clients", "number_of_clients", "clients_num", "client_num", "num_users",
        "num_supernodes", "supernodes", "n_parties", "client_count", "clients.num", "clients.number", "clients.n",
        "clients.size",
    ),
    "clients.dropout": ("drop_rate", "drop_prob", "client_dropout", "availability"),
    "model": ("backbone", "convnet_type", "convnet", "arch", "architecture", "network", "net", "model_type"),
    "model.weights": ("pretrained", "checkpoint_path", "load_checkpoint", "pretrained_path", "model.path"),
    "objective": ("loss", "criterion", "loss_fn", "loss_function"),
    "training.rounds_per_task": (
        "num_rounds", "n_rounds", "rounds", "nb_rounds", "server_rounds", "num_server_rounds", "comm_round",
        "comm_rounds", "communication_rounds", "global_rounds", "global_epochs", "rounds_per_experience",
    ),
    "training.local_epochs": (
        "epochs", "n_epochs", "num_epochs", "nb_epochs", "max_epochs", "train_epochs", "init_epoch", "init_epochs",
        "local_ep", "client_epochs", "epochs_per_task", "tuned_epoch",
    ),
    "training.local_steps": ("num_steps", "n_steps", "local_iterations", "num_iterations", "local_updates"),
    "training.batch_size": (
        "batch", "batch_size", "bs", "batchsize", "train_mb_size", "mb_size", "local_bs", "train_batch_size",
    ),
    "training.optimizer.lr": (
        "lr", "learning_rate", "lrate", "init_lr", "init_lrate", "client_lr", "local_lr", "eta", "base_lr",
    ),
    "training.optimizer": ("optim", "opt", "optimizer_name", "local_optimizer"),
    "training.optimizer.momentum": ("optim_mom", "momentum", "sgd_momentum"),
    "training.optimizer.weight_decay": ("optim_wd", "wd", "weight_decay", "init_weight_decay", "l2_reg"),
    "training.optimizer.nesterov": ("optim_nesterov",),
    "training.lr_decay": (
        "lr_scheduler", "scheduler", "milestones", "init_milestones", "lrate_decay", "lr_milestones",
    ),
    "training.lr_decay.per_round": ("learning_rate_decay", "gamma"),
    "training.clip_norm": ("clip_grad", "grad_clip", "max_grad_norm", "gradient_clip_val", "clip"),
    "training.precision": ("amp", "fp16", "mixed_precision", "autocast"),
    "memory.capacity": (
        "buffer_size", "mem_size", "memory_size", "buffer", "replay_buffer_size", "replay_size", "memory_capacity",
        "memory_budget", "n_memories", "exemplars", "num_exemplars", "max_memory", "memory.size", "memory.buffer",
        "memory.samples", "memory.count",
    ),
    "memory.policy": ("storage_policy", "buffer_policy", "buffer_mode", "memory.strategy", "memory.kind"),
    "methods": ("strategy", "algorithm", "method", "algo", "plugins", "strategies", "method_name"),
    "methods.er.sample_size": ("minibatch_size", "batch_size_mem", "mem_batch_size", "batch_size_memory"),
    "methods.fedprox.mu": ("proximal_mu", "prox_mu", "fedprox_mu"),
    "methods.ewc.strength": ("ewc_lambda", "e_lambda", "lambda_ewc"),
    "participation.fraction": (
        "fraction_fit", "fraction_train", "frac", "fraction", "client_fraction", "proportion", "join_ratio",
        "participation_rate", "sample_fraction", "clients.fraction", "participation.rate", "participation.ratio",
    ),
    "participation.count": (
        "min_fit_clients", "min_train_nodes", "clients_per_round", "num_clients_per_round", "client_num_per_round",
        "num_sampled_clients", "participation.num_clients", "participation.clients", "participation.number",
    ),
    "participation.sampler": ("client_sampler", "client_selection", "client_manager"),
    "aggregation.weights": ("aggregate", "weighted", "weighting", "aggregation.kind", "aggregation.by"),
    "schedule={kind: asynchronous}": ("async", "asynchronous", "async_mode"),
    "resources.gpus_per_actor": (
        "gpus", "gpu", "num_gpus", "n_gpus", "gpu_ids", "device", "devices", "cuda", "use_cuda", "accelerator",
        "gpus_per_client", "client_resources.num_gpus", "resources.gpus", "resources.num_gpus",
    ),
    "resources.cpus_per_actor": (
        "cpus", "num_cpus", "n_cpus", "n_jobs", "cpus_per_client", "resources.cpus", "resources.num_cpus",
    ),
    "resources.address": ("ray_address", "redis_address"),
    "evaluation.every_rounds": (
        "eval_every", "evaluate_every", "eval_freq", "eval_interval", "eval_epochs", "evaluation.rounds",
        "evaluation.interval", "test_every",
    ),
    "evaluation.validation_fraction": ("val_split", "validation_split", "val_fraction", "validation", "val_ratio"),
    "checkpoint.every_rounds": ("savecheck", "save_every", "save_freq", "save_interval", "checkpoint.rounds"),
    "logging.tensorboard": ("tensorboard", "tb", "nowand", "log_dir", "logger"),
    "callbacks.early_stopping.patience": ("patience", "early_stopping_patience", "early_stop_patience"),
    "callbacks=wandb": ("wandb", "wandb_project", "use_wandb", "wandb_entity"),
}  # fmt: skip
"""Keys, each with names of the same meaning elsewhere."""

NONE_NEEDED: Mapping[str, str] = {
    "test_samples": "tests use all samples of the test set",
    "n_test": "tests use all samples of the test set",
    "num_workers": "clients read their batches themselves; resources.clients_per_actor is the clients of a process",
    "eval_mb_size": "raysim chooses the batches of tests by their memory",
    "test_batch_size": "raysim chooses the batches of tests by their memory",
    "eval_batch_size": "raysim chooses the batches of tests by their memory",
    "increment": "scenario.tasks and scenario.first_task_classes give the classes of the tasks",
    "num_classes": "the dataset gives its classes",
    "n_classes": "the dataset gives its classes",
    "input_size": "the dataset gives the shape of the samples",
    "fraction_evaluate": "the server tests on the whole test set",
    "min_available_clients": "all clients are there unless clients.arrive or clients.leave says otherwise",
    "verbose": "add the option --quiet to see nothing",
    "output_dir": "add the option --out DIR",
    "out": "add the option --out DIR",
    "save_dir": "add the option --out DIR",
    "resume": "add the options --resume --out DIR",
    "debug": "add the option --local, which needs no Ray",
}
"""Names for which there is no key, each with the reason."""

BLOCKS: Mapping[str, tuple[str, ...]] = {
    "clients": ("clients.count",),
    "memory": ("memory.capacity",),
    "participation": ("participation.fraction", "participation.count"),
    "aggregation": ("aggregation.weights",),
    "evaluation": ("evaluation.every_rounds",),
    "checkpoint": ("checkpoint.every_rounds",),
    "logging": ("logging.tensorboard",),
    "training": ("training.local_epochs", "training.rounds_per_task"),
    "model.adapters": ("model.adapters={rank: 4, where: [LAYER]}",),
}
"""Blocks, each with the keys that are meant where a value is given for the whole block."""

NAMES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "method": {
        "fedavg": ("naive", "finetune", "finetuning", "fine_tuning", "sgd", "none", "fed_avg", "baseline"),
        "fedadam": ("fed_opt", "fedopt"),
        "fedavgm": ("fed_avg_momentum", "fedmom"),
        "er": ("replay", "experience_replay", "rehearsal", "replay_plugin"),
        "der with methods.der.beta=0.5": ("derpp", "der++", "der_pp"),
        "a_gem": ("gem_average", "averaged_gem", "agem"),
        "ewc": ("ewc_on", "ewc_online", "online_ewc", "ewc_plugin"),
        "lwf": ("learning_without_forgetting", "lwf_plugin"),
        "joint": ("joint_training", "cumulative", "multitask"),
        "fed_l2p": ("l2p",),
        "fed_dualprompt": ("dualprompt",),
        "fed_coda_prompt": ("coda_prompt", "coda"),
        "top_k": ("sparsify", "topk_sparsification"),
    },
    "dataset": {
        "mnist with scenario={kind: class_incremental, tasks: 5}": ("seq_mnist", "split_mnist"),
        "fashion_mnist with scenario={kind: class_incremental, tasks: 5}": ("seq_fmnist", "split_fmnist"),
        "cifar10 with scenario={kind: class_incremental, tasks: 5}": ("seq_cifar10", "split_cifar10"),
        "cifar100 with scenario={kind: class_incremental, tasks: 10}": ("seq_cifar100", "split_cifar100"),
        "tiny_imagenet with scenario={kind: class_incremental, tasks: 10}": ("seq_tinyimg", "split_tiny_imagenet"),
        "mnist with scenario={kind: domain_incremental, tasks: 20, shift: permutation}": (
            "perm_mnist",
            "permuted_mnist",
        ),
        "mnist with scenario={kind: domain_incremental, tasks: 20, shift: rotation}": ("rot_mnist", "rotated_mnist"),
        "fashion_mnist": ("fmnist",),
        "tiny_imagenet": ("tinyimg", "tinyimagenet200", "tiny_imagenet200"),
        "leaf": ("celeba", "sent140", "reddit"),
        "image_folder": ("imagenet", "imagenet1000", "imagenet100", "folder"),
        "hugging_face": ("hf", "huggingface", "flwr_datasets", "federated_dataset", "datasets"),
        "csv": ("pandas", "dataframe"),
        "npz": ("numpy", "npy"),
    },
    "model": {
        "mnist_cnn or mcmahan_cnn": ("cnn", "simple_cnn", "lenet", "lenet5", "conv_net"),
        "small_resnet": ("resnet8", "resnet20", "resnet32", "resnet56", "cifar_resnet"),
        "mlp": ("fc", "fcn", "mnist_mlp", "simple_mlp", "dnn"),
        "vit": ("vision_transformer", "vit_b16", "vit_base_patch16_224"),
        "transformer": ("gpt", "lm", "language_model"),
    },
    "task scenario": {
        "class_incremental": ("cil", "class_il", "class", "nc", "new_classes", "split"),
        "domain_incremental": ("dil", "domain_il", "domain", "ni", "new_instances", "rotation", "permutation"),
        "class_incremental with training.logits=task": ("task_incremental", "task_il", "til", "task"),
    },
    "partition": {
        "iid": ("uniform", "random", "homo", "homogeneous"),
        "dirichlet": ("dir", "lda", "noniid_labeldir", "label_dirichlet"),
        "dirichlet or shards or pathological": ("non_iid", "noniid", "heterogeneous", "hetero", "label_skew"),
        "natural": ("natural_id", "by_user", "user", "leaf"),
    },
    "optimizer": {"sgd with training.optimizer.momentum=0.9": ("momentum", "sgdm", "sgd_momentum")},
    "rate schedule": {"cosine": ("cosine_annealing", "cosine_annealing_lr", "coslr")},
    "memory policy": {
        "reservoir": ("reservoir_sampling", "reservoir_buffer", "reservoir_sampling_buffer"),
        "class_balanced": ("balanced", "class_balanced_buffer", "balanced_reservoir"),
        "sliding_window": ("fifo", "recent"),
    },
    "sampler": {"uniform": ("random", "random_sampler"), "by_size": ("weighted", "size")},
    "objective": {
        "classification": ("cross_entropy", "ce", "cross_entropy_loss"),
        "regression": ("mse", "mse_loss", "l2"),
        "multi_label": ("bce", "bce_with_logits", "multilabel"),
        "next_token": ("causal_lm", "language_modeling", "lm"),
    },
    "callback": {"wandb": ("weights_and_biases", "wandb_logger"), "early_stopping": ("early_stop", "patience")},
}
"""Names of components by kind, each with its names elsewhere."""

COMMANDS: Mapping[str, tuple[str, ...]] = {
    "run": ("train", "fit", "start", "simulate", "launch", "simulation"),
    "sweep": ("grid", "multirun", "tune", "search", "hparams"),
    "check": ("validate", "dry_run", "dryrun", "estimate", "verify"),
    "evaluate": ("test", "eval", "predict"),
    "report": ("compare", "plot", "results", "summary", "tables"),
    "live": ("dashboard", "ui", "watch", "tensorboard", "monitor"),
    "list": ("ls", "methods", "datasets", "models"),
    "configs": ("config", "examples", "presets", "templates"),
    "new": ("init", "create", "copy", "scaffold"),
}
"""Commands, each with its names elsewhere."""

PARAMETERS: Mapping[str, tuple[str, ...]] = {
    "out": ("output_dir", "out_dir", "save_dir", "run_dir", "default_root_dir"),
    "local": ("debug", "local_mode"),
    "progress": ("verbose", "progress_bar", "enable_progress_bar", "show_progress"),
    "resume": ("resume_from_checkpoint",),
    "jobs": ("n_jobs", "num_workers", "max_workers"),
}
"""Parameters of Python's functions, each with its names elsewhere."""
