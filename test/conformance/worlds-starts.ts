import { expect } from "bun:test";
import { createFunction } from "../../src/sdk/index.ts";
import { until } from "../support/until.ts";
import type { Inside } from "../support/worlds.ts";
import type { Promises } from "./worlds.ts";

const dataOf = <Data>(event: { data: unknown }) => event.data as Data;

const plain = createFunction({ id: "start-plain", event: "start.plain" }, ({ event }) => event.data);
const chosen = createFunction(
  {
    id: "start-chosen",
    triggers: [{ event: "start.chosen", expression: "data.total > 10.0 && data.city == 'İzmir'" }],
  },
  () => 1,
);
const quiet = createFunction(
  { id: "start-quiet", event: "start.quiet", debounce: { periodMs: 1_000, key: "of" } },
  ({ event }) => event.data,
);
const gathered = createFunction(
  { id: "start-gathered", event: "start.gathered", batch: { size: 3, timeoutMs: 60_000 } },
  ({ events }) => events.map(({ data }) => (data as { n: number }).n),
);
const single = createFunction(
  { id: "start-single", event: "start.single", singleton: { mode: "skip", key: "of" } },
  async ({ step }) => step.waitForEvent("start.single.over", { timeout: "1h" }),
);
const once = createFunction(
  { id: "start-once", event: "start.once", idempotency: { key: "data.of" } },
  () => 1,
);
const few = createFunction(
  { id: "start-few", event: "start.few", rateLimit: { limit: 2, periodMs: 3_600_000, key: "of" } },
  () => 1,
);
let atOnce = 0;
let atOnceMax = 0;
const narrow = createFunction(
  { id: "start-narrow", event: "start.narrow", concurrency: { limit: 1, key: "of" } },
  async ({ step }) => {
    await step.run("alone", async () => {
      atOnceMax = Math.max(atOnceMax, ++atOnce);
      await new Promise((done) => setImmediate(done));
      atOnce--;
    });
  },
);
const cancelled = createFunction(
  { id: "start-cancelled", event: "start.cancelled", cancelOn: [{ event: "start.called-off", match: "of" }] },
  async ({ step }) => step.waitForEvent("start.never", { timeout: "1h" }),
);
const ticking = createFunction({ id: "start-ticking", cron: "* * * * * *" }, () => "tick");
const keeper = createFunction({ id: "start-keeper", secrets: ["START_TOKEN"] }, ({ event, secrets }) => [
  dataOf<{ of: string }>(event).of,
  secrets.START_TOKEN,
]);

export const functionsOfStarts = [
  ...[plain, chosen, quiet, gathered, single, once, few, narrow, cancelled, ticking, keeper],
];

const patience = { timeoutMs: 25_000 };
const runsOf = async ({ client }: Inside, functionId: string) =>
  (await client.listRuns({ functionId, limit: 100 })).runs;
const ended = ({ client }: Inside, runId: string) => client.waitForRun(runId, patience);

/** What a clock on a wall shows there at that instant: hour and minute. */
const clockIn = (timeZone: string, at: string) =>
  new Intl.DateTimeFormat("en-GB", { timeZone, hour: "2-digit", minute: "2-digit" }).format(new Date(at));

