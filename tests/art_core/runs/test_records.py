"""The record store: exact, whole or absent, small, and loud when the disk isn't there."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import JsonValue

from art_core.errors import RunDamagedError, StorageError, UnknownCompletionError
from art_core.runs.records import Record, RecordStore
from art_core.trajectories import Completion, CompletionStatus, Message, SamplingParams

FLOAT32_THIRD = -0.3333333432674408


def make_completion(completion_id: str, **fields: object) -> Completion:
    sampled = [5, 2**32 - 1, 0]
    defaults: dict[str, object] = {
        "request_id": completion_id,
        "rollout_id": "rollout",
        "policy": "bot",
        "policy_version": 3,
        "messages": [{"role": "user", "content": "Grüße \N{SNOWMAN}"}],
        "tools": [{"type": "function", "function": {"name": "look"}}],
        "sampling": SamplingParams(seed=-7, stop=("END",), logit_bias={4: -1.5}, top_k=3),
        "response": {"role": "assistant", "content": "ok"},
        "prompt_token_ids": [1, 2, 3],
        "completion_token_ids": sampled,
        "logprobs": [FLOAT32_THIRD, -1 / 3, -1e-300],
        "trainable": [True, False, True],
        "finish_reason": "stop",
        "status": CompletionStatus.COMPLETED,
        "tags": {"node": "plan"},
        "parse_errors": ["tool call isn't JSON"],
        "started_at": 1700000000.123456,
        "finished_at": 1700000001.0,
    }
    return Completion.model_validate({"id": completion_id, **defaults, **fields})


def continuation(parent: Completion, completion_id: str, extra: list[int]) -> Completion:
    return make_completion(
        completion_id,
        messages=[*parent.messages, parent.response, {"role": "user", "content": completion_id}],
        tools=parent.tools,
        prompt_token_ids=parent.prompt_token_ids + parent.completion_token_ids + extra,
    )


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    return tmp_path / "records.sqlite"


@pytest.fixture
def store(store_path: Path) -> Iterator[RecordStore]:
    store = RecordStore(store_path)
    yield store
    store.close()


def test_a_completion_comes_back_as_it_was(store: RecordStore) -> None:
    completion = make_completion("c1")
    store.put([completion])
    assert store.by_ids(["c1"]) == [completion]


def test_records_outlive_the_process_that_wrote_them(store_path: Path) -> None:
    first = RecordStore(store_path)
    first.put([make_completion("c1")])
    first.close()
    second = RecordStore(store_path)
    assert second.by_ids(["c1"]) == [make_completion("c1")]
    second.close()


def test_by_ids_keeps_the_order_asked_for(store: RecordStore) -> None:
    store.put([make_completion(f"c{number}") for number in range(5)])
    assert [c.id for c in store.by_ids(["c3", "c0", "c3"])] == ["c3", "c0", "c3"]


def test_unknown_ids_are_named(store: RecordStore) -> None:
    store.put([make_completion("c1")])
    with pytest.raises(UnknownCompletionError, match=r"no record of completion x1, x2, x3 and 1"):
        store.by_ids(["x1", "c1", "x2", "x3", "x4"])


def test_by_rollout_is_in_order_of_writing(store: RecordStore) -> None:
    store.put([make_completion("b", rollout_id="one"), make_completion("x", rollout_id="two")])
    store.put([make_completion("a", rollout_id="one")])
    assert [c.id for c in store.by_rollout("one")] == ["b", "a"]
    assert store.by_rollout("nobody") == []


def test_quarantined_completions_are_counted_and_belong_to_no_rollout(store: RecordStore) -> None:
    store.put([make_completion("q", rollout_id=None), make_completion("c")])
    assert store.quarantined() == 1
    assert len(store) == 2
    assert [c.id for c in store] == ["q", "c"]


def test_abandoning_changes_the_status_alone(store: RecordStore) -> None:
    completion = make_completion("c1")
    store.put([completion, make_completion("c2")])
    store.abandon(["c1"]).result()
    (abandoned, other) = store.by_ids(["c1", "c2"])
    assert abandoned == completion.model_copy(update={"status": CompletionStatus.ABANDONED})
    assert other.status is CompletionStatus.COMPLETED


def test_a_conversation_is_stored_once(store: RecordStore, store_path: Path) -> None:
    """200 turns of 200 tokens: 80 KB of token ids when stored once, 8 MB when every prompt is."""
    last = make_completion("turn-0", prompt_token_ids=list(range(200)))
    store.submit([Record(last)]).result()
    for turn in range(1, 200):
        nxt = continuation(last, f"turn-{turn}", list(range(200)))
        store.submit([Record(nxt, last)]).result()
        last = nxt
    assert store.by_ids([last.id]) == [last]
    assert store.by_rollout("rollout")[-1] == last
    assert list(store)[-1] == last
    store.close()
    assert store_path.stat().st_size < 500_000


def test_a_branch_with_other_tools_keeps_them(store: RecordStore) -> None:
    parent = make_completion("parent")
    branch = continuation(parent, "branch", [9]).model_copy(update={"tools": None})
    store.submit([Record(parent), Record(branch, parent)]).result()
    assert store.by_ids(["branch"]) == [branch]


@pytest.mark.parametrize("answer", [1, 1.0, True, "1"])
def test_messages_that_a_client_changed_are_kept_as_it_sent_them(
    store: RecordStore, answer: JsonValue
) -> None:
    parent = make_completion("parent", response={"role": "assistant", "content": 1})
    child = continuation(parent, "child", [9])
    child.messages[1] = {"role": "assistant", "content": answer}
    store.submit([Record(parent), Record(child, parent)]).result()
    assert store.by_ids(["child"])[0].model_dump_json() == child.model_dump_json()


@pytest.mark.parametrize(
    ("changed", "complaint"),
    [
        ({"prompt_token_ids": [1, 2, 4]}, "prompt of a completion doesn't begin"),
        ({"rollout_id": "other"}, "differ in rollout_id"),
    ],
)
def test_what_is_no_continuation_is_refused(
    store: RecordStore, changed: dict[str, object], complaint: str
) -> None:
    parent = make_completion("parent")
    child = continuation(parent, "child", [9]).model_copy(update=changed)
    with pytest.raises(ValueError, match=complaint):
        store.submit([Record(child, parent)])
    assert len(store) == 0


def test_a_batch_is_written_whole_or_not_at_all(store: RecordStore) -> None:
    store.put([make_completion("taken")])
    with pytest.raises(StorageError, match="UNIQUE"):
        store.put([make_completion("new"), make_completion("taken")])
    assert len(store) == 1


def test_a_write_that_fails_does_not_fail_those_beside_it(store: RecordStore) -> None:
    store.put([make_completion("taken")])
    records = [make_completion("taken"), *(make_completion(f"c{number}") for number in range(9))]
    futures = [store.submit([Record(each)]) for each in records]
    errors = [future.exception(timeout=10) for future in futures]
    assert isinstance(errors[0], StorageError)
    assert errors[1:] == [None] * 9
    assert len(store) == 10


def test_many_threads_write_and_read(store: RecordStore) -> None:
    def write(thread: int) -> None:
        for number in range(40):
            store.put([make_completion(f"{thread}-{number}", rollout_id=f"r{thread}")])
            assert len(store.by_rollout(f"r{thread}")) == number + 1

    threads = [threading.Thread(target=write, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(store) == 320


def test_closing_writes_what_waits(store_path: Path) -> None:
    store = RecordStore(store_path)
    futures = [store.submit([Record(make_completion(f"c{number}"))]) for number in range(300)]
    store.close()
    store.close()
    assert all(future.done() for future in futures)
    with pytest.raises(StorageError, match="is closed"):
        store.submit([])
    reopened = RecordStore(store_path)
    assert len(reopened) == 300
    reopened.close()


def test_another_format_is_refused(store_path: Path) -> None:
    RecordStore(store_path).close()
    connection = sqlite3.connect(store_path)
    connection.execute("PRAGMA user_version = 99")
    connection.close()
    with pytest.raises(RunDamagedError, match="has format 99, this version of ART Core reads 1"):
        RecordStore(store_path)


def test_a_file_that_is_no_database_is_refused(store_path: Path) -> None:
    store_path.write_bytes(b"not a database, and longer than a header" * 10)
    with pytest.raises(RunDamagedError, match="isn't a record store"):
        RecordStore(store_path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"can't be opened.*run directory that is writable"):
        RecordStore(tmp_path / "nowhere" / "records.sqlite")


def run_script(code: str, *args: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", code, *map(str, args)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


DISK_FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_records import make_completion
from art_core.errors import StorageError
from art_core.runs.records import RecordStore

store = RecordStore(Path(sys.argv[1]))
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, resource.RLIM_INFINITY))
written = 0
try:
    while True:
        store.put([make_completion(f"c{written}", prompt_token_ids=[7] * 1000)])
        written += 1
except StorageError as error:
    assert "can't be written" in str(error) and "Free disk space" in str(error), error
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
store.put([make_completion("after")])
print(written)
store.close()
"""


