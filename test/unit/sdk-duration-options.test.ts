import { afterEach, expect, test } from "bun:test";
import { join } from "node:path";
import { knownOfClient } from "../../src/sdk/client/client.ts";
import {
  createClient,
  createFunction,
  createProjection,
  createWorker,
  type FunctionOptions,
  testFunction,
  verifyWebhook,
} from "../../src/sdk/index.ts";
import { knownOfFunction } from "../../src/sdk/steps/function.ts";
import type { Known } from "../../src/sdk/wire/known-options.ts";
import { detour, type Request } from "../../src/sdk/wire/transport.ts";
import { knownOfWorker } from "../../src/sdk/worker/worker.ts";

const sdk = join(import.meta.dir, "../../src/sdk");
const url = "http://svc.test";
const handler = () => 1;
const one = createFunction({ id: "one" }, handler);
const function_ = (options: object) => createFunction({ id: "f", ...options } as FunctionOptions, handler);
const tables: [what: string, known: Known, make: (options: object) => unknown][] = [
  ["createFunction", knownOfFunction, function_],
  ["createClient", knownOfClient, (options) => createClient({ url, ...options })],
  ["createWorker", knownOfWorker, (options) => createWorker({ url, functions: [one], ...options })],
];

/** The old names of a table, each with the new one, and how options hold them. */
const pairs = (known: Known): { path: string; old: string; now: string; in: (of: object) => object }[] =>
  Object.entries(known).flatMap(([name, of]) => {
    if (typeof of === "string") return [{ path: "", old: name, now: of, in: (given: object) => given }];
    if (of === true) return [];
    return pairs(of).map((pair) => ({ ...pair, path: `${name}.`, in: (given) => ({ [name]: given }) }));
  });

const sectionOf = (page: string, title: string): string =>
  page.split(`\n### ${title}\n`)[1]?.split("\n##")[0] ?? "";

const { answer } = detour;
afterEach(() => {
  detour.answer = answer;
});

test("new names give the definition that old ones give, to the byte", () => {
  const before = function_({
    retry: { maxAttempts: 4, initialDelayMs: 250, backoffFactor: 3, maxDelayMs: 60_000 },
    ...{ timeoutMs: 5_400_000, debounce: { periodMs: 2_000, key: "k", maxWaitMs: 10_000 } },
    ...{ throttle: { limit: 1, periodMs: 1_000 }, rateLimit: { limit: 2, periodMs: 86_400_000, key: "k" } },
    ...{ idempotency: { key: "k", periodMs: 3_600_000 }, startWithinMs: 0, batch: { size: 2, timeoutMs: 7 } },
  });
  const { definition } = createFunction(
    {
      id: "f",
      retry: { maxAttempts: 4, delay: "250ms", backoff: 3, maxDelay: "1m" },
      ...{ timeout: "1.5h", debounce: { period: "2s", key: "k", maxWait: 10_000 } },
      ...{ throttle: { limit: 1, period: "1s" }, rateLimit: { limit: 2, period: "1d", key: "k" } },
      ...{ idempotency: { key: "k", period: "1h" }, startWithin: 0, batch: { size: 2, timeout: 7 } },
    },
    handler,
  );
  expect(JSON.stringify(definition)).toBe(JSON.stringify(before.definition));
});

test("an option that is undefined is as one that was left out", () => {
  const { definition } = function_({
    timeout: undefined,
    timeoutMs: 5,
    retry: { delay: 9, initialDelayMs: undefined },
  });
  expect(definition).toEqual({ id: "f", timeoutMs: 5, retry: { initialDelayMs: 9 }, triggers: [] });
  expect(function_({ retry: { delay: undefined }, throttle: null, batch: 4 }).definition as unknown).toEqual({
    ...{ id: "f", retry: {}, throttle: null, batch: 4, triggers: [] },
  });
});

test("the old names take what they took: the server refuses it", () => {
  const wrong = { timeoutMs: -1, startWithinMs: "soon", retry: { initialDelayMs: Number.POSITIVE_INFINITY } };
  expect(function_(wrong).definition).toEqual({ id: "f", triggers: [], ...wrong } as never);
});

test.each(tables)("%s refuses both names at once, and what is no duration", (what, known, make) => {
  expect(pairs(known).length).toBeGreaterThan(0);
  for (const { path, old, now, in: within } of pairs(known)) {
    const name = `${what}: ${path}${now}`;
    expect(() => make(within({ [old]: 1, [now]: 1 })), name).toThrow(
      new TypeError(`${name} and ${path}${old} are one option: leave ${path}${old} out`),
    );
    if (!old.endsWith("Ms")) continue;
    const endless = what === "createFunction" ? [Number.POSITIVE_INFINITY] : [];
    for (const value of ["soon", "-1s", -1, Number.NaN, Number.NEGATIVE_INFINITY, null, true, {}, ...endless])
      expect(() => make(within({ [now]: value })), name).toThrow(
        new TypeError(
          `${name}: not a duration: ${value} (write milliseconds, or a number with ms, s, m, h or d)`,
        ),
      );
  }
});

