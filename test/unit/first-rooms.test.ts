import { expect, test } from "bun:test";
import type { ClaimedRow } from "../../src/domain/engine/runs/execution/claim.ts";
import { FirstRooms, type WritingReport } from "../../src/domain/engine/runs/logs/lines-to-store.ts";

const claimed = (run_id: string, execution_seq = 1) =>
  ({
    ...{ run_id, execution_seq },
    environment_id: "env_1",
    function_id: "f",
    function_version: 2,
  }) as ClaimedRow;
const report = (runId: string, executionSeq = 1, offset = 0, environmentId = "env_1") =>
  ({
    ...{ environmentId, runId, executionSeq },
    logs: { offset, total: offset + 1, seen: 0, lines: [] },
  }) as unknown as WritingReport;

test("a run that this node handed out first has all room for its first lines, and for no others", () => {
  const rooms = new FirstRooms();
  rooms.claimed([claimed("run_1"), claimed("run_2", 2)]);
  const room = { functionId: "f", functionVersion: 2, attemptLines: 0, runBytes: 0 };
  expect(rooms.of(report("run_1"))).toMatchObject(room);
  // Of these the store must be asked: later lines, a later execution, another environment's name for it, and unknown runs.
  expect(rooms.of(report("run_1", 1, 3))).toBeUndefined();
  expect(rooms.of(report("run_1", 2))).toBeUndefined();
  expect(rooms.of(report("run_1", 1, 0, "env_2"))).toBeUndefined();
  expect(rooms.of(report("run_2", 2))).toBeUndefined();
  expect(rooms.of(report("run_3"))).toBeUndefined();
  // Lines at another place may be stored by then.
  rooms.claimed([claimed("run_4")]);
  rooms.reported([
    { runId: "run_4", logs: null },
    { runId: "run_1", logs: {} },
  ] as never);
  expect(rooms.of(report("run_4"))).toMatchObject(room);
  expect(rooms.of(report("run_1"))).toBeUndefined();
  rooms.claimed([claimed("run_1")]);
  rooms.ended([{ runId: "run_1", environmentId: "env_1", ends: "completed" }]);
  expect(rooms.of(report("run_1"))).toBeUndefined();
});

test("it remembers the newest runs", () => {
  const rooms = new FirstRooms();
  for (let n = 0; n < 5_000; n++) rooms.claimed([claimed(`run_${n}`)]);
  expect(rooms.of(report("run_0"))).toBeUndefined();
  expect(rooms.of(report("run_4999"))).toBeDefined();
});