def test_a_full_disk_is_an_error_and_loses_nothing_acknowledged(store_path: Path) -> None:
    process = run_script(DISK_FULL, store_path, Path(__file__).parent)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    store = RecordStore(store_path)
    assert int(output) > 5
    assert [c.id for c in store] == [f"c{number}" for number in range(int(output))] + ["after"]
    store.close()


WRITE_FOREVER = """
import itertools, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from test_records import make_completion
from art_core.runs.records import Record, RecordStore

store = RecordStore(Path(sys.argv[1]))
for number in itertools.count():
    pair = [make_completion(f"{number}-{half}", prompt_token_ids=[7] * 500) for half in (0, 1)]
    store.submit([Record(each) for each in pair]).result()
    print(number, flush=True)
"""


@pytest.mark.parametrize("seed", range(3))
def test_a_killed_writer_leaves_what_it_acknowledged_whole(store_path: Path, seed: int) -> None:
    process = run_script(WRITE_FOREVER, store_path, Path(__file__).parent)
    assert process.stdout is not None
    acknowledged = -1
    for _ in range(random.Random(seed).randrange(20, 200)):
        acknowledged = int(process.stdout.readline())
    os.kill(process.pid, signal.SIGKILL)
    acknowledged = max([acknowledged, *map(int, process.stdout.read().split())])
    process.wait(timeout=10)
    process.stdout.close()

    store = RecordStore(store_path)
    ids = [c.id for c in store]
    pairs = len(ids) // 2
    assert ids == [f"{number}-{half}" for number in range(pairs) for half in (0, 1)]
    assert pairs > acknowledged
    assert store.by_ids(ids[-1:])[0].prompt_token_ids == [7] * 500
    store.close()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)