test("what could be endless still can be, and 0 is a duration", () => {
  const timeout = Number.POSITIVE_INFINITY;
  expect(createClient({ url, timeout })).toBeDefined();
  const endless = { heartbeat: timeout, checkpoint: 0, drainTimeout: timeout };
  expect(createWorker({ url, functions: [one], timeout, ...endless })).toBeDefined();
});

test("calls send what the old names send", async () => {
  const sent: Request[] = [];
  detour.answer = (request) => {
    sent.push(request);
    return Promise.resolve({});
  };
  const client = createClient({ url });
  const bodies = async (...calls: (() => Promise<unknown>)[]) => {
    sent.length = 0;
    for (const call of calls) await call();
    return sent.map(({ path, body, timeoutMs }) => ({ path, body, timeoutMs }));
  };
  const { groups, kv, projections, tools, webhooks } = client;
  const group = { pattern: "a" };
  const register = (tool: object) =>
    tools.register({ agent: "a", tools: [{ name: "t", ...tool }] }, { callbackUrl: url });
  const now = await bodies(
    () => client.sql("SELECT 1", { timeout: "2s" }),
    () => client.triggerSync("e", {}, { timeout: "2s" }),
    () => client.invokeFunctionSync("f", {}, { timeout: "2s" }),
    () => projections.wait("p", 1, { timeout: "2s" }),
    () => projections.waitForEvent("p", "e", { timeout: "2s" }),
    () => groups.create("g", { ...group, redeliverDelay: "2s" }),
    () => groups.update("g", { redeliverDelay: "2s" }),
    () => register({ timeout: "2s" }),
    () => kv.createBucket("b", { ttl: "2s" }),
    () => kv.put("b", "k", "v", { ttl: "2s" }),
    () => webhooks.sources.rotateSecret("s", "secret", { grace: "2s" }),
    () => webhooks.endpoints.rotateSecret("s", { grace: "2s" }),
  );
  const before = await bodies(
    () => client.sql("SELECT 1", { timeoutMs: 2_000 }),
    () => client.triggerSync("e", {}, { timeoutMs: 2_000 }),
    () => client.invokeFunctionSync("f", {}, { timeoutMs: 2_000 }),
    () => projections.wait("p", 1, { timeoutMs: 2_000 }),
    () => projections.waitForEvent("p", "e", { timeoutMs: 2_000 }),
    () => groups.create("g", { ...group, redeliverDelayMs: 2_000 }),
    () => groups.update("g", { redeliverDelayMs: 2_000 }),
    () => register({ timeoutMs: 2_000 }),
    () => kv.createBucket("b", { ttlSeconds: 2 }),
    () => kv.put("b", "k", "v", { ttlSeconds: 2 }),
    () => webhooks.sources.rotateSecret("s", "secret", { graceSeconds: 2 }),
    () => webhooks.endpoints.rotateSecret("s", { graceSeconds: 2 }),
  );
  expect(now).toHaveLength(12);
  expect(now).toEqual(before);
});

test("calls name what is wrong before anything is sent", async () => {
  const client = createClient({ url });
  const both = { timeout: 1, timeoutMs: 1 };
  const verified = { headers: {}, body: "", secret: "whsec_", tolerance: "soon" };
  const worker = createWorker({ client, functions: [one] });
  const wrong: [() => Promise<unknown>, string][] = [
    [() => client.waitForRun("r", { timeout: "soon" }), "waitForRun: timeout: not a duration: soon"],
    [() => client.waitForRun("r", both), "waitForRun: timeout and timeoutMs are one option"],
    [() => client.triggerSync("e", {}, { timeout: -1 }), "triggerSync: timeout: not a duration: -1"],
    [() => client.sql("", { timeout: Number.POSITIVE_INFINITY }), "sql: timeout: not a duration: Infinity"],
    [() => client.projections.wait("p", 1, both), "wait: timeout and timeoutMs are one option"],
    [() => client.groups.update("g", { redeliverDelay: "x" }), "group: redeliverDelay: not a duration: x"],
    [() => client.kv.put("b", "k", "v", { ttl: "x" }), "put: ttl: not a duration: x"],
    [
      () => client.webhooks.endpoints.rotateSecret("e", { grace: "x" }),
      "rotateSecret: grace: not a duration",
    ],
    [() => worker.drain({ timeout: "x" }), "drain: timeout: not a duration: x"],
    [() => verifyWebhook(verified), "verifyWebhook: tolerance: not a duration: soon"],
  ];
  for (const [ask, message] of wrong) await expect(ask(), message).rejects.toThrow(message);
});

