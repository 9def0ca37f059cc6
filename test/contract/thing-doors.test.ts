import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import type { FrameTopic } from "../../src/domain/realtime/pubsub/frame-things.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import {
  type Door,
  type Doors,
  doors,
  furnish,
  hidden,
  type Looker,
  lookerOf,
  readDoors,
  shownAt,
} from "../support/thing-doors.ts";
import { until } from "../support/until.ts";

const kinds = Object.keys(hidden);

describe.each(engines)("each kind of thing at each door, on %s", (engine) => {
  let server: TestServer;
  let world: Doors;
  let all: Record<string, Door>;
  const lookers = new Map<string, Looker>();
  beforeAll(async () => {
    server = await startTestServer({ engine, settings: { pollHoldMs: 500 } });
    all = { ...doors, ...readDoors(server.running.registry) };
    lookers.set("all", await lookerOf(server, "all"));
    const elsewhere = { actions: "*", resources: "*:*:no-such-name" };
    lookers.set("elsewhere", await lookerOf(server, "elsewhere", elsewhere));
    for (const kind of kinds) lookers.set(kind, await lookerOf(server, kind, hidden[kind]));
    world = { server, ids: await furnish(server) };
    const { socket } = lookers.get("all")!;
    for (const kind of kinds.filter((one) => !["kv", "projection", "webhook"].includes(one)))
      await until(() => socket.texts.some((text) => text.includes(hidden[kind]!.mark)), {
        about: `the frame of ${kind}`,
      });
    await server.rpc("EntityStreamService", "AppendEvent", {
      ...{ entityId: "last", entityType: "e", eventName: "the.end", expectedVersion: -1, data: {} },
    });
    await server.rpc("PubSubService", "Publish", { topic: "the.end", data: {} });
    for (const looker of lookers.values())
      await until(() => looker.socket.texts.filter((text) => text.includes("the.end")).length >= 3, {
        about: `the end at ${looker.name}`,
      });
  }, 120_000);
  afterAll(() => server?.stop());

  test("what a policy hides is shown at none, and what it does not hide at all of them", async () => {
    const shown = await shownAt(all, world, lookers.get("all")!);
    // Every kind is seen by who may: otherwise what follows would hold for nothing.
    const seen = new Set(shown.map((one) => one.slice(one.lastIndexOf(": ") + 2)));
    expect(kinds.filter((kind) => !seen.has(kind))).toEqual([]);
    const silent = Object.keys(doors).filter((name) => !shown.some((one) => one.startsWith(`${name}: `)));
    expect(silent).toEqual([]);
    for (const kind of kinds) {
      const open = await shownAt(all, world, lookers.get(kind)!, [kind]);
      expect([kind, open]).toEqual([kind, []]);
    }
    // Doors that pass over nothing are closed by a policy that may hide any one thing.
    const refusing = /^(SQL|projection's events|group|an endpoint's events)|^socket: config/;
    const others = await shownAt(doors, world, lookers.get("elsewhere")!);
    const ofDoors = shown.filter((one) => Object.keys(doors).some((name) => one.startsWith(`${name}: `)));
    expect(others).toEqual(ofDoors.filter((one) => !refusing.test(one)));
  }, 200_000);

  test("a door that asks about another thing is found", async () => {
    const asAdmin: Door = async (doorsOf, looker) =>
      doors["GET /events"]!(doorsOf, { ...looker, key: server.adminKey! });
    const byName: Door = async (_world, looker) =>
      looker.name === "event"
        ? ""
        : Object.values(hidden)
            .map(({ mark }) => mark)
            .join();
    const planted = { asAdmin, byName };
    expect(await shownAt(planted, world, lookers.get("stream")!, ["stream"])).toEqual([
      "asAdmin: stream",
      "byName: stream",
    ]);
    expect(await shownAt(planted, world, lookers.get("event")!, ["event"])).toEqual(["asAdmin: event"]);
  });

  test("a kind of frame that says nothing of its thing does not compile", () => {
    const known: FrameTopic = "system.run.run_1.completed";
    // @ts-expect-error: no kind of this name stands in `kindsOfFrames`
    const unknown: FrameTopic = "system.planted.one.created";
    expect([known, unknown]).toHaveLength(2);
  });
});
