"""What torch.distributed offers over "nccl": each case is run by all ranks of the world, one after the other.

`python -m tests.integration.hetccl.torch_calls FOLDER` is a rank; it writes {case: traceback or ""} to FOLDER.
"""

import json
import os
import sys
import threading
import traceback
import urllib.error
import urllib.request
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import Tensor

from hetccl.observe.report import bearer
from tests.integration.hetccl.torch_ranks import POOLS, TOKEN

CASES: dict[str, Callable[[int, int], None]] = {}
FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


def case(function: Callable[[int, int], None]) -> Callable[[int, int], None]:
    CASES[function.__name__] = function
    return function


def same(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


def of(rank: int, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Small whole numbers that tell ranks and places apart; sums of them are exact in every dtype."""
    count = torch.Size(shape).numel()
    return ((torch.arange(count) % 5) + rank + 1).to(dtype).reshape(shape)


@case
def all_reduce_takes_every_op(rank: int, size: int) -> None:
    everybody = torch.stack([of(r, 7) for r in range(size)])
    expected = {
        dist.ReduceOp.SUM: everybody.sum(0),
        dist.ReduceOp.PRODUCT: everybody.prod(0),
        dist.ReduceOp.MIN: everybody.amin(0),
        dist.ReduceOp.MAX: everybody.amax(0),
        dist.ReduceOp.AVG: everybody.mean(0),
    }
    for op, result in expected.items():
        tensor = of(rank, 7)
        assert dist.all_reduce(tensor, op) is None
        same(tensor, result)
    bits = torch.tensor([0b1100, 0b1010, 0b0110])
    for op, number in ((dist.ReduceOp.BAND, 0), (dist.ReduceOp.BOR, 0b1110), (dist.ReduceOp.BXOR, 0)):
        tensor = bits[rank : rank + 1].clone()
        dist.all_reduce(tensor, op)
        assert tensor.item() == number


@case
def all_reduce_takes_every_dtype(rank: int, size: int) -> None:
    for dtype in (*FLOATS, *INTEGERS):
        tensor = of(rank, 3, 5, dtype=dtype)
        dist.all_reduce(tensor)
        same(tensor, sum(of(r, 3, 5, dtype=dtype) for r in range(size)))


@case
def an_average_of_integers_and_an_op_that_is_not_served_are_refused_before_anything_is_sent(
    rank: int, size: int
) -> None:
    premultiplied = dist._make_nccl_premul_sum(0.5)
    for op, dtype, named in (
        (premultiplied, torch.float32, "premul_sum"),
        (dist.ReduceOp.BAND, torch.float32, "BAND"),
        (dist.ReduceOp.AVG, torch.bool, "bool"),
    ):
        with pytest.raises((TypeError, ValueError), match=named):
            dist.all_reduce(torch.ones(2).to(dtype), op)
    dist.barrier()


@case
def complex_bool_and_empty_tensors_are_carried(rank: int, size: int) -> None:
    tensor = torch.complex(of(rank, 4), -of(rank, 4))
    dist.all_reduce(tensor)
    total = torch.stack([of(r, 4) for r in range(size)]).sum(0)
    same(tensor, torch.complex(total, -total))
    parts = [torch.empty(2, dtype=torch.complex64) for _ in range(size)]
    dist.all_gather(parts, torch.full((2,), complex(rank, 1)))
    assert [part[1].item() for part in parts] == [complex(r, 1) for r in range(size)]
    anybody, everybody = torch.tensor([rank == 1, False]), torch.tensor([True, rank != 1])
    dist.all_reduce(anybody)
    dist.all_reduce(everybody, dist.ReduceOp.MIN)
    assert anybody.tolist() == everybody.tolist() == [True, False]
    nothing = torch.empty(0, 3)
    dist.all_reduce(nothing)
    dist.broadcast(nothing, 0)
    dist.all_gather([torch.empty(0) for _ in range(size)], torch.empty(0))
    dist.all_to_all_single(torch.empty(0), torch.empty(0))


@case
def tensors_that_are_not_contiguous_keep_their_layout(rank: int, size: int) -> None:
    whole = torch.zeros(6, 4)
    column = whole[:, 1]
    column.copy_(of(rank, 6))
    dist.all_reduce(column)
    same(whole[:, 1], torch.stack([of(r, 6) for r in range(size)]).sum(0))
    assert not whole[:, [0, 2, 3]].any()
    turned = of(rank, 3, 4).t()
    dist.broadcast(turned, 2)
    same(turned, of(2, 3, 4).t())
    assert turned.stride() == (1, 4)
    strided = [torch.zeros(2, 4)[:, ::2] for _ in range(size)]
    dist.all_gather(strided, of(rank, 2, 2).t().contiguous().t())
    for r, part in enumerate(strided):
        same(part, of(r, 2, 2))


@case
def a_parameter_that_wants_gradients_is_broadcast_without_a_trace(rank: int, size: int) -> None:
    weight = torch.nn.Parameter(of(rank, 4))
    version = weight._version
    dist.broadcast(weight.data, 0)
    dist.all_reduce(weight.detach())
    same(weight.detach(), of(0, 4) * size)
    assert weight._version == version
    assert weight.grad_fn is None


@case
def broadcast_and_reduce_have_any_root(rank: int, size: int) -> None:
    for root in range(size):
        tensor = of(rank, 9)
        dist.broadcast(tensor, root)
        same(tensor, of(root, 9))
        tensor = of(rank, 9)
        dist.reduce(tensor, root)
        same(tensor, torch.stack([of(r, 9) for r in range(size)]).sum(0) if rank == root else of(rank, 9))


@case
def all_gather_takes_lists_equal_and_uneven(rank: int, size: int) -> None:
    parts = [torch.empty(2, 3) for _ in range(size)]
    dist.all_gather(parts, of(rank, 2, 3))
    for r, part in enumerate(parts):
        same(part, of(r, 2, 3))
    parts = [torch.empty(r * 2) for r in range(size)]
    dist.all_gather(parts, of(rank, rank * 2))
    for r, part in enumerate(parts):
        same(part, of(r, r * 2))


@case
def all_gather_into_tensor_concatenates_and_stacks(rank: int, size: int) -> None:
    output = torch.empty(size * 2, 3)
    dist.all_gather_into_tensor(output, of(rank, 2, 3))
    same(output, torch.cat([of(r, 2, 3) for r in range(size)]))
    output = torch.empty(size, 4)
    dist.all_gather_into_tensor(output, of(rank, 4))
    same(output, torch.stack([of(r, 4) for r in range(size)]))


@case
def reduce_scatter_takes_lists_equal_and_uneven(rank: int, size: int) -> None:
    output = torch.empty(4)
    dist.reduce_scatter(output, [of(rank + r, 4) for r in range(size)])
    same(output, torch.stack([of(r + rank, 4) for r in range(size)]).sum(0))
    output = torch.empty(rank + 1)
    dist.reduce_scatter(output, [of(rank + r, r + 1) for r in range(size)], dist.ReduceOp.MAX)
    same(output, of(size - 1 + rank, rank + 1))


@case
def reduce_scatter_tensor_shares_equally(rank: int, size: int) -> None:
    output = torch.empty(2, 2)
    dist.reduce_scatter_tensor(output, of(rank, 2 * size, 2), dist.ReduceOp.AVG)
    mean = torch.stack([of(r, 2 * size, 2) for r in range(size)]).mean(0)
    same(output, mean.chunk(size)[rank])


@case
def gather_and_scatter_have_any_root(rank: int, size: int) -> None:
    for root in range(size):
        parts = [torch.empty(2, 2) for _ in range(size)] if rank == root else None
        dist.gather(of(rank, 2, 2), parts, root)
        for r, part in enumerate(parts or []):
            same(part, of(r, 2, 2))
        output = torch.empty(3)
        dist.scatter(output, [of(r + root, 3) for r in range(size)] if rank == root else None, root)
        same(output, of(rank + root, 3))


@case
def all_to_all_takes_lists_of_any_sizes(rank: int, size: int) -> None:
    sent = [of(rank * 10 + r, rank + r) for r in range(size)]
    received = [torch.empty(r + rank) for r in range(size)]
    dist.all_to_all(received, sent)
    for r, part in enumerate(received):
        same(part, of(r * 10 + rank, r + rank))


@case
def all_to_all_single_takes_equal_and_uneven_splits(rank: int, size: int) -> None:
    output = torch.empty(size * 2)
    dist.all_to_all_single(output, torch.full((size * 2,), float(rank)))
    same(output, torch.arange(size).repeat_interleave(2).float())
    sent, received = [rank + r for r in range(size)], [r + rank for r in range(size)]
    rows = torch.full((sum(sent), 3), float(rank))
    output = torch.empty(sum(received), 3)
    dist.all_to_all_single(output, rows, received, sent)
    same(output, torch.arange(size).repeat_interleave(torch.tensor(received)).float()[:, None].expand(-1, 3))
    # What MoE does: rank 0 alone has something to say.
    sent = [2] * size if rank == 0 else [0] * size
    received = [2 if r == 0 else 0 for r in range(size)]
    output = torch.empty(2)
    dist.all_to_all_single(output, torch.ones(sum(sent)), received, sent)
    same(output, torch.ones(2))


@case
def splits_that_do_not_fit_are_refused_before_anything_is_sent(rank: int, size: int) -> None:
    for output, input, received, sent in (
        (torch.empty(3), torch.empty(3), [1, 1, 2], [1, 1, 1]),
        (torch.empty(3), torch.empty(4), None, None),
    ):
        with pytest.raises(ValueError, match=r"hetccl: the (in|out)put .*of all_to_all_single"):
            dist.all_to_all_single(output, input, received, sent)
    with pytest.raises(ValueError, match=f"one list of {size} tensors"):
        dist.all_gather([torch.empty(2)] * (size - 1), torch.empty(2))
    dist.barrier()


@case
def coalesced_calls_serve_all_their_tensors(rank: int, size: int) -> None:
    tensors = [of(rank, count) for count in (1, 4, 9)]
    dist.all_reduce_coalesced(tensors)
    for count, tensor in zip((1, 4, 9), tensors, strict=True):
        same(tensor, torch.stack([of(r, count) for r in range(size)]).sum(0))
    lists = [[torch.empty(2), torch.empty(5)] for _ in range(size)]
    dist.all_gather_coalesced(lists, [of(rank, 2), of(rank, 5)])
    for r, (two, five) in enumerate(lists):
        same(two, of(r, 2))
        same(five, of(r, 5))


@case
def the_coalescing_manager_collects_calls(rank: int, size: int) -> None:
    cpu = torch.device("cpu")
    first, second = of(rank, 4), of(rank, 6)
    with dist._coalescing_manager(device=cpu):
        dist.all_reduce(first)
        dist.all_reduce(second)
    same(first, torch.stack([of(r, 4) for r in range(size)]).sum(0))
    same(second, torch.stack([of(r, 6) for r in range(size)]).sum(0))
    outputs = [torch.empty(size * 2), torch.empty(size * 3)]
    with dist._coalescing_manager(device=cpu, async_ops=True) as together:
        dist.all_gather_into_tensor(outputs[0], of(rank, 2))
        dist.all_gather_into_tensor(outputs[1], of(rank, 3))
    together.wait()
    same(outputs[1], torch.cat([of(r, 3) for r in range(size)]))
    pieces = [torch.empty(2), torch.empty(3)]
    with dist._coalescing_manager(device=cpu):
        dist.reduce_scatter_tensor(pieces[0], of(rank, size * 2))
        dist.reduce_scatter_tensor(pieces[1], of(rank, size * 3))
    total = torch.stack([of(r, size * 3) for r in range(size)]).sum(0)
    same(pieces[1], total.chunk(size)[rank])


@case
def sends_and_receives_keep_the_order_of_each_pair(rank: int, size: int) -> None:
    after, before = (rank + 1) % size, (rank - 1) % size
    if rank == 0:
        dist.send(of(0, 5), after)
        got = torch.empty(5)
        assert dist.recv(got, before) == before
    else:
        got = torch.empty(5)
        dist.recv(got, before)
        dist.send(of(rank, 5), after)
    same(got, of(before, 5))
    numbers = [torch.empty(3) for _ in range(4)]
    works = [dist.irecv(number, before) for number in numbers]
    works += [dist.isend(of(rank * 10 + turn, 3), after) for turn in range(4)]
    for work in works:
        work.wait()
    for turn, number in enumerate(numbers):
        same(number, of(before * 10 + turn, 3))


@case
def batched_sends_and_receives_need_no_order(rank: int, size: int) -> None:
    others = [r for r in range(size) if r != rank]
    inboxes = {r: torch.empty(200_000) for r in others}
    operations = [dist.P2POp(dist.isend, torch.full((200_000,), float(rank * 10 + r)), r) for r in others]
    operations += [dist.P2POp(dist.irecv, inboxes[r], r) for r in reversed(others)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    for r, inbox in inboxes.items():
        same(inbox, torch.full((200_000,), float(r * 10 + rank)))


@case
def a_receive_from_anybody_is_refused(rank: int, size: int) -> None:
    with pytest.raises(NotImplementedError, match="name the rank"):
        dist.recv(torch.empty(1))


@case
def asynchronous_calls_return_at_once_and_end_in_order(rank: int, size: int) -> None:
    tensors = [of(rank + turn, 1000) for turn in range(20)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    works[-1].wait()
    assert all(work.is_completed() for work in works)
    for turn, tensor in enumerate(tensors):
        same(tensor, torch.stack([of(r + turn, 1000) for r in range(size)]).sum(0))
    tensor = of(rank, 4)
    work = dist.all_reduce(tensor, async_op=True)
    dist.barrier()  # A synchronous call waits for those before it.
    assert work.is_completed()
    assert work.is_success()
    same(work.result()[0], torch.stack([of(r, 4) for r in range(size)]).sum(0))


@case
def futures_hold_the_result_and_their_callbacks_may_call_again(rank: int, size: int) -> None:
    total = torch.stack([of(r, 4) for r in range(size)]).sum(0)
    future = dist.all_reduce(of(rank, 4), async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    same(doubled.wait(), total * 2)

    def again(done: torch.futures.Future) -> Tensor:
        tensor = done.value()[0]
        dist.all_reduce(tensor, async_op=True).wait()
        return tensor

    same(dist.all_reduce(of(rank, 4), async_op=True).get_future().then(again).wait(), total * size)
    same(dist.all_reduce(of(rank, 4), async_op=True).get_future().wait()[0], total)


@case
def barriers_wait_for_everybody(rank: int, size: int) -> None:
    store = dist.PrefixStore("barrier", dist.distributed_c10d._get_default_store())
    for turn in range(3):
        store.add(f"turn{turn}", 1)
        dist.barrier()
        assert store.add(f"turn{turn}", 0) == size
    dist.barrier(async_op=True).wait()


@case
def objects_travel(rank: int, size: int) -> None:
    everybody: list[object] = [None] * size
    dist.all_gather_object(everybody, {"rank": rank, "text": "x" * rank * 100})
    assert [each["rank"] for each in everybody] == list(range(size))  # type: ignore[index]
    shared: list[object] = [("a", rank), rank]
    dist.broadcast_object_list(shared, src=2)
    assert shared == [("a", 2), 2]
    gathered: list[object] | None = [None] * size if rank == 1 else None
    dist.gather_object("of " + str(rank), gathered, dst=1)
    assert gathered == ([f"of {r}" for r in range(size)] if rank == 1 else None)
    received: list[object] = [None]
    dist.scatter_object_list(received, [{r} for r in range(size)] if rank == 0 else None, src=0)
    assert received == [{rank}]
    if rank == 0:
        dist.send_object_list(["to two", 2], dst=2)
    if rank == 2:
        box: list[object] = [None, None]
        dist.recv_object_list(box, src=0)
        assert box == ["to two", 2]


@case
def groups_of_any_members_work_beside_the_world(rank: int, size: int) -> None:
    made = [(ranks, dist.new_group(ranks)) for ranks in ([0, 1], [0, 2], [1])]
    groups = [(ranks, group) for ranks, group in made if rank in ranks]
    for ranks, group in groups:
        assert dist.get_process_group_ranks(group) == ranks
        tensor = of(rank, 6)
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.stack([of(r, 6) for r in ranks]).sum(0))
        dist.broadcast(tensor.fill_(rank), ranks[-1], group=group)
        assert tensor[0] == ranks[-1]
    works = [dist.all_reduce(of(rank, 50_000), async_op=True)]
    works += [dist.all_reduce(of(rank, 50_000), group=group, async_op=True) for _, group in groups]
    for work in reversed(works):
        work.wait()
    for _, group in groups:
        dist.destroy_process_group(group)
    dist.barrier()


@case
def gloo_stays_available_beside_it(rank: int, size: int) -> None:
    group = dist.new_group(backend="gloo")
    tensor = of(rank, 3)
    dist.all_reduce(tensor, group=group)
    same(tensor, torch.stack([of(r, 3) for r in range(size)]).sum(0))
    assert dist.get_backend(group) == "gloo"
    dist.destroy_process_group(group)


@case
def it_answers_as_nccl(rank: int, size: int) -> None:
    world = dist.group.WORLD
    assert dist.get_backend() == "nccl"
    assert dist.is_nccl_available()
    assert isinstance(world, dist.ProcessGroupNCCL)
    assert (dist.get_rank(), dist.get_world_size()) == (rank, size)
    assert not torch.cuda.is_available()
    assert torch.cuda.nccl.version() >= (2, 10)
    options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
    options.config.min_ctas = 4
    group = dist.new_group([0, 1, 2], timeout=timedelta(seconds=30), backend="nccl", pg_options=options)
    dist.barrier(group)
    dist.destroy_process_group(group)


@case
def functional_collectives_reach_it(rank: int, size: int) -> None:
    import torch.distributed._functional_collectives as functional

    world = list(range(size))
    total = torch.stack([of(r, size * 2) for r in range(size)]).sum(0)
    same(functional.all_reduce(of(rank, size * 2), "sum", world) + 0, total)
    same(functional.all_gather_tensor(of(rank, 2), 0, world) + 0, torch.cat([of(r, 2) for r in range(size)]))
    same(functional.reduce_scatter_tensor(of(rank, size * 2), "sum", 0, world) + 0, total.chunk(size)[rank])
    mine = torch.full((size,), float(rank))
    same(functional.all_to_all_single(mine, None, None, world) + 0, torch.arange(size).float())


@case
def ddp_trains_from_several_threads_at_a_time(rank: int, size: int) -> None:
    group = dist.new_group(list(range(size)))
    failures: list[BaseException] = []

    def train(members: object, seed: int) -> None:
        try:
            torch.manual_seed(seed)
            model = torch.nn.Linear(8, 8)
            wrapped = torch.nn.parallel.DistributedDataParallel(model, process_group=members)
            wrapped(of(rank, 4, 8)).sum().backward()
            grads = torch.stack([of(r, 4, 8).sum(0) for r in range(size)]).mean(0).expand(8, 8)
            torch.testing.assert_close(model.weight.grad, grads)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=train, args=pair) for pair in ((None, 1), (group, 2))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    dist.destroy_process_group(group)


class Squares(torch.utils.data.Dataset):
    """A dataset whose items are made in a worker process, which says so."""

    def __init__(self, parent: int) -> None:
        self.parent = parent

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> tuple[float, bool]:
        return float(index**2), os.getpid() != self.parent


@case
def forked_workers_of_a_data_loader_live_beside_the_group(rank: int, size: int) -> None:
    loader = torch.utils.data.DataLoader(
        Squares(os.getpid()), batch_size=2, num_workers=2, multiprocessing_context="fork", persistent_workers=True
    )
    for _ in range(2):
        seen = torch.zeros(1)
        for numbers, elsewhere in loader:
            assert elsewhere.all()
            seen += numbers.sum()
            dist.all_reduce(numbers)
        dist.all_reduce(seen)
        assert seen.item() == size * sum(index**2 for index in range(12))


@case
def a_collective_in_a_forked_child_is_refused_and_harms_nobody(rank: int, size: int) -> None:
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        said = []
        to = (rank + 1) % size
        for call in (dist.all_reduce, lambda one: dist.all_reduce(one, async_op=True), lambda one: dist.send(one, to)):
            try:
                call(torch.ones(1))
                said.append("taken")
            except BaseException as error:
                said.append(str(error))
        os.write(writer, json.dumps(said).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        said = json.load(pipe)
    os.waitpid(child, 0)
    assert len(said) == 3
    assert all("in a forked child" in text for text in said), said
    dist.barrier()


@case
def rank_0_reports_to_those_who_know_the_token(rank: int, size: int) -> None:
    if rank == 0:
        url = f"http://127.0.0.1:{os.environ['HETCCL_REPORT_PORT']}/v1/report"
        request = urllib.request.Request(url, headers={"Authorization": f"Bearer {bearer(TOKEN)}"})
        with urllib.request.urlopen(request, timeout=10) as answer:
            document = json.load(answer)
        assert document["job"] == "tests/job/0"
        assert document["world_size"] == size
        assert [member["pool"] for member in document["ranks"]] == list(POOLS)
        assert all(member["simulated"] and member["device"] == "cpu" for member in document["ranks"])
        assert {member["torch"] for member in document["ranks"]} == {torch.__version__}
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(url, timeout=10)
    dist.barrier()


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("nccl", timeout=timedelta(seconds=20))
    rank, size = dist.get_rank(), dist.get_world_size()
    outcome: dict[str, str] = {}
    for name, function in CASES.items():
        try:
            function(rank, size)
        except Exception:
            outcome[name] = traceback.format_exc()
            break  # The ranks are out of step.
        outcome[name] = ""
    Path(sys.argv[1], f"{rank}.json").write_text(json.dumps(outcome))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