test("a projection has one name too", () => {
  const of = (options: object) =>
    createProjection({ name: "p", initialState: 0, handlers: { e: () => 1 }, ...options } as never);
  expect(of({ gather: "1s", retry: { delay: "2s" } })).toMatchObject({
    ...{ gatherMs: 1_000, retry: { maxAttempts: 3, initialDelayMs: 2_000 } },
  });
  expect(() => of({ retry: { delay: 1, initialDelayMs: 1 } })).toThrow(
    "projection p: retry.delay and retry.initialDelayMs are one option",
  );
  expect(() => of({ gather: "x" })).toThrow("projection p: gather: not a duration: x");
});

test("the types know both names, and take one", () => {
  createFunction({ id: "a", debounce: { periodMs: 1 }, batch: { size: 1, timeoutMs: 1 } }, handler);
  createFunction({ id: "a", debounce: { period: "1s" }, batch: { size: 1, timeout: "1s" } }, handler);
  // @ts-expect-error: a debounce needs its period
  createFunction({ id: "a", debounce: { key: "k" } }, handler);
  // @ts-expect-error: a batch needs its time
  createFunction({ id: "a", batch: { size: 1 } }, handler);
  // @ts-expect-error: the old name is a number
  createFunction({ id: "a", timeoutMs: "1s" }, handler);
  // @ts-expect-error: what is registered has the wire's names
  expect(createFunction({ id: "a", timeout: 1 }, handler).definition.timeout).toBeUndefined();
});

test("every option stands on the page of the SDK, and old names only in their table", async () => {
  const page = await Bun.file(join(sdk, "README.md")).text();
  const oldNames = sectionOf(page, "Old names");
  const rest = page.replace(oldNames, "");
  for (const [what, known] of tables) {
    const section = sectionOf(page, what);
    const missed = Object.entries(known).flatMap(([name, of]) => {
      if (typeof of === "string") return [];
      if (of === true) return section.includes(`\`${name}\``) ? [] : [name];
      const [, inner = ""] = new RegExp(`\`${name}: \\[?{ ([^}]*) }\\]?\``).exec(section) ?? [];
      return Object.keys(of).filter((own) => of[own] === true && !inner.split(", ").includes(own));
    });
    expect([what, missed]).toEqual([what, []]);
    for (const { old, now } of pairs(known)) {
      expect([old, oldNames.includes(`\`${old}\``), oldNames.includes(`\`${now}\``)]).toEqual([
        old,
        true,
        true,
      ]);
      if (old !== "timeoutMs") expect([old, rest.includes(old)]).toEqual([old, false]);
    }
  }
});

test("the types mark every old name, with the new one", async () => {
  const texts = await Promise.all(
    [...new Bun.Glob("**/*.ts").scanSync({ cwd: sdk })].map((path) => Bun.file(join(sdk, path)).text()),
  );
  const marked = texts.flatMap((text) =>
    [...text.matchAll(/@deprecated Write `(\w+)`\. \*\/\s+(\w+)\??:/g)].map(
      ([, now, old]) => `${old} ${now}`,
    ),
  );
  const known = tables.flatMap(([, table]) => pairs(table).map(({ old, now }) => `${old} ${now}`));
  expect([...new Set(known)].filter((pair) => !marked.includes(pair))).toEqual([]);
  const page = await Bun.file(join(sdk, "README.md")).text();
  for (const pair of marked) {
    const [old = "", now = ""] = pair.split(" ");
    expect([pair, page.includes(`\`${old}\``) && page.includes(`\`${now}\``)]).toEqual([pair, true]);
  }
});

test("options may be inherited, or getters of a class", () => {
  class Configured {
    get url() {
      return "http://configured.test";
    }
    get timeout() {
      return "3s";
    }
  }
  expect(createClient(new Configured()).transport.url).toBe("http://configured.test");
  expect(createWorker(Object.create({ url, functions: [one], checkpoint: "2s" }))).toMatchObject({
    id: expect.any(String),
  });
});

test("an invoke goes on with both names, of which timeout counts, and with null for none", async () => {
  const child = createFunction({ id: "child" }, () => 1);
  const parent = createFunction({ id: "parent" }, async ({ step }) => [
    await step.invoke(child, { timeout: "1s", timeoutMs: 0 }),
    await step.invoke(child, { timeout: null as never }),
  ]);
  const { status, output } = await testFunction(parent).mockInvoke("child", 1).run({});
  expect([status, output]).toEqual(["completed", [1, 1]]);
});