messages = st.dictionaries(st.text(), json_values, max_size=4)
token_ids = st.integers(0, 2**32 - 1)
finite = st.floats(allow_nan=False, allow_infinity=False)
tokens = st.lists(st.tuples(token_ids, finite, st.booleans()), max_size=12)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    conversation=st.lists(st.lists(messages, max_size=2), min_size=1, max_size=4),
    response=messages,
    sampled=tokens,
    observed=st.lists(token_ids, max_size=4),
    tags=st.dictionaries(st.text(), st.text(), max_size=2),
)
def test_any_completion_survives_alone_and_as_a_continuation(
    tmp_path_factory: pytest.TempPathFactory,
    conversation: list[list[Message]],
    response: Message,
    sampled: list[tuple[int, float, bool]],
    observed: list[int],
    tags: dict[str, str],
) -> None:
    store = RecordStore(tmp_path_factory.mktemp("records") / "records.sqlite")
    parent: Completion | None = None
    written: list[Completion] = []
    for turn, new in enumerate(conversation):
        before = [] if parent is None else [*parent.messages, parent.response]
        tokens_before = (
            [] if parent is None else parent.prompt_token_ids + parent.completion_token_ids
        )
        completion = make_completion(
            f"c{turn}",
            messages=[*before, *new],
            response=response,
            prompt_token_ids=tokens_before + observed,
            completion_token_ids=[token for token, _, _ in sampled],
            logprobs=[logprob for _, logprob, _ in sampled],
            trainable=[trained for _, _, trained in sampled],
            tags=tags,
        )
        store.submit([Record(completion, parent)]).result()
        written.append(completion)
        parent = completion
    assert store.by_rollout("rollout") == written
    assert store.by_ids([written[-1].id]) == written[-1:]
    store.close()
