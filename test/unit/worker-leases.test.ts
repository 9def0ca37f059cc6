import { expect, test } from "bun:test";
import { holderEnding, holderOf, leaseHashOf, newLeaseToken } from "../../src/domain/engine/jobs/rules.ts";
import type { FoundLease } from "../../src/domain/engine/runs/execution/leases.ts";
import { Absences } from "../../src/domain/engine/workers/absences.ts";
import { leaseTermsOf } from "../../src/domain/engine/workers/registration.ts";
import { testClock } from "../../src/kit/clock.ts";
import { systemIds } from "../../src/kit/ids.ts";
import { silentLog } from "../../src/kit/log.ts";
import { createLease, stamp } from "../../src/sdk/worker/lease.ts";
import { HeldJobs } from "../../src/sdk/worker/rest-courier.ts";
import { until } from "../support/until.ts";

const worker = { environmentId: "env_a", workerId: "w" };
const configuredMs = 90_000;
const terms = leaseTermsOf({ lease_ms: 10_000, instance: "one" }, configuredMs);
const ending = holderEnding(holderOf("one"));

test("a worker gets the lease that it asks for, never more than is configured; one that asks for nothing is not hurried", () => {
  expect(terms).toEqual({ leaseMs: 10_000, holder: holderOf("one"), patienceMs: 3_000 });
  expect(leaseTermsOf({ lease_ms: 200_000, instance: "one" }, configuredMs)).toMatchObject({
    leaseMs: configuredMs,
  });
  expect(leaseTermsOf({}, configuredMs)).toEqual({
    leaseMs: configuredMs,
    ...{ holder: undefined, patienceMs: undefined },
  });
  expect(leaseTermsOf({ lease_ms: 10_000 }, configuredMs).patienceMs).toBeUndefined();
});

test("a lease's hash ends with the mark of its process, and proves the whole token", () => {
  const { token, hash } = newLeaseToken(systemIds(testClock()), holderOf("one"));
  expect(leaseHashOf(token)).toBe(hash);
  expect(hash).toHaveLength(32);
  expect(hash.slice(23)).toBe(ending);
  expect(leaseHashOf(`x${token.slice(1)}`)).not.toBe(hash);
  expect(holderOf("two")).not.toBe(holderOf("one"));
  const plain = newLeaseToken(systemIds(testClock()), undefined);
  expect(plain.hash).toMatch(/^[0-9a-f]{32}$/);
});

function watched(leases: FoundLease[] = []) {
  const clock = testClock();
  const asked: object[] = [];
  const back: FoundLease[] = [];
  const absences = new Absences({
    clock,
    log: silentLog,
    runs: {
      async findLeases(look) {
        asked.push(look);
        return leases;
      },
      async endSilent(silence) {
        asked.push(silence);
        return 0;
      },
    },
    giveBackLeases: (given) => void back.push(...given),
  });
  return { clock, absences, asked, back };
}

test("leases that are not renewed end when their worker's stream has ended, or when its name came anew", async () => {
  const { clock, absences, asked } = watched();
  const at = clock.now();
  absences.left(worker, terms);
  absences.came(worker, terms);
  await clock.advance(2_999);
  expect(asked).toEqual([]);
  await clock.advance(1);
  const silence = { ...worker, leaseMs: 10_000, at };
  expect(asked).toEqual([
    { ...silence, at: silence.at + 1, ending },
    { ...silence, ending: undefined },
  ]);
});