export const promisesOfStarts: Promises = {
  async "an event starts a run, whose output comes back to a caller that waits"({ client }) {
    const { results } = await client.triggerSync("start.plain", { n: 1 }, patience);
    expect(results).toMatchObject([{ status: "completed", output: { n: 1 } }]);
  },
  async "a condition chooses the events that start runs"({ client }) {
    const started = async (data: object) => (await client.emit("start.chosen", data)).runIds.length;
    expect(await started({ total: 11, city: "İzmir" })).toBe(1);
    expect([await started({ total: 9, city: "İzmir" }), await started({ total: 11, city: "izmir" })]).toEqual(
      [0, 0],
    );
  },
  async "events that come too often start one run once they are quiet"(inside) {
    // In one request: on a busy machine one after the other would be quiet in between.
    await inside.client.emitMany([1, 2, 3].map((n) => ({ event: "start.quiet", data: { of: "İ", n } })));
    const [run] = await until(
      async () => {
        const runs = await runsOf(inside, "start-quiet");
        return runs.length > 0 && runs;
      },
      { about: "the run of the last event" },
    );
    expect((await ended(inside, run!.id)).output).toEqual({ of: "İ", n: 3 });
    expect(await runsOf(inside, "start-quiet")).toHaveLength(1);
  },
  async "one run has many events, in their order"(inside) {
    for (let n = 1; n <= 3; n++) await inside.client.emit("start.gathered", { n });
    const [run] = await until(
      async () => {
        const runs = await runsOf(inside, "start-gathered");
        return runs.length > 0 && runs;
      },
      { about: "the run of three events" },
    );
    expect((await ended(inside, run!.id)).output).toEqual([1, 2, 3]);
  },
  async "a function that is to run alone starts no second run"(inside) {
    const { client } = inside;
    const emit = async (of: string) => (await client.emit("start.single", { of })).runIds;
    const [first] = await emit("I");
    expect([first === undefined, await emit("I"), (await emit("i")).length]).toEqual([false, [], 1]);
    await client.emit("start.single.over", {});
    expect((await ended(inside, first!)).status).toBe("completed");
    const again = await emit("I");
    expect(again).toHaveLength(1);
    await client.emit("start.single.over", {});
  },
  async "one run a value, and so many runs an hour"({ client }) {
    const started = async (event: string, of: string) => (await client.emit(event, { of })).runIds.length;
    const inTurn = async (event: string, values: readonly string[]) => {
      const counts: number[] = [];
      for (const of of values) counts.push(await started(event, of));
      return counts;
    };
    expect(await inTurn("start.once", ["I", "I", "ı", "i"])).toEqual([1, 0, 1, 1]);
    expect(await inTurn("start.few", ["x", "x", "x", "y"])).toEqual([1, 1, 0, 1]);
  },
  async "runs of one key run one after the other"(inside) {
    const emitted = await inside.client.emitMany(
      Array.from({ length: 6 }, () => ({ event: "start.narrow", data: { of: "one" } })),
    );
    for (const { runIds } of emitted) await ended(inside, runIds[0]!);
    expect(atOnceMax).toBe(1);
  },
  async "an event calls a run off"(inside) {
    const { client } = inside;
    const start = async (of: string) => (await client.emit("start.cancelled", { of })).runIds[0]!;
    const [off, on] = [await start("off"), await start("on")];
    await client.emit("start.called-off", { of: "off" });
    expect((await ended(inside, off)).status).toBe("cancelled");
    expect((await client.getRun(on)).status).not.toBe("cancelled");
    await client.cancelRun(on);
  },
  async "a schedule starts its function at its times"(inside) {
    const run = await until(
      async () => (await runsOf(inside, "start-ticking")).find(({ status }) => status === "completed"),
      { about: "a run of the schedule" },
    );
    expect(run.output).toBe("tick");
  },
  async "a schedule's next time is that of its zone, or of UTC"({ client, api }) {
    const zones = ["Pacific/Auckland", "America/St_Johns", "Asia/Kathmandu", "UTC"];
    for (const [at, zone] of zones.entries())
      await client.registerFunction({
        id: `start-zone-${at}`,
        triggers: [{ cron: `${zone === "UTC" ? "" : `TZ=${zone} `}30 9 * * *` }],
      });
    const times = await until(
      async () => {
        const { schedules } = (await api("/api/v1/schedules")).body;
        const own = schedules.filter((one: { function_id: string }) =>
          one.function_id.startsWith("start-zone-"),
        );
        return own.length === zones.length && own.every((one: { next_at?: string }) => one.next_at) && own;
      },
      { about: "the next times" },
    );
    for (const { function_id, next_at } of times)
      expect([function_id, clockIn(zones[Number(function_id.at(-1))]!, next_at)]).toEqual([
        function_id,
        "09:30",
      ]);
  },
  async "a function gets its secret, and no answer has it"(inside) {
    const { client, api } = inside;
    await client.secrets.create("START_TOKEN", "s3cret-İ");
    const { runId } = await client.invokeFunction("start-keeper", { of: "one" });
    expect((await ended(inside, runId)).output).toEqual(["one", expect.any(String)]);
    expect(JSON.stringify((await api("/api/v1/secrets")).body)).not.toContain("s3cret-İ");
  },
  async "past events start a function afresh"(inside) {
    const { client } = inside;
    await client.emitMany([1, 2, 3].map((n) => ({ event: "start.past", data: { n } })));
    await client.registerFunction({ id: "start-replayed", triggers: [{ event: "start.past" }] });
    const past = { pattern: "start.past", filter: "data.n > 1" };
    const preview = await until(
      async () => {
        const found = await client.repairs.previewReplay("start-replayed", past);
        // A busy machine looks through fewer events in the time of a preview.
        return found.truncated ? undefined : found;
      },
      { about: "a whole preview" },
    );
    expect(preview.toStart).toBe(2);
    const { id } = await client.repairs.replayEvents("start-replayed", { ...past, reason: "new" });
    await until(async () => (await client.repairs.get(id)).status === "completed", { about: "the replay" });
    const runs = await runsOf(inside, "start-replayed");
    expect(runs.map(({ input }) => (input as { n: number }).n).toSorted()).toEqual([2, 3]);
    for (const run of runs) await client.cancelRun(run.id);
  },
  async "the history of a definition is kept, and an older one comes back"({ client }) {
    const define = (description: string) => client.registerFunction({ id: "start-kept", description });
    await define("first");
    await define("second");
    const { entries } = await client.listFunctionHistory("start-kept");
    expect(entries).toHaveLength(2);
    await client.rollbackFunction("start-kept", entries.at(-1)!.entityVersion);
    expect((await client.getFunction("start-kept")).description).toBe("first");
  },
};
