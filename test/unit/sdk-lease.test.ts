import { expect, test } from "bun:test";
import { createLease, stamp } from "../../src/sdk/worker/lease.ts";
import { heartbeatJobsMax, startLeaseThread } from "../../src/sdk/worker/lease-thread.ts";
import { until } from "../support/until.ts";

const ago = (ms: number) => {
  const now = stamp();
  return { monotonicMs: now.monotonicMs - ms, wallMs: now.wallMs - ms };
};
const never = () => Promise.reject(new Error("nobody should ask"));

test("a lease that surely holds asks nobody; neither does one whose length the server did not tell", () => {
  expect(createLease(stamp(), { leftMs: 60_000 }, never).sure()).toBeUndefined();
  expect(createLease(ago(60_000), { leftMs: undefined }, never).sure()).toBeUndefined();
});

test("one that may be over asks once for all who wait, and is sure again", async () => {
  let asked = 0;
  const lease = createLease(ago(60_000), { leftMs: 30_000 }, async () => void asked++);
  await Promise.all([lease.sure(), lease.sure()]);
  expect(asked).toBe(1);
  expect(lease.sure()).toBeUndefined();
});

test("either clock will do: one may have stood still, the other may have been set", () => {
  for (const late of [
    { ...stamp(), wallMs: ago(60_000).wallMs },
    { ...stamp(), monotonicMs: ago(60_000).monotonicMs },
  ])
    expect(createLease(late, { leftMs: 30_000 }, async () => {}).sure()).toBeInstanceOf(Promise);
});

test("a job that was long on its way is asked about before its first step", async () => {
  let asked = 0;
  const lease = createLease(
    stamp(),
    { leftMs: 8_000, leaseMs: 10_000, isDoubted: true },
    async () => void asked++,
  );
  await lease.sure();
  expect([asked, lease.sure()]).toEqual([1, undefined]);
});

test("a confirmation that comes when the lease may be over again does not count", async () => {
  let asked = 0;
  const confirm = async () => {
    if (asked++ === 0) await until(() => performance.now() > began + 100, { about: "a slow answer" });
  };
  const began = performance.now();
  const lease = createLease(ago(60_000), { leftMs: 30_000, leaseMs: 300 }, confirm);
  await lease.sure();
  expect(asked).toBeGreaterThanOrEqual(2);
});

test("a lease is doubted when the way to the server breaks, until it says in time that it lives, or is asked", async () => {
  let asked = 0;
  const lease = createLease(stamp(), { leftMs: 60_000, leaseMs: 60_000 }, async () => void asked++);
  lease.doubt();
  lease.renewed(ago(10));
  expect(lease.sure()).toBeInstanceOf(Promise);
  await lease.sure();
  expect([asked > 0, lease.sure()]).toEqual([true, undefined]);
  lease.doubt();
  lease.renewed(stamp());
  expect(lease.sure()).toBeUndefined();
});

test("a renewal from before the last break ends no doubt, nor does one long behind the first", async () => {
  const times = { leftMs: 60_000, leaseMs: 1_000 };
  const asked: string[] = [];
  const between = createLease(stamp(), times, async () => void asked.push("between"));
  between.doubt();
  const sentAt = stamp();
  const later = performance.now() + 2;
  await until(() => performance.now() > later, { about: "another instant", everyMs: 1 });
  between.doubt();
  between.renewed(sentAt);
  const late = createLease(stamp(), times, async () => void asked.push("late"));
  late.doubt();
  const overAt = performance.now() + 160;
  await until(() => performance.now() > overAt, { about: "a node to end the lease" });
  late.doubt();
  late.renewed(stamp());
  await Promise.all([between.sure(), late.sure()]);
  expect(asked).toEqual(["between", "late"]);
});

test("a confirmed lease lasts as long as any, and not what was left of it", async () => {
  let asked = 0;
  const lease = createLease(ago(60_000), { leftMs: 20, leaseMs: 60_000 }, async () => void asked++);
  await lease.sure();
  const overAt = performance.now() + 40;
  await until(() => performance.now() > overAt, { about: "what was left to be over" });
  expect([asked, lease.sure()]).toEqual([1, undefined]);
});

test("what the server refuses is lost, and asked about again", async () => {
  let asked = 0;
  const lease = createLease(ago(60_000), { leftMs: 30_000 }, () =>
    Promise.reject(new Error(`lost ${++asked}`)),
  );
  await expect(lease.sure()).rejects.toThrow("lost 1");
  await expect(lease.sure()).rejects.toThrow("lost 2");
});

test("a renewal counts from when it was asked for, and not when its answer came too late", () => {
  const fresh = createLease(ago(20_000), { leftMs: 30_000 }, never);
  fresh.renewed(ago(1_000));
  expect(fresh.sure()).toBeUndefined();
  const late = createLease(ago(40_000), { leftMs: 30_000 }, async () => {});
  late.renewed(ago(1_000));
  expect(late.sure()).toBeInstanceOf(Promise);
});

test("the second thread renews at the address at which the first one did so last", async () => {
  const told: string[] = [];
  const server = Bun.serve({
    port: 0,
    fetch(request) {
      told.push(new URL(request.url).pathname);
      return Response.json({});
    },
  });
  const thread = await startLeaseThread({
    ...{ url: "http://127.0.0.1:1/gone", headers: {}, body: {}, jobsMax: 1 },
    onFailed: (reason) => told.push(reason),
  });
  try {
    thread!.hold("job-1");
    thread!.beaten(`${server.url.href}next`);
    thread!.mind(300);
    await until(() => told.length > 0, { about: "a heartbeat" });
    expect(told[0]).toBe("/next");
  } finally {
    thread!.stop();
    await server.stop(true);
  }
});

test("the second thread renews all jobs of a busy worker, as many a request as the server takes", async () => {
  const told: string[][] = [];
  const server = Bun.serve({
    port: 0,
    async fetch(request) {
      const { jobs } = (await request.json()) as { jobs: { job_id: string }[] };
      told.push(jobs.map(({ job_id }) => job_id));
      return Response.json({});
    },
  });
  const thread = await startLeaseThread({
    ...{ url: server.url.href, headers: {}, body: {}, jobsMax: 1_500 },
    onFailed: (reason) => told.push([reason]),
  });
  try {
    const ids = Array.from({ length: 1_500 }, (_, at) => `job-${at}`);
    for (const id of ids) thread!.hold(id);
    thread!.mind(1_000);
    await until(() => told.length >= 2, { about: "two heartbeats" });
    expect(told.slice(0, 2).map(({ length }) => length)).toEqual([heartbeatJobsMax, 500]);
    expect(told.slice(0, 2).flat()).toEqual(ids);
  } finally {
    thread!.stop();
    await server.stop(true);
  }
});
