import { expect, test } from "bun:test";
import { createClient, createFunction, createWorker, type Steps, testFunction } from "../../src/sdk/index.ts";

const handler = () => 1;
const one = createFunction({ id: "one" }, handler);

test("an option that does not exist is a TypeError, with the one that was meant", () => {
  const wrong: [() => unknown, string][] = [
    [() => createClient({ apikey: "k" } as never), "createClient has no option apikey: did you mean apiKey?"],
    [
      () => createClient({ timeoutMS: 5 } as never),
      "createClient has no option timeoutMS: did you mean timeout?",
    ],
    [() => createClient({ zzz: 1 } as never), "createClient has no option zzz"],
    [() => createClient(null as never), "createClient takes an object of options"],
    [
      () => createWorker({ functions: [one], maxConcurrency: 1 } as never),
      "createWorker has no option maxConcurrency",
    ],
    [
      () => createWorker({ functions: [one], heartbeatsMs: 1 } as never),
      "createWorker has no option heartbeatsMs: did you mean heartbeat?",
    ],
    [
      () => createFunction({ id: "f", trigers: [] } as never, handler),
      "createFunction has no option trigers: did you mean triggers?",
    ],
    [
      () => createFunction({ id: "f", retry: { attempts: 2 } } as never, handler),
      "createFunction has no option retry.attempts: did you mean maxAttempts?",
    ],
    [
      () => createFunction({ id: "f", retry: { initalDelay: 2 } } as never, handler),
      "createFunction has no option retry.initalDelay: did you mean delay?",
    ],
    [
      () => createFunction({ id: "f" }, { event: "e" } as never),
      "function f: its handler, a function, comes behind its options",
    ],
    [
      () => createFunction({ id: "f", cancelOn: [{ event: "e", matches: "id" }] } as never, handler),
      "createFunction has no option cancelOn[0].matches: did you mean match?",
    ],
    [
      () => createFunction({ id: "f", triggers: [{ event: "e", toString: "x" }] } as never, handler),
      "createFunction has no option triggers[0].toString",
    ],
  ];
  for (const [make, message] of wrong) expect(make).toThrow(new TypeError(message));
});

test("calls refuse an option that does not exist before anything is sent", async () => {
  const { emit, emitMany, publish, subscribe, listRuns, repairs, triggerSync, invokeFunction } = createClient(
    {
      url: "http://127.0.0.1:1",
    },
  );
  const wrong: [() => Promise<unknown>, string][] = [
    [() => emit("e", {}, { idempotency: "k" } as never), "emit has no option idempotency"],
    [
      () => emitMany([{ event: "e", data: 1, idempotencykey: "k" } as never]),
      "emitMany: [0] has no option idempotencykey: did you mean idempotencyKey?",
    ],
    [() => publish("t", 1, { idempotent: "k" } as never), "publish has no option idempotent"],
    [
      async () => subscribe("e", { filtr: "true" } as never),
      "subscribe has no option filtr: did you mean filter?",
    ],
    [() => listRuns({ function: "f" } as never), "listRuns has no option function: did you mean functionId?"],
    [
      () => repairs.start("cancel", { filter: { functionId: "f", atributes: {} } as never }),
      "the filter of a repair has no option atributes: did you mean attributes?",
    ],
    [() => repairs.preview("cancel", { event: "e" } as never), "the filter of a repair has no option event"],
    [() => repairs.replayEvents("f", { since: 1 } as never), "a replay has no option since"],
    [() => triggerSync("e", {}, { delay: "1h" } as never), "triggerSync has no option delay"],
    [
      () => invokeFunction("f", {}, { idempotency: "k" } as never),
      "invokeFunction has no option idempotency",
    ],
  ];
  for (const [ask, message] of wrong) expect(ask()).rejects.toThrow(message);
});

test("steps refuse an option that does not exist, and name the step in what is wrong", async () => {
  const wrong: [(step: Steps) => unknown, string][] = [
    [
      (step) => step.run("a", handler, { retries: 3 } as never),
      "step a has no option retries: did you mean retry?",
    ],
    [
      (step) => step.waitForEvent("paid", { timout: "1s" } as never),
      "step paid has no option timout: did you mean timeout?",
    ],
    [
      (step) => step.waitForAny("w", { a: { event: "e" } }, { within: 1 } as never),
      "step w has no option within",
    ],
    [(step) => step.invoke("f", { data: 1 } as never), "step f has no option data"],
    [
      (step) => step.waitForAny("w", { paid: { event: "e", mach: "id" } }),
      "step w: paid has no option mach: did you mean match?",
    ],
    [
      (step) => step.waitForAll("w", { a: { stream: "s", version: 1, match: "id" } }),
      "step w: a has no option match",
    ],
    [
      (step) => step.waitForStream("s", { version: 1, timout: "1s" } as never),
      "step s has no option timout: did you mean timeout?",
    ],
    [(step) => step.waitForKey("b", "k", { exist: true } as never), "step b/k has no option exist"],
    [(step) => step.waitForRun("run_1", { within: "1s" } as never), "step run_1 has no option within"],
    [
      (step) => step.emit("e", {}, { dealy: "1h" } as never),
      "step emit.e has no option dealy: did you mean delay?",
    ],
    [(step) => step.publish("t", 1, { key: "k" } as never), "step publish:t has no option key"],
    [(step) => step.invokeAsync("f", { timeout: "1s" } as never), "step f has no option timeout"],
    [(step) => step.parallel("p", [], { settled: true } as never), "step p has no option settled"],
    [(step) => step.map("m", [1], handler, { concurency: 1 } as never), "step m has no option concurency"],
    [(step) => step.sleep("nap", "5 minuts"), "step nap: not a duration: 5 minuts"],
    [(step) => step.waitForEvent("paid", { timeout: "soon" }), "step paid: not a duration: soon"],
    [(step) => step.sleepUntil("nap", "tomorrow"), "step nap: not an instant: tomorrow"],
  ];
  for (const [enter, message] of wrong) {
    const { error } = await testFunction(
      createFunction({ id: "f", retry: { maxAttempts: 1 } }, ({ step }) => enter(step)),
    ).run({});
    expect(error?.message).toStartWith(message);
  }
});

