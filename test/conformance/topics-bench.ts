import { afterAll, beforeAll, expect } from "bun:test";
import type { Sql } from "../../src/kit/sql.ts";
import { pullWorker } from "../support/pull-worker.ts";
import type { TestServer } from "../support/server.ts";
import { openSocket, type SocketFrame, type TestSocket } from "../support/sockets.ts";
import { until } from "../support/until.ts";

/** Servers of one installation. Things are done at the first, and heard of at all of them. */
export interface TopicHouse {
  nodes: readonly TestServer[];
  close(): Promise<void>;
}

/** What a subscriber shall hear of; every field that is listed is there, and no other. */
export interface Expected {
  topic: string;
  fields: readonly string[];
  data: Record<string, unknown>;
}

const millisecondInstant = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
const instants = [
  ...["timestamp", "createdAt", "updatedAt", "startedAt", "endedAt"],
  ...["nextRun", "windowStart", "windowEnd"],
];

export const functionFields = [
  ...["id", "name", "status", "preferredMode", "createdAt", "updatedAt", "timestamp"],
] as const;

/** A house with a subscriber of everything at each of its nodes, for the tests of one `describe`. */
export function topicBench(open: () => Promise<TopicHouse>) {
  let house: TopicHouse;
  let server: TestServer;
  let sockets: TestSocket[];

  const rpc = async (method: string, body: object, options: object = {}) => {
    const answer = await server.rpc("SvcService", method, body, options);
    expect({ method, status: answer.status, body: answer.body }).toMatchObject({ status: 200 });
    return answer.body;
  };
  const register = (id: string, more: object = {}) =>
    rpc("RegisterFunction", { id, triggers: [{ event: `${id}.asked` }], ...more });
  const emit = async (event: string, more: object = {}) => rpc("Emit", { event, data: { n: 1 }, ...more });
  const write = (query: Sql) => server.running.domain.store.write((session) => session.run(query));
  /** On whichever node leads it. */
  const tick = async (loop: string) => {
    for (const node of house.nodes) await node.running.tick(loop);
  };
  const begin = async (id: string, more: object = {}) => {
    await register(id, more);
    const worker = pullWorker(server, `w-${id}`);
    await worker.register(id);
    await emit(`${id}.asked`);
    const [job] = await worker.poll();
    return { worker, job: job!, runId: job!.run_id };
  };
  const framesAt = (socket: TestSocket, topic: string): SocketFrame[] =>
    socket.of("event").filter((frame) => frame.topic === topic);

  /** The same text at every node, and in it what is expected. */
  async function heard(
    { topic, fields, data }: Expected,
    at: readonly TestSocket[] = sockets,
  ): Promise<SocketFrame> {
    const [frame] = await until(
      () => {
        const found = at.map((socket) => framesAt(socket, topic).at(-1));
        return found.every((one) => one !== undefined) ? found : undefined;
      },
      { about: `${topic} at every node`, deadlineMs: 20_000, everyMs: 10 },
    );
    expect({ topic, fields: Object.keys(frame.data).sort() }).toEqual({
      topic,
      fields: [...fields].sort(),
    });
    // The matcher writes what it matched with into what it is given.
    expect(structuredClone(frame.data)).toMatchObject(data);
    for (const field of instants)
      if (frame.data[field] !== undefined) expect(frame.data[field]).toMatch(millisecondInstant);
    const text = (socket: TestSocket) =>
      socket.texts.filter((one) => one.includes(`"topic":${JSON.stringify(topic)}`)).at(-1);
    for (const socket of at) expect(text(socket)).toBe(text(at[0]!)!);
    expect(frame.meta.timestamp).toMatch(millisecondInstant);
    if (topic.startsWith("system.")) expect(frame).not.toHaveProperty("eventId");
    return frame;
  }
  /** What came of a topic at each node, once a frame that follows it has come everywhere. */
  async function countHeard(topic: string): Promise<number[]> {
    const marker = `marker-${Bun.hash(String(performance.now()))}`;
    await register(marker);
    await heard({
      topic: `system.function.${marker}.registered`,
      fields: functionFields,
      data: {},
    });
    return sockets.map((socket) => framesAt(socket, topic).length);
  }
  const none = () => sockets.map(() => 0);

  async function openAt(key: string, patterns: readonly string[]): Promise<TestSocket[]> {
    return Promise.all(
      house.nodes.map(async (node) => {
        const socket = await openSocket(node.url, { key });
        for (const pattern of patterns) {
          const result = await socket.subscribe(pattern, { includeMetadata: true });
          expect(result).toMatchObject({ status: "ok" });
        }
        return socket;
      }),
    );
  }

  beforeAll(async () => {
    house = await open();
    server = house.nodes[0]!;
    sockets = await openAt(server.adminKey, ["events:>", "entity:>", "system.>"]);
    const kinds = ["runs", "steps", "workers", "streams", "projections"] as const;
    const isKnown = ({ running: { domain } }: TestServer) =>
      kinds.every((kind) => domain.frames.wants(kind, "env_default"));
    await until(() => house.nodes.every(isKnown), {
      about: "nodes to know of each other's readers",
    });
    await until(
      async () => {
        const { body } = await server.api("/api/v1/cluster/health");
        return ['"cron"', '"outbox"'].every((duty) => JSON.stringify(body).includes(duty));
      },
      { about: "leaders" },
    );
  }, 60_000);
  afterAll(async () => {
    for (const socket of sockets ?? []) socket.close();
    await house?.close();
  });

  return {
    house: () => house,
    server: () => server,
    sockets: () => sockets,
    rpc,
    register,
    emit,
    write,
    tick,
    begin,
    framesAt,
    heard,
    countHeard,
    none,
    openAt,
  };
}

export type TopicBench = ReturnType<typeof topicBench>;