test("a held poll that ends without an answer is a sign of death, and those of three at once are none", async () => {
  const { clock, absences, asked } = watched();
  const polls = (id: string) => {
    const over = new AbortController();
    const { promise, resolve } = Promise.withResolvers<void>();
    const held = { holdMs: 1, signal: over.signal };
    const poll = absences.during({ environmentId: "env_a", id, pollEnd: true }, terms, held, promise);
    return async (isAnswered: boolean) => {
      if (!isAnswered) over.abort();
      resolve();
      await poll;
    };
  };
  const over = ["a", "b", "c", "d"].map(polls);
  await over[3]!(true);
  const at = clock.now();
  await over[0]!(false);
  await clock.advance(1_499);
  expect(asked).toEqual([]);
  await clock.advance(1);
  expect(asked).toEqual([{ ...worker, workerId: "a", leaseMs: 10_000, at: at + 1, ending }]);
  const again = polls("a");
  await over[1]!(false);
  await clock.advance(400);
  await over[2]!(false);
  await clock.advance(400);
  await again(false);
  await clock.advance(5_000);
  expect(asked).toHaveLength(1);
  // Those that said goodbye, before or after, count for no crowd; a poll that comes anew takes the doubt back.
  await clock.advance(60_000);
  const [gone, came, dead, back] = ["g", "c", "d", "b"].map((id) => ({ id, over: polls(id) }));
  for (const { over: ended } of [gone!, came!]) await ended(false);
  absences.parted({ ...worker, workerId: "g" }, { ...terms, patienceMs: undefined });
  absences.came({ ...worker, workerId: "c" }, { ...terms, patienceMs: undefined });
  await dead!.over(false);
  await clock.advance(1_100);
  await back!.over(false);
  polls("b");
  await clock.advance(5_000);
  expect(asked.slice(1)).toMatchObject([{ workerId: "g" }, { workerId: "c" }, { workerId: "d" }]);
  // The server hears of the broken one after the process has polled again.
  const [broken, next] = [polls("n"), polls("n")];
  await broken!(false);
  await clock.advance(5_000);
  expect(asked).toHaveLength(4);
  await next!(true);
  absences.drain();
  await polls("x")(false);
  await clock.advance(5_000);
  expect(asked).toHaveLength(4);
});

test("workers that ask for nothing are not looked at, nor is anybody after a drain", async () => {
  const { clock, absences, asked } = watched();
  const before = leaseTermsOf({}, configuredMs);
  absences.came(worker, before);
  absences.left(worker, before);
  await absences.holds(worker, before, []);
  absences.came(worker, terms);
  absences.drain();
  await clock.advance(configuredMs);
  expect(asked).toEqual([]);
});

test("what a process does not hold goes back, but what may still be on its way", async () => {
  const lease = (letter: string): FoundLease => ({
    environmentId: "env_a",
    ...{ functionId: "f", runId: `run_${letter}`, executionSeq: 2, leaseHash: "h" },
  });
  const { clock, absences, asked, back } = watched([lease("a"), lease("b"), lease("c")]);
  await absences.holds(worker, terms, ["job_a_2", "job_b_1"]);
  expect(asked).toMatchObject([{ ...worker, ending, claimedBefore: clock.now() - 1_000 }]);
  expect(back).toEqual([lease("b"), lease("c")]);
});

test("a worker says what it holds once a request has failed, until it was said about all that was on its way", () => {
  let now = 0;
  const held = new HeldJobs(
    () => ["job_a_1"],
    () => now,
  );
  const said = `,"hold_ms":1000,"held":["job_a_1"]`;
  held.answered(now);
  expect(held.said()).toBe("");
  held.lost();
  expect(held.said()).toBe(said);
  now = 5_000;
  held.answered(4_000);
  expect(held.said()).toBe(said);
  held.answered(6_199);
  expect(held.said()).toBe(said);
  held.answered(6_200);
  expect(held.said()).toBe("");
});

test("a lease is sure only for as long as the server waits for a renewal when its process seems to be gone", async () => {
  let asked = 0;
  const confirm = async () => void asked++;
  expect(createLease(stamp(), { leftMs: 60_000, leaseMs: 200_000 }, confirm).sure()).toBeUndefined();
  const silent = createLease(stamp(), { leftMs: 60_000, leaseMs: 160 }, confirm);
  const overAt = performance.now() + 60;
  await until(() => performance.now() > overAt, { about: "the patience to be over" });
  await silent.sure();
  expect(asked).toBe(1);
});
