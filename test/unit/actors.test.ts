import { expect, test } from "bun:test";
import type { IdleWorker } from "../../src/domain/engine/dispatch/idle-workers.ts";
import { assignToActors, nearest } from "../../src/domain/engine/dispatch/plan.ts";
import type { ClaimSlot } from "../../src/domain/engine/dispatch/queues.ts";
import { actorOf } from "../../src/domain/engine/emit/new-runs.ts";
import type { ClaimedRow } from "../../src/domain/engine/runs/execution/claim.ts";
import { silentLog } from "../../src/kit/log.ts";

const workers = (...ids: string[]) => ids.map((workerId) => ({ workerId }));

test("an actor's worker stays the same, and only a lost worker's actors move", () => {
  const all = workers("a", "b", "c", "d");
  const chosen = Array.from({ length: 1_000 }, (_, actor) => nearest(`actor-${actor}`, all)!.workerId);
  for (const worker of ["a", "b", "c", "d"])
    expect(chosen.filter((one) => one === worker).length).toBeGreaterThan(150);
  const without = workers("d", "a", "c");
  for (const [actor, before] of chosen.entries())
    if (before !== "b") expect(nearest(`actor-${actor}`, without)!.workerId).toBe(before);
  expect(nearest("x", [])).toBeUndefined();
});

test("an actor is a plain value of the event's data, by any spelling of its path", () => {
  const data = { user: { id: "u1" }, count: 3, list: [1], text: "\0", long: "x".repeat(500) };
  for (const path of ["user.id", "data.user.id", "event.data.user.id", "$.data.user.id"])
    expect(actorOf(path, data)).toBe("u1");
  expect(actorOf("count", data)).toBe("3");
  for (const path of ["user", "list", "text", "none.at.all", undefined])
    expect(actorOf(path, data)).toBeNull();
  expect(actorOf("long", data)?.length).toBe(200);
});

const ofName = { a: { workerId: "a" }, b: { workerId: "b" } } as unknown as Record<"a" | "b", IdleWorker>;
const slot = (workerId: "a" | "b", name: string): ClaimSlot => ({
  poll: undefined,
  worker: ofName[workerId],
  token: name,
  hash: name,
  leaseUntil: 7,
});
const row = (rank: number, actor_id: string | null) =>
  ({ lane: 1, rank, actor_id, run_id: `run_${rank}`, execution_seq: 1 }) as ClaimedRow;

test("a claim's rows are assigned by actor, each worker within its slots, and their executions say so", async () => {
  const moved: unknown[] = [];
  const runs = { handOver: async (list: readonly unknown[]) => void moved.push(...list) };
  const slots = [[slot("a", "1"), slot("a", "2"), slot("b", "3"), slot("b", "4")]];
  const actor = ["k1", "k2", "k3", "k4"].find((id) => nearest(id, workers("a", "b"))!.workerId === "b")!;
  const rows = [row(1, actor), row(2, actor), row(3, actor), row(4, null)];
  const slotOf = await assignToActors(rows, slots, { runs, log: silentLog });
  expect(rows.map((one) => slotOf(one).worker.workerId)).toEqual(["b", "b", "a", "a"]);
  expect(moved).toEqual([
    { runId: "run_1", executionSeq: 1, leaseHash: "1", to: { leaseHash: "3", workerId: "b", leaseUntil: 7 } },
    { runId: "run_2", executionSeq: 1, leaseHash: "2", to: { leaseHash: "4", workerId: "b", leaseUntil: 7 } },
    { runId: "run_3", executionSeq: 1, leaseHash: "3", to: { leaseHash: "1", workerId: "a", leaseUntil: 7 } },
    { runId: "run_4", executionSeq: 1, leaseHash: "4", to: { leaseHash: "2", workerId: "a", leaseUntil: 7 } },
  ]);
  expect(rows.map((one) => slotOf(one).token)).toEqual(["3", "4", "1", "2"]);
});

test("rows without actors, and rows that could not be handed over, stay where they were claimed", async () => {
  const slots = [[slot("a", "1"), slot("b", "2")]];
  const none = { runs: { handOver: () => Promise.reject(new Error("down")) }, log: silentLog };
  const slotOf = await assignToActors([row(1, null), row(2, null)], slots, none);
  expect(slotOf(row(2, null)).token).toBe("2");
  const actor = ["k1", "k2", "k3", "k4"].find((id) => nearest(id, workers("a", "b"))!.workerId === "b")!;
  const rows = [row(1, actor)];
  expect((await assignToActors(rows, slots, none))(rows[0]!).token).toBe("1");
});
