import { expect, test } from "bun:test";
import { SvcError } from "../../src/sdk/wire/errors.ts";
import { createTransport, type Request } from "../../src/sdk/wire/transport.ts";
import { RestCourier } from "../../src/sdk/worker/rest-courier.ts";
import { until } from "../support/until.ts";

const silent = { debug() {}, info() {}, warn() {}, error() {} };

interface Sent {
  jobs: string[];
  available: number;
  answer: (jobs?: number, trouble?: true) => void;
  fail: () => void;
}

/** A courier whose requests the test answers by hand. */
function courier({ isStrict = true, jobsMax = 8, busy = 8 } = {}) {
  const exchanges: Sent[] = [];
  const polls: Sent[] = [];
  let arrived = 0;
  const send = (request: Request) => {
    const body = JSON.parse(request.text!) as { reports: { job_id: string }[]; available: number };
    const jobs = body.reports.map(({ job_id }) => job_id);
    const { promise, resolve, reject } = Promise.withResolvers<unknown>();
    request.signal?.addEventListener("abort", () => reject(new SvcError("aborted_by_caller", "aborted")));
    (jobs.length > 0 ? exchanges : polls).push({
      jobs,
      available: body.available,
      answer: (count = 0, trouble) =>
        resolve({
          results: jobs.map((job_id) => ({
            job_id,
            ...(trouble ? { status: 503, error: "later" } : { status: "ok" }),
          })),
          jobs: Array.from({ length: count }, () => ({})),
        }),
      fail: () => reject(new SvcError("unreachable", "gone", { retryable: true })),
    });
    return promise;
  };
  const made = new RestCourier({
    transport: { ...createTransport({ url: "http://svc.test" }), send: send as never },
    workerPath: "/worker",
    asking: { lease_ms: 60_000, instance: "one" },
    held: () => [],
    isStrict,
    jobsMax,
    register: async () => {},
    room: () => jobsMax - busy - arrived,
    onJobs: (jobs) => {
      arrived += jobs.length;
    },
    onDenied: () => {},
    onReopened: () => {},
    onBroken: () => {},
    log: silent,
  });
  const report = (jobId: string) => made.send({ jobId, text: JSON.stringify({ job_id: jobId }) }).done;
  const left = (count: number, of = exchanges) =>
    until(() => of.length >= count, { about: `request ${count} to leave`, everyMs: 1 });
  /** What would leave in this turn of the event loop has left. */
  const turn = async () => {
    for (let round = 0; round < 3; round++) await new Promise((done) => setImmediate(done));
  };
  return { made, exchanges, polls, report, left, turn, arrived: () => arrived };
}

test("a strict run does not wait until others' steps are stored; beyond four exchanges reports gather", async () => {
  const { exchanges, report, left, turn } = courier();
  const done = [];
  for (const job of ["a", "b", "c", "d"]) {
    done.push(report(job));
    await left(done.length);
  }
  const late = [report("e"), report("f")];
  await turn();
  expect(exchanges.map(({ jobs }) => jobs)).toEqual([["a"], ["b"], ["c"], ["d"]]);
  exchanges[2]!.answer();
  expect(await done[2]).toBe("stored");
  await left(5);
  expect(exchanges[4]!.jobs).toEqual(["e", "f"]);
  for (const exchange of exchanges) exchange.answer();
  expect(await Promise.all([...done, ...late])).toEqual(Array(6).fill("stored"));
});

test("reports of one job never overtake each other", async () => {
  const { exchanges, report, left, turn } = courier();
  const done = [report("a")];
  await left(1);
  done.push(report("a"), report("b"));
  await left(2);
  await turn();
  expect(exchanges.map(({ jobs }) => jobs)).toEqual([["a"], ["b"]]);
  exchanges[0]!.answer();
  await left(3);
  expect(exchanges[2]!.jobs).toEqual(["a"]);
  for (const exchange of exchanges) exchange.answer();
  await Promise.all(done);
});

test("reports of a worker that is not strict share one exchange after the other", async () => {
  const { exchanges, report, left, turn } = courier({ isStrict: false });
  const done = [report("a")];
  await left(1);
  done.push(report("b"), report("c"));
  await turn();
  expect(exchanges).toHaveLength(1);
  exchanges[0]!.answer();
  await left(2);
  expect(exchanges[1]!.jobs).toEqual(["b", "c"]);
  exchanges[1]!.answer();
  await Promise.all(done);
});

