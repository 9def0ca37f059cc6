import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { connect } from "node:net";
import { concurrently } from "../cluster/load.ts";
import { engines, startTestServer, type TestServer } from "../support/server.ts";
import { openSocket, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

describe.each(engines)("from the past into the present, on %s", (engine) => {
  let server: TestServer;
  beforeAll(async () => {
    server = await startTestServer({ engine });
  }, 120_000);
  afterAll(() => server.stop());

  const batch = async (event: string, count: number, data: unknown = {}) => {
    const events = Array.from({ length: count }, () => ({ event, data }));
    const answer = await server.rpc("SvcService", "TriggerBatch", { events });
    expect(answer.status).toBe(200);
  };

  test("sockets that join while thousands of events are emitted get each once, in order", async () => {
    await batch("join.a", 100);
    const sockets: TestSocket[] = [];
    let emitted = 100;
    const emitting = concurrently(60, 4, async () => {
      await batch("join.a", 50);
      emitted += 50;
    });
    const starts: Record<string, unknown>[] = [
      {},
      { startAfterSequence: 0 },
      { replay: 1_000 },
      { replay: 7 },
      { startAfterSequence: 60 },
    ];
    for (let round = 0; round < 4; round++)
      for (const start of starts) {
        const socket = await openSocket(server.url, { key: server.adminKey });
        sockets.push(socket);
        // One that is like the others from the start, so that channels are shared by early and late.
        expect((await socket.subscribe("join.>", { includeMetadata: true, ...start })).status).toBe("ok");
      }
    await emitting;
    const last = Number((await server.rpc("SvcService", "Emit", { event: "join.last" })).body.sequence);
    for (const [at, socket] of sockets.entries()) {
      await until(() => socket.frames.at(-1)?.topic === "events:join.last", {
        about: `the last event at socket ${at}`,
        deadlineMs: 20_000,
      });
      const got = socket.of("event").map((frame) => frame.meta.sequence as number);
      const first = got[0]!;
      expect(got).toEqual(Array.from({ length: last - first + 1 }, (_, place) => first + place));
      const start = starts[at % starts.length]!;
      if (start.startAfterSequence !== undefined) expect(first).toBe(Number(start.startAfterSequence) + 1);
      socket.close();
    }
    expect(last).toBe(emitted + 1);
  }, 90_000);

  test("among many readers, whose texts gather, those who join and leave get each event once, in order", async () => {
    const crowd = await Promise.all(
      Array.from({ length: 150 }, () => openSocket(server.url, { key: server.adminKey })),
    );
    const options = { includeMetadata: true };
    const answers = await Promise.all(crowd.map((socket) => socket.subscribe("crowd.>", options)));
    const joining = async () => {
      const socket = await openSocket(server.url, { key: server.adminKey });
      await socket.subscribe("crowd.>", { ...options, startAfterSequence: 0 });
      return socket;
    };
    const leaving = crowd.slice(0, 20);
    const late: TestSocket[] = [];
    for (const [at, socket] of leaving.entries()) {
      const emitting = concurrently(15, 4, () => batch("crowd.a", 1));
      late.push(await joining());
      socket.send({ type: "unsubscribe", subscriptionId: answers[at].subscriptionId });
      await emitting;
    }
    await batch("crowd.last", 1);
    const sequencesOf = (socket: TestSocket) =>
      socket.of("event").map((frame) => frame.meta.sequence as number);
    for (const socket of [...crowd.slice(leaving.length), ...late]) {
      await until(() => socket.frames.at(-1)?.topic === "events:crowd.last", { about: "the last event" });
      // With the last one.
      expect(socket.of("event")).toHaveLength(301);
    }
    const all = sequencesOf(late[0]!);
    expect(all).toEqual(all.toSorted((one, other) => one - other));
    for (const socket of [...crowd.slice(leaving.length), ...late]) expect(sequencesOf(socket)).toEqual(all);
    for (const socket of leaving) {
      const got = sequencesOf(socket);
      expect(got).toEqual(all.slice(0, got.length));
      expect(got.length).toBeLessThan(all.length);
    }
    for (const socket of [...crowd, ...late]) socket.close();
  }, 90_000);

  test("a reader that does not read is closed, and holds up nobody", async () => {
    const good = await openSocket(server.url, { key: server.adminKey });
    await good.subscribe("slow.>");
    const lazy = connect(server.running.port, "127.0.0.1");
    let said = "";
    lazy.on("data", (bytes) => {
      said += bytes.toString("latin1");
    });
    let gone = false;
    lazy.on("close", () => {
      gone = true;
    });
    lazy.write(
      `GET /ws?token=${server.adminKey} HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n` +
        "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n",
    );
    await until(() => said.includes("101"), { about: "the upgrade" });
    const text = JSON.stringify({ type: "subscribe", subscription: { pattern: "slow.>" } });
    // Masked with zeros.
    lazy.write(Buffer.concat([Buffer.from([0x81, 0x80 + text.length, 0, 0, 0, 0]), Buffer.from(text)]));
    await until(() => said.includes("subscribed"), { about: "the subscription" });
    lazy.pause();
    const data = "x".repeat(64_000);
    for (let round = 1; round <= 8; round++) {
      await batch("slow.a", 50, { data });
      await good.wait("event", 50 * round);
    }
    expect(good.closed).toBeUndefined();
    lazy.resume();
    await until(() => gone, { about: "the lazy reader to be cut off" });
    good.close();
  }, 90_000);
});
