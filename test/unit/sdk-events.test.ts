import { afterEach, beforeEach, expect, test } from "bun:test";
import {
  createClient,
  createFunction,
  createWorker,
  defineEvents,
  type StandardSchema,
  testFunction,
} from "../../src/sdk/index.ts";
import { type FakeServer, startFakeServer } from "../support/fake-server.ts";
import { until } from "../support/until.ts";

let server: FakeServer;
beforeEach(() => {
  server = startFakeServer();
});
afterEach(() => server.stop());

/** What a schema library would make. */
function schema<Data>(check: (value: unknown) => Data): StandardSchema<Data> {
  return {
    "~standard": {
      version: 1,
      vendor: "test",
      validate(value) {
        try {
          return { value: check(value) };
        } catch (error) {
          return { issues: [{ message: (error as Error).message, path: ["total"] }] };
        }
      },
    },
  };
}

const events = defineEvents({
  "order.placed": {
    version: 3,
    upcast: {
      1: (data: { amount: string }) => ({ amount: Number(data.amount) }),
      2: (data: { amount: number }) => ({ total: data.amount }),
    },
    schema: schema((value) => {
      const { total } = value as { total: number };
      if (typeof total !== "number") throw new Error("must be a number");
      return { total, currency: "EUR" };
    }),
  },
  "order.paid": {} as { schema?: StandardSchema<{ by: string }> },
});

const total = events.createFunction({ id: "total", event: "order.placed" }, ({ event }) => {
  const { total, currency } = event.data;
  return `${total.toFixed(2)} ${currency}, version ${event.version}`;
});

test("older versions are brought up to date one by one, and checked", async () => {
  const run = (data: unknown, version: number) => testFunction(total).run(data as never, { version });
  expect((await run({ amount: "7" }, 1)).output).toBe("7.00 EUR, version 3");
  expect((await run({ amount: 8 }, 2)).output).toBe("8.00 EUR, version 3");
  expect((await run({ total: 9 }, 3)).output).toBe("9.00 EUR, version 3");
  expect((await run({ total: 9 }, 4)).output).toBe("9.00 EUR, version 4");
  expect(await run({ total: "9" }, 3)).toMatchObject({
    status: "failed",
    attempts: 1,
    error: {
      code: "VALIDATION_ERROR",
      retryable: false,
      message: expect.stringContaining(
        "order.placed is not what its schema asks for: total: must be a number",
      ),
    },
  });
});

test("what does not fit is not emitted; what does goes out with its version", async () => {
  const client = createClient({ url: server.url, events });
  await expect(client.emit("order.placed", { total: "x" } as never)).rejects.toMatchObject({
    code: "VALIDATION_ERROR",
  });
  await expect(
    client.emitMany([
      { event: "order.placed", data: { total: 1, currency: "EUR" } },
      { event: "order.placed", data: {} as never },
    ]),
  ).rejects.toMatchObject({ code: "VALIDATION_ERROR" });
  expect(server.requests).toEqual([]);
  await client.emit("order.placed", { total: 1, currency: "EUR" });
  expect(server.requests[0]?.body).toEqual({
    event: "order.placed",
    data: { total: 1, currency: "EUR" },
    version: 3,
    tellUnserved: true,
  });
});

test("an awaited event is brought up to date as well", async () => {
  const waiting = events.createFunction({ id: "waiting", event: "order.paid" }, async ({ step }) => {
    const placed = await step.waitForEvent("order.placed");
    return placed?.data.total;
  });
  // The test's event is of version 1.
  const result = await testFunction(waiting).deliver("order.placed", { amount: "5" }).run({ by: "ada" });
  expect(result.output).toBe(5);
});

test("a client with events makes functions that know them", async () => {
  const client = createClient({ url: server.url, events });
  const made = client.createFunction({ id: "made", event: "order.placed" }, ({ event }) => event.data.total);
  const worker = createWorker({ client, functions: [made], handleSignals: false });
  await worker.start();
  const { runIds } = await createClient({ url: server.url }).emit("order.placed", { amount: "3" });
  const run = await until(
    () => server.runs.get(runIds[0]!)?.status === "completed" && server.runs.get(runIds[0]!),
    { about: "the run" },
  );
  worker.stop();
  expect(run.output).toBe(3);
});

test("wrong names and data are errors of the compiler", () => {
  const client = createClient({ url: server.url, events });
  const check = () => {
    // @ts-expect-error no such event
    void client.emit("order.lost", {});
    // @ts-expect-error no such field
    void client.emit("order.paid", { from: "ada" });
    // @ts-expect-error no such event
    events.createFunction({ id: "x", event: "order.lost" }, () => 1);
    events.createFunction({ id: "x", event: "order.paid" }, async ({ event, step }) => {
      // @ts-expect-error no such event
      await step.waitForEvent("order.lost");
      // @ts-expect-error none may come in time
      void (await step.waitForEvent("order.placed")).data;
      const { total: amount } = (await step.waitForEvent("order.placed", { onTimeout: "throw" })).data;
      // @ts-expect-error a text is no number
      const wrong: number = event.data.by;
      return [amount, wrong];
    });
    const child = createFunction<{ c: { n: number } }, "c", number>({ id: "c" }, ({ event }) => event.data.n);
    events.createFunction({ id: "x" }, async ({ step }) => {
      const n: number = await step.invoke(child, { input: { n: 1 } });
      // @ts-expect-error a text is no number
      await step.invoke(child, { input: { n: "1" } });
      const [a, b] = await step.parallel("p", [() => 1, async () => "b"]);
      const named = await step.parallel("p", { left: () => 1, right: async () => "b" });
      const texts: [number, number, string, number, string] = [n, a, b, named.left, named.right];
      return texts;
    });
  };
  expect(typeof check).toBe("function");
});
