"""PyTorch's DistributedDataParallel on CPUs: every process has all parameters, and gradients are averaged over the
processes (gloo). MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE say which process this is; start it once for each.
"""

import argparse

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def read_flags():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--batch_size", type=int, default=32, help="of each process")
    parser.add_argument("--hidden", type=int, default=64, help="units, each of 43 parameters")
    parser.add_argument("--save", help="file for the trained parameters, which rank 0 writes")
    return parser.parse_args()


def make_dataset():
    """3,200 points of ten classes, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    centers = torch.randn(10, 32, generator=generator)
    labels = torch.randint(10, (3200,), generator=generator)
    return TensorDataset(centers[labels] + torch.randn(3200, 32, generator=generator), labels)


def main():
    flags = read_flags()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # DistributedDataParallel gives everybody rank 0's parameters
    model = DistributedDataParallel(nn.Sequential(nn.Linear(32, flags.hidden), nn.ReLU(), nn.Linear(flags.hidden, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loss_function = nn.CrossEntropyLoss()
    dataset = make_dataset()
    sampler = DistributedSampler(dataset, shuffle=True)
    loader = DataLoader(dataset, batch_size=flags.batch_size, sampler=sampler)
    for epoch in range(flags.epochs):
        sampler.set_epoch(epoch)
        for step, (features, labels) in enumerate(loader):
            optimizer.zero_grad()
            loss = loss_function(model(features), labels)
            loss.backward()
            optimizer.step()
            if step % 5 == 0:
                print(f"epoch {epoch} step {step} loss {loss.item():.4f}", flush=True)
    if flags.save and rank == 0:
        torch.save(model.module.state_dict(), flags.save)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
