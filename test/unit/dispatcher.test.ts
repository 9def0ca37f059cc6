import { describe, expect, test } from "bun:test";
import { openDispatcher, openGiveBack } from "../../src/domain/engine/dispatch/dispatcher.ts";
import type { PollRequest } from "../../src/domain/engine/dispatch/queues.ts";
import type { ClaimedRow, ClaimInput } from "../../src/domain/engine/runs/execution/claim.ts";
import type { NewRun } from "../../src/domain/engine/runs/run.ts";
import { testClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";

const environmentId = "env_a";

interface Queued {
  runId: string;
  functionId: string;
  seq: number;
  queuedAt: number;
}

/** A queue in memory behind the dispatcher: what is released stands in line again. */
function house() {
  const clock = testClock();
  const queue: Queued[] = [];
  const claims: ClaimInput[] = [];
  const told: string[] = [];
  let claiming: Promise<void> = Promise.resolve();
  const time = { known: true };
  const dispatcher = openDispatcher({
    clock,
    ids: systemIds(clock),
    log: silentLog,
    leaseMs: 90_000,
    mayClaim: () => time.known,
    back: openGiveBack({
      log: silentLog,
      onQueued(lanes) {
        told.push(...lanes.map((lane) => lane.functionId));
        dispatcher.queued(lanes);
      },
      runs: {
        async release({ runId, executionSeq }) {
          const functionId = functionOf.get(runId) ?? "f";
          queue.push({ runId, functionId, seq: executionSeq, queuedAt: clock.now() });
        },
      },
    }),
    runs: {
      async claim(input) {
        claims.push(input);
        await claiming;
        const runs = input.demands.flatMap((lane, at) =>
          lane.slots.flatMap((_, rank) => {
            const place = queue.findIndex((run) => run.functionId === lane.functionId);
            const [run] = place < 0 ? [] : queue.splice(place, 1);
            return run ? [claimed(run, at + 1, rank + 1)] : [];
          }),
        );
        return { runs, limited: [] };
      },
      claimLimited: async () => ({ runs: [], lanes: [] }),
      lookAtLanes: async () => ({ limit: undefined, lanes: [] }),
      completedSteps: async () => new Map(),
      completedBytes: async () => [],
      handOver: async () => {},
    },
  });
  const functionOf = new Map<string, string>();
  const enqueue = (runId: string, functionId = "f") => {
    functionOf.set(runId, functionId);
    queue.push({ runId, functionId, seq: 0, queuedAt: clock.now() });
    dispatcher.queued([{ environmentId, functionId }]);
  };
  const ask = (workerId: string, more: Partial<PollRequest> = {}) =>
    dispatcher.poll({
      environmentId,
      workerId,
      functionIds: ["f"],
      available: 2,
      holdMs: 5_000,
      reports: false,
      signal: new AbortController().signal,
      ...more,
    });
  const reserve = (runId: string, functionId = "f") => {
    functionOf.set(runId, functionId);
    const place = dispatcher.reserve({ environmentId, functionId, laneId: null, actorId: null });
    return place && { place, deliver: () => place.deliver(newRun(runId, functionId), event) };
  };
  const holdClaims = () => {
    let release = () => {};
    claiming = new Promise((done) => {
      release = done;
    });
    return release;
  };
  return { clock, time, dispatcher, queue, claims, told, enqueue, ask, reserve, holdClaims };
}

const event = {
  position: 1,
  id: "evt_1",
  name: "e",
  version: 1,
  data: "{}",
  metadata: null,
  source: "api",
  at: 0,
  idempotency_key: null,
  entity_id: null,
};

const newRun = (id: string, functionId: string): NewRun => ({
  id,
  environmentId,
  functionId,
  functionVersion: 1,
  eventId: "evt_1",
  eventName: "e",
  mode: "pull",
  maxAttempts: 1,
  timeoutAt: null,
  actorId: null,
  laneId: null,
  lease: null,
});

const claimed = (run: Queued, lane: number, rank: number): ClaimedRow => ({
  lane,
  rank,
  run_id: run.runId,
  environment_id: environmentId,
  function_id: run.functionId,
  function_version: 1,
  execution_seq: run.seq + 1,
  attempt: 1,
  max_attempts: 1,
  log_seen: null,
  ending: null,
  step_count: 0,
  queued_at: run.queuedAt,
  actor_id: null,
  event_id: "evt_1",
  event_position: 1,
  event_name: "e",
  event_version: 1,
  event_data: "{}",
  event_metadata: null,
  event_source: "api",
  event_at: 0,
  event_idempotency_key: null,
  event_entity_id: null,
});

const settle = () => new Promise<void>((resolve) => setImmediate(resolve));
const idsOf = (jobs: readonly { runId: string }[]) => jobs.map((job) => job.runId);

describe("dispatcher", () => {
  test("a held poll is answered as soon as a run is queued, and never gets more than it has room for", async () => {
    const { ask, enqueue, queue } = house();
    const answer = ask("w", { available: 1 });
    await settle();
    enqueue("run_a");
    enqueue("run_b");
    expect(idsOf(await answer)).toEqual(["run_a"]);
    expect(idsOf(await ask("w", { available: 1, holdMs: 0 }))).toEqual(["run_b"]);
    expect(queue).toEqual([]);
  });

  test("who does not hold is answered at once, work or none", async () => {
    const { ask, enqueue, claims } = house();
    expect(await ask("w", { holdMs: 0 })).toEqual([]);
    expect(claims.length).toBe(1);
    enqueue("run_a");
    expect(idsOf(await ask("w", { holdMs: 0 }))).toEqual(["run_a"]);
  });

  test("who does not hold is answered by the second claim at the latest, though claiming goes on for others", async () => {
    const { ask, enqueue, holdClaims } = house();
    for (let n = 0; n < 500; n++) enqueue(`run_${n}`);
    const release = holdClaims();
    const greedy = ask("greedy", { available: 200, holdMs: 60_000 });
    const once = ask("once", { holdMs: 0 });
    release();
    expect((await greedy).length).toBeGreaterThan(0);
    expect((await once).length).toBeLessThanOrEqual(2);
  });

  test("a hold ends with nothing", async () => {
    const { ask, clock } = house();
    const answer = ask("w");
    await settle();
    await clock.advance(5_000);
    expect(await answer).toEqual([]);
  });

  test("a run created while a worker polls is leased to it; a reservation that is dropped frees the slot", async () => {
    const { ask, reserve, dispatcher } = house();
    const answer = ask("w", { available: 1 });
    await settle();
    const lost = reserve("run_lost")!;
    expect(reserve("run_full")).toBeUndefined();
    lost.place.drop();
    const kept = reserve("run_a")!;
    expect(kept.place.lease.workerId).toBe("w");
    kept.deliver();
    dispatcher.answerDelivered();
    expect(idsOf(await answer)).toEqual(["run_a"]);
  });

  test("older work goes first: no run is leased at creation while its queue may hold others", async () => {
    const { ask, enqueue, reserve, holdClaims } = house();
    const release = holdClaims();
    enqueue("run_old");
    const answer = ask("w");
    enqueue("run_older");
    expect(reserve("run_new")).toBeUndefined();
    release();
    expect(idsOf(await answer)).toContain("run_old");
  });

  test("a worker that polls again gets the run that was reserved for it meanwhile", async () => {
    const { ask, reserve, clock } = house();
    expect(await ask("w", { reports: true, holdMs: 0 })).toEqual([]);
    reserve("run_a")!.deliver();
    await clock.advance(50);
    expect(idsOf(await ask("w", { holdMs: 0 }))).toEqual(["run_a"]);
  });

  test("a reserved run that no poll fetches goes back to the queue, and every node gets a hint", async () => {
    const { ask, reserve, clock, queue, told } = house();
    await ask("w", { reports: true, holdMs: 0 });
    reserve("run_a")!.deliver();
    await clock.advance(600);
    await settle();
    expect(queue.map((run) => run.runId)).toEqual(["run_a"]);
    expect(told).toEqual(["f"]);
  });

  test("a kept job goes back, and not to its worker, before another node may end its lease", async () => {
    const { ask, reserve, clock } = house();
    const leaseMs = 1_500;
    await ask("w", { reports: true, holdMs: 0, leaseMs });
    const slow = reserve("run_slow")!;
    // The commit takes until the lease is no longer young.
    await clock.advance(99);
    const quick = reserve("run_quick")!;
    await clock.advance(60);
    slow.deliver();
    quick.deliver();
    expect(idsOf(await ask("w", { holdMs: 0, leaseMs }))).toEqual(["run_quick"]);
    await settle();
    // What went back was claimed anew, under a lease of its own.
    const again = await ask("w", { reports: true, holdMs: 0, leaseMs });
    expect(again.map(({ runId, executionSeq }) => [runId, executionSeq])).toEqual([["run_slow", 2]]);
    const other = house();
    await other.ask("w", { reports: true, holdMs: 0, leaseMs });
    other.reserve("run_kept")!.deliver();
    await other.clock.advance(160);
    await settle();
    expect(other.queue.map((run) => run.runId)).toEqual(["run_kept"]);
  });

  test("a worker that came back without the function does not get the job", async () => {
    const { ask, reserve, queue } = house();
    await ask("w", { reports: true, holdMs: 0 });
    reserve("run_a")!.deliver();
    expect(await ask("w", { functionIds: ["g"], holdMs: 0 })).toEqual([]);
    await settle();
    expect(queue.map((run) => run.runId)).toEqual(["run_a"]);
  });

  test("a worker that says it is full is promised nothing more", async () => {
    const { ask, reserve } = house();
    await ask("w", { reports: true, holdMs: 0 });
    await ask("w", { available: 0, holdMs: 0 });
    expect(reserve("run_a")).toBeUndefined();
  });

  test("a worker that hangs up while its job is on the way loses it at once", async () => {
    const { ask, enqueue, holdClaims, queue } = house();
    const release = holdClaims();
    const away = new AbortController();
    const answer = ask("w", { signal: away.signal });
    enqueue("run_a");
    await settle();
    away.abort();
    release();
    await answer;
    await settle();
    expect(queue.map((run) => run.runId)).toEqual(["run_a"]);
  });

  test("draining answers all, gives back what lies at desks, and ends when that is done", async () => {
    const { ask, reserve, dispatcher, queue } = house();
    await ask("w", { reports: true, holdMs: 0 });
    reserve("run_a")!.deliver();
    const held = ask("other", { holdMs: 60_000 });
    await dispatcher.drain();
    expect(await held).toEqual([]);
    expect(queue.map((run) => run.runId)).toEqual(["run_a"]);
    expect(await ask("late")).toEqual([]);
    expect(reserve("run_b")).toBeUndefined();
  });

  test("a node that did not know the time for a while claims again once it does, and its drain ends", async () => {
    const { ask, enqueue, time, dispatcher } = house();
    time.known = false;
    const answer = ask("w");
    enqueue("run_a");
    await dispatcher.lookOnce();
    await settle();
    time.known = true;
    await dispatcher.lookOnce();
    await settle();
    // Before the drain: one that fails spins without ever giving the event loop back.
    expect(dispatcher.waiting()).toBe(0);
    expect(idsOf(await answer)).toEqual(["run_a"]);
    time.known = false;
    await dispatcher.lookOnce();
    await dispatcher.drain();
  });

  test("slots are shared out over lanes: a long queue does not starve a short one", async () => {
    const { ask, enqueue } = house();
    for (let n = 0; n < 50; n++) enqueue(`run_f${n}`, "f");
    enqueue("run_g", "g");
    const jobs = await ask("w", { functionIds: ["f", "g"], available: 4 });
    expect(idsOf(jobs)).toContain("run_g");
    expect(jobs.length).toBeLessThanOrEqual(4);
  });

  test("a claim begins behind what was claimed, and looks at the whole queue as often as that takes little time", async () => {
    const { ask, enqueue, claims, clock, holdClaims } = house();
    for (let n = 0; n < 20; n++) enqueue(`run_${n}`);
    const queuedAt = clock.now();
    const back = async () => {
      await ask("w", { available: 1, holdMs: 0 });
      return queuedAt - claims.at(-1)!.demands[0]!.since;
    };
    const whole = queuedAt;
    expect([await back(), await back()]).toEqual([whole, 5_000]);
    for (let round = 0; round < 2; round++) {
      await clock.advance(2_000);
      const release = holdClaims();
      const slow = back();
      await settle();
      await clock.advance(1_000);
      release();
      expect([await slow, await back()]).toEqual([whole, 5_000]);
    }
    await clock.advance(8_000);
    expect(await back()).toBe(5_000);
    await clock.advance(1_000);
    expect([await back(), await back()]).toEqual([whole, 5_000]);
    await clock.advance(2_000);
    expect(await back()).toBe(whole);
  });
});
