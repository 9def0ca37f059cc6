import { expect } from "bun:test";
import { until } from "../support/until.ts";
import type { Inside } from "../support/worlds.ts";
import type { Promises } from "./worlds.ts";

/** In the order of their bytes, which is that of no language. */
export const inOrder = ["A-I", "B", "Z", "_", "a-i", "b", "i", "ı", "İ", "ä", "ß"].toSorted((a, b) =>
  Buffer.compare(Buffer.from(a), Buffer.from(b)),
);

const minuteMs = 60_000;

export const codeOf = (asked: Promise<unknown>): Promise<string> =>
  asked.then(
    () => "it was done",
    ({ code }) => code,
  );

const named = ({ client }: Inside, name: string) => client.events.list({ names: [name], limit: 200 });

export const promisesOfLog: Promises = {
  async "an event is read as it was emitted, with the time of its emit"({ client }) {
    const data = { text: "İıŞß \u2028 🦀", big: 2 ** 53, small: 0.1 + 0.2, none: null, of: [1, [2]] };
    const before = Date.now() - minuteMs;
    const { eventId } = await client.emit("log.read", data, { metadata: { by: "a world" } });
    const event = await client.events.get(eventId);
    expect(event).toMatchObject({ name: "log.read", data, metadata: { by: "a world" } });
    expect(event.timestamp).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const at = Date.parse(event.timestamp);
    expect([at > before, at < Date.now() + minuteMs]).toEqual([true, true]);
  },

  async "a repeated key answers the first event"({ client }) {
    const emit = (n: number) => client.emit("log.once", { n }, { idempotencyKey: "log-once İ" });
    const answers = await Promise.all([1, 2, 3].map(emit));
    expect(new Set(answers.map(({ eventId }) => eventId)).size).toBe(1);
  },

  async "a batch is stored whole, in its order, or not at all"(inside) {
    const { client, rpc } = inside;
    const data = (n: number) => ({ n });
    const emitted = await client.emitMany([1, 2, 3].map((n) => ({ event: "log.batch", data: data(n) })));
    const places = emitted.map(({ sequence }) => sequence);
    expect(places).toEqual([places[0]!, places[0]! + 1, places[0]! + 2]);
    const events = [{ event: "log.batch", data: data(4) }, { event: "log batch" }];
    expect((await rpc("SvcService", "TriggerBatch", { events })).status).toBe(400);
    expect((await named(inside, "log.batch")).events).toHaveLength(3);
  },

  async "pages of events have each once, the newest first"({ client }) {
    const count = 11;
    await client.emitMany(
      Array.from({ length: count }, (_, n) => ({ event: "log.paged", data: { n: count - 1 - n } })),
    );
    const seen: unknown[] = [];
    for (let cursor: string | undefined = ""; cursor !== undefined; ) {
      const page = await client.events.list({ names: ["log.paged"], limit: 3, ...(cursor && { cursor }) });
      seen.push(...page.events.map(({ data }) => (data as { n: number }).n));
      cursor = page.nextCursor || undefined;
    }
    expect(seen).toEqual(Array.from({ length: count }, (_, n) => n));
  },

  async "events are found between two times"({ client }) {
    const { eventId } = await client.emit("log.timed", {});
    const at = Date.parse((await client.events.get(eventId)).timestamp);
    const found = async (fromMs: number, toMs: number) =>
      (
        await client.events.list({
          names: ["log.timed"],
          ...{ since: new Date(at + fromMs), until: new Date(at + toMs) },
        })
      ).events.length;
    expect([await found(-1, 1), await found(-minuteMs, -1), await found(1, minuteMs)]).toEqual([1, 0, 0]);
  },

  async "names are counted apart, whatever language folds them together"({ client }) {
    for (const name of ["log.names.I", "log.names.i"]) await client.emit(name, {});
    await client.emit("log.names.i", {});
    const names = (await client.events.names()).filter(({ name }) => name.startsWith("log.names."));
    expect(names.toSorted((a, b) => (a.name < b.name ? -1 : 1))).toMatchObject([
      { name: "log.names.I", count: 1 },
      { name: "log.names.i", count: 2 },
    ]);
  },

  async "a delayed event comes at its time, one taken back never"(inside) {
    const { client } = inside;
    const delay = (n: number, ms: number) => client.emit("log.delayed", { n }, { delay: ms });
    const begunAt = Date.now();
    const [soon, never] = [await delay(1, 1_200), await delay(2, 3_600_000)];
    const dueAt = Date.parse(soon.delayed!.dueAt);
    expect(Math.abs(dueAt - begunAt - 1_200)).toBeLessThan(minuteMs);
    const waiting = (await client.events.delayed({ limit: 100 })).events.map(({ id }) => id);
    expect(waiting).toContain(never.delayed!.id);
    await client.events.cancelDelayed(never.delayed!.id);
    const events = await until(
      async () => {
        const found = (await named(inside, "log.delayed")).events;
        return found.length > 0 && found;
      },
      { about: "the delayed event" },
    );
    expect(events.map(({ data }) => data)).toEqual([{ n: 1 }]);
    expect(Date.parse(events[0]!.timestamp)).toBeGreaterThanOrEqual(dueAt);
  },

  async "an append at another version is refused, one at the version is the next"({ client }) {
    const append = (expectedVersion: number) =>
      client.streams.append({
        ...{ entityId: "log-versions", entityType: "thing", event: "log.appended" },
        ...{ data: { expectedVersion }, expectedVersion },
      });
    expect((await append(0)).version).toBe(1);
    const both = await Promise.allSettled([append(1), append(1)]);
    expect(both.map(({ status }) => status).toSorted()).toEqual(["fulfilled", "rejected"]);
    expect(await codeOf(append(0))).toBe("aborted");
  },

  async "a stream is folded from its latest snapshot"({ client }) {
    const target = { entityId: "log-folded", entityType: "thing", event: "log.folded" };
    for (let n = 1; n <= 5; n++)
      await client.streams.append({ ...target, data: { n }, expectedVersion: n - 1 });
    const fold = () =>
      client.streams.fold("log-folded", (sum: number, { data }) => sum + (data as { n: number }).n, {
        ...{ initial: 0, snapshotEvery: 3 },
      });
    expect(await fold()).toEqual({ state: 15, version: 5 });
    const snapshot = await client.streams.snapshot("log-folded");
    expect(snapshot).toMatchObject({ version: 5, state: 15 });
    expect(await fold()).toEqual({ state: 15, version: 5 });
  },

  async "streams are listed page by page, each once, and found by their text"({ client }) {
    const ids = ["1", "A", "a", "b", "B", "I", "i", "_", "~"].map((end) => `log-listed${end}`);
    for (const entityId of ids)
      await client.streams.append({
        entityId,
        entityType: "listed",
        event: "log.listed",
        data: {},
        expectedVersion: -1,
      });
    const seen: string[] = [];
    for (let cursor: string | undefined = ""; cursor !== undefined; ) {
      const page = await client.streams.list({ entityType: "listed", limit: 2, ...(cursor && { cursor }) });
      seen.push(...page.streams.map(({ entityId }) => entityId));
      cursor = page.nextCursor || undefined;
    }
    expect(seen.toSorted()).toEqual(ids.toSorted());
    const found = (await client.streams.list({ search: "log-listedI" })).streams.map(
      ({ entityId }) => entityId,
    );
    expect(found).toContain("log-listedI");
  },

  async "a redacted event keeps its place and loses its data"({ client }) {
    const target = { entityId: "log-redacted", entityType: "thing", event: "log.redacted" };
    const { eventId } = await client.streams.append({
      ...target,
      data: { of: "a secret" },
      expectedVersion: 0,
    });
    await client.streams.redact("log-redacted", eventId);
    const [event] = await Array.fromAsync(client.streams.read("log-redacted"));
    expect(event).toMatchObject({ id: eventId, version: 1, redactedAt: expect.any(String) });
    expect(JSON.stringify(event)).not.toContain("a secret");
  },

  async "a schema refuses what breaks it, and brings older data up to date"({ client }) {
    const schema = { type: "object", properties: { total: { type: "number" } }, required: ["total"] };
    const newer = { ...schema, required: ["sum"], "x-upcast": [{ op: "rename", path: "/total", to: "sum" }] };
    await client.schemas.register("log.checked", schema);
    await client.schemas.register("log.checked", newer, { version: 2 });
    const upcast = await client.schemas.testUpcast("log.checked", { total: 1 }, { from: 1 });
    expect(upcast.data).toEqual({ sum: 1 });
    expect(await codeOf(client.emit("log.checked", { total: "1" }))).toBe("invalid_argument");
    expect((await client.emit("log.checked", { total: 1 })).eventId).not.toBe("");
  },
};
