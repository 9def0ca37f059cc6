import { expect, test } from "bun:test";
import { createFunction, NonRetryableError } from "../../src/sdk/index.ts";
import { testFunction } from "../../src/sdk/testing/testing.ts";

/** What is reserved now, and how often each thing was released. */
interface Stock {
  reserved: Set<string>;
  released: string[];
}

const endings: Record<
  string,
  { retry?: object; timeoutMs?: number; fail: "no" | "again" | "wait" | "key" | "sleep" }
> = {
  "not to be retried": { fail: "no" },
  "out of attempts": { fail: "again", retry: { maxAttempts: 2, initialDelayMs: 1 } },
  "wait timed out": { fail: "wait" },
  "wait for a key and an entity timed out": { fail: "key" },
  "run timed out": { fail: "sleep", timeoutMs: 1_000 },
};

function sagaOf(stock: Stock, { fail, ...options }: (typeof endings)[string]) {
  const reserve = (name: string) => () => {
    stock.reserved.add(name);
    return name;
  };
  const release = (name: string) => {
    stock.reserved.delete(name);
    stock.released.push(name);
  };
  return createFunction({ id: "saga", event: "go", ...options }, async ({ step }) => {
    await step.run("seat", reserve("seat"), { compensate: release });
    try {
      await step.run("gift", () => {
        throw new NonRetryableError("no gifts");
      });
    } catch {
      await step.run("voucher", reserve("voucher"), { compensate: release });
    }
    await step.parallel("both", [
      () => step.run("room", reserve("room"), { compensate: release }),
      () => step.run("car", reserve("car"), { compensate: release }),
    ]);
    if (fail === "wait") await step.waitForEvent("paid", { timeout: "1h", onTimeout: "throw" });
    if (fail === "key") {
      const things = {
        key: { bucket: "b", key: "k", exists: true },
        entity: { stream: "e", version: 1 },
      } as const;
      await step.waitForAll("things", things, { timeout: "1h", onTimeout: "throw" });
    }
    if (fail === "sleep") await step.sleep("long", "1h");
    if (fail === "no") throw new NonRetryableError("sold out");
    throw new Error("again");
  });
}

for (const [name, options] of Object.entries(endings))
  for (const stored of [true, false])
    test(`a saga killed after every step, its run ${name}: each thing is released once (${stored ? "stored" : "not stored"})`, async () => {
      const clean: Stock = { reserved: new Set(), released: [] };
      const { steps } = await testFunction(sagaOf(clean, options)).run({});
      expect(clean.released.toSorted()).toEqual(["car", "room", "seat", "voucher"]);
      const names = steps.filter(({ type }) => type === "invoke" || type === "compensate");
      for (const { name: killed } of names) {
        const stock: Stock = { reserved: new Set(), released: [] };
        const test = testFunction(sagaOf(stock, options)).crashAfter(killed, { stored });
        const result = await test.run({});
        expect([killed, result.status, result.compensationFailed]).toEqual([killed, "failed", 0]);
        expect([killed, [...stock.reserved]]).toEqual([killed, []]);
        // What the server never heard of runs again: a step has its id to tell.
        if (stored) expect(stock.released.toSorted()).toEqual(["car", "room", "seat", "voucher"]);
        else expect(new Set(stock.released).size).toBe(4);
      }
    });

test("onFailure is called once, after the compensations, with the error and steps of its own", async () => {
  const seen: unknown[] = [];
  const failing = createFunction(
    {
      id: "failing",
      event: "go",
      retry: { maxAttempts: 1 },
      async onFailure({ event, error, step }) {
        const told = await step.run("tell", () => `${event.name}: ${error.message}`);
        seen.push(told);
      },
    },
    async ({ step }) => {
      await step.run("a", () => 1, { compensate: () => seen.push("undone") });
      throw new Error("broken");
    },
  );
  const result = await testFunction(failing).crashAfter("every").run({});
  expect(seen).toEqual(["undone", "go: broken"]);
  expect(result).toMatchObject({ status: "failed", error: { message: "broken" }, compensationFailed: 0 });
  expect(result.steps.map((one) => one.id.replace(/^run_test\d+:/, ""))).toEqual([
    "a:0",
    "compensate:a:0",
    "onFailure:0:tell:0",
    "onFailure:0",
  ]);
});

test("a compensation is tried again by itself; one that will not be retried is listed at once", async () => {
  let tries = 0;
  const saga = createFunction({ id: "saga", event: "go", retry: { maxAttempts: 1 } }, async ({ step }) => {
    await step.run("a", () => 1, {
      compensate: () => {
        if (++tries < 3) throw new Error("later");
      },
    });
    await step.run("b", () => 1, {
      compensate: () => {
        throw new NonRetryableError("never");
      },
    });
    throw new Error("broken");
  });
  const result = await testFunction(saga).run({});
  expect(tries).toBe(3);
  expect(result).toMatchObject({ status: "failed", compensationFailed: 1 });
});