test("two functions of one id are named", () => {
  const other = createFunction({ id: "other" }, handler);
  expect(() => createWorker({ functions: [other, one, one] })).toThrow(
    "two functions of a worker have the same id one",
  );
});

test("every option that exists is taken, whatever it holds", () => {
  expect(
    createClient({ url: "http://127.0.0.1:1", apiKey: "k", environment: "e", timeoutMs: 1 }),
  ).toBeDefined();
  const full = createFunction(
    {
      id: "full",
      ...{ name: "n", description: "d", event: "e", expression: "true", cron: "* * * * *" },
      triggers: [{ event: "a", expression: "true", cron: "* * * * *" }],
      retry: { maxAttempts: 1, initialDelayMs: 1, backoffFactor: 1, maxDelayMs: 1 },
      ...{ timeoutMs: 1, concurrency: { limit: 1, key: "k" }, actorKey: "k", secrets: [], recording: true },
      ...{ debounce: { periodMs: 1_000, key: "k", maxWaitMs: 1 }, priority: 1, startWithinMs: 1 },
      throttle: { limit: 1, periodMs: 1, burst: 1, key: "k" },
      rateLimit: { limit: 1, periodMs: 1, key: "k" },
      ...{ idempotency: { key: "k", periodMs: 1 }, singleton: { mode: "skip", key: "k" } },
      ...{ cancelOn: [{ event: "e", match: "m" }], recordingProfile: "all", recordingRetention: "7d" },
      ...{ mode: "pull", endpointUrl: "http://a", metadata: { any: { thing: 1 } }, changeReason: "r" },
      ...{ compensateOnCancel: true, nondeterminism: "fail", onFailure: handler },
    },
    handler,
  );
  const worker = createWorker({
    ...{ url: "http://127.0.0.1:1", apiKey: "k", environment: "e", timeoutMs: 1, functions: [full] },
    ...{ projections: [], transport: "rest", maxConcurrentJobs: 1, checkpointMs: 0, heartbeatMs: 1_000 },
    ...{ workerId: "w", labels: { any: "x" }, handleSignals: false, drainTimeoutMs: 1, log: console },
  });
  expect(worker.id).toBe("w");
});

test("a bound of a deletion that has no value deletes nothing", async () => {
  const { runs } = createClient({ url: "http://127.0.0.1:1" });
  for (const [name, value] of [
    ...[
      ["functionId", undefined],
      ["functionId", ""],
      ["statuses", undefined],
      ["until", undefined],
    ],
  ] as [string, unknown][])
    await expect(runs.deleteMany({ [name]: value })).rejects.toThrow(`runs.deleteMany: ${name} has no value`);
});

test("a bound of a repair or a replay that has no value starts nothing", async () => {
  const { repairs, listRuns } = createClient({ url: "http://127.0.0.1:1" });
  const bounds = [
    { functionId: undefined },
    { functionId: "" },
    { statuses: [] },
    { attributes: {} },
    { since: "" },
  ];
  for (const bound of bounds as object[]) {
    const [name] = Object.keys(bound);
    const filter = { ...bound, ...(name !== "statuses" && { statuses: ["running" as const] }) };
    for (const asked of [() => repairs.start("cancel", { filter }), () => repairs.preview("cancel", filter)])
      await expect(asked()).rejects.toThrow(`the filter of a repair: ${name} has no value`);
  }
  for (const [name, value] of [
    ["from", undefined],
    ["from", Number.NaN],
    ["to", ""],
    ["pattern", ""],
    ["filter", undefined],
  ] as const)
    await expect(repairs.replayEvents("f", { [name]: value })).rejects.toThrow(
      `a replay: ${name} has no value`,
    );
  for (const attributes of [{ total: { gte: undefined } }, { total: undefined }] as never[]) {
    const told = "attributes: total is compared with nothing";
    await expect(repairs.start("cancel", { filter: { attributes } })).rejects.toThrow(told);
    await expect(listRuns({ attributes })).rejects.toThrow(told);
  }
});