test("a full worker that is not strict reports in halves beside each other, and asks for as many jobs in each", async () => {
  const { exchanges, report, left, turn } = courier({ isStrict: false, jobsMax: 200, busy: 0 });
  const done = Array.from({ length: 200 }, (_, place) => report(`job-${place}`));
  await left(2);
  await turn();
  expect(exchanges.map(({ jobs, available }) => [jobs.length, available])).toEqual([
    [100, 100],
    [100, 100],
  ]);
  // Few reports wait for the exchange that is under way.
  exchanges[0]!.answer(100);
  await Promise.all(done.slice(0, 100));
  const few = Array.from({ length: 49 }, (_, place) => report(`few-${place}`));
  await turn();
  expect(exchanges).toHaveLength(2);
  const oneMore = report("one more");
  await left(3);
  expect(exchanges[2]).toMatchObject({ jobs: { length: 50 }, available: 0 });
  exchanges[1]!.answer();
  exchanges[2]!.answer();
  expect(new Set(await Promise.all([...done, ...few, oneMore]))).toEqual(new Set(["stored"]));
});

test("reports that are too few for two exchanges leave in one", async () => {
  const { exchanges, report, left } = courier({ isStrict: false, jobsMax: 99, busy: 0 });
  const done = Array.from({ length: 99 }, (_, place) => report(`job-${place}`));
  await left(1);
  expect(exchanges[0]!.jobs).toHaveLength(99);
  exchanges[0]!.answer();
  await Promise.all(done);
});

test("requests that are under way never ask for more jobs than there is room for", async () => {
  const { made, exchanges, polls, report, left } = courier({ jobsMax: 100, busy: 80 });
  made.start();
  await left(1, polls);
  expect(polls[0]!.available).toBe(20);
  polls[0]!.answer(20);
  const none = courier({ jobsMax: 100, busy: 80 });
  for (const job of ["a", "b", "c", "d"]) {
    void none.report(job);
    await none.left(none.exchanges.length + 1);
  }
  const asked = none.exchanges.reduce((sum, { available }) => sum + available, 0);
  expect(asked).toBeGreaterThan(0);
  expect(asked).toBeLessThanOrEqual(20);
  // The jobs of the poll have filled the worker.
  void report("a");
  await left(1);
  expect(exchanges[0]!.available).toBe(0);
});

test("a strict worker with much room polls beside its exchanges", async () => {
  const { made, exchanges, polls, report, left } = courier({ jobsMax: 8, busy: 2 });
  made.start();
  await left(1, polls);
  void report("a");
  await left(1);
  expect(exchanges[0]!.available).toBe(0);
  polls[0]!.answer(1);
  await left(2, polls);
  expect(polls[1]!.available).toBe(5);
  made.stop(new SvcError("worker_stopped", "over"));
});

test("jobs that came beside a report that could not be stored do not wait until it is sent again", async () => {
  const { exchanges, report, left, turn, arrived } = courier({ busy: 4 });
  const done = report("a");
  await left(1);
  exchanges[0]!.answer(1, true);
  await turn();
  expect([arrived(), exchanges.length]).toEqual([1, 1]);
  await left(2);
  exchanges[1]!.answer();
  expect(await done).toBe("stored");
});

test("while the server is in trouble one exchange at a time asks, and nothing is lost", async () => {
  const { exchanges, report, left, turn } = courier();
  const done = [report("a")];
  await left(1);
  done.push(report("b"));
  await left(2);
  exchanges[0]!.fail();
  exchanges[1]!.fail();
  await turn();
  done.push(report("c"));
  await left(3);
  await turn();
  expect(exchanges).toHaveLength(3);
  exchanges[2]!.answer();
  await until(() => exchanges.slice(3).flatMap(({ jobs }) => jobs).length + exchanges[2]!.jobs.length >= 3, {
    about: "all reports to leave again",
  });
  for (const exchange of exchanges) exchange.answer();
  expect(await Promise.all(done)).toEqual(["stored", "stored", "stored"]);
});
